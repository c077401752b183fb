package workflows

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// listen registers every handler, so that the Web UI lists them with their meaning from the first moment on.
func (r *channelRefund) listen(ctx workflow.Context, badInput error) error {
	r.notices = workflow.GetSignalChannelWithOptions(ctx, contract.ChannelNoticeSignal, workflow.SignalChannelOptions{
		Description: "The channel sent something: the row is read, and the channel is asked where that does not say the same: " +
			`{"outcome":"pending|succeeded|failed"}`,
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

// status answers the query of this name.
func (r *channelRefund) status() contract.RefundStatus {
	row := r.row
	return contract.RefundFacts{
		State: row.State, Since: row.Updated, Amount: row.Amount, Currency: row.Currency, Credits: row.Credits,
		Channel: row.Channel, ChannelRef: row.ChannelRef, Sends: row.Sends, FirstSent: row.FirstSent,
		LastOutcome: row.LastOutcome, LastCode: row.LastCode, NextLook: row.NextLook, LookUntil: row.LookUntil,
		Schedule: r.schedule, ByPerson: row.EndedBy == activities.SourcePerson, Sending: r.following != nil, ResendDue: row.ResendDue, GaveUp: r.gaveUp,
		NeedsReview: row.NeedsReview, OpenIssues: row.OpenIssues, ClosedIssues: row.ClosedIssues,
	}.Status()
}
