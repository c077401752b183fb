package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/worker/webui"
)

func devCommand() *cobra.Command {
	var options devstack.Options
	var fresh, ephemeral bool
	command := &cobra.Command{
		Use:   "dev [-- COMMAND [ARGUMENT…]]",
		Short: "Run everything on this machine: Postgres, Temporal with its Web UI, and the workers",
		Long: "Run everything on this machine until Ctrl-C, without Docker: Postgres, Temporal with its Web UI, " +
			"Reclaim's worker and the example work's. The data is kept, and a second start finds it. With a command after " +
			"--, run that against the stack instead of waiting, and stop when it ends.\n\n" +
			"Orders may name two payment channels, both of one simulator:\n  " +
			strings.Join(devstack.Channels(), "\n  ") + "\nWhat the simulator can be told: worker simulator --help",
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
				return fmt.Errorf("dev takes no argument %q: a command to run comes after --: %w", args[0], errUsage)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if ephemeral && (fresh || options.Dir != "") {
				return fmt.Errorf("--ephemeral keeps nothing, so it does not go with --data or --fresh: %w", errUsage)
			}
			if !ephemeral && options.Dir == "" {
				cache, err := os.UserCacheDir()
				if err != nil {
					return fmt.Errorf("find a folder for the data (name one with --data): %w", err)
				}
				options.Dir = filepath.Join(cache, "reclaim", "dev")
				if options.Server == devstack.PostgresServer {
					// The workflows of one kind of server are not in the other's data.
					options.Dir += "-postgres"
				}
			}
			return dev(cmd.Context(), options, fresh, args, cmd.OutOrStdout())
		},
	}
	flags := command.Flags()
	addServerFlag(command, &options.Server)
	flags.StringVar(&options.Dir, "data", "", "the folder that keeps the data (default reclaim/dev in the user's cache folder)")
	flags.BoolVar(&fresh, "fresh", false, "delete the kept data first")
	flags.BoolVar(&ephemeral, "ephemeral", false, "keep nothing")
	flags.IntVar(&options.PostgresPort, "postgres-port", 0, "Postgres' port (default a free one)")
	flags.IntVar(&options.TemporalPort, "temporal-port", 0, "Temporal's port (default a free one)")
	flags.IntVar(&options.HTTPPort, "http-port", 0, "the HTTP door's port (default a free one)")
	flags.IntVar(&options.UIPort, "ui-port", 0, "the Web UI's port (default a free one)")
	return command
}

// addServerFlag lets the command line choose the Temporal server.
func addServerFlag(command *cobra.Command, server *devstack.Server) {
	*server = devstack.DevServer
	command.Flags().Var((*serverFlag)(server), "server",
		"the Temporal server: dev, with the Web UI, or postgres, the full server set up as docker-compose.yml does (the first time it is built, which takes minutes)")
}

// serverFlag takes the kinds of server that there are.
type serverFlag devstack.Server

// Set refuses every other kind.
func (f *serverFlag) Set(text string) error {
	switch devstack.Server(text) {
	case devstack.DevServer, devstack.PostgresServer:
		*f = serverFlag(text)
		return nil
	}
	return fmt.Errorf("must be %s or %s", devstack.DevServer, devstack.PostgresServer)
}

// String gives the kind.
func (f *serverFlag) String() string { return string(*f) }

// Type is what the help calls the value.
func (f *serverFlag) Type() string { return "kind" }

// dev runs the stack until ctx ends, a part of it does, or the command that was given has ended.
func dev(ctx context.Context, options devstack.Options, fresh bool, run []string, out io.Writer) (err error) {
	options.Progress = func(line string) { fmt.Fprintln(out, "  "+line) }
	if options.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program, to run the workers with: %w", err)
	}
	if fresh {
		if err := devstack.Erase(options.Dir); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "starting Reclaim on this machine")
	stack, err := devstack.Start(ctx, options)
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(out, "stopped before everything was ready")
			return nil
		}
		if errors.Is(err, localstack.ErrInUse) {
			err = fmt.Errorf("%w (--data FOLDER; make dev ARGS=\"--data FOLDER\")", err)
		}
		return err
	}
	defer func() { err = errors.Join(err, stopStack(stack, out)) }()
	if len(run) > 0 {
		return runAgainst(ctx, stack, run, out)
	}
	data := "kept: the next start finds it"
	if options.Dir == "" {
		data = "deleted at the end"
	}
	if err := tellAddresses(ctx, stack, data, "account topup team-7 --amount 1000 --key first", out); err != nil {
		return err
	}
	return stack.Wait(ctx)
}

// runAgainst runs a command in the stack's environment.
func runAgainst(ctx context.Context, stack *devstack.Stack, run []string, out io.Writer) error {
	file, err := stack.WriteEnvironment()
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "sh", append([]string{"-c", `. "$0" && exec "$@"`, file}, run...)...)
	command.Env = append([]string{localstack.LargeHeap}, os.Environ()...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, out, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("run %s: %w", run[0], err)
	}
	return nil
}

// tellAddresses says where everything is, what becomes of the data, and how to use it all from another terminal.
func tellAddresses(ctx context.Context, stack *devstack.Stack, data, try string, out io.Writer) error {
	file, err := stack.WriteEnvironment()
	if err != nil {
		return err
	}
	ui, looking := "none: the full server has none of its own", ""
	if stack.UI().Address != "" {
		views, err := stack.Views(ctx)
		if err != nil {
			return err
		}
		views = append(views, webui.OfAccount("acme", "team-7"), webui.OfOrder("acme", "order-first"))
		ui = stack.UI().Runs()
		looking = "Views of the Web UI, as of now (worker views prints them anew; docs/runbook.md says what to do with them):\n\n" +
			stack.UI().List(views) + "\n"
	}
	fmt.Fprintf(out, `
  Web UI     %s
  HTTP       %s (its routes: /docs)
  Temporal   %s
  Postgres   %s
  as owner   %s
  data       %s (%s)
  channels   %s

To use the command line from another terminal, paste this (or: source %s):

%s
then try: go run ./starter %s

A payment, and the order that it paid, to try refunds with (docs/integration.md, "Try refunds here"):

curl -fsS $RECLAIM_SIMULATOR/simulator/payments -d '{"payment_intent":"pi_first","amount":10000,"currency":"eur"}'
go run ./starter order add order-first --account team-7 --channel %s --payment pi_first \
  --currency eur --paid 10000 --credits 1000 --key order-first

%sCtrl-C stops everything.
`, ui, stack.GatewayURL(), stack.TemporalAddress(), stack.AppURL(), stack.OwnerURL(), stack.Home(), data,
		strings.Join(devstack.Channels(), "\n             "), file, stack.Environment(), try, devstack.Channel, looking)
	return nil
}

// stopStack stops everything and says how long it took.
func stopStack(stack *devstack.Stack, out io.Writer) error {
	began := time.Now()
	fmt.Fprintln(out, "stopping the workers, Temporal and Postgres…")
	err := stack.Close()
	if err == nil {
		fmt.Fprintf(out, "everything is stopped after %.1f s\n", time.Since(began).Seconds())
	}
	return err
}
