package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/worker/demo"
	"github.com/reclaimhq/reclaim/worker/devstack"
)

func demoCommand() *cobra.Command {
	var keep bool
	var server devstack.Server
	command := &cobra.Command{
		Use:   "demo",
		Short: "Play what can go wrong with paid work on a stack of its own, and check every ledger entry",
		Long: "Play what can go wrong with paid work on a temporary stack of its own, and check every ledger entry. " +
			"Exits 1 where any money is not as expected.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return playDemo(cmd.Context(), server, keep, cmd.OutOrStdout())
		},
	}
	addServerFlag(command, &server)
	command.Flags().BoolVar(&keep, "keep", false, "leave everything running after the scenes, until Ctrl-C, to look at it in the Web UI")
	return command
}

// errInterrupted ends a demo that was asked to stop before its end.
var errInterrupted = errors.New("the demo was interrupted")

func playDemo(ctx context.Context, server devstack.Server, keep bool, out io.Writer) (err error) {
	options := devstack.Options{Server: server, Progress: func(line string) { fmt.Fprintln(out, "  "+line) }}
	if options.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program, to run the workers with: %w", err)
	}
	fmt.Fprintln(out, "starting Reclaim on this machine, with temporary data")
	stack, err := devstack.Start(ctx, options)
	if err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return err
	}
	defer func() { err = errors.Join(err, stopStack(stack, out)) }()
	err = demo.Run(ctx, stack, out)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if !keep && stack.UI().Address == "" {
		return err
	}
	if !keep {
		fmt.Fprintln(out, "\nTo look at every run in Temporal's Web UI, with everything left running: make demo KEEP=1")
		return err
	}
	if err != nil {
		fmt.Fprintf(out, "\n%v\n", err)
	}
	if stack.UI().Address == "" {
		fmt.Fprintf(out, "\nThe workflow ids of the jobs\n%s", demo.Links(stack))
	} else {
		fmt.Fprintf(out, "\nThe jobs in Temporal's Web UI\n%s", demo.Links(stack))
	}
	fmt.Fprintf(out, "The pictures are in %s\n", stack.Results())
	return errors.Join(err, tellAddresses(ctx, stack, "deleted at the end", "account statement team-7", out), stack.Wait(ctx))
}
