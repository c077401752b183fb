package localstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
)

const (
	defaultNamespace = "default"

	temporalStarts = time.Minute
	temporalStops  = 10 * time.Second
	temporalPolls  = 50 * time.Millisecond
	requestAttempt = 5 * time.Second
)

// TemporalOptions says how to run a Temporal development server.
type TemporalOptions struct {
	// Dir is the folder whose subfolder "temporal" holds the log and, when Persistent, the
	// database. Empty means a temporary folder, deleted by Close.
	Dir string
	// Port of the gRPC frontend, and ports of the Web UI, the HTTP API and the metrics; 0 means a
	// free one each.
	Port, UIPort, HTTPPort, MetricsPort int
	// Headless runs no Web UI.
	Headless bool
	// Persistent keeps workflows in a file in Dir; otherwise they end with the server.
	Persistent bool
	// Unsynced leaves it to the system when a Persistent server's file reaches the disk. A server that is killed loses nothing
	// by it; a machine that loses power may lose it all.
	Unsynced bool
	// Namespace is made if it does not exist; empty means "default".
	Namespace string
	// SearchAttributes are the custom search attributes of the namespace, by name, each with its
	// type, such as "Keyword". They are added to a namespace that lacks them.
	SearchAttributes map[string]string
	// DynamicConfig values of the server are JSON, by key.
	DynamicConfig map[string]string
	// Server, when set, runs a full server in place of the development server. It has no Web UI,
	// and namespace and search attributes are left to whoever starts it: only Dir, the ports and Namespace above apply.
	Server *TemporalServer
	// Binary is the `temporal` program, or `temporal-server` where Server is set; empty means the one that EnsureTemporal
	// or EnsureTemporalServer finds or builds.
	Binary string
	// Progress, when set, is told about what takes long.
	Progress func(string)
}

// TemporalServer is what a full server is told besides its ports.
type TemporalServer struct {
	// Environment has the settings of the server's own configuration template, such as POSTGRES_SEEDS=127.0.0.1.
	Environment []string
	// DynamicConfig is the text of the dynamic configuration's file.
	DynamicConfig []byte
}

// Temporal is a server running on this machine. Its methods may be used by many
// goroutines.
type Temporal struct {
	place   *place
	options TemporalOptions
	ports   temporalPorts

	mu     sync.Mutex // held while the server starts or stops
	server *process
}

type temporalPorts struct {
	frontend, ui, http, metrics int
	inner                       map[string]int // of a full server, by the variable that tells it
}

// innerPorts are the variables for the ports that only a full server's own parts connect to.
var innerPorts = []string{
	"HISTORY_GRPC_PORT", "MATCHING_GRPC_PORT", "WORKER_GRPC_PORT",
	"FRONTEND_MEMBERSHIP_PORT", "HISTORY_MEMBERSHIP_PORT", "MATCHING_MEMBERSHIP_PORT", "WORKER_MEMBERSHIP_PORT",
}

// StartTemporal starts a Temporal server and waits until its namespace takes workflows with the
// search attributes, a full one until it answers. ctx bounds the start only.
//
// Errors tell that the folder is in use by another copy, that a port is taken, why the program is
// missing, or quote the last lines of the server's log.
func StartTemporal(ctx context.Context, options TemporalOptions) (*Temporal, error) {
	options.Progress = quiet(options.Progress)
	if err := wantFree(options.Port, options.UIPort, options.HTTPPort, options.MetricsPort); err != nil {
		return nil, err
	}
	if options.Namespace == "" {
		options.Namespace = defaultNamespace
	}
	for name, kind := range options.SearchAttributes {
		if _, err := enums.IndexedValueTypeFromString(kind); err != nil {
			return nil, fmt.Errorf("search attribute %s: unknown type %q: %w", name, kind, err)
		}
	}
	options.Headless = options.Headless || options.Server != nil
	if options.Binary == "" {
		var err error
		if options.Server == nil {
			options.Binary, err = EnsureTemporal(ctx, options.Progress)
		} else {
			options.Binary, _, err = EnsureTemporalServer(ctx, options.Progress)
		}
		if err != nil {
			return nil, err
		}
	}
	home, err := openPlace(options.Dir, "temporal", nil, options.Progress)
	if err != nil {
		return nil, err
	}
	t := &Temporal{place: home, options: options}
	if err := t.prepareAndStart(ctx); err != nil {
		return nil, errors.Join(err, home.close())
	}
	return t, nil
}

// prepareAndStart chooses the ports and starts the server.
func (t *Temporal) prepareAndStart(ctx context.Context) error {
	if err := os.WriteFile(t.logPath(), nil, 0o600); err != nil {
		return fmt.Errorf("empty the Temporal log: %w", err)
	}
	if t.options.Server != nil {
		if err := os.WriteFile(t.dynamicConfigPath(), t.options.Server.DynamicConfig, 0o600); err != nil {
			return fmt.Errorf("write Temporal's dynamic configuration: %w", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for attempt := 1; ; attempt++ {
		chosen, err := t.choosePorts()
		if err != nil {
			return err
		}
		err = t.start(ctx)
		if !errors.Is(err, errPortTaken) || !chosen || attempt == portAttempts {
			return err
		}
	}
}

// choosePorts fills in free ports for those that the options leave open, and tells whether there
// was any: another attempt may choose better.
func (t *Temporal) choosePorts() (chosen bool, err error) {
	choose := func(wanted int) int {
		if wanted != 0 || err != nil {
			return wanted
		}
		chosen = true
		var port int
		port, err = FreePort()
		return port
	}
	t.ports = temporalPorts{
		frontend: choose(t.options.Port),
		http:     choose(t.options.HTTPPort),
		metrics:  choose(t.options.MetricsPort),
	}
	if !t.options.Headless {
		t.ports.ui = choose(t.options.UIPort)
	}
	if t.options.Server != nil && err == nil && !t.reusePorts() {
		t.ports.inner = map[string]int{}
		for _, variable := range innerPorts {
			t.ports.inner[variable] = choose(0)
		}
		err = errors.Join(err, t.keepPorts())
	}
	return chosen, err
}

// reusePorts takes the inner ports that a full server had on this data, and tells whether it could. Under other ones it would
// look for itself under those for half a minute, since the databases list it there as a server that may still run.
func (t *Temporal) reusePorts() bool {
	text, err := os.ReadFile(t.portsPath())
	kept := map[string]int{}
	if err != nil || json.Unmarshal(text, &kept) != nil || len(kept) != len(innerPorts) {
		return false
	}
	t.ports.inner = kept
	return wantFree(slices.Collect(maps.Values(kept))...) == nil
}

func (t *Temporal) keepPorts() error {
	text, err := json.Marshal(t.ports.inner)
	if err == nil {
		err = os.WriteFile(t.portsPath(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep the ports of the Temporal server: %w", err)
	}
	return nil
}

// start runs the server on its ports and waits until it is ready. The caller holds mu.
func (t *Temporal) start(ctx context.Context) error {
	server, err := startProcess(program{
		path: t.options.Binary, args: t.arguments(), dir: t.place.path, env: t.environment(),
		logPath: t.logPath(), orphan: syscall.SIGTERM,
	})
	if err != nil {
		return err
	}
	t.server = server
	added, err := t.waitReady(ctx, server)
	if err == nil && added && t.options.Persistent {
		// The server goes on using what it has cached of the search attributes for a minute. A new one reads them.
		t.stop()
		return t.start(ctx)
	}
	if err == nil {
		return nil
	}
	server.kill()
	text, logErr := server.log()
	if logErr != nil {
		return errors.Join(err, logErr)
	}
	if strings.Contains(text, "address already in use") {
		return fmt.Errorf("%w: another program listens on one of the ports %+v; choose other ports (%w)", errPortTaken, t.ports, err)
	}
	return err
}

// environment of the server. A full one is told everything by it, so that nothing else of ours may be in it.
func (t *Temporal) environment() []string {
	if t.options.Server == nil {
		return append([]string{LargeHeap}, cleanEnv("TEMPORAL_")...)
	}
	environment := append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.place.path,
		"BIND_ON_IP=" + loopback, "DYNAMIC_CONFIG_FILE_PATH=" + t.dynamicConfigPath(),
		"FRONTEND_GRPC_PORT=" + strconv.Itoa(t.ports.frontend), "FRONTEND_HTTP_PORT=" + strconv.Itoa(t.ports.http),
		"PROMETHEUS_ENDPOINT=" + hostPort(t.ports.metrics),
	}, t.options.Server.Environment...)
	for variable, port := range t.ports.inner {
		environment = append(environment, variable+"="+strconv.Itoa(port))
	}
	return environment
}

func (t *Temporal) arguments() []string {
	if t.options.Server != nil {
		return []string{"start"}
	}
	arguments := []string{
		"server", "start-dev", "--log-level", "warn", "--color", "never",
		"--ip", loopback, "--port", strconv.Itoa(t.ports.frontend),
		"--http-port", strconv.Itoa(t.ports.http), "--metrics-port", strconv.Itoa(t.ports.metrics),
	}
	if t.options.Headless {
		arguments = append(arguments, "--headless")
	} else {
		arguments = append(arguments, "--ui-ip", loopback, "--ui-port", strconv.Itoa(t.ports.ui))
	}
	if t.options.Persistent {
		arguments = append(arguments, "--db-filename", filepath.Join(t.place.path, "temporal.db"))
		if t.options.Unsynced {
			arguments = append(arguments, "--sqlite-pragma", "synchronous=0")
		}
	}
	if t.options.Namespace != defaultNamespace {
		arguments = append(arguments, "--namespace", t.options.Namespace)
	}
	for _, name := range slices.Sorted(maps.Keys(t.options.SearchAttributes)) {
		arguments = append(arguments, "--search-attribute", name+"="+t.options.SearchAttributes[name])
	}
	// The development server reads the search attributes anew from its database for every use, which its own source says
	// is for tests of changing them and not for production. With its cache, a workflow that has some costs no more.
	arguments = append(arguments, "--dynamic-config-value", "system.forceSearchAttributesCacheRefreshOnRead=false")
	// One process has nothing to gain from four partitions of each task queue, and a task waits for seconds in one that none
	// of a few pollers has come to.
	arguments = append(arguments, "--dynamic-config-value", "matching.numTaskqueueReadPartitions=1",
		"--dynamic-config-value", "matching.numTaskqueueWritePartitions=1")
	// What a queue has done it forgets only then, and until then every new task costs a walk through it: at a hundred jobs a
	// second thirty seconds of it were a third of the server's time.
	for _, queue := range []string{"transfer", "timer", "visibility"} {
		arguments = append(arguments, "--dynamic-config-value", `history.`+queue+`ProcessorUpdateAckInterval="1s"`)
	}
	// The one shard has one such queue, which is read 20 times a second at most: each of a job's three hand-overs to a worker
	// would wait for the next turn, 50 ms. Servers with many shards spread their load over as many queues.
	arguments = append(arguments, "--dynamic-config-value", "history.transferProcessorMaxPollRPS=100")
	for _, key := range slices.Sorted(maps.Keys(t.options.DynamicConfig)) {
		arguments = append(arguments, "--dynamic-config-value", key+"="+t.options.DynamicConfig[key])
	}
	return arguments
}

// waitReady waits until the namespace answers and has its search attributes, and tells whether it lacked some at first.
func (t *Temporal) waitReady(ctx context.Context, server *process) (added bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, temporalStarts)
	defer cancel()
	connection, err := client.NewLazyClient(client.Options{
		HostPort:  t.Address(),
		Namespace: t.options.Namespace,
		Logger:    log.NewStructuredLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
	})
	if err != nil {
		return false, fmt.Errorf("make a Temporal client: %w", err)
	}
	defer connection.Close()
	for {
		err := t.checkReady(ctx, connection)
		if err == nil && server.running() {
			return added, nil
		}
		added = added || errors.Is(err, errAttributesAdded)
		if !server.running() {
			return added, server.failure("Temporal did not start")
		}
		if pauseErr := pause(ctx, temporalPolls); pauseErr != nil {
			return added, errors.Join(server.failure("Temporal was not ready in time"), pauseErr, err)
		}
	}
}

// checkReady asks for the health, the namespace and the search attributes, adding those that a
// namespace made by an earlier start lacks: the server only adds them to a new namespace.
func (t *Temporal) checkReady(ctx context.Context, connection client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, requestAttempt)
	defer cancel()
	if _, err := connection.CheckHealth(ctx, nil); err != nil {
		return fmt.Errorf("check the health of Temporal: %w", err)
	}
	if t.options.Server != nil {
		return nil
	}
	// Listing needs the namespace to be known to the frontend and the visibility store to answer.
	_, err := connection.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: t.options.Namespace, PageSize: 1})
	if err != nil {
		return fmt.Errorf("list the workflows of namespace %q: %w", t.options.Namespace, err)
	}
	operator := connection.OperatorService()
	have, err := operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: t.options.Namespace})
	if err != nil {
		return fmt.Errorf("list the search attributes of namespace %q: %w", t.options.Namespace, err)
	}
	lacking := map[string]enums.IndexedValueType{}
	for name, kind := range t.options.SearchAttributes {
		wanted, err := enums.IndexedValueTypeFromString(kind)
		if err != nil {
			return fmt.Errorf("search attribute %s: %w", name, err)
		}
		if have.GetCustomAttributes()[name] != wanted {
			lacking[name] = wanted
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	_, err = operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: t.options.Namespace, SearchAttributes: lacking})
	if err != nil {
		return fmt.Errorf("add search attributes to namespace %q: %w", t.options.Namespace, err)
	}
	return fmt.Errorf("namespace %q: %w", t.options.Namespace, errAttributesAdded)
}

// errAttributesAdded tells that the namespace lacked search attributes, which it now gets.
var errAttributesAdded = errors.New("it does not show its new search attributes yet")

// Address gives host and port of the gRPC frontend, which stay the same over restarts.
func (t *Temporal) Address() string { return hostPort(t.ports.frontend) }

// Namespace gives the namespace that was made ready, or that whoever started a full server makes.
func (t *Temporal) Namespace() string { return t.options.Namespace }

// HTTPURL gives the address of the HTTP API.
func (t *Temporal) HTTPURL() string { return "http://" + hostPort(t.ports.http) }

// UIURL gives the address of the Web UI, or nothing when the server is headless.
func (t *Temporal) UIURL() string {
	if t.options.Headless {
		return ""
	}
	return "http://" + hostPort(t.ports.ui)
}

// Dir gives the folder that holds the log and the database.
func (t *Temporal) Dir() string { return t.place.path }

// Exited gives a channel that is closed when the server that runs now has ended, for whatever
// reason. Restart starts another server with another channel.
func (t *Temporal) Exited() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.server.exited
}

// Wait blocks until the server that runs now has ended, and tells how: nil after Stop.
func (t *Temporal) Wait() error {
	t.mu.Lock()
	server := t.server
	t.mu.Unlock()
	<-server.exited
	return server.ended
}

// Stop ends the server in an orderly way, and by force when it does not comply. It does nothing
// when the server has ended.
func (t *Temporal) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
}

func (t *Temporal) stop() {
	t.server.signal(syscall.SIGTERM)
	if !t.server.endsWithin(temporalStops) {
		t.server.kill()
	}
}

// Kill ends the server at once, as a crash does.
func (t *Temporal) Kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.server.kill()
}

// Restart stops the server if it runs and starts it again on the same ports and data; without
// Persistent every workflow is gone. ctx bounds the start. When it fails the server does not run,
// and Restart may be tried again.
func (t *Temporal) Restart(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
	return t.start(ctx)
}

// Close stops the server and gives its folder up, so that another copy may use the data. Data in a
// temporary folder is deleted. The Temporal must not be used after it.
func (t *Temporal) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stop()
	return t.place.close()
}

func (t *Temporal) logPath() string { return filepath.Join(t.place.path, "temporal.log") }

func (t *Temporal) portsPath() string { return filepath.Join(t.place.path, "ports.json") }

func (t *Temporal) dynamicConfigPath() string {
	return filepath.Join(t.place.path, "dynamicconfig.yaml")
}
