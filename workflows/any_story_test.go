package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// A run is played with work, probe, messages, cancels and database faults drawn at random, is perhaps terminated and
// taken up again, and in the end a person writes off what nobody decided.
func TestAnyStoryOfARunEndsWithTheRightMoneyAndNothingForgotten(t *testing.T) {
	moment := func(t *rapid.T, name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(1, most).Draw(t, name)) * 500 * time.Millisecond
	}
	anEnd := func(t *rapid.T) act {
		after := moment(t, "after", 90)
		switch rapid.SampledFrom([]string{"delivers", "fails", "fails", "lost", "lost", "fatal", "hangs"}).Draw(t, "work") {
		case "delivers":
			return delivers(after, "v")
		case "fails":
			return fails(after, "x")
		case "lost":
			return isLost(after)
		case "fatal":
			return failsForGood(after, "x")
		default:
			return hangs()
		}
	}
	aPlay := func(t *rapid.T) act {
		a := anEnd(t)
		if !rapid.Bool().Draw(t, "stops at once") {
			for stopped := anEnd(t); ; stopped = anEnd(t) {
				if !stopped.never {
					return a.butWhenStopped(stopped)
				}
			}
		}
		return a
	}
	anAnswer := func(t *rapid.T) act {
		after := moment(t, "probe after", 20)
		switch state := rapid.SampledFrom([]string{"succeeded", "failed", "running", "unknown", "errs"}).Draw(t, "probe"); state {
		case "errs":
			return fails(after, "no bucket")
		default:
			return answers(after, contract.ProbeState(state), "")
		}
	}
	play := func(t *rapid.T, s *stage, last bool) {
		var replies []*reply
		s.improvise = func(name string) act {
			if name == "FindVideo" {
				return answers(0, contract.ProbeUnknown, "")
			}
			return isLost(time.Second)
		}
		for range 4 {
			s.work = append(s.work, aPlay(t))
		}
		if s.job.Work.Probe != "" {
			for range 4 {
				s.probe = append(s.probe, anAnswer(t))
			}
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "messages") {
			at := moment(t, "at", 200)
			switch what := rapid.SampledFrom([]string{
				"cancel", "succeeded", "failed", "failed", "retry", "retry", "deliver", "write_off", "noise", "await",
			}).Draw(t, "message"); what {
			case "cancel":
				s.at(at, s.env.CancelWorkflow)
			case "succeeded", "failed":
				report := contract.Outcome{
					Attempt: rapid.IntRange(0, 3).Draw(t, "attempt"), State: contract.OutcomeState(what), Source: "gpu",
				}
				s.at(at, func() { s.signal(contract.OutcomeSignal, report) })
			case "noise":
				s.at(at, func() { s.signal(contract.ResolveMessage, "noise") })
				s.at(at, func() { s.signal(contract.OutcomeSignal, []int{7}) })
			case "await":
				s.at(at, func() {
					replies = append(replies, s.update(fmt.Sprint("u", i), contract.AwaitChargeUpdate, json.RawMessage(s.raw())))
				})
			default:
				d := decision(fmt.Sprint("r", rapid.IntRange(0, 9).Draw(t, "id")), contract.Action(what))
				if rapid.Bool().Draw(t, "by update") {
					s.at(at, func() { replies = append(replies, s.update(fmt.Sprint("u", i), contract.ResolveMessage, d)) })
				} else {
					s.at(at, func() { s.signal(contract.ResolveMessage, d) })
				}
			}
		}
		faulty := map[string]int{}
		for _, call := range append(moneyCalls, "ReadJobOutput") {
			faulty[call] = rapid.IntRange(0, 7).Draw(t, call+" faults")
		}
		s.jobs.fault = func(call string, nth int) (fail, lose error) {
			unavailable := temporal.NewApplicationError("no answer", "DatabaseUnavailable")
			switch faulty[call] {
			case nth:
				return unavailable, nil
			case nth + 3:
				return nil, unavailable
			default:
				return nil, nil
			}
		}
		if last {
			s.at(time.Hour, func() { s.signal(contract.ResolveMessage, decision("the-end", contract.ActionWriteOff)) })
		}
		s.run()
		require.Empty(t, s.book.broken(s.key()))
		balance := s.book.balances["team"]
		for _, entry := range s.row().entries {
			balance -= entry.amount
		}
		if source := s.row().source; source != "" && source != contract.RefundCanceled {
			balance += cost
		}
		assert.EqualValues(t, 100, balance, "the credits of a refund leave the account once")
		if !last {
			return
		}
		require.NoError(t, s.err)
		for i, answer := range replies {
			assert.True(t, answer.done || !answer.accepted, "update %d was accepted and has no answer", i)
		}
		for id, kept := range s.row().resolutions {
			assert.Contains(t, []string{contract.ResolutionApplied, contract.ResolutionRefused}, kept.outcome, id)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		runs := rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "runs")
		job := newStage(t).job
		job.RefundOnFailure = new(rapid.Bool().Draw(t, "refundOnFailure"))
		job.Retry.MaxAttempts = rapid.IntRange(1, 3).Draw(t, "maxAttempts")
		if rapid.Bool().Draw(t, "has probe") {
			job.Work.Probe = "FindVideo"
		}
		if rapid.Bool().Draw(t, "to source") {
			job.RefundTo, job.OrderID = contract.RefundToSource, "o1"
		}
		var before *stage
		for run := 1; run <= runs; run++ {
			s := newStage(t)
			s.job = job
			s.book.orders["o1"] = "team"
			if before != nil {
				s.start = before.env.Now()
				s.env.SetStartTime(s.start)
				before.book.now, s.book = s.env.Now, before.book
				s.jobs.book = s.book
			}
			if run < runs {
				s.env.SetWorkflowRunTimeout(moment(t, "terminated at", 240))
			}
			play(t, s, run == runs)
			if _, timedOut := errors.AsType[*temporal.TimeoutError](s.err); !timedOut {
				require.NoError(t, s.err)
			}
			before = s
		}
	})
}
