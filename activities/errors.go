package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// retry turns an error into what Temporal acts on: database failures keep their type from schema's table and their
// delay, and those that repeating cannot mend are not retryable. Anything else is handed on as it is. It logs them, since
// the SDK repeats a local activity without a word.
func retry(ctx context.Context, err error) error {
	failure, ok := errors.AsType[*schema.Failure](err)
	if !ok {
		return err
	}
	if activity.IsActivity(ctx) {
		activity.GetLogger(ctx).Warn("A database call failed", "type", string(failure.Type), "error", failure)
	}
	options := temporal.ApplicationErrorOptions{
		NonRetryable: !failure.Retryable, Cause: failure.Unwrap(), NextRetryDelay: failure.Delay,
	}
	return temporal.NewApplicationErrorWithOptions(failure.Error(), string(failure.Type), options)
}

// ErrorNoJob is the type of the error where a job that must be there is not.
const ErrorNoJob = "NoJob"

func noJob(tried string, key JobKey) error {
	return temporal.NewApplicationErrorWithOptions(
		tried+": there is no job "+contract.JobWorkflowID(key.Tenant, key.JobID), ErrorNoJob,
		temporal.ApplicationErrorOptions{NonRetryable: true},
	)
}

// ErrorForeignCall is the type of the error where an activity is called for a job by anybody but that job's run.
const ErrorForeignCall = "ForeignCall"

// ownGuard refuses a guard that is not called by the job's own run as a local activity. The work's queue and activity are
// named by whoever submits a job: without this, work named RefundJob on Reclaim's own queue would move any tenant's money.
func ownGuard(ctx context.Context, key JobKey) error {
	if activity.IsActivity(ctx) && !activity.GetInfo(ctx).IsLocalActivity {
		return foreignCall(ctx, key)
	}
	return ownRun(ctx, key)
}

// ownRun refuses an activity that is called for another job than the calling run's.
func ownRun(ctx context.Context, key JobKey) error {
	if activity.IsActivity(ctx) && activity.GetInfo(ctx).WorkflowExecution.ID != key.name() {
		return foreignCall(ctx, key)
	}
	return nil
}

// noActivity refuses a call by way of Temporal: every method of a registered value can be named as work.
func noActivity(ctx context.Context) error {
	if !activity.IsActivity(ctx) {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(
		activity.GetInfo(ctx).ActivityType.Name+" is not an activity", ErrorForeignCall, nil)
}

func foreignCall(ctx context.Context, key JobKey) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf("%s may not be called for %s by %s: it is not work",
		activity.GetInfo(ctx).ActivityType.Name, key.name(), activity.GetInfo(ctx).WorkflowExecution.ID), ErrorForeignCall, nil)
}
