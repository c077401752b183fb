package devstack

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/worker/config"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// dial makes a client that says in its errors what it would otherwise log.
func dial(address string) (client.Client, error) {
	connection, err := client.NewLazyClient(client.Options{HostPort: address, Logger: config.SDKLogger(zap.NewNop())})
	if err != nil {
		return nil, fmt.Errorf("make a Temporal client: %w", err)
	}
	return connection, nil
}

// startWorker starts Reclaim's worker and waits until it polls for workflows.
func (s *Stack) startWorker(ctx context.Context) (where string, err error) {
	if s.worker, err = s.startChild("Reclaim's worker", "worker.log", "run"); err != nil {
		return "", err
	}
	return s.waitPolling(ctx, s.worker, contract.TaskQueue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
}

// startRender starts the example work's worker and waits until it polls for activities.
func (s *Stack) startRender(ctx context.Context) (where string, err error) {
	s.render, err = s.startChild("the render worker", "render.log", "render", "--task-queue", WorkQueue, "--results", s.Results())
	if err != nil {
		return "", err
	}
	return s.waitPolling(ctx, s.render, WorkQueue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
}

// KillWorker ends Reclaim's worker with SIGKILL, and RestartWorker starts a new one.
func (s *Stack) KillWorker() { s.worker.Kill() }

// RestartWorker starts a new worker process and waits until it polls.
func (s *Stack) RestartWorker(ctx context.Context) error {
	_, err := s.startWorker(ctx)
	return err
}

// KillRender ends the example work's worker with SIGKILL, and RestartRender starts a new one.
func (s *Stack) KillRender() { s.render.Kill() }

// RestartRender starts a new process of the example work and waits until it polls.
func (s *Stack) RestartRender(ctx context.Context) error {
	_, err := s.startRender(ctx)
	return err
}

func (s *Stack) startChild(name, log string, arguments ...string) (*localstack.Child, error) {
	// Settings for the user's own servers, in variables or in the Temporal CLI's file, are not for these.
	environment := append(localstack.CleanEnv("DATABASE_URL=", "RECLAIM_", "TEMPORAL_", "PG"),
		"DATABASE_URL="+s.appURL, "TEMPORAL_ADDRESS="+s.temporal.Address(), "TEMPORAL_NAMESPACE="+s.temporal.Namespace(),
		"TEMPORAL_CONFIG_FILE=/dev/null")
	return localstack.StartChild(name, localstack.ChildOptions{
		Path: s.options.Program, Args: arguments, Env: environment, Log: filepath.Join(s.home, log),
	})
}

// waitPolling waits until Temporal sees this very process poll the queue: pollers that are gone are listed for minutes.
func (s *Stack) waitPolling(ctx context.Context, child *localstack.Child, queue string, kind enumspb.TaskQueueType) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pollsWithin)
	defer cancel()
	mark := strconv.Itoa(child.PID()) + "@"
	for {
		// A look that fails is repeated: the time is bounded.
		described, err := s.client.DescribeTaskQueue(ctx, queue, kind)
		if err == nil {
			for _, poller := range described.GetPollers() {
				if strings.HasPrefix(poller.GetIdentity(), mark) {
					return fmt.Sprintf("polls the task queue %s as process %d", queue, child.PID()), nil
				}
			}
		}
		select {
		case <-child.Exited():
			return "", child.Failure("did not start")
		case <-ctx.Done():
			return "", fmt.Errorf("%w (%w)", child.Failure("does not poll the task queue "+queue), ctx.Err())
		case <-time.After(pollsEvery):
		}
	}
}
