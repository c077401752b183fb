package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Moment is one line of a job's story.
type Moment struct {
	At time.Time `json:"at"`
	// Kind is charge, refund, reclaim, payout, payout_return, delivered, resolution, issue, issue_resolved, the kind of a
	// job's recorded event, or "refund_" with where an event of a channel refund comes from: accept, send, create, query,
	// notice, settlement or person.
	Kind string `json:"kind"`
	// RefundID is set on lines that are about a channel refund.
	RefundID string `json:"refundId,omitempty"`
	// Amount and BalanceAfter are set on lines that moved money.
	Amount       int64  `json:"amount,omitempty"`
	BalanceAfter *int64 `json:"balanceAfter,omitempty"`
	// Text says in words what happened.
	Text string `json:"text"`
	// rank orders what one statement did at one instant.
	rank int
}

// timelineLimit is how many events and how many resolutions of a job are read at most.
const timelineLimit = 10_000

// Timeline tells a job's whole story in order, its channel refund included, from its rows alone. Errors: BadInput,
// NotFound, Unavailable.
func (c *Client) Timeline(ctx context.Context, tenant, jobID string) ([]Moment, error) {
	row, err := c.getJob(ctx, tenant, jobID)
	if err != nil {
		return nil, err
	}
	entries, err := c.store.ListJobEntries(ctx, db.ListJobEntriesParams{TenantID: tenant, JobID: &jobID})
	if err != nil {
		return nil, unavailable("read the entries of job "+jobID, err)
	}
	events, err := c.store.ListJobEvents(ctx, db.ListJobEventsParams{TenantID: tenant, JobID: jobID})
	if err != nil {
		return nil, unavailable("read the events of job "+jobID, err)
	}
	resolutions, err := c.store.ListJobResolutions(ctx, db.ListJobResolutionsParams{TenantID: tenant, JobID: jobID})
	if err != nil {
		return nil, unavailable("read the resolutions of job "+jobID, err)
	}
	var story []Moment
	for _, resolution := range resolutions {
		story = append(story, resolutionMoment(resolution))
	}
	for _, event := range events {
		story = append(story, eventMoment(event))
	}
	if row.DeliveredAt != nil {
		story = append(story, Moment{At: *row.DeliveredAt, Kind: "delivered", Text: deliveredInWords(row), rank: 3})
	}
	story = append(story, moneyMoments(row, entries)...)
	refund, err := c.jobRefundMoments(ctx, tenant, jobID)
	if err != nil {
		return nil, err
	}
	story = append(story, refund...)
	if max(len(events), len(resolutions)) == timelineLimit {
		story = append(story, Moment{At: row.UpdatedAt, Kind: "cut", Text: "there is more than is told here", rank: 7})
	}
	return inOrder(story), nil
}

// jobRefundMoments tells the channel refund of a job, if it has one.
func (c *Client) jobRefundMoments(ctx context.Context, tenant, jobID string) (moments []Moment, err error) {
	err = c.snapshot(ctx, "read the channel refund of job "+jobID, func(q *db.Queries) error {
		refundID, err := q.GetJobRefund(ctx, db.GetJobRefundParams{TenantID: tenant, JobID: &jobID})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		record, err := readRefund(ctx, q, tenant, refundID)
		moments = record.moments()
		return err
	})
	return moments, err
}

// inOrder sorts a story by time.
func inOrder(story []Moment) []Moment {
	for i := range story {
		story[i].At = story[i].At.UTC()
	}
	slices.SortStableFunc(story, func(a, b Moment) int {
		if order := a.At.Compare(b.At); order != 0 {
			return order
		}
		return a.rank - b.rank
	})
	return story
}

// moneyMoments tells the movements at the instants of the guards that made them. A job that costs nothing has no
// entries, though its states go their way.
func moneyMoments(row *db.ReclaimJob, entries []db.ReclaimLedgerEntry) []Moment {
	moments := []Moment{{At: row.CreatedAt, Kind: "charge", Text: fmt.Sprintf("account %s charged", row.AccountID)}}
	if row.RefundedAt != nil {
		moments = append(moments, Moment{At: *row.RefundedAt, Kind: "refund", Text: "refunded", rank: 4})
	}
	if row.ReclaimedAt != nil {
		moments = append(moments, Moment{At: *row.ReclaimedAt, Kind: "reclaim", Text: "the refund was reclaimed", rank: 5})
	}
	for i := range moments {
		moment := &moments[i]
		if row.Cost == 0 {
			moment.Text += " 0 credits: no ledger entry"
			continue
		}
		for _, entry := range entries {
			if entry.Type == moment.Kind {
				moment.Amount, moment.BalanceAfter = entry.Amount, &entry.BalanceAfter
				moment.Text = fmt.Sprintf("%s: %s", moment.Text, entry.Reason)
			}
		}
	}
	return moments
}

func deliveredInWords(row *db.ReclaimJob) string {
	if row.IsReclaimed {
		return "the work succeeded after the refund: " + row.Reason
	}
	return "the work succeeded: " + row.Reason
}

func resolutionMoment(r db.ReclaimResolution) Moment {
	text := fmt.Sprintf("%s decided %s: %s", r.Operator, r.Action, r.Reason)
	if r.Action == string(contract.ActionRetry) {
		text = fmt.Sprintf("%s granted %d more: %s", r.Operator, r.Attempts, r.Reason)
	}
	if r.Evidence != "" {
		text += " (evidence: " + r.Evidence + ")"
	}
	if r.Outcome == contract.ResolutionRefused {
		text += "; refused: " + r.Refusal
	}
	return Moment{At: r.CreatedAt, Kind: "resolution", Text: text + " [" + r.ResolutionID + "]"}
}

func eventMoment(e db.ReclaimJobEvent) Moment {
	moment := Moment{At: e.CreatedAt, Kind: e.Kind, rank: 2}
	switch e.Kind {
	case "attempt_failed":
		moment.Text = fmt.Sprintf("attempt %d failed: %s", e.Attempt, e.Detail)
	case "attempt_unknown":
		moment.Text = fmt.Sprintf("attempt %d ended with an unknown outcome: %s", e.Attempt, e.Detail)
	case "probe_answered":
		moment.Text = fmt.Sprintf("the probe was asked about attempt %d: %s", e.Attempt, e.Detail)
	case "outcome_recorded":
		moment.Text = "recorded only: " + e.Detail
	case "cancel_requested":
		moment.Text, moment.rank = "asked to cancel", 1
	case "dead_letter":
		moment.Text, moment.rank = "dead letter: "+e.Detail, 6
	case "closed":
		moment.Text, moment.rank = "closed as "+e.Detail, 6
	case "message_refused":
		moment.Text = "a message was refused: " + e.Detail
	default:
		moment.Text = e.Detail
	}
	return moment
}
