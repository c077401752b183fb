package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
)

// jobActivities names the activities; the worker's registered instance is what runs.
var jobActivities *activities.Jobs

// call runs one money call of a job and obeys the row that it answers.
func call[A any](
	ctx workflow.Context, j *meteredJob, summary string, activity any, request any, stands func(A) activities.JobAnswer,
) A {
	return ask(ctx, j.calls, summary, activity, request, func(answer A) {
		now := stands(answer)
		j.obey(ctx, now.Row, now.Source)
	})
}

func itself(a activities.JobAnswer) activities.JobAnswer { return a }

func (j *meteredJob) chargeJob(ctx workflow.Context, r activities.ChargeRequest) activities.ChargeAnswer {
	return call(ctx, j, fmt.Sprintf("charge %d", r.Cost), jobActivities.ChargeJob, r, func(a activities.ChargeAnswer) activities.JobAnswer { return a.JobAnswer })
}

func (j *meteredJob) refundJob(ctx workflow.Context, r activities.RefundRequest) activities.JobAnswer {
	return call(ctx, j, fmt.Sprintf("refund %d", j.row.Cost), jobActivities.RefundJob, r, itself)
}

func (j *meteredJob) settleJob(ctx workflow.Context, r activities.SettleRequest) activities.JobAnswer {
	return call(ctx, j, "settle", jobActivities.SettleJob, r, itself)
}

func (j *meteredJob) recordAttempt(ctx workflow.Context, r activities.RecordRequest) activities.JobAnswer {
	return call(ctx, j, fmt.Sprintf("record how attempt %d ended", r.Ended.Attempt), jobActivities.RecordAttempt, r, itself)
}

func (j *meteredJob) parkJob(ctx workflow.Context, r activities.ParkRequest) activities.JobAnswer {
	return call(ctx, j, "dead letter", jobActivities.ParkJob, r, itself)
}

func (j *meteredJob) closeJob(ctx workflow.Context, r activities.CloseRequest) {
	call(ctx, j, fmt.Sprintf("close as %s", r.State), jobActivities.CloseJob, r, itself)
}

func (j *meteredJob) resolveJob(ctx workflow.Context, r activities.ResolveRequest) activities.ResolveAnswer {
	return call(ctx, j, fmt.Sprintf("decision %s", r.Resolution.ID), jobActivities.ResolveJob, r, func(a activities.ResolveAnswer) activities.JobAnswer { return a.JobAnswer })
}

// recordEvent appends a line to the job's story.
func (j *meteredJob) recordEvent(ctx workflow.Context, kind string, attempt int, detail string) {
	request := activities.EventRequest{JobKey: j.key, Kind: kind, Attempt: attempt, Detail: detail}
	call(ctx, j, "record what was told", jobActivities.RecordJobEvent, request, func(activities.Verdict) activities.JobAnswer {
		return activities.JobAnswer{Row: j.row}
	})
}

func (j *meteredJob) readOutput(ctx workflow.Context) (stored activities.StoredOutput) {
	if err := workflow.ExecuteActivity(readCall(ctx), jobActivities.ReadJobOutput, j.key).Get(ctx, &stored); err != nil {
		panic(err)
	}
	return stored
}

func (j *meteredJob) readSpec(ctx workflow.Context) (spec string) {
	if err := workflow.ExecuteActivity(readCall(ctx), jobActivities.ReadJobSpec, j.key).Get(ctx, &spec); err != nil {
		panic(err)
	}
	return spec
}
