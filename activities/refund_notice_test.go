package activities_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// noticeOf makes the bank's webhooks say this.
func (b *bank) noticeOf(e channel.Evidence) {
	b.parse = func(http.Header, []byte, time.Time) (channel.Notice, error) {
		return channel.Notice{ID: "evt_1", Type: "refund.updated", Evidence: &e}, nil
	}
}

func (w *world) take(r *activities.Refunds) activities.TakenNotice {
	w.t.Helper()
	taken, err := r.TakeNotice(w.t.Context(), bankName, http.Header{}, []byte(`{}`), time.Now())
	require.NoError(w.t, err)
	return taken
}

func TestC28_AnAcknowledgedNoticeIsCommitted(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	for _, outcome := range []channel.Outcome{channel.OutcomePending, channel.OutcomeSucceeded, channel.OutcomeFailed} {
		key := w.inState(r, orderID, contract.RefundUnknown)
		says := w.says(key, outcome)
		says.ObservedAt = time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
		b.noticeOf(says)
		taken := w.take(r)
		assert.Equal(t, activities.TakenNotice{
			Refund: key,
			Notice: contract.ChannelNotice{
				ID: "evt_1", Outcome: contract.RefundOutcome(outcome), Number: key.RefundID, ChannelRef: reference(key.RefundID),
				Payment: payment(orderID), Amount: 10, Currency: "eur", Code: string(outcome), ObservedAt: says.ObservedAt,
			},
			Applied: activities.AppliedEvidence{Verdict: activities.Applied, State: contract.RefundState(outcome)},
		}, taken)
		assert.Equal(t, string(outcome), w.refund(key).State)
		// The signal that follows finds it done.
		row, err := r.ApplyNotice(t.Context(), activities.NoticeRequest{RefundKey: key, Notice: taken.Notice})
		require.NoError(t, err)
		assert.Equal(t, contract.RefundState(outcome), row.State)
		assert.Len(t, w.events(key), 3)
		assert.Equal(t, activities.Already, w.take(r).Applied.Verdict, "C29: and so does its next delivery")
	}
	w.assertRefundsSound()
}

func TestANoticeWithoutANumberIsFoundByItsReference(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	other := w.inState(r, orderID, contract.RefundPending)
	b.noticeOf(with(w.says(key, channel.OutcomeSucceeded), func(e *channel.Evidence) { e.Number = "" }))
	assert.Equal(t, key, w.take(r).Refund)
	assert.Equal(t, "succeeded", w.refund(key).State)
	assert.Equal(t, "pending", w.refund(other).State)
	w.assertRefundsSound()
}

// A channel may have two names for a payment, and a refund that was made elsewhere does not say by which it is known here.
func TestANoticeIsFoundByThePaymentsOtherName(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	swapped := func(e *channel.Evidence) {
		e.Number, e.PaymentAlias, e.Payment = "", e.Payment, "another name"
	}
	b.noticeOf(with(w.says(key, channel.OutcomeSucceeded), swapped))
	assert.Equal(t, key, w.take(r).Refund)
	assert.Equal(t, "succeeded", w.refund(key).State)
	assert.Empty(t, w.issues(tenant, key.RefundID))

	b.noticeOf(with(w.says(key, channel.OutcomeSucceeded), func(e *channel.Evidence) {
		swapped(e)
		e.Reference = "re-dashboard"
	}))
	w.take(r)
	assert.Len(t, w.issues(tenant, bankName), 1, "it is our order's, not nobody's")
	w.assertRefundsSound()
}

// What is verified and about no refund that is known here is kept as an issue: money may have moved without us.
func TestC61_ANoticeAboutAnUnknownRefundOpensAnIssue(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundUnknown)
	elsewhere := w.order(account, 100, 100)
	_, err := w.admin.Exec(t.Context(), "UPDATE reclaim.orders SET channel = 'other-bank' WHERE order_id = $1", elsewhere)
	require.NoError(t, err)
	theirs := w.accepted(elsewhere, 10, 4)
	w.beginSend(theirs)
	full := w.says(key, channel.OutcomeFailed)
	for _, test := range []struct {
		name   string
		change func(*channel.Evidence)
		tenant string
	}{
		{"unknown number of a known payment", func(e *channel.Evidence) { e.Number = "rf_none" }, tenant},
		{"made elsewhere", func(e *channel.Evidence) { e.Number, e.Reference = "", "re-dashboard" }, tenant},
		{"neither number nor reference", func(e *channel.Evidence) { e.Number, e.Reference = "", "" }, tenant},
		{"nothing known", func(e *channel.Evidence) { e.Number, e.Payment, e.Reference = "rf_none", "pay-none", "re-none" }, contract.UnassignedTenant},
		{"nothing at all", func(e *channel.Evidence) { *e = channel.Evidence{Outcome: channel.OutcomeFailed} }, contract.UnassignedTenant},
		{"another channel's number", func(e *channel.Evidence) {
			*e = w.says(theirs, channel.OutcomeFailed)
		}, contract.UnassignedTenant},
	} {
		before := len(w.issues(test.tenant, bankName))
		b.noticeOf(with(full, test.change))
		taken := w.take(r)
		assert.Empty(t, taken.Refund, test.name)
		assert.NotEmpty(t, taken.IssueID, test.name)
		assert.Len(t, w.issues(test.tenant, bankName), before+1, test.name)
		assert.Equal(t, taken.IssueID, w.take(r).IssueID, "%s: redelivered, it is the same one", test.name)
		assert.Len(t, w.issues(test.tenant, bankName), before+1, test.name)
	}
	for _, key := range []contract.RefundKey{key, theirs} {
		assert.Equal(t, "unknown", w.refund(key).State)
		assert.Equal(t, []string{"payout -4"}, w.payouts(key))
	}
	assert.Contains(t, w.lines("SELECT DISTINCT kind FROM reclaim.issues"), "unknown_refund")
	w.assertRefundsSound()
}

func TestC62_ANoticeOfAnotherPaymentUnderOurNumberContradicts(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	before := w.moneyOf(key)
	b.noticeOf(with(w.says(key, channel.OutcomeSucceeded), func(e *channel.Evidence) { e.Payment = "pay-other" }))
	taken := w.take(r)
	assert.Equal(t, activities.AppliedEvidence{
		Verdict: activities.Refused, Why: "evidence_mismatch", State: contract.RefundPending, NeedsReview: true,
	}, taken.Applied)
	assert.Equal(t, key, taken.Refund, "its run is told")
	assert.Equal(t, before, w.moneyOf(key))
	assert.Equal(t, []string{"evidence_mismatch"}, w.issues(tenant, key.RefundID))
	w.assertRefundsSound()
}

func TestC46_ANoticeThatIsNotAcceptedChangesNothing(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundUnknown)
	var seen [3]any
	b.parse = func(header http.Header, body []byte, now time.Time) (channel.Notice, error) {
		seen = [3]any{header.Get("Signature"), string(body), now}
		evidence := w.says(key, channel.OutcomeSucceeded)
		return channel.Notice{Evidence: &evidence}, &channel.NoticeError{Code: channel.NoticeBadSignature, Reason: "not this body's"}
	}
	now := time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	taken, err := r.TakeNotice(t.Context(), bankName, http.Header{"Signature": {"t=1"}}, []byte("{ }"), now)
	refused, ok := errors.AsType[*channel.NoticeError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, channel.NoticeBadSignature, refused.Code)
	assert.Empty(t, taken)
	assert.Equal(t, [3]any{"t=1", "{ }", now}, seen, "the adapter is given the bytes that came, and the time")
	assert.Equal(t, "unknown", w.refund(key).State)
	assert.Empty(t, w.lines("SELECT issue_id FROM reclaim.issues"))

	b.parse = func(http.Header, []byte, time.Time) (channel.Notice, error) {
		return channel.Notice{ID: "evt_2", Type: "customer.created"}, nil
	}
	assert.Empty(t, w.take(r), "what is about something else is acknowledged")
	_, err = r.TakeNotice(t.Context(), "no-such-bank", http.Header{}, nil, now)
	require.ErrorIs(t, err, channel.ErrUnknownChannel)
}

func TestANoticeWhoseReplyIsLostOrThatComesTwiceAtOnceTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w, b, own, orderID := newRefundWorld(t, 8)
	proxy, r := w.refundsBehind(b, 8)
	key := w.inState(own, orderID, contract.RefundPending)
	b.noticeOf(w.says(key, channel.OutcomeSucceeded))
	proxy.LoseReply(statement("ApplyEvidence"), 1)
	_, err := r.TakeNotice(t.Context(), bankName, http.Header{}, nil, time.Now())
	requireErrorType(t, err, string(schema.ErrorUnavailable), true)
	assert.Equal(t, activities.Already, w.take(r).Applied.Verdict)

	b.noticeOf(channel.Evidence{Outcome: channel.OutcomeSucceeded, Number: "rf_none", Payment: payment(orderID)})
	proxy.LoseReply(statement("OpenIssue"), 1)
	_, err = r.TakeNotice(t.Context(), bankName, http.Header{}, nil, time.Now())
	require.Error(t, err, "the channel sends it again")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			taken, err := r.TakeNotice(t.Context(), bankName, http.Header{}, nil, time.Now())
			if assert.NoError(t, err) {
				assert.NotEmpty(t, taken.IssueID)
			}
		})
	}
	group.Wait()
	assert.Len(t, w.issues(tenant, bankName), 1)
	w.assertRefundsSound()
}
