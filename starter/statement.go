package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// statementFormat is the value of --output where it may be csv too.
type statementFormat struct{ *outputFormat }

// Set takes one of the formats.
func (f statementFormat) Set(text string) error {
	if text == string(outputCSV) {
		*f.outputFormat = outputCSV
		return nil
	}
	if f.outputFormat.Set(text) != nil {
		return fmt.Errorf("must be table, json or csv")
	}
	return nil
}

func (a *app) statementCommand() *cobra.Command {
	var query client.StatementQuery
	var from, to, zone string
	command := &cobra.Command{
		Use:   "statement ACCOUNT [--from WHEN] [--to WHEN] [--time-zone ZONE] [--after SEQ] [--limit N]",
		Short: "List the entries of an account, oldest first, with the running balance",
		Long: "List the entries of an account, oldest first, with the running balance: all of them, or those of a period, which " +
			"includes the instant --from and ends before the instant --to.\n\n" +
			"WHEN is an RFC 3339 instant (2026-11-01T09:30:00+01:00) or a date (2026-11-01), which is the beginning of that " +
			"day in the time zone.",
		Example: "  " + program + " account statement team-7 --from 2026-11-01 --to 2026-12-01 --time-zone Europe/Berlin --output csv",
		Args:    exactly("ACCOUNT"),
		RunE: a.patientVerb(func(ctx context.Context, c *client.Client, args []string) error {
			tenant, err := a.needTenant()
			if err != nil {
				return err
			}
			if query.Period, err = client.ParsePeriod(from, to, zone); err != nil {
				return err
			}
			query.Tenant, query.Account = tenant, args[0]
			statement, err := c.Statement(ctx, query)
			if err != nil {
				return err
			}
			switch a.output {
			case outputJSON:
				return a.statementJSON(ctx, statement)
			case outputCSV:
				return statement.WriteCSV(ctx, a.stdout)
			default:
				return a.statementTable(ctx, statement)
			}
		}),
	}
	flags := command.Flags()
	flags.StringVar(&from, "from", "", "leave out what happened before WHEN")
	flags.StringVar(&to, "to", "", "leave out what happened at WHEN or later")
	flags.StringVar(&zone, "time-zone", "UTC", "IANA time zone of dates and of the times shown")
	flags.Int64Var(&query.After, "after", 0, "leave out the entries up to this SEQ")
	flags.Int64Var(&query.Limit, "limit", 0, "stop after so many entries; 0: no limit")
	flags.Var(statementFormat{&a.output}, "output", "table, json or csv")
	return command
}

// statementTable prints page by page: a table that is aligned as a whole would have to be held as a whole. The ends of the
// period have a line where they are not the account's own.
func (a *app) statementTable(ctx context.Context, s *client.Statement) error {
	out := bufio.NewWriter(a.stdout)
	err := writeTable(ctx, s, out)
	if printErr := out.Flush(); printErr != nil {
		return fmt.Errorf("print the statement: %w", printErr)
	}
	return err
}

func writeTable(ctx context.Context, s *client.Statement, out io.Writer) error {
	const page = 500
	var w *tabwriter.Writer
	lines := 0
	edge := func(name string, balance int64, at time.Time, seq int64) {
		fmt.Fprintf(out, "%s balance: %d %s on %s, after %s\n", name, balance, s.Account.Asset, at.Format(time.RFC3339),
			counted(seq, "entry", "entries"))
	}
	if !s.Period.From.IsZero() {
		edge("Opening", s.Opening, s.Period.From, s.OpeningSeq)
	}
	next, err := s.Entries(ctx, func(e client.Entry) error {
		if w == nil {
			// The widths that most statements need keep the pages aligned with each other.
			w = tabwriter.NewWriter(out, 8, 8, 2, ' ', 0)
			line(w, "SEQ", "TIME", "TYPE", "AMOUNT", "BALANCE", "SUBJECT", "REASON")
		}
		line(w, e.Seq, e.CreatedAt.Format(time.RFC3339), fmt.Sprintf("%-7s", e.Type), fmt.Sprintf("%+12d", e.Amount),
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
	switch {
	case err != nil:
		return err
	case next > 0:
		fmt.Fprintf(out, "There are more entries: go on with --after %d\n", next)
	case !s.Period.To.IsZero():
		edge("Closing", s.Closing, s.Period.To, s.ClosingSeq)
	default:
		fmt.Fprintf(out, "Balance: %s, after %s\n", balance(s.Account), counted(s.ClosingSeq, "entry", "entries"))
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

// statementJSON prints the statement as the client writes it. Where reading fails half way, the object ends with the error
// in place of the closing balance.
func (a *app) statementJSON(ctx context.Context, s *client.Statement) error {
	out := &begun{Writer: a.stdout}
	err := s.WriteJSON(ctx, out)
	if err == nil || !out.yes {
		return err
	}
	refusal, marshalErr := json.Marshal(contract.AsError(err))
	if marshalErr != nil {
		return marshalErr
	}
	if _, printErr := fmt.Fprintf(a.stdout, "],\n\"error\":%s}\n", refusal); printErr != nil {
		return fmt.Errorf("print the statement: %w", printErr)
	}
	return errShown
}

// begun knows whether anything was written.
type begun struct {
	io.Writer
	yes bool
}

// Write hands on what is written.
func (b *begun) Write(p []byte) (int, error) {
	b.yes = true
	return b.Writer.Write(p)
}
