// Package runs gives reconciliations what they hold rows against on this side: the workflow runs of jobs and refunds, and the
// proof of the ledger.
package runs

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/reclaimhq/reclaim/activities"
	starter "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/notices"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Runs are the runs in a namespace. Use New.
type Runs struct {
	*starter.Client
	temporal  client.Client
	namespace string
	tell      notices.Teller
}

var _ activities.Runs = (*Runs)(nil)

// New returns the runs that the clients reach.
func New(asker *starter.Client, temporal client.Client, namespace string) *Runs {
	if namespace == "" {
		namespace = client.DefaultNamespace
	}
	return &Runs{Client: asker, temporal: temporal, namespace: namespace, tell: notices.TellRun(asker, temporal)}
}

// TellRefund has the refund's run take in what was learnt beside it, and starts one where there is none.
func (r *Runs) TellRefund(ctx context.Context, key contract.RefundKey, notice contract.ChannelNotice) error {
	if err := r.tell(ctx, key, notice, true); err != nil {
		return fmt.Errorf("tell the run of refund %s what was learnt: %w", key.RefundID, err)
	}
	return nil
}

// pageSize is how many runs are listed at once.
const pageSize = 500

// OpenRuns lists a page of a tenant's open runs of a type, by visibility, which lags behind by about a second.
func (r *Runs) OpenRuns(
	ctx context.Context, workflowType, tenant string, token []byte,
) (open []activities.OpenRun, next []byte, err error) {
	page, err := r.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: r.namespace, PageSize: pageSize, NextPageToken: token,
		// Neither name can hold a quote: the one is a constant, the other a valid id.
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running' AND %s = '%s'", workflowType, contract.AttributeTenant, tenant),
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list the open runs of type %s: %w", workflowType, err)
	}
	for _, info := range page.GetExecutions() {
		open = append(open, activities.OpenRun{WorkflowID: info.GetExecution().GetWorkflowId(), RunID: info.GetExecution().GetRunId()})
	}
	return open, page.GetNextPageToken(), nil
}

// Hears tells whether the run has activities that have not ended, or a workflow task that no worker has done. One that has
// ended hears nothing.
func (r *Runs) Hears(ctx context.Context, run activities.OpenRun) (bool, error) {
	described, err := r.temporal.DescribeWorkflow(ctx, run.WorkflowID, run.RunID)
	if _, gone := errors.AsType[*serviceerror.NotFound](err); gone {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look what the run %s of %s waits for: %w", run.RunID, run.WorkflowID, err)
	}
	return len(described.RawResponse.GetPendingActivities()) > 0 || described.RawResponse.GetPendingWorkflowTask() != nil, nil
}

// EndRun terminates a run that has nothing left to decide.
func (r *Runs) EndRun(ctx context.Context, run activities.OpenRun, why string) error {
	err := r.temporal.TerminateWorkflow(ctx, run.WorkflowID, run.RunID, why)
	if _, ended := errors.AsType[*serviceerror.NotFound](err); err != nil && !ended {
		return fmt.Errorf("end the run %s of %s: %w", run.RunID, run.WorkflowID, err)
	}
	return nil
}
