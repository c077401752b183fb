package faults_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	outageJobs = 100
	outage     = 20 * time.Second
	// soonPromise passes during the outage, before much of the work is done.
	soonPromise = 6 * time.Second
)

// crowd is many jobs under way whose work takes 4 to 12 seconds under a limit of 15. Every other one is promised so soon
// that it may be refunded first.
type crowd struct {
	*stage
	done      *shelf
	delivered atomic.Int64
}

func newCrowd(s *stage) *crowd {
	c := &crowd{stage: s, done: newShelf()}
	s.patience = 3 * time.Minute
	s.topUp(account, outageJobs*cost)
	return c
}

func (c *crowd) id(n int) string { return fmt.Sprintf("j%d", n) }

// startAll submits every job and waits until all are charged.
func (c *crowd) startAll() {
	c.t.Helper()
	var submitters sync.WaitGroup
	numbers := make(chan int)
	for range 8 {
		submitters.Go(func() {
			for n := range numbers {
				promise := 5 * time.Minute
				if n%2 == 0 {
					promise = soonPromise
				}
				takes := 4*time.Second + time.Duration(n)*8*time.Second/outageJobs
				c.cast(c.id(n), func(p *part) { p.work = c.work(takes) })
				verdict, err := c.client.StartJob(c.ctx(), c.job(c.id(n), promised(promise), timeout(15*time.Second), attempts(5)))
				assert.NoError(c.t, err)
				assert.Equal(c.t, contract.VerdictCharged, verdict.Verdict)
			}
		})
	}
	for n := range outageJobs {
		numbers <- n
	}
	close(numbers)
	submitters.Wait()
}

// work recognises its idempotency key and takes the time once.
func (c *crowd) work(takes time.Duration) func(context.Context, contract.WorkMeta) (any, error) {
	return func(ctx context.Context, meta contract.WorkMeta) (any, error) {
		return c.done.keep(ctx, meta.IdempotencyKey, func() any {
			// It goes on whatever becomes of the activity, as a rendering on another machine does.
			for until := time.After(takes); ; {
				select {
				case <-until:
					c.delivered.Add(1)
					return "done"
				case <-time.After(200 * time.Millisecond):
					heartbeat(ctx)
				}
			}
		})
	}
}

// endWell checks that every job was delivered, was charged once in the end, and that its work was done once.
func (c *crowd) endWell() {
	c.t.Helper()
	late, invoked := 0, 0
	for _, id := range c.jobs {
		result := c.runEnds(id)
		assert.Equal(c.t, contract.StateSucceeded, result.State, id)
		assert.EqualValues(c.t, cost, result.Net, id)
		if result.Late {
			late++
			c.assertReclaimed(result)
		} else {
			c.assertDelivered(result)
		}
		invoked += c.part(id).invocations()
		assert.Equal(c.t, contract.StateSucceeded, c.status(id).State)
	}
	assert.EqualValues(c.t, credits, c.balance())
	assert.Equal(c.t, outageJobs, c.done.runs(), "the real work was done once for each job")
	c.t.Logf("%d jobs delivered, %d of them late; the work was called %d times", len(c.jobs), late, invoked)
}

// stays waits for the length of an outage: time is what this is about.
func stays(d time.Duration) { <-time.After(d) }

// The outages are played before the other tests, which would take the machine's time from them.
func TestJobsSurviveOutages(t *testing.T) {
	needsFaults(t)
	t.Run("Postgres is away", postgresAway)
	t.Run("Temporal is killed", temporalKilled)
}

func postgresAway(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	postgres, err := localstack.StartPostgres(ctx, localstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, postgres.Close()) })
	own := newWorld(t, w.address, schematest.NewOn(t, postgres.SuperuserURL("postgres")), "pg-outage")
	t.Cleanup(own.close)
	t.Cleanup(own.startWorker(t, own.store, own.queue))
	t.Cleanup(own.crew.start(t, own.address))
	c := newCrowd(own.stage(t, ""))
	c.startAll()
	eventually(t, "some jobs are delivered", func() bool { return c.delivered.Load() >= 5 })
	postgres.Stop()
	_, err = c.client.Status(c.ctx(), c.tenant, c.id(0))
	assert.Equal(t, contract.CodeUnavailable, contract.CodeOf(err), "%v", err)
	stays(outage)
	eventually(t, "all work is done meanwhile", func() bool { return c.delivered.Load() == outageJobs })
	value, err := c.temporal.QueryWorkflow(c.ctx(), contract.JobWorkflowID(c.tenant, c.id(outageJobs-1)), "", contract.StatusQuery)
	require.NoError(t, err, "queries are answered during the outage")
	var status contract.JobStatus
	require.NoError(t, value.Get(&status))
	assert.Equal(t, contract.StateRunning, status.State)
	require.NoError(t, postgres.Restart(ctx))
	back := time.Now()
	c.endWell()
	t.Logf("the last job ended %s after Postgres was back", time.Since(back).Round(time.Millisecond))
}

func temporalKilled(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	temporal, err := startTemporal(ctx, localstack.TemporalOptions{Persistent: true, Unsynced: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, temporal.Close()) })
	own := newWorld(t, temporal.Address(), w.database, "temporal-outage")
	t.Cleanup(own.close)
	t.Cleanup(own.startWorker(t, own.store, own.queue))
	t.Cleanup(own.crew.start(t, own.address))
	c := newCrowd(own.stage(t, ""))
	c.startAll()
	eventually(t, "some jobs are delivered", func() bool { return c.delivered.Load() >= 5 })
	temporal.Kill()
	status, err := c.client.Status(c.ctx(), c.tenant, c.id(outageJobs-1))
	require.NoError(t, err)
	assert.Equal(t, contract.Money{Charged: cost}, status.Money, "the row answers while Temporal is away")
	stays(outage)
	require.NoError(t, temporal.Restart(ctx))
	back := time.Now()
	c.endWell()
	t.Logf("the last job ended %s after Temporal was back", time.Since(back).Round(time.Millisecond))
}
