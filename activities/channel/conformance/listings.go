package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

// maxPages bounds how many pages are turned.
const maxPages = 1000

// made reads every page of a listing.
func made(
	t *testing.T, list func(context.Context, channel.Period, string) (channel.Listing, error), period channel.Period,
) (lines []channel.Evidence) {
	t.Helper()
	after := ""
	for range maxPages {
		page, err := list(within(t), period, after)
		require.NoError(t, err)
		lines = append(lines, page.Lines...)
		if page.Next == "" {
			return lines
		}
		require.NotEqual(t, after, page.Next)
		after = page.Next
	}
	t.Fatalf("more than %d pages", maxPages)
	return nil
}

func listsMade(t *testing.T, s Subject) {
	payment := s.Payment(t, 1000)
	refunds := map[string]channel.Refund{}
	for _, amount := range []int64{100, 200} {
		r := s.refund(payment, amount)
		e := s.submit(t, r)
		s.acknowledged(t, e, r)
		r.Reference = e.Reference
		refunds[r.Reference] = r
	}
	// The far end's clock need not be ours: a listing of all time says when they were made.
	var period channel.Period
	found := map[string]bool{}
	for _, e := range made(t, s.Channel.RefundsMade, channel.Period{Since: time.Unix(0, 0), Until: time.Now().AddDate(10, 0, 0)}) {
		s.check(t, e)
		require.False(t, found[e.Reference], "%s is listed twice", e.Reference)
		found[e.Reference] = true
		r, ours := refunds[e.Reference]
		if !ours {
			continue
		}
		s.acknowledged(t, e, r)
		require.False(t, e.ObservedAt.IsZero(), "it says when it was made")
		if period.Since.IsZero() || e.ObservedAt.Before(period.Since) {
			period.Since = e.ObservedAt
		}
		if !e.ObservedAt.Before(period.Until) {
			period.Until = e.ObservedAt.Add(time.Second)
		}
	}
	var within, before int
	for _, e := range made(t, s.Channel.RefundsMade, period) {
		if _, ours := refunds[e.Reference]; ours {
			within++
		}
		assert.True(t, period.Has(e.ObservedAt), "%s was made at %s", e.Reference, e.ObservedAt)
	}
	for _, e := range made(t, s.Channel.RefundsMade, channel.Period{Since: time.Unix(0, 0), Until: period.Since}) {
		if _, ours := refunds[e.Reference]; ours {
			before++
		}
	}
	assert.Equal(t, [2]int{len(refunds), 0}, [2]int{within, before}, "in their period, and before it")

	var paid []channel.Evidence
	for _, e := range made(t, s.Channel.PaymentsMade, channel.Period{Since: time.Unix(0, 0), Until: time.Now().AddDate(10, 0, 0)}) {
		s.check(t, e)
		if e.Payment == payment || e.PaymentAlias == payment {
			paid = append(paid, e)
		}
	}
	require.Len(t, paid, 1, "the payment is listed")
	assert.Equal(t, []any{channel.OutcomeSucceeded, int64(1000), s.Currency},
		[]any{paid[0].Outcome, paid[0].Amount, paid[0].Currency})
}
