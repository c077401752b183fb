package stripe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sdk "github.com/stripe/stripe-go/v85"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

var errNoWayOn = errors.New("the page says that there are more, and does not lead on")

// RefundsMade lists the account's refunds by when Stripe created them: https://docs.stripe.com/api/refunds/list. One of a status
// that is not known here is given as unknown, with its status as the code.
func (c *Channel) RefundsMade(ctx context.Context, period channel.Period, after string) (channel.Listing, error) {
	params := &sdk.RefundListParams{ListParams: pageAfter(after), CreatedRange: createdIn(period)}
	watched, seen := watch(ctx)
	page, more, err := readPage(func() *sdk.V1List[*sdk.Refund] { return c.refunds.List(watched, params) }, readable)
	if err != nil {
		return channel.Listing{}, c.unlisted("refunds", seen, err)
	}
	var listing channel.Listing
	for _, one := range page {
		// The payment is named as the refund was asked for, where it was us who asked.
		e := c.evidence(one, rawOf(one), one.Metadata[metadataPayment])
		e.ObservedAt = instant(one.Created)
		listing.Next = one.ID
		if !within(params.CreatedRange, one.Created) {
			continue
		}
		switch one.Status {
		case sdk.RefundStatusSucceeded, sdk.RefundStatusFailed, sdk.RefundStatusCanceled, sdk.RefundStatusPending,
			sdk.RefundStatusRequiresAction, "":
		default:
			e.Outcome = channel.OutcomeUnknown
		}
		listing.Lines = append(listing.Lines, e)
	}
	return onePage(listing, more, after)
}

// PaymentsMade lists the account's charges by when Stripe created them: https://docs.stripe.com/api/charges/list. A charge is
// named by its payment intent, where it has one, and what was taken of it is what was captured.
func (c *Channel) PaymentsMade(ctx context.Context, period channel.Period, after string) (channel.Listing, error) {
	params := &sdk.ChargeListParams{ListParams: pageAfter(after), CreatedRange: createdIn(period)}
	watched, seen := watch(ctx)
	page, more, err := readPage(func() *sdk.V1List[*sdk.Charge] { return c.charges.List(watched, params) },
		func(one *sdk.Charge) bool {
			return one != nil && one.Object == "charge" && one.ID != "" && one.Currency != ""
		})
	if err != nil {
		return channel.Listing{}, c.unlisted("charges", seen, err)
	}
	var listing channel.Listing
	for _, one := range page {
		listing.Next = one.ID
		if !within(params.CreatedRange, one.Created) {
			continue
		}
		e := channel.Evidence{
			Outcome: channel.OutcomePending, Reference: one.ID, Payment: one.ID, Amount: one.AmountCaptured,
			Currency: strings.ToLower(string(one.Currency)), Code: contract.Clip(string(one.Status), maxCode), ObservedAt: instant(one.Created),
		}
		if one.PaymentIntent != nil && one.PaymentIntent.ID != "" {
			e.Payment, e.PaymentAlias = one.PaymentIntent.ID, one.ID
		}
		switch {
		case one.Status == sdk.ChargeStatusFailed:
			e.Outcome = channel.OutcomeFailed
		case one.Status == sdk.ChargeStatusSucceeded && one.Paid && one.Captured:
			e.Outcome = channel.OutcomeSucceeded
		}
		listing.Lines = append(listing.Lines, e)
	}
	return onePage(listing, more, after)
}

// onePage is a listing that leads on exactly where there are more.
func onePage(listing channel.Listing, more bool, after string) (channel.Listing, error) {
	switch {
	case !more:
		listing.Next = ""
	case listing.Next == "" || listing.Next == after:
		return channel.Listing{}, errNoWayOn
	}
	return listing, nil
}

// pageAfter asks for one page; the SDK would go on for ever where every page says that there is another.
func pageAfter(after string) sdk.ListParams {
	params := sdk.ListParams{Limit: sdk.Int64(pageSize), Single: true}
	if after != "" {
		params.StartingAfter = &after
	}
	return params
}

// createdIn takes in the seconds that the period touches: Stripe's times have no finer ones.
func createdIn(period channel.Period) *sdk.RangeQueryParams {
	return &sdk.RangeQueryParams{
		GreaterThanOrEqual: period.Since.Unix(), LesserThan: period.Until.Add(time.Second - time.Nanosecond).Unix(),
	}
}

// within holds what came against what was asked for: a proxy in between may leave the question out.
func within(asked *sdk.RangeQueryParams, created int64) bool {
	return created >= asked.GreaterThanOrEqual && created < asked.LesserThan
}

func (c *Channel) unlisted(what string, seen *exchange, err error) error {
	failure := c.unread(seen, err)
	return fmt.Errorf("list the %s at Stripe: %s: %s", what, failure.Code, failure.Detail)
}
