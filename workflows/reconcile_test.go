package workflows

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// passStage runs a Reconcile whose activities answer as the test says.
type passStage struct {
	*testsuite.TestWorkflowEnvironment
	request contract.ReconcileRequest
	// calls are the comparisons that were made, as "activity subject".
	calls []string
}

var passPeriod = activities.OpenedReconciliation{
	Since: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 5, 4, 0, 0, 0, 0, time.UTC), Channels: []string{"a", "b"},
}

func newPassStage(t *testing.T, parts ...contract.ReconcilePart) *passStage {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(refusalsOfNothing)
	s := &passStage{
		TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), request: contract.ReconcileRequest{Tenant: "acme", Parts: parts},
	}
	Register(s)
	s.RegisterActivity(&activities.Reconciler{})
	s.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: contract.ReconcileWorkflowID("acme")})
	return s
}

// answer has every activity succeed but those that are named, which fail for good.
func (s *passStage) answer(failing ...string) {
	fails := func(name string) error {
		s.calls = append(s.calls, name)
		for _, one := range failing {
			if one == name {
				return temporal.NewNonRetryableApplicationError(name+" is broken", "Broken", nil)
			}
		}
		return nil
	}
	s.OnActivity(reconciler.OpenReconciliation, mock.Anything, mock.Anything).Return(passPeriod, nil)
	s.OnActivity(reconciler.ProveLedger, mock.Anything, mock.Anything).Return(
		func(context.Context, activities.ReconciliationKey) (int64, error) { return 7, fails("ledger") })
	s.OnActivity(reconciler.ProveNewEntries, mock.Anything, mock.Anything).Return(
		func(_ context.Context, q activities.NewEntriesRequest) (activities.ProvenLedger, error) {
			return activities.ProvenLedger{Entries: q.WholeEveryUs, NewSince: &passPeriod.Since, Doubt: "so"}, fails("new entries")
		})
	s.OnActivity(reconciler.TakeUpJobs, mock.Anything, mock.Anything).Return(
		func(context.Context, activities.ReconciliationKey) (activities.RunsProgress, error) {
			return activities.RunsProgress{Ours: 3}, fails("jobs")
		})
	s.OnActivity(reconciler.TakeUpRefunds, mock.Anything, mock.Anything).Return(
		func(context.Context, activities.ReconciliationKey) (activities.RunsProgress, error) {
			return activities.RunsProgress{Ours: 2}, fails("refunds")
		})
	s.OnActivity(reconciler.EndRuns, mock.Anything, mock.Anything).Return(
		func(_ context.Context, q activities.EndRunsRequest) (activities.RunsProgress, error) {
			return activities.RunsProgress{Theirs: 5}, fails("end " + q.WorkflowType)
		})
	s.OnActivity(reconciler.CompareRefunds, mock.Anything, mock.Anything).Return(
		func(_ context.Context, q activities.ListingRequest) (activities.ListingProgress, error) {
			return activities.ListingProgress{Ours: 11, Theirs: 12, Unassigned: 1}, fails("refunds of " + q.Channel)
		})
	s.OnActivity(reconciler.ComparePayments, mock.Anything, mock.Anything).Return(
		func(_ context.Context, q activities.ListingRequest) (activities.ListingProgress, error) {
			return activities.ListingProgress{Ours: 1, Theirs: 1}, fails("payments of " + q.Channel)
		})
	s.OnActivity(reconciler.CloseReconciliation, mock.Anything, mock.Anything).Return(
		[]contract.ReconcileFound{{Kind: contract.FindingMissingHere, Effect: contract.FindingOpened, Findings: 4}}, nil)
}

func (s *passStage) run() (result contract.ReconcileResult, err error) {
	s.ExecuteWorkflow(contract.ReconcileWorkflow, s.request)
	if err = s.GetWorkflowError(); err == nil {
		err = s.GetWorkflowResult(&result)
	}
	return result, err
}

func TestAPassMakesEveryComparisonForEveryChannel(t *testing.T) {
	s := newPassStage(t)
	s.answer()
	result, err := s.run()
	require.NoError(t, err)
	assert.Equal(t, []string{
		"ledger", "jobs", "refunds", "end MeteredJob", "end ChannelRefund", "refunds of a", "refunds of b", "payments of a", "payments of b",
	}, s.calls)
	assert.True(t, result.Finished)
	assert.Equal(t, []contract.ReconcileCompared{
		{Part: contract.ReconcileLedger, Ours: 7},
		{Part: contract.ReconcileRuns, Ours: 5, Theirs: 10},
		{Part: contract.ReconcileRefunds, Channel: "a", Ours: 11, Theirs: 12, Unassigned: 1},
		{Part: contract.ReconcileRefunds, Channel: "b", Ours: 11, Theirs: 12, Unassigned: 1},
		{Part: contract.ReconcilePayments, Channel: "a", Ours: 1, Theirs: 1},
		{Part: contract.ReconcilePayments, Channel: "b", Ours: 1, Theirs: 1},
	}, result.Compared)
	assert.Equal(t, []contract.ReconcileFound{{Kind: contract.FindingMissingHere, Effect: contract.FindingOpened, Findings: 4}}, result.Found)
	assert.Equal(t, passPeriod.Since, result.Since)
}

func TestAPartThatCannotBeFinishedKeepsNoOtherFromBeingMade(t *testing.T) {
	for failing, problems := range map[string]string{
		"ledger": "ledger ", "jobs": "runs ", "refunds": "runs ", "end MeteredJob": "runs ", "end ChannelRefund": "runs ",
		"refunds of a": "refunds a", "payments of b": "payments b",
	} {
		t.Run(failing, func(t *testing.T) {
			s := newPassStage(t)
			s.answer(failing)
			result, err := s.run()
			require.NoError(t, err)
			assert.False(t, result.Finished)
			var found []string
			for _, compared := range result.Compared {
				if compared.Problem != "" {
					assert.Contains(t, compared.Problem, failing+" is broken")
					found = append(found, string(compared.Part)+" "+compared.Channel)
				}
			}
			assert.Equal(t, []string{problems}, found)
			assert.Contains(t, s.calls, "payments of b", "the last part is made")
		})
	}
}

func TestAPassMakesOnlyThePartsThatAreNamed(t *testing.T) {
	s := newPassStage(t, contract.ReconcilePayments)
	s.answer()
	_, err := s.run()
	require.NoError(t, err)
	assert.Equal(t, []string{"payments of a", "payments of b"}, s.calls)
}

func TestAPassMayProveOnlyWhatIsNewInTheLedger(t *testing.T) {
	for _, failing := range []string{"", "new entries"} {
		s := newPassStage(t, contract.ReconcileLedger)
		s.request.WholeEvery = contract.Duration(time.Hour)
		s.answer(failing)
		result, err := s.run()
		require.NoError(t, err)
		assert.Equal(t, []string{"new entries"}, s.calls)
		compared := result.Compared[0]
		if failing != "" {
			assert.Contains(t, compared.Problem, "new entries is broken")
			assert.False(t, result.Finished)
			continue
		}
		assert.EqualValues(t, time.Hour.Microseconds(), compared.Ours)
		assert.Equal(t, &passPeriod.Since, compared.NewSince)
		assert.Equal(t, "so", compared.Doubt)
	}
}

func TestAPassThatIsCanceledEnds(t *testing.T) {
	s := newPassStage(t)
	s.answer()
	s.RegisterDelayedCallback(s.CancelWorkflow, 0)
	_, err := s.run()
	assert.True(t, temporal.IsCanceledError(err), "%v", err)
}

func TestAPassIsRefusedBeforeAnythingIsDone(t *testing.T) {
	for name, change := range map[string]func(*passStage){
		"no tenant":                 func(s *passStage) { s.request.Tenant = "" },
		"unknown part":              func(s *passStage) { s.request.Parts = []contract.ReconcilePart{"stars"} },
		"a whole audit in the past": func(s *passStage) { s.request.WholeEvery = -1 },
		"no period":                 func(s *passStage) { s.request.Since, s.request.Until = passPeriod.Until, passPeriod.Since },
		"another tenant":            func(s *passStage) { s.request.Tenant = "other" },
		"a tenant with a longer name": func(s *passStage) {
			s.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: contract.ReconcileWorkflowID("acme") + "2"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPassStage(t)
			s.answer()
			change(s)
			_, err := s.run()
			var failure *temporal.ApplicationError
			require.ErrorAs(t, err, &failure)
			assert.Equal(t, string(contract.CodeBadInput), failure.Type())
			assert.Empty(t, s.calls)
		})
	}
}

func TestAScheduledPassHasATimeInItsID(t *testing.T) {
	s := newPassStage(t, contract.ReconcileLedger)
	s.SetStartWorkflowOptions(client.StartWorkflowOptions{ID: contract.ReconcileWorkflowID("acme") + "/at-2026-05-04T00:00:00Z"})
	s.answer()
	_, err := s.run()
	require.NoError(t, err)
}

func TestAPassThatCannotBeginSaysSo(t *testing.T) {
	s := newPassStage(t)
	s.OnActivity(reconciler.OpenReconciliation, mock.Anything, mock.Anything).Return(
		activities.OpenedReconciliation{}, temporal.NewNonRetryableApplicationError("no right", "Broken", errors.New("42501")))
	_, err := s.run()
	require.Error(t, err)
	assert.True(t, strings.Contains(err.Error(), "no right"), "%v", err)
}
