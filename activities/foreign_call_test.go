package activities_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/reclaimhq/reclaim/activities"
)

// A job's work names any activity on any queue, Reclaim's own included.
func TestNoActivityServesAsTheWorkOfAnotherJob(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(activities.NewJobs(nil), activity.RegisterOptions{})
	victim := activities.JobKey{Tenant: "victim", JobID: "v1"}
	for name, request := range map[string]any{
		"ChargeJob":      activities.ChargeRequest{JobKey: victim},
		"RefundJob":      activities.RefundRequest{JobKey: victim},
		"SettleJob":      activities.SettleRequest{JobKey: victim},
		"RecordAttempt":  activities.RecordRequest{JobKey: victim},
		"ParkJob":        activities.ParkRequest{JobKey: victim},
		"CloseJob":       activities.CloseRequest{JobKey: victim},
		"ResolveJob":     activities.ResolveRequest{JobKey: victim},
		"RecordJobEvent": activities.EventRequest{JobKey: victim},
		"ReadJobOutput":  victim,
		"ReadJobSpec":    victim,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := env.ExecuteActivity(name, request)
			var refused *temporal.ApplicationError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, activities.ErrorForeignCall, refused.Type())
			assert.True(t, refused.NonRetryable())
		})
	}
}
