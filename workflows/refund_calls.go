package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// refundActivities names the activities; the worker's registered instance is what runs.
var refundActivities *activities.Refunds

func readRefund(ctx workflow.Context, key contract.RefundKey) (row activities.RefundRow, err error) {
	err = workflow.ExecuteLocalActivity(moneyCall(ctx, "read the refund"), refundActivities.ReadRefund, key).Get(ctx, &row)
	return row, err
}

// applyNotice holds a notice against the row and obeys that. What the row does not say, the channel is asked about.
func (r *channelRefund) applyNotice(ctx workflow.Context, notice contract.ChannelNotice) {
	request := activities.NoticeRequest{RefundKey: r.key, Notice: notice}
	heard := ask(ctx, r.calls, "hold the channel's notice against the row", refundActivities.ApplyNotice, request,
		func(heard activities.AppliedNotice) { r.obey(ctx, heard.RefundRow) })
	if !heard.News {
		return
	}
	if err := workflow.ExecuteActivity(followCall(ctx, r.row), refundActivities.LookUpRefund, r.key).Get(ctx, nil); err != nil {
		workflow.GetLogger(ctx).Error("A refund could not be looked up after a notice", "error", err)
	}
	// A decision may have been taken meanwhile.
	r.reread(ctx)
}

// resolveRefund takes a decision to Postgres and obeys the row. A decision that goes on with the refund ends the waiting for
// a person, and the activity that follows it begins anew.
func (r *channelRefund) resolveRefund(
	ctx workflow.Context, request activities.ResolveRefundRequest,
) activities.ResolveRefundAnswer {
	request.RefundKey = r.key
	return ask(ctx, r.calls, "decision "+request.Resolution.ID, refundActivities.ResolveRefund, request, func(answer activities.ResolveRefundAnswer) {
		// Applied or already so: the answer to the call that applied it may have been lost.
		if answer.Outcome == contract.ResolutionApplied {
			r.gaveUp = false
			r.stopFollowing()
		}
		r.tellDecision(ctx, request, answer)
		r.obey(ctx, answer.Row)
		r.stirred = true
	})
}
