package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// years stands for no limit: money calls are tried until they are answered.
const years = 10 * 365 * 24 * time.Hour

// moneyCall runs a guarded statement as a local activity. StartToClose is one attempt, above the statement's own
// timeout; without ScheduleToClose it would also be the whole, and one lost reply would end the tries. The interval
// grows past 10 s so that a long outage is waited for by timers, during which queries are answered.
func moneyCall(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout:    schema.MoneyAttempt,
		ScheduleToCloseTimeout: years,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 15 * time.Second,
		},
		Summary: summary,
	})
}

// readCall runs an ordinary activity for a read whose result may be large. It never gives up.
func readCall(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 200 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second,
		},
	})
}

// followCall sends a refund and looks it up. Each attempt makes at most two calls of a channel and tells when the next is
// due, so the interval here is only for attempts that died or could not reach Postgres. A heartbeat makes a dead worker
// known within its timeout. No attempt is the last: the row says when to ask a person.
func followCall(ctx workflow.Context, row activities.RefundRow) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 2 * time.Minute,
		HeartbeatTimeout:    15 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 1, MaximumInterval: time.Second,
		},
		Summary: fmt.Sprintf("%s through %s, %s", row.Money(), row.Channel, row.State),
	})
}

// workCall runs one attempt of the work. StartToClose alone (it does not depend on the worker's clock); one attempt,
// since the job decides about the next one; a cancel is answered by the work's real end, which may be a delivery.
func workCall(ctx workflow.Context, job contract.Job, attempt, limit int) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           job.Work.TaskQueue,
		StartToCloseTimeout: job.Work.Timeout.Std(),
		HeartbeatTimeout:    job.Work.Heartbeat.Std(),
		WaitForCancellation: true,
		RetryPolicy:         &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:             fmt.Sprintf("attempt %d of %d", attempt, limit),
	})
}

// probePatience is how long a probe may go on failing before its answer counts as unknown.
const probePatience = 10 * time.Minute

// probeCall asks the probe. ScheduleToClose bounds the tries together, an absent worker included; the skew of a
// worker's clock is small against it.
func probeCall(ctx workflow.Context, job contract.Job) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              job.Work.TaskQueue,
		StartToCloseTimeout:    time.Minute,
		ScheduleToCloseTimeout: probePatience,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute,
		},
		Summary: "probe",
	})
}

// passCall makes one comparison of a pass. An attempt goes on where the last one was, and a heartbeat makes a dead worker known.
// Whoever is away for long is looked at again by the next pass, so the tries are bounded: about a quarter of an hour.
func passCall(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 6 * time.Hour,
		HeartbeatTimeout:    time.Minute,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute, MaximumAttempts: 20,
		},
		Summary: summary,
	})
}
