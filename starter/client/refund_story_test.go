package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// told reads a refund and checks what holds of every one.
func (s *shop) told(refundID string) client.Refund {
	s.t.Helper()
	refund, err := s.Refund(s.ctx, "acme", refundID)
	require.NoError(s.t, err)
	for _, words := range []string{refund.DidItHappen, refund.Known, refund.Then, refund.WaitsFor} {
		assert.NotEmpty(s.t, words, "%s", refund.State)
	}
	assert.Equal(s.t, refund.State.Actions(), refund.Actions)
	assert.Equal(s.t, time.UTC, refund.Since.Location())
	assert.False(s.t, refund.Since.IsZero())
	if !refund.State.Open() {
		assert.True(s.t, refund.NextLook.IsZero())
		assert.True(s.t, refund.LookUntil.IsZero())
	}
	return refund
}

func lines(t *testing.T, story []client.Moment) []string {
	t.Helper()
	var lines []string
	var last time.Time
	for _, m := range story {
		assert.False(t, m.At.Before(last), "in order of time: %s", m.Text)
		last = m.At
		text := m.Kind
		if m.BalanceAfter != nil {
			text += fmt.Sprintf(" %+d → %d", m.Amount, *m.BalanceAfter)
		}
		lines = append(lines, text+": "+m.Text)
	}
	return lines
}

func TestARefundIsToldInTheOrderInWhichAPersonAsks(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	id := s.back("o-1", 1000, "k").RefundID

	refund := s.told(id)
	assert.Contains(t, refund.DidItHappen, "No: it is accepted here and not sent yet")
	assert.Equal(t, "being sent", refund.WaitsFor)
	assert.Equal(t, [6]string{"acme", "o-1", "team-7", "stripe-main", "pi_o-1", "api:shop"},
		[6]string{refund.Tenant, refund.OrderID, refund.Account, refund.Channel, refund.Payment, refund.RequestedBy})
	assert.Equal(t, [2]int64{1000, 10}, [2]int64{refund.Amount, refund.Credits})
	assert.Empty(t, refund.Issues)

	s.send(id)
	s.hears(id, "create", "unknown", "http_502")
	refund = s.told(id)
	assert.Contains(t, refund.DidItHappen, "Unknown")
	assert.Regexp(t, `^Sent once at \S+Z; since then: no usable answer came \(http_502\)\.$`, refund.Known)
	assert.Equal(t, "the channel's confirmation", refund.WaitsFor)
	assert.False(t, refund.NextLook.IsZero())
	assert.True(t, refund.LookUntil.After(refund.NextLook))
	assert.Equal(t, "a person is asked, unless the channel has confirmed by then", refund.Then)
	known := refund.Since
	s.hears(id, "query", "not_found", "")
	assert.True(t, s.told(id).Since.After(known))
	known = s.told(id).Since
	s.hears(id, "query", "not_found", "")
	refund = s.told(id)
	assert.Equal(t, known, refund.Since, "a look-up that finds nothing new changes nothing that is known")
	assert.Equal(t, 2, refund.Looks)

	s.send(id)
	s.hears(id, "create", "pending", "")
	refund = s.told(id)
	assert.Equal(t, "Not yet: the channel has taken it on.", refund.DidItHappen)
	assert.Equal(t, [2]string{"The channel's reference is re_1. Last: the channel has taken it on.", "re_1"}, [2]string{refund.Known, refund.ChannelRef})

	// Its time passes, and a person is asked.
	s.tamper("UPDATE reclaim.refunds SET look_until = now() - interval '1 second'")
	_, err := s.store.FlagRefund(s.ctx, db.FlagRefundParams{TenantID: "acme", RefundID: id})
	require.NoError(t, err)
	refund = s.told(id)
	assert.True(t, refund.NeedsReview)
	assert.Equal(t, "a person's decision: resolve with settle, release or extend", refund.WaitsFor)
	assert.True(t, refund.NextLook.IsZero(), "nobody looks now")

	s.hears(id, "notice", "succeeded", "refund.updated")
	refund = s.told(id)
	assert.Equal(t, "Yes: the channel confirmed it.", refund.DidItHappen)
	assert.Equal(t, [2]string{"nothing", "nothing more, unless the bank takes it back"}, [2]string{refund.WaitsFor, refund.Then})
	assert.False(t, refund.NeedsReview)

	s.hears(id, "notice", "failed", "bank_returned")
	refund = s.told(id)
	assert.Equal(t, "It did, and the bank took it back later. The credits are back.", refund.DidItHappen)
	assert.Equal(t, "nothing by itself; and a person must look at its open issues", refund.WaitsFor)
	require.Len(t, refund.Issues, 1)
	assert.Equal(t, [3]string{"refund_reversed", "refund", id},
		[3]string{refund.Issues[0].Kind, refund.Issues[0].SubjectKind, refund.Issues[0].SubjectID})
	_, err = s.ResolveIssue(s.ctx, "acme", refund.Issues[0].IssueID, "ticket-1", "ann", "paid by transfer")
	require.NoError(t, err)
	refund = s.told(id)
	assert.Empty(t, refund.Issues)
	assert.Equal(t, "nothing", refund.WaitsFor)
	assert.False(t, refund.NeedsReview)

	issue := "refund_reversed:" + id
	assert.Equal(t, []string{
		"refund_accept: api:shop asked to send 1000 eur of order o-1 back: not as described",
		"payout -10 → 90: 10 credits left account team-7 with the money",
		"refund_send: sending it to channel stripe-main began",
		"refund_create: it was sent: no usable answer came (http_502)",
		"refund_query: the channel was asked: the channel knows no such refund",
		"refund_send: sending the same number to channel stripe-main again began",
		"refund_create: it was sent: the channel has taken it on, reference re_1: the refund is now pending",
		"refund_notice: the channel reported: the money went back (refund.updated), reference re_1: the refund is now succeeded",
		"issue: issue " + issue + " was opened: the refund is succeeded (1000 eur re_1); by notice it is failed (0   ) bank_returned",
		"refund_notice: the channel reported: the money came back (bank_returned): the refund is now reversed",
		"payout_return +10 → 100: 10 credits came back to account team-7: the bank took the refund back (bank_returned)",
		"issue_resolved: ann resolved issue " + issue + ": paid by transfer",
	}, lines(t, refund.Story))
	s.sound()
}

func TestWhatAPersonDecidedOfARefundIsTold(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	record := func(id, resolution, action, outcome, refusal string) {
		t.Helper()
		require.NoError(t, s.store.InsertResolution(s.ctx, db.InsertResolutionParams{
			TenantID: "acme", SubjectKind: "refund", SubjectID: id, ResolutionID: resolution, Action: action, Operator: "ann",
			Approver: "bob", Reason: "the bank said so", Outcome: outcome, Refusal: refusal, State: "unknown", Particulars: "[]",
		}))
	}
	id := s.back("o-1", 1000, "settled").RefundID
	s.send(id)
	record(id, "r1", "extend", "applied", "")
	require.NoError(t, s.store.ExtendRefund(s.ctx, db.ExtendRefundParams{
		TenantID: "acme", RefundID: id, GiveUpUs: 3600e6, Resend: true,
	}))
	assert.Equal(t, "its number being sent again, as a person decided", s.told(id).WaitsFor)
	record(id, "r2", "settle", "refused", "the amount 9 is not this refund's")
	_, err := s.store.ApplyEvidence(s.ctx, db.ApplyEvidenceParams{
		TenantID: "acme", RefundID: id, Source: "person", Outcome: "succeeded", Code: "settle", ChannelRef: "re_7", Amount: 1000,
		Currency: "eur", Actor: "ann, approved by bob", Evidence: "the bank said so (evidence: statement 7)",
	})
	require.NoError(t, err)
	record(id, "r3", "settle", "applied", "")
	assert.Equal(t, "Yes, as a person settled it on evidence: the channel itself has not confirmed it.", s.told(id).DidItHappen)
	assert.Equal(t, []string{
		"resolution: ann decided extend: the bank said so [r1]",
		"resolution: ann decided settle: the bank said so; refused: the amount 9 is not this refund's [r2]",
		"refund_person: ann, approved by bob decided: the money went back, reference re_7; the bank said so (evidence: " +
			"statement 7): the refund is now succeeded",
	}, lines(t, s.told(id).Story)[3:])
	_, err = s.store.ApplyEvidence(s.ctx, db.ApplyEvidenceParams{
		TenantID: "acme", RefundID: id, Source: "settlement", Outcome: "succeeded", ChannelRef: "re_7", Amount: 1000, Currency: "eur",
	})
	require.NoError(t, err)
	assert.Equal(t, "Yes: the channel confirmed it.", s.told(id).DidItHappen, "and now it has")
	released := s.back("o-1", 1000, "released").RefundID
	s.send(released)
	_, err = s.store.ApplyEvidence(s.ctx, db.ApplyEvidenceParams{
		TenantID: "acme", RefundID: released, Source: "person", Outcome: "failed", Code: "release", Amount: 1000, Currency: "eur",
	})
	require.NoError(t, err)
	assert.Equal(t, "No, as a person released it on evidence: the channel itself has not said so. The credits are back.",
		s.told(released).DidItHappen)

	id = s.back("o-1", 1000, "canceled").RefundID
	_, err = s.store.CancelRefund(s.ctx, db.CancelRefundParams{
		TenantID: "acme", RefundID: id, Actor: "ann", Reason: "withdrawn before it was sent: asked twice",
	})
	require.NoError(t, err)
	refund := s.told(id)
	assert.Equal(t, "No: it was withdrawn before it was sent. The credits are back.", refund.DidItHappen)
	assert.Equal(t, []string{
		"refund_person: ann decided: withdrawn before it was sent: asked twice: the refund is now canceled",
		"payout_return +10 → 90: 10 credits came back to account team-7: withdrawn before it was sent: asked twice",
	}, lines(t, refund.Story)[2:])

	request := refundOf("o-1", 1000, "failed")
	request.Credits = new(int64)
	answer, err := s.RequestRefund(s.ctx, request)
	require.NoError(t, err)
	s.send(answer.RefundID)
	s.hears(answer.RefundID, "create", "failed", "card_closed")
	refund = s.told(answer.RefundID)
	assert.Equal(t, "No: the channel confirmed that no money moved and none will.", refund.DidItHappen, "no credits to come back")
	assert.Equal(t, "Last: no money moved and none will (card_closed).", refund.Known)

	// A notice in the channel's own time; and a channel that the worker does not have.
	id = s.back("o-1", 1000, "flagged").RefundID
	_, err = s.store.FlagRefund(s.ctx, db.FlagRefundParams{TenantID: "acme", RefundID: id})
	require.NoError(t, err)
	assert.Contains(t, s.told(id).WaitsFor, "being sent; and a person must look why it does not go on: whether the worker's configuration has channel stripe-main")
	s.send(id)
	past := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, err = s.store.ApplyEvidence(s.ctx, db.ApplyEvidenceParams{
		TenantID: "acme", RefundID: id, Source: "settlement", Outcome: "succeeded", ChannelRef: "re_8", Amount: 1000,
		Currency: "eur", ObservedAt: &past,
	})
	require.NoError(t, err)
	assert.Contains(t, lines(t, s.told(id).Story)[3], "the channel's settlement says: the money went back, reference re_8 (as of "+
		"2026-01-02T03:04:05Z): the refund is now succeeded")
	s.sound()
}

func TestContradictingEvidenceShowsAsAnIssue(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	id := s.back("o-1", 1000, "k").RefundID
	s.send(id)
	row, err := s.store.ApplyEvidence(s.ctx, db.ApplyEvidenceParams{
		TenantID: "acme", RefundID: id, Source: "notice", Outcome: "succeeded", ChannelRef: "re_1", Amount: 999, Currency: "eur",
	})
	require.NoError(t, err)
	assert.Equal(t, "contradiction", row.Answer)
	refund := s.told(id)
	assert.Equal(t, contract.RefundUnknown, refund.State)
	assert.True(t, refund.NeedsReview)
	assert.Contains(t, refund.Known, "since then: no answer came yet", "what was refused is not known")
	assert.Contains(t, refund.Story[len(refund.Story)-1].Text+refund.Story[len(refund.Story)-2].Text,
		"the money went back, reference re_1: refused, since it contradicts what is known")
	assert.Equal(t, "the channel's confirmation; and a person must look at its open issues", refund.WaitsFor)
	require.Len(t, refund.Issues, 1)

	issues, err := s.Issues(s.ctx, "acme", false)
	require.NoError(t, err)
	assert.Equal(t, refund.Issues, issues)
	issues, err = s.Issues(s.ctx, "globex", true)
	require.NoError(t, err)
	assert.Empty(t, issues)

	issue := refund.Issues[0].IssueID
	_, err = s.ResolveIssue(s.ctx, "globex", issue, "t-1", "ann", "why")
	refusal(t, contract.CodeNotFound, err)
	_, err = s.ResolveIssue(s.ctx, "acme", "no such issue", "t-1", "ann", "why")
	refusal(t, contract.CodeNotFound, err)
	_, err = s.ResolveIssue(s.ctx, "acme", "", "", " ", "")
	assert.Len(t, refusal(t, contract.CodeBadInput, err).Fields, 4, "every mistake at once")
	for range 2 {
		resolved, err := s.ResolveIssue(s.ctx, "acme", issue, "t-1", "ann", "a typing error of theirs")
		require.NoError(t, err)
		assert.Equal(t, client.ResolvedIssue{ID: "t-1", IssueID: issue, Outcome: "applied", State: "resolved"}, resolved)
	}
	_, err = s.ResolveIssue(s.ctx, "acme", issue, "t-1", "ann", "another reason")
	assert.Contains(t, refusal(t, contract.CodeBadResolution, err).Message, "stands for another decision")
	_, err = s.ResolveIssue(s.ctx, "acme", issue, "t-2", "ann", "why")
	assert.Contains(t, refusal(t, contract.CodeBadResolution, err).Message, "resolved already")
	issues, err = s.Issues(s.ctx, "acme", false)
	require.NoError(t, err)
	assert.Empty(t, issues)
	issues, err = s.Issues(s.ctx, "acme", true)
	require.NoError(t, err)
	require.Len(t, issues, 1)
	assert.Equal(t, "resolved", issues[0].State)
	assert.False(t, issues[0].ResolvedAt.IsZero())
	s.sound()
}

func TestAJobsTimelineTellsItsChannelRefund(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	s.charge("team-7", "dear", 40)
	s.refund("dear", 1, "GPU fault")
	id := s.jobRefund("dear", "o-1", 40)
	s.send(id)
	s.hears(id, "create", "failed", "card_closed")
	assert.Equal(t, []string{
		"charge -40 → 60: account team-7 charged: job dear started",
		"attempt_failed: attempt 1 failed: GPU fault",
		"refund +40 → 100: refunded: the promise passed",
		"refund_accept: job dear asked to send 4000 eur of order o-1 back: the promise passed",
		"payout -40 → 60: 40 credits left account team-7 with the money",
		"refund_send: sending it to channel stripe-main began",
		"refund_create: it was sent: no money moved and none will (card_closed): the refund is now failed",
		"payout_return +40 → 100: 40 credits came back to account team-7: the refund sent no money (card_closed)",
	}, s.story("dear"))
	moments, err := s.Timeline(s.ctx, "acme", "dear")
	require.NoError(t, err)
	assert.Equal(t, [2]string{"", id}, [2]string{moments[2].RefundID, moments[3].RefundID})
	assert.Equal(t, "dear", s.told(id).JobID)
	s.sound()
}

// jobRefund accepts a job's refund in credits, as its run does.
func (l *ledger) jobRefund(job, order string, credits int64) string {
	l.t.Helper()
	l.applies(func() (string, error) {
		row, err := l.store.AcceptRefund(l.ctx, db.AcceptRefundParams{
			TenantID: "acme", RefundID: contract.JobRefundNumber("acme", job), OrderID: order, JobID: &job, Key: "job:" + job,
			Fingerprint: "f", Credits: &credits, Reason: "the promise passed", RetentionUs: 1e12, NotAfter: l.store.NotAfter(),
		})
		return row.Answer, err
	})
	return contract.JobRefundNumber("acme", job)
}
