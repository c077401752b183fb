package devstack

import (
	"context"
	"fmt"
	"net"
	"os"
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
func dial(address, namespace string) (client.Client, error) {
	connection, err := client.NewLazyClient(client.Options{
		HostPort: address, Namespace: namespace, Logger: config.SDKLogger(zap.NewNop()),
	})
	if err != nil {
		return nil, fmt.Errorf("make a Temporal client: %w", err)
	}
	return connection, nil
}

// startWorker starts Reclaim's worker and waits until it polls for workflows.
func (s *Stack) startWorker(ctx context.Context) (where string, err error) {
	if s.worker, err = s.startChild("Reclaim's worker", "worker.log", []string{
		"RECLAIM_CHANNELS=" + filepath.Join(s.home, "channels.toml"), "RECLAIM_LISTEN=" + s.notices,
		SimulatorAPIKey + "=" + simulatorKey, SimulatorWebhookSecret + "=" + simulatorSecret,
	}, "run"); err != nil {
		return "", err
	}
	return s.waitPolling(ctx, s.worker, contract.TaskQueue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
}

// Channel and ImpatientChannel are the names of the simulated payment channel in orders: under the second, a person is
// asked soon about a refund that is not confirmed.
const (
	Channel          = "simulator"
	ImpatientChannel = "simulator-impatient"

	impatience       = "5s"
	secondPersonFrom = 50000
)

// Channels says in words how the channels of the stack differ, and what is special about them.
func Channels() []string {
	return []string{
		Channel + ": its notices come in; a person is asked after days",
		fmt.Sprintf("%s: no notices; a person is asked %s after a refund was sent that is not confirmed", ImpatientChannel, impatience),
		fmt.Sprintf("from %d on, a decision needs a second person; the simulator forgets its payments when it stops", secondPersonFrom),
	}
}

// The simulator's key and secret are read from these variables. On this stack they protect nothing and are handed on as
// real ones are.
const (
	SimulatorAPIKey, simulatorKey           = "RECLAIM_SIMULATOR_API_KEY", "sk_test_simulator"      //nolint:gosec // see above
	SimulatorWebhookSecret, simulatorSecret = "RECLAIM_SIMULATOR_WEBHOOK_SECRET", "whsec_simulator" //nolint:gosec // see above
)

// startSimulator starts the payment channel, whose notices the worker will take, and tells the worker of it.
func (s *Stack) startSimulator(ctx context.Context) (string, error) {
	for _, address := range []*string{&s.simulatorAddress, &s.notices} {
		port, err := localstack.FreePort()
		if err != nil {
			return "", err
		}
		*address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	channels := fmt.Sprintf(`[[channel]]
name = %q
kind = "simulator"
api_key_env = %q
webhook_secret_env = %q
base_url = %q
second_person_from = %d

[[channel]]
name = %q
kind = "simulator"
api_key_env = %q
webhook_secret_env = %q
base_url = %q
give_up = %q
second_person_from = %d
`, Channel, SimulatorAPIKey, SimulatorWebhookSecret, s.SimulatorURL(), secondPersonFrom,
		ImpatientChannel, SimulatorAPIKey, SimulatorWebhookSecret, s.SimulatorURL(), impatience, secondPersonFrom)
	if err := os.WriteFile(filepath.Join(s.home, "channels.toml"), []byte(channels), 0o600); err != nil {
		return "", fmt.Errorf("write the file with the channels: %w", err)
	}
	var err error
	s.simulator, err = s.startChild("the simulated payment channel", "simulator.log", []string{
		SimulatorAPIKey + "=" + simulatorKey, SimulatorWebhookSecret + "=" + simulatorSecret,
	}, "simulator",
		"--listen", s.simulatorAddress, "--notices", "http://"+s.notices+"/v1/channels/"+Channel+"/notices")
	if err != nil {
		return "", err
	}
	return "simulated at " + s.SimulatorURL(), s.waitListening(ctx, s.simulator, s.simulatorAddress)
}

// waitListening waits until the process takes connections.
func (s *Stack) waitListening(ctx context.Context, child *localstack.Child, address string) error {
	ctx, cancel := context.WithTimeout(ctx, pollsWithin)
	defer cancel()
	for {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-child.Exited():
			return child.Failure("did not start")
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", child.Failure("does not listen on "+address), ctx.Err())
		case <-time.After(pollsEvery):
		}
	}
}

// startRender starts the example work's worker and waits until it polls for activities.
func (s *Stack) startRender(ctx context.Context) (where string, err error) {
	s.render, err = s.startChild("the render worker", "render.log", nil, "render", "--task-queue", WorkQueue, "--results", s.Results())
	if err != nil {
		return "", err
	}
	return s.waitPolling(ctx, s.render, WorkQueue, enumspb.TASK_QUEUE_TYPE_ACTIVITY)
}

// startGateway starts the HTTP door and waits until it listens.
func (s *Stack) startGateway(ctx context.Context) (where string, err error) {
	port := s.options.HTTPPort
	if port == 0 {
		if port, err = localstack.FreePort(); err != nil {
			return "", err
		}
	}
	s.gatewayAddress = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	s.gateway, err = s.startChild("the HTTP door", "gateway.log", []string{
		"RECLAIM_LISTEN=" + s.gatewayAddress, "RECLAIM_NOTICES_URL=http://" + s.notices,
		// It streams whole statements in little memory, which is measured.
		"GOGC=100",
	}, "gateway")
	if err != nil {
		return "", err
	}
	return "answers at " + s.GatewayURL(), s.waitListening(ctx, s.gateway, s.gatewayAddress)
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

func (s *Stack) startChild(name, log string, own []string, arguments ...string) (*localstack.Child, error) {
	return localstack.StartChild(name, localstack.ChildOptions{
		Path: s.options.Program, Args: arguments, Env: s.environment(own...), Log: filepath.Join(s.home, log),
	})
}

// environment is what a program of the stack is told. Settings for the user's own servers, in variables or in the Temporal
// CLI's file, are not for it.
func (s *Stack) environment(own ...string) []string {
	inherited := append([]string{localstack.LargeHeap}, localstack.CleanEnv("DATABASE_URL=", "RECLAIM_", "TEMPORAL_", "PG", "SQL_")...)
	return append(append(inherited,
		"DATABASE_URL="+s.appURL, "TEMPORAL_ADDRESS="+s.temporal.Address(), "TEMPORAL_NAMESPACE="+s.temporal.Namespace(),
		"TEMPORAL_CONFIG_FILE=/dev/null"), own...)
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
