package activities_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// modelRefund is a refund of the model, of all that its order paid. A job's refund has its job, which costs as much.
type modelRefund struct {
	*world
	r       *activities.Refunds
	request contract.RefundRequest
	key     contract.RefundKey
	job     *sourceJob
}

// newModelRefund makes the refund that is not yet accepted. A full order has sent everything back already.
func (w *world) newModelRefund(r *activities.Refunds, ofJob, full bool) *modelRefund {
	w.t.Helper()
	orderID := w.order(account, 10, 40)
	m := &modelRefund{world: w, r: r, request: w.ask(orderID, 10, 40)}
	m.key = contract.RefundKey{Tenant: tenant, RefundID: contract.RefundNumber(tenant, m.request.Actor, m.request.Key)}
	if ofJob {
		job := w.sourced(orderID)
		m.job, m.key = &job, job.refund
	}
	if full {
		w.accepted(orderID, 10, 40)
	}
	return m
}

// row names the row of the model that the refund stands in.
func (m *modelRefund) row() string {
	if len(m.lines(`SELECT state FROM reclaim.refunds WHERE tenant_id = $1 AND refund_id = $2`, m.key.Tenant, m.key.RefundID)) == 0 {
		return "none"
	}
	switch refund := m.refund(m.key); {
	case refund.State == "unknown" && refund.SendCount > 1:
		return "unknown_again"
	case refund.State == "failed" && refund.ChannelRef == "":
		return "failed_unnamed"
	default:
		return refund.State
	}
}

// into brings an accepted refund to a row.
func (m *modelRefund) into(row string) {
	m.t.Helper()
	switch row {
	case "none":
	case "unknown_again":
		m.beginSend(m.key)
		m.beginSend(m.key)
	case "failed_unnamed":
		m.beginSend(m.key)
		_, err := tryRefusal(m)
		require.NoError(m.t, err)
	case "failed":
		m.bring(m.r, m.key, contract.RefundPending)
		require.Equal(m.t, activities.Applied, m.apply(m.r, m.key, activities.SourceNotice, m.says(m.key, channel.OutcomeFailed)).Verdict)
	default:
		m.bring(m.r, m.key, contract.RefundState(row))
	}
}

var modelRefundRows = []string{
	"none", "accepted", "unknown", "unknown_again", "pending", "succeeded", "failed", "failed_unnamed", "canceled", "reversed",
}

// tryOnRefund calls a guard and gives its answer, and why where it refused.
type tryOnRefund func(m *modelRefund) (told string, err error)

func tryAccept(m *modelRefund) (string, error) {
	row, err := m.accept(m.request)
	return row.Answer, err
}

func trySend(m *modelRefund) (string, error) {
	return m.store.BeginSend(m.t.Context(), sendParams(m.key))
}

func tryObservation(m *modelRefund, o activities.Observation) (string, error) {
	applied, err := m.r.ApplyEvidence(m.t.Context(), m.key, o)
	return strings.TrimSpace(string(applied.Verdict) + " " + applied.Why), err
}

func tryRefusal(m *modelRefund) (string, error) {
	return tryObservation(m, activities.Observation{
		Source: activities.SourceCreate, Evidence: channel.Evidence{Outcome: channel.OutcomeFailed, Code: "refused", Sends: 1},
		Reversible: true, Refusal: true,
	})
}

// tryEvidence applies what each source says, of a channel that takes refunds back.
func tryEvidence(outcome channel.Outcome) (tries []tryOnRefund) {
	for _, source := range channelSources {
		tries = append(tries, func(m *modelRefund) (string, error) {
			evidence := m.says(m.key, outcome)
			if outcome == channel.OutcomeUnknown || outcome == channel.OutcomeNotFound {
				evidence.Reference = ""
			}
			return tryObservation(m, activities.Observation{Source: source, Evidence: evidence, Reversible: true})
		})
	}
	return tries
}

func tryDecision(action contract.RefundAction) []tryOnRefund {
	return []tryOnRefund{func(m *modelRefund) (string, error) {
		request := activities.ResolveRefundRequest{RefundKey: m.key, Resolution: decide("d-1", m.key, action), RecordRefusal: true}
		answer, err := m.r.ResolveRefund(m.t.Context(), request)
		if err == nil {
			again, err := m.r.ResolveRefund(m.t.Context(), request)
			require.NoError(m.t, err)
			assert.Equal(m.t, activities.Already, again.Verdict, "%s once more", action)
		}
		return strings.TrimSpace(string(answer.Verdict) + " " + answer.Why), err
	}}
}

func tryJob(call string) []tryOnRefund {
	return []tryOnRefund{func(m *modelRefund) (string, error) {
		answer, err := sourceCalls[call](m.world, m.jobs, *m.job)
		return strings.TrimSpace(string(answer.Verdict) + " " + answer.Why), err
	}}
}

// The jobs of the model's refunds: charged, refunded, and delivered after that.
const (
	jobCharged = iota + 1
	jobRefunded
	jobLate
)

// modelRefundGuards are the guards of refunds, each with the calls that must all do the same, and where it is a job's, with
// where the job stands.
var modelRefundGuards = []struct {
	name  string
	tries []tryOnRefund
	// full: the order has nothing left for a refund that is not accepted.
	full    bool
	expired bool
	job     int
}{
	{name: "accept", tries: []tryOnRefund{tryAccept}},
	{name: "accept_full", tries: []tryOnRefund{tryAccept}, full: true},
	{name: "send", tries: []tryOnRefund{trySend}},
	{name: "send_expired", tries: []tryOnRefund{trySend}, expired: true},
	{name: "told_unknown", tries: tryEvidence(channel.OutcomeUnknown)},
	{name: "told_not_found", tries: tryEvidence(channel.OutcomeNotFound)},
	{name: "told_pending", tries: tryEvidence(channel.OutcomePending)},
	{name: "told_succeeded", tries: tryEvidence(channel.OutcomeSucceeded)},
	{name: "told_failed", tries: tryEvidence(channel.OutcomeFailed)},
	{name: "told_refused", tries: []tryOnRefund{tryRefusal}},
	{name: "cancel", tries: tryDecision(contract.ActionCancel)},
	{name: "settle", tries: tryDecision(contract.ActionSettle)},
	{name: "release", tries: tryDecision(contract.ActionRelease)},
	{name: "resend", tries: tryDecision(contract.ActionResend)},
	{name: "extend", tries: tryDecision(contract.ActionExtend)},
	{name: "job_refund", tries: tryJob("refund"), job: jobCharged},
	{name: "job_refund_full", tries: tryJob("refund"), job: jobCharged, full: true},
	{name: "job_refund_again", tries: tryJob("refund"), job: jobRefunded},
	{name: "job_refund_again_full", tries: tryJob("refund"), job: jobRefunded, full: true},
	{name: "job_refund_late", tries: tryJob("refund"), job: jobLate},
	{name: "job_success", tries: tryJob("settle"), job: jobRefunded},
	{name: "job_success_late", tries: tryJob("settle"), job: jobLate},
}

// modelRefundIn makes a refund that stands in a row, or nil where it cannot be with a job that stands so.
func (w *world) modelRefundIn(r *activities.Refunds, row string, job int, full bool) *modelRefund {
	w.t.Helper()
	m := w.newModelRefund(r, job > 0, full)
	switch {
	case full && row != "none" || job == jobCharged && row != "none":
		return nil
	case job == 0 && row != "none":
		w.inTime(func() (string, error) { return tryAccept(m) })
	case job >= jobRefunded && row == "none":
		answer, err := w.jobs.RefundJob(w.t.Context(), activities.RefundRequest{JobKey: m.job.key, Reason: "promise passed"})
		require.NoError(w.t, err)
		require.Equal(w.t, activities.Applied, answer.Verdict)
	case job >= jobRefunded:
		w.callSource("refund", *m.job)
	}
	m.into(row)
	if job == jobLate {
		w.callSource("settle", *m.job)
		if m.row() != row {
			return nil
		}
	}
	require.Equal(w.t, row, m.row())
	return m
}

// moneyMoved names the entries that came and what changed on the order.
func (m *modelRefund) moneyMoved(entries, jobEntries []string, reserves [4]int64) []string {
	m.t.Helper()
	now, order := m.reserves(m.request.OrderID), ""
	for i, change := range [][2]int64{{0, 0}, {1, 0}, {-1, 1}, {-1, 0}, {0, -1}} {
		if now[0]-reserves[0] == 10*change[0] && now[1]-reserves[1] == 10*change[1] &&
			now[2]-reserves[2] == 40*change[0] && now[3]-reserves[3] == 40*change[1] {
			order = []string{"order_same", "reserves", "spends", "frees", "regains"}[i]
		}
	}
	entry := map[string]string{
		"-": "no_entry", "payout -40": "payout_entry", "payout_return 40": "return_entry",
	}[added(entries, m.payouts(m.key))]
	jobEntry := "no_entry"
	if m.job != nil {
		ofJob := slices.DeleteFunc(m.entries(m.job.key), func(line string) bool { return strings.HasPrefix(line, "payout") })
		jobEntry = map[string]string{"-": "no_entry", "refund 40": "refund_entry", "reclaim -40": "reclaim_entry"}[added(jobEntries, ofJob)]
	}
	require.NotEmpty(m.t, order, "%v after %v", now, reserves)
	require.NotEmpty(m.t, entry, added(entries, m.payouts(m.key)))
	require.NotEmpty(m.t, jobEntry)
	return []string{entry, order, jobEntry}
}

func TestTheModelOfRefundsHasTheGuardsOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1_000_000)
	r := w.through(newBank())
	var table strings.Builder
	for _, guard := range modelRefundGuards {
		fmt.Fprintf(&table, "\ninline %s_guard() {\n\tif\n", guard.name)
		for _, row := range modelRefundRows {
			lines, line := map[string]bool{}, ""
			for _, try := range guard.tries {
				if row == "none" && guard.job == 0 && !strings.HasPrefix(guard.name, "accept") {
					continue // there is nothing yet that could be sent, told of or decided about
				}
				m := w.modelRefundIn(r, row, guard.job, guard.full)
				if m == nil {
					continue
				}
				if guard.expired && m.refund(m.key).FirstSentAt != nil {
					m.age(m.key, 48*time.Hour)
				}
				payouts, reserves := m.payouts(m.key), m.reserves(m.request.OrderID)
				var ofJob []string
				if m.job != nil {
					ofJob = m.entries(m.job.key)
				}
				told, err := try(m)
				for cameTooLate(err) || told == "too_late" {
					told, err = try(m)
				}
				require.NoError(t, err, "%s on %s", guard.name, row)
				verdict, why, _ := strings.Cut(told, " ")
				if verdict != "applied" && verdict != "already" && verdict != "refused" {
					verdict, why = "refused", verdict
				}
				line = modelBranch(row, why, append([]string{verdict, m.row()}, m.moneyMoved(payouts, ofJob, reserves)...)...)
				lines[line] = true
			}
			assert.LessOrEqual(t, len(lines), 1, "%s on %s does the same in each way: %v", guard.name, row, lines)
			table.WriteString(line)
		}
		table.WriteString("\t:: else -> assert(false) /* it cannot be */\n\tfi\n}\n")
	}
	w.assertModel("refund_guards.pml", "row after it, the refund's entry, the order, the job's entry", table.String())
	w.assertRefundsSound()
}
