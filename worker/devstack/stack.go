// Package devstack runs all of Reclaim on this machine without Docker: Postgres, Temporal with its Web UI, Reclaim's
// worker, the worker of the example work, the HTTP door, and a simulated payment channel.
package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/worker/webui"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// WorkQueue is the task queue of the example work.
const WorkQueue = "gpu"

const (
	// workersStop is how long the workers may finish what they do: with the servers' own limits, everything is stopped
	// within the 30 s that process managers usually give.
	workersStop = 8 * time.Second
	pollsEvery  = 50 * time.Millisecond
	// pollsWithin is how long a worker may take until it polls.
	pollsWithin = 30 * time.Second
)

// Server is the kind of Temporal server that the stack runs.
type Server string

const (
	// DevServer is Temporal's development server, with its Web UI.
	DevServer Server = "dev"
	// PostgresServer is the full server, which keeps everything in the stack's Postgres; it, the databases and the
	// namespace are set up by the scripts that docker-compose.yml runs. It has no Web UI.
	PostgresServer Server = "postgres"
)

// Options say how to run the stack.
type Options struct {
	// Server is the kind of Temporal server; empty means DevServer.
	Server Server
	// Program is the worker's executable: the stack runs it with "run", "render", "gateway" and "simulator".
	Program string
	// Dir keeps all data, so that a later start finds it; empty means temporary folders, deleted by Close.
	Dir string
	// Ports of Postgres, Temporal, its Web UI and the HTTP door; 0 means a free one each.
	PostgresPort, TemporalPort, UIPort, HTTPPort int
	// Progress is told, a line at a time, what is ready and what takes long.
	Progress func(string)
}

// Stack is everything that runs. Its methods must not be used concurrently.
type Stack struct {
	options  Options
	postgres *localstack.Postgres
	temporal *localstack.Temporal
	client   client.Client
	home     string

	ownerURL, appURL, temporalPassword string
	worker, render, simulator, gateway *localstack.Child
	// simulatorAddress is where the simulated payment channel listens, notices where the worker takes what it reports.
	simulatorAddress, notices, gatewayAddress string
}

// Start starts everything and waits until both workers poll. ctx bounds the start only. When it fails, whatever had
// been started is stopped.
func Start(ctx context.Context, options Options) (_ *Stack, err error) {
	if options.Server == "" {
		options.Server = DevServer
	}
	s := &Stack{options: options}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	type part struct {
		name  string
		start func(context.Context) (string, error)
	}
	parts := []part{{"Postgres", s.startPostgres}, {"database", s.prepareDatabase}, {"Temporal", s.startTemporal}}
	if options.Server == PostgresServer {
		parts = append(parts, part{"namespace", s.prepareNamespace})
	}
	parts = append(parts, part{"channel", s.startSimulator}, part{"worker", s.startWorker}, part{"render", s.startRender},
		part{"HTTP", s.startGateway})
	for _, part := range parts {
		began := time.Now()
		where, err := part.start(ctx)
		if err != nil {
			return nil, err
		}
		options.Progress(fmt.Sprintf("%-9s ready in %.1f s: %s", part.name, time.Since(began).Seconds(), where))
	}
	return s, nil
}

func (s *Stack) startPostgres(ctx context.Context) (string, error) {
	options := localstack.PostgresOptions{
		Dir: s.options.Dir, Port: s.options.PostgresPort, Durable: s.options.Dir != "", Progress: s.options.Progress,
	}
	if s.options.Server == PostgresServer {
		options.MaxConnections = serverSessions
	}
	var err error
	if s.postgres, err = localstack.StartPostgres(ctx, options); err != nil {
		return "", err
	}
	return "listens on " + s.postgres.Address(), nil
}

func (s *Stack) startTemporal(ctx context.Context) (string, error) {
	options := localstack.TemporalOptions{
		Dir: s.options.Dir, Port: s.options.TemporalPort, UIPort: s.options.UIPort, Progress: s.options.Progress,
	}
	var err error
	if s.options.Server == PostgresServer {
		err = s.keepInPostgres(ctx, &options)
	} else {
		options.Persistent, options.SearchAttributes = s.options.Dir != "", map[string]string{}
		for _, name := range contract.SearchAttributes() {
			options.SearchAttributes[name] = "Keyword"
		}
	}
	if err != nil {
		return "", err
	}
	if s.temporal, err = localstack.StartTemporal(ctx, options); err != nil {
		return "", err
	}
	// The folder that holds Temporal's is the chosen one, or a temporary one that goes when Temporal is closed.
	s.home = filepath.Dir(s.temporal.Dir())
	if s.client, err = dial(s.temporal.Address(), s.temporal.Namespace()); err != nil {
		return "", err
	}
	where := "listens on " + s.temporal.Address()
	if s.temporal.UIURL() != "" {
		where += ", Web UI on " + s.temporal.UIURL()
	}
	return where, nil
}

// Wait blocks until ctx ends, which is no error, or a part of the stack has ended by itself.
func (s *Stack) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.postgres.Exited():
	case <-s.temporal.Exited():
	case <-s.worker.Exited():
	case <-s.render.Exited():
	case <-s.simulator.Exited():
	case <-s.gateway.Exited():
	}
	return s.Trouble()
}

// Trouble describes every part that has ended by itself, and is nil while all of them run.
func (s *Stack) Trouble() error {
	var all []error
	ended := func(exited <-chan struct{}, failure func() error) {
		select {
		case <-exited:
			all = append(all, failure())
		default:
		}
	}
	ended(s.postgres.Exited(), func() error {
		return fmt.Errorf("the Postgres server has ended by itself; its log is in %s", s.postgres.Dir())
	})
	ended(s.temporal.Exited(), func() error {
		return fmt.Errorf("the Temporal server has ended by itself; its log is in %s", s.temporal.Dir())
	})
	for _, child := range []*localstack.Child{s.worker, s.render, s.simulator, s.gateway} {
		ended(child.Exited(), func() error { return child.Failure("has ended by itself") })
	}
	return errors.Join(all...)
}

// Close stops the workers, then Temporal, then Postgres, each by force when it does not comply, and deletes temporary
// data.
func (s *Stack) Close() error {
	var workers sync.WaitGroup
	for _, child := range []*localstack.Child{s.worker, s.render, s.simulator, s.gateway} {
		if child != nil {
			workers.Go(func() { child.Stop(workersStop) })
		}
	}
	workers.Wait()
	var all []error
	if s.client != nil {
		s.client.Close()
	}
	if s.temporal != nil {
		all = append(all, s.temporal.Close())
	}
	if s.postgres != nil {
		all = append(all, s.postgres.Close())
	}
	return errors.Join(all...)
}

// Temporal gives the stack's own client, which Close closes.
func (s *Stack) Temporal() client.Client { return s.client }

// TemporalAddress gives host and port of Temporal's frontend.
func (s *Stack) TemporalAddress() string { return s.temporal.Address() }

// AppURL gives the database URL of the application, and OwnerURL that of the owner, for migrations.
func (s *Stack) AppURL() string { return s.appURL }

// OwnerURL gives the database URL of the owner.
func (s *Stack) OwnerURL() string { return s.ownerURL }

// TemporalHTTP gives the address of Temporal's HTTP API.
func (s *Stack) TemporalHTTP() string { return s.temporal.HTTPURL() }

// UI gives the Web UI, without an address where there is none.
func (s *Stack) UI() webui.UI {
	return webui.UI{Address: s.temporal.UIURL(), Namespace: s.temporal.Namespace()}
}

// Views gives the Web UI's views as of now, without those that this server cannot answer.
func (s *Stack) Views(ctx context.Context) ([]webui.View, error) {
	known, err := s.client.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: s.temporal.Namespace()})
	if err != nil {
		return nil, fmt.Errorf("read the server's search attributes: %w", err)
	}
	return slices.DeleteFunc(webui.Views(time.Now()), func(v webui.View) bool {
		_, has := known.GetSystemAttributes()[v.Needs]
		return v.Needs != "" && !has
	}), nil
}

// Home gives the folder of the logs, the pictures and the file env.
func (s *Stack) Home() string { return s.home }

// Results gives the folder where the example work keeps its pictures.
func (s *Stack) Results() string { return filepath.Join(s.home, "results") }

// SimulatorURL gives the address of the simulated payment channel, which orders name as Channel.
func (s *Stack) SimulatorURL() string { return "http://" + s.simulatorAddress }

// GatewayURL gives the address of the HTTP door.
func (s *Stack) GatewayURL() string { return "http://" + s.gatewayAddress }

// Environment gives what another program needs to use the stack, as lines for a shell.
func (s *Stack) Environment() string {
	return fmt.Sprintf(`export DATABASE_URL='%s'
export RECLAIM_MIGRATE_URL='%s'
export TEMPORAL_ADDRESS=%s TEMPORAL_NAMESPACE=%s
export RECLAIM_TENANT=acme RECLAIM_ACTOR=me
export RECLAIM_SIMULATOR=%s
export RECLAIM_URL=%s
`, s.appURL, s.ownerURL, s.temporal.Address(), s.temporal.Namespace(), s.SimulatorURL(), s.GatewayURL())
}

// WriteEnvironment writes the lines to a file that only this user may read, and gives its path.
func (s *Stack) WriteEnvironment() (string, error) {
	path := filepath.Join(s.home, "env")
	// A file that exists would keep its permissions.
	if err := os.RemoveAll(path); err != nil {
		return "", fmt.Errorf("replace the file with the environment: %w", err)
	}
	if err := os.WriteFile(path, []byte(s.Environment()), 0o600); err != nil {
		return "", fmt.Errorf("write the file with the environment: %w", err)
	}
	return path, nil
}

// Erase deletes the data that stacks have kept in dir, and nothing else in it. It refuses while one of them runs.
func Erase(dir string) error {
	if err := localstack.Erase(dir); err != nil {
		return err
	}
	for _, name := range []string{"results", "worker.log", "render.log", "simulator.log", "gateway.log", "channels.toml", "env"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("delete old data: %w", err)
		}
	}
	return nil
}
