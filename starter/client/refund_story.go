package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Refund is a refund through a payment channel as its row and events tell it, in the order in which a person asks.
type Refund struct {
	Tenant   string `json:"tenant"`
	RefundID string `json:"refundId"`
	contract.RefundStatus
	OrderID string `json:"orderId"`
	JobID   string `json:"jobId,omitempty"`
	Account string `json:"account"`
	Channel string `json:"channel"`
	// Payment is the channel's id of the payment that goes back.
	Payment string `json:"payment"`
	// RequestedBy asked for it, empty where a job did, and Reason says why.
	RequestedBy string `json:"requestedBy,omitempty"`
	Reason      string `json:"reason"`
	// Sends is how often sending its number began, and Looks how often the channel was asked.
	Sends       int       `json:"sends"`
	FirstSentAt time.Time `json:"firstSentAt,omitzero"`
	Looks       int       `json:"looks"`
	LastLookAt  time.Time `json:"lastLookAt,omitzero"`
	CreatedAt   time.Time `json:"createdAt"`
	// Issues are the open ones about it; Story tells all that happened, in order.
	Issues []Issue  `json:"issues"`
	Story  []Moment `json:"story"`
}

// Refund tells where a refund stands and how it got there, from its rows alone: they are the truth, whether or not its
// run answers. Errors: BadInput, NotFound, Unavailable.
func (c *Client) Refund(ctx context.Context, tenant, refundID string) (Refund, error) {
	if err := checkRefundID(tenant, refundID); err != nil {
		return Refund{}, err
	}
	var record refundRecord
	err := c.snapshot(ctx, "read refund "+refundID, func(q *db.Queries) (err error) {
		record, err = readRefund(ctx, q, tenant, refundID)
		if errors.Is(err, pgx.ErrNoRows) {
			return noRefund(tenant, refundID)
		}
		return err
	})
	if err != nil {
		return Refund{}, err
	}
	refund := refundOf(record.row)
	refund.RefundStatus = record.status()
	refund.Issues = record.openIssues()
	refund.Story = inOrder(record.moments())
	return refund, nil
}

// AwaitRefund waits until the refund's run has ended, which is at once where it has none; ctx bounds the wait. How the refund
// stands then, Refund tells. Errors: Unavailable.
func (c *Client) AwaitRefund(ctx context.Context, tenant, refundID string) error {
	err := c.temporal.GetWorkflow(ctx, contract.RefundWorkflowID(tenant, refundID), "").Get(ctx, nil)
	_, ended := errors.AsType[*temporal.WorkflowExecutionError](err)
	_, noRun := errors.AsType[*serviceerror.NotFound](err)
	if ended || noRun {
		return nil
	}
	return translate("await refund "+refundID, err)
}

func refundOf(row db.GetRefundRow) Refund {
	r := row.ReclaimRefund
	return Refund{
		Tenant: r.TenantID, RefundID: r.RefundID, OrderID: r.OrderID, JobID: text(r.JobID), Account: row.AccountID,
		Channel: row.Channel, Payment: row.ChannelPaymentID, RequestedBy: r.RequestedBy, Reason: r.Reason,
		Sends: int(r.SendCount), FirstSentAt: instant(r.FirstSentAt), Looks: int(r.LookCount),
		LastLookAt: instant(r.LastCheckedAt), CreatedAt: r.CreatedAt.UTC(),
		RefundStatus: contract.RefundStatus{
			State: contract.RefundState(r.State), NeedsReview: r.NeedsReview, Amount: r.Amount, Currency: r.Currency,
			Credits: r.Credits, ChannelRef: r.ChannelRef,
		},
	}
}

func instant(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.UTC()
}

// refundRecord is all that is written of a refund.
type refundRecord struct {
	row         db.GetRefundRow
	events      []db.ReclaimRefundEvent
	entries     []db.ReclaimLedgerEntry
	resolutions []db.ReclaimResolution
	issues      []db.ListRefundIssuesRow
}

// readRefund fails with pgx.ErrNoRows where there is no such refund.
func readRefund(ctx context.Context, q *db.Queries, tenant, refundID string) (r refundRecord, err error) {
	if r.row, err = q.GetRefund(ctx, db.GetRefundParams{TenantID: tenant, RefundID: refundID}); err != nil {
		return r, err
	}
	r.events, err = q.ListRefundEvents(ctx, db.ListRefundEventsParams{TenantID: tenant, RefundID: refundID})
	if err != nil {
		return r, err
	}
	r.entries, err = q.ListRefundEntries(ctx, db.ListRefundEntriesParams{TenantID: tenant, RefundID: &refundID})
	if err != nil {
		return r, err
	}
	r.resolutions, err = q.ListRefundResolutions(ctx, db.ListRefundResolutionsParams{TenantID: tenant, RefundID: refundID})
	if err != nil {
		return r, err
	}
	r.issues, err = q.ListRefundIssues(ctx, db.ListRefundIssuesParams{TenantID: tenant, RefundID: refundID})
	return r, err
}

func (r refundRecord) openIssues() []Issue {
	issues := []Issue{}
	for _, row := range r.issues {
		if row.ReclaimIssue.State == "open" {
			issues = append(issues, issueOf(row.ReclaimIssue))
		}
	}
	return issues
}

// status says where the refund stands.
func (r refundRecord) status() contract.RefundStatus {
	row := r.row.ReclaimRefund
	facts := contract.RefundFacts{
		State: contract.RefundState(row.State), Amount: row.Amount, Currency: row.Currency, Credits: row.Credits,
		Channel: r.row.Channel, ChannelRef: row.ChannelRef, Sends: int(row.SendCount), FirstSent: instant(row.FirstSentAt),
		LastOutcome: row.LastOutcome, LastCode: row.LastCode, NextLook: instant(row.NextLookAt),
		LookUntil: instant(row.LookUntil), ByPerson: row.EndedBy == "person", ResendDue: row.ResendRequested, NeedsReview: row.NeedsReview,
		GaveUp: row.NeedsReview && row.LookUntil != nil && !r.row.Now.Before(*row.LookUntil), OpenIssues: int(r.row.OpenIssues), ClosedIssues: int(r.row.ClosedIssues),
		// A look-up that finds nothing new changes the row, but not what is known.
		Since: row.UpdatedAt.UTC(),
	}
	for _, event := range r.events {
		if r.contradicts(event) {
			continue
		}
		facts.Since = event.CreatedAt.UTC()
		if !facts.State.Open() && event.FromState != event.ToState {
			// What came after the end explains nothing of it.
			facts.LastOutcome, facts.LastCode = event.Outcome, event.Code
		}
	}
	return facts.Status()
}

// moments tells everything that is written of the refund, each at the instant at which it became known here.
func (r refundRecord) moments() []Moment {
	var story []Moment
	accepted, returned := r.row.ReclaimRefund.CreatedAt, instant(r.row.ReclaimRefund.ReturnedAt)
	for _, event := range r.events {
		if event.FromState == "" {
			accepted = event.CreatedAt
		}
		switch contract.RefundState(event.ToState) {
		case contract.RefundFailed, contract.RefundCanceled, contract.RefundReversed:
			if event.FromState != event.ToState {
				returned = event.CreatedAt
			}
		}
		story = append(story, r.eventMoment(event))
	}
	for _, entry := range r.entries {
		// An entry is told right after the event that made it.
		moment := Moment{
			At: accepted, Kind: entry.Type, Amount: entry.Amount, BalanceAfter: &entry.BalanceAfter, rank: 3,
			Text: fmt.Sprintf("%d credits left account %s with the money", -entry.Amount, entry.AccountID),
		}
		if entry.Type == "payout_return" {
			moment.At = returned
			moment.Text = fmt.Sprintf("%d credits came back to account %s: %s", entry.Amount, entry.AccountID, entry.Reason)
		}
		story = append(story, moment)
	}
	for _, resolution := range r.resolutions {
		// What a decision moved, its event tells.
		if resolution.Outcome == contract.ResolutionRefused ||
			resolution.Action == string(contract.ActionExtend) || resolution.Action == string(contract.ActionResend) {
			story = append(story, resolutionMoment(resolution))
		}
	}
	for _, row := range r.issues {
		issue := row.ReclaimIssue
		story = append(story, Moment{
			At: issue.OpenedAt, Kind: "issue", Text: fmt.Sprintf("issue %s was opened: %s", issue.IssueID, issue.Evidence), rank: 4,
		})
		if issue.ResolvedAt != nil {
			story = append(story, Moment{
				At: *issue.ResolvedAt, Kind: "issue_resolved",
				Text: fmt.Sprintf("%s resolved issue %s: %s", row.Operator, issue.IssueID, row.Reason),
			})
		}
	}
	for i := range story {
		story[i].RefundID = r.row.ReclaimRefund.RefundID
	}
	return story
}

// contradicts says whether the event tells of evidence that was refused: it does not agree with the refund, or with the
// state in which it left it.
func (r refundRecord) contradicts(e db.ReclaimRefundEvent) bool {
	row := r.row.ReclaimRefund
	if e.Amount != nil && *e.Amount != row.Amount || e.Currency != nil && *e.Currency != row.Currency ||
		e.ChannelRef != "" && row.ChannelRef != "" && e.ChannelRef != row.ChannelRef {
		return true
	}
	switch e.Outcome {
	case "succeeded":
		return e.ToState != "succeeded" && e.ToState != "reversed"
	case "failed":
		return e.ToState != "failed" && e.ToState != "reversed" && e.ToState != "canceled"
	case "pending":
		return e.ToState == "accepted" || e.ToState == "unknown" || e.ToState == "canceled" ||
			e.ToState == "failed" && row.ChannelRef == ""
	default:
		return false
	}
}

func (r refundRecord) eventMoment(e db.ReclaimRefundEvent) Moment {
	row := r.row.ReclaimRefund
	moment := Moment{At: e.CreatedAt, Kind: "refund_" + e.Source, rank: 2}
	said := contract.OutcomeInWords(e.Outcome, e.Code)
	if e.ToState == string(contract.RefundReversed) && e.FromState != e.ToState {
		said = strings.Replace(said, contract.OutcomeInWords(e.Outcome, ""), "the money came back", 1)
	}
	switch e.Source {
	case "accept":
		who := row.RequestedBy
		if row.JobID != nil {
			who = "job " + *row.JobID
		}
		moment.Text = fmt.Sprintf("%s asked to send %d %s of order %s back: %s", who, row.Amount, row.Currency, row.OrderID, row.Reason)
		return moment
	case "send":
		moment.Text = "sending it to channel " + r.row.Channel + " began"
		if e.FromState != string(contract.RefundAccepted) {
			moment.Text = "sending the same number to channel " + r.row.Channel + " again began"
		}
		return moment
	case "create":
		moment.Text = "it was sent: " + said
	case "query":
		moment.Text = "the channel was asked: " + said
	case "notice":
		moment.Text = "the channel reported: " + said
	case "settlement":
		moment.Text = "the channel's settlement says: " + said
	case "person":
		if e.Outcome == "canceled" {
			moment.Text = fmt.Sprintf("%s decided: %s: the refund is now %s", e.Actor, e.Evidence, e.ToState)
			return moment
		}
		moment.Text = e.Actor + " decided: " + contract.OutcomeInWords(e.Outcome, "")
	default:
		moment.Text = e.Source + ": " + said
	}
	if e.ChannelRef != "" {
		moment.Text += ", reference " + e.ChannelRef
	}
	// A channel's whole answer is kept for whoever looks into it; in a story its meaning is enough.
	if e.Evidence != "" && !strings.HasPrefix(e.Evidence, "{") {
		moment.Text += "; " + e.Evidence
	}
	if e.Sends > 1 {
		moment.Text += fmt.Sprintf(" (the request went out %d times)", e.Sends)
	}
	if late := e.CreatedAt.Sub(e.ObservedAt); late > time.Minute {
		moment.Text += " (as of " + e.ObservedAt.UTC().Format(time.RFC3339) + ")"
	}
	if r.contradicts(e) {
		moment.Text += ": refused, since it contradicts what is known"
	}
	if e.FromState != e.ToState {
		moment.Text += ": the refund is now " + e.ToState
	}
	return moment
}
