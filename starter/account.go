package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

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

func (a *app) statementCommand() *cobra.Command {
	return &cobra.Command{
		Use: "statement ACCOUNT", Short: "List every entry of an account, oldest first, with the running balance",
		Args: exactly("ACCOUNT"),
		RunE: a.patientVerb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			if a.output == outputJSON {
				return a.statementJSON(ctx, c, tenant, args[0])
			}
			return a.statementTable(ctx, c, tenant, args[0])
		}),
	}
}

// statementTable prints page by page: a table that is aligned as a whole would have to be held as a whole.
func (a *app) statementTable(ctx context.Context, c *client.Client, tenant, account string) error {
	const page = 500
	var w *tabwriter.Writer
	lines := 0
	asOf, err := c.Statement(ctx, tenant, account, func(e client.Entry) error {
		if w == nil {
			// The widths that most statements need keep the pages aligned with each other.
			w = tabwriter.NewWriter(a.stdout, 8, 8, 2, ' ', 0)
			line(w, "SEQ", "TIME", "TYPE", "AMOUNT", "BALANCE", "SUBJECT", "REASON")
		}
		line(w, e.Seq, clock(e.CreatedAt), fmt.Sprintf("%-7s", e.Type), fmt.Sprintf("%+12d", e.Amount),
			fmt.Sprintf("%12d", e.BalanceAfter), fmt.Sprintf("%-7s", subject(e)), e.Reason)
		if lines++; lines%page == 0 {
			return w.Flush()
		}
		return nil
	})
	if w != nil {
		if flushErr := w.Flush(); err == nil {
			err = flushErr
		}
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.stdout, "Balance: %s, after %d entries\n", balance(asOf), asOf.Entries); err != nil {
		return fmt.Errorf("print the statement: %w", err)
	}
	return nil
}

// subject names what an entry is about.
func subject(e client.Entry) string {
	switch {
	case e.JobID != "" && e.RefundID != "":
		return "refund " + e.RefundID + " of job " + e.JobID
	case e.JobID != "":
		return "job " + e.JobID
	case e.RefundID != "":
		return "refund " + e.RefundID
	case e.OrderID != "":
		return "order " + e.OrderID
	default:
		return "-"
	}
}

// statementJSON prints one JSON object, entry by entry. Where reading fails half way, it ends with the error in place of
// the account.
func (a *app) statementJSON(ctx context.Context, c *client.Client, tenant, account string) error {
	out := bufio.NewWriter(a.stdout)
	put := func(before string, value any) error {
		text, err := json.Marshal(value)
		if err == nil {
			_, err = fmt.Fprintf(out, "%s%s", before, text)
		}
		return err
	}
	before, separator := "{\"entries\":[", ""
	asOf, err := c.Statement(ctx, tenant, account, func(e client.Entry) error {
		err := put(before+separator+"\n", e)
		before, separator = "", ","
		return err
	})
	switch {
	case err != nil && separator == "":
		// Nothing is printed yet: the error is told as every other.
		return err
	case err != nil:
		if printErr := put("],\n\"error\":", asRefusal(err)); printErr != nil {
			return fmt.Errorf("print the statement: %w", printErr)
		}
		err = errShown
	default:
		err = put(before+"],\n\"account\":", asOf)
	}
	_, printErr := out.WriteString("}\n")
	if printErr = errors.Join(printErr, out.Flush()); printErr != nil {
		return fmt.Errorf("print the statement: %w", printErr)
	}
	return err
}
