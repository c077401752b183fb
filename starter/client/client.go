package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Client asks Reclaim for things. It is safe for concurrent use and owns neither of its connections.
type Client struct {
	temporal  client.Client
	store     *schema.Store
	taskQueue string
	// keys is what busy doors ask for again and again.
	keys *gatherer[askedBy, *db.GetAPIKeysRow]
}

// New returns a Client on a Temporal client and a store. taskQueue is where Reclaim's worker polls; empty means
// contract.TaskQueue.
func New(temporal client.Client, store *schema.Store, taskQueue string) *Client {
	if taskQueue == "" {
		taskQueue = contract.TaskQueue
	}
	c := &Client{temporal: temporal, store: store, taskQueue: taskQueue}
	c.keys = newGatherer(c.readKeys)
	return c
}

// jobPayload hands a job's input on to the letter, so that the stored spec is what was submitted.
func jobPayload(raw []byte) converter.RawValue {
	return converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)}, Data: raw,
	})
}

// StartOptions are how every run of a job is started, for callers who start the workflow themselves: an open run is
// joined, and a closed id may run again, since the row decides what that run does. The search attributes say from the
// start what nearly every run would otherwise have to say in an event of its own, which costs the server about a tenth
// of the whole job; the first task corrects a job that is declined, or refunded already.
func (c *Client) StartOptions(job contract.Job) client.StartWorkflowOptions {
	summary := job.Summary
	if summary == "" {
		summary = job.Work.Activity
	}
	return client.StartWorkflowOptions{
		ID:                       job.WorkflowID(),
		TaskQueue:                c.taskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		TypedSearchAttributes: temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(contract.AttributeTenant).ValueSet(job.Tenant),
			temporal.NewSearchAttributeKeyKeyword(contract.AttributeAccount).ValueSet(job.Account),
			temporal.NewSearchAttributeKeyKeyword(contract.AttributeMoney).ValueSet(contract.MoneyCharged),
		),
		StaticSummary: contract.Clip(fmt.Sprintf("%d credits · %s · %s/%s", job.Cost, summary, job.Tenant, job.Account), 200),
		StaticDetails: describeJob(job),
	}
}

// findJob returns the job's row, and nil where there is none.
func (c *Client) findJob(ctx context.Context, tenant, jobID string) (*db.ReclaimJob, error) {
	if err := together(contract.CheckID("tenant", tenant), contract.CheckID("jobId", jobID)); err != nil {
		return nil, err
	}
	row, err := c.store.GetJob(ctx, db.GetJobParams{TenantID: tenant, JobID: jobID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, unavailable("read job "+jobID, err)
	}
	return &row, nil
}

// getJob returns the job's row and fails with NotFound where there is none.
func (c *Client) getJob(ctx context.Context, tenant, jobID string) (*db.ReclaimJob, error) {
	row, err := c.findJob(ctx, tenant, jobID)
	if err == nil && row == nil {
		err = contract.NewError(contract.CodeNotFound, contract.RetryNever,
			fmt.Sprintf("tenant %s has no job %s (a declined job leaves no row)", tenant, jobID), nil)
	}
	return row, err
}

// moneyAttempts bounds how often a movement is tried before its caller is told to repeat it.
const moneyAttempts = 8

// persist makes one attempt after another while Postgres is busy or its answer was lost: what is attempted has a key that
// makes that safe. Without the limit of each, an answer that never comes would be waited for for ever.
func persist[T any](ctx context.Context, tried string, attempt func(context.Context) (T, error)) (T, error) {
	for n := 1; ; n++ {
		limited, cancel := context.WithTimeout(ctx, schema.MoneyAttempt)
		answer, err := attempt(limited)
		cancel()
		if err == nil {
			return answer, nil
		}
		failure, _ := errors.AsType[*schema.Failure](schema.Classify(tried, err))
		// What an operator has to mend does not mend itself while a caller waits.
		final := !failure.Retryable || failure.Type == schema.ErrorMisconfigured
		if final || n == moneyAttempts || ctx.Err() != nil {
			return answer, unavailable(tried, failure)
		}
		select {
		case <-ctx.Done():
			return answer, unavailable(tried, failure)
		case <-time.After(max(failure.Delay, time.Duration(n)*50*time.Millisecond)):
		}
	}
}

// tooLate is what a money statement answers that its not-after instant kept from taking effect.
const tooLate = "too_late"

// tooLate measures Postgres' clock again and returns the error that has the statement repeated.
func (c *Client) tooLate(ctx context.Context, tried string) error {
	if err := c.store.Resync(ctx); err != nil {
		return err
	}
	return schema.TooLate(tried)
}

func unknownAnswer(tried, answer string) error {
	return unavailable(tried, fmt.Errorf("the database answered %q, which this program does not know", answer))
}

// snapshot reads several things as they were at one instant.
func (c *Client) snapshot(ctx context.Context, tried string, read func(*db.Queries) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, c.store.Pool, options, func(tx pgx.Tx) error { return read(c.store.WithTx(tx)) })
	if err != nil {
		return unavailable(tried, err)
	}
	return nil
}

// refused returns a refusal of what was tried, about one field unless that is empty.
func refused(code contract.Code, retry contract.Retry, tried, field, rule string) error {
	if field == "" {
		return contract.NewError(code, retry, tried+": "+rule, nil)
	}
	refusal := contract.NewError(code, retry, tried+": "+field+" "+rule, nil)
	refusal.Fields = []contract.FieldError{{Field: field, Rule: rule}}
	return refusal
}

// together makes one error of all that a request got wrong, so that it is corrected in one go.
func together(errs ...error) error {
	var all *contract.Error
	for _, err := range errs {
		one, ok := errors.AsType[*contract.Error](err)
		switch {
		case err == nil:
		case !ok:
			return err
		case all == nil:
			all = contract.NewError(one.Code, one.Retry, one.Message, nil)
			all.Fields = slices.Clone(one.Fields)
		default:
			all.Message += "; " + one.Message
			all.Fields = append(all.Fields, one.Fields...)
		}
	}
	if all == nil {
		return nil
	}
	return all
}

// unavailable says that a call got no answer: what it asked for may or may not have happened. Postgres' answer that it
// cannot do this at all, ever, is the exception.
func unavailable(tried string, err error) error {
	if contract.CodeOf(err) != "" {
		return err
	}
	if denied(err) {
		return contract.NewError(contract.CodeForbidden, contract.RetryNever, tried+": "+err.Error(), err)
	}
	if failure, ok := errors.AsType[*schema.Failure](err); ok {
		retry := contract.RetrySameKey
		if !failure.Retryable {
			retry = contract.RetryNever
		}
		// A Failure names what was tried itself.
		return contract.NewError(contract.CodeUnavailable, retry, failure.Error(), err)
	}
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	if late || errors.Is(err, context.DeadlineExceeded) {
		return contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, tried+": no answer in time: "+err.Error(), err)
	}
	return contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, tried+": "+err.Error(), err)
}

// denied says whether the caller has no right to what it asked for: its database login, or its Temporal identity, lacks it.
func denied(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" {
		return true
	}
	_, refused := errors.AsType[*serviceerror.PermissionDenied](err)
	return refused
}

// translate turns what Temporal answered into a *contract.Error. The contract's own error types come back as the codes
// that they were; whatever else it is, the outcome is unknown and the same request is safe.
func translate(tried string, err error) error {
	if err == nil {
		return nil
	}
	if app, ok := errors.AsType[*temporal.ApplicationError](err); ok {
		switch code := contract.Code(app.Type()); code {
		case contract.CodeBadInput, contract.CodeConflict, contract.CodeBadResolution, contract.CodeNotFound:
			var kept contract.Error
			if app.HasDetails() && app.Details(&kept) == nil && kept.Code != "" {
				return &kept
			}
			return contract.NewError(code, contract.RetryNewKey, app.Message(), err)
		}
	}
	if _, ok := errors.AsType[*serviceerror.NotFound](err); ok {
		return contract.NewError(contract.CodeNotFound, contract.RetryNever, tried+": there is no open run", err)
	}
	return unavailable(tried, err)
}
