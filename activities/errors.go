package activities

import (
	"context"
	"errors"

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
