package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Channels finds the configured channel of an order; its error says what is missing from the configuration.
type Channels interface {
	// Get returns the channel for a tenant's refunds, Named whoever may use it.
	Get(name, tenant string) (channel.Channel, error)
	Named(name string) (channel.Channel, error)
}

// Refunds sends refunds through their channels, applies what is observed of them, and takes people's decisions. Every
// method may run any number of times and in parallel: a refund's number is sent as often as need be, and its channel
// moves money once.
type Refunds struct {
	store    *schema.Store
	channels Channels
	observed func(Source, AppliedEvidence)
}

// RefundsOption is something that Refunds can do without.
type RefundsOption func(*Refunds)

// WithObserver has every piece of evidence told that was applied, with what it did. A decision's may still be undone with its
// transaction.
func WithObserver(observed func(Source, AppliedEvidence)) RefundsOption {
	return func(r *Refunds) { r.observed = observed }
}

// NewRefunds returns the activities of channel refunds on the given database and channels.
func NewRefunds(store *schema.Store, channels Channels, options ...RefundsOption) *Refunds {
	r := &Refunds{store: store, channels: channels, observed: func(Source, AppliedEvidence) {}}
	for _, option := range options {
		option(r)
	}
	return r
}

// RefundRow is what the database says of a refund. Times are Postgres'; NextLook and LookUntil are zero where no look-up
// is due.
type RefundRow struct {
	State       contract.RefundState `json:"state"`
	NeedsReview bool                 `json:"needsReview,omitempty"`
	OrderID     string               `json:"orderId"`
	JobID       string               `json:"jobId,omitempty"`
	Account     string               `json:"account"`
	Channel     string               `json:"channel"`
	Amount      int64                `json:"amount"`
	Currency    string               `json:"currency"`
	Credits     int64                `json:"credits"`
	ChannelRef  string               `json:"channelRef,omitempty"`
	Reason      string               `json:"reason"`
	Sends       int                  `json:"sends"`
	Looks       int                  `json:"looks"`
	LastOutcome string               `json:"lastOutcome"`
	LastCode    string               `json:"lastCode,omitempty"`
	FirstSent   time.Time            `json:"firstSent,omitzero"`
	LastChecked time.Time            `json:"lastChecked,omitzero"`
	NextLook    time.Time            `json:"nextLook,omitzero"`
	LookUntil   time.Time            `json:"lookUntil,omitzero"`
	Updated     time.Time            `json:"updated"`
	// ResendDue is true while a person's resend waits to be carried out.
	ResendDue bool `json:"resendDue,omitempty"`
	// EndedBy is whose word ended it: a source of evidence, empty where none has.
	EndedBy Source `json:"endedBy,omitempty"`
	// OpenIssues is how many issues a person must look at.
	OpenIssues int `json:"openIssues,omitempty"`
	// IssueID and IssueEvidence are those of the newest of them, and ClosedIssues is how many a person has closed.
	IssueID       string `json:"issueId,omitempty"`
	IssueEvidence string `json:"issueEvidence,omitempty"`
	ClosedIssues  int    `json:"closedIssues,omitempty"`
	// Accepted, Succeeded and Returned are when it came into these states, zero where it did not.
	Accepted  time.Time `json:"accepted,omitzero"`
	Succeeded time.Time `json:"succeeded,omitzero"`
	Returned  time.Time `json:"returned,omitzero"`
	// Decimals is how many decimals the currency has at the channel, nil where that is not known here.
	Decimals *int `json:"decimals,omitempty"`
	// Schedule says in words when the channel is asked, filled in by FollowRefund.
	Schedule string `json:"schedule,omitempty"`
}

// Money is the refund's amount for people: in the currency's own decimals where they are known.
func (r RefundRow) Money() string {
	if r.Decimals == nil {
		return fmt.Sprintf("%d %s (in its smallest unit)", r.Amount, r.Currency)
	}
	return contract.InWholeUnits(r.Amount, *r.Decimals, r.Currency)
}

// ErrorNoRefund is the type of the error where a refund that must be there is not.
const ErrorNoRefund = "NoRefund"

// ownRefund refuses an activity that is called for another refund than the calling run's: work's queue and activity are
// named by whoever submits a job.
func ownRefund(ctx context.Context, key contract.RefundKey) error {
	if !activity.IsActivity(ctx) || activity.GetInfo(ctx).WorkflowExecution.ID == refundName(key) {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(activity.GetInfo(ctx).ActivityType.Name+" may not be called for "+
		refundName(key)+" by "+activity.GetInfo(ctx).WorkflowExecution.ID+": it is not work", ErrorForeignCall, nil)
}

func refundName(key contract.RefundKey) string {
	return contract.RefundWorkflowID(key.Tenant, key.RefundID)
}

// ReadRefund reads a refund's row.
func (r *Refunds) ReadRefund(ctx context.Context, key contract.RefundKey) (RefundRow, error) {
	if err := ownRefund(ctx, key); err != nil {
		return RefundRow{}, err
	}
	row, err := r.read(ctx, r.store.Queries, key)
	if err != nil {
		return RefundRow{}, err
	}
	return r.rowOf(row), nil
}

func (r *Refunds) read(ctx context.Context, queries *db.Queries, key contract.RefundKey) (db.GetRefundRow, error) {
	tried := "read " + refundName(key)
	row, err := queries.GetRefund(ctx, db.GetRefundParams{TenantID: key.Tenant, RefundID: key.RefundID})
	if errors.Is(err, pgx.ErrNoRows) {
		return row, noRefund(tried, key)
	}
	if err != nil {
		return row, retry(ctx, schema.Classify(tried, err))
	}
	return row, nil
}

func noRefund(tried string, key contract.RefundKey) error {
	return temporal.NewNonRetryableApplicationError(tried+": there is no "+refundName(key), ErrorNoRefund, nil)
}

// rowOf is small enough for a local activity's result.
func (r *Refunds) rowOf(row db.GetRefundRow) RefundRow {
	refund := row.ReclaimRefund
	return RefundRow{
		State: contract.RefundState(refund.State), NeedsReview: refund.NeedsReview, OrderID: refund.OrderID, JobID: deref(refund.JobID),
		Account: row.AccountID, Channel: row.Channel, Amount: refund.Amount, Currency: refund.Currency, Credits: refund.Credits,
		ChannelRef: refund.ChannelRef, Reason: contract.Clip(refund.Reason, 200), Sends: int(refund.SendCount),
		Looks: int(refund.LookCount), LastOutcome: refund.LastOutcome, LastCode: refund.LastCode,
		FirstSent: instant(refund.FirstSentAt), LastChecked: instant(refund.LastCheckedAt), NextLook: instant(refund.NextLookAt),
		LookUntil: instant(refund.LookUntil), Updated: refund.UpdatedAt.UTC(), ResendDue: refund.ResendRequested,
		EndedBy: Source(refund.EndedBy), OpenIssues: int(row.OpenIssues), IssueID: row.IssueID,
		IssueEvidence: contract.Clip(row.IssueEvidence, 200), ClosedIssues: int(row.ClosedIssues),
		Accepted: refund.CreatedAt.UTC(), Succeeded: instant(refund.SucceededAt), Returned: instant(refund.ReturnedAt),
		Decimals: r.decimals(row),
	}
}

// decimals asks the channel's declaration. Where it is not configured, the refund's run says so, and that is not for here.
func (r *Refunds) decimals(row db.GetRefundRow) *int {
	far, err := r.channels.Get(row.Channel, row.ReclaimRefund.TenantID)
	if err != nil {
		return nil
	}
	decimals, known := far.Capabilities().Currencies[row.ReclaimRefund.Currency]
	if !known {
		return nil
	}
	return &decimals
}

func deref(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func instant(at *time.Time) time.Time {
	if at == nil {
		return time.Time{}
	}
	return at.UTC()
}
