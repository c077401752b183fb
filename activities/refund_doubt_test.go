package activities_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// A database that does not answer is no proof that a refund is not ours: the channel must send its message again.
func TestANoticeThatCannotBeLookedUpIsNobodysYet(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundSucceeded)
	b.noticeOf(w.says(key, channel.OutcomeFailed))
	tx, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE reclaim.refunds IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	taken, err := r.TakeNotice(t.Context(), bankName, nil, nil, time.Now())
	var failure *schema.Failure
	require.ErrorAs(t, err, &failure)
	assert.True(t, failure.Retryable)
	assert.Equal(t, activities.TakenNotice{}, taken)
	require.NoError(t, tx.Rollback(t.Context()))
	assert.Empty(t, w.issues(tenant, bankName))

	assert.Equal(t, key, w.take(r).Refund, "its next delivery")
	assert.Equal(t, "reversed", w.refund(key).State)
	w.assertRefundsSound()
}

func TestANumberThatIsNoneOpensAnIssue(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	b.noticeOf(with(w.says(key, channel.OutcomeFailed), func(e *channel.Evidence) { e.Number = "rf\x00_1" }))
	assert.NotEmpty(t, w.take(r).IssueID)
	assert.Equal(t, "pending", w.refund(key).State)
}

// Any tenant may name any payment in an order; only one for whom the channel is may read what it reports.
func TestANoticeOfAPaymentIsToldToWhomTheChannelIsFor(t *testing.T) {
	t.Parallel()
	w, b, _, _ := newRefundWorld(t, 4)
	set := channel.NewSet(map[string]channel.Member{bankName: {Channel: b, Tenants: []string{tenant, "partner"}}})
	r := activities.NewRefunds(w.store, set)
	tell := func(reference string) string {
		b.noticeOf(channel.Evidence{
			Outcome: channel.OutcomeSucceeded, Reference: reference, Payment: "pay-x", Amount: 1, Currency: "eur",
		})
		id := w.take(r).IssueID
		require.NotEmpty(t, id)
		return w.lines("SELECT tenant_id FROM reclaim.issues WHERE issue_id = $1", id)[0]
	}
	buy := func(buyer string) {
		answer, err := w.store.AddOrder(t.Context(), db.AddOrderParams{
			TenantID: buyer, OrderID: "x", AccountID: "x", Channel: bankName, Payment: "pay-x", Currency: "eur", Paid: 1, Credits: 1,
			Asset: "CREDIT", Actor: "test", Key: "kx", Fingerprint: "f", Reason: "bought", NotAfter: w.store.NotAfter(),
		})
		require.NoError(t, err)
		require.Equal(t, "applied", answer.Answer)
	}
	buy("stranger")
	assert.Equal(t, contract.UnassignedTenant, tell("re-1"))
	buy(tenant)
	assert.Equal(t, tenant, tell("re-2"))
	buy("partner")
	assert.Equal(t, contract.UnassignedTenant, tell("re-3"), "two may have it: neither is told the other's business")
}

// A refusal answers one request. Where the number went out more than once, or the channel has the refund, it proves nothing.
func TestARefusalMovesNothingThatTheChannelMayHave(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	for _, test := range []struct {
		state contract.RefundState
		sends int
		want  contract.RefundState
	}{
		{contract.RefundUnknown, 1, contract.RefundFailed},
		{contract.RefundUnknown, 2, contract.RefundUnknown},
		{contract.RefundPending, 1, contract.RefundPending},
		{contract.RefundSucceeded, 1, contract.RefundSucceeded},
	} {
		key := w.inState(r, orderID, test.state)
		before := w.moneyOf(key)
		applied, err := r.ApplyEvidence(t.Context(), key, activities.Observation{
			Source: activities.SourceCreate, Reversible: true, Refusal: true,
			Evidence: channel.Evidence{Outcome: channel.OutcomeFailed, Code: "charge_disputed", Sends: test.sends},
		})
		require.NoError(t, err)
		assert.Equal(t, test.want, applied.State, "%s, sent %d times", test.state, test.sends)
		if test.want == test.state {
			assert.Equal(t, before, w.moneyOf(key))
		}
	}
	w.assertRefundsSound()
}

// The credits are back, and the channel then has the refund after all: nobody looks a failed refund up, so a person must.
func TestAnAcknowledgementAfterAFailureOpensAnIssue(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundUnknown)
	d := decide("d-1", key, contract.ActionRelease)
	require.Equal(t, activities.Applied, w.resolve(r, key, d).Verdict)
	for range 2 {
		applied := w.apply(r, key, activities.SourceNotice, w.says(key, channel.OutcomePending))
		assert.Equal(t, activities.AppliedEvidence{
			Verdict: activities.Refused, Why: "pending_after_failure", State: contract.RefundFailed, NeedsReview: true,
		}, applied)
	}
	assert.Equal(t, []string{"pending_after_failure"}, w.issues(tenant, key.RefundID))

	// An older acknowledgement of the very refund that failed tells nothing new.
	key = w.inState(r, orderID, contract.RefundUnknown)
	w.apply(r, key, activities.SourceNotice, w.says(key, channel.OutcomeFailed))
	assert.Equal(t, activities.Already, w.apply(r, key, activities.SourceNotice, w.says(key, channel.OutcomePending)).Verdict)
	assert.Empty(t, w.issues(tenant, key.RefundID))
	w.assertRefundsSound()
}

// C65: a person looked at the wrong refund. Its reference is that one's already.
func TestC65_AReferenceStandsForOneRefund(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	mine, other := w.inState(r, orderID, contract.RefundUnknown), w.inState(r, orderID, contract.RefundUnknown)
	w.apply(r, other, activities.SourceQuery, w.says(other, channel.OutcomeSucceeded))
	before := w.moneyOf(mine)
	d := decide("d-1", mine, contract.ActionSettle)
	d.Number, d.ChannelRef = "", reference(other.RefundID)
	answer := w.resolve(r, mine, d)
	assert.Equal(t, [2]string{activities.WhyEvidenceMismatch, contract.ResolutionRefused}, [2]string{answer.Why, answer.Outcome})
	assert.Contains(t, answer.Refusal, "is that of refund "+other.RefundID)
	assert.Equal(t, before, w.moneyOf(mine))

	for _, source := range []activities.Source{activities.SourceNotice, activities.SourceQuery} {
		applied := w.apply(r, mine, source, with(w.says(mine, channel.OutcomeSucceeded), func(e *channel.Evidence) {
			e.Reference = reference(other.RefundID)
		}))
		assert.Equal(t, "evidence_mismatch", applied.Why, source)
	}
	assert.Equal(t, before, w.moneyOf(mine))
	w.assertRefundsSound()
}

// A signal carries no signature, so its text moves nothing: it says only whether the channel must be asked.
func TestASignalledNoticeIsNoEvidence(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	for state, news := range map[contract.RefundState]map[contract.RefundOutcome]bool{
		contract.RefundUnknown:   {contract.NoticePending: true, contract.NoticeSucceeded: true, contract.NoticeFailed: true},
		contract.RefundPending:   {contract.NoticePending: false, contract.NoticeSucceeded: true, contract.NoticeFailed: true},
		contract.RefundSucceeded: {contract.NoticePending: false, contract.NoticeSucceeded: false, contract.NoticeFailed: true},
		contract.RefundFailed:    {contract.NoticePending: false, contract.NoticeSucceeded: true, contract.NoticeFailed: false},
		contract.RefundCanceled:  {contract.NoticePending: true, contract.NoticeSucceeded: true, contract.NoticeFailed: false},
		contract.RefundReversed:  {contract.NoticePending: false, contract.NoticeSucceeded: false, contract.NoticeFailed: false},
	} {
		key := w.inState(r, orderID, state)
		before, events := w.moneyOf(key), w.events(key)
		for outcome, want := range news {
			heard, err := r.ApplyNotice(t.Context(), activities.NoticeRequest{RefundKey: key, Notice: contract.ChannelNotice{
				Outcome: outcome, ChannelRef: "made-up", Amount: 10, Currency: "eur",
			}})
			require.NoError(t, err)
			assert.Equal(t, want, heard.News, "%s, said to be %s", state, outcome)
			assert.Equal(t, state, heard.State)
		}
		assert.Equal(t, before, w.moneyOf(key))
		assert.Equal(t, events, w.events(key))
	}
	w.assertRefundsSound()
}

// A signal has the channel asked beside the schedule: it puts no look off, and is not asked sooner than the channel allows.
func TestALookUpBesideTheSchedule(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundSucceeded)
	b.query = func(context.Context, channel.Refund) (channel.Evidence, error) {
		return w.says(key, channel.OutcomeFailed), nil
	}
	w.age(key, time.Minute)
	require.NoError(t, r.LookUpRefund(t.Context(), key))
	assert.Equal(t, "reversed", w.refund(key).State, "in any state")

	b.query = nil
	open := w.accepted(orderID, 10, 4)
	b.submit = lost
	_, err := follow(w, r, open, contract.RefundAccepted)
	require.NoError(t, err)
	requireNotDue(t, r.LookUpRefund(t.Context(), open), 10*time.Second)
	w.age(open, 10*time.Second)
	before, asked := w.refund(open), b.calls()
	require.NoError(t, r.LookUpRefund(t.Context(), open))
	after := w.refund(open)
	assert.Equal(t, asked[1]+1, b.calls()[1])
	assert.Equal(t, before.NextLookAt, after.NextLookAt)
	assert.Equal(t, before.LookCount, after.LookCount)

	unsent := w.accepted(orderID, 10, 4)
	asked = b.calls()
	require.NoError(t, r.LookUpRefund(t.Context(), unsent))
	require.NoError(t, activities.NewRefunds(w.store, channel.NewSet(nil)).LookUpRefund(t.Context(), key))
	assert.Equal(t, asked, b.calls(), "there is nothing to ask of what was not sent, and nobody where no channel is")
	w.assertRefundsSound()
}

// The answer to sending is given once: an attempt that is canceled in that moment, or a worker that stops, keeps it.
func TestARefusalIsKeptThoughItsAttemptIsCanceled(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	ctx, cancel := context.WithCancel(t.Context())
	b.submit = func(context.Context, channel.Refund) (channel.Evidence, error) {
		cancel()
		return channel.Evidence{Outcome: channel.OutcomeFailed, Code: "charge_not_refundable", Sends: 1}, nil
	}
	_, _ = r.FollowRefund(ctx, activities.FollowRequest{RefundKey: key, Known: contract.RefundAccepted})
	assert.Equal(t, "failed", w.refund(key).State)
	w.assertRefundsSound()
}

// What a debt kept on the account leaves once it is paid and somebody decides to; a decision that is refused is none.
func TestARefusedDecisionAboutAJobPaysNothingOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	job := w.sourced(w.order(account, 1000, 100))
	w.adjust(tenant, account, -160)
	w.callSource("close failed", job)
	w.topUp(tenant, account, 500)
	before := w.balance(tenant, account)
	for name, request := range map[string]activities.ResolveRequest{
		"in the wrong state": {Resolution: resolution("d-1", contract.ActionRetry)},
		"invalid":            {Resolution: resolution("d-2", contract.ActionRetry), Invalid: "no such thing"},
	} {
		request.JobKey, request.RecordRefusal, request.Source = job.key, true, job.source
		answer, err := w.jobs.ResolveJob(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, activities.Refused, answer.Verdict, name)
		assert.Empty(t, answer.Source.RefundID, name)
		assert.Equal(t, before, w.balance(tenant, account), name)
	}
	w.assertRefundsSound()
}
