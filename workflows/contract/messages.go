package contract

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Verdict is the answer to a submission.
type Verdict string

const (
	// VerdictCharged: the account was charged for this submission.
	VerdictCharged Verdict = "charged"
	// VerdictAlready: the same job was charged before; nothing moved now.
	VerdictAlready Verdict = "already"
	// VerdictDeclined: the account cannot pay, so nothing was started.
	VerdictDeclined Verdict = "declined"
)

// ChargeVerdict is the answer of await-charge. Balance is the account's, in its smallest unit, when the verdict was
// taken (0 for an unknown account); Reason is one line for people.
type ChargeVerdict struct {
	Verdict Verdict `json:"verdict"`
	Balance int64   `json:"balance"`
	Reason  string  `json:"reason"`
}

// WorkMeta is the second argument of a work activity and the only one of a probe.
type WorkMeta struct {
	Tenant string `json:"tenant"`
	JobID  string `json:"jobId"`
	// Attempt counts from 1. A probe is given the number of the latest attempt.
	Attempt int `json:"attempt"`
	// PromiseDeadline is when the promise passes, RFC 3339 in UTC, by Postgres' clock.
	PromiseDeadline string `json:"promiseDeadline"`
	// IdempotencyKey changes after an attempt that definitely failed and stays after one whose outcome is unknown.
	IdempotencyKey string `json:"idempotencyKey"`
}

// ProbeState is what a probe saw.
type ProbeState string

// The answers of a probe.
const (
	ProbeSucceeded ProbeState = "succeeded"
	ProbeFailed    ProbeState = "failed"
	ProbeRunning   ProbeState = "running"
	ProbeUnknown   ProbeState = "unknown"
)

// ProbeAnswer is what a probe activity returns. Output counts only where the state is succeeded.
type ProbeAnswer struct {
	State  ProbeState      `json:"state"`
	Output json.RawMessage `json:"output,omitempty"`
}

// OutcomeState is how an attempt ended.
type OutcomeState string

// The outcomes that may be reported from outside.
const (
	OutcomeSucceeded OutcomeState = "succeeded"
	OutcomeFailed    OutcomeState = "failed"
)

// Outcome is the payload of the outcome signal: work reported from outside.
type Outcome struct {
	// Attempt that ended; 0 or absent means the one in flight.
	Attempt int             `json:"attempt,omitzero"`
	State   OutcomeState    `json:"state"`
	Output  json.RawMessage `json:"output,omitempty"`
	Error   string          `json:"error,omitempty"`
	// Source says who reports, for the reader of a timeline.
	Source string `json:"source,omitempty"`
}

// ParseOutcome reads and checks an outcome report. Its output may be longer than MaxOutputBytes (it is then left
// out of what is stored); the error has code BadInput.
func ParseOutcome(raw []byte) (Outcome, error) {
	var o Outcome
	if err := Decode(raw, 2<<20, &o); err != nil {
		return Outcome{}, err
	}
	var p problems
	if o.State != OutcomeSucceeded && o.State != OutcomeFailed {
		p.add("state", fmt.Sprintf("must be \"succeeded\" or \"failed\", not %q", clip(string(o.State), 40)))
	}
	if o.Attempt < 0 || o.Attempt > math.MaxInt32 {
		p.add("attempt", fmt.Sprintf("must be between 1 and %d, or 0 for the one in flight, not %d", math.MaxInt32, o.Attempt))
	}
	o.Error, o.Source = Clip(o.Error, MaxReasonBytes), Clip(o.Source, 200)
	return o, p.err(CodeBadInput)
}

// Resolution is the payload of resolve: a person's decision about a job.
type Resolution struct {
	// ID makes the decision repeatable: the same id and content is answered as the first time.
	ID     string `json:"id"`
	Action Action `json:"action"`
	// Operator decided, and Reason says why.
	Operator string `json:"operator"`
	Reason   string `json:"reason"`
	// Evidence says how it is known that the customer has the result; deliver needs it.
	Evidence string `json:"evidence,omitempty"`
	// Attempts is how many more attempts a retry grants, 1 to 100; absent means 1.
	Attempts int `json:"attempts,omitzero"`
}

// ParseResolution reads and checks a person's decision. The error has code BadResolution and names each field at
// fault; the Resolution then holds what could be read.
func ParseResolution(raw []byte) (Resolution, error) {
	var r Resolution
	if fault := decode(raw, MaxInputBytes, &r); fault != nil {
		return r, problems{*fault}.err(CodeBadResolution)
	}
	return r, r.Check()
}

// Check applies the rules that need no look at the job, and fills in the default of Attempts.
func (r *Resolution) Check() error {
	var p problems
	checkID(&p, "id", &r.ID)
	if !slices.Contains(StateDeadLetter.Actions(), r.Action) {
		p.add("action", fmt.Sprintf("must be retry, deliver or write_off, not %q", clip(string(r.Action), 40)))
	}
	for _, text := range []struct{ field, value string }{{"operator", r.Operator}, {"reason", r.Reason}} {
		if strings.TrimSpace(text.value) == "" {
			p.add(text.field, "is missing")
		}
		checkText(&p, text.field, text.value, MaxReasonBytes)
	}
	checkText(&p, "evidence", r.Evidence, MaxReasonBytes)
	if r.Action == ActionDeliver && strings.TrimSpace(r.Evidence) == "" {
		p.add("evidence", "is missing: deliver needs it")
	}
	switch {
	case r.Action == ActionRetry && r.Attempts == 0:
		r.Attempts = 1
	case r.Action == ActionRetry && (r.Attempts < 1 || r.Attempts > 100):
		p.add("attempts", fmt.Sprintf("must be between 1 and 100, not %d", r.Attempts))
	case r.Action != ActionRetry && r.Attempts != 0:
		p.add("attempts", "goes with retry only")
	}
	return p.err(CodeBadResolution)
}

// ResolutionAnswer is what resolve answers: how the decision with this id went, and the job's state right after it.
type ResolutionAnswer struct {
	ID      string   `json:"id"`
	Outcome string   `json:"outcome"`
	State   JobState `json:"state"`
}

// Outcomes of a resolution.
const (
	ResolutionApplied = "applied"
	ResolutionRefused = "refused"
)

// Money is what a job has moved so far, each amount not negative, in the account's smallest unit. The account's own
// view is charged counted down, refunded up and reclaimed down.
type Money struct {
	Charged   int64 `json:"charged"`
	Refunded  int64 `json:"refunded"`
	Reclaimed int64 `json:"reclaimed"`
}

// MoneyOf returns what a charged job of this cost has moved.
func MoneyOf(cost int64, refunded, reclaimed bool) Money {
	money := Money{Charged: cost}
	if refunded {
		money.Refunded = cost
	}
	if reclaimed {
		money.Reclaimed = cost
	}
	return money
}

// Net is what the customer has paid in the end: charged − refunded + reclaimed.
func (m Money) Net() int64 { return m.Charged - m.Refunded + m.Reclaimed }

// JobStatus is what the status query answers.
type JobStatus struct {
	State JobState `json:"state"`
	Money
	// Attempt is the number of the attempt in flight, or of the last one that ended; 0 before the first.
	Attempt int `json:"attempt"`
	// WaitsFor says in words what happens next, or which decision the job waits for.
	WaitsFor string `json:"waitsFor"`
	// Actions lists what a person can decide now.
	Actions []Action `json:"actions"`
	// RefundID is the channel refund by which the job's refund left, Note why it did not and the credits stay.
	RefundID string `json:"refundId,omitempty"`
	Note     string `json:"note,omitempty"`
}

// JobResult is what a MeteredJob run returns.
type JobResult struct {
	JobID string   `json:"jobId"`
	State JobState `json:"state"`
	Money
	// Net is Money.Net.
	Net      int64 `json:"net"`
	Attempts int   `json:"attempts"`
	// Late is true where the job was delivered after its refund, which was then reclaimed.
	Late bool `json:"late"`
	// Output is the work's result, null where there is none.
	Output json.RawMessage `json:"output"`
	Reason string          `json:"reason"`
}
