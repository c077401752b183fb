package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/reclaimhq/reclaim/starter/bench"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// enqueuesEnv sets how many transactions enqueue a job.
	enqueuesEnv     = "RECLAIM_ENQUEUES"
	defaultEnqueues = 1000
	// rateEnv sets how many jobs a second are enqueued where the lag of their starts is measured.
	rateEnv     = "RECLAIM_ENQUEUES_PER_SECOND"
	defaultRate = 10
	// enqueuesPerSecond is about as many as their jobs can be run in, a third of them being rolled back.
	enqueuesPerSecond = 36
	kills             = 10
)

// wanted reads a number from the environment.
func wanted(t *testing.T, name string, otherwise, least int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	require.GreaterOrEqual(t, n, least, name)
	return n
}

// product gives a pool on whose connections a login acts that has the role reclaim_enqueue and no other of Reclaim's, and a
// table of sales of its own.
func (s *stage) product(connections int32) *pgxpool.Pool {
	s.t.Helper()
	login := "product_" + s.tenant
	s.change("CREATE ROLE " + login + " LOGIN PASSWORD 'secret' IN ROLE reclaim_enqueue")
	s.change("CREATE TABLE public.sales (id text PRIMARY KEY)")
	s.change("GRANT INSERT ON public.sales TO " + login)
	address, err := url.Parse(s.database.AppURL)
	require.NoError(s.t, err)
	address.User = url.UserPassword(login, "secret")
	config, err := pgxpool.ParseConfig(address.String())
	require.NoError(s.t, err)
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(s.ctx(), config)
	require.NoError(s.t, err)
	s.t.Cleanup(pool.Close)
	return pool
}

// tally counts the calls of light work by their idempotency key.
type tally struct {
	mu    sync.Mutex
	calls map[string]int
}

// startLight runs work that does nothing but be counted.
func (s *stage) startLight() (*tally, string) {
	s.t.Helper()
	count, queue := &tally{calls: map[string]int{}}, "light-"+s.tenant
	temporal := dial(s.t, s.address, workRPCTimeout)
	s.t.Cleanup(temporal.Close)
	worker := sdkworker.New(temporal, queue, sdkworker.Options{})
	worker.RegisterActivityWithOptions(func(_ context.Context, _ json.RawMessage, meta contract.WorkMeta) (int, error) {
		count.mu.Lock()
		defer count.mu.Unlock()
		count.calls[meta.IdempotencyKey]++
		return 1, nil
	}, activity.RegisterOptions{Name: workActivity})
	require.NoError(s.t, worker.Start())
	s.t.Cleanup(worker.Stop)
	return count, queue
}

// sale is the n-th sale's job: as light as can be. Work that an overloaded server hands to nobody is soon tried again.
func (s *stage) sale(n int, queue string) contract.Job {
	return contract.Job{
		Tenant: s.tenant, JobID: fmt.Sprintf("sale-%d", n), Account: account, Cost: 1, Actor: "shop",
		Work:    contract.Work{Activity: workActivity, TaskQueue: queue, Timeout: contract.Duration(30 * time.Second)},
		Promise: contract.Duration(time.Hour), Retry: contract.Retrying{MaxAttempts: 5},
	}
}

// sell makes the n-th sale in a transaction of its own, which enqueues its job. It ends as the random number says.
func (s *stage) sell(shop *pgxpool.Pool, n int, queue string, random float64) (sold bool) {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	enqueuer := reclaim.New(nil, nil, "")
	conn, err := shop.Acquire(ctx)
	if !assert.NoError(s.t, err) {
		return false
	}
	defer conn.Release()
	job := s.sale(n, queue)
	tx, err := conn.Begin(ctx)
	assert.NoError(s.t, err)
	_, err = tx.Exec(ctx, "INSERT INTO public.sales (id) VALUES ($1)", job.JobID)
	assert.NoError(s.t, err)
	switch {
	case random < 0.25:
		assert.NoError(s.t, enqueuer.EnqueueJob(ctx, tx, job))
		assert.NoError(s.t, tx.Rollback(ctx))
	case random < 1./3:
		// The program dies before its commit.
		assert.NoError(s.t, enqueuer.EnqueueJob(ctx, tx, job))
		assert.NoError(s.t, conn.Hijack().PgConn().Conn().Close())
	case random < 0.4:
		// Enqueued, taken back, and enqueued after all.
		assert.Error(s.t, pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
			assert.NoError(s.t, enqueuer.EnqueueJob(ctx, inner, job))
			return errBusy
		}))
		fallthrough
	default:
		assert.NoError(s.t, enqueuer.EnqueueJob(ctx, tx, job))
		sold = assert.NoError(s.t, tx.Commit(ctx))
	}
	return sold
}

// runsByID counts the tenant's runs in Temporal, of whatever state, by workflow id.
func (s *stage) runsByID() map[string]int {
	s.t.Helper()
	all := map[string]int{}
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("ReclaimTenant = '%s'", s.tenant), PageSize: 1000,
	}
	for {
		page, err := s.temporal.ListWorkflow(s.ctx(), request)
		require.NoError(s.t, err)
		for _, execution := range page.GetExecutions() {
			all[execution.GetExecution().GetWorkflowId()]++
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return all
		}
	}
}

// Exactly the jobs whose transactions were committed run, once each, although the process with the relay is killed again and
// again.
func TestJobsEnqueuedByTransactionsRunOnceHoweverOftenTheRelayIsKilled(t *testing.T) {
	needsFaults(t)
	enqueues := wanted(t, enqueuesEnv, defaultEnqueues, 10*kills)
	s := sharedWorld(t).apart(t).stage(t, "")
	s.patience = 3*time.Minute + time.Duration(enqueues)*200*time.Millisecond
	s.topUp(account, int64(enqueues))
	before := s.balance()
	work, queue := s.startLight()
	shop := s.product(8)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	var done, sold atomic.Int64
	began := time.Now()
	type order struct {
		n      int
		random float64
	}
	orders := make(chan order)
	var sellers sync.WaitGroup
	for range 8 {
		sellers.Go(func() {
			for o := range orders {
				if s.sell(shop, o.n, queue, o.random) {
					sold.Add(1)
				}
				done.Add(1)
			}
		})
	}
	fates := make([]float64, enqueues)
	for n := range fates {
		fates[n] = random.Float64()
	}
	deaths := make([]int64, kills)
	for n := range deaths {
		deaths[n] = random.Int64N(int64(enqueues))
	}
	slices.Sort(deaths)
	go func() {
		defer close(orders)
		for n, fate := range fates {
			<-time.After(time.Until(began.Add(time.Duration(n) * time.Second / enqueuesPerSecond)))
			orders <- order{n, fate}
		}
	}()
	relay := s.startChild("")
	for _, death := range deaths {
		within(t, s.patience, "it is time", func() bool { return done.Load() >= death })
		<-time.After(time.Duration(random.Int64N(int64(2 * time.Second))))
		relay.kill()
		relay = s.startChild("")
	}
	sellers.Wait()
	enqueued := time.Since(began)
	within(t, s.patience, "the outbox is empty", func() bool { return s.waiting() == 0 })
	within(t, s.patience, "every job is closed", func() bool {
		return value[int64](s, `SELECT count(*) FROM reclaim.jobs WHERE tenant_id = $1 AND state = 'succeeded'`, s.tenant) >= sold.Load()
	})
	took := time.Since(began)

	committed := value[[]string](s, `SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM public.sales`)
	require.EqualValues(t, sold.Load(), len(committed))
	assert.InDelta(t, 2./3, float64(len(committed))/float64(enqueues), 0.1)
	assert.Equal(t, committed, value[[]string](s, `SELECT array_agg(job_id ORDER BY job_id) FROM reclaim.jobs
		WHERE tenant_id = $1 AND state = 'succeeded' AND delivered_at IS NOT NULL AND NOT is_refunded`, s.tenant))
	assert.Equal(t, committed, value[[]string](s, `SELECT array_agg(subject_id ORDER BY subject_id) FROM reclaim.outbox
		WHERE tenant_id = $1`, s.tenant), "one row of each")
	assert.Equal(t, committed, value[[]string](s, `SELECT array_agg(job_id ORDER BY job_id) FROM reclaim.ledger_entries
		WHERE tenant_id = $1 AND job_id IS NOT NULL AND type = 'charge' AND amount = -1`, s.tenant), "one charge of each")
	assert.Equal(t, len(committed), value[int](s, `SELECT count(*) FROM reclaim.ledger_entries WHERE tenant_id = $1
		AND job_id IS NOT NULL`, s.tenant), "and no other entry")
	assert.Equal(t, before-int64(len(committed)), s.balance())
	assert.Empty(t, s.issues())
	want := map[string]int{}
	for _, id := range committed {
		want[contract.JobWorkflowID(s.tenant, id)] = 1
	}
	within(t, patience, "every run can be listed", func() bool { return len(s.runsByID()) >= len(want) })
	assert.Equal(t, want, s.runsByID(), "one run of each, and none of what was rolled back")
	work.mu.Lock()
	assert.Len(t, work.calls, len(committed), "the work of each was done under one key")
	calls := 0
	for _, n := range work.calls {
		calls += n
	}
	work.mu.Unlock()
	// A sample is replayed, as every job of the smaller tests is; the audit covers all.
	s.noting.Lock()
	s.jobs = append(s.jobs, committed[:20]...)
	s.noting.Unlock()
	t.Logf("%d transactions in %s, %d committed; %d kills; all jobs were done after %s; %d rows were taken more than once; "+
		"the work was called %d times", enqueues, enqueued.Round(time.Second), len(committed), kills, took.Round(time.Second),
		value[int](s, `SELECT count(*) FROM reclaim.outbox WHERE attempts > 1`), calls)
}

// The lag from a row's writing to its start, while the jobs of the rows before it run. How many starts a second the server
// takes beside the jobs decides about it: asked for more, rows wait in the outbox.
func TestEnqueuedJobsStartWhileOthersRun(t *testing.T) {
	needsFaults(t)
	const seconds = 10
	perSecond := wanted(t, rateEnv, defaultRate, 1)
	s := sharedWorld(t).apart(t).stage(t, "")
	s.startChild("", "RECLAIM_CONNECTIONS=16")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	report, err := bench.Enqueue(ctx, bench.System{
		Temporal: s.temporal, Store: s.store, Client: s.client, TaskQueue: s.queue,
	}, perSecond, seconds)
	require.NoError(t, err)
	assert.Equal(t, perSecond*seconds, report.Enqueued)
	assert.Equal(t, report.Enqueued, report.Delivered)
	told, err := json.Marshal(report)
	require.NoError(t, err)
	t.Log(string(told))
}

// prompt is a Temporal that takes every start within a few milliseconds.
type prompt struct{ client.Client }

func (prompt) ExecuteWorkflow(context.Context, client.StartWorkflowOptions, any, ...any) (client.WorkflowRun, error) {
	<-time.After(5 * time.Millisecond)
	return nil, nil
}

// The lag without what the server adds to it, which on the tests' machine is nearly all of it.
func TestTheRelaysOwnShareOfTheLagIsSmall(t *testing.T) {
	needsFaults(t)
	s := sharedWorld(t).apart(t).stage(t, "")
	// How fast it is, is for the reader; that rows are taken as they are committed, and not when it is looked again, is not.
	assert.Less(t, s.lagOfStarts(prompt{}), time.Second)
}

// The lag without what it takes to run jobs: the server takes the starts, and nobody polls for them.
func TestStartsAloneFollowTheirTransactions(t *testing.T) {
	needsFaults(t)
	s := sharedWorld(t).apart(t).stage(t, "")
	s.lagOfStarts(s.temporal)
}

// lagOfStarts enqueues a thousand jobs, a hundred a second, tells how long they waited to be started, and returns what half of
// them waited at most.
func (s *stage) lagOfStarts(temporal client.Client) time.Duration {
	const perSecond, rows = 100, 1000
	s.t.Helper()
	s.t.Cleanup(s.startRelay(temporal))
	var sellers sync.WaitGroup
	began := time.Now()
	for n := range rows {
		<-time.After(time.Until(began.Add(time.Duration(n) * time.Second / perSecond)))
		sellers.Go(func() {
			assert.NoError(s.t, pgx.BeginFunc(s.ctx(), s.store.Pool, func(tx pgx.Tx) error {
				return s.client.EnqueueJob(s.ctx(), tx, s.sale(n, "nobody"))
			}))
		})
	}
	sellers.Wait()
	s.relayed()
	lags := value[[]float64](s, `SELECT percentile_cont('{0.5,0.95,0.99}'::float8[]) WITHIN GROUP
		(ORDER BY extract(epoch FROM delivered_at - created_at)::float8 * 1000) FROM reclaim.outbox`)
	s.t.Logf("%d rows a second: p50 %.1f ms, p95 %.1f ms, p99 %.1f ms", perSecond, lags[0], lags[1], lags[2])
	return time.Duration(lags[0] * float64(time.Millisecond))
}
