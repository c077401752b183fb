package client

import (
	"context"
	"sync"
	"time"
)

// gatherPatience bounds one query of a gatherer: as long as a statement may take on Postgres' side.
const gatherPatience = 5 * time.Second

// gatherSpacing is the least time from the begin of a query for several look-ups to that of the next, so that a busy door
// makes few queries. Look-ups that come one at a time do not wait for it.
const gatherSpacing = 2 * time.Millisecond

// gatherer answers many look-ups with few queries. While one query is under way, those who come wait for the next, which
// asks for all of them together: the busier it is, the more each query answers, and every answer is read by a query that
// began after its look-up did, so that nobody sees what was true only before. Use newGatherer.
type gatherer[K comparable, V any] struct {
	read func(context.Context, []K) (map[K]V, error)

	mu      sync.Mutex
	next    *gathering[K, V]
	reading bool
}

// gathering is one query's look-ups.
type gathering[K comparable, V any] struct {
	wanted map[K]bool
	done   chan struct{}
	found  map[K]V
	err    error
}

func newGatherer[K comparable, V any](read func(context.Context, []K) (map[K]V, error)) *gatherer[K, V] {
	return &gatherer[K, V]{read: read}
}

// get returns the key's value; there is false where it has none.
func (g *gatherer[K, V]) get(ctx context.Context, key K) (value V, there bool, err error) {
	mine := g.join(key)
	select {
	case <-mine.done:
	case <-ctx.Done():
		return value, false, ctx.Err()
	}
	value, there = mine.found[key]
	return value, there, mine.err
}

func (g *gatherer[K, V]) join(key K) *gathering[K, V] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.next = &gathering[K, V]{wanted: map[K]bool{}, done: make(chan struct{})}
	}
	g.next.wanted[key] = true
	if !g.reading {
		g.reading = true
		go g.readAll()
	}
	return g.next
}

// readAll makes one query after another until nobody waits.
func (g *gatherer[K, V]) readAll() {
	for {
		g.mu.Lock()
		batch := g.next
		g.next, g.reading = nil, batch != nil
		g.mu.Unlock()
		if batch == nil {
			return
		}
		keys := make([]K, 0, len(batch.wanted))
		for key := range batch.wanted {
			keys = append(keys, key)
		}
		began := time.Now()
		// It is nobody's alone: that one of those who asked goes away must not end it.
		ctx, cancel := context.WithTimeout(context.Background(), gatherPatience)
		batch.found, batch.err = g.read(ctx, keys)
		cancel()
		close(batch.done)
		if len(keys) > 1 {
			<-time.After(gatherSpacing - time.Since(began))
		}
	}
}
