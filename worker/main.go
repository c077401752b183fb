// Command worker runs Reclaim's processes: the worker itself, the migrations, and the local stack.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command().ExecuteContext(ctx)
	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// errUsage marks mistakes in the command line itself.
var errUsage = errors.New("see worker --help")

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "worker",
		Short:         "Run Reclaim's worker, its migrations, or the whole local stack",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", err, errUsage) })
	root.AddCommand(runCommand(), migrateCommand())
	return root
}
