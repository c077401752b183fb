package faults_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// newEnqueueStage gives a stage in a world apart, with a crew. Its test starts the relay and the worker.
func newEnqueueStage(t *testing.T) *stage {
	t.Helper()
	needsQuiet(t)
	t.Parallel()
	s := sharedWorld(t).apart(t).stage(t, "")
	t.Cleanup(s.crew.start(t, s.address))
	return s
}

// enqueue commits a transaction that enqueues the jobs.
func (s *stage) enqueue(jobs ...contract.Job) {
	s.t.Helper()
	require.NoError(s.t, pgx.BeginFunc(s.ctx(), s.store.Pool, func(tx pgx.Tx) error {
		for _, job := range jobs {
			if err := s.client.EnqueueJob(s.ctx(), tx, job); err != nil {
				return err
			}
		}
		return nil
	}))
}

// enqueueRaw writes a row as no EnqueueJob would.
func (s *stage) enqueueRaw(tenant, subject, payload string) {
	s.t.Helper()
	s.change(`INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload) VALUES ('start_job', $1, $2, $3)`,
		tenant, subject, payload)
}

// change runs SQL past everything under test.
func (s *stage) change(sql string, args ...any) {
	s.t.Helper()
	_, err := s.direct.Exec(s.ctx(), sql, args...)
	require.NoError(s.t, err)
}

// waiting counts the rows of this world that are not delivered.
func (s *stage) waiting() int {
	s.t.Helper()
	return value[int](s, `SELECT count(*) FROM reclaim.outbox WHERE delivered_at IS NULL`)
}

// relayed waits until every row of this world is delivered.
func (s *stage) relayed() {
	s.t.Helper()
	eventually(s.t, "the outbox is empty", func() bool { return s.waiting() == 0 })
}

// again lets every row be taken as one is whose relay died before it marked it.
func (s *stage) again() {
	s.t.Helper()
	s.change(`UPDATE reclaim.outbox SET delivered_at = NULL, next_attempt_at = clock_timestamp()`)
}

// carries starts the worker, and a relay, of this world.
func (s *stage) carries() {
	s.t.Helper()
	s.t.Cleanup(s.startWorker(s.t, s.store, s.queue))
	s.t.Cleanup(s.startRelay(s.temporal))
}

// through opens a store whose statements go through the proxy.
func (s *stage) through(proxy *schematest.LossyProxy) *schema.Store {
	s.t.Helper()
	store, err := schema.Open(context.Background(), proxy.URL(s.database.AppURL), schema.Options{MaxConns: 8})
	require.NoError(s.t, err)
	s.t.Cleanup(store.Close)
	return store
}

// gathered reads the relay's metrics: waiting and oldest, and how many lags of each kind were seen with their sum.
type gathered struct {
	waiting, oldest float64
	lags            map[string]uint64
	lagSum          map[string]float64
}

func (s *stage) gather(metrics *prometheus.Registry) (g gathered) {
	s.t.Helper()
	families, err := metrics.Gather()
	require.NoError(s.t, err)
	g.lags, g.lagSum = map[string]uint64{}, map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			switch family.GetName() {
			case "reclaim_outbox_waiting":
				g.waiting = metric.GetGauge().GetValue()
			case "reclaim_outbox_oldest_seconds":
				g.oldest = metric.GetGauge().GetValue()
			case "reclaim_outbox_lag_seconds":
				require.Equal(s.t, "kind", metric.GetLabel()[0].GetName())
				kind := metric.GetLabel()[0].GetValue()
				g.lags[kind], g.lagSum[kind] = metric.GetHistogram().GetSampleCount(), metric.GetHistogram().GetSampleSum()
			}
		}
	}
	return g
}

func TestAnEnqueuedJobIsStartedChargedAndDelivered(t *testing.T) {
	s := newEnqueueStage(t)
	metrics := prometheus.NewRegistry()
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	t.Cleanup(s.startRelayOn(s.store, s.temporal, metrics))
	s.enqueue(s.job("j1"))
	call := s.next("j1")
	assert.JSONEq(t, `{"scene":"sea"}`, string(call.input))
	call.deliver("done")
	s.assertDelivered(s.runEnds("j1"))
	s.relayed()
	assert.Empty(t, s.outboxRow("j1").lastError)
	assert.Len(t, s.runs("j1"), 1)
	assert.Empty(t, s.issues())
	eventually(t, "the lag is counted", func() bool { return s.gather(metrics).lags["start_job"] == 1 })
	// The histogram's own figure is that of the row, but for the time that an answer from Postgres takes.
	lag := value[float64](s, `SELECT extract(epoch FROM delivered_at - created_at)::float8 FROM reclaim.outbox`)
	assert.InDelta(t, lag, s.gather(metrics).lagSum["start_job"], 1)
	assert.Zero(t, s.gather(metrics).lags["start_refund"])
}

func TestAJobEnqueuedTwiceIsOneJob(t *testing.T) {
	s := newEnqueueStage(t)
	job := s.job("j1")
	s.enqueue(job, job)
	s.enqueue(job)
	s.cast("j1", answersAtOnce("done"))
	s.carries()
	s.relayed()
	s.assertDelivered(s.runEnds("j1"))
	// Closed, it is not run again by what comes later, nor by what is delivered again.
	s.enqueue(job)
	s.relayed()
	s.again()
	s.relayed()
	assert.Len(t, s.runs("j1"), 1)
	assert.Equal(t, "charge", s.story("j1"))
	assert.Equal(t, 1, s.part("j1").invocations())
	assert.Empty(t, s.issues())
	assert.EqualValues(t, credits-cost, s.balance())
}

func TestAnEnqueuedJobUnderAnotherJobsIDIsRefusedWithAnIssue(t *testing.T) {
	s := newEnqueueStage(t)
	metrics := prometheus.NewRegistry()
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	t.Cleanup(s.startRelayOn(s.store, s.temporal, metrics))
	s.startCharged(s.job("open"))
	s.startCharged(s.job("closed"))
	s.next("closed").deliver("done")
	s.assertDelivered(s.runEnds("closed"))
	running := s.next("open")
	for _, id := range []string{"open", "closed"} {
		other := s.job(id)
		other.Cost++
		s.enqueue(other)
	}
	s.relayed()
	s.again()
	s.relayed()
	assert.Equal(t, []string{"enqueued_job_refused", "enqueued_job_refused"}, s.issues(), "one for each, however often it is tried")
	for _, id := range []string{"open", "closed"} {
		assert.Contains(t, value[string](s, `SELECT evidence FROM reclaim.issues WHERE tenant_id = $1 AND subject_kind = 'job'
			AND subject_id = $2`, s.tenant, id), "stands for other parameters")
		assert.Len(t, s.runs(id), 1)
		assert.Equal(t, "charge", s.story(id))
	}
	assert.Zero(t, s.gather(metrics).lags["start_job"], "what is not started has no lag")
	running.deliver("done")
	s.assertDelivered(s.runEnds("open"))
}

// Whether an open run is the enqueued job's is known once it has charged. Until then the row waits; then the job's row decides.
func TestAnEnqueuedJobWaitsForAnotherSubmissionToBeCharged(t *testing.T) {
	s := newEnqueueStage(t)
	s.startPlain(s.job("same"), "same")
	s.startPlain(s.job("other"), "other")
	other := s.job("other")
	other.Cost++
	s.enqueue(s.job("same"), other)
	t.Cleanup(s.startRelay(s.temporal))
	for _, id := range []string{"same", "other"} {
		eventually(t, "the row is put off", func() bool {
			return strings.Contains(s.outboxRow(id).lastError, "open and has not charged yet")
		})
		assert.False(t, s.outboxRow(id).delivered)
	}
	assert.Empty(t, s.issues())
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	// The work goes on meanwhile: a run that had ended would be followed by one that only finds the job done.
	s.relayed()
	for _, id := range []string{"same", "other"} {
		s.next(id).deliver("done")
		s.assertDelivered(s.runEnds(id))
		assert.Len(t, s.runs(id), 1)
		assert.Empty(t, s.outboxRow(id).lastError)
	}
	assert.Equal(t, []string{"enqueued_job_refused"}, s.issues())
	assert.Equal(t, "other", value[string](s, `SELECT subject_id FROM reclaim.issues WHERE tenant_id = $1`, s.tenant))
}

// Another submission's run that is declined leaves the way to the enqueued job.
func TestAnEnqueuedJobIsStartedAfterAnotherSubmissionWasDeclined(t *testing.T) {
	s := newEnqueueStage(t)
	dear := s.job("j1")
	dear.Cost = 10 * credits
	s.startPlain(dear, "j1")
	s.enqueue(s.job("j1"))
	t.Cleanup(s.startRelay(s.temporal))
	eventually(t, "the row is put off", func() bool { return s.outboxRow("j1").lastError != "" })
	s.cast("j1", answersAtOnce("done"))
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	s.relayed()
	s.assertDelivered(s.runEnds("j1"))
	assert.Len(t, s.runs("j1"), 2)
	assert.Empty(t, s.issues())
}

// A declined job has no row to tell that it was started: its run does.
func TestADeclinedEnqueuedJobIsNotStartedAgain(t *testing.T) {
	for _, how := range []string{
		// The relay never learns that the row is marked.
		"the mark's answer is lost",
		// The start took effect; the relay is gone before it marks the row.
		"the relay dies before the mark",
		"the start's answer is lost",
	} {
		t.Run(how, func(t *testing.T) {
			s := newEnqueueStage(t)
			t.Cleanup(s.startWorker(t, s.store, s.queue))
			proxy := schematest.NewLossyProxy(t, s.database.Address)
			temporal, release := s.temporal, func() {}
			switch how {
			case "the mark's answer is lost":
				proxy.LoseReply(statement("DeliverOutbox"), 1)
			case "the relay dies before the mark":
				release = proxy.Hold(statement("DeliverOutbox"))
			default:
				temporal = &losing{Client: s.temporal}
			}
			dear := s.job("j1")
			dear.Cost = credits + 1
			s.enqueue(dear)
			stop := s.startRelayOn(s.through(proxy), temporal, prometheus.NewRegistry())
			t.Cleanup(stop)
			eventually(t, "it is started", func() bool { return len(s.runs("j1")) == 1 })
			assert.Equal(t, contract.StateDeclined, s.runEnds("j1").State)
			s.topUp(account, credits)
			switch how {
			case "the relay dies before the mark":
				eventually(t, "the mark is under way", func() bool { return proxy.Held() > 0 })
				assert.False(t, s.outboxRow("j1").delivered)
				stop()
				s.change(`UPDATE reclaim.outbox SET next_attempt_at = clock_timestamp()`)
				t.Cleanup(s.startRelay(s.temporal))
			case "the mark's answer is lost":
				eventually(t, "the answer is lost", func() bool { return proxy.Lost() > 0 })
			}
			s.relayed()
			release()
			assert.Len(t, s.runs("j1"), 1, "it is declined, for all that the account could pay by now")
			assert.Empty(t, s.story("j1"))
			assert.EqualValues(t, 2*credits, s.balance())
			assert.Empty(t, s.issues())

			// To be run after all it is enqueued again, or submitted.
			s.cast("j1", answersAtOnce("done"))
			s.enqueue(dear)
			s.relayed()
			assert.Equal(t, contract.StateSucceeded, s.runEnds("j1").State)
			assert.Len(t, s.runs("j1"), 2)
		})
	}
}

// A later submission's run hides ours, which was declined before: the id has had its verdict all the same.
func TestADeclinedEnqueuedJobIsNotStartedAgainBehindALaterSubmission(t *testing.T) {
	s := newEnqueueStage(t)
	s.carries()
	dear := s.job("j1")
	dear.Cost = credits + 1
	s.enqueue(dear)
	s.relayed()
	assert.Equal(t, contract.StateDeclined, s.runEnds("j1").State)
	s.startPlain(dear, "j1")
	assert.Equal(t, contract.StateDeclined, s.runEnds("j1").State)
	s.topUp(account, credits)
	s.again()
	s.relayed()
	assert.Len(t, s.runs("j1"), 2)
	assert.Empty(t, s.story("j1"))
	assert.EqualValues(t, 2*credits, s.balance())
	assert.Empty(t, s.issues())

	s.cast("j1", answersAtOnce("done"))
	s.enqueue(dear)
	s.relayed()
	assert.Equal(t, contract.StateSucceeded, s.runEnds("j1").State)
	assert.Len(t, s.runs("j1"), 3)
}

// A charged job whose later run was ended from outside needs a run: it has a row, so that its verdict was another.
func TestAChargedJobWhoseRunWasEndedIsStartedFromTheOutboxAgain(t *testing.T) {
	s := newEnqueueStage(t)
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	// Enqueued before the other run begins, and not taken until that has ended.
	s.enqueue(s.job("j1"))
	s.startCharged(s.job("j1"))
	s.next("j1")
	s.terminate("j1")
	s.cast("j1", answersAtOnce("done"))
	s.change(`UPDATE reclaim.outbox SET attempts = 1`)
	t.Cleanup(s.startRelay(s.temporal))
	s.relayed()
	s.assertDelivered(s.runEnds("j1"))
	assert.Len(t, s.runs("j1"), 2)
}

// losing loses the answer to the first start.
type losing struct {
	client.Client
	once sync.Once
}

func (l *losing) ExecuteWorkflow(
	ctx context.Context, options client.StartWorkflowOptions, workflow any, args ...any,
) (client.WorkflowRun, error) {
	run, err := l.Client.ExecuteWorkflow(ctx, options, workflow, args...)
	l.once.Do(func() { run, err = nil, context.DeadlineExceeded })
	return run, err
}

func TestJunkInTheOutboxOpensIssuesAndHoldsUpNobody(t *testing.T) {
	s := newEnqueueStage(t)
	raw, _, err := s.job("mine").Encode()
	require.NoError(t, err)
	mine := string(raw)
	long := strings.Repeat("ü", 300)
	for _, junk := range []struct{ tenant, subject, payload string }{
		{s.tenant, "no-json", "job!"},
		{s.tenant, "no-job", "{}"},
		// Another tenant's, or another job: the row says whose business it is.
		{s.tenant, "not-mine", mine},
		{"nobody", "mine", mine},
		{"no/tenant", "j1", mine},
		{"", "", ""},
		{long, long, mine},
		{contract.UnassignedTenant, "mine", strings.Replace(mine, s.tenant, contract.UnassignedTenant, 1)},
	} {
		s.enqueueRaw(junk.tenant, junk.subject, junk.payload)
	}
	s.enqueue(s.job("good"))
	s.cast("good", answersAtOnce("done"))
	s.carries()
	s.relayed()
	s.assertDelivered(s.runEnds("good"))
	s.again()
	s.relayed()
	issues := value[[]string](s, `SELECT array_agg(format('%s %s', tenant_id, subject_id) ORDER BY issue_id) FROM reclaim.issues
		WHERE kind = 'enqueued_job_refused' AND subject_kind = 'job' AND state = 'open'`)
	assert.Equal(t, []string{
		s.tenant + " no-json", s.tenant + " no-job", s.tenant + " not-mine", "nobody mine", "unassigned j1", "unassigned ",
		"unassigned " + contract.Clip(long, 100), "unassigned mine",
	}, issues)
	assert.Empty(t, s.runs("mine"))
	assert.Zero(t, value[int](s, `SELECT count(*) FROM reclaim.outbox WHERE last_error <> ''`))
	assert.EqualValues(t, credits-cost, s.balance())
}

func TestAnEnqueuedJobThatClosedBeforeItsDeliveryIsNotRun(t *testing.T) {
	s := newEnqueueStage(t)
	s.enqueue(s.job("j1"))
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	s.startCharged(s.job("j1"))
	s.next("j1").deliver("done")
	s.assertDelivered(s.runEnds("j1"))
	t.Cleanup(s.startRelay(s.temporal))
	s.relayed()
	assert.Len(t, s.runs("j1"), 1)
	assert.Empty(t, s.issues())
	s.noCall("j1")
}

func TestJobsEnqueuedWhileTemporalIsAwayAllStartOnceItIsBack(t *testing.T) {
	const jobs = 40 // more than a relay carries out at once
	s := newEnqueueStage(t)
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	absent, letIn := s.absentTemporal()
	metrics := prometheus.NewRegistry()
	t.Cleanup(s.startRelayOn(s.store, absent, metrics))
	s.topUp(account, jobs*cost)
	for n := range jobs {
		id := fmt.Sprintf("j%d", n)
		s.cast(id, answersAtOnce("done"))
		s.enqueue(s.job(id))
	}
	// The pauses between four attempts are 1, 2 and 4 s.
	eventually(t, "rows are tried again and again", func() bool {
		return value[int](s, `SELECT max(attempts) FROM reclaim.outbox`) >= 4
	})
	g := s.gather(metrics)
	assert.EqualValues(t, jobs, g.waiting)
	oldest := value[float64](s, `SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8 FROM reclaim.outbox`)
	assert.InDelta(t, oldest, g.oldest, 5)
	assert.Greater(t, g.oldest, 6.)
	assert.Equal(t, jobs, s.waiting())
	letIn()
	back := time.Now()
	s.relayed()
	took := time.Since(back)
	t.Logf("%d rows that had waited for %.0f s were started within %s of Temporal's return", jobs, oldest, took.Round(time.Millisecond))
	for n := range jobs {
		id := fmt.Sprintf("j%d", n)
		s.assertDelivered(s.runEnds(id))
		assert.Len(t, s.runs(id), 1)
	}
	// The marks are counted a moment after they can be read.
	eventually(t, "every lag is counted", func() bool { return s.gather(metrics).lags["start_job"] == jobs })
	g = s.gather(metrics)
	assert.Zero(t, g.waiting)
	assert.Zero(t, g.oldest)
	assert.Greater(t, g.lagSum["start_job"], jobs*6.)
}

func TestTwoRelaysAtOnceStartEachJobOnce(t *testing.T) {
	// Rows are left to the relay that took them for so long; on a busy machine it may not be through with one by then.
	const jobs, lease = 60, 30 * time.Second
	s := newEnqueueStage(t)
	s.topUp(account, jobs*cost)
	for n := range jobs {
		id := fmt.Sprintf("j%d", n)
		s.cast(id, answersAtOnce("done"))
		s.enqueue(s.job(id))
	}
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	began := time.Now()
	relays := []*counting{{Client: s.temporal, starts: map[string]int{}}, {Client: s.temporal, starts: map[string]int{}}}
	for _, one := range relays {
		t.Cleanup(s.startRelay(one))
	}
	s.relayed()
	leases := 1 + int(time.Since(began)/lease)
	for n := range jobs {
		id, starts := fmt.Sprintf("j%d", n), 0
		for _, one := range relays {
			one.mu.Lock()
			starts += one.starts[contract.JobWorkflowID(s.tenant, id)]
			one.mu.Unlock()
		}
		assert.Positive(t, starts, id)
		assert.LessOrEqual(t, starts, leases, id)
		s.assertDelivered(s.runEnds(id))
		assert.Len(t, s.runs(id), 1)
	}
	t.Logf("of %d jobs one relay started %d and the other %d", jobs, len(relays[0].starts), len(relays[1].starts))
}

// slow holds starts up until it is released.
type slow struct {
	client.Client
	held     chan string
	released chan struct{}
}

func (c *slow) ExecuteWorkflow(
	ctx context.Context, options client.StartWorkflowOptions, workflow any, args ...any,
) (client.WorkflowRun, error) {
	c.held <- options.ID
	select {
	case <-c.released:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return c.Client.ExecuteWorkflow(ctx, options, workflow, args...)
}

// A deploy stops relays all day: what one has in hand must not wait until its lease has passed.
func TestAStoppingRelayFinishesWhatItHasInHand(t *testing.T) {
	s := newEnqueueStage(t)
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	temporal := &slow{Client: s.temporal, held: make(chan string, 10), released: make(chan struct{})}
	stop := s.startRelay(temporal)
	s.enqueue(s.job("j1"))
	<-temporal.held
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	select {
	case <-stopped:
		t.Error("it stopped with a row in hand")
	case <-time.After(500 * time.Millisecond):
	}
	close(temporal.released)
	<-stopped
	assert.True(t, s.outboxRow("j1").delivered)
	s.enqueue(s.job("j2"))
	s.next("j1").deliver("done")
	s.assertDelivered(s.runEnds("j1"))
	assert.False(t, s.outboxRow("j2").delivered, "it takes no more")
	t.Cleanup(s.startRelay(s.temporal))
	s.next("j2").deliver("done")
	s.assertDelivered(s.runEnds("j2"))
}

// A start or a mark that gets no answer holds up its own row and no other, and is given up after a while.
func TestAnAnswerThatNeverComesHoldsUpNoOtherRow(t *testing.T) {
	s := newEnqueueStage(t)
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	proxy := schematest.NewLossyProxy(t, s.database.Address)
	release := proxy.Hold(statement("DeliverOutbox"))
	store := s.through(proxy)
	t.Cleanup(s.startRelayOn(store, s.temporal, prometheus.NewRegistry()))
	for _, id := range []string{"j1", "j2", "j3"} {
		s.enqueue(s.job(id))
		s.next(id).deliver("done")
		s.assertDelivered(s.runEnds(id))
	}
	assert.Equal(t, 3, s.waiting())
	eventually(t, "the mark is given up", func() bool { return s.outboxRow("j1").lastError != "" })
	release()
	s.relayed()
	for _, id := range []string{"j1", "j2", "j3"} {
		assert.Len(t, s.runs(id), 1)
	}
	// The claim itself too: a relay that waited for it would be deaf for good.
	release = proxy.Hold(statement("ClaimOutbox"))
	s.enqueue(s.job("j4"))
	eventually(t, "the claim is under way", func() bool { return proxy.Held() > 0 })
	eventually(t, "another is made", func() bool { return proxy.Held() > 1 })
	release()
	s.next("j4").deliver("done")
	s.assertDelivered(s.runEnds("j4"))
	s.relayed()
}
