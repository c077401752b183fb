package activities

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// ComparePayments holds the payments that a channel lists for the period against our orders, both ways.
func (r *Reconciler) ComparePayments(ctx context.Context, q ListingRequest) (ListingProgress, error) {
	c, err := r.compare(ctx, q)
	if err != nil {
		return ListingProgress{}, err
	}
	if err := c.listed(ctx, c.far.PaymentsMade, paymentMargin, c.holdPayments); err != nil {
		return c.at, err
	}
	if err := c.findUnpaid(ctx); err != nil {
		return c.at, err
	}
	c.at.Ours, err = r.store.CountOrders(ctx, db.CountOrdersParams{
		TenantID: q.Tenant, Channel: q.Channel, Since: q.Since, Until: q.Until,
	})
	if err != nil {
		return c.at, retry(ctx, schema.Classify("count the orders of the period", err))
	}
	return c.at, nil
}

// holdPayments opens an issue for each payment that no tenant's order stands for: somebody paid and was given nothing. Around
// the period it says nothing, since the order may not have been added yet.
func (c *comparison) holdPayments(ctx context.Context, batch []channel.Evidence) error {
	given := columnsOf(batch)
	rows, err := c.store.HoldPaymentLines(ctx, db.HoldPaymentLinesParams{
		TenantID: c.Tenant, ReconciliationID: c.ReconciliationID, Channel: c.Channel, Refs: given.references,
		Payments: given.payments, Aliases: given.aliases, Amounts: given.amounts, Currencies: given.currencies,
		Outcomes: given.outcomes, Codes: given.codes, MadeAt: given.made,
	})
	if err != nil {
		return retry(ctx, schema.Classify("hold the channel's payments against our orders", err))
	}
	period := channel.Period{Since: c.Since, Until: c.Until}
	for _, row := range rows {
		if !period.Has(row.MadeAt) {
			continue
		}
		c.at.Unassigned++
		opened := issueOf(contract.FindingPaymentMissingHere, c.Channel, row.Reference)
		if err := c.store.OpenIssue(ctx, db.OpenIssueParams{
			TenantID: contract.UnassignedTenant, IssueID: opened.id, Kind: opened.kind, SubjectKind: "channel", SubjectID: c.Channel,
			Evidence: fmt.Sprintf("%s took payment %s over %d %s at %s, and no order stands for it: add the order, or refund the payment",
				c.Channel, row.Payment, row.Amount, row.Currency, row.MadeAt.UTC().Format(time.RFC3339)),
		}); err != nil {
			return retry(ctx, schema.Classify("open an issue about a payment without an order", err))
		}
		activity.RecordHeartbeat(ctx, c.at)
	}
	return nil
}

// findUnpaid opens an issue for each order that the channel's payments do not bear out.
func (c *comparison) findUnpaid(ctx context.Context) error {
	for {
		var rows []db.ListUnpaidOrdersRow
		if err := c.patiently(ctx, "find orders that no payment bears out", c.at, func(queries *db.Queries) (err error) {
			rows, err = queries.ListUnpaidOrders(ctx, db.ListUnpaidOrdersParams{
				TenantID: c.Tenant, Channel: c.Channel, Since: c.Since, Until: c.Until, AfterOrder: c.at.After, PageSize: runsPage,
			})
			return err
		}); err != nil {
			return err
		}
		for _, row := range rows {
			found := finding{subjectKind: "order", subject: row.OrderID, detail: fmt.Sprintf(
				"the order says that payment %s of %d %s came through %s", row.ChannelPaymentID, row.Paid, row.Currency, c.Channel)}
			switch {
			case row.OrderedBefore:
				found.kind = contract.FindingPaymentOrderedTwice
				found.detail += "; another order stands for the same payment already: " + cmp.Or(row.OrderedBy, "another tenant's")
			case row.Reference == "":
				found.kind, found.detail = contract.FindingPaymentMissingThere, found.detail+", which has never listed it"
			case row.LineOutcome != string(channel.OutcomeSucceeded):
				found.kind = contract.FindingPaymentNotPaid
				found.detail += fmt.Sprintf("; there it is %s %s", row.LineOutcome, row.LineCode)
			case row.LineCurrency != row.Currency:
				found.kind = contract.FindingPaymentCurrencyDiffers
				found.detail += fmt.Sprintf("; there it is %d %s", row.LineAmount, row.LineCurrency)
			default:
				found.kind = contract.FindingPaymentAmountDiffers
				found.detail += fmt.Sprintf("; there it is %d %s", row.LineAmount, row.LineCurrency)
			}
			found.issue = issueOf(found.kind, row.OrderID, "")
			if _, err := c.record(ctx, c.ReconciliationKey, found); err != nil {
				return err
			}
			c.at.After = row.OrderID
			activity.RecordHeartbeat(ctx, c.at)
		}
		if len(rows) < runsPage {
			return nil
		}
	}
}
