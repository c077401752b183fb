package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const minute = time.Minute

func TestAJobDeliveredOnTimeIsChargedOnce(t *testing.T) {
	s := newStage(t, delivers(5*time.Second, map[string]string{"url": "s3://v"})).run()
	require.NoError(t, s.err)
	assert.Equal(t, contract.JobResult{
		JobID: "j1", State: contract.StateSucceeded, Money: contract.Money{Charged: cost}, Net: cost, Attempts: 1,
		Output: json.RawMessage(`{"url":"s3://v"}`), Reason: "delivered by attempt 1",
	}, s.result)
	assert.Equal(t, "charge", s.entries())
	assert.Equal(t, 5*time.Second, s.elapsed())
	assert.Equal(t, []string{"ChargeJob", "SettleJob"}, s.jobs.calls, "a happy job makes two money calls")
}

func TestTheWorkIsStartedAsTheContractSays(t *testing.T) {
	s := newStage(t, delivers(time.Second, 1)).spec(func(j *contract.Job) {
		j.Work.Heartbeat = contract.Duration(20 * time.Second)
	}).run()
	require.Len(t, s.plays, 1)
	play := s.plays[0]
	assert.JSONEq(t, `{"scene":7}`, string(play.input))
	assert.Equal(t, contract.WorkMeta{
		Tenant: "acme", JobID: "j1", Attempt: 1, PromiseDeadline: "2026-03-01T12:00:30Z", IdempotencyKey: "job/acme/j1/1",
	}, play.meta)
	assert.Equal(t, "gpu", play.options.TaskQueue)
	assert.Equal(t, 10*minute, play.options.StartToCloseTimeout)
	assert.Equal(t, 20*time.Second, play.options.HeartbeatTimeout)
	assert.Zero(t, play.options.ScheduleToCloseTimeout, "T2: it would depend on the worker's clock")
	assert.Zero(t, play.options.ScheduleToStartTimeout)
	assert.True(t, play.options.WaitForCancellation)
	assert.EqualValues(t, 1, play.options.RetryPolicy.MaximumAttempts, "T29: the job alone repeats the work")
	assert.Equal(t, "attempt 1 of 3", play.options.Summary)
}

func TestT7LateSuccessAfterThePromiseIsReclaimed(t *testing.T) {
	s := newStage(t, delivers(45*time.Second, "v"))
	var before, waiting contract.JobStatus
	s.at(29*time.Second, func() { before = s.status() })
	s.at(31*time.Second, func() { waiting = s.status() })
	s.run()
	assert.Equal(t, contract.StateSucceeded, s.result.State)
	assert.True(t, s.result.Late)
	assert.Equal(t, "charge refund reclaim", s.entries())
	assert.EqualValues(t, cost, s.result.Net)
	assert.Equal(t, `"v"`, string(s.result.Output))
	assert.False(t, s.plays[0].stopped, "the promise does not stop the work")
	assert.Equal(t, contract.Money{Charged: cost}, before.Money)
	assert.Equal(t, "attempt 1, promised by 2026-03-01T12:00:30Z", before.WaitsFor)
	assert.Equal(t, contract.Money{Charged: cost, Refunded: cost}, waiting.Money)
	assert.Equal(t, "late success of attempt 1 (the customer is refunded)", waiting.WaitsFor)
	assert.Equal(t, contract.StateRunning, waiting.State)
	assert.Equal(t, []string{contract.MoneyCharged, contract.MoneyRefunded, contract.MoneyReclaimed},
		s.history(contract.AttributeMoney))
}

func TestThePromiseRefundsAtItsMomentAndSaysWhy(t *testing.T) {
	s := newStage(t, delivers(45*time.Second, "v"))
	var early, late string
	var reason string
	s.at(29900*time.Millisecond, func() { early = s.entries() })
	s.at(30100*time.Millisecond, func() { late, reason = s.entries(), s.row().reason })
	s.run()
	assert.Equal(t, "charge", early)
	assert.Equal(t, "charge refund", late)
	assert.Equal(t, "the promise of 30s passed without delivery", reason)
}

func TestWhenPromiseAndSuccessAreReadyTogetherSuccessWins(t *testing.T) {
	t.Run("the work's answer", func(t *testing.T) {
		s := newStage(t, hangs())
		s.onTimer[30*time.Second] = func() { s.plays[0].end(delivers(0, 1)) }
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "charge", s.entries())
		assert.False(t, s.result.Late)
	})
	t.Run("a success reported from outside", func(t *testing.T) {
		s := newStage(t, hangs())
		s.at(30*time.Second-time.Nanosecond, func() {
			s.env.SignalWorkflowSkippingWorkflowTask(contract.OutcomeSignal,
				contract.Outcome{State: contract.OutcomeSucceeded, Output: json.RawMessage(`1`), Source: "gpu"})
		})
		s.run()
		assert.Equal(t, "charge", s.entries())
	})
	t.Run("a failure does not win", func(t *testing.T) {
		s := newStage(t, hangs(), delivers(0, 1)).spec(func(j *contract.Job) { j.RefundOnFailure = new(false) })
		s.onTimer[30*time.Second] = func() { s.plays[0].end(fails(0, "x")) }
		s.run()
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
}

func TestAFailureRefundsAtOnceAndALaterSuccessReclaims(t *testing.T) {
	s := newStage(t, fails(2*time.Second, "out of memory"), delivers(3*time.Second, 1))
	var pause contract.JobStatus
	s.at(2500*time.Millisecond, func() { pause = s.status() })
	s.run()
	assert.Equal(t, "charge refund reclaim", s.entries())
	assert.True(t, s.result.Late)
	assert.Equal(t, 2, s.result.Attempts)
	assert.Equal(t, "delivered by attempt 2", s.result.Reason)
	assert.Equal(t, "the pause before attempt 2", pause.WaitsFor)
	assert.Equal(t, 1, pause.Attempt)
	assert.Equal(t, contract.Money{Charged: cost, Refunded: cost}, pause.Money)
	assert.Equal(t, []string{"RenderError: out of memory"}, s.told("attempt_failed"))
	assert.Equal(t, 6*time.Second, s.elapsed(), "2 s of work, 1 s of pause, 3 s of work")
}

func TestWithoutRefundOnFailureTheMoneyStaysUntilThePromisePasses(t *testing.T) {
	never := func(j *contract.Job) { j.RefundOnFailure = new(false) }
	t.Run("success in time", func(t *testing.T) {
		s := newStage(t, fails(2*time.Second, "x"), delivers(3*time.Second, 1)).spec(never).run()
		assert.Equal(t, "charge", s.entries())
		assert.False(t, s.result.Late)
		assert.Equal(t, 2, s.result.Attempts)
	})
	t.Run("the promise passes in the pause", func(t *testing.T) {
		s := newStage(t, fails(29500*time.Millisecond, "x"), delivers(3*time.Second, 1)).spec(never)
		var reason string
		s.at(30200*time.Millisecond, func() { reason = s.row().reason })
		s.run()
		assert.Equal(t, "charge refund reclaim", s.entries())
		assert.Equal(t, "the promise of 30s passed without delivery", reason)
	})
	t.Run("the attempts run out first", func(t *testing.T) {
		s := newStage(t, fails(time.Second, "x")).spec(never).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		var entries, reason string
		s.at(2*time.Second, func() {
			entries = s.entries()
			reason = s.row().reason
			s.env.CancelWorkflow()
		})
		s.run()
		assert.Equal(t, "charge refund", entries)
		assert.Equal(t, "1 attempts are used up: a person decides", reason)
	})
}

func TestPausesGrowToTheirLimit(t *testing.T) {
	s := newStage(t, fails(0, "1"), fails(0, "2"), fails(0, "3"), fails(0, "4"), delivers(0, 1)).spec(func(j *contract.Job) {
		j.Retry = contract.Retrying{
			MaxAttempts: 5, InitialBackoff: contract.Duration(2 * time.Second), Multiplier: 3,
			MaxBackoff: contract.Duration(10 * time.Second),
		}
	}).run()
	began := []time.Duration{}
	for _, play := range s.plays {
		began = append(began, play.began)
	}
	assert.Equal(t, []time.Duration{0, 2 * time.Second, 8 * time.Second, 18 * time.Second, 28 * time.Second}, began)
}

func TestL80AlwaysFailingWorkIsCappedRefundedOnceAndParked(t *testing.T) {
	s := newStage(t, fails(time.Second, "1"), fails(time.Second, "2"), fails(time.Second, "3"), delivers(time.Second, "late"))
	var parked contract.JobStatus
	s.at(minute, func() {
		parked = s.status()
		assert.Equal(t, contract.AttentionDeadLetter, s.last(contract.AttributeAttention))
		assert.Equal(t, "charge refund", s.entries())
		s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry))
	})
	s.run()
	assert.Equal(t, contract.StateDeadLetter, parked.State)
	assert.Equal(t, "a person's decision: resolve with retry, deliver or write_off", parked.WaitsFor)
	assert.Equal(t, []contract.Action{contract.ActionRetry, contract.ActionDeliver, contract.ActionWriteOff}, parked.Actions)
	assert.Equal(t, contract.StateSucceeded, s.result.State)
	assert.Equal(t, 4, s.result.Attempts)
	assert.Equal(t, "charge refund reclaim", s.entries())
	assert.Equal(t, []string{contract.AttentionDeadLetter, ""}, s.history(contract.AttributeAttention))
	assert.Equal(t, minute+time.Second, s.elapsed(), "a granted attempt begins without a pause")
	assert.Equal(t, "attempt 4 of 4", s.plays[3].options.Summary)
}

func TestGrantedAttemptsUsedUpParkAgain(t *testing.T) {
	s := newStage(t, fails(0, "1"), fails(0, "2"), fails(0, "3")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
	s.at(minute, func() {
		granting := decision("r1", contract.ActionRetry)
		granting.Attempts = 2
		s.signal(contract.ResolveMessage, granting)
	})
	s.at(2*minute, func() {
		assert.Equal(t, contract.StateDeadLetter, s.status().State)
		s.signal(contract.ResolveMessage, decision("r2", contract.ActionWriteOff))
	})
	s.run()
	assert.Equal(t, contract.StateWrittenOff, s.result.State)
	assert.Equal(t, "charge refund", s.entries())
	assert.Equal(t, 3, s.result.Attempts)
}

func TestADeadLetterIsDeliveredByAPersonWithEvidence(t *testing.T) {
	s := newStage(t, fails(0, "1")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
	s.at(minute, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionDeliver)) })
	s.run()
	assert.Equal(t, contract.StateSucceeded, s.result.State)
	assert.True(t, s.result.Late)
	assert.Equal(t, "charge refund reclaim", s.entries())
	assert.Equal(t, "null", string(s.result.Output))
	assert.Equal(t, "deliver by ada", s.result.Reason)
}

func TestADeadLetterWaitsAsLongAsItTakes(t *testing.T) {
	s := newStage(t, fails(0, "1")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
	s.at(200*24*time.Hour, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
	s.run()
	assert.Equal(t, contract.StateWrittenOff, s.result.State)
	assert.Less(t, len(s.timers), 3, "waiting for a person costs no timers")
}

func TestWorkThatSaysItCanNeverSucceedFailsTheJob(t *testing.T) {
	for _, refundOnFailure := range []bool{true, false} {
		s := newStage(t, failsForGood(time.Second, "no such scene")).spec(func(j *contract.Job) {
			j.RefundOnFailure = &refundOnFailure
		}).run()
		assert.Equal(t, contract.StateFailed, s.result.State)
		assert.Equal(t, "charge refund", s.entries())
		assert.Equal(t, 1, s.result.Attempts)
		assert.Equal(t, "attempt 1 says that it can never succeed: BadScene: no such scene", s.result.Reason)
		assert.Equal(t, "null", string(s.result.Output))
		assert.Zero(t, s.result.Net)
		assert.Equal(t, []string{"attempt_failed 1", "closed 0"}, s.events())
	}
}

func TestT1AnAttemptWithoutAnswerIsLookedForBeforeAnythingRunsAgain(t *testing.T) {
	t.Run("the probe finds it", func(t *testing.T) {
		s := newStage(t, isLost(40*time.Second)).withProbe(answers(time.Second, contract.ProbeSucceeded, `{"url":"v"}`)).run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "charge refund reclaim", s.entries())
		assert.Equal(t, `{"url":"v"}`, string(s.result.Output))
		assert.Equal(t, "delivered by attempt 1, as its probe found", s.result.Reason)
		assert.Equal(t, 1, s.result.Attempts)
	})
	t.Run("in time", func(t *testing.T) {
		s := newStage(t, isLost(4*time.Second)).withProbe(answers(time.Second, contract.ProbeSucceeded, "1")).run()
		assert.Equal(t, "charge", s.entries(), "an unknown outcome alone refunds nothing")
	})
	t.Run("the probe says that it failed", func(t *testing.T) {
		s := newStage(t, isLost(time.Second), delivers(time.Second, 1)).
			withProbe(answers(time.Second, contract.ProbeFailed, "")).run()
		assert.Equal(t, "charge refund reclaim", s.entries())
		assert.Equal(t, 2, s.result.Attempts)
		assert.Equal(t, "job/acme/j1/2", s.plays[2].meta.IdempotencyKey)
		assert.Equal(t, []string{"attempt_unknown 1", "probe_answered 1", "attempt_failed 1"}, s.events())
	})
	t.Run("the probe sees it running, again and again, then done", func(t *testing.T) {
		s := newStage(t, isLost(time.Second)).withProbe(
			answers(0, contract.ProbeRunning, ""), answers(0, contract.ProbeRunning, ""),
			answers(0, contract.ProbeRunning, ""), answers(0, contract.ProbeSucceeded, "1"))
		var asked contract.JobStatus
		s.at(1500*time.Millisecond, func() { asked = s.status() })
		s.run()
		assert.Equal(t, 1, s.result.Attempts, "asking uses no attempt up")
		began := []time.Duration{}
		for _, play := range s.plays[1:] {
			began = append(began, play.began)
		}
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, began)
		assert.Equal(t, "the probe's answer", asked.WaitsFor)
		assert.Equal(t, []string{"attempt_unknown 1", "probe_answered 1", "probe_answered 1"}, s.events(),
			"repeated answers are told once")
	})
	t.Run("the probe does not know", func(t *testing.T) {
		s := newStage(t, isLost(time.Second), delivers(time.Second, 1)).
			withProbe(answers(time.Second, contract.ProbeUnknown, "")).run()
		assert.Equal(t, "charge", s.entries())
		assert.Equal(t, 2, s.result.Attempts)
		assert.Equal(t, "job/acme/j1/1", s.plays[2].meta.IdempotencyKey, "the key stays after an unknown outcome")
		assert.Equal(t, 4*time.Second, s.elapsed(), "work, probe, pause, work")
		assert.Empty(t, s.history(contract.AttributeAttention))
	})
	t.Run("the promise passes meanwhile", func(t *testing.T) {
		s := newStage(t, isLost(25*time.Second)).withProbe(answers(10*time.Second, contract.ProbeSucceeded, "1"))
		var entries string
		s.at(31*time.Second, func() { entries = s.entries() })
		s.run()
		assert.Equal(t, "charge refund", entries)
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("no probe: the next attempt after a pause", func(t *testing.T) {
		s := newStage(t, isLost(time.Second), delivers(time.Second, 1)).run()
		assert.Equal(t, "charge", s.entries())
		assert.Equal(t, 3*time.Second, s.elapsed())
		assert.Equal(t, 2, s.result.Attempts)
	})
}

func TestAProbeThatCannotAnswerLeavesTheOutcomeUnknownAndCallsAPerson(t *testing.T) {
	for name, broken := range map[string]act{
		"it errs for ten minutes":         goesWrong(10*minute, timeoutFailure(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE)),
		"it fails for good":               failsForGood(0, "no such bucket"),
		"it answers what is no answer":    delivers(0, map[string]string{"state": "maybe"}),
		"it answers in another shape":     delivers(0, []int{1}),
		"it answers nothing":              delivers(0, nil),
		"it answers with another letter":  delivers(0, map[string]string{"state": "Succeeded"}),
		"it answers without saying state": delivers(0, map[string]int{"output": 1}),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, isLost(time.Second), delivers(minute, 1)).withProbe(broken)
			s.run()
			assert.Equal(t, contract.StateSucceeded, s.result.State)
			assert.Equal(t, "job/acme/j1/1", s.plays[2].meta.IdempotencyKey)
			assert.Equal(t, []string{contract.AttentionEvidenceConflict, ""}, s.history(contract.AttributeAttention))
			assert.Len(t, s.told("probe_answered"), 1)
		})
	}
	t.Run("its tries are bounded together", func(t *testing.T) {
		s := newStage(t, isLost(time.Second), delivers(0, 1)).withProbe(answers(0, contract.ProbeUnknown, "")).run()
		options := s.plays[1].options
		assert.Equal(t, 10*minute, options.ScheduleToCloseTimeout)
		assert.Equal(t, "gpu", options.TaskQueue)
		assert.Zero(t, options.RetryPolicy.MaximumAttempts)
		assert.Equal(t, contract.WorkMeta{
			Tenant: "acme", JobID: "j1", Attempt: 1, PromiseDeadline: "2026-03-01T12:00:30Z", IdempotencyKey: "job/acme/j1/1",
		}, s.plays[1].meta)
	})
}

func TestTheLastUnknownAttemptIsLookedForBeforeTheJobIsParked(t *testing.T) {
	once := func(j *contract.Job) { j.Retry.MaxAttempts = 1 }
	t.Run("found", func(t *testing.T) {
		s := newStage(t, isLost(time.Second)).spec(once).withProbe(answers(time.Second, contract.ProbeSucceeded, "1")).run()
		assert.Equal(t, "charge", s.entries())
	})
	t.Run("not found: refunded and parked, and looked for again before a granted retry", func(t *testing.T) {
		s := newStage(t, isLost(time.Second)).spec(once).withProbe(
			answers(time.Second, contract.ProbeUnknown, ""), answers(time.Second, contract.ProbeSucceeded, "1"))
		s.at(20*time.Second, func() {
			assert.Equal(t, contract.StateDeadLetter, s.status().State)
			assert.Equal(t, "charge refund", s.entries())
			s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry))
		})
		s.run()
		assert.Equal(t, "charge refund reclaim", s.entries())
		assert.Equal(t, 1, s.result.Attempts, "no second attempt was needed")
	})
}

func TestTheIdempotencyKeyChangesAfterAFailureAndStaysAfterAnUnknownOutcome(t *testing.T) {
	s := newStage(t, isLost(0), isLost(0), fails(0, "x"), isLost(0), fails(0, "y"), delivers(0, 1)).spec(func(j *contract.Job) {
		j.Retry.MaxAttempts = 6
	}).run()
	keys := []string{}
	for _, meta := range s.metas("RenderVideo") {
		keys = append(keys, fmt.Sprintf("%d: %s", meta.Attempt, meta.IdempotencyKey))
	}
	assert.Equal(t, []string{
		"1: job/acme/j1/1", "2: job/acme/j1/1", "3: job/acme/j1/1", "4: job/acme/j1/4", "5: job/acme/j1/4", "6: job/acme/j1/6",
	}, keys)
}

func TestADeclinedJobStartsNothingAndSaysWhy(t *testing.T) {
	for _, c := range []struct {
		name    string
		balance int64
		account bool
		reason  string
	}{
		{"insufficient credit", 39, true, "account team has 39 of the 40 that the job costs"},
		{"debt", -5, true, "account team owes 5, and the job costs 40: top it up by 45 or more first"},
		{"unknown account", 0, false, "there is no account team: top it up first"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t)
			delete(s.book.balances, "team")
			if c.account {
				s.book.balances["team"] = c.balance
			}
			s.run()
			assert.Equal(t, contract.JobResult{
				JobID: "j1", State: contract.StateDeclined, Output: json.RawMessage("null"), Reason: c.reason,
			}, s.result)
			assert.Empty(t, s.plays)
			assert.Nil(t, s.row())
			assert.Equal(t, contract.MoneyDeclined, s.last(contract.AttributeMoney))
			assert.Equal(t, c.balance, s.book.balances["team"])
		})
	}
}

func TestAJobOfCostZeroGoesItsWayWithoutEntries(t *testing.T) {
	s := newStage(t, delivers(45*time.Second, 1)).spec(func(j *contract.Job) { j.Cost = 0 }).run()
	assert.Equal(t, contract.StateSucceeded, s.result.State)
	assert.True(t, s.result.Late)
	assert.Empty(t, s.entries())
}

func TestBadInputIsRefusedBeforeAnything(t *testing.T) {
	base := string(newStage(t).raw())
	edit := func(from, to string) func(*stage) {
		require.Contains(t, base, from)
		return func(s *stage) { s.input = []byte(strings.Replace(base, from, to, 1)) }
	}
	for name, spoil := range map[string]func(*stage){
		"workflow id of another job":  func(s *stage) { s.id = "job/acme/j2" },
		"workflow id of no job":       func(s *stage) { s.id = "j1" },
		"unknown field":               edit(`"cost"`, `"price":1,"cost"`),
		"repeated field":              edit(`"cost"`, `"cost":1,"cost"`),
		"other letter case":           edit(`"cost"`, `"Cost"`),
		"L47 negative cost":           edit(`"cost":40`, `"cost":-40`),
		"T46 cost beyond 2^53":        edit(`"cost":40`, `"cost":9007199254740992`),
		"L44 cost with a fraction":    edit(`"cost":40`, `"cost":40.0`),
		"reserved activity name":      edit(`"RenderVideo"`, `"/_sys/x"`),
		"queue of 201 characters":     edit(`"gpu"`, `"`+strings.Repeat("q", 201)+`"`),
		"no JSON":                     func(s *stage) { s.input = []byte(`"a text"`) },
		"work input with two members": edit(`{"scene":7}`, `{"scene":7,"scene":8}`),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			spoil(s)
			s.run()
			assert.Equal(t, contract.CodeBadInput, refusedAs(s.err), "%v", s.err)
			assert.Empty(t, s.jobs.calls)
			assert.Empty(t, s.plays)
			assert.Empty(t, s.shown)
		})
	}
}

func TestABadInputNamesTheFieldsInItsDetails(t *testing.T) {
	s := newStage(t)
	s.input = []byte(strings.Replace(string(s.raw()), `"cost":40`, `"cost":-1`, 1))
	s.run()
	failure, ok := errors.AsType[*temporal.ApplicationError](s.err)
	require.True(t, ok)
	var details contract.Error
	require.NoError(t, failure.Details(&details))
	require.Len(t, details.Fields, 1)
	assert.Equal(t, "cost", details.Fields[0].Field)
	assert.Equal(t, contract.RetryNewKey, details.Retry)
}

func TestL34OtherParametersUnderAKnownJobIDConflictAndMoveNothing(t *testing.T) {
	s := newStage(t)
	s.charged(time.Second)
	s.job.Cost = 5
	s.run()
	assert.Equal(t, contract.CodeConflict, refusedAs(s.err))
	assert.Equal(t, []string{"ChargeJob"}, s.jobs.calls)
	assert.Equal(t, "charge", s.entries())
	assert.EqualValues(t, 60, s.book.balances["team"])
	assert.Empty(t, s.shown, "a refused run shows no money that is not its own")
}

func TestAConflictingRunStillTakesTheSuccessThatWasReportedToIt(t *testing.T) {
	s := newStage(t)
	s.charged(time.Hour)
	s.book.refund(activities.RefundRequest{JobKey: s.key(), Reason: "late"})
	s.job.Cost = 5
	s.jobs.during["ChargeJob"] = func() {
		s.env.SignalWorkflowSkippingWorkflowTask(contract.OutcomeSignal,
			contract.Outcome{Attempt: 1, State: contract.OutcomeSucceeded, Source: "gpu"})
	}
	s.run()
	assert.Equal(t, contract.CodeConflict, refusedAs(s.err))
	assert.Equal(t, "charge refund reclaim", s.entries())
	assert.Empty(t, s.book.broken(s.key()))
}

func TestAConflictingRunStillCancelsTheJobThatItsIDNames(t *testing.T) {
	s := newStage(t)
	s.charged(time.Second)
	s.job.Cost = 5
	s.jobs.during["ChargeJob"] = func() { s.env.CancelWorkflow() }
	s.run()
	assert.Equal(t, contract.CodeConflict, refusedAs(s.err))
	assert.Equal(t, contract.StateCanceled, s.row().state)
	assert.Equal(t, "charge refund", s.entries())
}

func TestAConflictingRunStillCarriesOutARetryThatWasSentToIt(t *testing.T) {
	s := newStage(t, delivers(time.Second, 1)).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
	s.charged(time.Hour)
	s.book.refund(activities.RefundRequest{JobKey: s.key(), Reason: "failed", Ended: activities.EndedAttempt{
		Attempt: 1, Failed: true, Error: "x",
	}})
	s.book.park(activities.ParkRequest{JobKey: s.key(), MaxAttempts: 1, Reason: "used up"})
	s.job.Cost = 5
	s.jobs.during["ChargeJob"] = func() {
		s.env.SignalWorkflowSkippingWorkflowTask(contract.ResolveMessage, decision("r1", contract.ActionRetry))
	}
	s.run()
	assert.Equal(t, contract.CodeConflict, refusedAs(s.err))
	assert.Equal(t, contract.StateSucceeded, s.row().state)
	assert.Equal(t, "charge refund reclaim", s.entries())
}

func TestAFailureReportedWhileTheProbeSeesTheWorkRunningEndsTheAttempt(t *testing.T) {
	s := newStage(t, isLost(time.Minute), delivers(time.Second, 1)).withProbe(
		answers(time.Second, contract.ProbeRunning, ""), answers(time.Hour, contract.ProbeRunning, ""))
	s.at(2*time.Minute, func() {
		s.signal(contract.OutcomeSignal, contract.Outcome{Attempt: 1, State: contract.OutcomeFailed, Error: "crashed", Source: "gpu"})
	})
	s.run()
	assert.Equal(t, contract.StateSucceeded, s.result.State)
	assert.Equal(t, 2, s.result.Attempts)
}

func TestCancel(t *testing.T) {
	t.Run("T31 before the charge is answered: the charge is made, then refunded", func(t *testing.T) {
		s := newStage(t)
		s.jobs.during["ChargeJob"] = func() { s.env.CancelWorkflow() }
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)
		assert.Equal(t, "charge refund", s.entries())
		assert.Empty(t, s.plays)
		assert.Equal(t, "canceled and not delivered", s.result.Reason)
	})
	t.Run("the work acknowledges", func(t *testing.T) {
		s := newStage(t, hangs())
		s.at(5*time.Second, func() { s.env.CancelWorkflow() })
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)
		assert.Equal(t, "charge refund", s.entries())
		assert.True(t, s.plays[0].stopped)
		assert.Equal(t, 5*time.Second, s.elapsed())
		assert.Equal(t, []string{"cancel_requested 0", "attempt_failed 1", "closed 0"}, s.events())
	})
	t.Run("refunded at once, while the work takes its time to stop", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(goesWrong(10*time.Second, canceledFailure())))
		var status contract.JobStatus
		s.at(5*time.Second, func() { s.env.CancelWorkflow() })
		s.at(6*time.Second, func() {
			assert.Equal(t, "charge refund", s.entries())
			status = s.status()
		})
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)
		assert.Equal(t, 15*time.Second, s.elapsed())
		assert.Equal(t, "the real end of the work, which was asked to stop", status.WaitsFor)
		assert.Equal(t, contract.StateRunning, status.State)
	})
	t.Run("the work delivers after all", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(delivers(10*time.Second, "v")))
		s.at(5*time.Second, func() { s.env.CancelWorkflow() })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.True(t, s.result.Late)
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("the work fails for good when it is asked to stop", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(failsForGood(time.Second, "interrupted")))
		s.at(5*time.Second, func() { s.env.CancelWorkflow() })
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)
	})
	t.Run("the work times out: looked for before closing", func(t *testing.T) {
		lost := hangs().butWhenStopped(isLost(time.Second))
		s := newStage(t, lost).withProbe(
			answers(0, contract.ProbeRunning, ""), answers(0, contract.ProbeSucceeded, `"v"`))
		s.at(5*time.Second, func() { s.env.CancelWorkflow() })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "charge refund reclaim", s.entries())

		s = newStage(t, lost).withProbe(answers(0, contract.ProbeUnknown, ""))
		s.at(5*time.Second, func() { s.env.CancelWorkflow() })
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)

		s = newStage(t, lost)
		s.at(5*time.Second, func() { s.env.CancelWorkflow() })
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State, "without a probe")
		assert.Equal(t, 6*time.Second, s.elapsed())
	})
	t.Run("in the pause", func(t *testing.T) {
		s := newStage(t, fails(0, "x")).spec(func(j *contract.Job) {
			j.Retry.InitialBackoff = contract.Duration(minute)
			j.RefundOnFailure = new(false)
		})
		s.at(10*time.Second, func() { s.env.CancelWorkflow() })
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)
		assert.Equal(t, "charge refund", s.entries())
		assert.Equal(t, 10*time.Second, s.elapsed())
	})
	t.Run("in a dead letter", func(t *testing.T) {
		s := newStage(t, fails(0, "x")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		s.at(10*time.Second, func() { s.env.CancelWorkflow() })
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)
		assert.Equal(t, "charge refund", s.entries())
		assert.Empty(t, s.last(contract.AttributeAttention))
	})
	t.Run("after the promise, in flight", func(t *testing.T) {
		s := newStage(t, hangs())
		s.at(40*time.Second, func() { s.env.CancelWorkflow() })
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)
		assert.Equal(t, "charge refund", s.entries())
	})
	t.Run("together with the delivery: success wins, L25", func(t *testing.T) {
		s := newStage(t, delivers(5*time.Second, 1))
		s.jobs.during["SettleJob"] = func() { s.env.CancelWorkflow() }
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "charge", s.entries(), "no refund after a delivery")
	})
	t.Run("of a declined job", func(t *testing.T) {
		s := newStage(t)
		s.book.balances["team"] = 1
		s.jobs.during["ChargeJob"] = func() { s.env.CancelWorkflow() }
		s.run()
		assert.Equal(t, contract.StateDeclined, s.result.State)
	})
}

func TestTakingAJobUp(t *testing.T) {
	t.Run("without a probe: the next attempt at once", func(t *testing.T) {
		s := newStage(t, delivers(time.Second, 1))
		s.charged(10 * time.Second)
		s.run()
		assert.Equal(t, "charge", s.entries())
		assert.Equal(t, 1, s.result.Attempts)
		assert.Equal(t, "2026-03-01T12:00:20Z", s.plays[0].meta.PromiseDeadline)
	})
	t.Run("with a probe: the lost attempt is looked for first", func(t *testing.T) {
		s := newStage(t).withProbe(answers(time.Second, contract.ProbeSucceeded, `"found"`))
		s.charged(10 * time.Second)
		s.run()
		assert.Equal(t, `"found"`, string(s.result.Output))
		assert.Equal(t, 1, s.metas("FindVideo")[0].Attempt, "the attempt that may have been in flight")
		assert.Equal(t, 1, s.result.Attempts)
	})
	t.Run("the promise has that much less left", func(t *testing.T) {
		s := newStage(t, delivers(45*time.Second, 1))
		s.charged(10 * time.Second)
		s.at(19900*time.Millisecond, func() { assert.Equal(t, "charge", s.entries()) })
		s.at(20100*time.Millisecond, func() { assert.Equal(t, "charge refund", s.entries()) })
		s.run()
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("the promise has passed: refund before anything else", func(t *testing.T) {
		s := newStage(t, delivers(time.Second, 1)).withProbe(answers(time.Second, contract.ProbeUnknown, ""))
		s.charged(time.Hour)
		s.at(500*time.Millisecond, func() { assert.Equal(t, "charge refund", s.entries()) })
		s.run()
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("refunded before: no second promise", func(t *testing.T) {
		s := newStage(t, delivers(time.Hour, 1))
		s.charged(10 * time.Second)
		s.book.refund(activities.RefundRequest{JobKey: s.key(), Reason: "r",
			Ended: activities.EndedAttempt{Attempt: 1, Failed: true, Error: "e"}})
		s.run()
		assert.Equal(t, "charge refund reclaim", s.entries())
		assert.Equal(t, 0, s.jobs.count("RefundJob"))
		assert.Len(t, s.timers, 1, "the work's")
		assert.Equal(t, contract.WorkMeta{Tenant: "acme", JobID: "j1", Attempt: 2,
			PromiseDeadline: "2026-03-01T12:00:20Z", IdempotencyKey: "job/acme/j1/2"}, s.plays[0].meta)
	})
	t.Run("the last attempt ended unknown: it is the one that is looked for", func(t *testing.T) {
		s := newStage(t, delivers(0, 1)).withProbe(answers(0, contract.ProbeUnknown, ""))
		s.charged(10 * time.Second)
		s.book.record(activities.RecordRequest{JobKey: s.key(), Ended: activities.EndedAttempt{Attempt: 1, Error: "lost"}})
		s.run()
		assert.Equal(t, 1, s.metas("FindVideo")[0].Attempt)
		assert.Equal(t, "job/acme/j1/1", s.metas("RenderVideo")[0].IdempotencyKey)
		assert.Equal(t, 2, s.metas("RenderVideo")[0].Attempt)
	})
	t.Run("attempts used up, last outcome unknown: looked for, refunded, parked", func(t *testing.T) {
		s := newStage(t).withProbe(answers(0, contract.ProbeUnknown, "")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		s.charged(10 * time.Second)
		s.book.record(activities.RecordRequest{JobKey: s.key(), Ended: activities.EndedAttempt{Attempt: 1, Error: "lost"}})
		s.at(5*time.Second, func() {
			assert.Equal(t, contract.StateDeadLetter, s.status().State)
			s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
		})
		s.run()
		assert.Equal(t, "charge refund", s.entries())
	})
	t.Run("a cancel was recorded: looked for, then closed", func(t *testing.T) {
		s := newStage(t).withProbe(answers(time.Second, contract.ProbeUnknown, ""))
		s.charged(10 * time.Second)
		s.book.refund(activities.RefundRequest{JobKey: s.key(), Reason: "canceled", Cancel: true})
		s.run()
		assert.Equal(t, contract.StateCanceled, s.result.State)
		assert.Equal(t, "charge refund", s.entries())
		assert.Empty(t, s.metas("RenderVideo"))
	})
	t.Run("a dead letter: nothing runs until a person decides, and an unknown attempt is looked for before a retry",
		func(t *testing.T) {
			s := newStage(t).withProbe(answers(time.Second, contract.ProbeSucceeded, "1")).spec(func(j *contract.Job) {
				j.Retry.MaxAttempts = 1
			})
			s.charged(time.Hour)
			s.book.refund(activities.RefundRequest{JobKey: s.key(), Reason: "r",
				Ended: activities.EndedAttempt{Attempt: 1, Error: "lost"}})
			s.book.park(activities.ParkRequest{JobKey: s.key(), MaxAttempts: 1, Reason: "p"})
			s.at(minute, func() {
				assert.Empty(t, s.plays)
				assert.Equal(t, contract.AttentionDeadLetter, s.last(contract.AttributeAttention))
				s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry))
			})
			s.run()
			assert.Equal(t, "charge refund reclaim", s.entries())
			assert.Equal(t, 1, s.metas("FindVideo")[0].Attempt)
		})
	t.Run("a dead letter whose last attempt failed: a retry asks nobody", func(t *testing.T) {
		s := newStage(t, delivers(0, 1)).withProbe().spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		s.charged(time.Hour)
		s.book.refund(activities.RefundRequest{JobKey: s.key(), Reason: "r",
			Ended: activities.EndedAttempt{Attempt: 1, Failed: true, Error: "e"}})
		s.book.park(activities.ParkRequest{JobKey: s.key(), MaxAttempts: 1, Reason: "p"})
		s.at(minute, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry)) })
		s.run()
		assert.Equal(t, "job/acme/j1/2", s.metas("RenderVideo")[0].IdempotencyKey)
	})
	t.Run("T13 T28 closed succeeded: the stored result, and not a second charge", func(t *testing.T) {
		s := newStage(t)
		s.charged(time.Hour)
		s.book.settle(activities.SettleRequest{JobKey: s.key(), Attempt: 1, Output: new(`{"url":"v"}`), Reason: "delivered by attempt 1"})
		s.run()
		assert.Equal(t, contract.JobResult{
			JobID: "j1", State: contract.StateSucceeded, Money: contract.Money{Charged: cost}, Net: cost, Attempts: 1,
			Output: json.RawMessage(`{"url":"v"}`), Reason: "delivered by attempt 1",
		}, s.result)
		assert.Equal(t, []string{"ChargeJob", "ReadJobOutput"}, s.jobs.calls)
	})
	t.Run("closed canceled, then the success is reported: reclaimed", func(t *testing.T) {
		s := newStage(t)
		s.charged(time.Hour)
		s.book.refund(activities.RefundRequest{JobKey: s.key(), Reason: "canceled", Cancel: true})
		s.book.close(activities.CloseRequest{JobKey: s.key(), State: contract.StateCanceled, Reason: "canceled"})
		s.jobs.during["ChargeJob"] = func() {
			s.env.SignalWorkflowSkippingWorkflowTask(contract.OutcomeSignal,
				contract.Outcome{Attempt: 1, State: contract.OutcomeSucceeded, Output: json.RawMessage(`7`), Source: "gpu-3"})
		}
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "charge refund reclaim", s.entries())
		assert.Equal(t, "7", string(s.result.Output))
		assert.Equal(t, "delivered, as gpu-3 reported", s.result.Reason)
	})
	t.Run("closed failed: the stored answer", func(t *testing.T) {
		s := newStage(t)
		s.charged(time.Hour)
		s.book.close(activities.CloseRequest{JobKey: s.key(), State: contract.StateFailed, Reason: "no such scene"})
		s.run()
		assert.Equal(t, contract.StateFailed, s.result.State)
		assert.Equal(t, "no such scene", s.result.Reason)
		assert.Equal(t, []string{"ChargeJob"}, s.jobs.calls)
	})
	t.Run("the stored spec governs", func(t *testing.T) {
		s := newStage(t, fails(0, "x"))
		s.job.Retry.MaxAttempts = 1
		s.charged(time.Second)
		s.job.Retry.MaxAttempts, s.job.Promise = 9, contract.Duration(time.Hour)
		s.at(minute, func() {
			assert.Equal(t, contract.StateDeadLetter, s.status().State, "one attempt, as the first submission said")
			s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
		})
		s.run()
		assert.Equal(t, 1, s.jobs.count("ReadJobSpec"))
		assert.Equal(t, "2026-03-01T12:00:29Z", s.plays[0].meta.PromiseDeadline)
	})
	t.Run("a stored spec that cannot be read: the run's own", func(t *testing.T) {
		s := newStage(t, delivers(0, 1))
		s.charged(time.Second).spec = "{"
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
	})
}

func TestOutputShapes(t *testing.T) {
	payload := func(encoding string, data []byte) any {
		value, err := converter.GetDefaultDataConverter().ToPayload(1)
		require.NoError(t, err)
		value.Metadata[converter.MetadataEncoding], value.Data = []byte(encoding), data
		return value
	}
	big := strings.Repeat("x", contract.MaxOutputBytes)
	for _, c := range []struct {
		name   string
		value  any
		want   string
		stored bool
		note   string
	}{
		{"JSON as it is", json.RawMessage(`{"b":1,"a":[1.0,"<&>"]}`), `{"b":1,"a":[1.0,"<&>"]}`, true, ""},
		{"nil is null", nil, `null`, false, ""},
		{"JSON null is null", json.RawMessage("null"), `null`, false, ""},
		{"bytes", []byte("hello"), `{"encoding":"binary/plain","base64":"aGVsbG8="}`, true, ""},
		{"bytes of length zero", []byte{}, `{"encoding":"binary/plain","base64":""}`, true, ""},
		{"another encoding", payload("binary/protobuf", []byte{1, 2}), `{"encoding":"binary/protobuf","base64":"AQI="}`, true, ""},
		{"protobuf JSON is JSON", payload("json/protobuf", []byte(`{"a":1}`)), `{"a":1}`, true, ""},
		{"T41 says JSON and is not", payload("json/plain", []byte(`{`)), `{"encoding":"json/plain","base64":"ew=="}`, true, ""},
		{"JSON that is not UTF-8", payload("json/plain", []byte("\"\xff\"")), `{"encoding":"json/plain","base64":"Iv8i"}`, true, ""},
		{"as large as is kept", big[2:], `"` + big[2:] + `"`, true, ""},
		{"one byte more", big[1:], `{"omitted":true,"bytes":65537}`, true,
			"; its result of 65537 bytes is over the 65536 that are kept: return a reference to it instead"},
		{"bytes over the limit", []byte(big), `{"omitted":true,"bytes":65536}`, true,
			"; its result of 65536 bytes is over the 65536 that are kept: return a reference to it instead"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStage(t, delivers(time.Second, c.value)).run()
			assert.Equal(t, contract.StateSucceeded, s.result.State)
			if strings.HasPrefix(c.want, `{"b"`) {
				assert.JSONEq(t, c.want, string(s.result.Output))
			} else {
				assert.Equal(t, c.want, string(s.result.Output))
			}
			assert.Equal(t, "delivered by attempt 1"+c.note, s.result.Reason)
			assert.Equal(t, c.stored, s.row().output != nil)
			if c.stored {
				assert.LessOrEqual(t, len(*s.row().output), contract.MaxOutputBytes)
				assert.JSONEq(t, c.want, *s.row().output)
			}
		})
	}
}

func TestAProbesOutputThatIsNotUTF8IsKeptReadable(t *testing.T) {
	answer, err := converter.GetDefaultDataConverter().ToPayload(1)
	require.NoError(t, err)
	answer.Data = []byte("{\"state\":\"succeeded\",\"output\":\"a\xffb\"}")
	s := newStage(t, isLost(0)).withProbe(act{value: answer}).run()
	assert.Equal(t, contract.StateSucceeded, s.result.State)
	assert.Equal(t, "\"a\uFFFDb\"", *s.row().output, "Postgres would refuse it otherwise, for ever")
}

func TestAProbesOutputIsBounded(t *testing.T) {
	large := `"` + strings.Repeat("x", contract.MaxOutputBytes) + `"`
	s := newStage(t, isLost(0)).withProbe(answers(0, contract.ProbeSucceeded, large)).run()
	assert.Equal(t, `{"omitted":true,"bytes":65538}`, string(s.result.Output))
	assert.Contains(t, s.result.Reason, "as its probe found; its result of 65538 bytes")
}

// everyCall plays stories that make each money call at least once and returns the calls of each story.
func everyCall() map[string]func(*testing.T, func(*stage)) *stage {
	write := func(s *stage) {
		s.at(2*minute, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
	}
	return map[string]func(*testing.T, func(*stage)) *stage{
		"late":   func(t *testing.T, with func(*stage)) *stage { return played1(t, with, delivers(minute, "v")) },
		"failed": func(t *testing.T, with func(*stage)) *stage { return played1(t, with, failsForGood(time.Second, "x")) },
		"parked": func(t *testing.T, with func(*stage)) *stage {
			return played1(t, func(s *stage) {
				s.job.Retry.MaxAttempts = 2
				write(s)
				with(s)
			}, isLost(time.Second), fails(time.Second, "x"))
		},
		"probed": func(t *testing.T, with func(*stage)) *stage {
			return played1(t, func(s *stage) {
				s.withProbe(answers(0, contract.ProbeSucceeded, `"v"`))
				with(s)
			}, isLost(time.Second))
		},
	}
}

func played1(t *testing.T, with func(*stage), work ...act) *stage {
	s := newStage(t, work...)
	with(s)
	return s.run()
}

var moneyCalls = []string{
	"ChargeJob", "RefundJob", "SettleJob", "RecordAttempt", "ParkJob", "CloseJob", "ResolveJob", "RecordJobEvent",
}

func TestEveryMoneyCallIsTriedUntilItIsAnswered(t *testing.T) {
	unavailable := temporal.NewApplicationError("connection refused", "DatabaseUnavailable")
	tried := map[string]bool{}
	for story, play := range everyCall() {
		want := play(t, func(*stage) {})
		for _, call := range moneyCalls {
			if want.jobs.count(call) == 0 {
				continue
			}
			tried[call] = true
			t.Run(story+"/"+call+" fails four times", func(t *testing.T) {
				got := play(t, func(s *stage) {
					s.jobs.fault = func(made string, nth int) (error, error) {
						if made == call && nth <= 4 {
							return unavailable, nil
						}
						return nil, nil
					}
				})
				require.NoError(t, got.err)
				assert.Equal(t, want.result, got.result)
				assert.Equal(t, want.entries(), got.entries())
				assert.Equal(t, want.jobs.count(call)+4, got.jobs.count(call))
			})
			t.Run(story+"/T35 "+call+" commits and its reply is lost", func(t *testing.T) {
				got := play(t, func(s *stage) {
					s.jobs.fault = func(made string, nth int) (error, error) {
						if made == call && nth == 1 {
							return nil, unavailable
						}
						return nil, nil
					}
				})
				require.NoError(t, got.err)
				assert.Equal(t, want.result, got.result)
				assert.Equal(t, want.entries(), got.entries())
			})
		}
	}
	for _, call := range moneyCalls {
		assert.True(t, tried[call], "no story makes the call %s", call)
	}
}

func TestReadsAreTriedUntilTheyAreAnswered(t *testing.T) {
	for _, call := range []string{"ReadJobOutput", "ReadJobSpec"} {
		t.Run(call, func(t *testing.T) {
			s := newStage(t)
			s.charged(time.Second)
			s.book.settle(activities.SettleRequest{JobKey: s.key(), Attempt: 1, Output: new("7"), Reason: "r"})
			s.job.Summary = "other"
			s.jobs.fault = func(made string, nth int) (error, error) {
				if made == call && nth <= 3 {
					return errors.New("connection refused"), nil
				}
				return nil, nil
			}
			s.run()
			assert.Equal(t, "7", string(s.result.Output))
			assert.Equal(t, 4, s.jobs.count(call))
		})
	}
}

func TestT22ACallThatCanNeverSucceedStopsTheRunVisiblyAndMovesNothingMore(t *testing.T) {
	s := newStage(t, hangs())
	s.jobs.fault = func(call string, _ int) (error, error) {
		if call == "RefundJob" {
			return temporal.NewNonRetryableApplicationError("23514", "StatementBroken", nil), nil
		}
		return nil, nil
	}
	s.run()
	_, panicked := errors.AsType[*temporal.PanicError](s.err)
	assert.True(t, panicked, "the workflow task fails, is shown as failing, and a mended worker goes on: %v", s.err)
	assert.Equal(t, "charge", s.entries())
}

func TestSearchAttributesFollowTheMoney(t *testing.T) {
	s := newStage(t, fails(0, "1")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
	s.at(minute, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionDeliver)) })
	s.run()
	assert.Equal(t, []map[string]string{
		{contract.AttributeTenant: "acme", contract.AttributeAccount: "team", contract.AttributeMoney: contract.MoneyCharged},
		{contract.AttributeMoney: contract.MoneyRefunded},
		{contract.AttributeAttention: contract.AttentionDeadLetter},
		{contract.AttributeMoney: contract.MoneyReclaimed, contract.AttributeAttention: ""},
	}, s.shown)
}

func TestSearchAttributesThatTheStartGaveAreNotWrittenAgain(t *testing.T) {
	s := newStage(t, delivers(0, 1))
	require.NoError(t, s.env.SetTypedSearchAttributesOnStart(temporal.NewSearchAttributes(
		tenantKey.ValueSet("acme"), accountKey.ValueSet("team"), moneyKey.ValueSet(contract.MoneyCharged),
		attentionKey.ValueSet(contract.AttentionDeadLetter))))
	s.run()
	assert.Equal(t, []map[string]string{{contract.AttributeAttention: ""}}, s.shown)
}

func TestALongHistoryGoesOnInANewRunBetweenTwoAttemptsOnly(t *testing.T) {
	goesOn := func(s *stage) bool { return workflow.IsContinueAsNewError(s.err) }
	t.Run("T37 before the next attempt", func(t *testing.T) {
		s := newStage(t, fails(time.Second, "x"))
		s.at(500*time.Millisecond, func() { s.env.SetContinueAsNewSuggested(true) })
		s.run()
		require.True(t, goesOn(s))
		failure, _ := errors.AsType[*workflow.ContinueAsNewError](s.err)
		assert.Equal(t, contract.MeteredJobWorkflow, failure.WorkflowType.Name)
		assert.JSONEq(t, string(s.raw()), string(failure.Input.GetPayloads()[0].GetData()))
		assert.Equal(t, "charge refund", s.entries())
		assert.Equal(t, 2*time.Second, s.elapsed(), "the pause is over")
	})
	t.Run("before the probe is asked again", func(t *testing.T) {
		s := newStage(t, isLost(time.Second)).withProbe(answers(0, contract.ProbeRunning, ""))
		s.at(1500*time.Millisecond, func() { s.env.SetContinueAsNewSuggested(true) })
		s.run()
		assert.True(t, goesOn(s))
		assert.Equal(t, 1, s.row().attempts)
	})
	t.Run("not while work is in flight", func(t *testing.T) {
		s := newStage(t, delivers(minute, 1))
		s.at(time.Second, func() { s.env.SetContinueAsNewSuggested(true) })
		s.run()
		require.NoError(t, s.err)
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("not while a superseded attempt has not ended", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(delivers(minute, 1)), hangs())
		s.at(time.Second, func() {
			s.env.SetContinueAsNewSuggested(true)
			s.signal(contract.OutcomeSignal, contract.Outcome{State: contract.OutcomeFailed, Error: "x", Source: "gpu"})
		})
		s.run()
		require.NoError(t, s.err)
		assert.Equal(t, "delivered by attempt 1", s.result.Reason)
	})
	t.Run("not while a dead letter waits", func(t *testing.T) {
		s := newStage(t, fails(0, "x")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		s.at(minute, func() { s.env.SetContinueAsNewSuggested(true) })
		s.at(2*minute, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
		s.run()
		require.NoError(t, s.err)
	})
}

func TestTheRunsTimersCarryTheirMeaning(t *testing.T) {
	s := newStage(t, fails(time.Second, "x"), delivers(0, 1)).run()
	lengths := []time.Duration{}
	for _, after := range s.timers {
		lengths = append(lengths, after)
	}
	slices.Sort(lengths)
	assert.Equal(t, []time.Duration{time.Second, time.Second, 30 * time.Second}, lengths, "the work's, the pause, the promise")
}
