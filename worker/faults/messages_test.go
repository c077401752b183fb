package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// proxiedStage gives a stage whose runs are carried by a worker of its own, which reaches Postgres through the proxy.
func proxiedStage(t *testing.T) (*stage, *schematest.LossyProxy) {
	t.Helper()
	needsQuiet(t)
	t.Parallel()
	w := sharedWorld(t)
	proxy := schematest.NewLossyProxy(t, w.database.Address)
	store, err := schema.Open(context.Background(), proxy.URL(w.database.AppURL), schema.Options{MaxConns: 8})
	require.NoError(t, err)
	s := w.stage(t, "")
	s.queue = "reclaim-" + s.tenant
	s.client = w.asker(s.queue)
	stop := w.startWorker(t, store, s.queue)
	t.Cleanup(func() {
		stop()
		store.Close()
	})
	return s, proxy
}

func statement(name string) func(sql string) bool {
	return schematest.Containing("-- name: " + name + " ")
}

func (s *stage) cancel(jobID string) {
	s.t.Helper()
	require.NoError(s.t, s.client.Cancel(s.ctx(), s.tenant, jobID))
}

func (s *stage) signal(jobID, name string, payload any) {
	s.t.Helper()
	require.NoError(s.t, s.temporal.SignalWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, jobID), "", name, payload))
}

func (s *stage) terminate(jobID string) {
	s.t.Helper()
	require.NoError(s.t, s.temporal.TerminateWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, jobID), "", "test"))
}

func TestACancelStopsTheWorkAndRefunds(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	call := s.next("j1")
	s.cancel("j1")
	s.assertRefunded(s.runEnds("j1"), contract.StateCanceled)
	assert.Error(t, call.ctx.Err(), "the work was asked to stop")
	s.noCall("j1")

	s.cancel("j1")
	s.assertRefunded(s.await("j1"), contract.StateCanceled)
	assert.Len(t, s.runs("j1"), 1, "who asks again after a lost answer has what was asked for")
}

func TestACancelOfADeliveredJobIsRefused(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1").deliver("done")
	s.assertDelivered(s.runEnds("j1"))
	err := s.client.Cancel(s.ctx(), s.tenant, "j1")
	assert.Equal(t, contract.CodeBadInput, contract.CodeOf(err), "%v", err)
}

func TestWorkThatDeliversInSpiteOfACancelIsReclaimed(t *testing.T) {
	s := newStage(t)
	s.cast("j1", stubborn)
	s.startCharged(s.job("j1"))
	call := s.next("j1")
	s.cancel("j1")
	s.isRefunded("j1")
	<-call.ctx.Done()
	assert.Contains(t, s.status("j1").WaitsFor, "the real end of the work")
	call.deliver("after all")
	s.assertReclaimed(s.runEnds("j1"))
}

func TestACancelDuringThePauseStartsNoFurtherAttempt(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1", func(j *contract.Job) {
		j.Retry.InitialBackoff, j.Retry.MaxBackoff = contract.Duration(time.Hour), contract.Duration(time.Hour)
	}))
	s.next("j1").fail(errBusy)
	s.isRefunded("j1")
	eventually(t, "the job pauses", func() bool { return strings.Contains(s.status("j1").WaitsFor, "the pause before attempt 2") })
	s.cancel("j1")
	s.assertRefunded(s.runEnds("j1"), contract.StateCanceled)
	s.noCall("j1")
}

func TestACancelClosesADeadLetter(t *testing.T) {
	s := newStage(t)
	s.deadLetter("j1")
	s.cancel("j1")
	s.assertRefunded(s.runEnds("j1"), contract.StateCanceled)
}

func TestACancelBeforeTheFirstTaskDoesNotSkipTheCharge(t *testing.T) {
	s := newStage(t)
	s.queue = "reclaim-" + s.tenant
	s.startPlain(s.job("j1"), "j1")
	require.NoError(t, s.temporal.CancelWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, "j1"), ""))
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	s.assertRefunded(s.runEnds("j1"), contract.StateCanceled)
	s.noCall("j1")
}

func TestATerminatedJobIsTakenUpByAResubmission(t *testing.T) {
	s := newStage(t)
	s.cast("j1", stubborn)
	job := s.job("j1")
	s.startCharged(job)
	first := s.next("j1")
	s.terminate("j1")
	verdict := s.start(job)
	assert.Equal(t, contract.VerdictAlready, verdict.Verdict)
	second := s.next("j1")
	assert.Equal(t, first.meta, second.meta, "the attempt in flight is unknown: the same one is done again under its key")
	second.deliver("done")
	s.assertDelivered(s.runEnds("j1"))
}

func TestATakenUpJobAsksTheProbeFirst(t *testing.T) {
	s := newStage(t)
	s.cast("j1", func(p *part) {
		p.stubborn = true
		p.probe = func(contract.WorkMeta) (contract.ProbeAnswer, error) {
			return contract.ProbeAnswer{State: contract.ProbeSucceeded, Output: json.RawMessage(`"found"`)}, nil
		}
	})
	job := s.job("j1", promised(time.Second), probed)
	s.startCharged(job)
	s.next("j1")
	s.isRefunded("j1")
	s.terminate("j1")
	assert.Contains(t, s.status("j1").WaitsFor, "submit the job again")
	s.start(job)
	result := s.runEnds("j1")
	s.assertReclaimed(result)
	assert.JSONEq(t, `"found"`, string(result.Output))
	s.noCall("j1")
}

func TestADeadLetterThatWasTerminatedIsTakenUpAsOne(t *testing.T) {
	s := newStage(t)
	s.deadLetter("j1")
	s.terminate("j1")
	// The decision itself starts the run.
	assert.Equal(t, contract.StateRunning, s.resolve("j1", decision("r1", contract.ActionRetry)).State)
	s.next("j1").deliver("done")
	s.assertReclaimed(s.runEnds("j1"))
}

func TestAnOutcomeForATerminatedJobStartsARun(t *testing.T) {
	s := newStage(t)
	s.cast("j1", stubborn)
	s.startCharged(s.job("j1"))
	s.next("j1")
	s.terminate("j1")
	require.NoError(t, s.client.ReportOutcome(s.ctx(), s.tenant, "j1", contract.Outcome{
		State: contract.OutcomeSucceeded, Output: json.RawMessage(`"late"`), Source: "gpu-3",
	}))
	s.reaches("j1", contract.StateSucceeded)
	result := s.runEnds("j1")
	s.assertDelivered(result)
	assert.JSONEq(t, `"late"`, string(result.Output))
}

func TestACancelOfATerminatedJobStartsARun(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1")
	s.terminate("j1")
	s.cancel("j1")
	s.reaches("j1", contract.StateCanceled)
	s.assertRefunded(s.runEnds("j1"), contract.StateCanceled)
}

func TestAWriteOffOfATerminatedJobStartsARun(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1")
	s.terminate("j1")
	assert.Equal(t, contract.StateWrittenOff, s.resolve("j1", decision("r1", contract.ActionWriteOff)).State)
	s.assertRefunded(s.runEnds("j1"), contract.StateWrittenOff)
}

func TestSignalsThatDoNotDecodeAreRecordedAsRefused(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	call := s.next("j1")
	sent := []any{"text", 7, []byte{0xff, 0, 1}, map[string]any{"unheard": "of"}, []string{"a"}, nil}
	for _, payload := range sent {
		s.signal("j1", contract.OutcomeSignal, payload)
		s.signal("j1", contract.ResolveMessage, payload)
	}
	// A decision that breaks the contract keeps its id.
	s.signal("j1", contract.ResolveMessage, map[string]any{"id": "bad-1", "action": "explode", "operator": "sue", "reason": "x"})
	refusals := func() map[string]bool {
		ids := map[string]bool{}
		for _, id := range value[[]string](s, `SELECT coalesce(array_agg(resolution_id), '{}') FROM reclaim.resolutions
			WHERE tenant_id = $1 AND subject_id = 'j1' AND outcome = 'refused'`, s.tenant) {
			ids[id] = true
		}
		return ids
	}
	refusedOutcomes := func() (n int) {
		for _, event := range s.events("j1") {
			if strings.HasPrefix(event, "message_refused: outcome: ") {
				n++
			}
		}
		return n
	}
	// Reports that are refused in the same words are recorded once.
	eventually(t, "every message is recorded", func() bool { return len(refusals()) >= 7 && refusedOutcomes() >= 3 })
	assert.Len(t, refusals(), 7)
	assert.True(t, refusals()["bad-1"])
	assert.Equal(t, 3, refusedOutcomes())
	call.deliver("done")
	s.assertDelivered(s.runEnds("j1"))
}

func TestARepeatedResolutionIsAnsweredAsTheFirstTime(t *testing.T) {
	s := newStage(t)
	s.deadLetter("j1")
	first := s.resolve("j1", decision("r1", contract.ActionRetry))
	second := s.next("j1")
	assert.Equal(t, first, s.resolve("j1", decision("r1", contract.ActionRetry)))
	// Past the client, which looks at the rows first.
	s.signal("j1", contract.ResolveMessage, decision("r1", contract.ActionRetry))
	assert.Equal(t, first, s.resolveByUpdate("j1", decision("r1", contract.ActionRetry)))

	other := decision("r1", contract.ActionWriteOff)
	_, err := s.client.Resolve(s.ctx(), s.tenant, "j1", other)
	assert.Equal(t, contract.CodeBadResolution, contract.CodeOf(err), "%v", err)
	_, err = s.updateResolve("j1", other)
	assert.Equal(t, string(contract.CodeBadResolution), errorType(err), "%v", err)

	second.fail(errBusy)
	s.reaches("j1", contract.StateDeadLetter)
	assert.Equal(t, 1, value[int](s, `SELECT granted FROM reclaim.jobs WHERE tenant_id = $1`, s.tenant))
	assert.Equal(t, first, s.resolve("j1", decision("r1", contract.ActionRetry)), "the retry is not granted again")
	s.noCall("j1")
}

// updateResolve decides as a program in any language would.
func (s *stage) updateResolve(jobID string, d contract.Resolution) (answer contract.ResolutionAnswer, err error) {
	s.t.Helper()
	handle, err := s.temporal.UpdateWorkflow(s.ctx(), client.UpdateWorkflowOptions{
		WorkflowID: contract.JobWorkflowID(s.tenant, jobID), UpdateName: contract.ResolveMessage, Args: []any{d},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(s.ctx(), &answer)
	}
	return answer, err
}

func (s *stage) resolveByUpdate(jobID string, d contract.Resolution) contract.ResolutionAnswer {
	s.t.Helper()
	answer, err := s.updateResolve(jobID, d)
	require.NoError(s.t, err)
	return answer
}

func TestAPersonDecidesByAPlainUpdate(t *testing.T) {
	s := newStage(t)
	s.deadLetter("j1")
	_, err := s.updateResolve("j1", contract.Resolution{ID: "r0", Action: "explode"})
	assert.Equal(t, string(contract.CodeBadResolution), errorType(err), "%v", err)
	answer := s.resolveByUpdate("j1", decision("r1", contract.ActionDeliver))
	assert.Equal(t, contract.ResolutionAnswer{ID: "r1", Outcome: contract.ResolutionApplied, State: contract.StateSucceeded}, answer)
	s.assertReclaimed(s.runEnds("j1"))
}

func TestAPersonDecidesByAPlainSignal(t *testing.T) {
	s := newStage(t)
	s.deadLetter("j1")
	s.signal("j1", contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
	s.assertRefunded(s.runEnds("j1"), contract.StateWrittenOff)
}

func TestADeliveryOfARunningJobByAPersonEndsItsRun(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1")
	assert.Equal(t, contract.StateSucceeded, s.resolve("j1", decision("r1", contract.ActionDeliver)).State)
	s.assertDelivered(s.runEnds("j1"))
}

// It runs alone: Temporal fails a task during which 100 signals arrive, so that a machine on which a task takes 2 s makes
// no headway before the storm is over.
func TestT8_ASignalStormNeitherStopsTheEndNorLosesADecision(t *testing.T) {
	needsQuiet(t)
	s := sharedWorld(t).stage(t, "")
	s.startCharged(s.job("j1"))
	call := s.next("j1")
	ended := make(chan struct{})
	var mu sync.Mutex
	var accepted []string
	taken := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(accepted)
	}
	var senders sync.WaitGroup
	tick := time.NewTicker(20 * time.Millisecond)
	t.Cleanup(tick.Stop)
	ctx := s.ctx()
	over := time.After(15 * time.Second)
	senders.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-ended:
				return
			case <-over:
				return
			case <-tick.C:
			}
			senders.Go(func() {
				d := decision(fmt.Sprintf("r%d", n), contract.ActionRetry)
				err := s.temporal.SignalWorkflow(ctx, contract.JobWorkflowID(s.tenant, "j1"), "", contract.ResolveMessage, d)
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					accepted = append(accepted, d.ID)
				}
			})
		}
	})
	eventually(t, "the storm is on", func() bool { return taken() >= 25 })
	call.deliver("done")
	delivered := time.Now()
	result := s.runEnds("j1")
	took := time.Since(delivered)
	close(ended)
	senders.Wait()
	s.assertDelivered(result)
	recorded := map[string]bool{}
	for _, id := range value[[]string](s, `SELECT coalesce(array_agg(resolution_id), '{}') FROM reclaim.resolutions
		WHERE tenant_id = $1`, s.tenant) {
		recorded[id] = true
	}
	for _, id := range accepted {
		assert.True(t, recorded[id], "decision %s was accepted and is lost", id)
	}
	t.Logf("%d signals accepted; the run ended %s after the delivery", len(accepted), took.Round(time.Millisecond))
}

func TestT10_ADecisionThatArrivesInTheFinalTaskIsRecorded(t *testing.T) {
	s, proxy := proxiedStage(t)
	s.startCharged(s.job("j1"))
	call := s.next("j1")
	release := proxy.Hold(statement("SettleJob"))
	call.deliver("done")
	eventually(t, "the settling is under way", func() bool { return proxy.Held() > 0 })
	s.signal("j1", contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
	s.signal("j1", contract.OutcomeSignal, contract.Outcome{State: contract.OutcomeFailed, Source: "a late callback"})
	release()
	s.assertDelivered(s.runEnds("j1"))
	assert.Equal(t, "refused", value[string](s, `SELECT outcome FROM reclaim.resolutions WHERE tenant_id = $1 AND resolution_id = 'r1'`, s.tenant))
	assert.Contains(t, strings.Join(s.events("j1"), "\n"), "a late callback")
}

func TestT11_TheRunWaitsForAnUpdateUnderWay(t *testing.T) {
	s, proxy := proxiedStage(t)
	s.startCharged(s.job("j1"))
	call := s.next("j1")
	release := proxy.Hold(statement("ResolveJob"))
	type reply struct {
		answer contract.ResolutionAnswer
		err    error
	}
	replies := make(chan reply, 1)
	go func() {
		answer, err := s.updateResolve("j1", decision("r1", contract.ActionWriteOff))
		replies <- reply{answer, err}
	}()
	eventually(t, "the decision is under way", func() bool { return proxy.Held() > 0 })
	call.deliver("done")
	release()
	r := <-replies
	require.NoError(t, r.err)
	assert.Equal(t, contract.ResolutionAnswer{ID: "r1", Outcome: contract.ResolutionApplied, State: contract.StateWrittenOff}, r.answer)
	s.assertReclaimed(s.runEnds("j1"))
}

// The first decision ends the job while the second one, in a task that the long call made necessary, waits for its turn.
func TestT11_ADecisionThatWaitsBehindTheLastOneIsAnswered(t *testing.T) {
	s, proxy := proxiedStage(t)
	s.deadLetter("j1")
	release := proxy.Hold(statement("ResolveJob"))
	decide := func(id string) <-chan error {
		errs := make(chan error, 1)
		go func() {
			_, err := s.updateResolve("j1", decision(id, contract.ActionWriteOff))
			errs <- err
		}()
		return errs
	}
	first := decide("r1")
	eventually(t, "the first decision is under way", func() bool { return proxy.Held() > 0 })
	second := decide("r2")
	eventually(t, "the second decision is in the run", func() bool {
		accepted := false
		for _, event := range s.history("j1", "") {
			switch event.GetEventType() {
			case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
				update := event.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest()
				accepted = accepted || update.GetInput().GetName() == contract.ResolveMessage
			case enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED:
				if accepted {
					return true
				}
			}
		}
		return false
	})
	release()
	assert.NoError(t, <-first)
	err := <-second
	assert.Equal(t, string(contract.CodeBadResolution), errorType(err), "%v", err)
	s.assertRefunded(s.runEnds("j1"), contract.StateWrittenOff)
}

func TestT10_ADecisionThatArrivesWhileTheResultIsReadIsRecorded(t *testing.T) {
	s, proxy := proxiedStage(t)
	s.deadLetter("j1")
	release := proxy.Hold(statement("GetJobOutput"))
	s.resolve("j1", decision("r1", contract.ActionDeliver))
	eventually(t, "the result is being read", func() bool { return proxy.Held() > 0 })
	s.signal("j1", contract.ResolveMessage, decision("r2", contract.ActionWriteOff))
	release()
	s.assertReclaimed(s.runEnds("j1"))
	assert.Equal(t, "refused", value[string](s, `SELECT coalesce((SELECT outcome FROM reclaim.resolutions
		WHERE tenant_id = $1 AND resolution_id = 'r2'), 'lost')`, s.tenant))
}

func TestALostReplyOfAnyGuardIsRepeatedAndMovesMoneyOnce(t *testing.T) {
	s, proxy := proxiedStage(t)
	for _, name := range []string{"ChargeJob", "RefundJob", "SettleJob", "RecordAttempt", "ParkJob", "ResolveJob", "RecordJobEvent"} {
		proxy.LoseReply(statement(name), 2)
	}
	// Whose reply was lost cannot tell its own charge from an earlier submission's.
	assert.Equal(t, contract.VerdictAlready, s.start(s.job("j1", attempts(1), promised(time.Second))).Verdict)
	call := s.next("j1")
	// One after the other: what the run hears of together, it may write down in fewer statements.
	eventually(t, "the run knows of the refund", func() bool { return s.waitsForLateSuccess("j1") })
	s.signal("j1", contract.OutcomeSignal, "nonsense")
	eventually(t, "the run knows that the report was recorded", func() bool {
		return len(s.events("j1")) == 1 && s.waitsForLateSuccess("j1")
	})
	call.fail(errBusy)
	s.reaches("j1", contract.StateDeadLetter)
	s.resolve("j1", decision("r1", contract.ActionRetry))
	s.next("j1").deliver("done")
	s.assertReclaimed(s.runEnds("j1"))
	assert.Equal(t, 14, proxy.Lost())
	assert.Equal(t, 1, value[int](s, `SELECT granted FROM reclaim.jobs WHERE tenant_id = $1`, s.tenant))
}

func TestT28_AWorkflowRetryPolicyAndRunTimeoutOfTheCallerChargeOnce(t *testing.T) {
	s := newStage(t)
	s.cast("j1", stubborn)
	first := s.startPlain(s.job("j1"), "j1", func(o *client.StartWorkflowOptions) {
		// A whole run must fit in it, on a busy machine too.
		o.WorkflowRunTimeout = 20 * time.Second
		o.RetryPolicy = &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1}
	})
	eventually(t, "the server repeats the workflow", func() bool { return s.newestRun("j1") != first.GetRunID() })
	s.cast("j1", answersAtOnce("done"))
	s.reaches("j1", contract.StateSucceeded)
	s.assertDelivered(s.await("j1"))
}

func TestT25_AJobWhoseRunTimedOutIsTakenUp(t *testing.T) {
	s := newStage(t)
	s.cast("j1", stubborn)
	// The run must be able to call the work in its time, on a busy machine too. It begins before the charge, from which the
	// promise counts, so that it is over first.
	job := s.job("j1", promised(22*time.Second))
	s.startPlain(job, "j1", func(o *client.StartWorkflowOptions) { o.WorkflowRunTimeout = 20 * time.Second })
	first := s.next("j1")
	eventually(t, "the run timed out", func() bool {
		described, err := s.temporal.DescribeWorkflow(s.ctx(), job.WorkflowID(), "")
		require.NoError(t, err)
		return described.Status == enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT
	})
	assert.Equal(t, "charge", s.story("j1"), "nobody was there to refund")
	_, err := s.client.AwaitJob(s.ctx(), s.tenant, "j1")
	assert.Equal(t, contract.CodeUnavailable, contract.CodeOf(err), "%v", err)
	assert.Equal(t, contract.VerdictAlready, s.start(job).Verdict)
	second := s.next("j1")
	assert.Equal(t, first.meta, second.meta)
	s.isRefunded("j1")
	second.deliver("done")
	s.assertReclaimed(s.runEnds("j1"))
}

func TestACancelOfAJobThatWasNeverChargedFindsNothing(t *testing.T) {
	s := newStage(t)
	err := s.client.Cancel(s.ctx(), s.tenant, "unknown")
	assert.Equal(t, contract.CodeNotFound, contract.CodeOf(err), "%v", err)
	s.start(s.job("j1", func(j *contract.Job) { j.Account = "poor" }))
	s.runEnds("j1")
	err = s.client.Cancel(s.ctx(), s.tenant, "j1")
	assert.Equal(t, contract.CodeNotFound, contract.CodeOf(err), "%v", err)
}
