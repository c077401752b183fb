package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// ChargeRequest asks for a job's charge.
type ChargeRequest struct {
	JobKey
	Account     string `json:"account"`
	Cost        int64  `json:"cost"`
	Fingerprint string `json:"fingerprint"`
	// Spec is the job's input as it was received, kept for later runs.
	Spec   string `json:"spec"`
	Reason string `json:"reason"`
	// Ladder is the newest version of the workflow's code; it comes back in the answer and so into the history.
	Ladder int         `json:"ladder"`
	Source SourceOrder `json:"source,omitzero"`
}

// ChargeAnswer is the answer to a charge. Balance is the account's after it. SameSpec says, for a job that was there
// before, that the stored spec is the request's to the letter.
type ChargeAnswer struct {
	JobAnswer
	Balance  int64 `json:"balance"`
	SameSpec bool  `json:"sameSpec,omitempty"`
	Ladder   int   `json:"ladder"`
}

// ChargeJob takes the job's cost from its account and creates the job, or finds the job that is there. It is refused
// with WhyConflict, WhyUnknownAccount, WhyDebt or WhyInsufficientCredits, and where its refund's order is missing, with
// WhyUnknownOrder or WhyOtherAccount.
func (j *Jobs) ChargeJob(ctx context.Context, r ChargeRequest) (ChargeAnswer, error) {
	if err := ownGuard(ctx, r.JobKey); err != nil {
		return ChargeAnswer{}, err
	}
	tried := "charge " + r.name()
	if why, err := j.checkSource(ctx, r.JobKey, r.Source); err != nil || why != "" {
		return ChargeAnswer{JobAnswer: JobAnswer{Verdict: Refused, Why: why}, Ladder: r.Ladder}, err
	}
	row, err := j.store.ChargeJob(ctx, db.ChargeJobParams{
		TenantID: r.Tenant, JobID: r.JobID, AccountID: r.Account, Cost: r.Cost, Fingerprint: r.Fingerprint,
		Spec: r.Spec, Reason: contract.Clip(r.Reason, contract.MaxReasonBytes), NotAfter: j.store.NotAfter(),
	})
	if err = j.checked(ctx, tried, row.Answer, err); err != nil {
		return ChargeAnswer{}, err
	}
	answer := answerOf(jobGuardRow{
		Answer: row.Answer, State: row.State, Cost: row.Cost, IsRefunded: row.IsRefunded, IsReclaimed: row.IsReclaimed,
		Attempts: row.Attempts, Granted: row.Granted, KeyAttempt: row.KeyAttempt, CancelRequested: row.CancelRequested,
		Reason: row.Reason, CreatedAt: row.CreatedAt, AgeUs: row.AgeUs,
	})
	if answer.Verdict == Refused && answer.Row.State == "" {
		// The statement's snapshot is older than the account's lock: a charge of this very job may have been in front of it,
		// and have taken the credits.
		switch _, err := j.store.GetJobSpec(ctx, db.GetJobSpecParams{TenantID: r.Tenant, JobID: r.JobID}); {
		case err == nil:
			return j.ChargeJob(ctx, r)
		case !errors.Is(err, pgx.ErrNoRows):
			return ChargeAnswer{}, retry(ctx, schema.Classify(tried, err))
		}
	}
	return ChargeAnswer{JobAnswer: answer, Balance: row.Balance, SameSpec: row.SameSpec, Ladder: r.Ladder}, nil
}

// EndedAttempt is an attempt that ended without a delivery. The zero value is no attempt.
type EndedAttempt struct {
	Attempt int `json:"attempt,omitempty"`
	// Failed is true where it is certain that the attempt delivered nothing, false where its outcome is unknown.
	Failed bool   `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"`
}

// RefundRequest asks to give a job's cost back, and to record what led to it.
type RefundRequest struct {
	JobKey
	Reason string       `json:"reason"`
	Ended  EndedAttempt `json:"ended,omitzero"`
	// Cancel records that the job was asked to be canceled.
	Cancel bool `json:"cancel,omitempty"`
	// Source is where the credits go on to, in the same transaction.
	Source SourceOrder `json:"source,omitzero"`
}

// RefundJob gives the job's recorded cost back, once. It is refused with WhyDelivered.
func (j *Jobs) RefundJob(ctx context.Context, r RefundRequest) (JobAnswer, error) {
	if err := ownGuard(ctx, r.JobKey); err != nil {
		return JobAnswer{}, err
	}
	row, moved, err := j.withSource(ctx, r.JobKey, r.Source, func(queries *db.Queries) (jobGuardRow, error) {
		return queries.RefundJob(ctx, db.RefundJobParams{
			TenantID: r.Tenant, JobID: r.JobID, Reason: contract.Clip(r.Reason, contract.MaxReasonBytes),
			Attempt: int32(r.Ended.Attempt), AttemptFailed: r.Ended.Failed,
			AttemptError: contract.Clip(r.Ended.Error, contract.MaxReasonBytes),
			Cancel:       r.Cancel, NotAfter: j.store.NotAfter(),
		})
	})
	return j.guarded(ctx, "refund", r.JobKey, row, moved, err)
}

// SettleRequest reports that a job was delivered.
type SettleRequest struct {
	JobKey
	// Attempt is the number of the attempt that delivered.
	Attempt int `json:"attempt"`
	// Output is the result as JSON text, at most contract.MaxOutputBytes; nil stores none.
	Output *string     `json:"output,omitempty"`
	Reason string      `json:"reason"`
	Source SourceOrder `json:"source,omitzero"`
}

// SettleJob marks the job delivered, whatever its state, and takes its cost again if and only if it had been refunded.
func (j *Jobs) SettleJob(ctx context.Context, r SettleRequest) (JobAnswer, error) {
	if err := ownGuard(ctx, r.JobKey); err != nil {
		return JobAnswer{}, err
	}
	row, moved, err := j.withSource(ctx, r.JobKey, r.Source, func(queries *db.Queries) (jobGuardRow, error) {
		row, err := queries.SettleJob(ctx, db.SettleJobParams{
			TenantID: r.Tenant, JobID: r.JobID, Attempt: int32(r.Attempt), Output: r.Output,
			Reason: contract.Clip(r.Reason, contract.MaxReasonBytes), NotAfter: j.store.NotAfter(),
		})
		return jobGuardRow(row), err
	})
	return j.guarded(ctx, "settle", r.JobKey, row, moved, err)
}

// RecordRequest counts an ended attempt.
type RecordRequest struct {
	JobKey
	Ended EndedAttempt `json:"ended"`
}

// RecordAttempt counts an ended attempt without moving money. It is refused with WhyNotRunning.
func (j *Jobs) RecordAttempt(ctx context.Context, r RecordRequest) (JobAnswer, error) {
	if err := ownGuard(ctx, r.JobKey); err != nil {
		return JobAnswer{}, err
	}
	row, err := j.store.RecordAttempt(ctx, db.RecordAttemptParams{
		TenantID: r.Tenant, JobID: r.JobID, Attempt: int32(r.Ended.Attempt), AttemptFailed: r.Ended.Failed,
		AttemptError: contract.Clip(r.Ended.Error, contract.MaxReasonBytes),
	})
	return j.guarded(ctx, "record an attempt of", r.JobKey, jobGuardRow(row), SourceRefund{}, err)
}

// ParkRequest asks to make a job a dead letter. MaxAttempts is the limit of its spec, without what people granted.
type ParkRequest struct {
	JobKey
	MaxAttempts int    `json:"maxAttempts"`
	Reason      string `json:"reason"`
}

// ParkJob makes a refunded job whose attempts are used up a dead letter. It is refused with WhyNotRunning,
// WhyNotRefunded or WhyAttemptsLeft.
func (j *Jobs) ParkJob(ctx context.Context, r ParkRequest) (JobAnswer, error) {
	if err := ownGuard(ctx, r.JobKey); err != nil {
		return JobAnswer{}, err
	}
	row, err := j.store.ParkJob(ctx, db.ParkJobParams{
		TenantID: r.Tenant, JobID: r.JobID, MaxAttempts: int32(r.MaxAttempts),
		Reason: contract.Clip(r.Reason, contract.MaxReasonBytes),
	})
	return j.guarded(ctx, "park", r.JobKey, jobGuardRow(row), SourceRefund{}, err)
}

// CloseRequest asks to end an undelivered job as failed or canceled.
type CloseRequest struct {
	JobKey
	State  contract.JobState `json:"state"`
	Reason string            `json:"reason"`
	Ended  EndedAttempt      `json:"ended,omitzero"`
	Source SourceOrder       `json:"source,omitzero"`
}

// CloseJob ends an undelivered job and gives its cost back if that was not done. It is refused with WhyClosed.
func (j *Jobs) CloseJob(ctx context.Context, r CloseRequest) (JobAnswer, error) {
	if err := ownGuard(ctx, r.JobKey); err != nil {
		return JobAnswer{}, err
	}
	row, moved, err := j.withSource(ctx, r.JobKey, r.Source, func(queries *db.Queries) (jobGuardRow, error) {
		row, err := queries.CloseJob(ctx, db.CloseJobParams{
			TenantID: r.Tenant, JobID: r.JobID, State: string(r.State),
			Reason:  contract.Clip(r.Reason, contract.MaxReasonBytes),
			Attempt: int32(r.Ended.Attempt), AttemptError: contract.Clip(r.Ended.Error, contract.MaxReasonBytes),
			NotAfter: j.store.NotAfter(),
		})
		return jobGuardRow(row), err
	})
	return j.guarded(ctx, "close", r.JobKey, row, moved, err)
}

// ResolveRequest is a person's decision about a job.
type ResolveRequest struct {
	JobKey
	Resolution contract.Resolution `json:"resolution"`
	// Invalid is why the decision breaks the contract; a signal's invalid decision is recorded with it.
	Invalid string `json:"invalid,omitempty"`
	// RecordRefusal keeps a refused decision: a signal has nobody to answer to.
	RecordRefusal bool        `json:"recordRefusal,omitempty"`
	Source        SourceOrder `json:"source,omitzero"`
}

// ResolveAnswer is the answer to a decision. Outcome and State are those of the first time where it was taken before.
type ResolveAnswer struct {
	JobAnswer
	Outcome string            `json:"outcome"`
	State   contract.JobState `json:"decidedState"`
	// Refusal says in words why the decision was refused.
	Refusal string `json:"refusal,omitempty"`
}

// ResolveJob applies a decision with its effect, once for each resolution id. It is refused with WhyIDReused,
// WhyInvalid or WhyWrongState.
func (j *Jobs) ResolveJob(ctx context.Context, r ResolveRequest) (ResolveAnswer, error) {
	if err := ownGuard(ctx, r.JobKey); err != nil {
		return ResolveAnswer{}, err
	}
	tried, d := "resolve "+r.name(), r.Resolution
	var row db.ResolveJobRow
	_, moved, err := j.withSource(ctx, r.JobKey, r.Source, func(queries *db.Queries) (_ jobGuardRow, err error) {
		row, err = queries.ResolveJob(ctx, db.ResolveJobParams{
			TenantID: r.Tenant, JobID: r.JobID, ResolutionID: d.ID, Action: string(d.Action), Attempts: int32(d.Attempts),
			Operator: d.Operator, Reason: d.Reason, Evidence: d.Evidence,
			EntryReason: contract.Clip(decisionInWords(d), contract.MaxReasonBytes),
			Invalid:     contract.Clip(r.Invalid, contract.MaxReasonBytes), RecordRefusal: r.RecordRefusal,
			NotAfter: j.store.NotAfter(),
		})
		standing := guardRowOfResolve(row)
		if row.PriorOutcome == contract.ResolutionRefused {
			// Repeated, a decision that was refused is answered already, and moves no more than it did the first time.
			standing.Answer = row.PriorOutcome
		}
		return standing, err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return ResolveAnswer{}, noJob(tried, r.JobKey)
	}
	if err = j.checked(ctx, tried, row.Answer, err); err != nil {
		return ResolveAnswer{}, err
	}
	answer := ResolveAnswer{
		JobAnswer: answerOf(guardRowOfResolve(row)), Outcome: contract.ResolutionApplied, State: contract.JobState(row.State),
	}
	answer.Source = moved
	switch answer.Verdict {
	case Already:
		answer.Outcome, answer.State = row.PriorOutcome, contract.JobState(row.PriorState)
		answer.Refusal = row.PriorRefusal
	case Refused:
		if answer.Why != WhyIDReused && !r.RecordRefusal {
			// The statement's snapshot is older than the row's lock: this very decision may have been in front of it. (One
			// that records its refusal would have met the other's record.)
			_, err := j.store.GetResolution(ctx, db.GetResolutionParams{
				TenantID: r.Tenant, SubjectKind: "job", SubjectID: r.JobID, ResolutionID: d.ID,
			})
			if err == nil {
				return j.ResolveJob(ctx, r)
			}
			if !errors.Is(err, pgx.ErrNoRows) {
				return ResolveAnswer{}, retry(ctx, schema.Classify(tried, err))
			}
		}
		answer.Outcome = contract.ResolutionRefused
		answer.Refusal = refusalInWords(answer.Why, r)
		if answer.Why == WhyWrongState {
			answer.Refusal = fmt.Sprintf("%s is not possible while the job is %s: possible now: %s",
				d.Action, answer.State, actionsInWords(answer.State))
		}
	}
	return answer, nil
}

func guardRowOfResolve(row db.ResolveJobRow) jobGuardRow {
	return jobGuardRow{
		Answer: row.Answer, State: row.State, Cost: row.Cost, IsRefunded: row.IsRefunded, IsReclaimed: row.IsReclaimed,
		Attempts: row.Attempts, Granted: row.Granted, KeyAttempt: row.KeyAttempt, CancelRequested: row.CancelRequested,
		Reason: row.Reason, CreatedAt: row.CreatedAt, AgeUs: row.AgeUs,
	}
}

func decisionInWords(d contract.Resolution) string {
	switch d.Action {
	case contract.ActionRetry:
		return fmt.Sprintf("%s granted %d more: %s", d.Operator, d.Attempts, d.Reason)
	case contract.ActionDeliver:
		return fmt.Sprintf("delivered, says %s: %s (evidence: %s)", d.Operator, d.Reason, d.Evidence)
	default:
		return fmt.Sprintf("written off by %s: %s", d.Operator, d.Reason)
	}
}

func refusalInWords(why string, r ResolveRequest) string {
	switch why {
	case WhyIDReused:
		return fmt.Sprintf("the resolution id %q stands for another decision: use a new id", r.Resolution.ID)
	default:
		return r.Invalid
	}
}

func actionsInWords(state contract.JobState) string {
	words := ""
	for i, action := range state.Actions() {
		if i > 0 {
			words += ", "
		}
		words += string(action)
	}
	if words == "" {
		return "nothing"
	}
	return words
}

func (k JobKey) name() string { return contract.JobWorkflowID(k.Tenant, k.JobID) }

func (j *Jobs) guarded(
	ctx context.Context, verb string, key JobKey, row jobGuardRow, moved SourceRefund, err error,
) (JobAnswer, error) {
	tried := verb + " " + key.name()
	if errors.Is(err, pgx.ErrNoRows) {
		return JobAnswer{}, noJob(tried, key)
	}
	if err := j.checked(ctx, tried, row.Answer, err); err != nil {
		return JobAnswer{}, err
	}
	answer := answerOf(row)
	answer.Source = moved
	return answer, nil
}

// checked returns the error of a guard, where it has one, ready for Temporal. A guard that came too late calls for a new
// look at Postgres' clock before it is repeated.
func (j *Jobs) checked(ctx context.Context, tried, answer string, err error) error {
	if err != nil {
		return retry(ctx, schema.Classify(tried, err))
	}
	if answer == "too_late" {
		if err := j.store.Resync(ctx); err != nil {
			return retry(ctx, schema.Classify(tried, err))
		}
		return retry(ctx, schema.TooLate(tried))
	}
	return nil
}
