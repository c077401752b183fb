package workflows

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// book is a database in memory: the guards of schema/queries, one method each, with the same verdicts on the same rows.
type book struct {
	mu       sync.Mutex
	now      func() time.Time
	balances map[string]int64
	// orders has the account of each order.
	orders map[string]string
	jobs   map[activities.JobKey]*bookedJob
}

// bookedJob is a job's row with everything that was written beside it.
type bookedJob struct {
	account, fingerprint, spec string
	cost                       int64
	state                      contract.JobState
	refunded, reclaimed        bool
	attempts, granted          int
	keyAttempt                 int
	cancel                     bool
	reason, lastError          string
	output                     *string
	created                    time.Time
	entries                    []bookedEntry
	events                     []bookedEvent
	resolutions                map[string]bookedResolution
	// source is the state of the channel refund by which the job's refund left, empty for none.
	source contract.RefundState
}

type bookedEntry struct {
	kind   string
	amount int64
}

type bookedEvent struct {
	kind    string
	attempt int
	detail  string
}

type bookedResolution struct {
	content          contract.Resolution
	outcome, refusal string
	state            contract.JobState
}

func newBook(now func() time.Time) *book {
	return &book{now: now, balances: map[string]int64{}, orders: map[string]string{}, jobs: map[activities.JobKey]*bookedJob{}}
}

func (b *book) row(j *bookedJob) activities.JobRow {
	return activities.JobRow{
		State: j.state, Cost: j.cost, Refunded: j.refunded, Reclaimed: j.reclaimed, Attempts: j.attempts,
		Granted: j.granted, KeyAttempt: j.keyAttempt, CancelRequested: j.cancel,
		Reason: j.reason[:min(len(j.reason), 200)], CreatedAt: j.created, Age: b.now().Sub(j.created),
	}
}

func (b *book) answer(j *bookedJob, verdict activities.Verdict, why string) activities.JobAnswer {
	return activities.JobAnswer{Verdict: verdict, Why: why, Row: b.row(j)}
}

func (b *book) move(j *bookedJob, kind string, amount int64) {
	if amount != 0 {
		b.balances[j.account] += amount
		j.entries = append(j.entries, bookedEntry{kind, amount})
	}
}

func (j *bookedJob) tell(kind string, attempt int, detail string) {
	j.events = append(j.events, bookedEvent{kind, attempt, detail})
}

func (b *book) charge(r activities.ChargeRequest) activities.ChargeAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Source.OrderID != "" && b.orders[r.Source.OrderID] != r.Source.Account {
		why := activities.WhyOtherAccount
		if b.orders[r.Source.OrderID] == "" {
			why = activities.WhyUnknownOrder
		}
		return activities.ChargeAnswer{
			JobAnswer: activities.JobAnswer{Verdict: activities.Refused, Why: why}, Ladder: r.Ladder,
		}
	}
	if j, known := b.jobs[r.JobKey]; known {
		verdict, why := activities.Already, ""
		if j.fingerprint != r.Fingerprint {
			verdict, why = activities.Refused, activities.WhyConflict
		}
		return activities.ChargeAnswer{
			JobAnswer: b.answer(j, verdict, why), Balance: b.balances[j.account], SameSpec: j.spec == r.Spec, Ladder: r.Ladder,
		}
	}
	balance, payer := b.balances[r.Account]
	declined := func(why string) activities.ChargeAnswer {
		return activities.ChargeAnswer{
			JobAnswer: activities.JobAnswer{
				Verdict: activities.Refused, Why: why, Row: activities.JobRow{KeyAttempt: 1, CreatedAt: b.now()},
			}, Balance: balance, Ladder: r.Ladder,
		}
	}
	switch {
	case !payer:
		return declined(activities.WhyUnknownAccount)
	case balance < 0:
		return declined(activities.WhyDebt)
	case balance < r.Cost:
		return declined(activities.WhyInsufficientCredits)
	}
	j := &bookedJob{
		account: r.Account, fingerprint: r.Fingerprint, spec: r.Spec, cost: r.Cost, state: contract.StateRunning,
		keyAttempt: 1, created: b.now(), resolutions: map[string]bookedResolution{},
	}
	b.jobs[r.JobKey] = j
	b.move(j, "charge", -r.Cost)
	return activities.ChargeAnswer{
		JobAnswer: b.answer(j, activities.Applied, ""), Balance: b.balances[r.Account], Ladder: r.Ladder,
	}
}

func (j *bookedJob) count(e activities.EndedAttempt) {
	if e.Attempt > 0 {
		kind := "attempt_unknown"
		if e.Failed {
			kind = "attempt_failed"
		}
		if e.Attempt > j.attempts || e.Failed && e.Attempt >= j.keyAttempt {
			j.tell(kind, e.Attempt, e.Error)
		}
		if e.Attempt > j.attempts {
			j.lastError = e.Error
		}
	}
	j.attempts = max(j.attempts, e.Attempt)
	if e.Failed {
		j.keyAttempt = max(j.keyAttempt, e.Attempt+1)
	}
}

func (b *book) refund(r activities.RefundRequest) activities.JobAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[r.JobKey]
	verdict, why := activities.Applied, ""
	switch {
	case j.refunded:
		verdict = activities.Already
	case j.state == contract.StateSucceeded:
		verdict, why = activities.Refused, activities.WhyDelivered
	}
	if verdict == activities.Applied {
		b.move(j, "refund", j.cost)
	}
	if verdict != activities.Refused && j.state.Open() {
		if verdict == activities.Applied {
			j.reason = r.Reason
		}
		j.refunded = true
		j.count(r.Ended)
		if r.Cancel && !j.cancel {
			j.tell("cancel_requested", 0, "")
		}
		j.cancel = j.cancel || r.Cancel
	}
	return b.answer(j, verdict, why)
}

func (b *book) settle(r activities.SettleRequest) activities.JobAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[r.JobKey]
	if j.state == contract.StateSucceeded {
		return b.answer(j, activities.Already, "")
	}
	b.deliver(j, r.Reason)
	j.attempts = max(j.attempts, r.Attempt)
	j.output = r.Output
	return b.answer(j, activities.Applied, "")
}

func (b *book) deliver(j *bookedJob, reason string) {
	if j.refunded {
		b.move(j, "reclaim", -j.cost)
		j.reclaimed = true
	}
	j.state, j.reason = contract.StateSucceeded, reason
}

func (b *book) record(r activities.RecordRequest) activities.JobAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[r.JobKey]
	switch {
	case j.attempts >= r.Ended.Attempt && (!r.Ended.Failed || j.keyAttempt > r.Ended.Attempt):
		return b.answer(j, activities.Already, "")
	case j.state != contract.StateRunning:
		return b.answer(j, activities.Refused, activities.WhyNotRunning)
	}
	j.count(r.Ended)
	return b.answer(j, activities.Applied, "")
}

func (b *book) park(r activities.ParkRequest) activities.JobAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[r.JobKey]
	switch {
	case j.state == contract.StateDeadLetter:
		return b.answer(j, activities.Already, "")
	case j.state != contract.StateRunning:
		return b.answer(j, activities.Refused, activities.WhyNotRunning)
	case !j.refunded:
		return b.answer(j, activities.Refused, activities.WhyNotRefunded)
	case j.attempts < r.MaxAttempts+j.granted:
		return b.answer(j, activities.Refused, activities.WhyAttemptsLeft)
	}
	j.state, j.reason = contract.StateDeadLetter, r.Reason
	j.tell("dead_letter", j.attempts, r.Reason)
	return b.answer(j, activities.Applied, "")
}

func (b *book) close(r activities.CloseRequest) activities.JobAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[r.JobKey]
	switch {
	case j.state == r.State:
		return b.answer(j, activities.Already, "")
	case !j.state.Open():
		return b.answer(j, activities.Refused, activities.WhyClosed)
	}
	if !j.refunded {
		b.move(j, "refund", j.cost)
		j.refunded = true
	}
	r.Ended.Failed = r.Ended.Attempt > 0
	j.count(r.Ended)
	j.state, j.reason = r.State, r.Reason
	j.tell("closed", 0, string(r.State))
	return b.answer(j, activities.Applied, "")
}

func (b *book) resolve(r activities.ResolveRequest) activities.ResolveAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, d := b.jobs[r.JobKey], r.Resolution
	refuse := func(why, refusal string) activities.ResolveAnswer {
		if r.RecordRefusal && why != activities.WhyIDReused {
			j.resolutions[d.ID] = bookedResolution{d, contract.ResolutionRefused, refusal, j.state}
		}
		return activities.ResolveAnswer{
			JobAnswer: b.answer(j, activities.Refused, why), Outcome: contract.ResolutionRefused, State: j.state, Refusal: refusal,
		}
	}
	if prior, known := j.resolutions[d.ID]; known {
		if prior.content != d {
			return refuse(activities.WhyIDReused, "the resolution id stands for another decision")
		}
		return activities.ResolveAnswer{
			JobAnswer: b.answer(j, activities.Already, ""), Outcome: prior.outcome, State: prior.state, Refusal: prior.refusal,
		}
	}
	if r.Invalid != "" {
		return refuse(activities.WhyInvalid, r.Invalid)
	}
	if !slices.Contains(j.state.Actions(), d.Action) {
		return refuse(activities.WhyWrongState, fmt.Sprintf("%s is not possible while the job is %s", d.Action, j.state))
	}
	switch d.Action {
	case contract.ActionRetry:
		j.state, j.granted = contract.StateRunning, j.granted+d.Attempts
	case contract.ActionDeliver:
		b.deliver(j, "delivered, says "+d.Operator)
	default:
		if !j.refunded {
			b.move(j, "refund", j.cost)
		}
		j.refunded, j.state = true, contract.StateWrittenOff
	}
	j.reason = string(d.Action) + " by " + d.Operator
	j.resolutions[d.ID] = bookedResolution{d, contract.ResolutionApplied, "", j.state}
	return activities.ResolveAnswer{
		JobAnswer: b.answer(j, activities.Applied, ""), Outcome: contract.ResolutionApplied, State: j.state,
	}
}

// moveSource sends a job's refund on through its order, or calls back what was not sent of a job that was delivered.
func (b *book) moveSource(key activities.JobKey, source activities.SourceOrder) (moved activities.SourceRefund) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.jobs[key]
	switch {
	case source.OrderID == "":
		return moved
	case j.source == contract.RefundAccepted && j.state == contract.StateSucceeded:
		j.source = contract.RefundCanceled
		b.balances[j.account] += j.cost
	case j.source == "" && j.refunded && j.state != contract.StateSucceeded && j.cost > 0:
		if b.balances[j.account] < j.cost {
			moved.Refusal = fmt.Sprintf("the credits stay on the account: it has only %d of them", b.balances[j.account])
			return moved
		}
		j.source = contract.RefundAccepted
		b.balances[j.account] -= j.cost
	}
	if j.source != "" {
		moved.RefundID = contract.JobRefundNumber(key.Tenant, key.JobID)
		moved.Withdrawn = j.source == contract.RefundCanceled
	}
	return moved
}

func (b *book) event(r activities.EventRequest) activities.Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, known := b.jobs[r.JobKey]
	if !known {
		return activities.Refused
	}
	line := bookedEvent{r.Kind, r.Attempt, r.Detail}
	if slices.Contains(j.events, line) {
		return activities.Already
	}
	j.events = append(j.events, line)
	return activities.Applied
}

// broken names the first law of money that the job's row and entries break, or returns "".
func (b *book) broken(key activities.JobKey) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, known := b.jobs[key]
	if !known {
		return ""
	}
	sum, seen := int64(0), map[string]int{}
	for _, e := range j.entries {
		sum += e.amount
		if seen[e.kind]++; seen[e.kind] > 1 {
			return "two entries of type " + e.kind
		}
	}
	kept := j.state == contract.StateSucceeded || j.state == contract.StateRunning && !j.refunded
	switch {
	case kept && sum != -j.cost:
		return fmt.Sprintf("a job that is %s (refunded %v) moved %d, not its cost of %d", j.state, j.refunded, sum, j.cost)
	case !kept && sum != 0:
		return fmt.Sprintf("a job that is %s moved %d in all", j.state, sum)
	case j.reclaimed != (j.refunded && j.state == contract.StateSucceeded):
		return "reclaimed without a delivered refund, or the other way about"
	case j.state == contract.StateDeadLetter && !j.refunded:
		return "a dead letter holds the customer's money"
	}
	return ""
}
