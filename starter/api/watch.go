package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// record is what the door keeps of one request beside what its head says.
type record struct {
	// key and cause are for the access log.
	key   client.Key
	cause error
	// control is that of the connection that the request came by.
	control *http.ResponseController
}

type recordInContext struct{}

// note records whose request it is.
func note(ctx context.Context, key client.Key) {
	if about, ok := ctx.Value(recordInContext{}).(*record); ok {
		about.key = key
	}
}

// noteCause records why the request met a fault, in words that only the log may hold.
func noteCause(ctx context.Context, cause error) {
	if about, ok := ctx.Value(recordInContext{}).(*record); ok && cause != nil {
		about.cause = cause
	}
}

// answer counts what is written.
type answer struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// WriteHeader keeps the status.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write counts the bytes.
func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Unwrap lets deadlines and flushing reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// requestID returns the id under which the caller's and this server's logs tell of one request: the caller's own, where it
// is one.
func requestID(r *http.Request) string {
	if given := r.Header.Get("X-Request-Id"); contract.ValidID(given) {
		return given
	}
	return rand.Text()[:16]
}

// watch gives each request an id, a line in the access log and a place in the metrics, and turns a panic into a problem.
// Neither headers nor bodies nor query strings are logged: they may hold secrets.
func (d *Door) watch(next http.Handler, metrics prometheus.Registerer) (http.Handler, error) {
	labels := []string{"method", "route", "status"}
	times := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "reclaim_http_request_seconds", Help: "Time to answer a request, long polls included.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60},
	}, labels)
	inProgress := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "reclaim_http_requests_in_progress", Help: "Requests that are not answered yet.",
	})
	d.waiting = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "reclaim_http_requests_waiting", Help: "Requests that wait for a job or a refund to end.",
	})
	for _, collector := range []prometheus.Collector{times, inProgress, d.waiting} {
		if err := metrics.Register(collector); err != nil {
			return nil, fmt.Errorf("register the door's metrics: %w", err)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		id, given := requestID(r), &answer{ResponseWriter: w}
		about := &record{control: http.NewResponseController(given)}
		r = r.WithContext(context.WithValue(r.Context(), recordInContext{}, about))
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		inProgress.Inc()
		defer func() {
			inProgress.Dec()
			cut := false
			if fault := recover(); fault != nil {
				// Whoever cuts a connection on purpose has said why already.
				cut = fault == http.ErrAbortHandler //nolint:errorlint // the value itself is what net/http looks for
				if !cut {
					d.logger.Error("a request met a panic", zap.String("request", id), zap.Any("panic", fault), zap.ByteString("stack", debug.Stack()))
					cut = given.status != 0
				}
				if !cut {
					refuse(given, r, fmt.Errorf("panic: %v", fault))
				}
			}
			spent := time.Since(began)
			d.tell(r, id, given, about, spent)
			route := r.Pattern
			if route == "" {
				route = "none"
			}
			times.WithLabelValues(known(r.Method), route, strconv.Itoa(given.status)).Observe(spent.Seconds())
			if cut {
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(given, r)
	}), nil
}

// known keeps what a caller made up out of the metrics' names.
func known(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost:
		return method
	default:
		return "other"
	}
}

// tell writes the request's line of the access log.
func (d *Door) tell(r *http.Request, id string, given *answer, about *record, spent time.Duration) {
	fields := append(make([]zap.Field, 0, 10),
		zap.String("request", id), zap.String("method", r.Method), zap.String("path", contract.Clip(r.URL.Path, 300)),
		zap.Int("status", given.status), zap.Int64("bytes", given.bytes), zap.Duration("spent", spent), zap.String("from", r.RemoteAddr),
	)
	if about.key.KeyID != "" {
		fields = append(fields, zap.String("key", about.key.KeyID), zap.String("tenant", about.key.Tenant))
	}
	gone := r.Context().Err() != nil && errors.Is(about.cause, context.Canceled)
	switch {
	case about.cause != nil && !gone:
		d.logger.Error("a request met a fault", append(fields, zap.Error(about.cause))...)
	default:
		d.logger.Info("request", fields...)
	}
}
