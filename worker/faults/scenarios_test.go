package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

var errBusy = errors.New("the GPU is busy")

func TestAPlainStartDeliveredOnTimeTakesFifteenEvents(t *testing.T) {
	s := newStage(t)
	run := s.startPlain(s.job("j1"), "j1")
	s.next("j1").deliver(map[string]string{"url": "s3://v"})
	var result contract.JobResult
	require.NoError(t, run.Get(s.ctx(), &result))
	s.assertDelivered(result)
	assert.JSONEq(t, `{"url":"s3://v"}`, string(result.Output))
	assert.EqualValues(t, credits-cost, s.balance())
	events := undisturbed(s.history("j1", run.GetRunID()))
	assert.Len(t, events, 15, "%v", events)
}

func TestASubmissionDeliveredOnTimeTakesSeventeenEvents(t *testing.T) {
	s := newStage(t)
	job := s.job("j1")
	verdict := s.start(job)
	s.requireCharged(job, verdict)
	assert.EqualValues(t, credits-cost, verdict.Balance)
	call := s.next("j1")
	assert.JSONEq(t, `{"scene":"sea"}`, string(call.input))
	assert.Equal(t, 1, call.meta.Attempt)
	call.deliver(map[string]string{"url": "s3://v"})
	result := s.runEnds("j1")
	s.assertDelivered(result)
	assert.Equal(t, result, s.await("j1"), "the row tells what the run answered")
	events := undisturbed(s.history("j1", ""))
	assert.Len(t, events, 16, "%v", events)
}

func TestALateSuccessIsRefundedAndReclaimed(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1", promised(time.Second)))
	call := s.next("j1")
	s.isRefunded("j1")
	assert.EqualValues(t, credits, s.balance(), "the customer has the credits while the work goes on")
	call.deliver("late")
	result := s.runEnds("j1")
	s.assertReclaimed(result)
	assert.Equal(t, 1, result.Attempts)
	assert.JSONEq(t, `"late"`, string(result.Output))
	s.noCall("j1")
}

func TestAFailedAttemptIsRefundedAtOnceAndItsRetryReclaims(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	first := s.next("j1")
	first.fail(errBusy)
	second := s.next("j1")
	assert.Equal(t, 2, second.meta.Attempt)
	assert.NotEqual(t, first.meta.IdempotencyKey, second.meta.IdempotencyKey)
	assert.Equal(t, "charge refund", s.story("j1"))
	second.deliver("done")
	s.assertReclaimed(s.runEnds("j1"))
}

func TestWithoutRefundOnFailureARetryOnTimeMovesNothing(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1", func(j *contract.Job) { j.RefundOnFailure = new(false) }))
	s.next("j1").fail(errBusy)
	s.next("j1").deliver("done")
	result := s.runEnds("j1")
	s.assertDelivered(result)
	assert.Equal(t, 2, result.Attempts)
}

// deadLetter brings a job to a dead letter and returns its only call.
func (s *stage) deadLetter(id string) *call {
	s.t.Helper()
	s.startCharged(s.job(id, attempts(1)))
	c := s.next(id)
	c.fail(errBusy)
	s.reaches(id, contract.StateDeadLetter)
	return c
}

func decision(id string, action contract.Action) contract.Resolution {
	d := contract.Resolution{ID: id, Action: action, Operator: "sue", Reason: "ticket 17"}
	if action == contract.ActionDeliver {
		d.Evidence = "seen in the customer's folder"
	}
	return d
}

// resolve takes a person's decision to the job. Where no answer came, it is asked again, as the error says: a task that
// ends the run while something else happens is repeated by the server, which loses the answer.
func (s *stage) resolve(jobID string, d contract.Resolution) (answer contract.ResolutionAnswer) {
	s.t.Helper()
	var err error
	eventually(s.t, "the decision is answered", func() bool {
		answer, err = s.client.Resolve(s.ctx(), s.tenant, jobID, d)
		return contract.CodeOf(err) != contract.CodeUnavailable
	})
	require.NoError(s.t, err)
	return answer
}

func TestADeadLetterIsRefundedAndWaitsForAPerson(t *testing.T) {
	s := newStage(t)
	s.deadLetter("j1")
	status := s.status("j1")
	assert.Equal(t, contract.StateDeadLetter, status.State)
	assert.Equal(t, contract.Money{Charged: cost, Refunded: cost}, status.Money)
	assert.Equal(t, []contract.Action{contract.ActionRetry, contract.ActionDeliver, contract.ActionWriteOff}, status.Actions)
	assert.Contains(t, status.WaitsFor, "a person's decision")
	s.noCall("j1")
}

func TestADeadLetterThatIsRetriedReclaimsOnSuccess(t *testing.T) {
	s := newStage(t)
	first := s.deadLetter("j1")
	answer := s.resolve("j1", decision("r1", contract.ActionRetry))
	assert.Equal(t, contract.ResolutionAnswer{ID: "r1", Outcome: contract.ResolutionApplied, State: contract.StateRunning}, answer)
	second := s.next("j1")
	assert.Equal(t, 2, second.meta.Attempt)
	assert.NotEqual(t, first.meta.IdempotencyKey, second.meta.IdempotencyKey)
	second.deliver("done")
	s.assertReclaimed(s.runEnds("j1"))
}

func TestADeadLetterThatAPersonDeliversIsReclaimed(t *testing.T) {
	s := newStage(t)
	s.deadLetter("j1")
	assert.Equal(t, contract.StateSucceeded, s.resolve("j1", decision("r1", contract.ActionDeliver)).State)
	s.assertReclaimed(s.runEnds("j1"))
	s.noCall("j1")
}

func TestADeadLetterThatIsWrittenOffStaysRefunded(t *testing.T) {
	s := newStage(t)
	s.deadLetter("j1")
	assert.Equal(t, contract.StateWrittenOff, s.resolve("j1", decision("r1", contract.ActionWriteOff)).State)
	s.assertRefunded(s.runEnds("j1"), contract.StateWrittenOff)
	s.noCall("j1")
}

func TestWorkThatCanNeverSucceedFailsTheJob(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1").fail(temporal.NewNonRetryableApplicationError("no such scene", "BadScene", nil))
	result := s.runEnds("j1")
	s.assertRefunded(result, contract.StateFailed)
	assert.Contains(t, result.Reason, "no such scene")
	assert.Equal(t, 1, result.Attempts)
	s.noCall("j1")
}

func TestADeclinedJobMovesNothingAndIsChargedAfterATopUp(t *testing.T) {
	s := newStage(t)
	job := s.job("j1", func(j *contract.Job) { j.Account = "poor" })
	verdict := s.start(job)
	assert.Equal(t, contract.VerdictDeclined, verdict.Verdict)
	assert.Contains(t, verdict.Reason, "no account poor")
	assert.Equal(t, contract.StateDeclined, s.runEnds("j1").State)
	assert.Equal(t, contract.StateDeclined, s.status("j1").State)

	s.topUp("poor", cost-1)
	verdict = s.start(job)
	assert.Equal(t, contract.VerdictDeclined, verdict.Verdict)
	assert.EqualValues(t, cost-1, verdict.Balance)
	assert.Empty(t, s.story("j1"))
	s.noCall("j1")

	s.topUp("poor", 1)
	verdict = s.start(job)
	s.requireCharged(job, verdict) // a fresh submission is not told the old verdict
	s.next("j1").deliver("done")
	s.assertDelivered(s.runEnds("j1"))
}

func TestOtherParametersUnderTheSameIDAreAConflict(t *testing.T) {
	s := newStage(t)
	job := s.job("j1")
	s.startCharged(job)
	other := job
	other.Cost = cost + 1
	refusesConflict := func() {
		t.Helper()
		_, err := s.client.StartJob(s.ctx(), other)
		assert.Equal(t, contract.CodeConflict, contract.CodeOf(err), "%v", err)
	}
	refusesConflict()
	// Past the client's own look at the row.
	handle, err := s.temporal.UpdateWorkflow(s.ctx(), client.UpdateWorkflowOptions{
		WorkflowID: job.WorkflowID(), UpdateName: contract.AwaitChargeUpdate, Args: []any{other},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(s.ctx(), nil)
	}
	assert.Equal(t, string(contract.CodeConflict), errorType(err), "%v", err)
	s.next("j1").deliver("done")
	s.assertDelivered(s.runEnds("j1"))
	refusesConflict()

	run := s.startPlain(other, "j1")
	assert.Equal(t, string(contract.CodeConflict), errorType(run.Get(s.ctx(), nil)))
	s.assertDelivered(s.await("j1"))
}

func errorType(err error) string {
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return app.Type()
	}
	return ""
}

func TestBadInputOfAPlainStartIsRefusedBeforeAnything(t *testing.T) {
	s := newStage(t)
	for id, input := range map[string]any{
		"empty":    map[string]any{},
		"mistyped": map[string]any{"tenant": s.tenant, "jobId": "mistyped", "cost": "40"},
		"text":     "render it",
		"list":     []int{1},
		"bytes":    []byte{0, 1, 2},
		"nothing":  nil,
		"other-id": s.job("not-the-other"),
		"unknown":  map[string]any{"tenant": s.tenant, "prise": 3},
	} {
		err := s.startPlain(input, id).Get(s.ctx(), nil)
		assert.Equal(t, string(contract.CodeBadInput), errorType(err), "%s: %v", id, err)
	}
	assert.EqualValues(t, credits, s.balance())
	assert.Zero(t, value[int](s, `SELECT count(*) FROM reclaim.jobs WHERE tenant_id = $1`, s.tenant))
}

// Without arguments the workflow is given none at all.
func TestAPlainStartWithoutInputIsRefused(t *testing.T) {
	s := newStage(t)
	run, err := s.temporal.ExecuteWorkflow(s.ctx(), client.StartWorkflowOptions{
		ID: contract.JobWorkflowID(s.tenant, "j1"), TaskQueue: s.queue,
	}, contract.MeteredJobWorkflow)
	require.NoError(t, err)
	err = run.Get(s.ctx(), nil)
	assert.Equal(t, string(contract.CodeBadInput), errorType(err), "%v", err)
}

func TestT1_AGoodResultAfterTheAttemptsTimeoutIsFoundByTheProbe(t *testing.T) {
	s := newStage(t)
	var stored, asked atomic.Bool
	s.cast("j1", func(p *part) {
		p.stubborn = true
		p.probe = func(contract.WorkMeta) (contract.ProbeAnswer, error) {
			if !stored.Load() {
				asked.Store(true)
				return contract.ProbeAnswer{State: contract.ProbeRunning}, nil
			}
			return contract.ProbeAnswer{State: contract.ProbeSucceeded, Output: json.RawMessage(`"found"`)}, nil
		}
	})
	s.startCharged(s.job("j1", promised(time.Second), timeout(2*time.Second), probed))
	call := s.next("j1")
	<-call.ctx.Done()
	s.isRefunded("j1")
	eventually(t, "the probe was asked", asked.Load)
	// The worker drops this answer: its deadline has passed.
	call.deliver("dropped")
	stored.Store(true)
	result := s.runEnds("j1")
	s.assertReclaimed(result)
	assert.JSONEq(t, `"found"`, string(result.Output))
	assert.Equal(t, 1, result.Attempts)
	assert.Equal(t, 1, s.part("j1").invocations(), "what the probe found was not done again")
}

func TestAnAttemptThatTimesOutIsUnknownAndTheNextHasItsKey(t *testing.T) {
	s := newStage(t)
	s.cast("j1", stubborn)
	s.startCharged(s.job("j1", timeout(2*time.Second), attempts(100)))
	first := s.next("j1")
	keys := make(chan string, 100)
	s.cast("j1", func(p *part) {
		p.work = func(_ context.Context, meta contract.WorkMeta) (any, error) {
			keys <- meta.IdempotencyKey
			return "done", nil
		}
	})
	result := s.runEnds("j1")
	s.assertDelivered(result)
	assert.Greater(t, result.Attempts, 1)
	assert.Equal(t, first.meta.IdempotencyKey, <-keys)
	assert.Contains(t, strings.Join(s.events("j1"), "\n"), "attempt_unknown: no answer")
}

// T2: a worker whose clock runs ahead takes a ScheduleToClose limit for passed and drops good results. The soak runs workers
// with wrong clocks.
func TestT2_TheWorksOnlyLimitIsItsStartToClose(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1", timeout(7*time.Minute)))
	s.next("j1").deliver("done")
	s.runEnds("j1")
	for _, event := range s.history("j1", "") {
		scheduled := event.GetActivityTaskScheduledEventAttributes()
		if scheduled == nil {
			continue
		}
		assert.Equal(t, 7*time.Minute, scheduled.GetStartToCloseTimeout().AsDuration())
		assert.Zero(t, scheduled.GetScheduleToCloseTimeout().AsDuration())
		assert.Zero(t, scheduled.GetScheduleToStartTimeout().AsDuration())
		assert.EqualValues(t, 1, scheduled.GetRetryPolicy().GetMaximumAttempts(), "T29: the job alone decides about another attempt")
		return
	}
	t.Error("no work was scheduled")
}

func TestAnOutcomeFromOutsideDeliversAnOpenJob(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1")
	require.NoError(t, s.client.ReportOutcome(s.ctx(), s.tenant, "j1", contract.Outcome{
		State: contract.OutcomeSucceeded, Output: json.RawMessage(`{"from":"callback"}`), Source: "gpu-3",
	}))
	result := s.runEnds("j1")
	s.assertDelivered(result)
	assert.JSONEq(t, `{"from":"callback"}`, string(result.Output))
	assert.Contains(t, result.Reason, "gpu-3")
}

func TestAFailureFromOutsideEndsTheAttempt(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1")
	require.NoError(t, s.client.ReportOutcome(s.ctx(), s.tenant, "j1", contract.Outcome{
		Attempt: 1, State: contract.OutcomeFailed, Error: "out of memory", Source: "gpu-3",
	}))
	second := s.next("j1")
	assert.Equal(t, 2, second.meta.Attempt)
	second.deliver("done")
	s.assertReclaimed(s.runEnds("j1"))
	assert.Contains(t, strings.Join(s.events("j1"), "\n"), "out of memory")
}

func TestT7_ALateGPUReportReclaimsACanceledJob(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1")
	require.NoError(t, s.client.Cancel(s.ctx(), s.tenant, "j1"))
	s.assertRefunded(s.runEnds("j1"), contract.StateCanceled)
	for range 2 {
		require.NoError(t, s.client.ReportOutcome(s.ctx(), s.tenant, "j1", contract.Outcome{
			State: contract.OutcomeSucceeded, Output: json.RawMessage(`"late"`), Source: "gpu-3",
		}))
		s.reaches("j1", contract.StateSucceeded)
		result := s.runEnds("j1")
		s.assertReclaimed(result)
		assert.JSONEq(t, `"late"`, string(result.Output))
	}
	s.noCall("j1")
}

func TestTwoTenantsUseTheSameIDs(t *testing.T) {
	one := newStage(t)
	two := one.stage(t, "")
	one.startCharged(one.job("same"))
	two.startCharged(two.job("same", promised(time.Second)))
	two.isRefunded("same")
	assert.Equal(t, "charge", one.story("same"))
	one.next("same").deliver("one")
	two.next("same").deliver("two")
	first, second := one.runEnds("same"), two.runEnds("same")
	one.assertDelivered(first)
	two.assertReclaimed(second)
	assert.JSONEq(t, `"one"`, string(first.Output))
	assert.JSONEq(t, `"two"`, string(second.Output))
	assert.EqualValues(t, credits-cost, one.balance())
	assert.EqualValues(t, credits-cost, two.balance())
}

func TestAnOutputOverTheLimitIsLeftOut(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1").deliver(strings.Repeat("x", 100<<10))
	result := s.runEnds("j1")
	s.assertDelivered(result)
	assert.JSONEq(t, `{"omitted":true,"bytes":102402}`, string(result.Output))
	assert.Contains(t, result.Reason, "102402 bytes")
	assert.JSONEq(t, string(result.Output), string(s.await("j1").Output))
}

func TestAnOutputOverTheServersLimitIsUnknownNotFailed(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	first := s.next("j1")
	first.deliver(strings.Repeat("x", 3<<20))
	second := s.next("j1")
	assert.Equal(t, first.meta.IdempotencyKey, second.meta.IdempotencyKey)
	assert.Equal(t, "charge", s.story("j1"))
	assert.Contains(t, strings.Join(s.events("j1"), "\n"), "attempt_unknown")
	second.deliver("small")
	s.assertDelivered(s.runEnds("j1"))
}

func TestAnOutputThatIsNoJSONIsKeptInBase64(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1").deliver([]byte{0xff, 0x00, 0x01})
	result := s.runEnds("j1")
	s.assertDelivered(result)
	assert.JSONEq(t, `{"encoding":"binary/plain","base64":"/wAB"}`, string(result.Output))
}

func TestT19_LongErrorTextsAreCutAndTheRefundIsMade(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1", attempts(1)))
	s.next("j1").fail(errors.New(strings.Repeat("é\x00", 3<<10/3)))
	s.reaches("j1", contract.StateDeadLetter)
	assert.Equal(t, "charge refund", s.story("j1"))
	assert.LessOrEqual(t, value[int](s, `SELECT octet_length(last_error) FROM reclaim.jobs WHERE tenant_id = $1`, s.tenant), 2000)

	s.startCharged(s.job("j2"))
	s.next("j2").fail(temporal.NewNonRetryableApplicationError(strings.Repeat("x", 3<<10), strings.Repeat("T", 3<<10), nil))
	result := s.runEnds("j2")
	s.assertRefunded(result, contract.StateFailed)
}

func TestStatusIsAnsweredDuringALongWait(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	call := s.next("j1")
	status := s.status("j1")
	assert.Equal(t, contract.StateRunning, status.State)
	assert.Equal(t, 1, status.Attempt)
	assert.Contains(t, status.WaitsFor, "attempt 1, promised by ")
	assert.Equal(t, []contract.Action{contract.ActionDeliver, contract.ActionWriteOff}, status.Actions)

	value, err := s.temporal.QueryWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, "j1"), "", contract.StatusQuery)
	require.NoError(t, err)
	var plain contract.JobStatus
	require.NoError(t, value.Get(&plain))
	assert.Equal(t, status, plain)
	call.deliver("done")
	s.assertDelivered(s.runEnds("j1"))
	assert.Equal(t, "nothing", s.status("j1").WaitsFor)
}

func TestSearchAttributesShowWhereTheMoneyIs(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("charged"))
	s.deadLetter("dead")
	s.startCharged(s.job("refunded", promised(time.Second)))
	s.startCharged(s.job("reclaimed", promised(time.Second)))
	s.isRefunded("reclaimed")
	s.next("reclaimed").deliver("done")
	s.start(s.job("declined", func(j *contract.Job) { j.Account = "poor" }))
	finds := func(query string, ids ...string) {
		t.Helper()
		eventually(t, query+" lists the jobs "+strings.Join(ids, ", "), func() bool {
			return strings.Join(s.list(query), " ") == strings.Join(ids, " ")
		})
	}
	tenant := contract.AttributeTenant + " = '" + s.tenant + "'"
	finds(tenant+" AND "+contract.AttributeMoney+" = 'charged'", "charged")
	finds(tenant+" AND "+contract.AttributeMoney+" = 'refunded'", "dead", "refunded")
	finds(tenant+" AND "+contract.AttributeMoney+" = 'reclaimed'", "reclaimed")
	finds(tenant+" AND "+contract.AttributeMoney+" = 'declined'", "declined")
	finds(tenant+" AND "+contract.AttributeAttention+" = 'dead_letter'", "dead")
	finds(tenant+" AND "+contract.AttributeAccount+" = '"+account+"'", "charged", "dead", "reclaimed", "refunded")

	s.resolve("dead", decision("r1", contract.ActionWriteOff))
	s.runEnds("dead")
	finds(tenant + " AND " + contract.AttributeAttention + " IS NOT NULL")
}

func TestTwoSubmissionsAtOnceChargeOnce(t *testing.T) {
	s := newStage(t)
	job := s.job("j1")
	verdicts := make(chan contract.Verdict, 2)
	for range cap(verdicts) {
		go func() {
			verdict, err := s.client.StartJob(s.ctx(), job)
			assert.NoError(t, err)
			verdicts <- verdict.Verdict
		}()
	}
	got := []contract.Verdict{<-verdicts, <-verdicts}
	if s.tasksRepeated("j1") {
		// Then both may be told of the charge as of an earlier one.
		assert.NotContains(t, got, contract.VerdictDeclined)
	} else {
		assert.ElementsMatch(t, []contract.Verdict{contract.VerdictCharged, contract.VerdictAlready}, got)
	}
	s.next("j1").deliver("done")
	s.assertDelivered(s.runEnds("j1"))
	s.noCall("j1")
}

func TestAResubmissionAfterTheEndIsAnsweredWithoutARun(t *testing.T) {
	s := newStage(t)
	job := s.job("j1")
	s.startCharged(job)
	s.next("j1").deliver("done")
	s.runEnds("j1")
	run := s.newestRun("j1")
	verdict := s.start(job)
	assert.Equal(t, contract.VerdictAlready, verdict.Verdict)
	assert.EqualValues(t, credits-cost, verdict.Balance)
	assert.Equal(t, run, s.newestRun("j1"), "another run would hide the real one")
}

func TestT13_ASecondRunAfterTheEndFindsTheRow(t *testing.T) {
	s := newStage(t)
	job := s.job("j1")
	s.startCharged(job)
	s.next("j1").deliver(map[string]int{"n": 1})
	first := s.runEnds("j1")

	var again contract.JobResult
	require.NoError(t, s.startPlain(job, "j1").Get(s.ctx(), &again))
	assert.Equal(t, first, again)

	run, err := s.temporal.SignalWithStartWorkflow(s.ctx(), job.WorkflowID(), contract.OutcomeSignal,
		contract.Outcome{State: contract.OutcomeFailed, Source: "a retry"},
		client.StartWorkflowOptions{TaskQueue: s.queue}, contract.MeteredJobWorkflow, job)
	require.NoError(t, err)
	require.NoError(t, run.Get(s.ctx(), &again))
	assert.Equal(t, first, again)
	s.assertDelivered(again)
	s.noCall("j1")
}
