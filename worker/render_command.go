package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/worker/config"
	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/worker/render"
)

func renderCommand() *cobra.Command {
	var taskQueue, results string
	command := &cobra.Command{
		Use:   "render",
		Short: "Run the example work, a studio that renders fractals, until SIGTERM",
		Long: "Run the example work, a studio that renders fractals, until SIGTERM. It needs no database: " +
			"only TEMPORAL_… and RECLAIM_CODEC_KEYS, which must be as for Reclaim's worker, are read from the environment.\n\n" +
			render.Help(),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := config.LoadTemporal(os.Getenv)
			if err != nil {
				return environmentError(err)
			}
			logger := config.NewLogger()
			defer func() { _ = logger.Sync() }()
			return runRender(cmd.Context(), options, taskQueue, results, logger)
		},
	}
	command.Flags().StringVar(&taskQueue, "task-queue", devstack.WorkQueue, "the queue that jobs name in work.taskQueue")
	command.Flags().StringVar(&results, "results", filepath.Join(".reclaim", "results"), "the folder to keep pictures in")
	return command
}

// runRender polls until ctx ends. Where Temporal is away at the start it says so and keeps trying.
func runRender(ctx context.Context, options client.Options, taskQueue, results string, logger *zap.Logger) error {
	studio, err := render.NewStudio(results)
	if err != nil {
		return err
	}
	options.Logger = config.SDKLogger(logger)
	options.RPCTimeout = render.RPCTimeout
	var temporal client.Client
	if err := reach(ctx, logger, "Temporal", func(ctx context.Context) (err error) {
		temporal, err = client.DialContext(ctx, options)
		return err
	}); err != nil {
		return ignoreStop(err)
	}
	defer temporal.Close()
	worker := render.NewWorker(temporal, taskQueue, studio)
	if err := worker.Start(); err != nil {
		return namespaceError(fmt.Errorf("start polling the task queue %s: %w", taskQueue, err))
	}
	logger.Info("polling", zap.String("taskQueue", taskQueue), zap.String("temporal", options.HostPort), zap.String("results", results))
	<-ctx.Done()
	logger.Info("stopping: renderings under way are finished first")
	worker.Stop()
	return nil
}
