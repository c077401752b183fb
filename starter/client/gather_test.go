package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queries is a reader that answers each query only when the test lets it.
type queries struct {
	began chan []string
	goOn  chan error
}

func (q queries) read(_ context.Context, keys []string) (map[string]string, error) {
	slices.Sort(keys)
	q.began <- keys
	err := <-q.goOn
	found := map[string]string{}
	for _, key := range keys {
		if key != "none" {
			found[key] = "value of " + key
		}
	}
	return found, err
}

func TestThoseWhoComeDuringAQueryAreAnsweredByTheNext(t *testing.T) {
	t.Parallel()
	q := queries{began: make(chan []string), goOn: make(chan error)}
	g := newGatherer(q.read)
	var waiting sync.WaitGroup
	ask := func(key string, there bool) {
		// Joined here, so that it has come before the test goes on.
		mine := g.join(key)
		waiting.Go(func() {
			<-mine.done
			value, found := mine.found[key]
			assert.Equal(t, there, found)
			if there {
				assert.Equal(t, "value of "+key, value)
			}
		})
	}
	ask("a", true)
	assert.Equal(t, []string{"a"}, <-q.began)
	// The first query may have read its answer already: whoever comes now is not answered by it.
	for range 3 {
		ask("a", true)
	}
	ask("b", true)
	ask("none", false)
	q.goOn <- nil
	assert.Equal(t, []string{"a", "b", "none"}, <-q.began, "one query for all")
	q.goOn <- nil
	waiting.Wait()
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return !g.reading
	}, 30*time.Second, time.Millisecond, "nothing goes on without anybody who waits")
	ask("c", true)
	assert.Equal(t, []string{"c"}, <-q.began)
	q.goOn <- nil
	waiting.Wait()
}

func TestAQueryThatFailsIsToldToThoseItWasForOnly(t *testing.T) {
	t.Parallel()
	q := queries{began: make(chan []string), goOn: make(chan error)}
	g := newGatherer(q.read)
	first := g.join("a")
	<-q.began
	second := g.join("a")
	away := errors.New("away")
	q.goOn <- away
	<-first.done
	assert.ErrorIs(t, first.err, away)
	<-q.began
	q.goOn <- nil
	<-second.done
	assert.NoError(t, second.err)
}

func TestOneThatGoesAwayLeavesTheOthersTheirQuery(t *testing.T) {
	t.Parallel()
	q := queries{began: make(chan []string), goOn: make(chan error)}
	g := newGatherer(q.read)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := g.get(gone, "a")
	assert.ErrorIs(t, err, context.Canceled)
	other := g.join("a")
	<-q.began
	q.goOn <- nil
	// Both may have been asked for together.
	select {
	case <-q.began:
		q.goOn <- nil
	case <-other.done:
	}
	<-other.done
	assert.NoError(t, other.err)
}
