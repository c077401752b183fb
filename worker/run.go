package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/schema"
	starter "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/starter/metrics"
	"github.com/reclaimhq/reclaim/worker/config"
	"github.com/reclaimhq/reclaim/worker/meter"
	"github.com/reclaimhq/reclaim/worker/notices"
	"github.com/reclaimhq/reclaim/worker/relay"
	"github.com/reclaimhq/reclaim/worker/runs"
	"github.com/reclaimhq/reclaim/worker/sealer"
	"github.com/reclaimhq/reclaim/workflows"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// stopTimeout is how long a stopping worker waits for the calls in flight: longer than any call's attempt and, with the
// 10 s that the SDK then gives an absent Temporal, shorter than the 30 s that process managers usually give.
const stopTimeout = 12 * time.Second

// channelCalls bounds how many refunds are sent or looked up at once: with answers of 200 ms, a thousand in a second.
const channelCalls = 200

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run workflows and activities until SIGTERM",
		Long: "Run workflows and activities, and start what accepted refunds and enqueued jobs have left in the outbox, until " +
			"SIGTERM. Reads DATABASE_URL, RECLAIM_TASK_QUEUE, RECLAIM_CONNECTIONS, RECLAIM_CHANNELS (a TOML file of payment " +
			"channels), RECLAIM_LISTEN (where their notices are taken and GET /metrics answers: for inside networks only, but for " +
			"/v1/channels/), RECLAIM_AUDIT_EVERY (a duration such as 1h: audit all tenants so often and show in the metrics what was " +
			"found; set it for one worker only), RECLAIM_AUDIT_WHOLE_EVERY (after how long such an audit proves the whole ledger again; " +
			"default 24h), RECLAIM_SEAL_EVERY (how often to seal new ledger entries; default 5s, 0: never), RECLAIM_CODEC_KEYS (a file of keys, to encrypt what Temporal stores) and TEMPORAL_… from the environment.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, err := config.Load(os.Getenv)
			if err != nil {
				return environmentError(err)
			}
			logger := config.NewLogger()
			defer func() { _ = logger.Sync() }()
			return run(cmd.Context(), settings, logger)
		},
	}
}

// run polls until ctx ends. Where Postgres or Temporal is away at the start it says so and keeps trying.
func run(ctx context.Context, settings config.Config, logger *zap.Logger) error {
	store, err := schema.Open(ctx, settings.DatabaseURL, schema.Options{
		MaxConns: int32(settings.Connections), Name: "reclaim-worker",
	})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := reach(ctx, logger, "Postgres", func(ctx context.Context) error {
		return schema.CheckVersion(ctx, store)
	}); err != nil {
		return ignoreStop(err)
	}
	options := settings.Temporal
	options.Logger = config.SDKLogger(logger)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		meter.NewReadings(store, meter.ReadEvery, logger))
	guards, err := meter.NewGuards(registry)
	if err != nil {
		return err
	}
	channels, err := meter.NewChannels(config.ChannelSet(settings.Channels), registry)
	if err != nil {
		return err
	}
	jobs := activities.NewJobs(store)
	refunds := activities.NewRefunds(store, channels, activities.WithObserver(guards.Observed))
	var types meter.Types
	workflows.Register(&types)
	workflows.RegisterActivities(&types, jobs, refunds)
	workflows.RegisterReconciler(&types, nil)
	if options.MetricsHandler, err = metrics.SDK(registry, types.Names...); err != nil {
		return err
	}
	var temporal client.Client
	if err := reach(ctx, logger, "Temporal", func(ctx context.Context) (err error) {
		temporal, err = client.DialContext(ctx, options)
		return err
	}); err != nil {
		return ignoreStop(err)
	}
	defer temporal.Close()
	if err := reach(ctx, logger, "Temporal", func(ctx context.Context) error {
		return checkSearchAttributes(ctx, temporal, options.Namespace)
	}); err != nil {
		return ignoreStop(err)
	}
	found, err := meter.NewFindings(registry)
	if err != nil {
		return err
	}
	ledger := starter.New(temporal, store, settings.TaskQueue)
	reconciler := activities.NewReconciler(store, channels, refunds,
		runs.New(ledger, temporal, options.Namespace), runs.Ledger{Client: ledger}, found)
	outbox, err := relay.New(store, temporal, settings.TaskQueue, registry, logger)
	if err != nil {
		return err
	}
	door := http.NewServeMux()
	door.Handle("/v1/channels/", notices.Handler(channels.Notices(refunds), notices.TellRun(ledger, temporal), logger))
	door.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	closeDoor, err := openDoor(ctx, settings.Listen, door, logger)
	if err != nil {
		return err
	}
	defer closeDoor()
	worker := newWorker(temporal, settings, guards)
	workflows.Register(worker)
	workflows.RegisterActivities(worker, jobs, refunds)
	workflows.RegisterReconciler(worker, reconciler)
	if err := worker.Start(); err != nil {
		return fmt.Errorf("start polling the task queue %s: %w", settings.TaskQueue, err)
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { outbox.Run(ctx) })
	if settings.AuditEvery > 0 {
		beside.Go(func() {
			auditAlways(ctx, ledger, settings.AuditEvery, settings.AuditWholeEvery, metrics.NewAudit(registry), logger)
		})
	}
	if settings.SealEvery > 0 {
		beside.Go(func() { sealer.New(store, logger).Run(ctx, settings.SealEvery) })
	}
	logger.Info("polling", zap.String("taskQueue", settings.TaskQueue), zap.String("temporal", options.HostPort))
	<-ctx.Done()
	logger.Info("stopping: money calls in flight are finished first", zap.Duration("atMost", stopTimeout))
	worker.Stop()
	return nil
}

// openDoor serves, where an address is given, what the worker is asked from outside: payment channels report by it, and its
// metrics are read.
func openDoor(ctx context.Context, address string, door http.Handler, logger *zap.Logger) (closeDoor func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on RECLAIM_LISTEN: %w", err)
	}
	server := &http.Server{
		Handler: door, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	go func() {
		if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			logger.Error("neither channel notices nor metrics are served any longer", zap.Error(err))
		}
	}()
	logger.Info("taking channel notices and serving metrics", zap.String("address", listener.Addr().String()))
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		// Requests that last longer are cut off; their channel sends them again.
		_ = server.Shutdown(ctx)
	}, nil
}

func newWorker(temporal client.Client, settings config.Config, guards interceptor.WorkerInterceptor) sdkworker.Worker {
	var deployment sdkworker.DeploymentOptions
	if settings.BuildID != "" {
		deployment = sdkworker.DeploymentOptions{
			UseVersioning: true,
			Version:       sdkworker.WorkerDeploymentVersion{DeploymentName: settings.DeploymentName, BuildID: settings.BuildID},
			// A dead letter may wait for months: runs move on to the current version, and the ladder keeps what they began with.
			DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
		}
	}
	return sdkworker.New(temporal, settings.TaskQueue, sdkworker.Options{
		DeploymentOptions: deployment,
		WorkerStopTimeout: stopTimeout,
		Interceptors:      []interceptor.WorkerInterceptor{guards},
		// A money call holds a connection: more of them at once would only wait in the pool with their time running.
		MaxConcurrentLocalActivityExecutionSize: settings.Connections,
		// An activity that asks a payment channel waits for it without a connection most of its time.
		MaxConcurrentActivityExecutionSize: channelCalls,
		WorkflowTaskPollerBehavior:         scaling(),
		ActivityTaskPollerBehavior:         scaling(),
	})
}

// leastPollers keeps one waiting at each of the four partitions that a task queue has by default: a task lies for seconds in a
// partition where none is. Two for each, since one that was given a task is away for a moment.
const leastPollers = 8

func scaling() sdkworker.PollerBehavior {
	return sdkworker.NewPollerBehaviorAutoscaling(sdkworker.PollerBehaviorAutoscalingOptions{
		InitialNumberOfPollers: leastPollers, MinimumNumberOfPollers: leastPollers,
	})
}

// errFinal marks what waiting cannot mend.
var errFinal = errors.New("not tried again")

// reach tries until it succeeds, saying each time what is missing. It gives up only when ctx ends or the error is final.
func reach(ctx context.Context, logger *zap.Logger, what string, try func(context.Context) error) error {
	for wait := 500 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := try(attempt)
		cancel()
		if err == nil || errors.Is(err, errFinal) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		logger.Warn(what+" cannot be used yet; trying again", zap.Error(err), zap.Duration("in", wait))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// ignoreStop turns being asked to stop into a clean end.
func ignoreStop(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// namespaceError says where a name comes from that no namespace has. It is final: sooner is the name wrong than the
// namespace about to be made.
func namespaceError(err error) error {
	if missing, ok := errors.AsType[*serviceerror.NamespaceNotFound](err); ok {
		return fmt.Errorf("the Temporal server has no namespace %q: set TEMPORAL_NAMESPACE (or namespace in the profile that "+
			"TEMPORAL_PROFILE names) to one that exists, or create it: %w", missing.Namespace, errFinal)
	}
	return err
}

// checkSearchAttributes fails, finally, where the namespace lacks a search attribute: a workflow that sets an unknown
// one is stuck in its task after it has charged. Where the server does not take a new one yet it fails as well, to be tried again.
func checkSearchAttributes(ctx context.Context, temporal client.Client, namespace string) error {
	known, err := temporal.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return namespaceError(fmt.Errorf("list the search attributes of namespace %s: %w", namespace, err))
	}
	for _, name := range contract.SearchAttributes() {
		kind, ok := known.GetCustomAttributes()[name]
		if !ok {
			return fmt.Errorf("namespace %s lacks the search attribute %s: run `worker migrate`, which registers it: %w",
				namespace, name, errFinal)
		}
		if kind != enumspb.INDEXED_VALUE_TYPE_KEYWORD {
			return fmt.Errorf("the search attribute %s of namespace %s has the type %s, but must be Keyword: %w",
				name, namespace, kind, errFinal)
		}
	}
	return tryQuery(ctx, temporal, namespace)
}

// tryQuery asks for workflows by every search attribute. The server lists an attribute before it takes it: each of its parts
// goes on for a while with what it knows of the namespace.
func tryQuery(ctx context.Context, temporal client.Client, namespace string) error {
	var conditions []string
	for _, name := range contract.SearchAttributes() {
		conditions = append(conditions, name+` = "~"`) // no workflow has it
	}
	_, err := temporal.CountWorkflow(ctx, &workflowservice.CountWorkflowExecutionsRequest{
		Namespace: namespace, Query: strings.Join(conditions, " AND "),
	})
	if err != nil {
		return fmt.Errorf("look for workflows of namespace %s by the search attributes: %w", namespace, err)
	}
	return nil
}

// namespaceRefresh is how often each part of a server reads the namespaces anew (system.namespaceCacheRefreshInterval).
const namespaceRefresh = 2 * time.Second

// awaitSearchAttributes waits until the server takes new search attributes, in every part.
func awaitSearchAttributes(ctx context.Context, temporal client.Client, namespace string) error {
	wait := func(pause time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			return nil
		}
	}
	for {
		err := tryQuery(ctx, temporal, namespace)
		if err == nil {
			// That was the part that was asked. Those that run workflows look a moment later at most.
			return wait(namespaceRefresh)
		}
		if stopped := wait(100 * time.Millisecond); stopped != nil {
			return fmt.Errorf("the server does not take the new search attributes: %w (%w)", err, stopped)
		}
	}
}

// registerSearchAttributes adds those that the namespace lacks, and then waits until workflows can set them.
func registerSearchAttributes(ctx context.Context, temporal client.Client, namespace string) error {
	wanted := map[string]enumspb.IndexedValueType{}
	for _, name := range contract.SearchAttributes() {
		wanted[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	}
	known, err := temporal.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return namespaceError(fmt.Errorf("list the search attributes of namespace %s: %w", namespace, err))
	}
	for name := range known.GetCustomAttributes() {
		delete(wanted, name)
	}
	if len(wanted) == 0 {
		return nil
	}
	_, err = temporal.OperatorService().AddSearchAttributes(ctx,
		&operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: wanted})
	if _, taken := errors.AsType[*serviceerror.AlreadyExists](err); err != nil && !taken {
		return fmt.Errorf("add the search attributes to namespace %s: %w", namespace, err)
	}
	return awaitSearchAttributes(ctx, temporal, namespace)
}
