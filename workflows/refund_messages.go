package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// listen registers every handler, so that the Web UI lists them with their meaning from the first moment on.
func (r *channelRefund) listen(ctx workflow.Context, badInput error) error {
	r.notices = workflow.GetSignalChannelWithOptions(ctx, contract.ChannelNoticeSignal, workflow.SignalChannelOptions{
		Description: "What the channel sent, once it is verified: " +
			`{"outcome":"pending|succeeded|failed","channelRef":"…","amount":1,"currency":"…","code":"…"}`,
	})
	r.resolutions = workflow.GetSignalChannelWithOptions(ctx, contract.ResolveMessage, workflow.SignalChannelOptions{
		Description: "A person's decision, each under an id of its own: " +
			`{"id":"…","action":"settle|release|resend|extend|cancel","operator":"who","approver":"second person",` +
			`"reason":"why","evidence":"…","channelRef":"…","amount":1}`,
	})
	if err := workflow.SetQueryHandlerWithOptions(ctx, contract.StatusQuery,
		func() (contract.RefundStatus, error) { return r.status(), nil },
		workflow.QueryHandlerOptions{
			Description: "Did it happen, what is known and since when, when is the channel asked next, what can a person do.",
		}); err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, contract.ResolveMessage, r.resolveByUpdate,
		workflow.UpdateHandlerOptions{
			Validator: func(_ workflow.Context, raw converter.RawValue) error {
				if badInput != nil {
					return refusal(badInput)
				}
				if _, err := contract.ParseRefundResolution(raw.Payload().GetData()); err != nil {
					return refusal(err)
				}
				return nil
			},
			Description: "A person's decision, as the signal of this name, answered with how it went.",
		})
}

func (r *channelRefund) resolveByUpdate(
	ctx workflow.Context, raw converter.RawValue,
) (contract.RefundResolutionAnswer, error) {
	own, _ := workflow.NewDisconnectedContext(ctx)
	decision, err := contract.ParseRefundResolution(raw.Payload().GetData())
	if err != nil {
		return contract.RefundResolutionAnswer{}, refusal(err)
	}
	if err := workflow.Await(own, func() bool { return r.known || r.missing != nil }); err != nil {
		return contract.RefundResolutionAnswer{}, err
	}
	if r.missing != nil {
		return contract.RefundResolutionAnswer{}, r.missing
	}
	answer := r.resolveRefund(own, activities.ResolveRefundRequest{Resolution: decision})
	if answer.Verdict == activities.Refused || answer.Outcome == contract.ResolutionRefused {
		return contract.RefundResolutionAnswer{}, refusal(
			contract.NewError(contract.CodeBadResolution, contract.RetryNewKey, answer.Refusal, nil))
	}
	return contract.RefundResolutionAnswer{ID: decision.ID, Outcome: answer.Outcome, State: answer.State}, nil
}

// collectMessages takes in every notice and decision that has arrived.
func (r *channelRefund) collectMessages(ctx workflow.Context) {
	var raw converter.RawValue
	for r.notices.ReceiveAsync(&raw) {
		notice, err := contract.ParseChannelNotice(raw.Payload().GetData())
		if err == nil {
			r.applyNotice(ctx, notice)
		} else {
			// What a channel means, its gateway has committed before it signals: the row says it.
			workflow.GetLogger(ctx).Warn("A notice cannot be read; the row is read instead", "error", err)
			r.reread(ctx)
		}
		raw = converter.RawValue{}
	}
	for r.resolutions.ReceiveAsync(&raw) {
		r.takeResolution(ctx, raw.Payload().GetData())
		raw = converter.RawValue{}
	}
}

func (r *channelRefund) takeResolution(ctx workflow.Context, data []byte) {
	decision, err := contract.ParseRefundResolution(data)
	request := activities.ResolveRefundRequest{Resolution: decision, RecordRefusal: true}
	if err != nil {
		request.Invalid = err.Error()
		request.Resolution = recordableRefundDecision(decision, data)
	}
	r.resolveRefund(ctx, request)
}

// recordableRefundDecision cuts a decision that breaks the contract down to what can be kept.
func recordableRefundDecision(d contract.RefundResolution, data []byte) contract.RefundResolution {
	d.ID = recordableID(d.ID, data)
	d.Action = contract.RefundAction(contract.Clip(string(d.Action), 200))
	for _, text := range []*string{&d.Operator, &d.Approver, &d.Reason, &d.Evidence} {
		*text = contract.Clip(*text, contract.MaxReasonBytes)
	}
	for _, text := range []*string{&d.Number, &d.ChannelRef, &d.Currency} {
		*text = contract.Clip(*text, 200)
	}
	return d
}

// status answers the query of this name, in the order in which a person asks.
func (r *channelRefund) status() contract.RefundStatus {
	row := r.row
	status := contract.RefundStatus{
		State: row.State, Since: row.Updated, NextLook: row.NextLook, LookUntil: row.LookUntil,
		NeedsReview: r.needsPerson(), Actions: row.State.Actions(), Amount: row.Amount, Currency: row.Currency,
		Credits: row.Credits, ChannelRef: row.ChannelRef,
	}
	if r.gaveUp || !row.State.Open() {
		status.NextLook, status.LookUntil = time.Time{}, time.Time{}
	}
	status.DidItHappen, status.Known = refundInWords(row, r.following != nil)
	switch {
	case !r.known:
		status.WaitsFor, status.Then = "its row", "it is sent"
	case !row.State.Open():
		status.WaitsFor, status.Then = "nothing", "nothing more: this is final"
	case r.gaveUp:
		status.WaitsFor = "a person's decision: resolve with " + actionsInWords(status.Actions)
		status.Then = "what the person decides"
	case row.State == contract.RefundAccepted:
		status.WaitsFor, status.Then = "being sent", "the channel is asked "+r.scheduleInWords()
	default:
		status.WaitsFor = "the channel's confirmation; it is asked " + r.scheduleInWords()
		status.Then = "a person is asked, unless the channel has confirmed by then"
	}
	return status
}

func (r *channelRefund) scheduleInWords() string {
	if r.schedule == "" {
		return "on its schedule"
	}
	return r.schedule
}

// actionsInWords lists what a person can choose from.
func actionsInWords(actions []contract.RefundAction) string {
	words := ""
	for i, action := range actions {
		switch {
		case i > 0 && i == len(actions)-1:
			words += " or "
		case i > 0:
			words += ", "
		}
		words += string(action)
	}
	return words
}

// refundInWords says whether the money went back and how that is known. While an activity sends the refund, it may be
// further than the row says.
func refundInWords(row activities.RefundRow, following bool) (happened, known string) {
	switch row.State {
	case contract.RefundAccepted:
		if following {
			return "Not as far as is known: it is accepted here and on its way to the channel.",
				"The channel has not answered yet."
		}
		return "No: it is accepted here and not sent yet.", "Nothing was sent to the channel."
	case contract.RefundUnknown:
		return "Unknown: it was sent, and no acknowledgement came back.",
			fmt.Sprintf("Sent %s, first at %s; the channel last said: %s.", times(row.Sends), row.FirstSent.Format(time.RFC3339),
				said(row))
	case contract.RefundPending:
		return "Not yet: the channel has taken it on.", fmt.Sprintf("The channel's reference is %s; it last said: %s.",
			row.ChannelRef, said(row))
	case contract.RefundSucceeded:
		return "Yes: the channel confirmed it.", "The channel's reference is " + row.ChannelRef + "."
	case contract.RefundFailed:
		return "No: the channel confirmed that no money moved and none will.", "The channel said: " + said(row) + "."
	case contract.RefundCanceled:
		return "No: it was withdrawn before it was sent.", "Nothing was sent to the channel."
	case contract.RefundReversed:
		return "It did, and the bank took it back later.", "The channel said: " + said(row) + "."
	default:
		return "Unknown: the refund has not been read yet.", ""
	}
}

func said(row activities.RefundRow) string {
	if row.LastCode == "" {
		return row.LastOutcome
	}
	return row.LastOutcome + " (" + row.LastCode + ")"
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
