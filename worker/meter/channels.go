package meter

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/worker/notices"
)

// Channels are payment channels whose calls and notices are counted. Use NewChannels.
type Channels struct {
	set     channel.Set
	calls   *prometheus.HistogramVec
	notices *prometheus.CounterVec
}

// NewChannels returns the channels of the set, whose metrics go to the registry.
func NewChannels(set channel.Set, registry prometheus.Registerer) (*Channels, error) {
	c := &Channels{
		set: set,
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "reclaim_channel_call_seconds", Help: "Calls of payment channels, by what they said.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"channel", "operation", "outcome"}),
		notices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "reclaim_channel_notices_total", Help: "Notices that came from payment channels, by what became of them.",
		}, []string{"channel", "outcome"}),
	}
	if err := register(registry, c.calls, c.notices); err != nil {
		return nil, err
	}
	for _, name := range set.Names() {
		for _, operation := range []string{"submit", "query"} {
			for _, outcome := range []channel.Outcome{
				channel.OutcomeUnknown, channel.OutcomePending, channel.OutcomeSucceeded, channel.OutcomeFailed, channel.OutcomeNotFound,
			} {
				c.calls.WithLabelValues(name, operation, string(outcome))
			}
		}
		c.notices.WithLabelValues(name, string(activities.Applied))
	}
	return c, nil
}

// Get returns the channel for a tenant's refunds.
func (c *Channels) Get(name, tenant string) (channel.Channel, error) {
	far, err := c.set.Get(name, tenant)
	return c.counted(name, far), err
}

// NamesFor returns the names of the channels that a tenant may use, in order.
func (c *Channels) NamesFor(tenant string) []string { return c.set.NamesFor(tenant) }

// Named returns the channel whoever may use it.
func (c *Channels) Named(name string) (channel.Channel, error) {
	far, err := c.set.Named(name)
	return c.counted(name, far), err
}

func (c *Channels) counted(name string, far channel.Channel) channel.Channel {
	if far == nil {
		return nil
	}
	return counted{Channel: far, name: name, calls: c.calls}
}

type counted struct {
	channel.Channel
	name  string
	calls *prometheus.HistogramVec
}

// Submit asks for the refund.
func (c counted) Submit(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
	began := time.Now()
	evidence, err := c.Channel.Submit(ctx, refund)
	c.observe("submit", evidence.Outcome, err, began)
	return evidence, err
}

// Query looks the refund up.
func (c counted) Query(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
	began := time.Now()
	evidence, err := c.Channel.Query(ctx, refund)
	c.observe("query", evidence.Outcome, err, began)
	return evidence, err
}

// List returns every refund of a payment.
func (c counted) List(ctx context.Context, payment string) ([]channel.Evidence, error) {
	began := time.Now()
	all, err := c.Channel.List(ctx, payment)
	c.observe("list", "listed", err, began)
	return all, err
}

// RefundsMade returns a page of what the channel made in a period.
func (c counted) RefundsMade(ctx context.Context, period channel.Period, after string) (channel.Listing, error) {
	began := time.Now()
	listing, err := c.Channel.RefundsMade(ctx, period, after)
	c.observe("refunds_made", "listed", err, began)
	return listing, err
}

// PaymentsMade returns a page of what the channel took in a period.
func (c counted) PaymentsMade(ctx context.Context, period channel.Period, after string) (channel.Listing, error) {
	began := time.Now()
	listing, err := c.Channel.PaymentsMade(ctx, period, after)
	c.observe("payments_made", "listed", err, began)
	return listing, err
}

func (c counted) observe(operation string, outcome channel.Outcome, err error, began time.Time) {
	if _, unusable := errors.AsType[*channel.Unusable](err); unusable {
		outcome = "unusable"
	} else if err != nil {
		outcome = "error"
	}
	c.calls.WithLabelValues(c.name, operation, string(outcome)).Observe(time.Since(began).Seconds())
}

// Notices returns the taker with what it takes counted.
func (c *Channels) Notices(taker notices.Taker) notices.Taker { return countedTaker{taker, c.notices} }

type countedTaker struct {
	notices.Taker
	count *prometheus.CounterVec
}

// TakeNotice takes a notice and counts what became of it.
func (c countedTaker) TakeNotice(
	ctx context.Context, name string, header http.Header, body []byte, now time.Time,
) (activities.TakenNotice, error) {
	taken, err := c.Taker.TakeNotice(ctx, name, header, body, now)
	refused, wasRefused := errors.AsType[*channel.NoticeError](err)
	var outcome string
	switch {
	case errors.Is(err, channel.ErrUnknownChannel):
		// The name is the sender's: anybody can make up more of them.
		name, outcome = "", "unknown_channel"
	case wasRefused:
		outcome = refused.Code
	case err != nil:
		outcome = "error"
	case taken.IssueID != "":
		outcome = "unknown_refund"
	case taken.Refund.RefundID == "":
		outcome = "ignored"
	default:
		outcome = string(taken.Applied.Verdict)
	}
	c.count.WithLabelValues(name, outcome).Inc()
	return taken, err
}
