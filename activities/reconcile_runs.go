package activities

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// runsPage is how many rows are read at once.
const runsPage = 500

// RunsProgress is how far a comparison with Temporal's runs has come, and what it has looked at.
type RunsProgress struct {
	// After is the id of the last row that was dealt with, Token Temporal's mark after the last page of runs.
	After string `json:"after,omitempty"`
	Token []byte `json:"token,omitempty"`
	// Ours counts rows, Theirs runs.
	Ours   int64 `json:"ours"`
	Theirs int64 `json:"theirs"`
}

// TakeUpJobs starts a run of each open job that has none: it was terminated, reset away, or is gone with the server's data. The
// stored spec governs it, and the row says where it stands.
func (r *Reconciler) TakeUpJobs(ctx context.Context, key ReconciliationKey) (RunsProgress, error) {
	if err := ownReconciliation(ctx, key.Tenant); err != nil {
		return RunsProgress{}, err
	}
	return takeUpAll(ctx, func(after string) (ids []string, err error) {
		rows, err := r.store.ListOpenJobs(ctx, db.ListOpenJobsParams{
			OnlyTenant: key.Tenant, AfterTenant: key.Tenant, AfterJob: after, PageSize: runsPage,
		})
		for _, row := range rows {
			ids = append(ids, row.JobID)
		}
		return ids, retry(ctx, schema.Classify("list the open jobs", err))
	}, func(id string) error { return r.takeUpJob(ctx, key, JobKey{key.Tenant, id}) })
}

// takeUpAll deals with each open row, page by page, from where the last attempt was.
func takeUpAll(ctx context.Context, list func(after string) ([]string, error), takeUp func(id string) error) (RunsProgress, error) {
	var at RunsProgress
	resume(ctx, &at)
	for {
		ids, err := list(at.After)
		if err != nil {
			return at, err
		}
		for _, id := range ids {
			if err := takeUp(id); err != nil {
				return at, err
			}
			at.After = id
			at.Ours++
			activity.RecordHeartbeat(ctx, at)
		}
		if len(ids) < runsPage {
			return at, nil
		}
	}
}

func (r *Reconciler) takeUpJob(ctx context.Context, key ReconciliationKey, job JobKey) error {
	running, err := r.runs.HasRun(ctx, job.name())
	if err != nil || running {
		return err
	}
	// Its run may have closed it between the page and the look.
	row, err := r.store.GetJob(ctx, db.GetJobParams{TenantID: job.Tenant, JobID: job.JobID})
	if err != nil {
		return retry(ctx, schema.Classify("read "+job.name(), err))
	}
	if !contract.JobState(row.State).Open() {
		return nil
	}
	spec, err := contract.ParseJob([]byte(row.Spec))
	if err != nil {
		_, err = r.record(ctx, key, finding{
			kind: contract.FindingJobUnreadable, subjectKind: "job", subject: job.JobID,
			detail: fmt.Sprintf("the job is %s and has no run, and none can be started: its stored spec cannot be read: %v. Submit it "+
				"again with its parameters, or decide it with job resolve.", row.State, err),
			issue: issueOf(contract.FindingJobUnreadable, job.JobID, ""),
		})
		return err
	}
	// It is recorded before it is done: what is recorded and not done, the next attempt does.
	if _, err := recordEvent(ctx, r.store, EventRequest{
		JobKey: job, Kind: EventTakenUp, Detail: "the job had no open run: reconciliation " + key.ReconciliationID + " starts one",
	}); err != nil {
		return err
	}
	if _, err := r.record(ctx, key, finding{
		kind: contract.FindingJobWithoutRun, subjectKind: "job", subject: job.JobID, effect: contract.FindingRepaired,
		detail: fmt.Sprintf("the job is %s since %s and had no open run; one was started from its stored spec",
			row.State, row.UpdatedAt.UTC().Format(time.RFC3339)),
	}); err != nil {
		return err
	}
	return r.runs.TakeUpJob(ctx, spec, row.Spec)
}

// TakeUpRefunds starts a run of each open refund that has none.
func (r *Reconciler) TakeUpRefunds(ctx context.Context, key ReconciliationKey) (RunsProgress, error) {
	if err := ownReconciliation(ctx, key.Tenant); err != nil {
		return RunsProgress{}, err
	}
	return takeUpAll(ctx, func(after string) (ids []string, err error) {
		rows, err := r.store.ListOpenRefunds(ctx, db.ListOpenRefundsParams{
			OnlyTenant: key.Tenant, AfterTenant: key.Tenant, AfterRefund: after, PageSize: runsPage,
		})
		for _, row := range rows {
			ids = append(ids, row.RefundID)
		}
		return ids, retry(ctx, schema.Classify("list the open refunds", err))
	}, func(id string) error {
		return r.takeUpRefund(ctx, key, contract.RefundKey{Tenant: key.Tenant, RefundID: id})
	})
}

func (r *Reconciler) takeUpRefund(ctx context.Context, key ReconciliationKey, refund contract.RefundKey) error {
	running, err := r.runs.HasRun(ctx, refundName(refund))
	if err != nil || running {
		return err
	}
	waiting, err := r.store.HasStartWaiting(ctx, db.HasStartWaitingParams{
		Kind: "start_refund", TenantID: refund.Tenant, SubjectID: refund.RefundID,
	})
	if err != nil {
		return retry(ctx, schema.Classify("look for the start of "+refundName(refund), err))
	}
	row, err := r.refunds.read(ctx, r.store.Queries, refund)
	if err != nil {
		return err
	}
	state := contract.RefundState(row.ReclaimRefund.State)
	if waiting || !state.Open() {
		return nil
	}
	if _, err := r.record(ctx, key, finding{
		kind: contract.FindingRefundWithoutRun, subjectKind: "refund", subject: refund.RefundID, effect: contract.FindingRepaired,
		detail: fmt.Sprintf("the refund is %s since %s and had no open run; one was started",
			state, row.ReclaimRefund.UpdatedAt.UTC().Format(time.RFC3339)),
	}); err != nil {
		return err
	}
	return r.runs.StartRefund(ctx, refund.Tenant, refund.RefundID)
}

// EndRunsRequest asks to end runs whose row is final. GraceUs is for how long it must have been, in microseconds.
type EndRunsRequest struct {
	ReconciliationKey
	WorkflowType string `json:"workflowType"`
	GraceUs      int64  `json:"graceUs"`
}

// EndRuns terminates runs of final jobs or refunds: nothing is left for them to decide, and something keeps them from ending.
// A job's run that waits for work, or has a message to take up, is left alone.
func (r *Reconciler) EndRuns(ctx context.Context, q EndRunsRequest) (RunsProgress, error) {
	if err := ownReconciliation(ctx, q.Tenant); err != nil {
		return RunsProgress{}, err
	}
	kind, subjectKind, prefix := contract.FindingRunOfFinalJob, "job", contract.JobWorkflowID(q.Tenant, "")
	if q.WorkflowType == contract.ChannelRefundWorkflow {
		kind, subjectKind, prefix = contract.FindingRunOfFinalRefund, "refund", contract.RefundWorkflowID(q.Tenant, "")
	}
	var at RunsProgress
	resume(ctx, &at)
	for {
		runs, next, err := r.runs.OpenRuns(ctx, q.WorkflowType, q.Tenant, at.Token)
		if err != nil {
			return at, err
		}
		byID := map[string]OpenRun{}
		var ids []string
		for _, run := range runs {
			if id, ok := strings.CutPrefix(run.WorkflowID, prefix); ok {
				ids, byID[id] = append(ids, id), run
			}
		}
		final, err := r.finalOf(ctx, q, ids)
		if err != nil {
			return at, err
		}
		for _, id := range final {
			if q.WorkflowType != contract.ChannelRefundWorkflow {
				// A closed job's run waits for its work's real end, which may yet be a delivery, for as long as the work may run.
				if hears, err := r.runs.Hears(ctx, byID[id]); err != nil {
					return at, err
				} else if hears {
					continue
				}
			}
			why := "reconciliation " + q.ReconciliationID + ": its row is final, and nothing is left to be decided"
			if _, err := r.record(ctx, q.ReconciliationKey, finding{
				kind: kind, subjectKind: subjectKind, subject: id, particular: byID[id].RunID, effect: contract.FindingRepaired,
				detail: "the run was still open though its row was final; it was ended",
			}); err != nil {
				return at, err
			}
			if err := r.runs.EndRun(ctx, byID[id], why); err != nil {
				return at, err
			}
		}
		at.Theirs += int64(len(runs))
		at.Token = next
		activity.RecordHeartbeat(ctx, at)
		if len(next) == 0 {
			return at, nil
		}
	}
}

// finalOf returns those of the ids whose row is final, and has been for long enough.
func (r *Reconciler) finalOf(ctx context.Context, q EndRunsRequest, ids []string) (final []string, err error) {
	if q.WorkflowType == contract.ChannelRefundWorkflow {
		final, err = r.store.ListFinalRefunds(ctx, db.ListFinalRefundsParams{TenantID: q.Tenant, RefundIds: ids, GraceUs: q.GraceUs})
	} else {
		final, err = r.store.ListFinalJobs(ctx, db.ListFinalJobsParams{TenantID: q.Tenant, JobIds: ids, GraceUs: q.GraceUs})
	}
	if err != nil {
		return nil, retry(ctx, schema.Classify("look which rows are final", err))
	}
	return final, nil
}
