package workflows

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// decision is a valid resolution by ada.
func decision(id string, action contract.Action) contract.Resolution {
	d := contract.Resolution{ID: id, Action: action, Operator: "ada", Reason: "seen to it"}
	if action == contract.ActionDeliver {
		d.Evidence = "the customer wrote"
	}
	return d
}

// busyUntil makes the charge fail retryably until that long after the start.
func (s *stage) busyUntil(after time.Duration) {
	s.jobs.fault = func(call string, _ int) (error, error) {
		if call == "ChargeJob" && s.elapsed() < after {
			return temporal.NewApplicationError("no answer", "DatabaseUnavailable"), nil
		}
		return nil, nil
	}
}

func TestAwaitChargeAnswersTheFirstSubmissionChargedAndLaterOnesAlready(t *testing.T) {
	s := newStage(t, delivers(20*time.Second, 1))
	var first, second, other *reply
	s.at(time.Second, func() { first = s.update("u1", contract.AwaitChargeUpdate, json.RawMessage(s.raw())) })
	s.at(2*time.Second, func() { second = s.update("u2", contract.AwaitChargeUpdate, json.RawMessage(s.raw())) })
	s.at(3*time.Second, func() {
		changed := s.job
		changed.Summary, changed.Promise, changed.Actor = "after a deploy", contract.Duration(time.Hour), "cron"
		raw, _, err := changed.Encode()
		require.NoError(t, err)
		other = s.update("u3", contract.AwaitChargeUpdate, json.RawMessage(raw))
	})
	s.run()
	assert.Equal(t, contract.ChargeVerdict{Verdict: contract.VerdictCharged, Balance: 60, Reason: "charged 40"}, first.value)
	already := contract.ChargeVerdict{
		Verdict: contract.VerdictAlready, Balance: 60, Reason: "charged before; the job is running",
	}
	assert.Equal(t, already, second.value)
	assert.Equal(t, already, other.value, "what a deploy may change is no conflict")
}

func TestAwaitChargeWaitsForASlowCharge(t *testing.T) {
	s := newStage(t, delivers(0, 1))
	s.busyUntil(time.Minute)
	var first, second *reply
	var early contract.JobStatus
	s.at(time.Second, func() {
		first = s.update("u1", contract.AwaitChargeUpdate, json.RawMessage(s.raw()))
		second = s.update("u2", contract.AwaitChargeUpdate, json.RawMessage(s.raw()))
	})
	s.at(2*time.Second, func() {
		early = s.status()
		assert.True(t, first.accepted)
		assert.False(t, first.done)
	})
	s.run()
	assert.Equal(t, contract.JobStatus{State: contract.StateCharging, WaitsFor: "the charge", Actions: []contract.Action{}}, early)
	assert.ElementsMatch(t, []contract.Verdict{contract.VerdictCharged, contract.VerdictAlready}, []contract.Verdict{
		first.value.(contract.ChargeVerdict).Verdict, second.value.(contract.ChargeVerdict).Verdict,
	}, "one of the submissions is told that it paid")
}

func TestAwaitChargeTellsADeclinedSubmissionWhy(t *testing.T) {
	s := newStage(t)
	s.book.balances["team"] = 39
	s.busyUntil(5 * time.Second)
	var answer *reply
	s.at(time.Second, func() { answer = s.update("u1", contract.AwaitChargeUpdate, json.RawMessage(s.raw())) })
	s.run()
	assert.Equal(t, contract.ChargeVerdict{
		Verdict: contract.VerdictDeclined, Balance: 39, Reason: "account team has 39 of the 40 that the job costs",
	}, answer.value)
}

func TestAwaitChargeRejectsAnotherJobUnderThisID(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*contract.Job)
		want   contract.Code
	}{
		"cost":                     {func(j *contract.Job) { j.Cost = 41 }, contract.CodeConflict},
		"account":                  {func(j *contract.Job) { j.Account = "other" }, contract.CodeConflict},
		"activity":                 {func(j *contract.Job) { j.Work.Activity = "Other" }, contract.CodeConflict},
		"queue":                    {func(j *contract.Job) { j.Work.TaskQueue = "other" }, contract.CodeConflict},
		"input":                    {func(j *contract.Job) { j.Work.Input = json.RawMessage("1") }, contract.CodeConflict},
		"order":                    {func(j *contract.Job) { j.OrderID = "o1" }, contract.CodeConflict},
		"job id":                   {func(j *contract.Job) { j.JobID = "j2" }, contract.CodeConflict},
		"tenant":                   {func(j *contract.Job) { j.Tenant = "other" }, contract.CodeConflict},
		"what breaks the contract": {func(j *contract.Job) { j.Cost = -1 }, contract.CodeBadInput},
		"a refund to no source":    {func(j *contract.Job) { j.RefundTo = contract.RefundToSource }, contract.CodeBadInput},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, delivers(5*time.Second, 1))
			other := s.job
			c.change(&other)
			raw, _, _ := other.Encode()
			var answer *reply
			s.at(time.Second, func() { answer = s.update("u1", contract.AwaitChargeUpdate, json.RawMessage(raw)) })
			s.run()
			assert.False(t, answer.accepted, "it costs no event")
			assert.Equal(t, c.want, refusedAs(answer.err), "%v", answer.err)
			assert.Equal(t, contract.StateSucceeded, s.result.State)
		})
	}
}

func TestAwaitChargeOfAConflictingRunIsAnsweredBeforeTheRunEnds(t *testing.T) {
	s := newStage(t)
	s.charged(time.Second)
	s.job.Cost = 5
	s.busyUntil(5 * time.Second)
	var answer *reply
	s.at(time.Second, func() { answer = s.update("u1", contract.AwaitChargeUpdate, json.RawMessage(s.raw())) })
	s.run()
	assert.True(t, answer.done, "T11: the answer comes before the run ends")
	assert.Equal(t, contract.CodeConflict, refusedAs(answer.err))
	assert.Equal(t, contract.CodeConflict, refusedAs(s.err))
}

func TestAwaitChargeOfATakenUpJobSaysAlready(t *testing.T) {
	s := newStage(t, delivers(5*time.Second, 1))
	s.charged(time.Second)
	var answer *reply
	s.at(time.Second, func() { answer = s.update("u1", contract.AwaitChargeUpdate, json.RawMessage(s.raw())) })
	s.run()
	assert.Equal(t, contract.VerdictAlready, answer.value.(contract.ChargeVerdict).Verdict)
}

func TestAnOutcomeReportedFromOutside(t *testing.T) {
	success := contract.Outcome{State: contract.OutcomeSucceeded, Output: json.RawMessage(`{"url":"v"}`), Source: "gpu-3"}
	failure := contract.Outcome{State: contract.OutcomeFailed, Error: "disk full", Source: "gpu-3"}
	numbered := func(o contract.Outcome, attempt int) contract.Outcome {
		o.Attempt = attempt
		return o
	}
	t.Run("success of the current attempt ends the job", func(t *testing.T) {
		for _, attempt := range []int{0, 1} {
			s := newStage(t, hangs())
			s.at(5*time.Second, func() { s.signal(contract.OutcomeSignal, numbered(success, attempt)) })
			s.run()
			assert.Equal(t, contract.StateSucceeded, s.result.State)
			assert.Equal(t, `{"url":"v"}`, string(s.result.Output))
			assert.Equal(t, "delivered, as gpu-3 reported", s.result.Reason)
			assert.Equal(t, 1, s.result.Attempts)
			assert.Equal(t, 5*time.Second, s.elapsed())
		}
	})
	t.Run("T7 success after the promise is reclaimed", func(t *testing.T) {
		s := newStage(t, hangs())
		s.at(31*time.Second, func() { s.signal(contract.OutcomeSignal, success) })
		s.run()
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("success without output or source", func(t *testing.T) {
		s := newStage(t, hangs())
		s.at(time.Second, func() { s.signal(contract.OutcomeSignal, map[string]string{"state": "succeeded"}) })
		s.run()
		assert.Equal(t, "delivered, as an unnamed source reported", s.result.Reason)
		assert.Nil(t, s.row().output)
	})
	t.Run("success of an earlier attempt delivers too", func(t *testing.T) {
		s := newStage(t, isLost(time.Second), hangs())
		s.at(5*time.Second, func() { s.signal(contract.OutcomeSignal, numbered(success, 1)) })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, 1, s.jobs.asked.settled[0].Attempt)
		assert.Equal(t, 1, s.result.Attempts, "the second never ended")
	})
	t.Run("success in a dead letter delivers", func(t *testing.T) {
		s := newStage(t, fails(0, "x")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		s.at(time.Minute, func() { s.signal(contract.OutcomeSignal, numbered(success, 1)) })
		s.run()
		assert.Equal(t, "charge refund reclaim", s.entries())
		assert.Empty(t, s.last(contract.AttributeAttention))
	})
	t.Run("success while the work is asked to stop", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(hangs()))
		s.at(time.Second, func() { s.env.CancelWorkflow() })
		s.at(5*time.Second, func() { s.signal(contract.OutcomeSignal, success) })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("failure of the current attempt ends it and the next one begins", func(t *testing.T) {
		for _, attempt := range []int{0, 1} {
			s := newStage(t, hangs(), delivers(time.Second, 1))
			s.at(5*time.Second, func() { s.signal(contract.OutcomeSignal, numbered(failure, attempt)) })
			s.run()
			assert.Equal(t, "charge refund reclaim", s.entries())
			assert.Equal(t, []string{"failed, as gpu-3 reported: disk full"}, s.told("attempt_failed"))
			assert.Equal(t, "job/acme/j1/2", s.plays[1].meta.IdempotencyKey)
			assert.True(t, s.plays[0].stopped, "what is known to have failed is asked to stop")
		}
	})
	t.Run("the attempt that was reported failed delivers after all", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(delivers(10*time.Second, "v")), hangs())
		s.at(5*time.Second, func() { s.signal(contract.OutcomeSignal, failure) })
		s.run()
		assert.Equal(t, "delivered by attempt 1", s.result.Reason)
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("an end of the attempt that was reported failed changes nothing", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(failsForGood(3*time.Second, "x")), delivers(10*time.Second, 1))
		var status contract.JobStatus
		s.at(5*time.Second, func() { s.signal(contract.OutcomeSignal, failure) })
		s.at(5500*time.Millisecond, func() { status = s.status() })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, 2, s.result.Attempts)
		assert.Equal(t, "the pause before attempt 2", status.WaitsFor)
	})
	t.Run("failure of another attempt is only recorded", func(t *testing.T) {
		s := newStage(t, delivers(10*time.Second, 1))
		s.at(5*time.Second, func() { s.signal(contract.OutcomeSignal, numbered(failure, 2)) })
		s.run()
		assert.Equal(t, "charge", s.entries())
		assert.Equal(t, []string{"outcome_recorded 2"}, s.events())
		assert.Equal(t, []string{"gpu-3 reported failed: disk full"}, s.told("outcome_recorded"))
	})
	t.Run("failure with nothing in flight is only recorded", func(t *testing.T) {
		s := newStage(t, fails(0, "x")).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		s.at(time.Minute, func() { s.signal(contract.OutcomeSignal, failure) })
		s.at(2*time.Minute, func() {
			assert.Equal(t, contract.StateDeadLetter, s.status().State)
			s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
		})
		s.run()
		assert.Equal(t, []string{"outcome_recorded 0"}, s.events()[2:])
	})
	t.Run("L2 the same report twice is told once", func(t *testing.T) {
		s := newStage(t, delivers(10*time.Second, 1))
		for range 2 {
			s.at(5*time.Second, func() { s.signal(contract.OutcomeSignal, numbered(failure, 2)) })
		}
		s.run()
		assert.Equal(t, []string{"outcome_recorded 2"}, s.events())
	})
	t.Run("T41 what cannot be read is recorded as refused, and nothing is lost or wedged", func(t *testing.T) {
		s := newStage(t, delivers(10*time.Second, 1))
		for i, payload := range []any{
			"a text", 7, nil, []byte{1, 2}, json.RawMessage(`{"state":"done"}`), json.RawMessage(`{"state":"failed","extra":1}`),
			json.RawMessage(`{"state":"failed","attempt":2147483648}`), json.RawMessage(`{"state":"failed","attempt":-1}`),
		} {
			s.at(time.Duration(i+1)*time.Second/2, func() { s.signal(contract.OutcomeSignal, payload) })
		}
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		refusals := s.told(activities.EventMessageRefused)
		assert.NotEmpty(t, refusals)
		for _, detail := range refusals {
			assert.True(t, strings.HasPrefix(detail, "outcome: BadInput: "), detail)
		}
		assert.Contains(t, refusals, `outcome: BadInput: state must be "succeeded" or "failed", not "done"`)
		assert.Equal(t, "charge", s.entries())
	})
	t.Run("a large output is left out", func(t *testing.T) {
		s := newStage(t, hangs())
		s.at(time.Second, func() {
			large := success
			large.Output = json.RawMessage(`"` + strings.Repeat("x", contract.MaxOutputBytes) + `"`)
			s.signal(contract.OutcomeSignal, large)
		})
		s.run()
		assert.Equal(t, `{"omitted":true,"bytes":65538}`, string(s.result.Output))
		assert.Contains(t, s.result.Reason, "delivered, as gpu-3 reported; its result of 65538 bytes is over")
	})
	t.Run("before the charge is answered", func(t *testing.T) {
		s := newStage(t, hangs())
		s.busyUntil(5 * time.Second)
		s.at(time.Second, func() { s.signal(contract.OutcomeSignal, numbered(success, 1)) })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State, "it is kept until the job is known")
	})
	t.Run("L22 of a declined job: nothing to reclaim", func(t *testing.T) {
		s := newStage(t)
		s.book.balances["team"] = 1
		s.busyUntil(5 * time.Second)
		s.at(time.Second, func() { s.signal(contract.OutcomeSignal, success) })
		s.run()
		assert.Equal(t, contract.StateDeclined, s.result.State)
		assert.EqualValues(t, 1, s.book.balances["team"])
	})
}

func TestResolveByUpdateAnswersAndRejects(t *testing.T) {
	once := func(j *contract.Job) { j.Retry.MaxAttempts = 1 }
	t.Run("write_off of a dead letter", func(t *testing.T) {
		s := newStage(t, fails(0, "x")).spec(once)
		var answer *reply
		s.at(time.Minute, func() {
			answer = s.update("u1", contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
		})
		s.run()
		assert.Equal(t, contract.ResolutionAnswer{
			ID: "r1", Outcome: contract.ResolutionApplied, State: contract.StateWrittenOff,
		}, answer.value)
		assert.Equal(t, contract.StateWrittenOff, s.result.State)
		assert.Equal(t, "charge refund", s.entries())
	})
	t.Run("retry of a dead letter, and the same id again is answered as the first time", func(t *testing.T) {
		s := newStage(t, fails(0, "x"), delivers(20*time.Second, 1)).spec(once)
		var first, again, other, changed *reply
		s.at(time.Minute, func() {
			first = s.update("u1", contract.ResolveMessage, decision("r1", contract.ActionRetry))
		})
		s.at(time.Minute+time.Second, func() {
			again = s.update("u2", contract.ResolveMessage, decision("r1", contract.ActionRetry))
		})
		s.at(time.Minute+2*time.Second, func() {
			other = s.update("u3", contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
			sameButReason := decision("r1", contract.ActionRetry)
			sameButReason.Reason = "another one"
			changed = s.update("u4", contract.ResolveMessage, sameButReason)
		})
		s.run()
		applied := contract.ResolutionAnswer{ID: "r1", Outcome: contract.ResolutionApplied, State: contract.StateRunning}
		assert.Equal(t, applied, first.value)
		assert.Equal(t, applied, again.value)
		assert.Equal(t, contract.CodeBadResolution, refusedAs(other.err))
		assert.Equal(t, contract.CodeBadResolution, refusedAs(changed.err))
		assert.Equal(t, 1, s.row().granted, "granted once")
		assert.Equal(t, contract.StateSucceeded, s.result.State)
	})
	t.Run("invalid: rejected, so that it costs no event and is not recorded", func(t *testing.T) {
		s := newStage(t, delivers(10*time.Second, 1))
		replies := []*reply{}
		for i, payload := range []any{
			"text", nil, contract.Resolution{ID: "r 1", Action: contract.ActionWriteOff, Operator: "ada", Reason: "r"},
			contract.Resolution{ID: "r1", Action: "explode", Operator: "ada", Reason: "r"},
			contract.Resolution{ID: "r1", Action: contract.ActionDeliver, Operator: "ada", Reason: "no evidence"},
			contract.Resolution{ID: "r1", Action: contract.ActionWriteOff, Reason: "nobody"},
			json.RawMessage(`{"id":"r1","action":"write_off","operator":"ada","reason":"r","extra":1}`),
		} {
			s.at(time.Duration(i+1)*time.Second, func() {
				replies = append(replies, s.update("", contract.ResolveMessage, payload))
			})
		}
		s.run()
		require.Len(t, replies, 7)
		for i, answer := range replies {
			assert.False(t, answer.accepted, "payload %d", i)
			assert.Equal(t, contract.CodeBadResolution, refusedAs(answer.err), "payload %d: %v", i, answer.err)
		}
		assert.Zero(t, s.jobs.count("ResolveJob"))
	})
	t.Run("in a state that does not take it: refused, saying what is possible", func(t *testing.T) {
		s := newStage(t, delivers(10*time.Second, 1))
		var answer *reply
		s.at(time.Second, func() { answer = s.update("u1", contract.ResolveMessage, decision("r1", contract.ActionRetry)) })
		s.run()
		assert.True(t, answer.done)
		assert.Equal(t, contract.CodeBadResolution, refusedAs(answer.err))
		assert.Contains(t, answer.err.Error(), "retry is not possible while the job is running")
		assert.Empty(t, s.row().resolutions, "the caller knows; nothing needs recording")
		assert.Equal(t, "charge", s.entries())
	})
	t.Run("a retry of an id that was recorded as refused", func(t *testing.T) {
		s := newStage(t, delivers(10*time.Second, 1))
		var answer *reply
		s.at(time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry)) })
		s.at(2*time.Second, func() { answer = s.update("u1", contract.ResolveMessage, decision("r1", contract.ActionRetry)) })
		s.run()
		assert.Equal(t, contract.CodeBadResolution, refusedAs(answer.err))
	})
	t.Run("before the charge is answered it waits, and a declined job takes none", func(t *testing.T) {
		s := newStage(t)
		s.book.balances["team"] = 1
		s.busyUntil(5 * time.Second)
		var answer *reply
		s.at(time.Second, func() { answer = s.update("u1", contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
		s.run()
		assert.True(t, answer.done, "T11: the run waits for its handlers")
		assert.Equal(t, contract.CodeBadResolution, refusedAs(answer.err))
		assert.Contains(t, answer.err.Error(), "never charged")
	})
	t.Run("deliver of a running job ends it at once", func(t *testing.T) {
		s := newStage(t, hangs())
		var answer *reply
		s.at(time.Second, func() { answer = s.update("u1", contract.ResolveMessage, decision("r1", contract.ActionDeliver)) })
		s.run()
		assert.Equal(t, contract.ResolutionAnswer{
			ID: "r1", Outcome: contract.ResolutionApplied, State: contract.StateSucceeded,
		}, answer.value)
		assert.Equal(t, "charge", s.entries())
		assert.Equal(t, time.Second, s.elapsed())
	})
}

func TestResolveBySignal(t *testing.T) {
	t.Run("write_off of running work that stops", func(t *testing.T) {
		s := newStage(t, hangs())
		s.at(time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
		s.run()
		assert.Equal(t, contract.StateWrittenOff, s.result.State)
		assert.Equal(t, "charge refund", s.entries())
		assert.True(t, s.plays[0].stopped)
	})
	t.Run("write_off of running work that succeeds all the same", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(delivers(5*time.Second, "v")))
		var status contract.JobStatus
		s.at(time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
		s.at(2*time.Second, func() { status = s.status() })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.True(t, s.result.Late)
		assert.Equal(t, "charge refund reclaim", s.entries())
		assert.Equal(t, contract.StateWrittenOff, status.State)
		assert.Equal(t, "the real end of the work, which was asked to stop", status.WaitsFor)
		assert.Equal(t, []contract.Action{contract.ActionDeliver}, status.Actions)
	})
	t.Run("write_off of running work that times out", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(isLost(5*time.Second)))
		s.at(time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
		s.run()
		assert.Equal(t, contract.StateWrittenOff, s.result.State)
	})
	t.Run("write_off, then deliver with evidence while the work is stopping", func(t *testing.T) {
		s := newStage(t, hangs().butWhenStopped(hangs()))
		s.at(time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
		s.at(2*time.Second, func() { s.signal(contract.ResolveMessage, decision("r2", contract.ActionDeliver)) })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("deliver while the work delivers too: the row's result counts", func(t *testing.T) {
		s := newStage(t, hangs())
		s.at(time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionDeliver)) })
		s.jobs.during["ResolveJob"] = func() {
			ended := make(chan struct{})
			s.env.RegisterDelayedCallback(func() {
				s.plays[0].end(delivers(0, "v"))
				close(ended)
			}, 0)
			<-ended
		}
		s.run()
		assert.Equal(t, 1, s.jobs.count("SettleJob"))
		assert.Equal(t, "charge", s.entries())
		assert.Equal(t, "deliver by ada", s.result.Reason)
		assert.Equal(t, "null", string(s.result.Output))
	})
	t.Run("the same decision twice has effect once", func(t *testing.T) {
		s := newStage(t, fails(0, "x"), delivers(20*time.Second, 1)).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		for i := range 3 {
			s.at(time.Minute+time.Duration(i)*time.Second, func() {
				s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry))
			})
		}
		s.run()
		assert.Equal(t, 1, s.row().granted)
		assert.Empty(t, s.told(activities.EventMessageRefused))
	})
	t.Run("in a state that does not take it: recorded as refused and told", func(t *testing.T) {
		s := newStage(t, delivers(10*time.Second, 1))
		s.at(time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry)) })
		s.run()
		assert.Equal(t, contract.ResolutionRefused, s.row().resolutions["r1"].outcome)
		assert.Empty(t, s.told(activities.EventMessageRefused), "it is told once")
	})
	t.Run("invalid: recorded as refused under its id, or under one made from it", func(t *testing.T) {
		s := newStage(t, delivers(10*time.Second, 1))
		for i, payload := range []any{
			contract.Resolution{ID: "r1", Action: contract.ActionDeliver, Operator: "ada", Reason: "no evidence"},
			"text", json.RawMessage(`{"id":"no id","action":"write_off"}`), nil,
			json.RawMessage(`{"id":"r9","attempts":99999999999999999999}`),
			json.RawMessage(`{"id":"r7","action":"write_off","operator":"\u0000","reason":"\u0000","evidence":"\u0000"}`),
			contract.Resolution{ID: "r5", Action: contract.Action(strings.Repeat("x", 5000)),
				Operator: strings.Repeat("o", 5000), Reason: "nul \x00", Attempts: -3},
		} {
			s.at(time.Duration(i+1)*time.Second, func() { s.signal(contract.ResolveMessage, payload) })
		}
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "charge", s.entries())
		assert.Contains(t, s.row().resolutions["r1"].refusal, "evidence is missing: deliver needs it")
		assert.Empty(t, s.told(activities.EventMessageRefused), "each is told once, among the resolutions")
		for _, asked := range s.jobs.asked.resolved {
			d := asked.Resolution
			assert.True(t, contract.ValidID(d.ID), d.ID)
			assert.LessOrEqual(t, len(d.Action), 200)
			assert.LessOrEqual(t, len(d.Operator), contract.MaxReasonBytes)
			assert.NotContains(t, d.Reason, "\x00")
			assert.GreaterOrEqual(t, d.Attempts, 0)
			assert.NotEmpty(t, asked.Invalid)
		}
	})
	t.Run("another content under a used id: refused and told", func(t *testing.T) {
		s := newStage(t, fails(0, "x"), delivers(20*time.Second, 1)).spec(func(j *contract.Job) { j.Retry.MaxAttempts = 1 })
		s.at(time.Minute, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionRetry)) })
		s.at(time.Minute+time.Second, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Len(t, s.told(activities.EventMessageRefused), 1)
	})
}

func TestT10MessagesThatArriveInTheFinalTaskAreNotLost(t *testing.T) {
	final := func(s *stage, during, signal string, payload any) {
		s.jobs.during[during] = func() { s.env.SignalWorkflowSkippingWorkflowTask(signal, payload) }
	}
	t.Run("a resolution while the delivery is settled", func(t *testing.T) {
		s := newStage(t, delivers(time.Second, 1))
		final(s, "SettleJob", contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, contract.ResolutionRefused, s.row().resolutions["r1"].outcome)
	})
	t.Run("a success while the job is closed as failed", func(t *testing.T) {
		s := newStage(t, failsForGood(time.Second, "x"))
		final(s, "CloseJob", contract.OutcomeSignal, contract.Outcome{Attempt: 1, State: contract.OutcomeSucceeded, Source: "gpu"})
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "charge refund reclaim", s.entries())
	})
	t.Run("a deliver while the job is closed as canceled", func(t *testing.T) {
		s := newStage(t, hangs())
		s.at(time.Second, func() { s.env.CancelWorkflow() })
		final(s, "CloseJob", contract.ResolveMessage, decision("r1", contract.ActionDeliver))
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.Equal(t, "deliver by ada", s.result.Reason)
	})
	t.Run("while the stored output is read", func(t *testing.T) {
		s := newStage(t)
		s.charged(time.Hour)
		s.book.settle(activities.SettleRequest{JobKey: s.key(), Attempt: 1, Output: new("7"), Reason: "r"})
		final(s, "ReadJobOutput", contract.ResolveMessage, decision("r1", contract.ActionWriteOff))
		s.run()
		assert.Equal(t, "7", string(s.result.Output))
		assert.Equal(t, contract.ResolutionRefused, s.row().resolutions["r1"].outcome)
		assert.Equal(t, 1, s.jobs.count("ReadJobOutput"), "a delivered output never changes")
	})
	t.Run("T11 an update that is under way when the run would end", func(t *testing.T) {
		s := newStage(t, failsForGood(time.Second, "x"))
		var answer *reply
		s.jobs.during["CloseJob"] = func() {
			sent := make(chan struct{})
			s.env.RegisterDelayedCallback(func() {
				answer = s.update("u1", contract.ResolveMessage, decision("r1", contract.ActionDeliver))
				close(sent)
			}, 0)
			<-sent
		}
		s.jobs.fault = func(call string, nth int) (error, error) {
			if call == "ResolveJob" && nth <= 3 {
				return errors.New("no answer"), nil
			}
			return nil, nil
		}
		s.run()
		require.NotNil(t, answer)
		assert.True(t, answer.done)
		assert.NoError(t, answer.err)
		assert.Equal(t, contract.StateSucceeded, s.result.State)
	})
	t.Run("T8 many signals around the end", func(t *testing.T) {
		s := newStage(t, delivers(5*time.Second, 1))
		for i := range 50 {
			s.at(4900*time.Millisecond+time.Duration(i)*4*time.Millisecond, func() {
				s.signal(contract.OutcomeSignal, contract.Outcome{Attempt: 9, State: contract.OutcomeFailed, Source: string(rune('a' + i))})
			})
		}
		s.run()
		assert.Equal(t, contract.StateSucceeded, s.result.State)
		assert.GreaterOrEqual(t, len(s.told(activities.EventOutcomeRecorded)), 25)
	})
}

func TestStatusInEachState(t *testing.T) {
	s := newStage(t, fails(time.Second, "1"), isLost(time.Second)).spec(func(j *contract.Job) {
		j.Retry.MaxAttempts = 2
	}).withProbe(answers(time.Second, contract.ProbeUnknown, ""))
	looks := map[time.Duration]contract.JobStatus{}
	for _, at := range []time.Duration{500, 1500, 2500, 3500, 5000} {
		s.at(at*time.Millisecond, func() { looks[at] = s.status() })
	}
	s.at(time.Minute, func() { s.signal(contract.ResolveMessage, decision("r1", contract.ActionWriteOff)) })
	s.run()
	open := []contract.Action{contract.ActionDeliver, contract.ActionWriteOff}
	refunded := contract.Money{Charged: cost, Refunded: cost}
	assert.Equal(t, map[time.Duration]contract.JobStatus{
		500: {State: contract.StateRunning, Money: contract.Money{Charged: cost}, Attempt: 1,
			WaitsFor: "attempt 1, promised by 2026-03-01T12:00:30Z", Actions: open},
		1500: {State: contract.StateRunning, Money: refunded, Attempt: 1,
			WaitsFor: "the pause before attempt 2", Actions: open},
		2500: {State: contract.StateRunning, Money: refunded, Attempt: 2,
			WaitsFor: "late success of attempt 2 (the customer is refunded)", Actions: open},
		3500: {State: contract.StateRunning, Money: refunded, Attempt: 2, WaitsFor: "the probe's answer", Actions: open},
		5000: {State: contract.StateDeadLetter, Money: refunded, Attempt: 2,
			WaitsFor: "a person's decision: resolve with retry, deliver or write_off",
			Actions:  []contract.Action{contract.ActionRetry, contract.ActionDeliver, contract.ActionWriteOff}},
	}, looks)
	assert.Equal(t, contract.JobStatus{
		State: contract.StateWrittenOff, Money: refunded, Attempt: 2, WaitsFor: "nothing",
		Actions: []contract.Action{contract.ActionDeliver},
	}, s.status(), "after the end")
}

func TestStatusAfterEachEnd(t *testing.T) {
	for _, c := range []struct {
		state contract.JobState
		play  func() *stage
	}{
		{contract.StateSucceeded, func() *stage { return newStage(t, delivers(0, 1)) }},
		{contract.StateFailed, func() *stage { return newStage(t, failsForGood(0, "x")) }},
		{contract.StateDeclined, func() *stage {
			s := newStage(t)
			s.book.balances["team"] = 0
			return s
		}},
		{contract.StateCanceled, func() *stage {
			s := newStage(t, hangs())
			s.at(time.Second, func() { s.env.CancelWorkflow() })
			return s
		}},
	} {
		status := c.play().run().status()
		assert.Equal(t, c.state, status.State)
		assert.Equal(t, "nothing", status.WaitsFor)
		assert.Equal(t, c.state.Actions(), status.Actions)
		assert.NotNil(t, status.Actions, "an empty list, not null")
	}
}
