package workflows

import (
	"errors"
	"strings"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// reconciler names the activities of reconciliations.
var reconciler *activities.Reconciler

// reconciliation is the memory of one pass.
type reconciliation struct {
	request contract.ReconcileRequest
	key     activities.ReconciliationKey
	opened  activities.OpenedReconciliation
	result  contract.ReconcileResult
}

// Reconcile is one pass over a tenant's jobs, refunds and orders that holds what is written against the runs in Temporal and
// against what the payment channels list. Its input is a contract.ReconcileRequest as JSON and its result a
// contract.ReconcileResult; what it found stands in the database. A part that cannot be finished is said to be so and keeps no
// other from being made. It fails with error type BadInput before anything was done.
func Reconcile(ctx workflow.Context, input converter.RawValue) (*contract.ReconcileResult, error) {
	request, err := contract.ParseReconcile(input.Payload().GetData())
	if err != nil {
		return nil, refusal(err)
	}
	info := workflow.GetInfo(ctx)
	if id := contract.ReconcileWorkflowID(request.Tenant); info.WorkflowExecution.ID != id &&
		!strings.HasPrefix(info.WorkflowExecution.ID, id+"/") {
		return nil, refusal(contract.BadField("tenant", "has its passes under the workflow id "+id))
	}
	r := &reconciliation{request: request, key: activities.ReconciliationKey{
		Tenant: request.Tenant, ReconciliationID: info.WorkflowExecution.RunID,
	}}
	if err := workflow.ExecuteActivity(readCall(ctx), reconciler.OpenReconciliation, request).Get(ctx, &r.opened); err != nil {
		return nil, err
	}
	r.result = contract.ReconcileResult{
		ReconciliationID: r.key.ReconciliationID, Tenant: request.Tenant, Since: r.opened.Since, Until: r.opened.Until,
		Compared: []contract.ReconcileCompared{}, Finished: true,
	}
	for _, part := range request.Parts {
		if err := r.compare(ctx, part); err != nil {
			return nil, err
		}
	}
	ended := activities.EndedReconciliation{ReconciliationKey: r.key}
	for _, compared := range r.result.Compared {
		if compared.Problem != "" {
			ended.Unfinished = append(ended.Unfinished, strings.TrimSpace(string(compared.Part)+" "+compared.Channel)+": "+compared.Problem)
		}
	}
	err = workflow.ExecuteActivity(readCall(ctx), reconciler.CloseReconciliation, ended).Get(ctx, &r.result.Found)
	if err != nil {
		return nil, err
	}
	return &r.result, nil
}

func (r *reconciliation) compare(ctx workflow.Context, part contract.ReconcilePart) error {
	switch part {
	case contract.ReconcileLedger:
		return r.proveLedger(ctx)
	case contract.ReconcileRuns:
		return r.compareRuns(ctx)
	case contract.ReconcileRefunds:
		return r.compareListings(ctx, part, reconciler.CompareRefunds)
	case contract.ReconcilePayments:
		return r.compareListings(ctx, part, reconciler.ComparePayments)
	case contract.ReconcileSettlement:
		return r.compareSettlement(ctx)
	default:
		return refusal(contract.BadField("parts", "has "+string(part)+", which this release cannot compare"))
	}
}

func (r *reconciliation) proveLedger(ctx workflow.Context) error {
	compared := contract.ReconcileCompared{Part: contract.ReconcileLedger}
	var err error
	if every := r.request.WholeEvery.Std(); every > 0 {
		var proven activities.ProvenLedger
		err = workflow.ExecuteActivity(passCall(ctx, "the ledger's invariants, what is new"), reconciler.ProveNewEntries,
			activities.NewEntriesRequest{ReconciliationKey: r.key, WholeEveryUs: every.Microseconds()}).Get(ctx, &proven)
		compared.Ours, compared.NewSince, compared.Doubt = proven.Entries, proven.NewSince, proven.Doubt
	} else {
		err = workflow.ExecuteActivity(passCall(ctx, "the ledger's invariants"), reconciler.ProveLedger, r.key).Get(ctx, &compared.Ours)
	}
	if compared.Problem, err = r.unfinished(err); err != nil {
		return err
	}
	r.result.Compared = append(r.result.Compared, compared)
	return nil
}

// compareRuns first takes up what has no run and then ends what is left over, so that a run of a row that has just become final
// has had its time.
func (r *reconciliation) compareRuns(ctx workflow.Context) error {
	compared := contract.ReconcileCompared{Part: contract.ReconcileRuns}
	end := func(workflowType string) activities.EndRunsRequest {
		return activities.EndRunsRequest{
			ReconciliationKey: r.key, WorkflowType: workflowType, GraceUs: r.request.Grace.Std().Microseconds(),
		}
	}
	for _, step := range []struct {
		summary  string
		activity any
		request  any
	}{
		{"open jobs without a run", reconciler.TakeUpJobs, r.key},
		{"open refunds without a run", reconciler.TakeUpRefunds, r.key},
		{"runs of final jobs", reconciler.EndRuns, end(contract.MeteredJobWorkflow)},
		{"runs of final refunds", reconciler.EndRuns, end(contract.ChannelRefundWorkflow)},
	} {
		var progress activities.RunsProgress
		err := workflow.ExecuteActivity(passCall(ctx, step.summary), step.activity, step.request).Get(ctx, &progress)
		if compared.Problem, err = r.unfinished(err); err != nil {
			return err
		}
		compared.Ours += progress.Ours
		compared.Theirs += progress.Theirs
		if compared.Problem != "" {
			break
		}
	}
	r.result.Compared = append(r.result.Compared, compared)
	return nil
}

func (r *reconciliation) compareListings(ctx workflow.Context, part contract.ReconcilePart, activity any) error {
	for _, name := range r.opened.Channels {
		var progress activities.ListingProgress
		err := workflow.ExecuteActivity(passCall(ctx, string(part)+" of "+name), activity, activities.ListingRequest{
			ReconciliationKey: r.key, Channel: name, Since: r.opened.Since, Until: r.opened.Until,
		}).Get(ctx, &progress)
		compared := contract.ReconcileCompared{
			Part: part, Channel: name, Ours: progress.Ours, Theirs: progress.Theirs, Unassigned: progress.Unassigned,
		}
		if compared.Problem, err = r.unfinished(err); err != nil {
			return err
		}
		r.result.Compared = append(r.result.Compared, compared)
	}
	return nil
}

func (r *reconciliation) compareSettlement(ctx workflow.Context) error {
	file := *r.request.Settlement
	compared := contract.ReconcileCompared{Part: contract.ReconcileSettlement, Channel: file.Channel}
	request := activities.SettlementRequest{ReconciliationKey: r.key, File: file}
	err := workflow.ExecuteActivity(passCall(ctx, "read the settlement of "+file.Channel), reconciler.ReadSettlement, request).
		Get(ctx, &compared.Theirs)
	if err == nil {
		var matched activities.MatchedSettlement
		err = workflow.ExecuteActivity(passCall(ctx, "match the settlement of "+file.Channel), reconciler.MatchSettlement, request).
			Get(ctx, &matched)
		compared.Ours, compared.Unassigned, compared.Settlement = matched.Ours, matched.Report.Unassigned, &matched.Report
	}
	if compared.Problem, err = r.unfinished(err); err != nil {
		return err
	}
	if compared.Problem != "" {
		compared.Settlement = nil
	}
	r.result.Compared = append(r.result.Compared, compared)
	return nil
}

// unfinished says why a part could not be finished. A cancel ends the pass.
func (r *reconciliation) unfinished(err error) (problem string, _ error) {
	if err == nil || temporal.IsCanceledError(err) {
		return "", err
	}
	r.result.Finished = false
	// What the activity said, without the names that Temporal wraps it in.
	if said, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		return contract.Clip(said.Message(), contract.MaxReasonBytes), nil
	}
	return contract.Clip(err.Error(), contract.MaxReasonBytes), nil
}
