package workflows

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// What the channel of the tests declares.
const (
	firstLook  = 10 * time.Second
	pause      = 30 * time.Second
	givesUp    = time.Hour
	numberLife = 3 * time.Hour
	reference  = "re_1"
)

// refundBook is a refund's row in memory, moved by the rules of schema/queries and of FollowRefund.
type refundBook struct {
	mu  sync.Mutex
	now func() time.Time
	// missing says that no such refund was ever accepted.
	missing bool
	row     activities.RefundRow
	resend  bool
	// reversible says that the channel is known to take refunds back.
	reversible  bool
	resolutions map[string]bookedRefundResolution
	// ends lists the final states that the refund came to, in their order.
	ends []contract.RefundState
}

type bookedRefundResolution struct {
	content          contract.RefundResolution
	outcome, refusal string
	state            contract.RefundState
}

func newRefundBook(now func() time.Time, accepted time.Time) *refundBook {
	return &refundBook{
		now: now, reversible: true, resolutions: map[string]bookedRefundResolution{},
		row: activities.RefundRow{
			State: contract.RefundAccepted, OrderID: "o1", Account: "team", Channel: "bank", Amount: 1250, Currency: "eur",
			Credits: 40, Reason: "the customer asked", Updated: accepted,
		},
	}
}

func (b *refundBook) read() (activities.RefundRow, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.missing {
		return activities.RefundRow{}, temporal.NewNonRetryableApplicationError("there is none", activities.ErrorNoRefund, nil)
	}
	return b.row, nil
}

func (b *refundBook) move(to contract.RefundState, outcome, code string) {
	row := &b.row
	if to != row.State || outcome != row.LastOutcome || code != row.LastCode {
		row.Updated = b.now()
	}
	if to != row.State && !to.Open() {
		row.NextLook, b.resend = time.Time{}, false
		b.ends = append(b.ends, to)
	}
	row.State, row.LastOutcome, row.LastCode = to, outcome, code
}

// apply takes one observation in.
func (b *refundBook) apply(outcome channel.Outcome, code, ref string) activities.Verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.observe(outcome, code, ref)
}

func (b *refundBook) observe(outcome channel.Outcome, code, ref string) activities.Verdict {
	row, was, to := &b.row, b.row.State, b.row.State
	underWay := was == contract.RefundUnknown || was == contract.RefundPending
	switch {
	case outcome == channel.OutcomePending && was == contract.RefundUnknown:
		to = contract.RefundPending
	case outcome == channel.OutcomeSucceeded && underWay:
		to, row.NeedsReview = contract.RefundSucceeded, false
	case outcome == channel.OutcomeFailed && underWay:
		to, row.NeedsReview = contract.RefundFailed, false
	case outcome == channel.OutcomeFailed && was == contract.RefundSucceeded && b.reversible:
		to, row.NeedsReview = contract.RefundReversed, true
	case outcome == channel.OutcomeFailed && was == contract.RefundSucceeded,
		outcome == channel.OutcomeSucceeded && was == contract.RefundFailed,
		outcome != channel.OutcomeUnknown && (was == contract.RefundAccepted || was == contract.RefundCanceled):
		row.NeedsReview = true
		return activities.Refused
	}
	if row.ChannelRef == "" {
		row.ChannelRef = ref
	}
	b.move(to, string(outcome), code)
	if to == was {
		return activities.Already
	}
	return activities.Applied
}

// hadItsTime says whether it is for a person to decide.
func (b *refundBook) hadItsTime() bool {
	return !b.row.LookUntil.IsZero() && !b.now().Before(b.row.LookUntil)
}

// begin says which call of the channel is due, if any. Sending is committed before it.
func (b *refundBook) begin() (call string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := &b.row
	switch {
	case !row.State.Open():
		return ""
	case row.State == contract.RefundAccepted || row.State == contract.RefundUnknown && b.resend:
		b.send()
		return "submit"
	case b.now().Before(row.NextLook) && !b.hadItsTime():
		return ""
	}
	row.Looks, row.NextLook = row.Looks+1, b.now().Add(pause)
	return "look"
}

func (b *refundBook) send() {
	row := &b.row
	if row.Sends++; row.Sends == 1 {
		row.FirstSent, row.LookUntil = b.now(), b.now().Add(givesUp)
	}
	row.NextLook, b.resend = b.now().Add(firstLook), false
	b.move(contract.RefundUnknown, "sending", "")
}

// again begins sending once more what the channel does not know, while it honours the number.
func (b *refundBook) again() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.row.State != contract.RefundUnknown || b.hadItsTime() || b.now().Sub(b.row.FirstSent) >= numberLife {
		return false
	}
	b.send()
	return true
}

// answer is what FollowRefund says once its step is done.
func (b *refundBook) answer(q activities.FollowRequest) (activities.FollowAnswer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := b.row
	if row.State.Open() {
		row.Schedule = "every 30s"
	}
	switch {
	case !row.State.Open() || (row.State != q.Known || row.NeedsReview != q.NeedsReview) && !b.hadItsTime():
		return activities.FollowAnswer{Row: row}, nil
	case b.hadItsTime():
		if !b.row.NeedsReview {
			b.row.NeedsReview, b.row.Updated = true, b.now()
		}
		row.NeedsReview = true
		return activities.FollowAnswer{Row: row, GaveUp: true}, nil
	}
	next := row.NextLook
	if row.LookUntil.Before(next) {
		next = row.LookUntil
	}
	return activities.FollowAnswer{}, temporal.NewApplicationErrorWithOptions("not due", activities.ErrorNotDue,
		temporal.ApplicationErrorOptions{
			NextRetryDelay: max(next.Sub(b.now()), 10*time.Millisecond), Category: temporal.ApplicationErrorCategoryBenign,
		})
}

func (b *refundBook) resolve(q activities.ResolveRefundRequest) activities.ResolveRefundAnswer {
	b.mu.Lock()
	defer b.mu.Unlock()
	prior, known := b.resolutions[q.Resolution.ID]
	row := b.row
	d, answer := q.Resolution, activities.ResolveRefundAnswer{
		Verdict: activities.Applied, Outcome: contract.ResolutionApplied, State: row.State, Row: row,
	}
	refuse := func(why, refusal string) activities.ResolveRefundAnswer {
		answer.Verdict, answer.Why, answer.Outcome, answer.Refusal = activities.Refused, why, contract.ResolutionRefused, refusal
		if q.RecordRefusal && why != activities.WhyIDReused {
			b.resolutions[d.ID] = bookedRefundResolution{d, answer.Outcome, refusal, row.State}
		}
		return answer
	}
	switch {
	case known && prior.content == d:
		answer.Verdict, answer.Outcome, answer.Refusal = activities.Already, prior.outcome, prior.refusal
		answer.State = prior.state
		return answer
	case known:
		return refuse(activities.WhyIDReused, "the resolution id stands for another decision")
	case q.Invalid != "":
		return refuse(activities.WhyInvalid, q.Invalid)
	case !slices.Contains(row.State.Actions(), d.Action):
		return refuse(activities.WhyWrongState, fmt.Sprintf("%s is not possible while the refund is %s", d.Action, row.State))
	case d.Amount != 0 && d.Amount != row.Amount:
		return refuse(activities.WhyEvidenceMismatch, "the amount is not this refund's")
	case d.Action == contract.ActionResend && b.now().Sub(row.FirstSent) >= numberLife:
		return refuse(activities.WhyNumberExpired, "sent again it could refund twice")
	}
	b.decide(d)
	answer.Row = b.row
	answer.State = answer.Row.State
	b.resolutions[d.ID] = bookedRefundResolution{d, answer.Outcome, "", answer.State}
	return answer
}

func (b *refundBook) decide(d contract.RefundResolution) {
	switch d.Action {
	case contract.ActionSettle:
		b.observe(channel.OutcomeSucceeded, "settle", d.ChannelRef)
	case contract.ActionRelease:
		b.observe(channel.OutcomeFailed, "release", "")
	case contract.ActionCancel:
		b.row.NeedsReview = false
		b.move(contract.RefundCanceled, "canceled", "")
	default:
		b.row.NeedsReview, b.row.NextLook, b.row.LookUntil = false, b.now(), b.now().Add(givesUp)
		b.resend, b.row.Updated = d.Action == contract.ActionResend, b.now()
	}
}

// broken names the first law that the refund's story breaks, or returns "".
func (b *refundBook) broken() string {
	reversed := []contract.RefundState{contract.RefundSucceeded, contract.RefundReversed}
	switch {
	case len(b.ends) > 1 && !slices.Equal(b.ends, reversed):
		return fmt.Sprintf("a refund that ended more than once: %v", b.ends)
	case slices.Contains(b.ends, contract.RefundCanceled) && b.row.Sends > 0:
		return "a refund that was sent was withdrawn"
	case b.row.State.Open() != (len(b.ends) == 0):
		return "a refund that is open and final"
	}
	return ""
}
