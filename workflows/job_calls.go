package workflows

import (
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
)

// jobActivities names the activities; the worker's registered instance is what runs.
var jobActivities *activities.Jobs

// call runs one money call and obeys the row that it answers. Calls are made one at a time, so that the rows are taken
// in the order in which Postgres wrote them. A call that cannot succeed however often it is tried is a fault of the
// program or the schema: it blocks the workflow task, visibly, until a fixed worker takes over.
func call[A any](ctx workflow.Context, j *meteredJob, activity any, request any, stands func(A) activities.JobAnswer) A {
	if err := j.calls.Lock(ctx); err != nil {
		panic(err)
	}
	defer j.calls.Unlock()
	var answer A
	if err := workflow.ExecuteLocalActivity(moneyCall(ctx), activity, request).Get(ctx, &answer); err != nil {
		panic(err)
	}
	now := stands(answer)
	j.obey(ctx, now.Row, now.Source)
	return answer
}

func itself(a activities.JobAnswer) activities.JobAnswer { return a }

func (j *meteredJob) chargeJob(ctx workflow.Context, r activities.ChargeRequest) activities.ChargeAnswer {
	return call(ctx, j, jobActivities.ChargeJob, r, func(a activities.ChargeAnswer) activities.JobAnswer { return a.JobAnswer })
}

func (j *meteredJob) refundJob(ctx workflow.Context, r activities.RefundRequest) activities.JobAnswer {
	return call(ctx, j, jobActivities.RefundJob, r, itself)
}

func (j *meteredJob) settleJob(ctx workflow.Context, r activities.SettleRequest) activities.JobAnswer {
	return call(ctx, j, jobActivities.SettleJob, r, itself)
}

func (j *meteredJob) recordAttempt(ctx workflow.Context, r activities.RecordRequest) activities.JobAnswer {
	return call(ctx, j, jobActivities.RecordAttempt, r, itself)
}

func (j *meteredJob) parkJob(ctx workflow.Context, r activities.ParkRequest) activities.JobAnswer {
	return call(ctx, j, jobActivities.ParkJob, r, itself)
}

func (j *meteredJob) closeJob(ctx workflow.Context, r activities.CloseRequest) {
	call(ctx, j, jobActivities.CloseJob, r, itself)
}

func (j *meteredJob) resolveJob(ctx workflow.Context, r activities.ResolveRequest) activities.ResolveAnswer {
	return call(ctx, j, jobActivities.ResolveJob, r, func(a activities.ResolveAnswer) activities.JobAnswer { return a.JobAnswer })
}

// recordEvent appends a line to the job's story.
func (j *meteredJob) recordEvent(ctx workflow.Context, kind string, attempt int, detail string) {
	request := activities.EventRequest{JobKey: j.key, Kind: kind, Attempt: attempt, Detail: detail}
	call(ctx, j, jobActivities.RecordJobEvent, request, func(activities.Verdict) activities.JobAnswer {
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
