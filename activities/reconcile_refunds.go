package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/activity"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// lines is how many of a channel's lines are held against ours in one statement.
	lines = 1000
	// refundMargin is how far around the period a channel is asked for refunds, since its clock need not be Postgres', and
	// paymentMargin for payments, since an order is added some time after its payment was made.
	refundMargin  = time.Hour
	paymentMargin = 24 * time.Hour
)

// ListingRequest asks to hold what a channel made in a period against ours.
type ListingRequest struct {
	ReconciliationKey
	Channel string    `json:"channel"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`
}

// ListingProgress is how far the comparison with a channel's list has come, and what it has looked at.
type ListingProgress struct {
	// Next is the channel's mark after the last page, Listed whether there was a last one, and After our last row.
	Next   string `json:"next,omitempty"`
	Listed bool   `json:"listed,omitempty"`
	After  string `json:"after,omitempty"`
	// Ours counts our rows of the period and Theirs the channel's lines, those of other tenants included. Unassigned counts
	// those that belong to no tenant's order: their issues are opened under the tenant "unassigned".
	Ours       int64 `json:"ours"`
	Theirs     int64 `json:"theirs"`
	Unassigned int64 `json:"unassigned,omitempty"`
}

// comparison is one part of a pass for one channel.
type comparison struct {
	*Reconciler
	ListingRequest
	far   channel.Channel
	began time.Time
	at    ListingProgress
	// source is where the channel's word comes from.
	source Source
}

func (r *Reconciler) compare(ctx context.Context, q ListingRequest) (*comparison, error) {
	if err := ownReconciliation(ctx, q.Tenant); err != nil {
		return nil, err
	}
	far, err := r.channel(q.Channel, q.Tenant)
	if err != nil {
		return nil, err
	}
	pass, err := r.store.GetReconciliation(ctx, q.params())
	if err != nil {
		return nil, retry(ctx, schema.Classify("read the reconciliation", err))
	}
	c := &comparison{Reconciler: r, ListingRequest: q, far: far, began: pass.StartedAt, source: SourceQuery}
	resume(ctx, &c.at)
	return c, nil
}

// listed hands the channel's lines on, many pages at a time, from where the last attempt was.
func (c *comparison) listed(
	ctx context.Context, list func(context.Context, channel.Period, string) (channel.Listing, error), margin time.Duration,
	hold func(context.Context, []channel.Evidence) error,
) error {
	period := channel.Period{Since: c.Since.Add(-margin), Until: c.Until.Add(margin)}
	for !c.at.Listed {
		var batch []channel.Evidence
		next, last := c.at.Next, false
		for len(batch) < lines && !last {
			page, err := c.page(ctx, list, period, next)
			if err != nil {
				return err
			}
			batch = append(batch, page.Lines...)
			next, last = page.Next, page.Next == ""
			activity.RecordHeartbeat(ctx, c.at)
		}
		if len(batch) > 0 {
			if err := hold(ctx, batch); err != nil {
				return err
			}
		}
		c.at.Theirs += int64(len(batch))
		c.at.Next, c.at.Listed = next, last
		activity.RecordHeartbeat(ctx, c.at)
	}
	return nil
}

func (c *comparison) page(
	ctx context.Context, list func(context.Context, channel.Period, string) (channel.Listing, error), period channel.Period, after string,
) (channel.Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, channelCall)
	defer cancel()
	return list(ctx, period, after)
}

// columns are a page of lines as the statements take them.
type columns struct {
	references, numbers, payments, aliases, currencies, outcomes, codes []string
	amounts                                                             []int64
	made                                                                []time.Time
}

func columnsOf(batch []channel.Evidence) (c columns) {
	for _, e := range batch {
		c.references = append(c.references, contract.Clip(e.Reference, 200))
		c.numbers = append(c.numbers, contract.Clip(e.Number, 200))
		c.payments = append(c.payments, contract.Clip(e.Payment, 200))
		c.aliases = append(c.aliases, contract.Clip(e.PaymentAlias, 200))
		c.currencies = append(c.currencies, contract.Clip(e.Currency, 20))
		c.outcomes = append(c.outcomes, string(e.Outcome))
		c.codes = append(c.codes, contract.Clip(e.Code, 200))
		c.amounts = append(c.amounts, e.Amount)
		c.made = append(c.made, e.ObservedAt)
	}
	return c
}

// CompareRefunds holds the refunds that a channel lists for the period against ours, line by line and both ways.
func (r *Reconciler) CompareRefunds(ctx context.Context, q ListingRequest) (ListingProgress, error) {
	c, err := r.compare(ctx, q)
	if err != nil {
		return ListingProgress{}, err
	}
	if err := c.listed(ctx, c.far.RefundsMade, refundMargin, c.holdRefunds); err != nil {
		return c.at, err
	}
	if err := c.findUnlisted(ctx); err != nil {
		return c.at, err
	}
	err = c.patiently(ctx, "count the refunds of the period", c.at, func(queries *db.Queries) (err error) {
		c.at.Ours, err = queries.CountSentRefunds(ctx, db.CountSentRefundsParams{
			TenantID: q.Tenant, Channel: q.Channel, Since: q.Since, Until: q.Until,
		})
		return err
	})
	return c.at, err
}

func (c *comparison) holdRefunds(ctx context.Context, batch []channel.Evidence) error {
	byReference := map[string]channel.Evidence{}
	for _, e := range batch {
		byReference[contract.Clip(e.Reference, 200)] = e
	}
	given := columnsOf(batch)
	rows, err := c.store.HoldRefundLines(ctx, db.HoldRefundLinesParams{
		TenantID: c.Tenant, ReconciliationID: c.ReconciliationID, Channel: c.Channel, Refs: given.references,
		Numbers: given.numbers, Payments: given.payments, Aliases: given.aliases, Amounts: given.amounts,
		Currencies: given.currencies, Outcomes: given.outcomes, Codes: given.codes, MadeAt: given.made,
	})
	if err != nil {
		return retry(ctx, schema.Classify("hold the channel's refunds against ours", err))
	}
	for _, row := range rows {
		if err := c.judgeRefund(ctx, row, byReference[row.Reference]); err != nil {
			return err
		}
		activity.RecordHeartbeat(ctx, c.at)
	}
	return nil
}

// judgeRefund says what is otherwise about one line, and does about it what can be done.
func (c *comparison) judgeRefund(ctx context.Context, row db.HoldRefundLinesRow, e channel.Evidence) error {
	theirs := fmt.Sprintf("%s has refund %s (number %q) of payment %s over %d %s, made at %s: %s %s", c.Channel, row.Reference, row.Number,
		row.Payment, row.Amount, row.Currency, row.MadeAt.UTC().Format(time.RFC3339), row.Outcome, row.Code)
	ours := fmt.Sprintf("; here it is %s over %d %s", row.State, row.OurAmount, row.OurCurrency)
	found := finding{subjectKind: "refund", subject: row.RefundID, particular: row.Reference, detail: theirs + ours}
	switch row.Verdict {
	case "missing_here":
		return c.missingHere(ctx, row, e, theirs)
	case "made_twice":
		found.kind, found.detail = contract.FindingMadeTwice, found.detail+", under the reference "+row.ChannelRef
	case "payment":
		found.kind = contract.FindingPaymentDiffers
	case "currency":
		found.kind = contract.FindingCurrencyDiffers
	case "amount":
		found.kind = contract.FindingAmountDiffers
	case "unknown":
		found.kind = contract.FindingStatusUnknown
	case "late_reversal":
		found.kind = contract.FindingLateReversal
		return c.takeIn(ctx, found, e)
	case "status":
		found.kind = contract.FindingStatusDiffers
		return c.takeIn(ctx, found, e)
	default:
		return fmt.Errorf("the statement judges a line of %s as %q, which this release does not know", c.Channel, row.Verdict)
	}
	found.issue = issueOf(found.kind, row.RefundID, row.Reference)
	_, err := c.record(ctx, c.ReconciliationKey, found)
	return err
}

// missingHere is about a refund that somebody made at the channel itself. One that failed moved nothing.
func (c *comparison) missingHere(ctx context.Context, row db.HoldRefundLinesRow, e channel.Evidence, theirs string) error {
	opened := unknownRefund(c.Tenant, c.Channel, e)
	if row.Owner != c.Tenant {
		c.at.Unassigned++
		if e.Outcome == channel.OutcomeFailed {
			return nil
		}
		opened.TenantID = row.Owner
		return retry(ctx, schema.Classify("open an issue about an unknown refund", c.store.OpenIssue(ctx, opened)))
	}
	found := finding{
		kind: contract.FindingMissingHere, subjectKind: "order", subject: row.OrderID, particular: row.Reference, detail: theirs,
		effect: contract.FindingNoted,
	}
	if e.Outcome != channel.OutcomeFailed {
		found.issue = &issue{kind: opened.Kind, id: opened.IssueID}
		found.detail += "; nobody asked for it here, so the order still counts the money as paid"
	}
	_, err := c.record(ctx, c.ReconciliationKey, found)
	return err
}

// takeIn applies what the channel says of a refund by the evidence function, and records in the same transaction what came of
// it.
func (c *comparison) takeIn(ctx context.Context, found finding, e channel.Evidence) error {
	refund := contract.RefundKey{Tenant: c.Tenant, RefundID: found.subject}
	var applied AppliedEvidence
	err := pgx.BeginFunc(ctx, c.store.Pool, func(tx pgx.Tx) (err error) {
		queries := c.store.WithTx(tx)
		applied, err = c.refunds.apply(ctx, queries, refund, Observation{
			Source: c.source, Evidence: e, Reversible: c.far.Capabilities().Reversible,
		})
		if err != nil {
			return err
		}
		return c.recordEvidence(ctx, queries, found, applied)
	})
	if err != nil || applied.Verdict != Applied {
		return err
	}
	return c.runs.TellRefund(ctx, refund, noticeOf(e))
}

// recordEvidence records what a piece of evidence did: moved the refund, opened an issue, or nothing.
func (c *comparison) recordEvidence(ctx context.Context, queries *db.Queries, found finding, applied AppliedEvidence) error {
	kind := applied.Why
	if applied.State == contract.RefundReversed {
		kind = "refund_reversed"
	}
	switch {
	case kind != "":
		open, err := queries.FindIssue(ctx, db.FindIssueParams{
			TenantID: c.Tenant, SubjectKind: "refund", SubjectID: found.subject, Kind: kind, Since: c.began,
		})
		if err != nil {
			return retry(ctx, schema.Classify("find the issue that evidence opened", err))
		}
		found.issue = &issue{kind: kind, id: open.IssueID, isOpen: true}
		found.effect = contract.FindingKnown
		if open.IsNew {
			found.effect = contract.FindingOpened
		}
	case applied.Verdict == Applied:
		found.effect = contract.FindingRepaired
	default:
		found.effect = contract.FindingNoted
	}
	found.detail += fmt.Sprintf("; it is now %s", applied.State)
	if found.settle != nil {
		var err error
		if found.difference, err = found.settle(ctx, queries); err != nil {
			return err
		}
	}
	_, err := c.recordBy(ctx, queries, c.ReconciliationKey, found)
	return err
}

func noticeOf(e channel.Evidence) contract.ChannelNotice {
	return contract.ChannelNotice{
		Outcome: contract.RefundOutcome(e.Outcome), Number: e.Number, ChannelRef: e.Reference, Payment: e.Payment, Amount: e.Amount,
		Currency: e.Currency, Code: contract.Clip(e.Code, 200), ObservedAt: e.ObservedAt,
	}
}

// findUnlisted asks the channel for each refund that it had acknowledged and does not list. A list may lag behind; not found by
// itself is lost.
func (c *comparison) findUnlisted(ctx context.Context) error {
	for {
		var ids []string
		if err := c.patiently(ctx, "find refunds that the channel does not list", c.at, func(queries *db.Queries) (err error) {
			ids, err = queries.ListUnlistedRefunds(ctx, db.ListUnlistedRefundsParams{
				TenantID: c.Tenant, ReconciliationID: c.ReconciliationID, Channel: c.Channel, Since: c.Since, Until: c.Until,
				AfterRefund: c.at.After, PageSize: runsPage,
			})
			return err
		}); err != nil {
			return err
		}
		for _, id := range ids {
			if err := c.askFor(ctx, contract.RefundKey{Tenant: c.Tenant, RefundID: id}); err != nil {
				return err
			}
			c.at.After = id
			activity.RecordHeartbeat(ctx, c.at)
		}
		if len(ids) < runsPage {
			return nil
		}
	}
}

func (c *comparison) askFor(ctx context.Context, refund contract.RefundKey) error {
	row, err := c.refunds.read(ctx, c.store.Queries, refund)
	if err != nil {
		return err
	}
	allowed := instant(row.ReclaimRefund.LastCheckedAt).Add(c.far.Capabilities().MinSpacing)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(max(allowed.Sub(row.Now), 0)):
	}
	evidence, applied, err := c.refunds.lookUp(ctx, refund, row, c.far, 0)
	if err != nil {
		return err
	}
	if evidence.Outcome == channel.OutcomeUnknown {
		return fmt.Errorf("%s could not tell about refund %s: %s: %w", c.Channel, refund.RefundID, evidence.Code, errUntold)
	}
	found := finding{
		kind: contract.FindingMissingThere, subjectKind: "refund", subject: refund.RefundID,
		detail: fmt.Sprintf("%s does not list refund %s (%s), sent at %s, which is %s here; asked for it alone it says %s %s", c.Channel,
			refund.RefundID, row.ReclaimRefund.ChannelRef, instant(row.ReclaimRefund.FirstSentAt).UTC().Format(time.RFC3339),
			row.ReclaimRefund.State, evidence.Outcome, evidence.Code),
	}
	return c.recordEvidence(ctx, c.store.Queries, found, applied)
}

var errUntold = errors.New("the channel's answer is unknown")
