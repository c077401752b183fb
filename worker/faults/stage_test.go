package faults_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows"
	"github.com/reclaimhq/reclaim/workflows/contract"
	"github.com/reclaimhq/reclaim/workflows/contract/codec"
)

const (
	account = "team-7"
	credits = 1000
	cost    = 40
)

// stage is one test's tenant in a world. When the test ends, the tenant's ledger must be sound and every history that
// the test made must replay.
type stage struct {
	t *testing.T
	*world
	tenant string
	queue  string
	client *reclaim.Client
	// noting guards jobs while a crowd is started.
	noting sync.Mutex
	jobs   []string
	// patience bounds each call to a server.
	patience time.Duration
	// keys are what payloads are encrypted with, nil where they are not.
	keys *codec.Keys
}

// newStage gives a tenant with an account of 1,000 credits in the shared world.
func newStage(t *testing.T) *stage {
	t.Helper()
	needsQuiet(t)
	t.Parallel()
	return sharedWorld(t).stage(t, "")
}

// stage gives a tenant in this world, whose runs go to the queue; empty means the world's own.
func (w *world) stage(t *testing.T, queue string) *stage {
	t.Helper()
	if queue == "" {
		queue = w.queue
	}
	s := &stage{
		t: t, world: w, tenant: "t" + strings.ToLower(rand.Text()[:12]), queue: queue, client: w.asker(queue),
		patience: patience,
	}
	s.topUp(account, credits)
	t.Cleanup(s.checkUp)
	if w.elsewhere {
		return s
	}
	// It ends before the test does, since it logs.
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() { s.findLost(ctx) })
	t.Cleanup(func() {
		cancel()
		looking.Wait()
	})
	return s
}

// converting are the options by which the stage's payloads and failures are converted.
func (s *stage) converting() client.Options {
	options := client.Options{
		DataConverter: converter.GetDefaultDataConverter(), FailureConverter: temporal.GetDefaultFailureConverter(),
	}
	if s.keys != nil {
		codec.Apply(&options, s.keys)
	}
	return options
}

func (s *stage) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *stage) topUp(account string, amount int64) {
	s.t.Helper()
	_, err := s.client.TopUp(s.ctx(), reclaim.Movement{
		Tenant: s.tenant, Account: account, Actor: "test", Key: rand.Text(), Amount: amount,
	})
	require.NoError(s.t, err)
}

// job describes a job whose promise and timeout hold for the whole test.
func (s *stage) job(id string, change ...func(*contract.Job)) contract.Job {
	job := contract.Job{
		Tenant: s.tenant, JobID: id, Account: account, Cost: cost, Actor: "test",
		Work: contract.Work{
			Activity: workActivity, TaskQueue: s.crew.queue, Input: json.RawMessage(`{"scene":"sea"}`),
			Timeout: contract.Duration(10 * time.Minute), Heartbeat: contract.Duration(5 * time.Minute),
		},
		Promise: contract.Duration(5 * time.Minute),
	}
	for _, c := range change {
		c(&job)
	}
	s.noting.Lock()
	defer s.noting.Unlock()
	s.jobs = append(s.jobs, id)
	return job
}

func promised(d time.Duration) func(*contract.Job) {
	return func(j *contract.Job) { j.Promise = contract.Duration(d) }
}

func attempts(n int) func(*contract.Job) { return func(j *contract.Job) { j.Retry.MaxAttempts = n } }

func probed(j *contract.Job) { j.Work.Probe = probeActivity }

func timeout(d time.Duration) func(*contract.Job) {
	return func(j *contract.Job) { j.Work.Timeout = contract.Duration(d) }
}

// start submits the job as the starter does.
func (s *stage) start(job contract.Job) contract.ChargeVerdict {
	s.t.Helper()
	verdict, err := s.client.StartJob(s.ctx(), job)
	require.NoError(s.t, err)
	return verdict
}

// startCharged submits a new job, which must be charged for it.
func (s *stage) startCharged(job contract.Job) {
	s.t.Helper()
	s.requireCharged(job, s.start(job))
}

// requireCharged checks that a new job's submission has charged it. Where the worker had to make the charge anew, since the
// task in which it was made came to its end too late, it finds its own charge and cannot tell it from another's.
func (s *stage) requireCharged(job contract.Job, verdict contract.ChargeVerdict) {
	s.t.Helper()
	if verdict.Verdict == contract.VerdictAlready && s.tasksRepeated(job.JobID) {
		s.t.Logf("the charge of job %s was made in a task that was repeated", job.JobID)
	} else {
		require.Equal(s.t, contract.VerdictCharged, verdict.Verdict)
	}
	require.Equal(s.t, 1, value[int](s, `SELECT count(*) FROM reclaim.ledger_entries
		WHERE tenant_id = $1 AND job_id = $2 AND type = 'charge'`, s.tenant, job.JobID))
}

// tasksRepeated says whether a workflow task of the job's newest run, or a local activity in it, had to be repeated.
func (s *stage) tasksRepeated(jobID string) bool {
	s.t.Helper()
	events := s.history(jobID, "")
	if len(undisturbed(events)) < len(events) {
		return true
	}
	for _, event := range events {
		if event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED {
			return true
		}
		recorded := event.GetMarkerRecordedEventAttributes()
		if recorded.GetMarkerName() != "LocalActivity" {
			continue
		}
		var marker struct{ Attempt int }
		require.NoError(s.t, s.converting().DataConverter.FromPayloads(recorded.GetDetails()["data"], &marker))
		if marker.Attempt > 1 {
			return true
		}
	}
	return false
}

// undisturbed leaves out the events that are there because a busy machine was slow: of a workflow task that its worker did
// not take or did not end in time, and of one that only asked for more time.
func undisturbed(events []*historypb.HistoryEvent) (rest []*historypb.HistoryEvent) {
	left := map[int64]bool{}
	for n, event := range events {
		if late := event.GetWorkflowTaskTimedOutEventAttributes(); late != nil {
			left[event.GetEventId()], left[late.GetScheduledEventId()], left[late.GetStartedEventId()] = true, true, true
		}
		longer := event.GetWorkflowTaskCompletedEventAttributes()
		if longer != nil && n+1 < len(events) && events[n+1].GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED {
			left[event.GetEventId()], left[longer.GetScheduledEventId()], left[longer.GetStartedEventId()] = true, true, true
		}
	}
	for _, event := range events {
		if !left[event.GetEventId()] {
			rest = append(rest, event)
		}
	}
	return rest
}

// startPlain starts the job as a program in any language would: by type, id and JSON.
func (s *stage) startPlain(input any, id string, change ...func(*client.StartWorkflowOptions)) client.WorkflowRun {
	s.t.Helper()
	options := client.StartWorkflowOptions{ID: contract.JobWorkflowID(s.tenant, id), TaskQueue: s.queue}
	for _, c := range change {
		c(&options)
	}
	run, err := s.temporal.ExecuteWorkflow(s.ctx(), options, contract.MeteredJobWorkflow, input)
	require.NoError(s.t, err)
	return run
}

func (s *stage) part(jobID string) *part { return s.crew.part(s.tenant, jobID) }

// cast says how the crew does the job.
func (s *stage) cast(jobID string, change func(*part)) {
	p := s.part(jobID)
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// stubborn work goes on when it is asked to stop.
func stubborn(p *part) { p.stubborn = true }

// answersAtOnce delivers from now on without asking the test.
func answersAtOnce(output any) func(*part) {
	return func(p *part) { p.work = func(context.Context, contract.WorkMeta) (any, error) { return output, nil } }
}

// next waits for the job's next work activity.
func (s *stage) next(jobID string) *call {
	s.t.Helper()
	select {
	case c := <-s.part(jobID).calls:
		return c
	case <-time.After(patience):
		s.t.Fatalf("no work was done for job %s; the server says of its work: %v", jobID, s.pending(jobID))
		return nil
	}
}

// pending tells what the server knows of the activities of the job's newest run: one that it holds for started, though the
// crew was never called, was lost on its way from an overloaded server.
func (s *stage) pending(jobID string) []*workflowpb.PendingActivityInfo {
	s.t.Helper()
	described, err := s.temporal.DescribeWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, jobID), "")
	require.NoError(s.t, err)
	return described.RawResponse.GetPendingActivities()
}

// noCall checks that the work was not called again since its calls were last taken.
func (s *stage) noCall(jobID string) {
	s.t.Helper()
	assert.Empty(s.t, s.part(jobID).calls, "the work of job %s was called once more", jobID)
}

// await returns the closed job as the client tells it.
func (s *stage) await(jobID string) contract.JobResult {
	s.t.Helper()
	result, err := s.client.AwaitJob(s.ctx(), s.tenant, jobID)
	require.NoError(s.t, err)
	return result
}

// runEnds waits for the newest run's end and returns its result.
func (s *stage) runEnds(jobID string) contract.JobResult {
	s.t.Helper()
	var result contract.JobResult
	require.NoError(s.t, s.temporal.GetWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, jobID), "").Get(s.ctx(), &result))
	return result
}

// status tells where the job stands. The client gives up on a run that does not answer at once, as on a busy machine: it
// is asked again.
func (s *stage) status(jobID string) (status contract.JobStatus) {
	s.t.Helper()
	eventually(s.t, "the run of job "+jobID+" tells what it waits for", func() (answers bool) {
		var err error
		status, err = s.client.Status(s.ctx(), s.tenant, jobID)
		require.NoError(s.t, err)
		return !strings.HasPrefix(status.WaitsFor, "its run, which does not answer now")
	})
	return status
}

// reaches waits until the job's row is in the state.
func (s *stage) reaches(jobID string, state contract.JobState) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("job %s is %s", jobID, state), func() bool {
		return value[string](s, `SELECT coalesce((SELECT state FROM reclaim.jobs WHERE tenant_id = $1 AND job_id = $2), '')`,
			s.tenant, jobID) == string(state)
	})
}

// isRefunded waits until the job's row says that its cost was given back.
func (s *stage) isRefunded(jobID string) {
	s.t.Helper()
	eventually(s.t, "job "+jobID+" is refunded", func() bool {
		return value[bool](s, `SELECT coalesce(bool_or(is_refunded), false) FROM reclaim.jobs WHERE tenant_id = $1 AND job_id = $2`,
			s.tenant, jobID)
	})
}

// value reads one value past everything under test.
func value[T any](s *stage, query string, args ...any) T {
	s.t.Helper()
	var v T
	require.NoError(s.t, s.direct.QueryRow(s.ctx(), query, args...).Scan(&v))
	return v
}

// story lists the types of the job's ledger entries in their order.
func (s *stage) story(jobID string) string {
	s.t.Helper()
	return value[string](s, `SELECT coalesce(string_agg(type, ' ' ORDER BY seq), '') FROM reclaim.ledger_entries
		WHERE tenant_id = $1 AND job_id = $2`, s.tenant, jobID)
}

func (s *stage) balance() int64 {
	s.t.Helper()
	return value[int64](s, `SELECT balance FROM reclaim.accounts WHERE tenant_id = $1 AND account_id = $2`, s.tenant, account)
}

// events lists the job's recorded events as "kind: detail".
func (s *stage) events(jobID string) []string {
	s.t.Helper()
	return value[[]string](s, `SELECT coalesce(array_agg(kind || ': ' || detail ORDER BY event_id), '{}')
		FROM reclaim.job_events WHERE tenant_id = $1 AND job_id = $2`, s.tenant, jobID)
}

func (s *stage) history(jobID, runID string) []*historypb.HistoryEvent {
	s.t.Helper()
	return s.historyOf(contract.JobWorkflowID(s.tenant, jobID), runID)
}

func (s *stage) historyOf(workflowID, runID string) []*historypb.HistoryEvent {
	s.t.Helper()
	var events []*historypb.HistoryEvent
	page := s.temporal.GetWorkflowHistory(s.ctx(), workflowID, runID, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for page.HasNext() {
		event, err := page.Next()
		require.NoError(s.t, err)
		events = append(events, event)
	}
	return events
}

// newestRun returns the id of the job's newest run.
func (s *stage) newestRun(jobID string) string {
	s.t.Helper()
	described, err := s.temporal.DescribeWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, jobID), "")
	require.NoError(s.t, err)
	return described.WorkflowExecution.RunID
}

// assertDelivered checks a job that was delivered on time: charged once and nothing else.
func (s *stage) assertDelivered(result contract.JobResult) {
	s.t.Helper()
	assert.Equal(s.t, contract.StateSucceeded, result.State)
	assert.Equal(s.t, contract.Money{Charged: cost}, result.Money)
	assert.False(s.t, result.Late)
	assert.Equal(s.t, "charge", s.story(result.JobID))
}

// assertReclaimed checks a job that was delivered after its refund.
func (s *stage) assertReclaimed(result contract.JobResult) {
	s.t.Helper()
	assert.Equal(s.t, contract.StateSucceeded, result.State)
	assert.Equal(s.t, contract.Money{Charged: cost, Refunded: cost, Reclaimed: cost}, result.Money)
	assert.EqualValues(s.t, cost, result.Net)
	assert.True(s.t, result.Late)
	assert.Equal(s.t, "charge refund reclaim", s.story(result.JobID))
}

// assertRefunded checks a job that ended without a delivery.
func (s *stage) assertRefunded(result contract.JobResult, state contract.JobState) {
	s.t.Helper()
	assert.Equal(s.t, state, result.State)
	assert.Equal(s.t, contract.Money{Charged: cost, Refunded: cost}, result.Money)
	assert.Zero(s.t, result.Net)
	assert.Equal(s.t, "charge refund", s.story(result.JobID))
}

// checkUp ends the crew's calls and proves the tenant's ledger and histories.
func (s *stage) checkUp() {
	for _, id := range s.jobs {
		s.part(id).end()
	}
	s.checkLedger()
	for _, id := range s.jobs {
		s.checkHistories(contract.JobWorkflowID(s.tenant, id))
	}
	if s.t.Failed() {
		for _, id := range s.jobs[:min(len(s.jobs), 10)] {
			s.tell(id)
		}
	}
}

// tell logs all that is known of a job, for the reader of a failure.
func (s *stage) tell(jobID string) {
	s.t.Logf("job %s: entries: %s; events: %q; the work was called %d times", jobID, s.story(jobID), s.events(jobID),
		s.part(jobID).invocations())
	s.tellHistories(contract.JobWorkflowID(s.tenant, jobID))
}

func (s *stage) tellHistories(workflowID string) {
	for _, runID := range s.runsOf(workflowID) {
		var line strings.Builder
		for _, event := range s.historyOf(workflowID, runID) {
			fmt.Fprintf(&line, "\n%4d %s %s", event.GetEventId(), event.GetEventTime().AsTime().Format("04:05.000"), event.GetEventType())
			if failed := event.GetWorkflowTaskFailedEventAttributes(); failed != nil {
				fmt.Fprintf(&line, " %s %s", failed.GetCause(), failed.GetFailure().GetMessage())
			}
		}
		s.t.Logf("run %s:%s", runID, line.String())
	}
}

func (p *part) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.over:
	default:
		close(p.over)
	}
}

// ledgerBreaks finds, independently of the audit, what no history of faults may lead to. Each line names the job or
// account at fault.
const ledgerBreaks = `
WITH entry AS (
	SELECT *, lag(balance_after, 1, 0::bigint) OVER (PARTITION BY tenant_id, account_id ORDER BY seq) AS balance_before,
		row_number() OVER (PARTITION BY tenant_id, account_id ORDER BY seq) AS place
	FROM reclaim.ledger_entries WHERE tenant_id = $1
), moved AS (
	SELECT job_id, coalesce(sum(amount), 0) AS net, count(*) FILTER (WHERE type = 'charge') AS charges,
		count(*) FILTER (WHERE type = 'refund') AS refunds, count(*) FILTER (WHERE type = 'reclaim') AS reclaims
	FROM entry WHERE job_id IS NOT NULL AND type IN ('charge', 'refund', 'reclaim') GROUP BY job_id
)
SELECT 'entry ' || account_id || '/' || seq || ' does not follow from the one before'
FROM entry WHERE seq <> place OR balance_after <> balance_before + amount
UNION ALL
SELECT 'account ' || account_id || ' has balance ' || balance || ', not the sum of its entries'
FROM reclaim.accounts AS a WHERE tenant_id = $1
	AND balance <> (SELECT coalesce(sum(amount), 0) FROM entry WHERE entry.account_id = a.account_id)
UNION ALL
SELECT 'job ' || job_id || ' is ' || state || ' with net ' || coalesce(net, 0)
FROM reclaim.jobs LEFT JOIN moved USING (job_id) WHERE tenant_id = $1 AND cost > 0 AND (
	coalesce(charges, 0) <> 1 OR refunds > 1 OR reclaims > 1
	OR (refunds = 1) <> is_refunded OR (reclaims = 1) <> is_reclaimed
	OR net <> CASE WHEN state = 'succeeded' OR state = 'running' AND NOT is_refunded THEN -cost ELSE 0 END)`

// checkLedger proves the ledger of the tenant, by own statements and by the audit.
func (s *stage) checkLedger() {
	s.t.Helper()
	rows, err := s.direct.Query(s.ctx(), ledgerBreaks, s.tenant)
	require.NoError(s.t, err)
	for rows.Next() {
		var line string
		require.NoError(s.t, rows.Scan(&line))
		s.t.Error("the ledger is broken: " + line)
	}
	require.NoError(s.t, rows.Err())
	report, err := s.client.Audit(s.ctx(), s.tenant)
	if assert.NoError(s.t, err) {
		assert.Empty(s.t, report.Breaks)
		assert.Empty(s.t, report.Runs.OpenJobs, "open jobs without a run")
	}
}

// checkHistories replays every run under the workflow id and looks for workflow tasks that failed for other reasons than
// a message that came in between.
func (s *stage) checkHistories(workflowID string) {
	s.t.Helper()
	logger := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	for _, runID := range s.runsOf(workflowID) {
		events := s.historyOf(workflowID, runID)
		for _, event := range events {
			failed := event.GetWorkflowTaskFailedEventAttributes()
			switch {
			case failed == nil:
			case failed.GetCause() == enumspb.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
				failed.GetCause() == enumspb.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
				failed.GetCause() == enumspb.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND:
			case strings.Contains(failed.GetFailure().GetMessage(), "premature end of stream"):
				// A server of this age leaves the events of an update's task out where the worker asks for the whole history:
				// https://github.com/temporalio/temporal/issues/7741. The task is repeated.
				s.t.Logf("%s: %s", workflowID, failed.GetFailure().GetMessage())
			default:
				s.t.Errorf("%s: workflow task failed: %s: %s", workflowID, failed.GetCause(), failed.GetFailure().GetMessage())
			}
		}
		if !slices.ContainsFunc(events, func(event *historypb.HistoryEvent) bool {
			return event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
		}) {
			continue // no worker has decided anything yet
		}
		// What a second without the processor looks like to the detector is no deadlock.
		converting := s.converting()
		replayer, err := sdkworker.NewWorkflowReplayerWithOptions(sdkworker.WorkflowReplayerOptions{
			DisableDeadlockDetection: true,
			DataConverter:            converting.DataConverter, FailureConverter: converting.FailureConverter,
		})
		require.NoError(s.t, err)
		workflows.Register(replayer)
		err = replayer.ReplayWorkflowHistoryWithOptions(logger, &historypb.History{Events: events},
			sdkworker.ReplayWorkflowHistoryOptions{OriginalExecution: workflow.Execution{
				ID: workflowID, RunID: runID,
			}})
		assert.NoError(s.t, err, "replay run %s of %s", runID, workflowID)
	}
}

// runs lists the ids of the job's runs that the visibility store knows.
func (s *stage) runs(jobID string) []string {
	s.t.Helper()
	return s.runsOf(contract.JobWorkflowID(s.tenant, jobID))
}

func (s *stage) runsOf(workflowID string) []string {
	s.t.Helper()
	listed, err := s.temporal.ListWorkflow(s.ctx(), &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowId = '%s'", workflowID),
	})
	require.NoError(s.t, err)
	var ids []string
	for _, execution := range listed.GetExecutions() {
		ids = append(ids, execution.GetExecution().GetRunId())
	}
	return ids
}

// list returns the job ids of the workflows that the query finds, sorted.
func (s *stage) list(query string) []string {
	s.t.Helper()
	listed, err := s.temporal.ListWorkflow(s.ctx(), &workflowservice.ListWorkflowExecutionsRequest{Query: query})
	require.NoError(s.t, err)
	var ids []string
	for _, execution := range listed.GetExecutions() {
		ids = append(ids, strings.TrimPrefix(execution.GetExecution().GetWorkflowId(), "job/"+s.tenant+"/"))
	}
	slices.Sort(ids)
	return ids
}
