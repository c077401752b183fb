package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Finding is something that a reconciliation found otherwise than it should be.
type Finding struct {
	Kind        string `json:"kind"`
	SubjectKind string `json:"subjectKind"`
	SubjectID   string `json:"subjectId"`
	// Particular tells this fact from another of the same kind and subject: the channel's reference, or a run's id.
	Particular string                 `json:"particular,omitempty"`
	Effect     contract.FindingEffect `json:"effect"`
	// IssueID is the issue that a person resolves, empty where there is none.
	IssueID string    `json:"issueId,omitempty"`
	Detail  string    `json:"detail"`
	FoundAt time.Time `json:"foundAt"`
	// Difference is what it makes up of a difference between a settlement file's sums and ours, in the smallest unit of Currency.
	Difference int64  `json:"difference,omitempty"`
	Currency   string `json:"currency,omitempty"`
}

// Reconcile makes one pass and waits for its end; one that ctx ends goes on by itself. What it found is read with Findings.
// Errors: BadInput; Conflict (a pass of the tenant is under way); Unavailable.
func (c *Client) Reconcile(ctx context.Context, request contract.ReconcileRequest) (contract.ReconcileResult, error) {
	request = request.WithDefaults()
	if err := request.Check(); err != nil {
		return contract.ReconcileResult{}, err
	}
	if request.Since.After(time.Now()) {
		return contract.ReconcileResult{}, contract.BadField("since", "lies in the future: it must be before until, which is now where it is not given")
	}
	tried := "reconcile tenant " + request.Tenant
	run, err := c.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: contract.ReconcileWorkflowID(request.Tenant), TaskQueue: c.taskQueue,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		TypedSearchAttributes:                    ofTenant(request.Tenant),
		StaticSummary:                            reconcileSummary(request),
	}, contract.ReconcileWorkflow, request)
	if _, running := errors.AsType[*serviceerror.WorkflowExecutionAlreadyStarted](err); running {
		return contract.ReconcileResult{}, contract.NewError(contract.CodeConflict, contract.RetrySameKey,
			"a reconciliation of tenant "+request.Tenant+" is under way: try again when it has ended", err)
	}
	if err != nil {
		return contract.ReconcileResult{}, translate(tried, err)
	}
	var result contract.ReconcileResult
	return result, translate(tried, run.Get(ctx, &result))
}

func ofTenant(tenant string) temporal.SearchAttributes {
	return temporal.NewSearchAttributes(temporal.NewSearchAttributeKeyKeyword(contract.AttributeTenant).ValueSet(tenant))
}

func reconcileSummary(request contract.ReconcileRequest) string {
	period := "the last " + request.Window.String()
	if !request.Since.IsZero() {
		period = "from " + request.Since.UTC().Format(time.RFC3339)
	}
	return contract.Clip(fmt.Sprintf("reconcile %s, %s", request.Tenant, period), 200)
}

// Reconciliation is a pass whose findings were read.
type Reconciliation struct {
	ID string
	// Unfinished says what could not be finished and why, a line for each part.
	Unfinished []string
}

// Findings calls found for each finding of a pass, in the order of their kinds. An empty id means the tenant's newest pass that
// has ended. It answers the pass. An error of found ends it and is returned as it is. Errors: BadInput, NotFound, Unavailable.
func (c *Client) Findings(ctx context.Context, tenant, id string, found func(Finding) error) (Reconciliation, error) {
	if err := contract.CheckID("tenant", tenant); err != nil {
		return Reconciliation{}, err
	}
	var pass db.ReclaimReconciliation
	var err error
	if id == "" {
		pass, err = c.store.LatestReconciliation(ctx, tenant)
	} else {
		pass, err = c.store.GetReconciliation(ctx, db.GetReconciliationParams{TenantID: tenant, ReconciliationID: id})
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return Reconciliation{}, contract.NewError(contract.CodeNotFound, contract.RetryNever,
			"tenant "+tenant+" has no such reconciliation: `starter reconcile` makes one", nil)
	}
	if err != nil {
		return Reconciliation{}, unavailable("read the reconciliation", err)
	}
	read := Reconciliation{ID: pass.ReconciliationID}
	if pass.Unfinished != "" {
		read.Unfinished = strings.Split(pass.Unfinished, "\n")
	}
	page := db.ListFindingsParams{TenantID: tenant, ReconciliationID: pass.ReconciliationID, PageSize: 500}
	for {
		rows, err := c.store.ListFindings(ctx, page)
		if err != nil {
			return Reconciliation{}, unavailable("list the findings", err)
		}
		for _, row := range rows {
			page.AfterKind, page.AfterSubjectKind = row.Kind, row.SubjectKind
			page.AfterSubject, page.AfterParticular = row.SubjectID, row.Particular
			if err := found(Finding{
				Kind: row.Kind, SubjectKind: row.SubjectKind, SubjectID: row.SubjectID, Particular: row.Particular,
				Effect: contract.FindingEffect(row.Effect), IssueID: row.IssueID, Detail: row.Detail, FoundAt: row.FoundAt.UTC(),
				Difference: row.Difference, Currency: row.Currency,
			}); err != nil {
				return Reconciliation{}, err
			}
		}
		if len(rows) < int(page.PageSize) {
			return read, nil
		}
	}
}

// scheduleCatchup is how old a pass may be that the server could not start in time: a later one sees the same.
const scheduleCatchup = 10 * time.Minute

// ScheduleReconcile has a pass made every so often, from a Temporal Schedule: one that is still under way when the next is due
// lets that out. A schedule that the tenant has is replaced. Errors: BadInput, Unavailable.
func (c *Client) ScheduleReconcile(ctx context.Context, every time.Duration, request contract.ReconcileRequest) error {
	request = request.WithDefaults()
	if err := request.Check(); err != nil {
		return err
	}
	if every < time.Minute {
		return contract.BadField("every", "must be at least 1m")
	}
	if request.Settlement != nil {
		return contract.BadField("settlement", "has no place in a schedule: a file is taken in once")
	}
	if !request.Since.IsZero() || !request.Until.IsZero() {
		return contract.BadField("since", "and until have no place in a schedule: its passes look back by their window")
	}
	tried := "schedule the reconciliations of tenant " + request.Tenant
	id := contract.ReconcileWorkflowID(request.Tenant)
	spec := client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: every}}}
	action := &client.ScheduleWorkflowAction{
		// The server adds the time after a hyphen.
		ID: id + "/at", Workflow: contract.ReconcileWorkflow, Args: []any{request}, TaskQueue: c.taskQueue,
		TypedSearchAttributes: ofTenant(request.Tenant), StaticSummary: reconcileSummary(request),
	}
	_, err := c.temporal.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: id, Spec: spec, Action: action, Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: scheduleCatchup,
	})
	if !errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		return translate(tried, err)
	}
	return translate(tried, c.temporal.ScheduleClient().GetHandle(ctx, id).Update(ctx, client.ScheduleUpdateOptions{
		DoUpdate: func(input client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
			schedule := input.Description.Schedule
			schedule.Spec, schedule.Action = &spec, action
			return &client.ScheduleUpdate{Schedule: &schedule}, nil
		},
	}))
}

// UnscheduleReconcile ends a tenant's schedule. Errors: BadInput, NotFound, Unavailable.
func (c *Client) UnscheduleReconcile(ctx context.Context, tenant string) error {
	if err := contract.CheckID("tenant", tenant); err != nil {
		return err
	}
	err := c.temporal.ScheduleClient().GetHandle(ctx, contract.ReconcileWorkflowID(tenant)).Delete(ctx)
	if _, none := errors.AsType[*serviceerror.NotFound](err); none {
		return contract.NewError(contract.CodeNotFound, contract.RetryNever, "tenant "+tenant+" has no schedule", nil)
	}
	return translate("end the schedule of tenant "+tenant, err)
}
