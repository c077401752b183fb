package activities_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// seedEnv names the environment variable that repeats the random choices of an earlier run.
const seedEnv = "RECLAIM_TEST_SEED"

// seedOf gives the seed of the test's random choices and prints it.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if given := os.Getenv(seedEnv); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("%s=%d repeats the choices of this run", seedEnv, seed)
	return seed
}

// storm is what many goroutines do to the same jobs.
type storm struct {
	w    *world
	jobs *activities.Jobs
	keys []activities.JobKey
	cost map[activities.JobKey]int64

	mu sync.Mutex
	// applied counts the movements that were told as applied, by job and kind; verdicts all answers, by guard.
	applied    map[string]int
	verdicts   map[string]int
	errorTypes map[string]int
}

// stormAccounts: the first takes half of the jobs.
const stormAccounts = 5

func newStorm(w *world, jobs *activities.Jobs, random *rand.Rand, many int) *storm {
	s := &storm{
		w: w, jobs: jobs, cost: map[activities.JobKey]int64{},
		applied: map[string]int{}, verdicts: map[string]int{}, errorTypes: map[string]int{},
	}
	for i := range stormAccounts {
		w.topUp(tenant, fmt.Sprint("account-", i), 1_000_000)
	}
	for i := range many {
		name := "account-0"
		if i%2 == 1 {
			name = fmt.Sprint("account-", 1+random.IntN(stormAccounts-1))
		}
		cost := int64(random.IntN(4)) * 7
		key := w.charged(name, cost)
		s.keys, s.cost[key] = append(s.keys, key), cost
	}
	return s
}

// step makes one random call.
func (s *storm) step(ctx context.Context, random *rand.Rand) error {
	key := s.keys[random.IntN(len(s.keys))]
	attempt := 1 + random.IntN(3)
	reason := "storm"
	var moves string
	var call func() (answered, error)
	switch random.IntN(9) {
	case 0, 1:
		request := activities.RefundRequest{JobKey: key, Reason: reason, Cancel: random.IntN(4) == 0}
		if random.IntN(2) == 0 {
			request.Ended = ended(attempt, random.IntN(2) == 0)
		}
		moves, call = "refund", func() (answered, error) { return ofJob(s.jobs.RefundJob(ctx, request)) }
	case 2:
		// Fewer settlements, so that jobs live long enough to see the rest.
		if random.IntN(3) > 0 {
			return nil
		}
		request := activities.SettleRequest{JobKey: key, Attempt: attempt, Reason: reason}
		moves, call = "delivery", func() (answered, error) { return ofJob(s.jobs.SettleJob(ctx, request)) }
	case 3, 4:
		request := activities.RecordRequest{JobKey: key, Ended: ended(attempt, random.IntN(2) == 0)}
		call = func() (answered, error) { return ofJob(s.jobs.RecordAttempt(ctx, request)) }
	case 5:
		request := activities.ParkRequest{JobKey: key, MaxAttempts: 2, Reason: reason}
		call = func() (answered, error) { return ofJob(s.jobs.ParkJob(ctx, request)) }
	case 6:
		if random.IntN(3) > 0 {
			return nil
		}
		request := activities.CloseRequest{JobKey: key, State: contract.StateFailed, Reason: reason, Ended: ended(attempt, true)}
		if random.IntN(2) == 0 {
			request.State, request.Ended = contract.StateCanceled, activities.EndedAttempt{}
		}
		moves, call = "close", func() (answered, error) { return ofJob(s.jobs.CloseJob(ctx, request)) }
	case 7:
		action := []contract.Action{contract.ActionRetry, contract.ActionRetry, contract.ActionDeliver, contract.ActionWriteOff}[random.IntN(4)]
		request := activities.ResolveRequest{
			JobKey: key, Resolution: resolution(fmt.Sprint(action, "-", random.IntN(3)), action), RecordRefusal: random.IntN(2) == 0,
		}
		if action == contract.ActionDeliver {
			moves = "delivery"
		}
		call = func() (answered, error) { return ofResolve(s.jobs.ResolveJob(ctx, request)) }
	case 8:
		request := chargeOf(key, "account-0", s.cost[key]+int64(random.IntN(2)))
		moves, call = "charge", func() (answered, error) {
			answer, err := s.jobs.ChargeJob(ctx, request)
			return ofJob(answer.JobAnswer, err)
		}
	}
	answer, types, err := untilAnswered(call)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range types {
		s.errorTypes[name] += n
	}
	s.verdicts[string(answer.verdict)+" "+answer.why]++
	if answer.verdict == activities.Applied && moves != "" {
		s.applied[moves+" of "+key.JobID]++
	}
	return nil
}

// rage makes the calls in 64 goroutines.
func (s *storm) rage(t *testing.T, seed uint64, steps int) {
	t.Helper()
	var group sync.WaitGroup
	for i := range uint64(64) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, i))
			for range steps {
				if err := s.step(t.Context(), random); err != nil {
					t.Errorf("no answer: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
	t.Logf("verdicts %v, errors %v", s.verdicts, s.errorTypes)
	for _, verdict := range []string{
		"applied ", "already ", "refused delivered", "refused closed", "refused not_running", "refused not_refunded",
		"refused attempts_left", "refused wrong_state", "refused conflict",
	} {
		assert.Positive(t, s.verdicts[verdict], "the storm met %q", verdict)
	}
	for what, times := range s.applied {
		assert.LessOrEqual(t, times, 1, what)
	}
}

func TestL1_SixtyFourGoroutinesOnTheSameJobsKeepEveryBalance(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	w := newWorld(t, 64)
	s := newStorm(w, w.jobs, rand.New(rand.NewPCG(seed, 1<<32)), 200)
	s.rage(t, seed, 50)
	assertBusy(t, s.errorTypes)
	w.assertSound()
}

func TestL14_SixtyFourGoroutinesThatLoseRepliesKeepEveryBalance(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	w := newWorld(t, 4)
	proxy, jobs := w.behind(64)
	s := newStorm(w, jobs, rand.New(rand.NewPCG(seed, 1<<32)), 100)
	proxy.LoseRandomly(rand.New(rand.NewPCG(seed, 2<<32)), 0.08, schematest.Containing("-- name: ", "Job :one"))
	proxy.LoseRandomly(rand.New(rand.NewPCG(seed, 3<<32)), 0.08, statement("RecordAttempt"))
	s.rage(t, seed, 16)
	assert.Greater(t, proxy.Lost(), 10)
	assert.Positive(t, s.errorTypes[string(schema.ErrorUnavailable)])
	w.assertSound()
}
