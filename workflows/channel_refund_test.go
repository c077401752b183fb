package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// refundDecision is a valid decision by ada.
func refundDecision(id string, action contract.RefundAction) contract.RefundResolution {
	d := contract.RefundResolution{ID: id, Action: action, Operator: "ada", Reason: "seen to it"}
	if action == contract.ActionSettle || action == contract.ActionRelease {
		d.Evidence, d.Amount = "the channel's dashboard", 1250
	}
	if action == contract.ActionSettle {
		d.ChannelRef = reference
	}
	return d
}

// notice is what the channel sends when something has become of the refund.
func notice(outcome contract.RefundOutcome) contract.ChannelNotice {
	return contract.ChannelNotice{ID: "evt_1", Outcome: outcome, ChannelRef: reference, Amount: 1250, Currency: "eur"}
}

// waitsForChannel keeps the refund accepted until that long after the start: its channel is not configured.
func (s *refundStage) waitsForChannel(until time.Duration) *refundStage {
	s.refunds.fault = func(call string, _ int) (error, error) {
		if call == "FollowRefund" && s.elapsed() < until {
			return temporal.NewApplicationErrorWithOptions("no channel bank", activities.ErrorChannelMissing,
				temporal.ApplicationErrorOptions{NextRetryDelay: 30 * time.Second}), nil
		}
		return nil, nil
	}
	return s
}

// unreadUntil keeps the row from being read until that long after the start.
func (s *refundStage) unreadUntil(until time.Duration) {
	s.refunds.fault = func(call string, _ int) (error, error) {
		if call == "ReadRefund" && s.elapsed() < until {
			return temporal.NewApplicationError("no answer", "DatabaseUnavailable"), nil
		}
		return nil, nil
	}
}

// breaks makes the first activity FollowRefund fail for good.
func (s *refundStage) breaks() *refundStage {
	s.fails("FollowRefund", 1, temporal.NewNonRetryableApplicationError("23514", "StatementBroken", nil))
	return s
}

var (
	accepted = contract.RefundAccepted
	unknown  = contract.RefundUnknown
	awaited  = contract.RefundPending
)

func TestARefundIsSentAcknowledgedAndConfirmed(t *testing.T) {
	s := newRefundStage(t, pending, confirmed).run()
	require.NoError(t, s.err)
	assert.Equal(t, contract.RefundSucceeded, s.result.State)
	assert.Equal(t, []contract.RefundState{accepted, awaited}, s.known())
	assert.Equal(t, []string{"submit", "look"}, s.sent())
	assert.Equal(t, firstLook, s.elapsed())
	assert.Equal(t, 1, s.refunds.count("ReadRefund"))
}

func TestTheArrowsOfARefund(t *testing.T) {
	for name, c := range map[string]struct {
		submit says
		looks  []says
		end    contract.RefundState
		known  []contract.RefundState
		sent   string
	}{
		"confirmed at once":                         {confirmed, nil, contract.RefundSucceeded, []contract.RefundState{accepted}, "submit"},
		"refused at once":                           {refused, nil, contract.RefundFailed, []contract.RefundState{accepted}, "submit"},
		"acknowledged, then failed":                 {pending, []says{refused}, contract.RefundFailed, []contract.RefundState{accepted, awaited}, "submit look"},
		"acknowledged, confirmed later":             {pending, []says{pending, noAnswer, pending, confirmed}, contract.RefundSucceeded, []contract.RefundState{accepted, awaited}, "submit look look look look"},
		"answer lost, found confirmed":              {noAnswer, []says{confirmed}, contract.RefundSucceeded, []contract.RefundState{accepted, unknown}, "submit look"},
		"answer lost, found failed":                 {noAnswer, []says{refused}, contract.RefundFailed, []contract.RefundState{accepted, unknown}, "submit look"},
		"answer lost, found pending":                {noAnswer, []says{pending, confirmed}, contract.RefundSucceeded, []contract.RefundState{accepted, unknown, awaited}, "submit look look"},
		"answer lost, look-ups lost too":            {noAnswer, []says{noAnswer, noAnswer, confirmed}, contract.RefundSucceeded, []contract.RefundState{accepted, unknown}, "submit look look look"},
		"request lost, its number is sent again":    {noAnswer, []says{notFound, confirmed}, contract.RefundSucceeded, []contract.RefundState{accepted, unknown}, "submit look submit look"},
		"the channel takes its time with an answer": {pending.takes(20 * time.Second), []says{confirmed.takes(25 * time.Second)}, contract.RefundSucceeded, []contract.RefundState{accepted, awaited}, "submit look"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, c.submit, c.looks...).run()
			require.NoError(t, s.err)
			assert.Equal(t, c.end, s.result.State)
			assert.Equal(t, c.known, s.known())
			assert.Equal(t, c.sent, strings.Join(s.sent(), " "))
		})
	}
}

func TestPollingCostsNoHistory(t *testing.T) {
	s := newRefundStage(t, noAnswer)
	s.at(45*time.Minute, func() { s.refunds.looks = []says{pending} })
	s.at(59*time.Minute, func() { s.refunds.looks = []says{confirmed} })
	s.run()
	assert.Equal(t, contract.RefundSucceeded, s.result.State)
	assert.Greater(t, s.book.row.Looks, 100)
	assert.Equal(t, []contract.RefundState{accepted, unknown, awaited}, s.known(), "one activity a state")
	assert.Greater(t, s.follows[1].attempts, 80)
	assert.Equal(t, 1, s.refunds.count("ReadRefund"))
	assert.Len(t, s.shown, 1)
}

func TestFollowingIsRetriedForEverOnTheChannelsSchedule(t *testing.T) {
	s := newRefundStage(t, pending, confirmed).run()
	for i, summary := range []string{"1250 eur (in its smallest unit) through bank, accepted", "1250 eur (in its smallest unit) through bank, pending"} {
		assert.Equal(t, contract.RefundKey{Tenant: "acme", RefundID: "rf1"}, s.follows[i].key)
		options := s.follows[i].options
		assert.Equal(t, 2*time.Minute, options.StartToCloseTimeout)
		assert.Equal(t, 15*time.Second, options.HeartbeatTimeout)
		assert.Zero(t, options.ScheduleToCloseTimeout)
		assert.Zero(t, options.ScheduleToStartTimeout)
		assert.Zero(t, options.RetryPolicy.MaximumAttempts)
		assert.EqualValues(t, 1, options.RetryPolicy.BackoffCoefficient)
		assert.Empty(t, options.RetryPolicy.NonRetryableErrorTypes)
		assert.False(t, options.WaitForCancellation, "a notice is not kept waiting")
		assert.Equal(t, summary, options.Summary)
	}
}

func TestTheActivityItselfIsRunAndRetried(t *testing.T) {
	s := newRefundStage(t, noAnswer, noAnswer, noAnswer, pending, confirmed)
	s.asActivity = true
	s.run()
	require.NoError(t, s.err)
	assert.Equal(t, contract.RefundSucceeded, s.result.State)
	assert.Equal(t, []contract.RefundState{accepted, unknown, awaited}, s.known())
	assert.Equal(t, firstLook+3*pause, s.elapsed())
}

func TestAttemptsThatFailAreRepeated(t *testing.T) {
	for name, failure := range map[string]error{
		"Postgres is away":               temporal.NewApplicationError("connection refused", "DatabaseUnavailable"),
		"the channel is not configured":  temporal.NewApplicationError("no channel bank", activities.ErrorChannelMissing),
		"an attempt panics or is killed": errors.New("boom"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, confirmed)
			s.fails("FollowRefund", 30, failure)
			s.run()
			assert.Equal(t, contract.RefundSucceeded, s.result.State)
			assert.Equal(t, 30*time.Second, s.elapsed())
			assert.Equal(t, 1, s.book.row.Sends)
			assert.Len(t, s.follows, 1)
		})
	}
	t.Run("an attempt dies after the channel took the refund on", func(t *testing.T) {
		s := newRefundStage(t, pending, confirmed)
		s.refunds.fault = func(call string, nth int) (error, error) {
			if call == "FollowRefund" && nth == 1 {
				return nil, errors.New("killed")
			}
			return nil, nil
		}
		s.run()
		assert.Equal(t, []string{"submit", "look"}, s.sent(), "it is not sent twice")
	})
}

// givenUp plays a refund whose time passes without a confirmation; decide happens a while later.
func givenUp(t *testing.T, submit says, decide func(*refundStage)) *refundStage {
	s := newRefundStage(t, submit)
	s.refunds.looks = []says{submit}
	s.at(givesUp+5*time.Minute, func() {
		assert.Equal(t, contract.AttentionRefundUnconfirmed, s.last(contract.AttributeAttention))
		assert.True(t, s.status().NeedsReview)
		assert.Len(t, s.follows, 2)
		decide(s)
	})
	return s.run()
}

func TestARefundThatIsNotConfirmedInTimeWaitsForAPerson(t *testing.T) {
	for _, by := range []string{"signal", "update"} {
		for name, c := range map[string]struct {
			submit says
			action contract.RefundAction
			then   says
			end    contract.RefundState
			took   time.Duration
			known  []contract.RefundState
			sends  int
		}{
			"settle of an unknown one":  {noAnswer, contract.ActionSettle, noAnswer, contract.RefundSucceeded, 0, []contract.RefundState{accepted, unknown}, 1},
			"settle of a pending one":   {pending, contract.ActionSettle, noAnswer, contract.RefundSucceeded, 0, []contract.RefundState{accepted, awaited}, 1},
			"release of an unknown one": {noAnswer, contract.ActionRelease, noAnswer, contract.RefundFailed, 0, []contract.RefundState{accepted, unknown}, 1},
			"release of a pending one":  {pending, contract.ActionRelease, noAnswer, contract.RefundFailed, 0, []contract.RefundState{accepted, awaited}, 1},
			"extend of an unknown one":  {noAnswer, contract.ActionExtend, confirmed, contract.RefundSucceeded, 0, []contract.RefundState{accepted, unknown, unknown}, 1},
			"extend of a pending one":   {pending, contract.ActionExtend, refused, contract.RefundFailed, 0, []contract.RefundState{accepted, awaited, awaited}, 1},
			"resend":                    {noAnswer, contract.ActionResend, confirmed, contract.RefundSucceeded, firstLook, []contract.RefundState{accepted, unknown, unknown}, 2},
		} {
			t.Run(by+"/"+name, func(t *testing.T) {
				var answer *reply
				s := givenUp(t, c.submit, func(s *refundStage) {
					s.refunds.looks = []says{c.then}
					if d := refundDecision("r1", c.action); by == "signal" {
						s.signal(contract.ResolveMessage, d)
					} else {
						answer = s.update("u1", contract.ResolveMessage, d)
					}
				})
				require.NoError(t, s.err)
				if by == "update" {
					require.NoError(t, answer.err)
					assert.Equal(t, contract.RefundResolutionAnswer{
						ID: "r1", Outcome: contract.ResolutionApplied, State: s.book.resolutions["r1"].state,
					}, answer.value)
				}
				assert.Equal(t, c.end, s.result.State)
				assert.Equal(t, c.known, s.known())
				assert.Equal(t, c.sends, s.book.row.Sends)
				assert.Equal(t, givesUp+5*time.Minute+c.took, s.elapsed().Truncate(time.Second))
				assert.Equal(t, []string{contract.AttentionRefundUnconfirmed, ""}, s.history(contract.AttributeAttention))
			})
		}
	}
	t.Run("the channel's notice comes first", func(t *testing.T) {
		s := givenUp(t, noAnswer, func(s *refundStage) {
			s.signal(contract.ChannelNoticeSignal, notice(contract.NoticePending))
			s.at(time.Minute, func() {
				assert.Equal(t, awaited, s.status().State)
				assert.Len(t, s.follows, 2, "its time for looking is over all the same")
				s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded))
			})
		})
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, []string{contract.AttentionRefundUnconfirmed, ""}, s.history(contract.AttributeAttention))
	})
	t.Run("an extended one has its time again, and again waits", func(t *testing.T) {
		s := givenUp(t, noAnswer, func(s *refundStage) {
			s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionExtend))
			s.at(59*time.Minute, func() { assert.False(t, s.status().NeedsReview) })
			s.at(70*time.Minute, func() {
				assert.True(t, s.status().NeedsReview)
				s.signal(contract.ResolveMessage, refundDecision("r2", contract.ActionRelease))
			})
		})
		assert.Equal(t, contract.RefundFailed, s.result.State)
		review := contract.AttentionRefundUnconfirmed
		assert.Equal(t, []string{review, "", review, ""}, s.history(contract.AttributeAttention))
	})
}

func TestADecisionIsTakenWhileTheRefundIsFollowed(t *testing.T) {
	t.Run("resend does not wait for the next look", func(t *testing.T) {
		s := newRefundStage(t, noAnswer, noAnswer)
		s.at(15*time.Second, func() {
			s.refunds.submits = []says{confirmed}
			s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionResend))
		})
		s.run()
		assert.Equal(t, 15*time.Second, s.elapsed())
		assert.Equal(t, 2, s.book.row.Sends)
		assert.True(t, s.follows[1].canceled)
	})
	t.Run("settle while an attempt asks the channel", func(t *testing.T) {
		s := newRefundStage(t, pending, pending.takes(20*time.Second))
		s.at(15*time.Second, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionSettle)) })
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, 15*time.Second, s.elapsed())
	})
	t.Run("the same decision twice has effect once", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		var first, again *reply
		s.at(15*time.Second, func() { first = s.update("u1", contract.ResolveMessage, refundDecision("r1", contract.ActionResend)) })
		s.at(16*time.Second, func() { again = s.update("u2", contract.ResolveMessage, refundDecision("r1", contract.ActionResend)) })
		s.at(17*time.Second, func() { s.refunds.looks = []says{confirmed} })
		s.run()
		assert.Equal(t, first.value, again.value)
		assert.Equal(t, 2, s.book.row.Sends)
	})
}

func TestCancelWithdrawsWhatWasNotSent(t *testing.T) {
	for _, by := range []string{"signal", "update"} {
		t.Run("accepted, by "+by, func(t *testing.T) {
			s := newRefundStage(t, confirmed).waitsForChannel(time.Hour)
			var answer *reply
			s.at(45*time.Second, func() {
				if d := refundDecision("r1", contract.ActionCancel); by == "signal" {
					s.signal(contract.ResolveMessage, d)
				} else {
					answer = s.update("u1", contract.ResolveMessage, d)
				}
			})
			s.run()
			assert.Equal(t, contract.RefundCanceled, s.result.State)
			assert.Empty(t, s.sent())
			assert.Equal(t, 45*time.Second, s.elapsed())
			assert.True(t, s.follows[0].canceled)
			if by == "update" {
				assert.Equal(t, contract.RefundResolutionAnswer{
					ID: "r1", Outcome: contract.ResolutionApplied, State: contract.RefundCanceled,
				}, answer.value)
			}
		})
	}
	t.Run("not what is being sent, although the run does not know of it yet", func(t *testing.T) {
		s := newRefundStage(t, confirmed.takes(20*time.Second))
		var answer *reply
		s.at(5*time.Second, func() {
			answer = s.update("u1", contract.ResolveMessage, refundDecision("r1", contract.ActionCancel))
		})
		s.at(6*time.Second, func() { assert.Equal(t, unknown, s.status().State, "the answer's row is news") })
		s.run()
		assert.Equal(t, contract.CodeBadResolution, refusedAs(answer.err))
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, 1, s.book.row.Sends)
	})
	t.Run("withdrawn elsewhere, by the job that was delivered after all", func(t *testing.T) {
		s := newRefundStage(t, confirmed).waitsForChannel(time.Minute)
		s.at(45*time.Second, func() { s.book.decide(refundDecision("", contract.ActionCancel)) })
		s.run()
		assert.Equal(t, contract.RefundCanceled, s.result.State)
		assert.Empty(t, s.sent())
	})
}

func TestABadDecisionByUpdateIsRefusedAndTheRunGoesOn(t *testing.T) {
	t.Run("it breaks the contract: rejected, so that it costs no event", func(t *testing.T) {
		s := newRefundStage(t, pending, confirmed)
		replies := []*reply{}
		noEvidence, noReference := refundDecision("r1", contract.ActionRelease), refundDecision("r1", contract.ActionSettle)
		noEvidence.Evidence, noReference.ChannelRef = "", ""
		noOperator := refundDecision("r1", contract.ActionExtend)
		noOperator.Operator = " "
		for i, payload := range []any{
			"text", nil, 7, refundDecision("r 1", contract.ActionExtend), refundDecision("r1", "explode"), noEvidence,
			noReference, noOperator, json.RawMessage(`{"id":"r1","action":"extend","operator":"a","reason":"b","more":1}`),
		} {
			s.at(time.Second, func() { replies = append(replies, s.update(fmt.Sprint("u", i), contract.ResolveMessage, payload)) })
		}
		s.run()
		for i, answer := range replies {
			assert.False(t, answer.accepted, i)
			assert.Equal(t, contract.CodeBadResolution, refusedAs(answer.err), i)
		}
		assert.Empty(t, s.refunds.resolved)
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
	})
	t.Run("it cannot be taken now", func(t *testing.T) {
		s := newRefundStage(t, pending, pending, confirmed)
		wrongAmount := refundDecision("r2", contract.ActionSettle)
		wrongAmount.Amount++
		other := refundDecision("r3", contract.ActionExtend)
		var replies []*reply
		for i, d := range []contract.RefundResolution{
			refundDecision("r1", contract.ActionCancel), wrongAmount, other, refundDecision("r3", contract.ActionRelease),
		} {
			s.at(time.Duration(i+1)*time.Second, func() {
				replies = append(replies, s.update(fmt.Sprint("u", i), contract.ResolveMessage, d))
			})
		}
		s.run()
		for _, i := range []int{0, 1, 3} {
			assert.True(t, replies[i].accepted)
			assert.Equal(t, contract.CodeBadResolution, refusedAs(replies[i].err))
		}
		assert.ErrorContains(t, replies[0].err, "cancel is not possible while the refund is pending")
		assert.ErrorContains(t, replies[1].err, "the amount is not this refund's")
		assert.ErrorContains(t, replies[3].err, "stands for another decision")
		assert.NoError(t, replies[2].err)
		assert.Len(t, s.book.resolutions, 1, "who is answered needs no record")
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
	})
	t.Run("resend of a number that the channel no longer honours", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		var answer *reply
		s.at(numberLife, func() {
			answer = s.update("u1", contract.ResolveMessage, refundDecision("r1", contract.ActionResend))
			s.signal(contract.ResolveMessage, refundDecision("r2", contract.ActionSettle))
		})
		s.run()
		assert.ErrorContains(t, answer.err, "could refund twice")
		assert.Equal(t, 1, s.book.row.Sends)
	})
	t.Run("the status goes on to say when the channel is asked", func(t *testing.T) {
		s := newRefundStage(t, pending, pending, confirmed)
		s.at(time.Second, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionCancel)) })
		s.at(2*time.Second, func() { assert.Contains(t, s.status().WaitsFor, "every 30s") })
		s.run()
	})
	t.Run("an id that was refused by signal is refused again", func(t *testing.T) {
		s := newRefundStage(t, pending, confirmed)
		var answer *reply
		s.at(time.Second, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionResend)) })
		s.at(2*time.Second, func() {
			answer = s.update("u1", contract.ResolveMessage, refundDecision("r1", contract.ActionResend))
		})
		s.run()
		assert.Equal(t, contract.CodeBadResolution, refusedAs(answer.err))
		assert.ErrorContains(t, answer.err, "resend is not possible")
	})
}

func TestABadDecisionBySignalIsRecordedAndTheRunGoesOn(t *testing.T) {
	s := newRefundStage(t, pending, pending, confirmed)
	payloads := []any{
		refundDecision("r1", contract.ActionCancel),
		"text", nil, json.RawMessage(`{"id":"no id","action":"settle"}`),
		json.RawMessage(`{"id":"r9","amount":99999999999999999999}`),
		json.RawMessage(`{"id":"r7","action":"extend","operator":"\u0000","reason":"\u0000","evidence":"\u0000"}`),
		contract.RefundResolution{
			ID: "r5", Action: contract.RefundAction(strings.Repeat("x", 5000)), Operator: strings.Repeat("o", 5000),
			Approver: strings.Repeat("a", 5000), Reason: "nul \x00", Number: strings.Repeat("n", 5000),
			ChannelRef: strings.Repeat("c", 5000), Currency: strings.Repeat("e", 5000), Amount: -3,
		},
	}
	for i, payload := range payloads {
		s.at(time.Duration(i+1)*time.Second, func() { s.signal(contract.ResolveMessage, payload) })
	}
	s.run()
	require.NoError(t, s.err)
	assert.Equal(t, contract.RefundSucceeded, s.result.State)
	assert.Len(t, s.follows, 2, "what is refused does not disturb the following")
	require.Len(t, s.refunds.resolved, len(payloads))
	for i, asked := range s.refunds.resolved {
		d := asked.Resolution
		assert.True(t, asked.RecordRefusal)
		assert.Equal(t, i > 0, asked.Invalid != "")
		assert.Equal(t, contract.ResolutionRefused, s.book.resolutions[d.ID].outcome, d.ID)
		assert.True(t, contract.ValidID(d.ID), d.ID)
		for _, text := range []string{string(d.Action), d.Number, d.ChannelRef, d.Currency} {
			assert.LessOrEqual(t, len(text), 200)
		}
		for _, text := range []string{d.Operator, d.Approver, d.Reason, d.Evidence} {
			assert.LessOrEqual(t, len(text), contract.MaxReasonBytes)
			assert.NotContains(t, text, "\x00")
		}
	}
	assert.Contains(t, s.book.resolutions["r1"].refusal, "cancel is not possible")
}

func TestANoticeIsAppliedAtOnce(t *testing.T) {
	t.Run("while following pauses", func(t *testing.T) {
		for outcome, end := range map[contract.RefundOutcome]contract.RefundState{
			contract.NoticeSucceeded: contract.RefundSucceeded, contract.NoticeFailed: contract.RefundFailed,
		} {
			s := newRefundStage(t, noAnswer)
			s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(outcome)) })
			s.run()
			assert.Equal(t, end, s.result.State)
			assert.Equal(t, 15*time.Second, s.elapsed())
			assert.Len(t, s.follows, 2)
			assert.True(t, s.follows[1].canceled)
			assert.Equal(t, []string{"submit", "look"}, s.sent())
		}
	})
	t.Run("an acknowledgement is known before the next look", func(t *testing.T) {
		s := newRefundStage(t, noAnswer, noAnswer, confirmed)
		s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticePending)) })
		s.at(16*time.Second, func() { assert.Equal(t, awaited, s.status().State) })
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, firstLook+pause, s.elapsed(), "the schedule stays")
	})
	t.Run("while the refund is being sent", func(t *testing.T) {
		s := newRefundStage(t, noAnswer.takes(20*time.Second))
		s.at(5*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded)) })
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, 5*time.Second, s.elapsed())
	})
	t.Run("while an activity's older answer is on its way", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		s.refunds.during["ApplyNotice"] = func() {
			ended := make(chan struct{})
			s.env.RegisterDelayedCallback(func() {
				stale := s.book.row
				stale.State = awaited
				s.follows[1].played.end(act{value: activities.FollowAnswer{Row: stale, GaveUp: true}})
				close(ended)
			}, 0)
			<-ended
		}
		s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded)) })
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, 15*time.Second, s.elapsed())
		assert.Empty(t, s.last(contract.AttributeAttention))
	})
	t.Run("one of a refund that was not sent is an issue and does not move it", func(t *testing.T) {
		s := newRefundStage(t, confirmed).waitsForChannel(time.Minute)
		s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded)) })
		s.at(16*time.Second, func() {
			assert.Equal(t, accepted, s.status().State)
			assert.Equal(t, contract.AttentionRefundUnconfirmed, s.last(contract.AttributeAttention))
		})
		s.run()
		assert.Equal(t, []string{"submit"}, s.sent())
	})
}

func TestAfterAnUnreadableNoticeTheRowIsRead(t *testing.T) {
	for i, payload := range []any{
		"text", nil, 7, json.RawMessage(`{}`), json.RawMessage(`{"outcome":"done"}`),
		json.RawMessage(`{"outcome":"succeeded","amount":-1}`), json.RawMessage(`{"outcome":"succeeded","more":1}`),
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			s := newRefundStage(t, noAnswer)
			s.at(12*time.Second, func() { s.signal(contract.ChannelNoticeSignal, payload) })
			s.at(15*time.Second, func() {
				assert.Equal(t, unknown, s.status().State)
				s.book.apply(channel.OutcomeSucceeded, "", reference)
				s.signal(contract.ChannelNoticeSignal, payload)
			})
			s.run()
			assert.Equal(t, contract.RefundSucceeded, s.result.State)
			assert.Equal(t, 15*time.Second, s.elapsed())
			assert.Equal(t, 3, s.refunds.count("ReadRefund"))
			assert.Zero(t, s.refunds.count("ApplyNotice"))
		})
	}
	t.Run("where that fails, following tells", func(t *testing.T) {
		s := newRefundStage(t, noAnswer, noAnswer, confirmed)
		s.refunds.fault = func(call string, nth int) (error, error) {
			if call == "ReadRefund" && nth > 1 {
				return temporal.NewNonRetryableApplicationError("23514", "StatementBroken", nil), nil
			}
			return nil, nil
		}
		s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, "text") })
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
	})
}

func TestANoticeAfterTheEndStartsARunThatAppliesItAndEnds(t *testing.T) {
	for name, c := range map[string]struct {
		was        contract.RefundState
		says       any
		reversible bool
		end        contract.RefundState
		attention  string
	}{
		"the bank took it back":                       {contract.RefundSucceeded, notice(contract.NoticeFailed), true, contract.RefundReversed, contract.AttentionEvidenceConflict},
		"it failed, says a channel that cannot do so": {contract.RefundSucceeded, notice(contract.NoticeFailed), false, contract.RefundSucceeded, contract.AttentionEvidenceConflict},
		"it succeeded, as known":                      {contract.RefundSucceeded, notice(contract.NoticeSucceeded), true, contract.RefundSucceeded, ""},
		"it is pending, which is older":               {contract.RefundSucceeded, notice(contract.NoticePending), true, contract.RefundSucceeded, ""},
		"a success after a failure":                   {contract.RefundFailed, notice(contract.NoticeSucceeded), true, contract.RefundFailed, contract.AttentionEvidenceConflict},
		"it failed, as known":                         {contract.RefundFailed, notice(contract.NoticeFailed), true, contract.RefundFailed, ""},
		"a success of one that was withdrawn":         {contract.RefundCanceled, notice(contract.NoticeSucceeded), true, contract.RefundCanceled, contract.AttentionEvidenceConflict},
		"what cannot be read":                         {contract.RefundSucceeded, "text", true, contract.RefundSucceeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, confirmed).closed(c.was)
			if c.was == contract.RefundCanceled {
				s.book.row.Sends = 0
			}
			s.book.reversible = c.reversible
			s.refunds.during["ReadRefund"] = func() {
				delete(s.refunds.during, "ReadRefund")
				s.env.SignalWorkflowSkippingWorkflowTask(contract.ChannelNoticeSignal, c.says)
			}
			s.run()
			require.NoError(t, s.err)
			assert.Equal(t, c.end, s.result.State)
			assert.Equal(t, c.attention, s.last(contract.AttributeAttention))
			assert.Empty(t, s.follows)
			assert.Zero(t, s.elapsed())
		})
	}
	t.Run("without a notice it ends with what is known", func(t *testing.T) {
		s := newRefundStage(t, confirmed).closed(contract.RefundReversed)
		s.book.row.NeedsReview = true
		s.run()
		assert.Equal(t, contract.AttentionEvidenceConflict, s.last(contract.AttributeAttention))
		assert.Equal(t, []string{"ReadRefund"}, s.refunds.calls)
	})
}

func TestARefundThatIsTakenUpGoesOnWhereItStands(t *testing.T) {
	for _, state := range []contract.RefundState{unknown, awaited} {
		s := newRefundStage(t, refused, confirmed)
		row := &s.book.row
		row.State, row.Sends, row.FirstSent, row.LookUntil = state, 1, s.start.Add(-time.Minute), s.start.Add(time.Hour)
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, []string{"look"}, s.sent(), "what was sent is looked up, not sent")
	}
}

func TestARunForARefundThatWasNeverAcceptedIsNotFound(t *testing.T) {
	s := newRefundStage(t, confirmed)
	s.book.missing = true
	s.unreadUntil(5 * time.Second)
	var answer *reply
	s.at(time.Second, func() {
		answer = s.update("u1", contract.ResolveMessage, refundDecision("r1", contract.ActionSettle))
	})
	s.run()
	assert.Equal(t, contract.CodeNotFound, refusedAs(s.err))
	assert.Equal(t, contract.CodeNotFound, refusedAs(answer.err), "whoever decides is told, not left without an answer")
	assert.Empty(t, s.follows)
	assert.Empty(t, s.shown)
}

func TestARefundsBadInputIsRefusedBeforeAnything(t *testing.T) {
	for name, c := range map[string]struct {
		id    string
		input any
		want  string
	}{
		"no input":             {"refund/acme/rf1", nil, ""},
		"a text":               {"refund/acme/rf1", "rf1", ""},
		"no tenant":            {"refund/acme/rf1", map[string]string{"refundId": "rf1"}, "tenant"},
		"a bad number":         {"refund/acme/r:1", contract.RefundKey{Tenant: "acme", RefundID: "r:1"}, "refundId"},
		"a field too many":     {"refund/acme/rf1", json.RawMessage(`{"tenant":"acme","refundId":"rf1","amount":1}`), "amount"},
		"another workflow id":  {"refund/acme/rf2", contract.RefundKey{Tenant: "acme", RefundID: "rf1"}, `must be "refund/acme/rf1"`},
		"another tenant":       {"refund/acme/rf1", contract.RefundKey{Tenant: "other", RefundID: "rf1"}, "workflow id"},
		"a job's workflow id":  {"job/acme/rf1", contract.RefundKey{Tenant: "acme", RefundID: "rf1"}, "workflow id"},
		"no workflow id's end": {"refund/acme/", contract.RefundKey{Tenant: "acme", RefundID: "rf1"}, "workflow id"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, confirmed)
			s.id, s.input = c.id, c.input
			s.run()
			assert.Equal(t, contract.CodeBadInput, refusedAs(s.err))
			assert.ErrorContains(t, s.err, c.want)
			assert.Empty(t, s.refunds.calls)
			assert.Empty(t, s.follows)
			assert.Empty(t, s.shown)
		})
	}
}

// A signal carries no signature: what only it says is looked up at the channel, whose answer counts.
func TestANoticeThatOnlyASignalKnowsIsLookedUp(t *testing.T) {
	for name, c := range map[string]struct {
		look says
		want contract.RefundState
	}{
		"the channel says so too": {confirmed, contract.RefundSucceeded},
		"the channel says no":     {refused, contract.RefundFailed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, noAnswer, noAnswer)
			s.refunds.claims = true
			s.at(15*time.Second, func() {
				s.refunds.looks = []says{c.look}
				s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded))
			})
			s.run()
			assert.Equal(t, c.want, s.result.State)
			assert.Less(t, s.elapsed(), 20*time.Second, "at once, not at the next look")
		})
	}
	t.Run("after the end", func(t *testing.T) {
		s := newRefundStage(t, noAnswer, confirmed).closed(contract.RefundSucceeded)
		s.refunds.claims = true
		s.at(0, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeFailed)) })
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Empty(t, s.history(contract.AttributeAttention))
		assert.Contains(t, s.refunds.calls, "LookUpRefund")
	})
}

// Whoever starts a run with a broken input and a message meant the refund that the id names: the message is not lost.
func TestARefundsBadInputLosesNoMessage(t *testing.T) {
	for name, input := range map[string]any{"no input": nil, "another refund's": contract.RefundKey{Tenant: "acme", RefundID: "rf2"}} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, noAnswer)
			s.input = input
			s.book.row.State, s.book.row.Sends, s.book.row.FirstSent = unknown, 1, s.start
			s.at(0, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionSettle)) })
			s.run()
			assert.Equal(t, contract.CodeBadInput, refusedAs(s.err))
			assert.Equal(t, contract.RefundSucceeded, s.book.row.State)
			assert.Equal(t, contract.ResolutionApplied, s.book.resolutions["r1"].outcome)
		})
	}
	t.Run("a refund that was never accepted", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		s.book.missing, s.input = true, nil
		s.at(0, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionSettle)) })
		s.run()
		assert.Equal(t, contract.CodeBadInput, refusedAs(s.err))
	})
}

func TestACancelOfTheRunIsNotACancelOfTheRefund(t *testing.T) {
	for name, at := range map[string]time.Duration{"at the start": 0, "while following": 15 * time.Second} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, noAnswer, noAnswer, pending, pending, confirmed)
			s.at(at, s.env.CancelWorkflow)
			var answer *reply
			s.at(50*time.Second, func() {
				answer = s.update("u1", contract.ResolveMessage, refundDecision("r1", contract.ActionExtend))
			})
			s.run()
			require.NoError(t, s.err)
			assert.Equal(t, contract.RefundSucceeded, s.result.State)
			require.NoError(t, answer.err)
			for _, f := range s.follows[:2] {
				assert.False(t, f.canceled)
			}
		})
	}
	t.Run("while a person is waited for", func(t *testing.T) {
		s := givenUp(t, noAnswer, func(s *refundStage) {
			s.env.CancelWorkflow()
			s.at(time.Hour, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionRelease)) })
		})
		assert.Equal(t, contract.RefundFailed, s.result.State)
	})
}

func TestFollowingThatFailsForGoodCallsAPerson(t *testing.T) {
	t.Run("extend goes on", func(t *testing.T) {
		s := newRefundStage(t, noAnswer, noAnswer, confirmed)
		s.refunds.fault = func(call string, _ int) (error, error) {
			if call == "FollowRefund" && s.elapsed() > 5*time.Second && s.elapsed() < time.Minute {
				return temporal.NewNonRetryableApplicationError("23514", "StatementBroken", nil), nil
			}
			return nil, nil
		}
		var waiting contract.RefundStatus
		s.at(time.Minute, func() { waiting = s.status() })
		s.at(2*time.Minute, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionExtend)) })
		s.run()
		assert.True(t, waiting.NeedsReview)
		assert.Equal(t, unknown, waiting.State)
		assert.Contains(t, waiting.WaitsFor, "a person's decision")
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, []string{contract.AttentionRefundUnconfirmed, ""}, s.history(contract.AttributeAttention))
	})
	t.Run("attention stays until a decision is taken", func(t *testing.T) {
		s := newRefundStage(t, confirmed).breaks()
		s.at(time.Minute, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionExtend)) })
		s.at(2*time.Minute, func() {
			assert.True(t, s.status().NeedsReview)
			s.signal(contract.ResolveMessage, refundDecision("r2", contract.ActionCancel))
		})
		s.run()
		assert.Equal(t, contract.ResolutionRefused, s.book.resolutions["r1"].outcome)
		assert.Equal(t, contract.RefundCanceled, s.result.State)
		assert.Equal(t, []string{contract.AttentionRefundUnconfirmed, ""}, s.history(contract.AttributeAttention))
	})
	t.Run("after it was sent, nobody is told that it was not", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		s.refunds.fault = func(call string, nth int) (error, error) {
			if call == "FollowRefund" && nth == 1 {
				return nil, temporal.NewNonRetryableApplicationError("23514", "StatementBroken", nil)
			}
			return nil, nil
		}
		s.at(time.Minute, func() {
			status := s.status()
			assert.Equal(t, unknown, status.State)
			assert.Contains(t, status.Actions, contract.ActionSettle)
			assert.True(t, status.NeedsReview)
			s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionSettle))
		})
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
	})
}

func TestStatusAnswersWhatAPersonAsksInEveryState(t *testing.T) {
	clock := func(after time.Duration) time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(after) }
	money := contract.RefundStatus{Amount: 1250, Currency: "eur", Credits: 40}
	with := func(fill func(*contract.RefundStatus)) contract.RefundStatus {
		status := money
		fill(&status)
		status.Actions = status.State.Actions()
		return status
	}
	t.Run("before its row is read", func(t *testing.T) {
		s := newRefundStage(t, confirmed)
		s.unreadUntil(5 * time.Second)
		s.at(time.Second, func() {
			assert.Equal(t, contract.RefundStatus{
				DidItHappen: "Unknown: the refund has not been read yet.", Known: "Nothing yet.", WaitsFor: "its row", Then: "it is sent",
				Actions: []contract.RefundAction{},
			}, s.status())
		})
		s.run()
	})
	t.Run("from accepted to a person's decision", func(t *testing.T) {
		s := newRefundStage(t, noAnswer.takes(2*time.Second)).waitsForChannel(time.Minute)
		looks := map[time.Duration]contract.RefundStatus{}
		for _, at := range []time.Duration{30, 61, 63, 101, 4000} {
			s.at(at*time.Second, func() { looks[at] = s.status() })
		}
		s.at(83*time.Second, func() { s.refunds.looks = []says{pending} })
		s.at(4001*time.Second, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionSettle)) })
		s.run()
		sending := with(func(r *contract.RefundStatus) {
			r.State, r.Since = accepted, clock(-time.Second)
			r.DidItHappen = "Not as far as is known: it is accepted here and on its way to the channel."
			r.Known = "The channel has not answered yet."
			r.WaitsFor, r.Then = "being sent", "the channel is asked until it has confirmed what became of it"
		})
		assert.Equal(t, map[time.Duration]contract.RefundStatus{
			30: sending,
			61: sending,
			63: with(func(r *contract.RefundStatus) {
				r.State, r.Since, r.NextLook, r.LookUntil = unknown, clock(62*time.Second), clock(70*time.Second), clock(time.Hour+time.Minute)
				r.DidItHappen = "Unknown: it was sent and not acknowledged, so the money may or may not go back."
				r.Known = "Sent once at 2026-03-01T12:01:00Z; since then: no usable answer came (timeout)."
				r.WaitsFor = "the channel's confirmation; it is asked every 30s"
				r.Then = "a person is asked, unless the channel has confirmed by then"
			}),
			101: with(func(r *contract.RefundStatus) {
				r.State, r.Since, r.NextLook, r.LookUntil = awaited, clock(100*time.Second), clock(130*time.Second), clock(time.Hour+time.Minute)
				r.DidItHappen = "Not yet: the channel has taken it on."
				r.Known = "The channel's reference is re_1. Last: the channel has taken it on."
				r.WaitsFor = "the channel's confirmation; it is asked every 30s"
				r.Then, r.ChannelRef = "a person is asked, unless the channel has confirmed by then", reference
			}),
			4000: with(func(r *contract.RefundStatus) {
				r.State, r.Since = awaited, clock(100*time.Second)
				r.NeedsReview, r.ChannelRef = true, reference
				r.DidItHappen = "Not yet: the channel has taken it on."
				r.Known = "The channel's reference is re_1. Last: the channel has taken it on."
				r.WaitsFor = "a person's decision: resolve with settle, release or extend"
				r.Then = "what the person decides; nothing happens by itself, but a report of the channel still counts"
			}),
		}, looks)
	})
	for state, words := range map[contract.RefundState][2]string{
		contract.RefundSucceeded: {"Yes: the channel confirmed it.", "The channel's reference is re_1."},
		contract.RefundFailed: {"No: the channel confirmed that no money moved and none will. The credits are back.",
			"Last: no money moved and none will."},
		contract.RefundCanceled: {"No: it was withdrawn before it was sent. The credits are back.", "Nothing was sent to the channel."},
		contract.RefundReversed: {"It did, and the bank took it back later. The credits are back.",
			"The channel's reference is re_1."},
	} {
		t.Run(string(state), func(t *testing.T) {
			s := newRefundStage(t, confirmed).closed(state)
			if s.book.row.Sends = 1; state == contract.RefundCanceled {
				s.book.row.Sends = 0
			}
			status := s.run().status()
			assert.Equal(t, with(func(r *contract.RefundStatus) {
				r.State, r.Since, r.ChannelRef = state, clock(-time.Second), reference
				r.DidItHappen, r.Known = words[0], words[1]
				r.WaitsFor, r.Then = "nothing", "nothing more: this is final"
				if state == contract.RefundSucceeded {
					r.Then = "nothing more, unless the bank takes it back"
				}
			}), status)
			assert.NotNil(t, status.Actions, "an empty list, not null")
		})
	}
}

func TestARefundsSearchAttributes(t *testing.T) {
	t.Run("are set once", func(t *testing.T) {
		s := newRefundStage(t, noAnswer, pending, confirmed).run()
		assert.Equal(t, []map[string]string{{
			contract.AttributeTenant: "acme", contract.AttributeAccount: "team", contract.AttributeOrder: "o1",
			contract.AttributeRefund: "rf1",
		}}, s.shown)
	})
	t.Run("and not at all where the start gave them", func(t *testing.T) {
		s := newRefundStage(t, noAnswer, pending, confirmed)
		require.NoError(t, s.env.SetTypedSearchAttributesOnStart(temporal.NewSearchAttributes(
			tenantKey.ValueSet("acme"), accountKey.ValueSet("team"), orderKey.ValueSet("o1"), refundKey.ValueSet("rf1"))))
		s.run()
		assert.Empty(t, s.shown)
	})
}

func TestMessagesThatArriveAtTheVeryEndAreNotLost(t *testing.T) {
	final := func(s *refundStage, during, signal string, payload any) {
		s.refunds.during[during] = func() {
			delete(s.refunds.during, during)
			s.env.SignalWorkflowSkippingWorkflowTask(signal, payload)
		}
	}
	t.Run("a decision while the last notice is applied", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		final(s, "ApplyNotice", contract.ResolveMessage, refundDecision("r1", contract.ActionRelease))
		s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded)) })
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, contract.ResolutionRefused, s.book.resolutions["r1"].outcome)
	})
	t.Run("a notice while the last decision is taken", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		final(s, "ResolveRefund", contract.ChannelNoticeSignal, notice(contract.NoticeFailed))
		s.at(15*time.Second, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionSettle)) })
		s.run()
		assert.Equal(t, contract.RefundReversed, s.result.State)
		assert.Equal(t, contract.AttentionEvidenceConflict, s.last(contract.AttributeAttention))
	})
	t.Run("a notice and a decision together with the last look", func(t *testing.T) {
		s := newRefundStage(t, pending, confirmed)
		s.at(firstLook-time.Nanosecond, func() {
			s.env.SignalWorkflowSkippingWorkflowTask(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded))
			s.env.SignalWorkflowSkippingWorkflowTask(contract.ResolveMessage, refundDecision("r1", contract.ActionRelease))
		})
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.Equal(t, 1, s.refunds.count("ApplyNotice"))
		assert.Equal(t, contract.ResolutionRefused, s.book.resolutions["r1"].outcome)
	})
	t.Run("a second notice while the first one ends the refund", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		final(s, "ApplyNotice", contract.ChannelNoticeSignal, notice(contract.NoticeFailed))
		s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded)) })
		s.run()
		assert.Equal(t, contract.RefundReversed, s.result.State)
	})
	t.Run("an update that is under way when the run would end", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		var answer *reply
		s.refunds.during["ApplyNotice"] = func() {
			sent := make(chan struct{})
			s.env.RegisterDelayedCallback(func() {
				answer = s.update("u1", contract.ResolveMessage, refundDecision("r1", contract.ActionRelease))
				close(sent)
			}, 0)
			<-sent
		}
		s.fails("ResolveRefund", 3, errors.New("no answer"))
		s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded)) })
		s.run()
		require.NotNil(t, answer)
		assert.True(t, answer.done)
		assert.Equal(t, contract.CodeBadResolution, refusedAs(answer.err))
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
	})
	t.Run("many notices around the end", func(t *testing.T) {
		s := newRefundStage(t, noAnswer)
		for i := range 50 {
			s.at(14900*time.Millisecond+time.Duration(i)*4*time.Millisecond, func() {
				outcome := contract.NoticePending
				if i == 25 {
					outcome = contract.NoticeSucceeded
				}
				s.signal(contract.ChannelNoticeSignal, notice(outcome))
			})
		}
		s.run()
		assert.Equal(t, contract.RefundSucceeded, s.result.State)
		assert.GreaterOrEqual(t, s.refunds.count("ApplyNotice"), 26)
	})
}

// refundStories make every call of the activities, the local ones among them.
func refundStories() map[string]func(*testing.T, func(*refundStage)) *refundStage {
	story := func(looks []says, messages func(*refundStage)) func(*testing.T, func(*refundStage)) *refundStage {
		return func(t *testing.T, prepare func(*refundStage)) *refundStage {
			s := newRefundStage(t, noAnswer, looks...)
			messages(s)
			prepare(s)
			return s.run()
		}
	}
	after := givesUp + 5*time.Minute
	decided := func(action contract.RefundAction) func(*refundStage) {
		return func(s *refundStage) {
			s.at(after, func() {
				if action == contract.ActionExtend {
					s.refunds.looks = []says{confirmed}
				}
				s.signal(contract.ResolveMessage, refundDecision("r1", action))
			})
			s.at(2*after, func() { s.signal(contract.ResolveMessage, refundDecision("the-end", contract.ActionSettle)) })
		}
	}
	return map[string]func(*testing.T, func(*refundStage)) *refundStage{
		"confirmed": story([]says{pending, confirmed}, func(*refundStage) {}),
		"notified": story([]says{noAnswer}, func(s *refundStage) {
			s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticeSucceeded)) })
		}),
		"settled":  story([]says{noAnswer}, decided(contract.ActionSettle)),
		"released": story([]says{noAnswer}, decided(contract.ActionRelease)),
		"extended": story([]says{noAnswer}, decided(contract.ActionExtend)),
	}
}

func TestEveryCallOfARefundIsTriedUntilItIsAnswered(t *testing.T) {
	unavailable := temporal.NewApplicationError("connection refused", "DatabaseUnavailable")
	calls, tried := []string{"ReadRefund", "FollowRefund", "ApplyNotice", "ResolveRefund"}, map[string]bool{}
	for story, play := range refundStories() {
		want := play(t, func(*refundStage) {})
		require.NoError(t, want.err)
		for _, call := range calls {
			if want.refunds.count(call) == 0 {
				continue
			}
			tried[call] = true
			t.Run(story+"/"+call+" fails four times", func(t *testing.T) {
				got := play(t, func(s *refundStage) { s.fails(call, 4, unavailable) })
				require.NoError(t, got.err)
				assert.Equal(t, want.result, got.result)
				assert.Equal(t, want.book.resolutions, got.book.resolutions)
				assert.Equal(t, want.book.row.Sends, got.book.row.Sends)
			})
			t.Run(story+"/"+call+" commits and its reply is lost", func(t *testing.T) {
				got := play(t, func(s *refundStage) {
					s.refunds.fault = func(made string, nth int) (error, error) {
						if made == call && nth == 1 {
							return nil, unavailable
						}
						return nil, nil
					}
				})
				require.NoError(t, got.err)
				assert.Equal(t, want.result, got.result)
				assert.Equal(t, want.book.resolutions, got.book.resolutions)
				assert.Equal(t, want.book.row.Sends, got.book.row.Sends)
			})
		}
	}
	for _, call := range calls {
		assert.True(t, tried[call], "no story makes the call %s", call)
	}
}

func TestACallOfARefundThatCanNeverSucceedStopsTheRunVisibly(t *testing.T) {
	for _, call := range []string{"ReadRefund", "ApplyNotice", "ResolveRefund"} {
		t.Run(call, func(t *testing.T) {
			s := newRefundStage(t, noAnswer)
			s.fails(call, 1, temporal.NewNonRetryableApplicationError("23514", "StatementBroken", nil))
			s.at(15*time.Second, func() { s.signal(contract.ChannelNoticeSignal, notice(contract.NoticePending)) })
			s.at(16*time.Second, func() { s.signal(contract.ResolveMessage, refundDecision("r1", contract.ActionExtend)) })
			s.run()
			_, panicked := errors.AsType[*temporal.PanicError](s.err)
			assert.True(t, panicked, "the workflow task fails, is shown as failing, and a mended worker goes on: %v", s.err)
		})
	}
}

func TestAnyStoryOfARefundEndsOnceAndEveryUpdateIsAnswered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		answers := rapid.Custom(func(t *rapid.T) says {
			answer := rapid.SampledFrom([]says{noAnswer, noAnswer, pending, pending, notFound, confirmed, refused}).Draw(t, "says")
			return answer.takes(time.Duration(rapid.SampledFrom([]int{0, 0, 3, 25}).Draw(t, "takes")) * time.Second)
		})
		s := newRefundStage(t, answers.Draw(t, "submit"), rapid.SliceOfN(answers, 1, 6).Draw(t, "looks")...)
		s.refunds.submits = append(s.refunds.submits, answers.Draw(t, "submit again"))
		s.book.reversible = rapid.Bool().Draw(t, "reversible")
		var replies []*reply
		for i := range rapid.IntRange(0, 6).Draw(t, "messages") {
			at := time.Duration(rapid.IntRange(0, 300).Draw(t, "at")) * 500 * time.Millisecond
			if rapid.Bool().Draw(t, "late") {
				at += givesUp
			}
			what := rapid.SampledFrom([]string{
				"succeeded", "failed", "pending", "noise", "stop", "settle", "release", "resend", "extend", "cancel", "breaks",
			}).Draw(t, "message")
			d := refundDecision(fmt.Sprint("r", rapid.IntRange(0, 4).Draw(t, "id")), contract.RefundAction(what))
			byUpdate := rapid.Bool().Draw(t, "by update")
			s.at(at, func() {
				switch what {
				case "succeeded", "failed", "pending":
					s.signal(contract.ChannelNoticeSignal, notice(contract.RefundOutcome(what)))
				case "noise":
					s.signal(contract.ChannelNoticeSignal, "noise")
					s.signal(contract.ResolveMessage, []int{7})
				case "stop":
					s.env.CancelWorkflow()
				case "breaks":
					if last := len(s.follows) - 1; last >= 0 {
						s.follows[last].played.end(failsForGood(0, "x"))
					}
				default:
					if byUpdate {
						replies = append(replies, s.update(fmt.Sprint("u", i), contract.ResolveMessage, d))
						return
					}
					s.signal(contract.ResolveMessage, d)
				}
			})
		}
		faulty := map[string]int{}
		for _, call := range []string{"ReadRefund", "FollowRefund", "ApplyNotice", "ResolveRefund"} {
			faulty[call] = rapid.IntRange(0, 6).Draw(t, call+" faults")
		}
		s.refunds.fault = func(call string, nth int) (fail, lose error) {
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
		// In the end a person settles what nobody decided, or withdraws what was not sent.
		s.at(5*time.Hour, func() { s.signal(contract.ResolveMessage, refundDecision("end-1", contract.ActionCancel)) })
		s.at(5*time.Hour, func() { s.signal(contract.ResolveMessage, refundDecision("end-2", contract.ActionSettle)) })
		s.run()
		require.NoError(t, s.err)
		for i, answer := range replies {
			assert.True(t, answer.done || !answer.accepted, "update %d was accepted and has no answer", i)
		}
		attention := ""
		if s.book.row.NeedsReview {
			attention = contract.AttentionEvidenceConflict
		}
		assert.Equal(t, attention, s.last(contract.AttributeAttention))
	})
}
