package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (a *app) orderCommand() *cobra.Command {
	return group("order", "Register payments that came through a channel, and read them", a.orderAddCommand(),
		a.orderShowCommand())
}

func (a *app) orderAddCommand() *cobra.Command {
	var order contract.Order
	var paid, credits amount
	command := &cobra.Command{
		Use:   "add ORDER --account A --channel C --payment P --currency CUR --paid N --credits N --key K",
		Short: "Register a payment and top its account up with the credits that it bought",
		Long: "Register a payment that came through a channel and top its account up with the credits that it bought. The key " +
			"makes repeating safe: tenant, actor and key stand for one order for ever, and a payment buys one order. Whether the " +
			"channel is configured, and knows the payment, only the worker can see: a mistake shows at the first refund.",
		Args: exactly("ORDER"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) (err error) {
			if order.Tenant, order.Actor, err = a.needTenantAndActor(); err != nil {
				return err
			}
			order.OrderID, order.Paid, order.Credits = args[0], paid.value, credits.value
			added, err := c.AddOrder(ctx, order)
			if err != nil {
				return err
			}
			return a.show(added, func(w io.Writer) {
				answer := "applied"
				if added.Already {
					answer = "already there: nothing moved now"
				}
				line(w, "Answer", answer)
				line(w, "Order", added.OrderID)
				line(w, "Account", order.Account)
				line(w, "Balance", added.Balance)
			})
		}),
	}
	flags := command.Flags()
	flags.StringVar(&order.Account, "account", "", "whose credits they are; it is created if need be")
	flags.StringVar(&order.Channel, "channel", "", "name of the channel in the worker's RECLAIM_CHANNELS, which is not checked here")
	flags.StringVar(&order.Payment, "payment", "", "the channel's own id of the payment")
	flags.StringVar(&order.Currency, "currency", "", "three letters, as in eur")
	flags.Var(&paid, "paid", "how much was paid, in the currency's smallest unit")
	flags.Var(&credits, "credits", "how many credits it bought, in the asset's smallest unit")
	flags.StringVar(&order.Key, "key", "", "operation key: the same for every repeat of this order")
	flags.StringVar(&order.Asset, "asset", "CREDIT", "what the account holds")
	mustHave(command, "account", "channel", "payment", "currency", "paid", "credits", "key")
	return command
}

func (a *app) orderShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ORDER", Short: "Show what was paid, what went back, and what is left",
		Args: exactly("ORDER"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			order, err := c.Order(ctx, tenant, args[0])
			if err != nil {
				return err
			}
			return a.show(order, func(w io.Writer) { orderTable(w, order) })
		}),
	}
}

func orderTable(w io.Writer, order client.Order) {
	line(w, "Order", order.OrderID)
	line(w, "Account", order.Account)
	line(w, "Payment", order.Payment+" through "+order.Channel)
	line(w, "Created", clock(order.CreatedAt))
	line(w, "Money", sharesInWords(order.Paid, "paid", order.Refunded, order.Reserved, order.Left)+", in "+order.Currency)
	line(w, "Credits",
		sharesInWords(order.Credits, "bought", order.RefundedCredits, order.ReservedCredits, order.LeftCredits))
	if len(order.Refunds) == 0 {
		return
	}
	line(w)
	line(w, "REFUND", "STATE", "AMOUNT", "CREDITS", "ACCEPTED", "REASON")
	for _, refund := range order.Refunds {
		state := string(refund.State)
		if refund.NeedsReview {
			state += " (needs a person)"
		}
		line(w, refund.RefundID, state, refund.Amount, refund.Credits, clock(refund.CreatedAt), refund.Reason)
	}
}

func sharesInWords(total int64, how string, refunded, reserved, left int64) string {
	return fmt.Sprintf("%d %s, %d refunded, %d on its way back, %d left", total, how, refunded, reserved, left)
}
