package activities

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Runs are the workflow runs of jobs and refunds, as Temporal knows them.
type Runs interface {
	// HasRun says whether the workflow id has an open run.
	HasRun(ctx context.Context, workflowID string) (bool, error)
	// TakeUpJob starts a run of the job from its spec, and StartRefund one of the refund; an open one is left as it is.
	TakeUpJob(ctx context.Context, job contract.Job, spec string) error
	StartRefund(ctx context.Context, tenant, refundID string) error
	// TellRefund has the refund's run take in what was learnt beside it.
	TellRefund(ctx context.Context, key contract.RefundKey, notice contract.ChannelNotice) error
	// OpenRuns lists a page of a tenant's open runs of a workflow type, after the page that token ends; an empty token begins,
	// and an empty next ends. Runs that began a moment ago may be missing.
	OpenRuns(ctx context.Context, workflowType, tenant string, token []byte) (runs []OpenRun, next []byte, err error)
	// Hears tells whether something is on its way to the run that it has not decided about: work that has not ended, or a
	// message or an event that no worker has taken up.
	Hears(ctx context.Context, run OpenRun) (bool, error)
	// EndRun terminates a run. One that has ended meanwhile is left as it is.
	EndRun(ctx context.Context, run OpenRun, why string) error
}

// OpenRun names a run.
type OpenRun struct {
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
}

// ChannelNames are channels that can be listed.
type ChannelNames interface {
	Channels
	// NamesFor returns the names of the channels that a tenant may use, in order.
	NamesFor(tenant string) []string
}

// Reconciler makes the comparisons of a reconciliation. Every method may run any number of times: it goes on where its last
// attempt was, and a fact that it finds again is recorded once.
type Reconciler struct {
	store    *schema.Store
	channels ChannelNames
	refunds  *Refunds
	runs     Runs
	ledger   Ledger
	found    func(kind string, effect contract.FindingEffect)
}

// NewReconciler returns the activities of reconciliations; found is told of everything that is found.
func NewReconciler(
	store *schema.Store, channels ChannelNames, refunds *Refunds, runs Runs, ledger Ledger,
	found func(kind string, effect contract.FindingEffect),
) *Reconciler {
	return &Reconciler{store: store, channels: channels, refunds: refunds, runs: runs, ledger: ledger, found: found}
}

// ReconciliationKey names a pass.
type ReconciliationKey struct {
	Tenant           string `json:"tenant"`
	ReconciliationID string `json:"reconciliationId"`
}

// OpenedReconciliation is a pass that has begun, with the channels that it will ask.
type OpenedReconciliation struct {
	Since    time.Time `json:"since"`
	Until    time.Time `json:"until"`
	Channels []string  `json:"channels"`
}

// OpenReconciliation begins the pass of the calling run, once.
func (r *Reconciler) OpenReconciliation(ctx context.Context, q contract.ReconcileRequest) (OpenedReconciliation, error) {
	if err := ownReconciliation(ctx, q.Tenant); err != nil {
		return OpenedReconciliation{}, err
	}
	if err := q.Check(); err != nil {
		return OpenedReconciliation{}, temporal.NewNonRetryableApplicationError(err.Error(), string(contract.CodeOf(err)), err)
	}
	row, err := r.store.OpenReconciliation(ctx, db.OpenReconciliationParams{
		TenantID: q.Tenant, ReconciliationID: activity.GetInfo(ctx).WorkflowExecution.RunID, WindowUs: q.Window.Std().Microseconds(),
		Since: given(q.Since), Until: given(q.Until),
	})
	if err != nil {
		return OpenedReconciliation{}, retry(ctx, schema.Classify("begin the reconciliation", err))
	}
	return OpenedReconciliation{Since: row.Since.UTC(), Until: row.Until.UTC(), Channels: r.channels.NamesFor(q.Tenant)}, nil
}

func given(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// EndedReconciliation is a pass at its end.
type EndedReconciliation struct {
	ReconciliationKey
	// Unfinished says what could not be finished and why, a line for each part.
	Unfinished []string `json:"unfinished,omitempty"`
}

// CloseReconciliation ends the pass and counts what it found.
func (r *Reconciler) CloseReconciliation(ctx context.Context, ended EndedReconciliation) ([]contract.ReconcileFound, error) {
	if err := ownReconciliation(ctx, ended.Tenant); err != nil {
		return nil, err
	}
	key := ended.ReconciliationKey
	err := r.store.CloseReconciliation(ctx, db.CloseReconciliationParams{
		TenantID: key.Tenant, ReconciliationID: key.ReconciliationID,
		Unfinished: contract.Clip(strings.Join(ended.Unfinished, "\n"), 20000),
	})
	if err != nil {
		return nil, retry(ctx, schema.Classify("end the reconciliation", err))
	}
	rows, err := r.store.CountFindings(ctx, db.CountFindingsParams(key.params()))
	if err != nil {
		return nil, retry(ctx, schema.Classify("count the findings", err))
	}
	found := make([]contract.ReconcileFound, len(rows))
	for i, row := range rows {
		found[i] = contract.ReconcileFound{Kind: row.Kind, Effect: contract.FindingEffect(row.Effect), Findings: row.Findings}
	}
	return found, nil
}

func (k ReconciliationKey) params() db.GetReconciliationParams {
	return db.GetReconciliationParams{TenantID: k.Tenant, ReconciliationID: k.ReconciliationID}
}

// finding is something that is otherwise than it should be. Its issue is opened for a person to resolve, unless evidence has
// done so.
type finding struct {
	kind                             string
	subjectKind, subject, particular string
	effect                           contract.FindingEffect
	detail                           string
	issue                            *issue
	// difference is what it makes up of a difference of sums, in currency; settle gives it where only what evidence did tells.
	difference int64
	currency   string
	settle     func(ctx context.Context, queries *db.Queries) (int64, error)
}

// issue is what a finding opens: id is the same for the same fact in every pass. One that is open already is only named.
type issue struct {
	kind, id string
	isOpen   bool
}

// issueOf is the issue of a fact of the finding's kind.
func issueOf(kind, subject, particular string) *issue {
	id := kind + ":" + subject
	if particular != "" {
		id += ":" + particular
	}
	return &issue{kind: kind, id: contract.Clip(id, 200)}
}

func (r *Reconciler) record(ctx context.Context, key ReconciliationKey, f finding) (contract.FindingEffect, error) {
	return r.recordBy(ctx, r.store.Queries, key, f)
}

func (r *Reconciler) recordBy(
	ctx context.Context, queries *db.Queries, key ReconciliationKey, f finding,
) (contract.FindingEffect, error) {
	row := db.RecordFindingParams{
		TenantID: key.Tenant, ReconciliationID: key.ReconciliationID, Kind: f.kind, SubjectKind: f.subjectKind,
		SubjectID: contract.Clip(f.subject, 200), Particular: contract.Clip(f.particular, 200), Effect: string(f.effect),
		Detail: contract.Clip(f.detail, contract.MaxReasonBytes), Difference: f.difference, Currency: f.currency,
	}
	if f.issue != nil {
		row.IssueID = f.issue.id
		if !f.issue.isOpen {
			row.IssueTenant, row.IssueKind = key.Tenant, f.issue.kind
		}
	}
	effect, err := queries.RecordFinding(ctx, row)
	if err != nil {
		return "", retry(ctx, schema.Classify("record a finding of "+f.kind, err))
	}
	r.found(f.kind, contract.FindingEffect(effect))
	return contract.FindingEffect(effect), nil
}

// patiently runs statements that take their time by the number of rows that they look at; progress is told meanwhile.
func (r *Reconciler) patiently(ctx context.Context, tried string, progress any, do func(*db.Queries) error) error {
	stop := beat(ctx, progress)
	defer stop()
	err := pgx.BeginFunc(ctx, r.store.Pool, func(tx pgx.Tx) error {
		queries := r.store.WithTx(tx)
		if err := queries.PrepareComparison(ctx); err != nil {
			return err
		}
		return do(queries)
	})
	return retry(ctx, schema.Classify(tried, err))
}

// ownReconciliation refuses a call by anything but a reconciliation of that tenant: a job names the activity of its work.
func ownReconciliation(ctx context.Context, tenant string) error {
	info := activity.GetInfo(ctx)
	id := contract.ReconcileWorkflowID(tenant)
	if info.WorkflowType != nil && info.WorkflowType.Name == contract.ReconcileWorkflow && !info.IsLocalActivity &&
		(info.WorkflowExecution.ID == id || strings.HasPrefix(info.WorkflowExecution.ID, id+"/")) {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf("%s may not be called by %s: it is not work",
		info.ActivityType.Name, info.WorkflowExecution.ID), ErrorForeignCall, nil)
}

// resume reads how far the last attempt came, and leaves progress as it is where there was none.
func resume(ctx context.Context, progress any) {
	if activity.HasHeartbeatDetails(ctx) {
		// What another release wrote is begun anew: everything is recorded once.
		_ = activity.GetHeartbeatDetails(ctx, progress)
	}
}

// channel answers the tenant's channel of that name. What is not there now is not waited for: the next pass may find it.
func (r *Reconciler) channel(name, tenant string) (channel.Channel, error) {
	far, err := r.channels.Get(name, tenant)
	if err != nil {
		return nil, refusedPart(fmt.Errorf("%w; the worker has these for tenant %s: %s", err, tenant,
			cmp.Or(strings.Join(r.channels.NamesFor(tenant), ", "), "none")))
	}
	return far, nil
}

// refusedPart ends a part of the pass that no repeat would finish.
func refusedPart(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), string(contract.CodeBadInput), err)
}
