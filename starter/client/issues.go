package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// IssueLimit is how many issues Issues answers at most.
const IssueLimit = 1000

// Issue is something that a person has to look at: evidence that contradicts what is known, or a fact that nothing here
// explains.
type Issue struct {
	IssueID string `json:"issueId"`
	// Kind says what is wrong, and SubjectKind (refund, order, job or channel) and SubjectID with what.
	Kind        string `json:"kind"`
	SubjectKind string `json:"subjectKind"`
	SubjectID   string `json:"subjectId"`
	Evidence    string `json:"evidence"`
	// State is open or resolved.
	State      string    `json:"state"`
	OpenedAt   time.Time `json:"openedAt"`
	ResolvedAt time.Time `json:"resolvedAt,omitzero"`
}

// Issues lists a tenant's issues, the newest first and at most IssueLimit; only open ones unless resolvedToo. Errors:
// BadInput, Unavailable.
func (c *Client) Issues(ctx context.Context, tenant string, resolvedToo bool) ([]Issue, error) {
	if err := contract.CheckID("tenant", tenant); err != nil {
		return nil, err
	}
	rows, err := c.store.ListIssues(ctx, db.ListIssuesParams{TenantID: tenant, ResolvedToo: resolvedToo, AtMost: IssueLimit})
	if err != nil {
		return nil, unavailable("list the issues", err)
	}
	issues := make([]Issue, len(rows))
	for i, row := range rows {
		issues[i] = issueOf(row)
	}
	return issues, nil
}

// WaitingRefund is an open refund that goes on only once a person has decided or looked.
type WaitingRefund struct {
	RefundID string               `json:"refundId"`
	OrderID  string               `json:"orderId"`
	State    contract.RefundState `json:"state"`
	// Since is when its row last changed.
	Since    time.Time `json:"since"`
	WaitsFor string    `json:"waitsFor"`
}

// WaitingRefunds lists a tenant's open refunds that wait for a person, the newest first and at most IssueLimit. Errors:
// BadInput, Unavailable.
func (c *Client) WaitingRefunds(ctx context.Context, tenant string) ([]WaitingRefund, error) {
	if err := contract.CheckID("tenant", tenant); err != nil {
		return nil, err
	}
	rows, err := c.store.ListRefundsForReview(ctx, db.ListRefundsForReviewParams{TenantID: tenant, AtMost: IssueLimit})
	if err != nil {
		return nil, unavailable("list the refunds that wait for a person", err)
	}
	waiting := make([]WaitingRefund, len(rows))
	for i, row := range rows {
		facts := contract.RefundFacts{
			State: contract.RefundState(row.State), Channel: row.Channel, ResendDue: row.ResendRequested, GaveUp: row.GaveUp,
			NeedsReview: true, OpenIssues: int(row.OpenIssues),
		}
		waiting[i] = WaitingRefund{
			RefundID: row.RefundID, OrderID: row.OrderID, State: facts.State, Since: row.UpdatedAt.UTC(),
			WaitsFor: facts.Status().WaitsFor,
		}
	}
	return waiting, nil
}

func issueOf(row db.ReclaimIssue) Issue {
	return Issue{
		IssueID: row.IssueID, Kind: row.Kind, SubjectKind: row.SubjectKind, SubjectID: row.SubjectID, Evidence: row.Evidence,
		State: row.State, OpenedAt: row.OpenedAt.UTC(), ResolvedAt: instant(row.ResolvedAt),
	}
}

// ResolvedIssue is the answer to ResolveIssue.
type ResolvedIssue struct {
	// ID is the resolution's.
	ID      string `json:"id"`
	IssueID string `json:"issueId"`
	Outcome string `json:"outcome"`
	State   string `json:"state"`
}

// ResolveIssue closes an issue by a person's decision, which moves no money: a balance is corrected with Adjust, an open
// refund with ResolveRefund. The same id with the same content is answered as the first time. Errors: BadInput, NotFound,
// BadResolution (another decision has closed the issue, or the id stands for another one), Unavailable.
func (c *Client) ResolveIssue(ctx context.Context, tenant, issueID, resolutionID, operator, reason string) (ResolvedIssue, error) {
	if err := together(
		contract.CheckID("tenant", tenant), contract.CheckText("issueId", issueID, 200), contract.CheckID("id", resolutionID),
		contract.CheckText("operator", operator, 200), contract.CheckText("reason", reason, contract.MaxReasonBytes),
	); err != nil {
		return ResolvedIssue{}, err
	}
	tried := "resolve issue " + issueID
	row, err := persist(ctx, tried, func(ctx context.Context) (db.ResolveIssueRow, error) {
		var row db.ResolveIssueRow
		err := pgx.BeginFunc(ctx, c.store.Pool, func(tx pgx.Tx) error {
			q := c.store.WithTx(tx)
			issue, err := q.GetIssue(ctx, db.GetIssueParams{TenantID: tenant, IssueID: issueID})
			if err != nil {
				return err
			}
			if issue.SubjectKind == "refund" {
				// Evidence may open another issue of the refund, and somebody close one, at this moment: one after the other.
				key := db.LockRefundParams{TenantID: tenant, RefundID: issue.SubjectID}
				if _, err := q.LockRefund(ctx, key); err != nil {
					return err
				}
			}
			row, err = q.ResolveIssue(ctx, db.ResolveIssueParams{
				TenantID: tenant, IssueID: issueID, ResolutionID: resolutionID, Operator: operator, Reason: reason,
			})
			return err
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return row, err
	})
	if err != nil {
		return ResolvedIssue{}, err
	}
	answer := ResolvedIssue{ID: resolutionID, IssueID: issueID, Outcome: contract.ResolutionApplied, State: row.State}
	switch row.Answer {
	case "":
		return ResolvedIssue{}, contract.NewError(contract.CodeNotFound, contract.RetryNever,
			fmt.Sprintf("tenant %s has no issue %s", tenant, issueID), nil)
	case "applied":
		return answer, nil
	}
	past, err := c.store.GetResolution(ctx, db.GetResolutionParams{
		TenantID: tenant, SubjectKind: "issue", SubjectID: issueID, ResolutionID: resolutionID,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return ResolvedIssue{}, contract.NewError(contract.CodeBadResolution, contract.RetryNever,
			fmt.Sprintf("the issue %s is resolved already, by another decision", issueID), nil)
	}
	if err != nil {
		return ResolvedIssue{}, unavailable("read the resolutions of issue "+issueID, err)
	}
	if err := pastRefusal(past, past.Operator == operator && past.Reason == reason); err != nil {
		return ResolvedIssue{}, err
	}
	return answer, nil
}
