package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/swaggest/swgui"
	"github.com/swaggest/swgui/v5emb"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// maxNotice bounds a payment channel's notice, in bytes; each channel has a smaller limit of its own.
const maxNotice = 1 << 20

// operationRoutes adds what is not for callers with keys: whether the door lives and is ready, its metrics and its
// description. They tell nothing about any tenant.
func (d *Door) operationRoutes(mux *http.ServeMux, description []byte, ready func(context.Context) error, metrics prometheus.Gatherer) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, `{"status":"ok"}`) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if d.isStopping() {
			refuse(w, r, plainProblem(http.StatusServiceUnavailable, "the server is stopping"))
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 3*time.Second)
		defer cancel()
		if err := ready(ctx); err != nil {
			p := plainProblem(http.StatusServiceUnavailable, "Postgres or Temporal does not answer; the log says more")
			p.cause = err
			refuse(w, r, p)
			return
		}
		say(w, `{"status":"ready"}`)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(description)
	})
	docs := v5emb.NewWithConfig(swgui.Config{ShowTopBar: false, SettingsUI: map[string]string{"validatorUrl": "null"}})(
		"Reclaim", "/openapi.json", "/docs/")
	mux.HandleFunc("GET /docs", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/docs/", http.StatusMovedPermanently)
	})
	mux.HandleFunc("GET /docs/", func(w http.ResponseWriter, r *http.Request) {
		// Everything that the page needs is served from here, and nothing else may be.
		w.Header().Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; img-src 'self' data:; "+
			"script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		docs.ServeHTTP(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { d.refuseRoute(mux, w, r) })
}

// exact refuses the paths that the router would tidy up and redirect to: they name nothing, least of all something else.
func exact(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tidy := path.Clean(r.URL.Path)
		if tidy != "/" && strings.HasSuffix(r.URL.Path, "/") {
			tidy += "/"
		}
		if tidy != r.URL.Path || !strings.HasPrefix(tidy, "/") {
			refuse(w, r, nothingHere())
			return
		}
		next.ServeHTTP(w, r)
	})
}

func nothingHere() *Problem {
	return plainProblem(http.StatusNotFound, "there is nothing here: GET /docs lists every route")
}

// refuseRoute says what there is instead of a route that does not exist.
func (d *Door) refuseRoute(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "/" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		refuse(w, r, nothingHere())
		return
	}
	p := plainProblem(http.StatusMethodNotAllowed, fmt.Sprintf("this takes %s, not %s", strings.Join(allowed, " and "), contract.Clip(r.Method, 20)))
	for _, method := range allowed {
		p.headers.Add("Allow", method)
	}
	refuse(w, r, p)
}

func say(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(body + "\n"))
}

// noticeRoute hands the notices of payment channels on to a worker, which knows the channels' secrets: the signature is the
// credential.
func (d *Door) noticeRoute(worker *url.URL) http.Handler {
	if worker == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			refuse(w, r, plainProblem(http.StatusNotFound, "no notices are taken here: a worker's RECLAIM_LISTEN takes them"))
		})
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(worker)
			r.SetXForwarded()
			// It is for this door alone.
			r.Out.Header.Del("Authorization")
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			p := plainProblem(http.StatusServiceUnavailable, "send it again later")
			p.cause = fmt.Errorf("hand a notice on to a worker: %w", err)
			refuse(w, r, p)
		},
	}
	places := make(chan struct{}, noticesAtOnce)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Read whole before it takes a place: who sends slowly keeps nobody else's notice out.
		body, err := readBody(w, r, maxNotice)
		if err != nil {
			refuse(w, r, err)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
		defer cancel()
		r = r.WithContext(ctx)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		inPlace(places, proxy, w, r)
	})
}
