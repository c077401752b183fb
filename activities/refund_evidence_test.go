package activities_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// evidenceTable is what complete evidence does to a refund in each state: the verdict and why, and the state after it where
// that changes. Only "failed" of a succeeded refund depends on whether the channel takes refunds back.
const evidenceTable = `
accepted
  unknown    already
  pending    refused refund_never_sent
  succeeded  refused refund_never_sent
  failed     refused refund_never_sent
  not_found  already
unknown
  unknown    already
  pending    applied >pending
  succeeded  applied >succeeded
  failed     applied >failed
  not_found  already
pending
  unknown    already
  pending    already
  succeeded  applied >succeeded
  failed     applied >failed
  not_found  refused reference_lost
succeeded
  unknown    already
  pending    already
  succeeded  already
  failed     applied >reversed, final: refused failure_after_success
  not_found  refused reference_lost
failed
  unknown    already
  pending    already
  succeeded  refused success_after_failure
  failed     already
  not_found  already
canceled
  unknown    already
  pending    refused refund_never_sent
  succeeded  refused refund_never_sent
  failed     already
  not_found  already
reversed
  unknown    already
  pending    already
  succeeded  already
  failed     already
  not_found  already
`

var outcomes = []channel.Outcome{
	channel.OutcomeUnknown, channel.OutcomePending, channel.OutcomeSucceeded, channel.OutcomeFailed, channel.OutcomeNotFound,
}

func TestEvidenceInEveryStateOnceAndOnceMore(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	var table strings.Builder
	table.WriteString("\n")
	for _, state := range refundStates {
		fmt.Fprintln(&table, state)
		for _, outcome := range outcomes {
			line := ""
			for _, reversible := range []bool{true, false} {
				key := w.inState(r, orderID, state)
				before, issuesBefore := w.moneyOf(key), w.issues(tenant, key.RefundID)
				observe := func() activities.AppliedEvidence {
					applied, err := r.ApplyEvidence(t.Context(), key, activities.Observation{
						Source: activities.SourceNotice, Evidence: w.says(key, outcome), Reversible: reversible,
					})
					require.NoError(t, err)
					return applied
				}
				first := observe()
				after := w.moneyOf(key)
				told := strings.TrimSpace(string(first.Verdict) + " " + first.Why)
				if after.state != before.state {
					told += " >" + after.state
				}
				if reversible {
					line = told
				} else if told != line {
					line += ", final: " + told
				}
				assert.Equal(t, after.state, string(first.State))
				if first.Verdict != activities.Applied {
					assert.Equal(t, before, after, "%s on %s: no money moves", outcome, state)
				}
				issues := w.issues(tenant, key.RefundID)
				if first.Verdict == activities.Refused {
					assert.Equal(t, first.Why, added(issuesBefore, issues), "%s on %s opens its issue", outcome, state)
					assert.True(t, first.NeedsReview)
					assert.True(t, w.refund(key).NeedsReview)
				}
				events := w.events(key)
				again := observe()
				assert.Equal(t, after, w.moneyOf(key), "%s on %s, once more, moves nothing", outcome, state)
				assert.Equal(t, issues, w.issues(tenant, key.RefundID), "%s on %s, once more, opens nothing", outcome, state)
				assert.Equal(t, events, w.events(key), "%s on %s, once more, tells nothing", outcome, state)
				if first.Verdict == activities.Applied {
					first.Verdict = activities.Already
				}
				assert.Equal(t, first, again)
			}
			fmt.Fprintf(&table, "  %-10s %s\n", outcome, line)
		}
	}
	assert.Equal(t, evidenceTable, table.String())
	w.assertRefundsSound()
}

// flaws are what can be wrong with evidence.
var flaws = []struct {
	name  string
	spoil func(*channel.Evidence)
	// why it is refused where it says that the refund is pending, succeeded or failed: "" where it is complete all the same.
	pending, succeeded, failed string
}{
	{"C31: another amount", func(e *channel.Evidence) { e.Amount++ }, "evidence_mismatch", "evidence_mismatch", "evidence_mismatch"},
	{"C65: another number", func(e *channel.Evidence) { e.Number = "rf_other" }, "evidence_mismatch", "evidence_mismatch", "evidence_mismatch"},
	{"another reference", func(e *channel.Evidence) { e.Reference = "re-other" }, "evidence_mismatch", "evidence_mismatch", "evidence_mismatch"},
	{"C62: another payment", func(e *channel.Evidence) { e.Payment = "pay-other" }, "evidence_mismatch", "evidence_mismatch", "evidence_mismatch"},
	{"another currency", func(e *channel.Evidence) { e.Currency = "usd" }, "evidence_mismatch", "evidence_mismatch", "evidence_mismatch"},
	{"a hundredth of the amount", func(e *channel.Evidence) { e.Amount /= 10 }, "evidence_mismatch", "evidence_mismatch", "evidence_mismatch"},
	{"a negative amount", func(e *channel.Evidence) { e.Amount *= -1 }, "evidence_mismatch", "evidence_mismatch", "evidence_mismatch"},
	{"the amount's case of letters", func(e *channel.Evidence) { e.Currency = "EUR" }, "", "", ""},
	{"no number", func(e *channel.Evidence) { e.Number = "" }, "", "", ""},
	{"no payment", func(e *channel.Evidence) { e.Payment = "" }, "", "", ""},
	{"no reference, which is known", func(e *channel.Evidence) { e.Reference = "" }, "", "", ""},
	{"no amount", func(e *channel.Evidence) { e.Amount, e.Currency = 0, "" }, "", "evidence_incomplete", ""},
}

func TestEvidenceThatIsNotAboutThisRefundIsRefusedAndAnIssueOpened(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	sources := []activities.Source{
		activities.SourceCreate, activities.SourceQuery, activities.SourceNotice, activities.SourceSettlement, activities.SourcePerson,
	}
	for i, flaw := range flaws {
		for outcome, why := range map[channel.Outcome]string{
			channel.OutcomePending: flaw.pending, channel.OutcomeSucceeded: flaw.succeeded, channel.OutcomeFailed: flaw.failed,
		} {
			for n, source := range sources {
				if i > 0 && n != i%len(sources) {
					continue // the first flaw is told by every source, each other one by one of them
				}
				key := w.inState(r, orderID, contract.RefundPending)
				before := w.moneyOf(key)
				where := fmt.Sprint(flaw.name, ": ", source, " says ", outcome)
				evidence := with(w.says(key, outcome), flaw.spoil)
				applied := w.apply(r, key, source, evidence)
				assert.Equal(t, why, applied.Why, where)
				if why == "" {
					assert.NotEqual(t, activities.Refused, applied.Verdict, where)
					assert.Empty(t, w.issues(tenant, key.RefundID), where)
					continue
				}
				assert.Equal(t, activities.Refused, applied.Verdict, where)
				assert.Equal(t, before, w.moneyOf(key), where)
				assert.Equal(t, reference(key.RefundID), w.refund(key).ChannelRef, where)
				assert.Equal(t, []string{why}, w.issues(tenant, key.RefundID), where)
				assert.Equal(t, string(source)+" pending>pending "+string(outcome), w.events(key)[3], where)
				w.apply(r, key, source, evidence)
				assert.Len(t, w.issues(tenant, key.RefundID), 1, "%s: the same again opens none", where)
				// Evidence that is in order takes effect all the same.
				assert.Equal(t, activities.Applied, w.apply(r, key, source, w.says(key, channel.OutcomeSucceeded)).Verdict, where)
			}
		}
	}
	w.assertRefundsSound()
}

func TestEvidenceWithoutAReferenceSettlesNothingUntilOneIsKnown(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	for _, outcome := range []channel.Outcome{channel.OutcomePending, channel.OutcomeSucceeded} {
		key := w.inState(r, orderID, contract.RefundUnknown)
		before := w.moneyOf(key)
		nameless := with(w.says(key, outcome), func(e *channel.Evidence) { e.Reference = "" })
		assert.Equal(t, "evidence_incomplete", w.apply(r, key, activities.SourceQuery, nameless).Why, outcome)
		assert.Equal(t, before, w.moneyOf(key))
		assert.Equal(t, []string{"evidence_incomplete"}, w.issues(tenant, key.RefundID))
	}
	// A failure needs none: a channel that refused gave it no name.
	key := w.inState(r, orderID, contract.RefundUnknown)
	refused := channel.Evidence{Outcome: channel.OutcomeFailed, Code: "insufficient_funds"}
	assert.Equal(t, activities.Applied, w.apply(r, key, activities.SourceCreate, refused).Verdict)
	assert.Equal(t, []string{"payout -4", "payout_return 4"}, w.payouts(key))
	w.assertRefundsSound()
}

// C31: an issue about evidence that is refused is committed all the same, whichever amount comes first, and the refund asks
// for a person until the issue is closed.
func TestC31_TheIssueAboutAnotherAmountSurvivesItsRefusal(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	for _, amounts := range [][]int64{{10, 11}, {11, 10}, {10, 11, 10, 11}, {11, 11, 10, 10}} {
		key := w.inState(r, orderID, contract.RefundPending)
		for _, amount := range amounts {
			w.apply(r, key, activities.SourceNotice, with(w.says(key, channel.OutcomeSucceeded), func(e *channel.Evidence) { e.Amount = amount }))
		}
		refund := w.refund(key)
		assert.Equal(t, "succeeded", refund.State, amounts)
		assert.Equal(t, []string{"evidence_mismatch"}, w.issues(tenant, key.RefundID), amounts)
		assert.Equal(t, []string{"payout -4"}, w.payouts(key), amounts)
		assert.True(t, refund.NeedsReview, "%d: its issue is open", amounts)
	}
	told := w.lines(`SELECT evidence FROM reclaim.issues LIMIT 1`)[0]
	assert.Contains(t, told, "(10 eur")
	assert.Contains(t, told, "(11 eur", "it says what was known and what came")
	w.assertRefundsSound()
}

// C32: an acknowledgement that holds the channel's reference and nothing else makes the refund pending over its amount.
func TestC32_AnAcknowledgementWithAReferenceOnlyIsPending(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundUnknown)
	before := w.reserves(orderID)
	applied := w.apply(r, key, activities.SourceCreate, channel.Evidence{
		Outcome: channel.OutcomePending, Reference: reference(key.RefundID), Code: "accepted", Sends: 1,
	})
	assert.Equal(t, activities.Applied, applied.Verdict, applied.Why)
	assert.Equal(t, contract.RefundPending, applied.State)
	assert.Equal(t, reference(key.RefundID), w.refund(key).ChannelRef)
	assert.Equal(t, before, w.reserves(orderID), "the amount stays reserved")
	assert.Empty(t, w.issues(tenant, key.RefundID))
	assert.Equal(t, activities.Applied, w.apply(r, key, activities.SourceQuery, w.says(key, channel.OutcomeSucceeded)).Verdict)
	w.assertRefundsSound()
}

// C13: the webhook arrives while the call that it is about has not answered yet.
func TestC13_TheWebhookComesBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	for _, outcome := range []channel.Outcome{channel.OutcomePending, channel.OutcomeSucceeded, channel.OutcomeFailed} {
		w, b, r, orderID := newRefundWorld(t, 4)
		key := w.accepted(orderID, 10, 4)
		b.submit = func(_ context.Context, refund channel.Refund) (channel.Evidence, error) {
			answer := b.send(refund)
			assert.Equal(t, activities.Applied, w.apply(r, key, activities.SourceNotice, w.says(key, outcome)).Verdict)
			return answer, nil
		}
		answer, err := r.FollowRefund(t.Context(), activities.FollowRequest{RefundKey: key, Known: contract.RefundAccepted})
		require.NoError(t, err)
		assert.Equal(t, contract.RefundState(outcome), answer.Row.State, "the answer, which is older, changes nothing")
		assert.Equal(t, 1, b.moved[key.RefundID])
		assert.Empty(t, w.issues(tenant, key.RefundID))
		assert.Equal(t, "payout -4", w.payouts(key)[0])
		w.assertRefundsSound()
	}
}

// C14: a transaction of ours is long, and everything that is observed meanwhile waits for it.
func TestC14_WhatIsObservedDuringALongTransactionTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 8)
	key := w.inState(r, orderID, contract.RefundUnknown)
	release := w.holdRefund(key)
	var group sync.WaitGroup
	var verdicts counted
	for _, source := range []activities.Source{
		activities.SourceCreate, activities.SourceQuery, activities.SourceNotice, activities.SourceNotice, activities.SourceSettlement,
	} {
		evidence := w.says(key, channel.OutcomeSucceeded)
		group.Go(func() { verdicts.add(string(w.apply(r, key, source, evidence).Verdict), 1) })
	}
	w.waitBlocked(5)
	release()
	group.Wait()
	assert.Equal(t, map[string]int{"applied": 1, "already": 4}, verdicts.by)
	assert.Len(t, w.events(key), 3, "accepted, sent, succeeded")
	assert.Equal(t, [4]int64{0, 10, 0, 4}, w.reserves(orderID))
	w.assertRefundsSound()
}

// C16: no answer is not an error. Nothing is released before there is evidence.
func TestC16_ATimeoutReleasesNothingAndTheSuccessAfterItSettles(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundUnknown)
	before := w.moneyOf(key)
	for _, code := range []string{"deadline_exceeded", "http_502", "connection_reset"} {
		applied := w.apply(r, key, activities.SourceCreate, channel.Evidence{Outcome: channel.OutcomeUnknown, Code: code, Sends: 1})
		assert.Equal(t, activities.AppliedEvidence{Verdict: activities.Already, State: contract.RefundUnknown}, applied)
	}
	assert.Equal(t, before, w.moneyOf(key))
	assert.Len(t, w.events(key), 5, "each attempt is told")
	assert.Equal(t, activities.Applied, w.apply(r, key, activities.SourceNotice, w.says(key, channel.OutcomeSucceeded)).Verdict)
	assert.Equal(t, [4]int64{0, 10, 0, 4}, w.reserves(orderID))
	w.assertRefundsSound()
}

// C17: a success is taken back days later. Nothing of what was known is lost.
func TestC17_ALaterFailureOfASuccessIsAReversalWithAnIssue(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundSucceeded)
	succeededAt := w.refund(key).SucceededAt
	applied := w.apply(r, key, activities.SourceNotice, with(w.says(key, channel.OutcomeFailed), func(e *channel.Evidence) {
		e.Code, e.ObservedAt = "account_closed", time.Now().Add(9*24*time.Hour)
	}))
	assert.Equal(t, activities.AppliedEvidence{
		Verdict: activities.Applied, State: contract.RefundReversed, NeedsReview: true,
	}, applied)
	assert.Equal(t, []string{"payout -4", "payout_return 4"}, w.payouts(key))
	assert.Equal(t, [4]int64{}, w.reserves(orderID), "the order can be refunded again")
	assert.Equal(t, []string{"refund_reversed"}, w.issues(tenant, key.RefundID))
	refund := w.refund(key)
	assert.Equal(t, succeededAt, refund.SucceededAt, "the first fact is intact")
	assert.Equal(t, []string{
		"accept >accepted accepted", "send accepted>unknown sending", "notice unknown>pending pending",
		"notice pending>succeeded succeeded", "notice succeeded>reversed failed",
	}, w.events(key))
	assert.Equal(t, []string{"the bank took the refund back (account_closed)"},
		w.lines("SELECT reason FROM reclaim.ledger_entries WHERE type = 'payout_return'"))

	final := w.inState(r, orderID, contract.RefundSucceeded)
	before := w.moneyOf(final)
	refused, err := r.ApplyEvidence(t.Context(), final, activities.Observation{
		Source: activities.SourceNotice, Evidence: w.says(final, channel.OutcomeFailed),
	})
	require.NoError(t, err)
	assert.Equal(t, activities.AppliedEvidence{
		Verdict: activities.Refused, Why: "failure_after_success", State: contract.RefundSucceeded, NeedsReview: true,
	}, refused, "a channel that takes nothing back contradicts itself")
	assert.Equal(t, before, w.moneyOf(final))
	w.assertRefundsSound()
}

// C22: pending is not failed.
func TestC22_PendingReleasesNothing(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundUnknown)
	for range 3 {
		for _, source := range []activities.Source{activities.SourceCreate, activities.SourceQuery, activities.SourceNotice} {
			w.apply(r, key, source, w.says(key, channel.OutcomePending))
		}
	}
	assert.Equal(t, moneyOf{"pending", []string{"payout -4"}, [4]int64{10, 0, 4, 0}, 1_000_000 - 4}, w.moneyOf(key))
	w.assertRefundsSound()
}

// C23: the channel's own final word for no effect, which comes as an update only, is not counted as a refund.
func TestC23_ACanceledRefundIsNotCountedAsRefunded(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	applied := w.apply(r, key, activities.SourceNotice, with(w.says(key, channel.OutcomeFailed), func(e *channel.Evidence) { e.Code = "canceled" }))
	assert.Equal(t, contract.RefundFailed, applied.State)
	assert.Equal(t, moneyOf{"failed", []string{"payout -4", "payout_return 4"}, [4]int64{}, 1_000_000}, w.moneyOf(key))
	w.assertRefundsSound()
}

// C25: three days of processing, and a success that only a look-up tells.
func TestC25_ProcessingForDaysIsNotFinalAndAQueryAloneSettles(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	processing := with(w.says(key, channel.OutcomePending), func(e *channel.Evidence) { e.Code = "processing" })
	for range 8 {
		w.age(key, 9*time.Hour)
		applied, err := r.ApplyEvidence(t.Context(), key, activities.Observation{
			Source: activities.SourceQuery, Evidence: processing, Reversible: true, NextLook: 6 * time.Hour,
		})
		require.NoError(t, err)
		assert.Equal(t, activities.Already, applied.Verdict)
	}
	refund := w.refund(key)
	assert.EqualValues(t, 8, refund.LookCount, "each look-up is counted")
	assert.Len(t, w.events(key), 4, "and told once")
	assert.Equal(t, [4]int64{10, 0, 4, 0}, w.reserves(orderID))
	assert.Equal(t, activities.Applied, w.apply(r, key, activities.SourceQuery, w.says(key, channel.OutcomeSucceeded)).Verdict)
	assert.Equal(t, moneyOf{"succeeded", []string{"payout -4"}, [4]int64{0, 10, 0, 4}, 1_000_000 - 4}, w.moneyOf(key))
	w.assertRefundsSound()
}

// C29: the same event, delivered again and again.
func TestC29_ARedeliveryTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 8)
	for _, test := range []struct {
		from    contract.RefundState
		outcome channel.Outcome
		after   moneyOf
	}{
		{contract.RefundPending, channel.OutcomeSucceeded, moneyOf{state: "succeeded", payouts: []string{"payout -4"}}},
		{contract.RefundPending, channel.OutcomeFailed, moneyOf{state: "failed", payouts: []string{"payout -4", "payout_return 4"}}},
		{contract.RefundSucceeded, channel.OutcomeFailed, moneyOf{state: "reversed", payouts: []string{"payout -4", "payout_return 4"}}},
	} {
		for _, atOnce := range []bool{false, true} {
			key := w.inState(r, orderID, test.from)
			evidence := w.says(key, test.outcome)
			var verdicts counted
			observe := func() { verdicts.add(string(w.apply(r, key, activities.SourceNotice, evidence).Verdict), 1) }
			if atOnce {
				release := w.holdRefund(key)
				var group sync.WaitGroup
				group.Go(observe)
				group.Go(observe)
				w.waitBlocked(2)
				release()
				group.Wait()
			} else {
				observe()
				observe()
			}
			assert.Equal(t, map[string]int{"applied": 1, "already": 1}, verdicts.by)
			after := w.moneyOf(key)
			assert.Equal(t, test.after.state, after.state)
			assert.Equal(t, test.after.payouts, after.payouts)
		}
	}
	w.assertRefundsSound()
}

func TestEvidenceOfNoRefundIsAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	for _, key := range []contract.RefundKey{{Tenant: "globex", RefundID: key.RefundID}, {Tenant: tenant, RefundID: "rf_none"}} {
		_, err := r.ApplyEvidence(t.Context(), key, activities.Observation{
			Source: activities.SourceNotice, Evidence: channel.Evidence{Outcome: channel.OutcomeFailed},
		})
		requireErrorType(t, err, activities.ErrorNoRefund, false)
	}
	assert.Equal(t, "pending", w.refund(key).State, "another tenant's evidence does not reach it")
}

// What a channel says is kept, however large and whatever its bytes are.
func TestEvidenceOfAnySizeIsKeptBounded(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	huge := strings.Repeat("<h1>502</h1>é\x00\xff", 2_000)
	for _, outcome := range outcomes {
		for _, state := range refundStates {
			key := w.inState(r, orderID, state)
			applied := w.apply(r, key, activities.SourceQuery, channel.Evidence{
				Outcome: outcome, Number: huge, Reference: huge, Payment: huge, Amount: 1<<63 - 1, Currency: huge, Code: huge, Detail: huge, Sends: 3,
			})
			assert.Equal(t, "evidence_mismatch", applied.Why)
			detail := w.lines("SELECT evidence FROM reclaim.refund_events WHERE refund_id = $1 ORDER BY seq DESC LIMIT 1", key.RefundID)[0]
			assert.LessOrEqual(t, len(detail), contract.MaxReasonBytes)
			assert.True(t, strings.HasPrefix(detail, "<h1>502</h1>é"))
		}
	}
	w.assertRefundsSound()
}

func TestWhenItHappenedIsTheChannelsOwnTime(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	at := time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	w.apply(r, key, activities.SourceNotice, with(w.says(key, channel.OutcomeSucceeded), func(e *channel.Evidence) { e.ObservedAt = at }))
	rows := w.lines("SELECT observed_at::text FROM reclaim.refund_events WHERE refund_id = $1 AND observed_at = $2", key.RefundID, at)
	assert.Len(t, rows, 1)
	assert.WithinDuration(t, w.refundRead(key).Now, *w.refund(key).SucceededAt, about, "and ours is when we knew")
}

// An issue about a contradiction is in the transaction of the evidence: neither is there without the other.
func TestAnIssueIsCommittedWithItsEvidenceOrNotAtAll(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	_, err := w.admin.Exec(t.Context(), `ALTER TABLE reclaim.refund_events ADD CONSTRAINT no_more CHECK (outcome <> 'succeeded') NOT VALID`)
	require.NoError(t, err)
	wrong := with(w.says(key, channel.OutcomeSucceeded), func(e *channel.Evidence) { e.Amount++ })
	_, err = r.ApplyEvidence(t.Context(), key, activities.Observation{Source: activities.SourceNotice, Evidence: wrong})
	requireErrorType(t, err, "StatementBroken", false)
	assert.Empty(t, w.issues(tenant, key.RefundID))
	_, err = w.admin.Exec(t.Context(), "ALTER TABLE reclaim.refund_events DROP CONSTRAINT no_more")
	require.NoError(t, err)
	w.apply(r, key, activities.SourceNotice, wrong)
	assert.Equal(t, []string{"evidence_mismatch"}, w.issues(tenant, key.RefundID))
	assert.True(t, slices.Contains(w.events(key), "notice pending>pending succeeded"))
}
