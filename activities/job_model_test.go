package activities_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// model is what one job and its account should be, in plain Go.
type model struct {
	balance   int64
	row       activities.JobRow
	entries   []string
	lines     map[string]bool
	decisions map[string]decided
}

type decided struct {
	content contract.Resolution
	outcome string
	state   contract.JobState
}

func (m *model) move(kind string, amount int64) {
	if amount == 0 {
		return
	}
	m.balance += amount
	m.entries = append(m.entries, fmt.Sprint(kind, " ", amount))
}

// end notes an attempt that ended, and tells whether that was news.
func (m *model) end(e activities.EndedAttempt) {
	m.row.Attempts = max(m.row.Attempts, e.Attempt)
	if e.Failed {
		m.row.KeyAttempt = max(m.row.KeyAttempt, e.Attempt+1)
	}
}

func (m *model) giveBack() {
	if !m.row.Refunded {
		m.row.Refunded = true
		m.move("refund", m.row.Cost)
	}
}

func (m *model) deliver() {
	m.row.State = contract.StateSucceeded
	if m.row.Refunded {
		m.row.Reclaimed = true
		m.move("reclaim", -m.row.Cost)
	}
}

func (m *model) charge(r activities.ChargeRequest) (activities.Verdict, string) {
	switch {
	case m.row.State != "" && m.row.Cost == r.Cost:
		return activities.Already, ""
	case m.row.State != "":
		return activities.Refused, activities.WhyConflict
	case m.balance < 0:
		return activities.Refused, activities.WhyDebt
	case m.balance < r.Cost:
		return activities.Refused, activities.WhyInsufficientCredits
	}
	m.row = activities.JobRow{State: contract.StateRunning, Cost: r.Cost, KeyAttempt: 1}
	m.move("charge", -r.Cost)
	return activities.Applied, ""
}

func (m *model) refund(r activities.RefundRequest) (activities.Verdict, string) {
	verdict := activities.Applied
	switch {
	case m.row.Refunded:
		verdict = activities.Already
	case m.row.State == contract.StateSucceeded:
		return activities.Refused, activities.WhyDelivered
	}
	if m.row.State.Open() {
		m.giveBack()
		m.end(r.Ended)
		m.row.CancelRequested = m.row.CancelRequested || r.Cancel
	}
	return verdict, ""
}

func (m *model) settle(r activities.SettleRequest) (activities.Verdict, string) {
	if m.row.State == contract.StateSucceeded {
		return activities.Already, ""
	}
	m.deliver()
	m.row.Attempts = max(m.row.Attempts, r.Attempt)
	return activities.Applied, ""
}

func (m *model) record(r activities.RecordRequest) (activities.Verdict, string) {
	switch e := r.Ended; {
	case m.row.Attempts >= e.Attempt && !e.Failed, m.row.Attempts >= e.Attempt && m.row.KeyAttempt > e.Attempt:
		return activities.Already, ""
	case m.row.State != contract.StateRunning:
		return activities.Refused, activities.WhyNotRunning
	}
	m.end(r.Ended)
	return activities.Applied, ""
}

func (m *model) park(r activities.ParkRequest) (activities.Verdict, string) {
	switch {
	case m.row.State == contract.StateDeadLetter:
		return activities.Already, ""
	case m.row.State != contract.StateRunning:
		return activities.Refused, activities.WhyNotRunning
	case !m.row.Refunded:
		return activities.Refused, activities.WhyNotRefunded
	case m.row.Attempts < r.MaxAttempts+m.row.Granted:
		return activities.Refused, activities.WhyAttemptsLeft
	}
	m.row.State = contract.StateDeadLetter
	return activities.Applied, ""
}

func (m *model) close(r activities.CloseRequest) (activities.Verdict, string) {
	switch {
	case m.row.State == r.State:
		return activities.Already, ""
	case !m.row.State.Open():
		return activities.Refused, activities.WhyClosed
	}
	m.giveBack()
	m.row.State = r.State
	m.end(activities.EndedAttempt{Attempt: r.Ended.Attempt, Failed: true})
	return activities.Applied, ""
}

// resolve also gives the outcome and the state that are answered.
func (m *model) resolve(r activities.ResolveRequest) (verdict activities.Verdict, why, outcome string, state contract.JobState) {
	d := r.Resolution
	if prior, ok := m.decisions[d.ID]; ok {
		if prior.content == d {
			return activities.Already, "", prior.outcome, prior.state
		}
		return activities.Refused, activities.WhyIDReused, contract.ResolutionRefused, m.row.State
	}
	possible := false
	for _, action := range m.row.State.Actions() {
		possible = possible || action == d.Action
	}
	verdict, outcome = activities.Applied, contract.ResolutionApplied
	switch {
	case r.Invalid != "":
		verdict, why, outcome = activities.Refused, activities.WhyInvalid, contract.ResolutionRefused
	case !possible:
		verdict, why, outcome = activities.Refused, activities.WhyWrongState, contract.ResolutionRefused
	case d.Action == contract.ActionRetry:
		m.row.State = contract.StateRunning
		m.row.Granted += d.Attempts
	case d.Action == contract.ActionDeliver:
		m.deliver()
	default:
		m.giveBack()
		m.row.State = contract.StateWrittenOff
	}
	if verdict == activities.Applied || r.RecordRefusal {
		m.decisions[d.ID] = decided{d, outcome, m.row.State}
	}
	return verdict, why, outcome, m.row.State
}

// drawEnded draws an attempt that ended, or none.
func drawEnded(t *rapid.T, least int) activities.EndedAttempt {
	attempt := rapid.IntRange(least, 4).Draw(t, "attempt")
	return ended(attempt, attempt > 0 && rapid.Bool().Draw(t, "failed"))
}

func TestRandomCallsAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	rapid.Check(t, func(t *rapid.T) {
		key := activities.JobKey{Tenant: fmt.Sprint("tenant-", w.keys.Add(1)), JobID: "job"}
		m := model{balance: 10, lines: map[string]bool{}, decisions: map[string]decided{}}
		w.topUp(key.Tenant, account, 10)
		check := func(verdict activities.Verdict, why string, answer activities.JobAnswer, err error) {
			require.NoError(t, err)
			require.Equal(t, verdict, answer.Verdict)
			require.Equal(t, why, answer.Why)
			row := answer.Row
			row.Age, row.Reason, row.CreatedAt = 0, "", m.row.CreatedAt
			if m.row.State == "" {
				row.KeyAttempt = 0
			}
			require.Equal(t, m.row, row)
		}
		// absent: every call but a charge answers that there is no such job.
		absent := func(err error) bool {
			if m.row.State == "" {
				requireErrorType(t, err, activities.ErrorNoJob, false)
			}
			return m.row.State == ""
		}
		ctx := w.t.Context()
		for range rapid.IntRange(1, 20).Draw(t, "calls") {
			switch rapid.SampledFrom([]string{
				"charge", "charge", "adjust", "refund", "refund", "settle", "record", "record", "park", "park", "close",
				"resolve", "resolve", "resolve", "event",
			}).Draw(t, "call") {
			case "charge":
				request := chargeOf(key, account, rapid.SampledFrom([]int64{0, 7, 7, 12}).Draw(t, "cost"))
				verdict, why := m.charge(request)
				answer, err := w.jobs.ChargeJob(ctx, request)
				check(verdict, why, answer.JobAnswer, err)
				if why != activities.WhyConflict {
					require.Equal(t, m.balance, answer.Balance)
				}
			case "adjust":
				amount := rapid.SampledFrom([]int64{-15, -8, 5, 20}).Draw(t, "amount")
				m.balance += amount
				w.adjust(key.Tenant, account, amount)
			case "refund":
				request := activities.RefundRequest{JobKey: key, Reason: "r", Ended: drawEnded(t, 0), Cancel: rapid.Bool().Draw(t, "cancel")}
				if answer, err := w.jobs.RefundJob(ctx, request); !absent(err) {
					verdict, why := m.refund(request)
					check(verdict, why, answer, err)
				}
			case "settle":
				request := activities.SettleRequest{JobKey: key, Reason: "r", Attempt: rapid.IntRange(1, 4).Draw(t, "attempt")}
				if answer, err := w.jobs.SettleJob(ctx, request); !absent(err) {
					verdict, why := m.settle(request)
					check(verdict, why, answer, err)
				}
			case "record":
				request := activities.RecordRequest{JobKey: key, Ended: drawEnded(t, 1)}
				if answer, err := w.jobs.RecordAttempt(ctx, request); !absent(err) {
					verdict, why := m.record(request)
					check(verdict, why, answer, err)
				}
			case "park":
				request := activities.ParkRequest{JobKey: key, Reason: "r", MaxAttempts: rapid.IntRange(1, 3).Draw(t, "limit")}
				if answer, err := w.jobs.ParkJob(ctx, request); !absent(err) {
					verdict, why := m.park(request)
					check(verdict, why, answer, err)
				}
			case "close":
				request := activities.CloseRequest{JobKey: key, Reason: "r", State: contract.StateCanceled, Ended: drawEnded(t, 0)}
				if rapid.Bool().Draw(t, "fails") {
					request.State = contract.StateFailed
				}
				if answer, err := w.jobs.CloseJob(ctx, request); !absent(err) {
					verdict, why := m.close(request)
					check(verdict, why, answer, err)
				}
			case "resolve":
				request := activities.ResolveRequest{
					JobKey:        key,
					RecordRefusal: rapid.Bool().Draw(t, "record"),
					Resolution: resolution(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id"),
						rapid.SampledFrom(contract.StateDeadLetter.Actions()).Draw(t, "action")),
				}
				if rapid.IntRange(0, 9).Draw(t, "invalid") == 0 {
					request.Invalid = "it breaks a rule"
				}
				if answer, err := w.jobs.ResolveJob(ctx, request); !absent(err) {
					verdict, why, outcome, state := m.resolve(request)
					check(verdict, why, answer.JobAnswer, err)
					require.Equal(t, outcome, answer.Outcome)
					require.Equal(t, state, answer.State)
					require.Equal(t, outcome == contract.ResolutionRefused, answer.Refusal != "")
				}
			case "event":
				detail := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "detail")
				verdict, err := w.jobs.RecordJobEvent(ctx, activities.EventRequest{
					JobKey: key, Kind: activities.EventProbeAnswered, Attempt: 1, Detail: detail,
				})
				require.NoError(t, err)
				expected := activities.Applied
				if m.row.State == "" {
					expected = activities.Refused
				} else if m.lines[detail] {
					expected = activities.Already
				}
				require.Equal(t, expected, verdict)
				m.lines[detail] = m.lines[detail] || m.row.State != ""
			}
		}
		require.Equal(t, m.balance, w.balance(key.Tenant, account))
		require.ElementsMatch(t, m.entries, w.entries(key))
	})
	w.assertSound()
}
