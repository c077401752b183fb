package activities_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
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

func refundsAsActivities() *testsuite.TestActivityEnvironment {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(activities.NewRefunds(nil, nil), activity.RegisterOptions{})
	return env
}

func assertForeign(t *testing.T, err error) {
	t.Helper()
	var refused *temporal.ApplicationError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, activities.ErrorForeignCall, refused.Type())
	assert.True(t, refused.NonRetryable())
}

func TestNoActivityServesAsTheWorkOfAnotherRefund(t *testing.T) {
	env := refundsAsActivities()
	victim := contract.RefundKey{Tenant: "victim", RefundID: "rf_1"}
	for name, request := range map[string]any{
		"FollowRefund":  activities.FollowRequest{RefundKey: victim},
		"ResolveRefund": activities.ResolveRefundRequest{RefundKey: victim},
		"ApplyNotice":   activities.NoticeRequest{RefundKey: victim},
		"ReadRefund":    victim,
		"LookUpRefund":  victim,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := env.ExecuteActivity(name, request)
			assertForeign(t, err)
		})
	}
}

// What only Go calls is registered with the rest, since it is a method too.
func TestEvidenceIsNobodysWork(t *testing.T) {
	env := refundsAsActivities()
	t.Run("ApplyEvidence", func(t *testing.T) {
		_, err := env.ExecuteActivity("ApplyEvidence", contract.RefundKey{Tenant: "victim", RefundID: "rf_1"}, activities.Observation{})
		assertForeign(t, err)
	})
	t.Run("TakeNotice", func(t *testing.T) {
		_, err := env.ExecuteActivity("TakeNotice", "bank", http.Header{}, []byte("{}"), time.Now())
		assertForeign(t, err)
	})
}

// Not even a reconciliation's activity may be named as work, be it of the same tenant.
func TestNoReconciliationServesAsWork(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.RegisterActivityWithOptions(activities.NewReconciler(nil, nil, nil, nil, nil, nil), activity.RegisterOptions{})
	key := activities.ReconciliationKey{Tenant: "victim", ReconciliationID: "r1"}
	for name, request := range map[string]any{
		"OpenReconciliation":  contract.ReconcileRequest{Tenant: "victim"},
		"ProveLedger":         key,
		"ProveNewEntries":     activities.NewEntriesRequest{ReconciliationKey: key},
		"TakeUpJobs":          key,
		"TakeUpRefunds":       key,
		"EndRuns":             activities.EndRunsRequest{ReconciliationKey: key},
		"CompareRefunds":      activities.ListingRequest{ReconciliationKey: key},
		"ComparePayments":     activities.ListingRequest{ReconciliationKey: key},
		"CloseReconciliation": key,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := env.ExecuteActivity(name, request)
			assertForeign(t, err)
		})
	}
}
