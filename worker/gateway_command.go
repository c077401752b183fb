package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/reclaimhq/reclaim/starter/api"
	"github.com/reclaimhq/reclaim/worker/config"
)

// gatewayCommand is `starter serve` for the local stack, which has only this program.
func gatewayCommand() *cobra.Command {
	return &cobra.Command{
		Use: "gateway", Short: "Answer HTTP requests on the local stack", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := config.Load(os.Getenv)
			if err != nil {
				return environmentError(err)
			}
			logger, stop := api.NewLogger()
			defer func() { _ = stop() }()
			options := settings.Temporal
			options.Logger = config.SDKLogger(logger)
			return api.Run(cmd.Context(), api.RunOptions{
				DatabaseURL: settings.DatabaseURL, Connections: settings.Connections, Temporal: options, TaskQueue: settings.TaskQueue,
				Listen: settings.Listen, Notices: os.Getenv("RECLAIM_NOTICES_URL"), Limits: api.DefaultLimits(), Logger: logger,
			})
		},
	}
}
