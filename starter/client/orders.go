package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// AddedOrder is the answer to AddOrder. Already is true where the order was there before; Balance is the account's, after
// it or now.
type AddedOrder struct {
	Already bool   `json:"already"`
	OrderID string `json:"orderId"`
	Balance int64  `json:"balance"`
}

// AddOrder registers a payment that came through a channel and tops the account up with its credits; the account is
// created if need be. An empty asset means CREDIT. Repeating it is safe, under the same key or, for the same order, under
// any. The channel need not be configured yet; a refund of the order needs it. Errors: BadInput (a rule is broken, the
// account holds another asset, or it would hold more than contract.MaxCost), Conflict (the key or the order's id stands
// for another order, or the payment bought another one), Unavailable.
func (c *Client) AddOrder(ctx context.Context, order contract.Order) (AddedOrder, error) {
	if order.Asset == "" {
		order.Asset = "CREDIT"
	}
	order.Currency = strings.ToLower(order.Currency)
	if err := order.Check(); err != nil {
		return AddedOrder{}, err
	}
	tried := "add order " + order.OrderID
	row, err := persist(ctx, tried, func(ctx context.Context) (db.AddOrderRow, error) {
		row, err := c.store.AddOrder(ctx, db.AddOrderParams{
			TenantID: order.Tenant, OrderID: order.OrderID, AccountID: order.Account, Channel: order.Channel,
			Payment: order.Payment, Currency: order.Currency, Paid: order.Paid, Credits: order.Credits, Asset: order.Asset,
			Actor: order.Actor, Key: order.Key, Fingerprint: order.Fingerprint(), NotAfter: c.store.NotAfter(),
			Reason: fmt.Sprintf("order %s: %d %s paid through %s", order.OrderID, order.Paid, order.Currency, order.Channel),
		})
		if err == nil && row.Answer == tooLate {
			err = c.tooLate(ctx, tried)
		}
		return row, err
	})
	if err != nil {
		return AddedOrder{}, err
	}
	differs := ""
	if row.Answer == "conflict" || row.Answer == "other_order" {
		// What differs is told where it can be read: without it, the answer stands too.
		if there, err := c.store.GetOrder(ctx, db.GetOrderParams{TenantID: order.Tenant, OrderID: order.OrderID}); err == nil {
			differs = differencesInWords(order, there)
		}
	}
	return addedAnswer(tried, order, row, differs)
}

// differencesInWords names each parameter of the order that the one that is there has another value of.
func differencesInWords(order contract.Order, there db.ReclaimOrder) string {
	var differ []string
	for _, parameter := range []struct{ name, is, asked any }{
		{"account", there.AccountID, order.Account}, {"channel", there.Channel, order.Channel},
		{"payment", there.ChannelPaymentID, order.Payment}, {"currency", there.Currency, order.Currency},
		{"paid", there.Paid, order.Paid}, {"credits", there.Credits, order.Credits},
	} {
		if parameter.is != parameter.asked {
			differ = append(differ, fmt.Sprintf("%s is %v, not %v", parameter.name, parameter.is, parameter.asked))
		}
	}
	return strings.Join(differ, ", ")
}

// addedAnswer tells what the statement answered. differs says what the order of this id that is there has otherwise.
func addedAnswer(tried string, order contract.Order, row db.AddOrderRow, differs string) (AddedOrder, error) {
	conflict := func(format string, args ...any) error {
		return refused(contract.CodeConflict, contract.RetryNewKey, tried, "", fmt.Sprintf(format, args...))
	}
	otherAsset := refused(contract.CodeBadInput, contract.RetryNewKey, tried, "asset",
		fmt.Sprintf("is %s, but the account holds %s", order.Asset, row.Asset))
	switch row.Answer {
	case "applied", "already":
		// An order's row does not say what its account holds: the order may be the same and the asset another.
		if row.Asset != order.Asset {
			return AddedOrder{}, otherAsset
		}
		return AddedOrder{Already: row.Answer == "already", OrderID: row.OrderID, Balance: row.Balance}, nil
	case "conflict":
		if differs != "" {
			differs = " (" + differs + ")"
		}
		return AddedOrder{}, conflict("the key %q stands for another order%s: use a new key", order.Key, differs)
	case "other_order":
		return AddedOrder{}, conflict("the order is there with other parameters (%s): add the other order under an id and a key "+
			"of its own", cmp.Or(differs, "account, channel, payment, currency, paid or credits differ"))
	case "payment_taken":
		return AddedOrder{}, conflict("the payment %s of channel %s bought order %s: a payment buys one order",
			order.Payment, order.Channel, row.OrderID)
	case "other_asset":
		return AddedOrder{}, otherAsset
	case "overflow":
		return AddedOrder{}, refused(contract.CodeBadInput, contract.RetryNewKey, tried, "credits",
			fmt.Sprintf("would take the balance of %d beyond %d", row.Balance, contract.MaxCost))
	default:
		return AddedOrder{}, unknownAnswer(tried, row.Answer)
	}
}

// Order is an order as it stands. Money is in the smallest unit of Currency, credits in that of the account's asset. Of
// each, reserved is what refunds hold that are on their way, refunded what went back, and left what can still go back.
type Order struct {
	Tenant   string `json:"tenant"`
	OrderID  string `json:"orderId"`
	Account  string `json:"account"`
	Channel  string `json:"channel"`
	Payment  string `json:"payment"`
	Currency string `json:"currency"`

	Paid     int64 `json:"paid"`
	Reserved int64 `json:"reserved"`
	Refunded int64 `json:"refunded"`
	Left     int64 `json:"left"`

	Credits         int64 `json:"credits"`
	ReservedCredits int64 `json:"reservedCredits"`
	RefundedCredits int64 `json:"refundedCredits"`
	LeftCredits     int64 `json:"leftCredits"`

	CreatedAt time.Time `json:"createdAt"`
	// Refunds are all that were accepted, the oldest first, those that ended without effect included.
	Refunds []OrderRefund `json:"refunds"`
}

// OrderRefund is a refund in the list of its order.
type OrderRefund struct {
	RefundID    string               `json:"refundId"`
	JobID       string               `json:"jobId,omitempty"`
	State       contract.RefundState `json:"state"`
	NeedsReview bool                 `json:"needsReview"`
	Amount      int64                `json:"amount"`
	Credits     int64                `json:"credits"`
	Reason      string               `json:"reason"`
	CreatedAt   time.Time            `json:"createdAt"`
}

// Order reads an order with its refunds. Errors: BadInput, NotFound, Unavailable.
func (c *Client) Order(ctx context.Context, tenant, orderID string) (Order, error) {
	if err := together(contract.CheckID("tenant", tenant), contract.CheckID("orderId", orderID)); err != nil {
		return Order{}, err
	}
	var row db.ReclaimOrder
	var refunds []db.ReclaimRefund
	err := c.snapshot(ctx, "read order "+orderID, func(q *db.Queries) (err error) {
		row, err = q.GetOrder(ctx, db.GetOrderParams{TenantID: tenant, OrderID: orderID})
		if errors.Is(err, pgx.ErrNoRows) {
			return noOrder(tenant, orderID)
		}
		if err == nil {
			refunds, err = q.ListOrderRefunds(ctx, db.ListOrderRefundsParams{TenantID: tenant, OrderID: orderID})
		}
		return err
	})
	if err != nil {
		return Order{}, err
	}
	order := Order{
		Tenant: row.TenantID, OrderID: row.OrderID, Account: row.AccountID, Channel: row.Channel,
		Payment: row.ChannelPaymentID, Currency: row.Currency,
		Paid: row.Paid, Reserved: row.Reserved, Refunded: row.Refunded, Left: leftMoney(row),
		Credits: row.Credits, ReservedCredits: row.ReservedCredits, RefundedCredits: row.RefundedCredits,
		LeftCredits: row.Credits - row.ReservedCredits - row.RefundedCredits,
		CreatedAt:   row.CreatedAt.UTC(), Refunds: []OrderRefund{},
	}
	for _, r := range refunds {
		order.Refunds = append(order.Refunds, OrderRefund{
			RefundID: r.RefundID, JobID: text(r.JobID), State: contract.RefundState(r.State), NeedsReview: r.NeedsReview,
			Amount: r.Amount, Credits: r.Credits, Reason: r.Reason, CreatedAt: r.CreatedAt.UTC(),
		})
	}
	return order, nil
}

func leftMoney(row db.ReclaimOrder) int64 { return row.Paid - row.Reserved - row.Refunded }

func noOrder(tenant, orderID string) error {
	return contract.NewError(contract.CodeNotFound, contract.RetryNever,
		fmt.Sprintf("tenant %s has no order %s", tenant, orderID), nil)
}
