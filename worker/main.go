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
	// A second Ctrl-C ends the program at once.
	context.AfterFunc(ctx, stop)
	err := execute(ctx, command())
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

// errUsage marks mistakes in the command line or the environment.
var errUsage = errors.New("see worker --help")

// environmentError is a usage error of all that the environment has wrong.
func environmentError(mistakes error) error {
	return fmt.Errorf("the environment has mistakes:\n%w; %w", mistakes, errUsage)
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "worker",
		Short: "Run Reclaim's worker, its migrations, or the whole local stack",
		Long: "Run Reclaim's worker, its migrations, or the whole local stack.\n\n" +
			"Exit status: 0 done; 1 refused or broken; 2 wrong usage: a mistake in the command line or the environment.",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(runCommand(), renderCommand(), simulatorCommand(), gatewayCommand(), migrateCommand(), healthCommand(),
		devCommand(), demoCommand(), prepareCommand(), viewsCommand())
	return root
}

// execute runs the command line. What fails before a command's own code runs is a mistake in the command line.
func execute(ctx context.Context, root *cobra.Command) error {
	began := false
	for _, command := range root.Commands() {
		if own := command.RunE; own != nil {
			command.RunE = func(cmd *cobra.Command, args []string) error {
				began = true
				return own(cmd, args)
			}
		}
	}
	err := root.ExecuteContext(ctx)
	if err != nil && !began {
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	return err
}
