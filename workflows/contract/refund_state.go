package contract

import (
	"fmt"
	"slices"
)

// RefundState is where a channel refund stands. The first three are open, the others final, except that succeeded may
// become reversed where its channel is known to take refunds back.
type RefundState string

// The states of a channel refund.
const (
	// RefundAccepted: committed here, not sent; its part of the order is reserved.
	RefundAccepted RefundState = "accepted"
	// RefundUnknown: sending began and no acknowledgement came; the money may have gone back.
	RefundUnknown RefundState = "unknown"
	// RefundPending: the channel acknowledged it and gave its reference.
	RefundPending RefundState = "pending"
	// RefundSucceeded: the channel confirmed it.
	RefundSucceeded RefundState = "succeeded"
	// RefundFailed: the channel confirmed that nothing moved and nothing will; the reservation is released.
	RefundFailed RefundState = "failed"
	// RefundCanceled: withdrawn before it was sent; the reservation is released.
	RefundCanceled RefundState = "canceled"
	// RefundReversed: it succeeded and the bank later took it back; the reservation is released and an issue opened.
	RefundReversed RefundState = "reversed"
)

// Open says whether the refund still waits for its end.
func (s RefundState) Open() bool {
	return s == RefundAccepted || s == RefundUnknown || s == RefundPending
}

// RefundAction is a decision that a person takes about a channel refund.
type RefundAction string

const (
	// ActionSettle records, with evidence, that the channel sent the money back.
	ActionSettle RefundAction = "settle"
	// ActionRelease records, with evidence, that no money moved and none will: the credits come back.
	ActionRelease RefundAction = "release"
	// ActionResend sends the same refund number again, while the channel honours it.
	ActionResend RefundAction = "resend"
	// ActionExtend goes on looking it up for another period.
	ActionExtend RefundAction = "extend"
	// ActionCancel withdraws a refund that was not sent.
	ActionCancel RefundAction = "cancel"
)

// RefundActions lists every decision that there is about a channel refund.
func RefundActions() []RefundAction {
	return []RefundAction{ActionSettle, ActionRelease, ActionResend, ActionExtend, ActionCancel}
}

// Refuses says in words that the action is not possible in this state and what is, or nothing where it is possible.
func (s RefundState) Refuses(action RefundAction) string {
	actions := s.Actions()
	if slices.Contains(actions, action) {
		return ""
	}
	possible := "nothing"
	if len(actions) > 0 {
		possible = fmt.Sprint(actions)
	}
	return fmt.Sprintf("%s is not possible while the refund is %s: possible now: %s", action, s, possible)
}

// Actions lists what a person can decide in this state.
func (s RefundState) Actions() []RefundAction {
	switch s {
	case RefundAccepted:
		return []RefundAction{ActionCancel}
	case RefundUnknown:
		return []RefundAction{ActionSettle, ActionRelease, ActionResend, ActionExtend}
	case RefundPending:
		return []RefundAction{ActionSettle, ActionRelease, ActionExtend}
	default:
		return []RefundAction{}
	}
}
