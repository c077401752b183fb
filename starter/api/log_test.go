package api

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// written is what was written, a text for each write.
type written struct {
	mu     sync.Mutex
	all    []string
	broken bool
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken {
		return 0, errors.New("no space left on device")
	}
	w.all = append(w.all, string(p))
	return len(p), nil
}

func (w *written) be(broken bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = broken
}

func (w *written) lines() (writes, lines int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all), strings.Count(strings.Join(w.all, ""), "\n")
}

func TestLinesOfTheLogAreWrittenTogetherAndNoneIsLeftOut(t *testing.T) {
	t.Parallel()
	out := new(written)
	logger, stop := newLogger(out)
	const lines = 500
	for n := range lines {
		logger.Info("request", zap.Int("n", n))
	}
	require.Eventually(t, func() bool { _, n := out.lines(); return n == lines }, 30*time.Second, time.Millisecond, "without a stop")
	writes, _ := out.lines()
	assert.Less(t, writes, lines/10)

	logger.With(zap.String("who", "a")).Info("request")
	logger.With(zap.String("who", "b")).Error("a request met a fault")
	_, n := out.lines()
	assert.Equal(t, lines+2, n, "an error does not wait, nor does what came before it")

	logger.Info("stopped")
	require.NoError(t, stop())
	_, n = out.lines()
	assert.Equal(t, lines+3, n)
}

func TestALogThatCouldNotBeWrittenGoesOn(t *testing.T) {
	t.Parallel()
	out := new(written)
	logger, stop := newLogger(out)
	out.be(true)
	logger.Error("lost")
	out.be(false)
	logger.Info("kept")
	require.NoError(t, stop())
	assert.Contains(t, strings.Join(out.all, ""), "kept")
}
