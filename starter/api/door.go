package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/starter/client"
)

// Options say what the door leads to and how much it lets through.
type Options struct {
	Client *client.Client
	Logger *zap.Logger
	// Ready returns what the door cannot do without and does not have; nil when everything answers.
	Ready func(context.Context) error
	// Notices is where a worker takes payment channels' notices, which are handed on to it; nil where none does.
	Notices *url.URL
	// Metrics is where the door registers its metrics, and what GET /metrics tells.
	Metrics *prometheus.Registry
	Limits  Limits
}

// Door answers the requests. It is safe for concurrent use.
type Door struct {
	client  *client.Client
	logger  *zap.Logger
	limits  Limits
	usage   *usage
	places  chan struct{}
	handler http.Handler
	waiting prometheus.Gauge
	// stopping is closed when those who wait for something are to be answered now.
	stopping chan struct{}
	stop     sync.Once
}

// New returns a Door. It fails only for metrics that are registered already.
func New(o Options) (*Door, error) {
	d := &Door{
		client: o.Client, logger: o.Logger, limits: o.Limits, places: make(chan struct{}, o.Limits.AtOnce),
		usage:    newUsage(),
		stopping: make(chan struct{}),
	}
	mux := http.NewServeMux()
	routes := humago.New(mux, description())
	routes.UseMiddleware(d.refuseOddQueries, d.authenticate, d.takeBody)
	d.accountRoutes(routes)
	d.statementRoutes(routes)
	d.orderRoutes(routes)
	d.jobRoutes(routes)
	d.refundRoutes(routes)
	d.issueRoutes(routes)
	text, err := describe(routes)
	if err != nil {
		return nil, err
	}
	mux.Handle("POST /v1/channels/{channel}/notices", d.noticeRoute(o.Notices))
	d.operationRoutes(mux, text, o.Ready, o.Metrics)
	d.handler, err = d.watch(d.admit(exact(mux)), o.Metrics)
	return d, err
}

// ServeHTTP answers one request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.handler.ServeHTTP(w, r) }

// Stop makes the door say that it is not ready and answers those who wait for a job or a refund with how it stands now.
func (d *Door) Stop() { d.stop.Do(func() { close(d.stopping) }) }

func (d *Door) isStopping() bool {
	select {
	case <-d.stopping:
		return true
	default:
		return false
	}
}

// Times of a server in front of the door.
const (
	readHeaderWithin = 5 * time.Second
	readWithin       = 15 * time.Second
	// writeWithin bounds an answer that does not say itself how long it takes.
	writeWithin = 30 * time.Second
	idleFor     = 2 * time.Minute
	// answerWithin bounds how long a request may look for its answer, beside what it asks to wait.
	answerWithin = 15 * time.Second
	// maxHeader bounds all headers of a request together, in bytes.
	maxHeader = 16 << 10
	// stopWithin is how long requests may go on once the server is to stop: longer than a submission takes.
	stopWithin = 20 * time.Second
)

// Serve answers requests on the listener until ctx ends, and then lets those in progress finish.
func (d *Door) Serve(ctx context.Context, server *http.Server, listen func() error) error {
	server.Handler, server.ReadHeaderTimeout, server.ReadTimeout = d, readHeaderWithin, readWithin
	server.WriteTimeout, server.IdleTimeout, server.MaxHeaderBytes = writeWithin, idleFor, maxHeader
	ended := make(chan error, 1)
	go func() { ended <- listen() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	d.Stop()
	finishing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := server.Shutdown(finishing)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// route is one operation with the right that it needs.
type route struct {
	id, method, path, summary, tag string
	scope                          string
	// readsJob has the job that the path names read together with the key; see jobAsked.
	readsJob bool
	// body is an example value of the request's body, nil for none; bodyOptional lets it be left out.
	body         any
	bodyOptional bool
	// maxBody bounds it, in bytes; 0 means contract.MaxInputBytes.
	maxBody int64
	status  int
	// again and pending say what the statuses 200 and 202 mean beside the first; empty where they are not answered.
	again, pending string
	errors         []int
	// content describes a body that the router does not see in the operation's types.
	content map[string]*huma.MediaType
}

// handle adds an operation to the routes. Whatever error the handler returns becomes a problem.
func handle[I, O any](routes huma.API, r route, handler func(context.Context, client.Key, *I) (*O, error)) {
	huma.Register(routes, r.operation(), func(ctx context.Context, input *I) (*O, error) {
		output, err := handler(ctx, keyOf(ctx), input)
		if err != nil {
			p := problemOf(err)
			noteCause(ctx, p.cause)
			return nil, p
		}
		return output, nil
	})
	r.describeMore(routes.OpenAPI())
}
