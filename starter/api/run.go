package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	temporalclient "go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/starter/metrics"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// RunOptions are what a process needs to be the door.
type RunOptions struct {
	DatabaseURL string
	// Connections bounds the pool of them.
	Connections int
	Temporal    temporalclient.Options
	TaskQueue   string
	// Listen is host:port.
	Listen string
	// Notices is the base address of a worker's own door, which takes payment channels' notices; empty for none.
	Notices string
	Limits  Limits
	Logger  *zap.Logger
}

// Run is the door until ctx ends. Where Postgres or Temporal is away, it answers 503 and is there again when they are.
func Run(ctx context.Context, o RunOptions) error {
	var worker *url.URL
	if o.Notices != "" {
		var err error
		if worker, err = ParseNoticesURL(o.Notices); err != nil {
			return err
		}
	}
	store, err := schema.Open(ctx, o.DatabaseURL, schema.Options{MaxConns: int32(o.Connections), Name: "reclaim-api"})
	if err != nil {
		return err
	}
	defer store.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if o.Temporal.MetricsHandler, err = metrics.SDK(registry, contract.MeteredJobWorkflow, contract.ChannelRefundWorkflow); err != nil {
		return err
	}
	temporal, err := temporalclient.NewLazyClient(o.Temporal)
	if err != nil {
		return fmt.Errorf("prepare the Temporal client: %w", err)
	}
	defer temporal.Close()
	door, err := New(Options{
		Client: client.New(temporal, store, o.TaskQueue), Logger: o.Logger, Notices: worker, Metrics: registry, Limits: o.Limits,
		Ready: func(ctx context.Context) error {
			if err := schema.CheckVersion(ctx, store); err != nil {
				return err
			}
			_, err := temporal.CheckHealth(ctx, &temporalclient.CheckHealthRequest{})
			return err
		},
	})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s (RECLAIM_LISTEN): %w", o.Listen, err)
	}
	o.Logger.Info("listening", zap.String("address", listener.Addr().String()))
	server := &http.Server{ErrorLog: zap.NewStdLog(o.Logger)} //nolint:gosec // Serve sets the timeouts
	defer o.Logger.Info("stopped")
	return door.Serve(ctx, server, func() error { return server.Serve(listener) })
}

// ParseNoticesURL reads the base address of a worker's own door.
func ParseNoticesURL(text string) (*url.URL, error) {
	worker, err := url.Parse(text)
	if err != nil || (worker.Scheme != "http" && worker.Scheme != "https") || worker.Host == "" {
		return nil, fmt.Errorf("RECLAIM_NOTICES_URL must be the address of a worker's RECLAIM_LISTEN, such as http://worker:8081, not %q", text)
	}
	return worker, nil
}
