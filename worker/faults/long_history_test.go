package faults_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// shortHistories gives a world whose server asks runs to begin anew after 40 events.
func shortHistories(t *testing.T) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	temporal, err := startTemporal(ctx, localstack.TemporalOptions{
		DynamicConfig: map[string]string{"limit.historyCount.suggestContinueAsNew": "40"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, temporal.Close()) })
	w := newWorld(t, temporal.Address(), sharedWorld(t).database, "short-histories")
	t.Cleanup(w.close)
	t.Cleanup(w.startWorker(t, w.store, w.queue))
	t.Cleanup(w.crew.start(t, w.address))
	return w
}

func TestT37_AJobWithALongHistoryGoesOnInANewRun(t *testing.T) {
	needsFaults(t)
	t.Parallel()
	w := shortHistories(t)
	everySecond := func(j *contract.Job) {
		j.Retry = contract.Retrying{MaxAttempts: 20, Multiplier: 1, MaxBackoff: contract.Duration(time.Second)}
	}
	t.Run("many attempts", func(t *testing.T) {
		s := w.stage(t, "")
		keys := map[string]bool{}
		s.startCharged(s.job("j1", everySecond))
		for attempt := 1; attempt < 15; attempt++ {
			call := s.next("j1")
			assert.Equal(t, attempt, call.meta.Attempt)
			keys[call.meta.IdempotencyKey] = true
			call.fail(errBusy)
		}
		s.next("j1").deliver("done")
		result := s.runEnds("j1")
		s.assertReclaimed(result)
		assert.Equal(t, 15, result.Attempts)
		assert.Len(t, keys, 14)
		assert.Greater(t, len(s.runs("j1")), 1)
		s.noCall("j1")
	})
	t.Run("a probe that goes on seeing the work running", func(t *testing.T) {
		s := w.stage(t, "")
		var asked atomic.Int64
		s.cast("j1", func(p *part) {
			p.stubborn = true
			p.probe = func(contract.WorkMeta) (contract.ProbeAnswer, error) {
				if asked.Add(1) < 10 {
					return contract.ProbeAnswer{State: contract.ProbeRunning}, nil
				}
				return contract.ProbeAnswer{State: contract.ProbeSucceeded, Output: json.RawMessage(`"found"`)}, nil
			}
		})
		s.startCharged(s.job("j1", everySecond, probed, timeout(time.Second), promised(3*time.Second)))
		s.next("j1")
		result := s.runEnds("j1")
		s.assertReclaimed(result)
		assert.Equal(t, 1, result.Attempts)
		assert.Greater(t, len(s.runs("j1")), 1)
		s.noCall("j1")
	})
}
