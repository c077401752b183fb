package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Job is a job as its row tells it.
type Job struct {
	Tenant  string            `json:"tenant"`
	JobID   string            `json:"jobId"`
	Account string            `json:"account"`
	State   contract.JobState `json:"state"`
	contract.Money
	// Net is what the customer has paid by now.
	Net int64 `json:"net"`
	// Attempts counts those that have ended.
	Attempts int `json:"attempts"`
	// Late is true where the job was delivered after its refund, which was then reclaimed.
	Late bool `json:"late" doc:"Whether it was delivered after its refund, which was then taken back. A delivery after the promise that came before the refund is not late"`
	// Output is the work's result, null where there is none.
	Output json.RawMessage `json:"output"`
	// Reason says why the job is as it is, LastError what the last attempt that failed said.
	Reason    string `json:"reason"`
	LastError string `json:"lastError,omitempty"`
	// WaitsFor says what happens next, Actions what a person can decide now.
	WaitsFor string            `json:"waitsFor"`
	Actions  []contract.Action `json:"actions"`
	// RefundID is the channel refund by which the job's refund left, Note why it did not and the credits stay.
	RefundID    string    `json:"refundId,omitempty"`
	Note        string    `json:"note,omitempty"`
	CreatedAt   time.Time `json:"createdAt,omitzero"`
	RefundedAt  time.Time `json:"refundedAt,omitzero"`
	DeliveredAt time.Time `json:"deliveredAt,omitzero"`
	UpdatedAt   time.Time `json:"updatedAt,omitzero"`
}

// Job reads where a job stands, from its row alone: a run is asked only where there is none, as of a job that was declined
// or is about to be charged. Status asks the run of every open job, and costs as much. Errors: BadInput, NotFound,
// Unavailable.
func (c *Client) Job(ctx context.Context, tenant, jobID string) (Job, error) {
	row, err := c.findJob(ctx, tenant, jobID)
	if err != nil {
		return Job{}, err
	}
	return c.jobFrom(ctx, tenant, jobID, row)
}

// jobFrom is Job for one whose row was looked up: nil where there was none.
func (c *Client) jobFrom(ctx context.Context, tenant, jobID string, row *db.ReclaimJob) (job Job, err error) {
	if row == nil {
		status, err := c.jobStatus(ctx, tenant, jobID)
		if contract.CodeOf(err) == contract.CodeUnavailable {
			// A run that no worker decides does not answer, but it is there.
			if running, lookErr := c.HasRun(ctx, contract.JobWorkflowID(tenant, jobID)); lookErr == nil && running {
				status, err = contract.JobStatus{State: contract.StateCharging, WaitsFor: "its charge", Actions: []contract.Action{}}, nil
			}
		}
		if err != nil {
			return Job{}, err
		}
		// A row that has appeared since tells more.
		if row, err = c.findJob(ctx, tenant, jobID); err != nil {
			return Job{}, err
		}
		if row == nil {
			job := Job{
				Tenant: tenant, JobID: jobID, State: status.State, Output: json.RawMessage("null"), WaitsFor: status.WaitsFor,
				Actions: status.Actions,
			}
			// A declined job's run says both in one line.
			if reason, declined := strings.CutPrefix(status.WaitsFor, "nothing: "); declined {
				job.WaitsFor, job.Reason = "nothing", reason
			}
			return job, nil
		}
	}
	job = jobOf(row)
	if job.Refunded > 0 {
		job.RefundID, job.Note, err = c.sourceRefund(ctx, row)
	}
	return job, err
}

// sourceRefund returns what became of a refund that was to leave through the job's order.
func (c *Client) sourceRefund(ctx context.Context, row *db.ReclaimJob) (refundID, note string, err error) {
	refundID, err = c.store.GetJobRefund(ctx, db.GetJobRefundParams{TenantID: row.TenantID, JobID: &row.JobID})
	if errors.Is(err, pgx.ErrNoRows) && row.State != string(contract.StateSucceeded) {
		note, err = c.store.GetSourceRefusal(ctx, db.GetSourceRefusalParams{TenantID: row.TenantID, JobID: row.JobID})
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", "", unavailable("read the channel refund of job "+row.JobID, err)
	}
	return refundID, note, nil
}

func jobOf(row *db.ReclaimJob) Job {
	result := resultOf(row)
	return Job{
		Tenant: row.TenantID, JobID: row.JobID, Account: row.AccountID, State: result.State, Money: result.Money, Net: result.Net,
		Attempts: result.Attempts, Late: result.Late, Output: result.Output, Reason: result.Reason, LastError: row.LastError,
		WaitsFor: waitsFor(row), Actions: result.State.Actions(), CreatedAt: row.CreatedAt.UTC(),
		RefundedAt: instant(row.RefundedAt), DeliveredAt: instant(row.DeliveredAt), UpdatedAt: row.UpdatedAt.UTC(),
	}
}

func inWords[T ~string](all []T) string {
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = string(one)
	}
	return cmp.Or(strings.Join(words, ", "), "nothing")
}

// waitsFor says what a job's row knows of what comes next.
func waitsFor(row *db.ReclaimJob) string {
	switch {
	case row.State == string(contract.StateDeadLetter):
		return "a person's decision: the attempts are used up"
	case row.State != string(contract.StateRunning):
		return "nothing"
	case row.CancelRequested:
		return "the end of the work, which was asked to stop"
	case row.IsRefunded:
		return fmt.Sprintf("attempt %d of the work, which is charged again if it delivers", row.Attempts+1)
	default:
		return fmt.Sprintf("attempt %d of the work, or the end of its promise", row.Attempts+1)
	}
}
