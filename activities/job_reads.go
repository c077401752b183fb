package activities

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// StoredOutput is a delivered job's stored result. Output is null where none was kept; Reason is the whole of the row's.
type StoredOutput struct {
	Output json.RawMessage `json:"output"`
	Reason string          `json:"reason"`
}

// ReadJobOutput reads the stored result of a job: an ordinary activity, since it may be larger than a local one's result
// should be.
func (j *Jobs) ReadJobOutput(ctx context.Context, key JobKey) (StoredOutput, error) {
	if err := ownRun(ctx, key); err != nil {
		return StoredOutput{}, err
	}
	tried := "read the output of " + key.name()
	row, err := j.store.GetJobOutput(ctx, db.GetJobOutputParams{TenantID: key.Tenant, JobID: key.JobID})
	if errors.Is(err, pgx.ErrNoRows) {
		return StoredOutput{}, noJob(tried, key)
	}
	if err != nil {
		return StoredOutput{}, retry(ctx, schema.Classify(tried, err))
	}
	stored := StoredOutput{Reason: row.Reason}
	if row.Output != nil {
		stored.Output = json.RawMessage(*row.Output)
	}
	return stored, nil
}

// ReadJobSpec reads the input that governs every run of the job.
func (j *Jobs) ReadJobSpec(ctx context.Context, key JobKey) (string, error) {
	if err := ownRun(ctx, key); err != nil {
		return "", err
	}
	tried := "read the spec of " + key.name()
	spec, err := j.store.GetJobSpec(ctx, db.GetJobSpecParams{TenantID: key.Tenant, JobID: key.JobID})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", noJob(tried, key)
	}
	if err != nil {
		return "", retry(ctx, schema.Classify(tried, err))
	}
	return spec, nil
}

// Kinds of job events beside those that a guard writes by itself.
const (
	EventProbeAnswered   = "probe_answered"
	EventOutcomeRecorded = "outcome_recorded"
	EventMessageRefused  = "message_refused"
	EventSourceRefund    = "source_refund"
	EventSourceRefused   = "source_refused"
	EventTakenUp         = "taken_up"
)

// EventRequest is a line of a job's story that moves nothing.
type EventRequest struct {
	JobKey
	Kind    string `json:"kind"`
	Attempt int    `json:"attempt,omitempty"`
	Detail  string `json:"detail"`
}

// RecordJobEvent appends the line once. It answers Refused where there is no such job (a declined one has no story).
func (j *Jobs) RecordJobEvent(ctx context.Context, r EventRequest) (Verdict, error) {
	if err := ownGuard(ctx, r.JobKey); err != nil {
		return "", err
	}
	return recordEvent(ctx, j.store, r)
}

func recordEvent(ctx context.Context, store *schema.Store, r EventRequest) (Verdict, error) {
	tried := "record an event of " + r.name()
	var answer string
	// A statement looks for the line in a snapshot that is older than a lock it waits for: the lock comes first.
	err := pgx.BeginFunc(ctx, store.Pool, func(tx pgx.Tx) (err error) {
		queries := store.WithTx(tx)
		if _, err = queries.LockJob(ctx, db.LockJobParams{TenantID: r.Tenant, JobID: r.JobID}); err != nil {
			return err
		}
		answer, err = queries.RecordJobEvent(ctx, db.RecordJobEventParams{
			TenantID: r.Tenant, JobID: r.JobID, Kind: r.Kind, Attempt: int32(r.Attempt),
			Detail: contract.Clip(r.Detail, contract.MaxReasonBytes),
		})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Refused, nil
	}
	if err != nil {
		return "", retry(ctx, schema.Classify(tried, err))
	}
	verdict, _ := verdictOf(answer)
	return verdict, nil
}
