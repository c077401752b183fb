package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/worker/config"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// pollIsFresh is how long ago a worker that polls may have begun to: it waits for a minute at most, then polls again.
	pollIsFresh   = 2 * time.Minute
	healthAnswers = 5 * time.Second
)

func healthCommand() *cobra.Command {
	var taskQueue string
	command := &cobra.Command{
		Use:   "health",
		Short: "Tell whether a worker on this host polls its task queue",
		Long: "Exit 0 where Temporal sees a worker on this host, by the host's name, poll the task queue for activities, as `worker run` " +
			"and `worker render` do; else 1. For the health checks of containers, which have a host name each. It reads " +
			"TEMPORAL_… and RECLAIM_TASK_QUEUE from the environment.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := config.LoadTemporal(os.Getenv)
			if err != nil {
				return environmentError(err)
			}
			host, err := os.Hostname()
			if err != nil {
				return fmt.Errorf("learn the name of this host: %w", err)
			}
			return checkPolling(cmd.Context(), options, taskQueue, host, cmd.OutOrStdout())
		},
	}
	queue := os.Getenv("RECLAIM_TASK_QUEUE")
	if queue == "" {
		queue = contract.TaskQueue
	}
	command.Flags().StringVar(&taskQueue, "task-queue", queue, "the queue that the worker polls")
	return command
}

// checkPolling says who polls, and fails where nobody on the host does.
func checkPolling(ctx context.Context, options client.Options, queue, host string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthAnswers)
	defer cancel()
	options.Logger = config.SDKLogger(zap.NewNop())
	temporal, err := client.DialContext(ctx, options)
	if err != nil {
		return fmt.Errorf("connect to Temporal at %s: %w", options.HostPort, err)
	}
	defer temporal.Close()
	described, err := temporal.DescribeTaskQueue(ctx, queue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
	if err != nil {
		return fmt.Errorf("ask who polls the task queue %s: %w", queue, err)
	}
	identity, ok := pollerOn(host, described.GetPollers(), time.Now())
	if !ok {
		return fmt.Errorf("no worker on %s polls the task queue %s", host, queue)
	}
	fmt.Fprintf(out, "%s polls the task queue %s\n", identity, queue)
	return nil
}

// pollerOn finds a poller that is on the host and has polled lately: those that are gone are listed for minutes. The SDK
// names each process@host@queue.
func pollerOn(host string, pollers []*taskqueue.PollerInfo, now time.Time) (identity string, ok bool) {
	for _, poller := range pollers {
		parts := strings.Split(poller.GetIdentity(), "@")
		if len(parts) > 1 && parts[1] == host && now.Sub(poller.GetLastAccessTime().AsTime()) < pollIsFresh {
			return poller.GetIdentity(), true
		}
	}
	return "", false
}
