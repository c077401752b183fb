package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

func prepareCommand() *cobra.Command {
	var server devstack.Server
	command := &cobra.Command{
		Use:   "prepare",
		Short: "Find, build or download what the local stack and the tests need, and try it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			say := func(line string) { _, _ = fmt.Fprintln(cmd.OutOrStdout(), line) }
			path, err := localstack.EnsureTemporal(cmd.Context(), say)
			if err != nil {
				return err
			}
			say("Temporal: " + path)
			if server == devstack.PostgresServer {
				path, _, err := localstack.EnsureTemporalServer(cmd.Context(), say)
				if err != nil {
					return err
				}
				say("full Temporal server: " + path)
			}
			postgres, err := localstack.StartPostgres(cmd.Context(), localstack.PostgresOptions{Progress: say})
			if err != nil {
				return err
			}
			return postgres.Close()
		},
	}
	addServerFlag(command, &server)
	return command
}
