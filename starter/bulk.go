package main

import (
	"fmt"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/client"
)

// bulk is a decision that is taken to all that match a query.
type bulk struct {
	query  string
	dryRun bool
}

func (b *bulk) flags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&b.query, "query", "",
		`instead of one: decide all with an open run that match this query of the Web UI, as in 'ReclaimAttention = "dead_letter"'`)
	flags.BoolVar(&b.dryRun, "dry-run", false, "with --query: only show what would be decided")
}

// subject checks that either one is named or a query is given.
func (b *bulk) subject(name string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		queried := command.Flags().Changed("query")
		switch {
		case queried && len(args) > 0:
			return fmt.Errorf("name one %s or give --query, not both", name)
		case queried && b.query == "":
			return fmt.Errorf("--query is empty: name which to decide")
		case queried:
			return nil
		case b.dryRun:
			return fmt.Errorf("--dry-run goes with --query")
		default:
			return exactly(name)(command, args)
		}
	}
}

// show prints how each decision went, and ends with status 1 where one was refused.
func (a *app) showBulk(b bulk, decided iter.Seq2[client.Decided, error]) error {
	result := struct {
		Query   string           `json:"query"`
		DryRun  bool             `json:"dryRun"`
		Decided int              `json:"decided"`
		Refused int              `json:"refused"`
		Each    []client.Decided `json:"each"`
	}{Query: b.query, DryRun: b.dryRun, Each: []client.Decided{}}
	for one, err := range decided {
		if err != nil {
			return err
		}
		if result.Each = append(result.Each, one); one.Refusal != nil {
			result.Refused++
		} else {
			result.Decided++
		}
	}
	verb := "Decided"
	if b.dryRun {
		verb = "Would decide"
	}
	if err := a.show(result, func(w io.Writer) {
		for _, one := range result.Each {
			if one.Refusal != nil {
				line(w, one.ID, one.Refusal.Code, one.Refusal.Message)
			} else {
				line(w, one.ID, one.Outcome, one.State)
			}
		}
		line(w, verb, result.Decided)
		line(w, "Refused", result.Refused)
	}); err != nil {
		return err
	}
	if result.Refused > 0 {
		return errShown
	}
	return nil
}
