package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
)

func (a *app) accountCommand() *cobra.Command {
	return group("account", "Move credits and read accounts", a.topUpCommand(), a.adjustCommand(), a.accountShowCommand(),
		a.statementCommand())
}

func (a *app) topUpCommand() *cobra.Command {
	var m client.Movement
	var n amount
	command := &cobra.Command{
		Use: "topup ACCOUNT --amount N --key K", Short: "Add credits to an account, which is created if need be",
		Long: "Add credits to an account, which is created if need be. The key makes repeating safe: tenant, actor and key " +
			"stand for one top-up for ever.",
		Args: exactly("ACCOUNT"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			m.Account, m.Amount = args[0], n.value
			return a.move(ctx, m, c.TopUp)
		}),
	}
	flags := command.Flags()
	flags.Var(&n, "amount", "how many, in the asset's smallest unit")
	flags.StringVar(&m.Key, "key", "", "operation key: the same for every repeat of this top-up")
	flags.StringVar(&m.Asset, "asset", "CREDIT", "what the account holds")
	flags.StringVar(&m.Reason, "reason", "", "one line for the statement")
	mustHave(command, "amount", "key")
	return command
}

func (a *app) adjustCommand() *cobra.Command {
	var m client.Movement
	n := amount{signed: true}
	command := &cobra.Command{
		Use:   "adjust ACCOUNT --amount ±N --key K [--operator WHO] --reason WHY",
		Short: "Correct a balance by a person's decision, below zero if need be",
		Args:  exactly("ACCOUNT"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			operator, err := a.needOperator(m.Operator)
			if err != nil {
				return err
			}
			m.Account, m.Amount, m.Operator = args[0], n.value, operator
			return a.move(ctx, m, c.Adjust)
		}),
	}
	flags := command.Flags()
	flags.Var(&n, "amount", "how many to add, or with - to take, in the asset's smallest unit")
	flags.StringVar(&m.Key, "key", "", "operation key: the same for every repeat of this adjustment")
	flags.StringVar(&m.Operator, "operator", "", operatorUsage)
	flags.StringVar(&m.Reason, "reason", "", "why")
	mustHave(command, "amount", "key", "reason")
	return command
}

// move makes the movement and shows the entry that it made.
func (a *app) move(ctx context.Context, m client.Movement, how func(context.Context, client.Movement) (client.Moved, error)) error {
	var err error
	if m.Tenant, m.Actor, err = a.needTenantAndActor(); err != nil {
		return err
	}
	moved, err := how(ctx, m)
	if err != nil {
		return err
	}
	result := struct {
		Account string `json:"account"`
		Amount  int64  `json:"amount"`
		client.Moved
	}{m.Account, m.Amount, moved}
	return a.show(result, func(w io.Writer) {
		answer := "applied"
		if moved.Already {
			answer = "already made before under this key: nothing moved now"
		}
		line(w, "Answer", answer)
		line(w, "Account", m.Account)
		line(w, "Amount", fmt.Sprintf("%+d", m.Amount))
		line(w, "Balance after", moved.BalanceAfter)
		line(w, "Entry", moved.Seq)
	})
}

func (a *app) accountShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show ACCOUNT", Short: "Show an account's balance",
		Args: exactly("ACCOUNT"),
		RunE: a.verb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			account, err := c.Account(ctx, tenant, args[0])
			if err != nil {
				return err
			}
			return a.show(account, func(w io.Writer) {
				line(w, "Tenant", account.Tenant)
				line(w, "Account", account.Account)
				line(w, "Balance", balance(account))
				line(w, "Entries", account.Entries)
				line(w, "Created", clock(account.CreatedAt))
			})
		}),
	}
}

// balance says a balance in words, a debt as such.
func balance(account client.Account) string {
	text := fmt.Sprintf("%d %s", account.Balance, account.Asset)
	if account.Balance < 0 {
		text += " (a debt: new jobs are declined until it is paid)"
	}
	return text
}
