package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/worker/render"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// shop is the account whose credits were bought by orders, each of orderPaid cents for orderCredits.
	shop         = "shop-1"
	orderPaid    = 2000
	orderCredits = 200
)

// refundScene is one story about one refund through the payment channel, and how it must end.
type refundScene struct {
	title string
	order string
	// channel is the simulator's name in the order.
	channel string
	amount  int64
	// script is how the channel misbehaves.
	script map[string]any
	// decide is what a person sends once the refund waits for one, nil for nothing.
	decide *contract.RefundResolution

	state contract.RefundState
	// entries are the types of the refund's ledger entries in order, moved the money that the channel's own book says is out,
	// and asked how often the channel was asked for the number.
	entries []string
	moved   int64
	asked   int
	notice  string
}

func refundScenes() []refundScene {
	silent := map[string]any{"none": true}
	return []refundScene{
		{
			title: "A refund through the payment channel, confirmed by looking",
			order: "order-1", channel: devstack.Channel, amount: 500,
			script: map[string]any{
				"webhooks": silent,
				"life":     []any{map[string]any{"status": "pending"}, map[string]any{"after": "2s", "status": "succeeded"}},
			},
			state: contract.RefundSucceeded, entries: []string{"payout"}, moved: 500, asked: 1,
			notice: "nobody said refunded until the channel had confirmed it.",
		},
		{
			title: "The channel refunds, and its answer is lost: a gateway in between says 502",
			order: "order-2", channel: devstack.Channel, amount: 700,
			script: map[string]any{
				"webhooks": silent, "create": []any{map[string]any{"kind": "html", "applied": true}},
			},
			state: contract.RefundSucceeded, entries: []string{"payout"}, moved: 700, asked: 1,
			notice: "unknown is not failed: it was found by its number, and sent once.",
		},
		{
			title: "The channel's webhook comes before its answer",
			order: "order-3", channel: devstack.Channel, amount: 800,
			script: map[string]any{"webhooks": map[string]any{"beforeAnswer": "2s", "copies": 2}},
			state:  contract.RefundSucceeded, entries: []string{"payout"}, moved: 800, asked: 1,
			notice: "three messages about one fact, in any order, have one effect.",
		},
		{
			title: "The channel falls silent, until a person settles the refund",
			order: "order-4", channel: devstack.ImpatientChannel, amount: 900,
			script: map[string]any{
				"webhooks": silent, "create": []any{map[string]any{"kind": "html", "applied": true}},
				"lookup": []any{map[string]any{"kind": "error", "times": -1}},
			},
			decide: &contract.RefundResolution{
				ID: "seen", Action: contract.ActionSettle, Operator: "dana", Reason: "seen at the channel",
				Evidence: "the channel's dashboard", ChannelRef: "re_seen_by_dana", Amount: 900,
			},
			state: contract.RefundSucceeded, entries: []string{"payout"}, moved: 900, asked: 1,
			notice: "when the channel's time was over it waited, visibly, and was neither settled nor released by itself.",
		},
		{
			title: "The channel takes the refund on, and fails",
			order: "order-5", channel: devstack.Channel, amount: 600,
			script: map[string]any{
				"life": []any{map[string]any{"status": "pending"}, map[string]any{"after": "2s", "status": "failed"}},
			},
			state: contract.RefundFailed, entries: []string{"payout", "payout_return"}, asked: 1,
			notice: "the credits came back, once, and the order can be refunded again.",
		},
	}
}

// sourceScenes are jobs whose refund leaves through the channel, and that are delivered after all.
func sourceScenes() []scene {
	return []scene{
		{
			title: "A job refunded to its source and delivered late, after the money left",
			job: picture("source-sent", 500, 400, func(in *render.Input, job *contract.Job) {
				in.SlowMs, job.Promise = 6000, seconds(2)
				job.Account, job.RefundTo, job.OrderID = shop, contract.RefundToSource, "order-6"
			}),
			play:    buyAndAwait(devstack.Channel),
			entries: []string{"charge", "refund", "payout", "reclaim"},
			state:   contract.StateSucceeded,
			notice:  "the money is with the customer and the picture too, so its price is reclaimed from the account.",
		},
		{
			title: "The same, before the money left: its channel is not configured here yet",
			job: picture("source-held", 500, 400, func(in *render.Input, job *contract.Job) {
				in.SlowMs, job.Promise = 5000, seconds(2)
				job.Account, job.RefundTo, job.OrderID = shop, contract.RefundToSource, "order-7"
			}),
			play:    buyAndAwait("not-configured"),
			entries: []string{"charge", "refund", "payout", "reclaim", "payout_return"},
			state:   contract.StateSucceeded,
			notice:  "the refund was withdrawn before it was sent: paid once, and no money moved.",
		},
	}
}

// buy lets the customer pay through the channel and registers the order, which tops the account up.
func (s *stage) buy(ctx context.Context, order, channel string) error {
	if err := s.stack.Simulator().Pay(ctx, "pi_"+order, orderPaid); err != nil {
		return err
	}
	added, err := s.client.AddOrder(ctx, contract.Order{
		Tenant: tenant, OrderID: order, Account: shop, Channel: channel, Payment: "pi_" + order, Currency: "eur",
		Paid: orderPaid, Credits: orderCredits, Actor: actor, Key: order,
	})
	if err != nil {
		return err
	}
	s.say("order %s: %d cents paid for %d credits, balance %d", order, orderPaid, orderCredits, added.Balance)
	return nil
}

func buyAndAwait(channel string) func(context.Context, *stage, contract.Job) error {
	return func(ctx context.Context, s *stage, job contract.Job) error {
		if err := s.buy(ctx, job.OrderID, channel); err != nil {
			return err
		}
		return submitAndAwait(ctx, s, job)
	}
}

// showRefund plays a scene, shows the refund's ledger entries, and checks them, the refund's end and the channel's book.
func (s *stage) showRefund(ctx context.Context, scene refundScene) error {
	ctx, cancel := context.WithTimeout(ctx, sceneLimit)
	defer cancel()
	s.began = time.Now()
	number := contract.RefundNumber(tenant, actor, scene.order)
	refund, playErr := s.playRefund(ctx, scene, number)
	var found []string
	fmt.Fprintln(s.out, "     ledger")
	err := s.client.Entries(ctx, tenant, shop, 0, func(entry client.Entry) error {
		if entry.RefundID == number {
			s.sayAt(entry.CreatedAt, "%-13s %+5d  balance %4d  %s", entry.Type, entry.Amount, entry.BalanceAfter, entry.Reason)
			found = append(found, entry.Type)
		}
		return nil
	})
	if err := errors.Join(playErr, err); err != nil {
		return err
	}
	moved, asked, err := s.stack.Simulator().Booked(ctx, "pi_"+scene.order, number)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "     refund %s ended as %s; the channel's own book: %d cents sent back, asked %s\n",
		number, refund.State, moved, inTimes(asked))
	switch {
	case refund.State != scene.state:
		return fmt.Errorf("expected the refund to end as %s, found %s", scene.state, refund.State)
	case !slices.Equal(found, scene.entries):
		return fmt.Errorf("expected the entries %s, found %s", inWords(scene.entries), inWords(found))
	case moved != scene.moved || asked != scene.asked:
		return fmt.Errorf("expected the channel to have sent %d cents back, asked %s", scene.moved, inTimes(scene.asked))
	}
	fmt.Fprintf(s.out, "     Notice: %s\n", scene.notice)
	return nil
}

func inTimes(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (s *stage) playRefund(ctx context.Context, scene refundScene, number string) (client.Refund, error) {
	if err := s.buy(ctx, scene.order, scene.channel); err != nil {
		return client.Refund{}, err
	}
	if err := s.stack.Simulator().Script(ctx, number, scene.script); err != nil {
		return client.Refund{}, err
	}
	requested, err := s.client.RequestRefund(ctx, contract.RefundRequest{
		Tenant: tenant, Actor: actor, Key: scene.order, OrderID: scene.order, Amount: scene.amount, Reason: "the demo asks for it",
	})
	if err != nil {
		return client.Refund{}, err
	}
	s.say("asked to send %d cents back: %s, with %d credits", requested.Amount, requested.State, requested.Credits)
	last, decided := requested.State, scene.decide == nil
	for {
		refund, err := s.client.Refund(ctx, tenant, requested.RefundID)
		if err != nil {
			return refund, err
		}
		if refund.State != last {
			last = refund.State
			s.say("the refund is %s: %s", refund.State, refund.DidItHappen)
		}
		switch {
		case !refund.State.Open():
			return refund, nil
		case refund.NeedsReview && !decided:
			s.say("the channel's time is over, and a person is asked")
			if _, err := s.client.ResolveRefund(ctx, tenant, requested.RefundID, *scene.decide); err != nil {
				return refund, err
			}
			decided = true
			s.say("%s settles it: %s", scene.decide.Operator, scene.decide.Reason)
		}
		select {
		case <-ctx.Done():
			return refund, fmt.Errorf("gave up waiting for the refund to end: %w", ctx.Err())
		case <-time.After(looksEvery):
		}
	}
}
