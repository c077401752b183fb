package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// EnqueueJob leaves the job's start in the outbox, inside the caller's own transaction: once that is committed, a worker
// starts the job, exactly once; if it is rolled back, nothing ever happened. tx is a transaction on the database that holds
// Reclaim's schema; its login needs the role reclaim_enqueue and no other. The client's own connections are not used, so
// that New(nil, nil, "") is enough for a program that only enqueues.
//
// Whether the account could pay is known once the job has started: follow it with Status or AwaitJob. A job whose id stands
// for another job by then is not started, and an issue is opened. Errors: BadInput (nothing was written, and the
// transaction may go on), Forbidden (the login lacks the role) and Unavailable: the transaction is broken, roll it back.
func (c *Client) EnqueueJob(ctx context.Context, tx pgx.Tx, job contract.Job) error {
	raw, job, err := job.Encode()
	if err != nil {
		return err
	}
	if err := contract.CheckOwner(job.Tenant); err != nil {
		return err
	}
	err = db.New(tx).EnqueueJob(ctx, db.EnqueueJobParams{TenantID: job.Tenant, JobID: job.JobID, Payload: string(raw)})
	if denied(err) {
		return contract.NewError(contract.CodeForbidden, contract.RetryNever, fmt.Sprintf(
			"enqueue job %s: the transaction's login may not: let the owner GRANT reclaim_enqueue to it: %v", job.JobID, err), err)
	}
	if err != nil {
		return unavailable("enqueue job "+job.JobID, err)
	}
	return nil
}

// Enqueued is a job's row of the outbox.
type Enqueued struct {
	ID            int64
	Tenant, JobID string
	Payload       []byte
	// CreatedAt is the row's birth, by Postgres' clock.
	CreatedAt time.Time
	// Again says that the row was taken before, so that the job may have been started.
	Again bool
}

// job reads the payload by the rules of EnqueueJob, which not every row has come by.
func (e Enqueued) job() (contract.Job, error) {
	job, err := contract.ParseJob(e.Payload)
	if err != nil {
		return contract.Job{}, err
	}
	if err := contract.CheckOwner(job.Tenant); err != nil {
		return contract.Job{}, err
	}
	if job.Tenant != e.Tenant || job.JobID != e.JobID {
		return contract.Job{}, refused(contract.CodeBadInput, contract.RetryNewKey, "start an enqueued job", "", fmt.Sprintf(
			"its payload is job %s of tenant %s, and its row stands for another", job.JobID, job.Tenant))
	}
	return job, nil
}

// StartEnqueued starts the run of a job that was enqueued. Repeating it is safe where Again says that it was tried before,
// also if the answer was lost and the run has ended since. Errors: BadInput, Conflict (the job's id stands for another job),
// Unavailable (try again later: among others while another submission of the id has not been charged).
func (c *Client) StartEnqueued(ctx context.Context, e Enqueued) error {
	job, err := e.job()
	if err != nil {
		return err
	}
	if _, done, err := c.verdictFromRow(ctx, job, false); done || err != nil {
		return err
	}
	mark := "\n\nStarted from the outbox, row " + strconv.FormatInt(e.ID, 10) + "."
	if e.Again {
		// A job that was declined has no row to tell that it was started.
		run, err := c.newestRun(ctx, job)
		if err != nil || strings.HasSuffix(run.details, mark) {
			return err
		}
		if run.closed && run.started.After(e.CreatedAt) {
			// Where it left no row, the id has had its verdict since the job was enqueued, and our own run may be hidden behind
			// this one: a job that was declined is not charged later unless somebody asks for it again. An open row needs a run.
			row, err := c.findJob(ctx, job.Tenant, job.JobID)
			if err != nil || row == nil {
				return err
			}
			if _, done, err := c.verdictFromRow(ctx, job, false); done || err != nil {
				return err
			}
		}
	}
	options := c.StartOptions(job)
	options.StaticDetails += mark
	// An open run may be another submission's: it is joined only where the row says that it is the same job.
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL
	options.WorkflowExecutionErrorWhenAlreadyStarted = true
	tried := "start the enqueued job " + job.JobID
	_, err = c.temporal.ExecuteWorkflow(ctx, options, contract.MeteredJobWorkflow, jobPayload(e.Payload))
	if _, running := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); !running {
		return translate(tried, err)
	}
	if _, done, err := c.verdictFromRow(ctx, job, true); done || err != nil {
		return err
	}
	if run, err := c.newestRun(ctx, job); err != nil || strings.HasSuffix(run.details, mark) {
		return err
	}
	return contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, fmt.Sprintf(
		"%s: a run of this id is open and has not charged yet, so that it is not known whether it is the same job", tried), nil)
}

// jobRun is what Temporal tells of a job's run: who started it, when by Temporal's clock, and whether it has ended.
type jobRun struct {
	details string
	started time.Time
	closed  bool
}

// newestRun returns the job's newest run, and none, without details, where there is none.
func (c *Client) newestRun(ctx context.Context, job contract.Job) (jobRun, error) {
	run, err := c.temporal.DescribeWorkflow(ctx, job.WorkflowID(), "")
	if _, none := errors.AsType[*serviceerror.NotFound](err); none {
		return jobRun{}, nil
	}
	if err != nil {
		return jobRun{}, translate("look for the run of job "+job.JobID, err)
	}
	details, err := run.GetStaticDetails()
	if err != nil {
		return jobRun{}, unavailable("read who started job "+job.JobID, err)
	}
	return jobRun{details: details, started: run.WorkflowStartTime, closed: run.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING}, nil
}
