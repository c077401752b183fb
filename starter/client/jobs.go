package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// StartJob submits the job and waits for the verdict of its charge. Submitting the same job again, at any time, is safe
// and answers contract.VerdictAlready. While Temporal is away it goes on trying: ctx bounds it. Errors: BadInput (nothing
// was started), Conflict (the id stands for another job), Unavailable (repeat the same submission).
func (c *Client) StartJob(ctx context.Context, job contract.Job) (contract.ChargeVerdict, error) {
	raw, _, err := job.Encode()
	if err != nil {
		return contract.ChargeVerdict{}, err
	}
	return c.StartJobJSON(ctx, raw)
}

// StartJobJSON is StartJob for a job that is JSON already, as in a file.
func (c *Client) StartJobJSON(ctx context.Context, raw []byte) (contract.ChargeVerdict, error) {
	job, err := contract.ParseJob(raw)
	if err != nil {
		return contract.ChargeVerdict{}, err
	}
	// The row answers what needs no run: another run would only hide the real one in the Web UI.
	if verdict, done, err := c.verdictFromRow(ctx, job, false); done || err != nil {
		return verdict, err
	}
	// The update id belongs to this submission and its retries: under a fixed one, a job that was declined and is
	// submitted again after a top-up would be told the old verdict.
	submission := rand.Text()
	for {
		verdict, err := c.submit(ctx, job, raw, submission)
		if err == nil {
			return verdict, nil
		}
		if code := contract.CodeOf(err); code != contract.CodeUnavailable || !transient(err) || ctx.Err() != nil {
			return contract.ChargeVerdict{}, err
		}
		// While Temporal is away, the row may know.
		if verdict, done, rowErr := c.verdictFromRow(ctx, job, takesNoUpdates(err)); done && rowErr == nil {
			return verdict, nil
		}
		select {
		case <-ctx.Done():
			return contract.ChargeVerdict{}, err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// SubmitJob is StartJob for a caller who waits for the verdict only so long: pending is true where this very job has a run by
// then that has not charged it yet. Repeating the submission is safe in every case. Errors as for StartJob; Unavailable too
// where a run of the id is open and it cannot be seen whether it is the same job's.
func (c *Client) SubmitJob(ctx context.Context, job contract.Job, patience time.Duration) (_ contract.ChargeVerdict, pending bool, _ error) {
	impatient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	verdict, err := c.StartJob(impatient, job)
	if err == nil || impatient.Err() == nil || ctx.Err() != nil {
		return verdict, false, err
	}
	// A submission that got no answer may not have reached Temporal at all.
	looking, stop := context.WithTimeout(ctx, queryPatience)
	defer stop()
	if same, lookErr := c.isStarted(looking, job); lookErr != nil || !same {
		return contract.ChargeVerdict{}, false, err
	}
	return contract.ChargeVerdict{}, true, nil
}

// isStarted says whether the job's open run was started with the same job. One that is encrypted cannot be read here.
func (c *Client) isStarted(ctx context.Context, job contract.Job) (bool, error) {
	running, err := c.HasRun(ctx, job.WorkflowID())
	if err != nil || !running {
		return false, err
	}
	first, err := c.temporal.GetWorkflowHistory(ctx, job.WorkflowID(), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT).Next()
	if err != nil {
		return false, translate("read how job "+job.JobID+" was started", err)
	}
	inputs := first.GetWorkflowExecutionStartedEventAttributes().GetInput().GetPayloads()
	if len(inputs) != 1 {
		return false, nil
	}
	there, err := contract.ParseJob(inputs[0].GetData())
	if err != nil {
		return false, nil //nolint:nilerr // whatever it is, it is not this job
	}
	ours, err := job.Fingerprint()
	if err != nil {
		return false, err
	}
	theirs, err := there.Fingerprint()
	return err == nil && ours == theirs, err
}

func (c *Client) submit(ctx context.Context, job contract.Job, raw []byte, submission string) (contract.ChargeVerdict, error) {
	tried := "start job " + job.JobID
	start := c.temporal.NewWithStartWorkflowOperation(c.StartOptions(job), contract.MeteredJobWorkflow, jobPayload(raw))
	handle, err := c.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateID: submission, UpdateName: contract.AwaitChargeUpdate, Args: []any{jobPayload(raw)},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	var verdict contract.ChargeVerdict
	if err == nil {
		err = handle.Get(ctx, &verdict)
	}
	if err != nil && ctx.Err() != nil {
		tried += fmt.Sprintf(" (a run that is there charges once a worker polls the task queue %s)", c.taskQueue)
	}
	return verdict, translate(tried, err)
}

// transient says whether an answer from Temporal may be different in a moment. What a run itself answered is not.
func transient(err error) bool {
	_, answered := errors.AsType[*temporal.ApplicationError](err)
	_, invalid := errors.AsType[*serviceerror.InvalidArgument](err)
	_, namespace := errors.AsType[*serviceerror.NamespaceNotFound](err)
	return !answered && !invalid && !namespace
}

// takesNoUpdates says whether the run has had all the updates that it takes. There is an open run then.
func takesNoUpdates(err error) bool {
	_, full := errors.AsType[*serviceerror.FailedPrecondition](err)
	return full
}

// verdictFromRow answers a submission of a job whose row decides it: a conflict, or a job that is closed, or an open one
// whose run is known to be there.
func (c *Client) verdictFromRow(ctx context.Context, job contract.Job, hasRun bool) (contract.ChargeVerdict, bool, error) {
	row, err := c.findJob(ctx, job.Tenant, job.JobID)
	if err != nil || row == nil {
		return contract.ChargeVerdict{}, false, err
	}
	fingerprint, err := job.Fingerprint()
	if err != nil {
		return contract.ChargeVerdict{}, false, err
	}
	if fingerprint != row.Fingerprint {
		return contract.ChargeVerdict{}, true, contract.ConflictOf(job)
	}
	if contract.JobState(row.State).Open() && !hasRun {
		return contract.ChargeVerdict{}, false, nil
	}
	account, err := c.Account(ctx, row.TenantID, row.AccountID)
	if err != nil {
		return contract.ChargeVerdict{}, false, err
	}
	return contract.ChargeVerdict{
		Verdict: contract.VerdictAlready, Balance: account.Balance,
		Reason: fmt.Sprintf("charged before; the job is %s", row.State),
	}, true, nil
}

// AwaitJob waits until the job is closed and returns how it stands, by its row; ctx bounds the wait. A declined job, which
// has no row, is answered from its run. Errors: NotFound, Unavailable (the job is open still: await it again, or, where
// its run ended without it, submit it again).
func (c *Client) AwaitJob(ctx context.Context, tenant, jobID string) (contract.JobResult, error) {
	tried := "await job " + jobID
	row, err := c.findJob(ctx, tenant, jobID)
	if err != nil {
		return contract.JobResult{}, err
	}
	if row != nil && !contract.JobState(row.State).Open() {
		return resultOf(row), nil
	}
	var result contract.JobResult
	runErr := c.temporal.GetWorkflow(ctx, contract.JobWorkflowID(tenant, jobID), "").Get(ctx, &result)
	if row, err = c.findJob(ctx, tenant, jobID); err != nil {
		return contract.JobResult{}, err
	}
	_, ended := errors.AsType[*temporal.WorkflowExecutionError](runErr)
	_, noRun := errors.AsType[*serviceerror.NotFound](runErr)
	switch {
	case row != nil && !contract.JobState(row.State).Open():
		return resultOf(row), nil
	case row != nil && (ended || noRun):
		return resultOf(row), contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, fmt.Sprintf(
			"%s: the job is %s and its run ended without it: submit the job again, which takes it up", tried, row.State), runErr)
	case runErr != nil:
		return contract.JobResult{}, translate(tried, runErr)
	default:
		return result, nil
	}
}

func moneyOf(row *db.ReclaimJob) contract.Money {
	return contract.MoneyOf(row.Cost, row.IsRefunded, row.IsReclaimed)
}

func resultOf(row *db.ReclaimJob) contract.JobResult {
	money := moneyOf(row)
	result := contract.JobResult{
		JobID: row.JobID, State: contract.JobState(row.State), Money: money, Net: money.Net(),
		Attempts: int(row.Attempts), Late: row.IsReclaimed, Reason: row.Reason, Output: json.RawMessage("null"),
	}
	if row.Output != nil {
		result.Output = json.RawMessage(*row.Output)
	}
	return result
}

// queryPatience is how long Status waits for a live run to say what it waits for.
const queryPatience = 3 * time.Second

// Status tells where the job stands. State, money and what became of a refund to its source come from its rows; what an
// open job waits for comes from its run, where that answers in time. Errors: NotFound, Unavailable.
func (c *Client) Status(ctx context.Context, tenant, jobID string) (contract.JobStatus, error) {
	status, err := c.jobStatus(ctx, tenant, jobID)
	if err != nil || status.Refunded == 0 {
		return status, err
	}
	row, err := c.getJob(ctx, tenant, jobID)
	if err != nil {
		return contract.JobStatus{}, err
	}
	status.RefundID, status.Note, err = c.sourceRefund(ctx, row)
	if err != nil {
		return contract.JobStatus{}, err
	}
	return status, nil
}

func (c *Client) jobStatus(ctx context.Context, tenant, jobID string) (contract.JobStatus, error) {
	row, err := c.findJob(ctx, tenant, jobID)
	if err != nil {
		return contract.JobStatus{}, err
	}
	if row != nil && !contract.JobState(row.State).Open() {
		return statusOf(row, "nothing"), nil
	}
	run := c.askRun(ctx, tenant, jobID)
	// Read after the run was asked, the row is the newer of the two.
	if row, err = c.findJob(ctx, tenant, jobID); err != nil {
		return contract.JobStatus{}, err
	}
	failed := contract.CodeOf(run.failure)
	noRun := failed == contract.CodeNotFound
	switch {
	case row == nil && noRun:
		_, err = c.getJob(ctx, tenant, jobID)
		return contract.JobStatus{}, err
	case row == nil:
		return run.status, run.failure
	case !contract.JobState(row.State).Open():
		return statusOf(row, "nothing"), nil
	case noRun:
		return statusOf(row, "a run: submit the job again, which takes it up"), nil
	case failed != "":
		return statusOf(row, fmt.Sprintf("its run, which does not answer now (%v)", run.failure)), nil
	default:
		status := statusOf(row, run.status.WaitsFor)
		status.Attempt = max(status.Attempt, run.status.Attempt)
		return status, nil
	}
}

// runAnswer is what a job's run said about itself, or why it said nothing.
type runAnswer struct {
	status  contract.JobStatus
	failure error
}

// askRun asks the job's open run how it stands; without one, the failure is NotFound. The run of a declined job, which
// has no row to tell, is answered for when it has closed too.
func (c *Client) askRun(ctx context.Context, tenant, jobID string) runAnswer {
	ctx, cancel := context.WithTimeout(ctx, queryPatience)
	defer cancel()
	id, tried := contract.JobWorkflowID(tenant, jobID), "query job "+jobID
	answer, err := c.temporal.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
		WorkflowID: id, QueryType: contract.StatusQuery,
		// A terminated run would answer as if it were alive.
		QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	if err != nil {
		return runAnswer{failure: translate(tried, err)}
	}
	if answer.QueryRejected == nil {
		var live contract.JobStatus
		err = answer.QueryResult.Get(&live)
		return runAnswer{live, translate(tried, err)}
	}
	var result contract.JobResult
	if answer.QueryRejected.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
		err = c.temporal.GetWorkflow(ctx, id, "").Get(ctx, &result)
	}
	if err != nil || result.State != contract.StateDeclined {
		return runAnswer{failure: contract.NewError(contract.CodeNotFound, contract.RetryNever, tried+": there is no open run", err)}
	}
	return runAnswer{status: contract.JobStatus{
		State: result.State, WaitsFor: "nothing: " + result.Reason, Actions: result.State.Actions(),
	}}
}

func statusOf(row *db.ReclaimJob, waitsFor string) contract.JobStatus {
	state := contract.JobState(row.State)
	return contract.JobStatus{
		State: state, Money: moneyOf(row), Attempt: int(row.Attempts), WaitsFor: waitsFor, Actions: state.Actions(),
	}
}

// ReportOutcome tells a job, from outside, how an attempt of its work ended. It may be repeated. A closed job that the
// report may still change gets a run of its own for it.
func (c *Client) ReportOutcome(ctx context.Context, tenant, jobID string, outcome contract.Outcome) error {
	tried := "report an outcome of job " + jobID
	// What is not kept need not travel: a few dozen large reports would fill the run's history.
	if size := len(outcome.Output); outcome.State == contract.OutcomeFailed {
		outcome.Output = nil
	} else if size > contract.MaxOutputBytes && json.Valid(outcome.Output) {
		outcome.Output = json.RawMessage(fmt.Sprintf(`{"omitted":true,"bytes":%d}`, size))
	}
	raw, err := json.Marshal(outcome)
	if err != nil {
		return contract.NewError(contract.CodeBadInput, contract.RetryNewKey, "the outcome is not valid JSON: "+err.Error(), err)
	}
	if _, err := contract.ParseOutcome(raw); err != nil {
		return err
	}
	row, err := c.findJob(ctx, tenant, jobID)
	if err != nil {
		return err
	}
	if row == nil {
		// It may be about to be charged: an open run takes the report.
		return translate(tried, c.temporal.SignalWorkflow(ctx, contract.JobWorkflowID(tenant, jobID), "",
			contract.OutcomeSignal, jobPayload(raw)))
	}
	if row.State == string(contract.StateSucceeded) && outcome.State == contract.OutcomeSucceeded {
		return nil
	}
	job, err := contract.ParseJob([]byte(row.Spec))
	if err != nil {
		return fmt.Errorf("read the stored spec of job %s: %w", jobID, err)
	}
	_, err = c.temporal.SignalWithStartWorkflow(ctx, job.WorkflowID(), contract.OutcomeSignal, jobPayload(raw),
		c.StartOptions(job), contract.MeteredJobWorkflow, jobPayload([]byte(row.Spec)))
	return translate(tried, err)
}

// Resolve takes a person's decision to the job and answers how it went. The same id with the same content is answered
// as the first time. Errors: BadResolution (invalid, not possible in the job's state, or the id stands for another
// decision), NotFound, Unavailable.
func (c *Client) Resolve(ctx context.Context, tenant, jobID string, decision contract.Resolution) (contract.ResolutionAnswer, error) {
	none := contract.ResolutionAnswer{}
	row, answer, err := c.foreseeResolution(ctx, tenant, jobID, decision)
	if err != nil || answer.ID != "" {
		return answer, err
	}
	job, err := contract.ParseJob([]byte(row.Spec))
	if err != nil {
		return none, fmt.Errorf("read the stored spec of job %s: %w", jobID, err)
	}
	start := func() client.WithStartWorkflowOperation {
		return c.temporal.NewWithStartWorkflowOperation(c.StartOptions(job), contract.MeteredJobWorkflow, jobPayload([]byte(row.Spec)))
	}
	return sendDecision(ctx, c, "resolve job "+jobID, job.WorkflowID(), start, decision,
		func() (contract.ResolutionAnswer, bool, error) { return c.pastResolution(ctx, row, decision) })
}

// foreseeResolution answers a decision as far as that is known without its job's run: what it was answered before, or that it
// is not possible. An answer without an id says that it is.
func (c *Client) foreseeResolution(
	ctx context.Context, tenant, jobID string, decision contract.Resolution,
) (*db.ReclaimJob, contract.ResolutionAnswer, error) {
	none := contract.ResolutionAnswer{}
	if err := decision.Check(); err != nil {
		return nil, none, err
	}
	row, err := c.getJob(ctx, tenant, jobID)
	if err != nil {
		return nil, none, err
	}
	if answer, known, err := c.pastResolution(ctx, row, decision); known || err != nil {
		return row, answer, err
	}
	// An open job's run has the last word, since it may be further than the row.
	if state := contract.JobState(row.State); !state.Open() {
		return row, none, notPossible(state, decision.Action)
	}
	return row, none, nil
}

// notPossible is the error of a decision that a job in this state cannot take, nil where it can.
func notPossible(state contract.JobState, action contract.Action) error {
	if slices.Contains(state.Actions(), action) {
		return nil
	}
	return contract.NewError(contract.CodeBadResolution, contract.RetryNever, fmt.Sprintf(
		"%s is not possible while the job is %s: possible now: %s", action, state, inWords(state.Actions())), nil)
}

// sendDecision takes a person's decision to a run, which start starts if there is none, and answers how it went. A run that
// takes no more updates gets it as a signal, and its record is waited for: past reads that. While Temporal is away, or the
// run closes under the decision, it is sent again: its own id makes that safe. ctx bounds it.
func sendDecision[A any](
	ctx context.Context, c *Client, tried, workflowID string, start func() client.WithStartWorkflowOperation, decision any,
	past func() (A, bool, error),
) (A, error) {
	var none A
	for signaled := false; ; {
		var err error
		if !signaled {
			var answer A
			if answer, err = updateWithDecision[A](ctx, c, start(), decision); err == nil {
				return answer, nil
			}
			if takesNoUpdates(err) {
				err = c.temporal.SignalWorkflow(ctx, workflowID, "", contract.ResolveMessage, decision)
				signaled = err == nil
			}
			if err != nil && !closing(err) {
				if err = translate(tried, err); contract.CodeOf(err) != contract.CodeUnavailable || !transient(err) {
					return none, err
				}
			}
		}
		select {
		case <-ctx.Done():
			return none, translate(tried, cmp.Or(err, ctx.Err()))
		case <-time.After(300 * time.Millisecond):
		}
		answer, known, pastErr := past()
		if known || contract.CodeOf(pastErr) == contract.CodeForbidden {
			return answer, pastErr
		}
	}
}

func updateWithDecision[A any](
	ctx context.Context, c *Client, start client.WithStartWorkflowOperation, decision any,
) (answer A, err error) {
	handle, err := c.temporal.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: start,
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateID: rand.Text(), UpdateName: contract.ResolveMessage, Args: []any{decision},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	return answer, err
}

// closing says whether the run closed under what was sent to it; another takes it.
func closing(err error) bool {
	_, gone := errors.AsType[*serviceerror.NotFound](err)
	ended, ok := errors.AsType[*temporal.ApplicationError](err)
	return gone || ok && ended.Type() == "AcceptedUpdateCompletedWorkflow"
}

// pastResolution answers a decision whose id was used before.
func (c *Client) pastResolution(ctx context.Context, row *db.ReclaimJob, decision contract.Resolution) (contract.ResolutionAnswer, bool, error) {
	past, err := c.store.GetResolution(ctx, db.GetResolutionParams{
		TenantID: row.TenantID, SubjectKind: "job", SubjectID: row.JobID, ResolutionID: decision.ID,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return contract.ResolutionAnswer{}, false, nil
	}
	if err != nil {
		return contract.ResolutionAnswer{}, false, unavailable("read the resolutions of job "+row.JobID, err)
	}
	answer := contract.ResolutionAnswer{ID: past.ResolutionID, Outcome: past.Outcome, State: contract.JobState(past.State)}
	same := contract.Resolution{
		ID: past.ResolutionID, Action: contract.Action(past.Action), Operator: past.Operator, Reason: past.Reason,
		Evidence: past.Evidence, Attempts: int(past.Attempts),
	} == decision
	return answer, true, pastRefusal(past, same)
}

// Cancel asks for the job to be canceled: it is refunded at once, and its work is asked to stop. An open job without a
// run gets one. A job that was canceled before is no error; one that is closed otherwise fails with BadInput. Errors: BadInput,
// NotFound, Unavailable.
func (c *Client) Cancel(ctx context.Context, tenant, jobID string) error {
	tried := "cancel job " + jobID
	id := contract.JobWorkflowID(tenant, jobID)
	row, err := c.findJob(ctx, tenant, jobID)
	if err != nil {
		return err
	}
	if row == nil {
		running, err := c.HasRun(ctx, id)
		if err == nil && !running {
			_, err = c.getJob(ctx, tenant, jobID)
		}
		if err != nil {
			return err
		}
		return translate(tried, c.temporal.CancelWorkflow(ctx, id, ""))
	}
	if state := contract.JobState(row.State); state == contract.StateCanceled {
		return nil
	} else if !state.Open() {
		return contract.NewError(contract.CodeBadInput, contract.RetryNever,
			fmt.Sprintf("job %s is %s already: only an open job can be canceled", jobID, state), nil)
	}
	job, err := contract.ParseJob([]byte(row.Spec))
	if err != nil {
		return fmt.Errorf("read the stored spec of job %s: %w", jobID, err)
	}
	// Temporal accepts the cancel of a closed run and does nothing: the open one is joined, or started, first.
	if err := c.TakeUpJob(ctx, job, row.Spec); err != nil {
		return err
	}
	return translate(tried, c.temporal.CancelWorkflow(ctx, id, ""))
}

// TakeUpJob starts a run of a job that has a row, from the spec stored in it, which job is read from. An open run is left as it
// is. Errors: Unavailable.
func (c *Client) TakeUpJob(ctx context.Context, job contract.Job, spec string) error {
	_, err := c.temporal.ExecuteWorkflow(ctx, c.StartOptions(job), contract.MeteredJobWorkflow, jobPayload([]byte(spec)))
	return translate("start a run of job "+job.JobID, err)
}

// OpenJob is a job that is not closed.
type OpenJob struct {
	Tenant string            `json:"tenant"`
	JobID  string            `json:"jobId"`
	State  contract.JobState `json:"state"`
	// Since is when the row last changed.
	Since time.Time `json:"since"`
}

// OpenJobsWithoutRun calls found for each open job that has no open run: its run was terminated, reset away, or never
// began. Submitting the job again takes it up. An empty tenant looks at all of them. An error of found ends it and is
// returned as it is. Errors: Unavailable.
func (c *Client) OpenJobsWithoutRun(ctx context.Context, tenant string, found func(OpenJob) error) error {
	page := db.ListOpenJobsParams{OnlyTenant: tenant, PageSize: 500}
	for {
		rows, err := c.store.ListOpenJobs(ctx, page)
		if err != nil {
			return unavailable("list the open jobs", err)
		}
		for _, row := range rows {
			page.AfterTenant, page.AfterJob = row.TenantID, row.JobID
			running, err := c.HasRun(ctx, contract.JobWorkflowID(row.TenantID, row.JobID))
			if err != nil {
				return err
			}
			if running {
				continue
			}
			// The run may have closed the job between the page and the look.
			now, err := c.findJob(ctx, row.TenantID, row.JobID)
			if err != nil {
				return err
			}
			if now == nil || !contract.JobState(now.State).Open() {
				continue
			}
			if err := found(OpenJob{row.TenantID, row.JobID, contract.JobState(now.State), now.UpdatedAt.UTC()}); err != nil {
				return err
			}
		}
		if len(rows) < int(page.PageSize) {
			return nil
		}
	}
}

// describePatience is how long Temporal may take to tell about one run.
const describePatience = 10 * time.Second

// HasRun says whether a workflow id has an open run. Errors: Unavailable.
func (c *Client) HasRun(ctx context.Context, workflowID string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, describePatience)
	defer cancel()
	described, err := c.temporal.DescribeWorkflow(ctx, workflowID, "")
	if _, noRun := errors.AsType[*serviceerror.NotFound](err); noRun {
		return false, nil
	}
	if err != nil {
		return false, translate("look for the run "+workflowID, err)
	}
	return described.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, nil
}
