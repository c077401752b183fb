package activities_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// refundModel is what one refund should be, in plain Go.
type refundModel struct {
	number, order string
	state         contract.RefundState
	ref           string
	review        bool
	events        int
	outcome, code string
	issues        map[string]bool
	credits       int64
}

// opens notes an issue, and tells whether it was news.
func (m *refundModel) opens(id string) bool {
	news := !m.issues[id]
	m.issues[id] = true
	m.review = m.review || news
	return news
}

func (m *refundModel) tell(outcome, code string) {
	m.events++
	m.outcome, m.code = outcome, code
}

// observe gives the verdict, and why, that the evidence of a channel that takes refunds back deserves.
func (m *refundModel) observe(e channel.Evidence) (activities.Verdict, string) {
	currency := strings.ToLower(e.Currency)
	seen := e.Outcome == channel.OutcomePending || e.Outcome == channel.OutcomeSucceeded
	failed := e.Outcome == channel.OutcomeFailed
	why, next := "", m.state
	switch {
	case e.Number != "" && e.Number != m.number, e.Payment != "" && e.Payment != payment(m.order),
		e.Reference != "" && m.ref != "" && e.Reference != m.ref, currency != "" && (e.Amount != 10 || currency != "eur"):
		why = "evidence_mismatch"
	case seen && e.Reference == "" && m.ref == "", e.Outcome == channel.OutcomeSucceeded && currency == "":
		why = "evidence_incomplete"
	case seen && (m.state == contract.RefundAccepted || m.state == contract.RefundCanceled), failed && m.state == contract.RefundAccepted:
		why = "refund_never_sent"
	case e.Outcome == channel.OutcomeSucceeded && m.state == contract.RefundFailed:
		why = "success_after_failure"
	case e.Outcome == channel.OutcomePending && m.state == contract.RefundFailed && m.ref == "":
		why = "pending_after_failure"
	case e.Outcome == channel.OutcomeNotFound && (m.state == contract.RefundPending || m.state == contract.RefundSucceeded):
		why = "reference_lost"
	case e.Outcome == channel.OutcomePending && m.state == contract.RefundUnknown:
		next = contract.RefundPending
	case e.Outcome == channel.OutcomeSucceeded && (m.state == contract.RefundUnknown || m.state == contract.RefundPending):
		next = contract.RefundSucceeded
	case failed && (m.state == contract.RefundUnknown || m.state == contract.RefundPending):
		next = contract.RefundFailed
	case failed && m.state == contract.RefundSucceeded:
		next = contract.RefundReversed
	}
	if why != "" {
		if news := m.opens(fmt.Sprint(why, e.Outcome, "|", e.Number, "|", e.Reference, "|", e.Payment, "|", e.Amount, "|", currency)); news || e.Sends > 0 {
			m.events++ // what was refused is told, and is not what is known
		}
		return activities.Refused, why
	}
	named := m.ref == "" && e.Reference != ""
	if named {
		m.ref = e.Reference
	}
	if named || next != m.state || string(e.Outcome) != m.outcome || e.Code != m.code || e.Sends > 0 {
		m.tell(string(e.Outcome), e.Code)
	}
	if next == m.state {
		return activities.Already, ""
	}
	if next == contract.RefundReversed {
		m.opens("refund_reversed")
	} else if next != contract.RefundPending {
		m.review = len(m.issues) > 0
	}
	m.state = next
	return activities.Applied, ""
}

// decide gives the verdict, and why, that a person's decision deserves.
func (m *refundModel) decide(d contract.RefundResolution) (activities.Verdict, string) {
	possible := false
	for _, action := range m.state.Actions() {
		possible = possible || action == d.Action
	}
	if !possible {
		return activities.Refused, activities.WhyWrongState
	}
	switch d.Action {
	case contract.ActionCancel:
		m.state, m.review = contract.RefundCanceled, len(m.issues) > 0
		m.tell("canceled", "")
	case contract.ActionSettle:
		if m.ref != "" && m.ref != d.ChannelRef {
			return activities.Refused, activities.WhyEvidenceMismatch
		}
		m.ref, m.state, m.review = d.ChannelRef, contract.RefundSucceeded, len(m.issues) > 0
		m.tell("succeeded", "settle")
	case contract.ActionRelease:
		m.state, m.review = contract.RefundFailed, len(m.issues) > 0
		m.tell("failed", "release")
	default:
		m.review = len(m.issues) > 0
	}
	return activities.Applied, ""
}

func (m *refundModel) send() string {
	if m.state != contract.RefundAccepted && m.state != contract.RefundUnknown {
		return "wrong_state"
	}
	m.state = contract.RefundUnknown
	m.tell("sending", "")
	return "applied"
}

// payouts is what the refund should have moved.
func (m *refundModel) payouts() string {
	switch {
	case m.credits == 0:
		return ""
	case m.state == contract.RefundFailed || m.state == contract.RefundCanceled || m.state == contract.RefundReversed:
		return "payout -4, payout_return 4"
	default:
		return "payout -4"
	}
}

// happening is one thing that happens to a refund: a message, perhaps spoiled, a decision, or that it is sent (again).
type happening struct {
	what string
	flaw int
	message
}

// schedule is what happens to one refund, one thing after the other or all at once.
type schedule struct {
	atOnce     bool
	happenings []happening
}

var (
	decisions = []contract.RefundAction{
		contract.ActionSettle, contract.ActionRelease, contract.ActionResend, contract.ActionExtend, contract.ActionCancel,
	}
	channelSources = []activities.Source{
		activities.SourceCreate, activities.SourceQuery, activities.SourceNotice, activities.SourceSettlement,
	}
	schedules = rapid.Custom(func(t *rapid.T) (s schedule) {
		s.atOnce = rapid.IntRange(0, 7).Draw(t, "at once") == 7
		for range rapid.IntRange(1, 6).Draw(t, "happenings") {
			h := happening{flaw: -1}
			switch dice := rapid.IntRange(0, 15).Draw(t, "what"); dice {
			case 15:
				h.what = string(rapid.SampledFrom(decisions).Draw(t, "decision"))
			case 14:
				h.what = "send"
			default:
				h.what = "evidence"
				h.message = message{
					source: rapid.SampledFrom(channelSources).Draw(t, "source"), outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"),
					code: rapid.SampledFrom([]string{"", "", "other"}).Draw(t, "code"),
				}
				if dice >= 11 {
					h.flaw = rapid.IntRange(0, len(flaws)-1).Draw(t, "flaw")
				}
			}
			s.happenings = append(s.happenings, h)
		}
		return s
	})
)

// happen makes it happen, and gives how it went; so does would, by the model.
func (w *world) happen(ctx context.Context, r *activities.Refunds, key contract.RefundKey, orderID string, i int, h happening) (string, error) {
	switch h.what {
	case "evidence":
		applied, err := r.ApplyEvidence(ctx, key, activities.Observation{
			Source: h.source, Evidence: h.evidence(key, orderID), Reversible: true,
		})
		return fmt.Sprint(applied.Verdict, applied.Why, applied.State, applied.NeedsReview), err
	case "send":
		return w.store.BeginSend(ctx, sendParams(key))
	default:
		answer, err := r.ResolveRefund(ctx, activities.ResolveRefundRequest{
			RefundKey: key, Resolution: decide(fmt.Sprint("d-", i), key, contract.RefundAction(h.what)),
		})
		return fmt.Sprint(answer.Verdict, answer.Why, answer.State, answer.Row.NeedsReview), err
	}
}

func (m *refundModel) would(key contract.RefundKey, i int, h happening) string {
	switch h.what {
	case "evidence":
		verdict, why := m.observe(h.evidence(key, m.order))
		return fmt.Sprint(verdict, why, m.state, m.review)
	case "send":
		return m.send()
	default:
		verdict, why := m.decide(decide(fmt.Sprint("d-", i), key, contract.RefundAction(h.what)))
		return fmt.Sprint(verdict, why, m.state, m.review)
	}
}

func (h happening) evidence(key contract.RefundKey, orderID string) channel.Evidence {
	e := h.message.evidence(key, orderID)
	if h.flaw >= 0 {
		flaws[h.flaw].spoil(&e)
		if e.Reference == "re-other" {
			// One reference for all of them would be another refund's.
			e.Reference += key.RefundID
		}
	}
	return e
}

// TestTenThousandRandomSchedules lets anything happen to refunds in any order and at once. Each batch is of one tenant, whose
// refunds go round three orders.
func TestTenThousandRandomSchedules(t *testing.T) {
	t.Parallel()
	const batch, workers = 100, 8
	w := newWorld(t, workers)
	var tried atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.SliceOfN(schedules, batch, batch).Draw(t, "schedules")
		if tried.Add(batch) == 3*batch {
			// Plans that were made for empty tables are slow by now.
			_, err := w.admin.Exec(w.t.Context(), "ANALYZE")
			require.NoError(t, err)
		}
		of := written{tenant: fmt.Sprint("tenant-", w.keys.Add(1)), many: batch, goodwill: 5, accepted: 4}
		for range 3 {
			of.orders = append(of.orders, w.orderOf(of.tenant, account, 1000, 1000))
		}
		far := newBank()
		r := activities.NewRefunds(w.store, channel.NewSet(map[string]channel.Member{bankName: {Channel: far}}))
		keys := w.write(of)
		models := make([]*refundModel, batch)
		var next atomic.Int64
		var group sync.WaitGroup
		var faults counted
		for range workers {
			group.Go(func() {
				for i := int(next.Add(1)) - 1; i < batch; i = int(next.Add(1)) - 1 {
					models[i] = &refundModel{
						number: keys[i].RefundID, order: of.orders[(i+1)%3], state: contract.RefundUnknown, events: 2,
						outcome: "sending", issues: map[string]bool{}, credits: 4,
					}
					if (i+1)%of.accepted == 0 {
						models[i].state, models[i].events, models[i].outcome = contract.RefundAccepted, 1, "accepted"
					}
					if (i+1)%of.goodwill == 0 {
						models[i].credits = 0
					}
					if fault := w.run(r, keys[i], models[i], drawn[i]); fault != "" {
						faults.add(fmt.Sprintf("%s: %s in %+v", keys[i].RefundID, fault, drawn[i]), 1)
					}
				}
			})
		}
		group.Wait()
		for fault := range faults.by {
			t.Error(fault)
		}
		for i, line := range w.standings(keys) {
			m := models[i]
			if drawn[i].atOnce {
				continue
			}
			would := fmt.Sprint(m.state, " ", m.ref, " ", m.review, " ", m.events, " ", len(m.issues), " ", m.payouts())
			if line != would {
				t.Errorf("%s stands as %q and not as %q after %+v", keys[i].RefundID, line, would, drawn[i])
			}
		}
		for _, broken := range w.auditRefunds(of.tenant) {
			t.Error(broken)
		}
	})
	t.Logf("%d schedules", tried.Load())
	assert.Empty(t, strings.Join(w.audit(), "\n"))
	assert.Zero(t, w.deadlocks())
}

// run lets a schedule happen and says what went otherwise than by the model.
func (w *world) run(r *activities.Refunds, key contract.RefundKey, m *refundModel, s schedule) (fault string) {
	if s.atOnce {
		var group sync.WaitGroup
		var faults counted
		for i, h := range s.happenings {
			group.Go(func() {
				if _, err := w.happen(w.t.Context(), r, key, m.order, i, h); err != nil {
					faults.add(err.Error(), 1)
				}
			})
		}
		group.Wait()
		for fault := range faults.by {
			return fault
		}
		return ""
	}
	for i, h := range s.happenings {
		went, err := w.happen(w.t.Context(), r, key, m.order, i, h)
		if would := m.would(key, i, h); err != nil || went != would {
			return fmt.Sprintf("happening %d went %q (%v) and not %q", i, went, err, would)
		}
	}
	return ""
}

// standings reads where the refunds stand: state, reference, whether a person is asked, events, issues, and payouts.
func (w *world) standings(keys []contract.RefundKey) []string {
	w.t.Helper()
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = key.RefundID
	}
	return w.lines(`
		SELECT concat(state, ' ', channel_ref, ' ', needs_review::text, ' ', event_seq, ' ', (SELECT count(*) FROM reclaim.issues
				WHERE (issues.tenant_id, subject_id) = (refunds.tenant_id, refunds.refund_id)), ' ', (
			SELECT string_agg(type || ' ' || ledger_entries.amount, ', ' ORDER BY seq) FROM reclaim.ledger_entries
				WHERE (ledger_entries.tenant_id, ledger_entries.refund_id) = (refunds.tenant_id, refunds.refund_id)
					AND type IN ('payout', 'payout_return')))
		FROM unnest($1::text[]) WITH ORDINALITY AS asked (refund_id, place) JOIN reclaim.refunds USING (refund_id)
		ORDER BY place`, ids)
}
