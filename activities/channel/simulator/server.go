// Package simulator stands for a payment channel in tests and demonstrations: an HTTP server that speaks as much of
// Stripe's API as refunds need, misbehaves as its scripts say, and keeps its own book of the money that it moved. The
// book is what the rest of a test is held against, so nothing here is shared with the programs under test.
//
// Under /v1 is the API that Stripe documents; under /simulator, without a key, is what sets the scene. Help lists it, and so
// does GET /simulator.
package simulator

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// APIVersion is the release of Stripe's API that answers and events are made in.
const APIVersion = "2026-03-25.dahlia"

// Options is how a Simulator is set up; the zero value is usable.
type Options struct {
	// Addr is where Start listens: 127.0.0.1 and any free port if empty.
	Addr string
	// APIKey is the only key taken: "sk_test_simulator" if empty.
	APIKey string
	// WebhookSecret signs webhooks: "whsec_simulator" if empty.
	WebhookSecret string
	// WebhookURL is where webhooks go. While it is empty, events are not kept.
	WebhookURL string
	// WebhookRetries is how often a webhook is sent again that was not answered by 2xx, after pauses of 1 s, 2 s, 4 s … of
	// the simulator's clock: 5 times if 0, never if negative.
	WebhookRetries int
	// KeyLife is how long an idempotency key is honoured: 24 h if 0.
	KeyLife time.Duration
	// Latency is the real time that every answer of the API takes.
	Latency time.Duration
}

func (o Options) withDefaults() Options {
	set := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	set(&o.Addr, "127.0.0.1:0")
	set(&o.APIKey, "sk_test_simulator")
	set(&o.WebhookSecret, "whsec_simulator")
	if o.WebhookRetries == 0 {
		o.WebhookRetries = 5
	}
	if o.KeyLife == 0 {
		o.KeyLife = 24 * time.Hour
	}
	return o
}

// Simulator is a payment channel. Its methods are safe for concurrent use.
type Simulator struct {
	options Options
	mux     *http.ServeMux
	server  *http.Server
	url     string
	sender  *http.Client

	// ctx ends at Close, and all goroutines and handlers with it.
	ctx        context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
	// wake makes the dispatcher look for what is due.
	wake chan struct{}
	// sending bounds the webhooks that are under way at once.
	sending chan struct{}

	mu     sync.Mutex
	closed bool
	// changed is closed, and replaced, whenever something happens that await may wait for.
	changed  chan struct{}
	offset   time.Duration
	sequence int64

	payments map[string]*payment // by intent and by charge
	refunds  []*refund           // in the order of their making
	byID     map[string]*refund
	// live has the refunds whose life is not over.
	live     []*refund
	keys     map[string]*key
	subjects map[string]*subject
	scripts  map[string]Script
	next     []Script
	ledger   []movement

	webhookURL string
	queue      []*delivery
	busy       map[*refund][]*delivery // being sent
	deliveries []Delivery
}

// New returns a simulator that does not listen: it is used as an http.Handler. It must be closed.
func New(o Options) *Simulator {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Simulator{
		options: o.withDefaults(),
		sender: &http.Client{
			Transport: &http.Transport{MaxIdleConnsPerHost: parallelWebhooks},
			Timeout:   webhookTimeout,
			// A redirection is not an acknowledgement.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		ctx: ctx, cancel: cancel,
		wake:       make(chan struct{}, 1),
		sending:    make(chan struct{}, parallelWebhooks),
		changed:    make(chan struct{}),
		payments:   map[string]*payment{},
		byID:       map[string]*refund{},
		keys:       map[string]*key{},
		subjects:   map[string]*subject{},
		scripts:    map[string]Script{},
		webhookURL: o.WebhookURL,
		busy:       map[*refund][]*delivery{},
	}
	s.mux = s.routes()
	s.goroutines.Go(s.dispatch)
	return s
}

// Start returns a simulator that listens.
func Start(o Options) (*Simulator, error) {
	s := New(o)
	listener, err := (&net.ListenConfig{}).Listen(s.ctx, "tcp", s.options.Addr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the channel simulator: %w", err), s.Close())
	}
	s.url = "http://" + listener.Addr().String()
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.goroutines.Go(func() { _ = s.server.Serve(listener) }) // it ends by Close, with that error
	return s, nil
}

// URL is where a started simulator listens, without a slash at the end; Stripe's API is below it at /v1.
func (s *Simulator) URL() string { return s.url }

// Close cuts all connections and returns when everything that the simulator began has ended. Further calls do nothing.
func (s *Simulator) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	var err error
	if s.server != nil {
		err = s.server.Close()
	}
	s.goroutines.Wait()
	s.sender.CloseIdleConnections()
	return err
}

// ServeHTTP answers a request. After Close it cuts the connection.
func (s *Simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	s.goroutines.Add(1)
	s.mu.Unlock()
	defer s.goroutines.Done()
	s.mux.ServeHTTP(w, r)
}

func (s *Simulator) routes() *http.ServeMux {
	api := http.NewServeMux()
	api.HandleFunc("POST /v1/refunds", s.createRefund)
	api.HandleFunc("GET /v1/refunds", s.listRefunds)
	api.HandleFunc("GET /v1/refunds/{id}", s.getRefund)
	api.HandleFunc("GET /v1/charges", s.listCharges)
	api.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		respond(w, refusal(http.StatusNotFound, "", "", fmt.Sprintf("Unrecognized request URL (%s: %s).", r.Method, r.URL.Path)))
	})
	mux := http.NewServeMux()
	mux.Handle("/v1/", s.authenticated(api))
	s.control(mux)
	return mux
}

func (s *Simulator) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			given, _, _ = r.BasicAuth()
		}
		switch given {
		case s.options.APIKey:
			next.ServeHTTP(w, r)
			return
		case "":
			w.Header().Set("WWW-Authenticate", `Basic realm="Stripe"`)
			respond(w, refusal(http.StatusUnauthorized, "", "", "You did not provide an API key. You need to provide your API key in "+
				"the Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY')."))
		default:
			respond(w, refusal(http.StatusUnauthorized, "", "", "Invalid API Key provided: "+given[:min(len(given), 8)]+"****"))
		}
	})
}

// answer is a whole response of the API.
type answer struct {
	status   int
	body     []byte
	html     bool
	replayed bool
	// retry is the advice in the header Stripe-Should-Retry.
	retry string
	// original is the id of the request that the answer was first made for.
	original string
}

func respond(w http.ResponseWriter, a answer) { write(w, a, len(a.body)) }

// write sends the head of the answer and the first n bytes of its body.
func write(w http.ResponseWriter, a answer, n int) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if a.html {
		h.Set("Content-Type", "text/html; charset=utf-8")
	} else {
		h.Set("Stripe-Version", APIVersion)
		h.Set("Request-Id", newID("req"))
	}
	if a.replayed {
		h.Set("Idempotent-Replayed", "true")
		h.Set("Original-Request", a.original)
	} else if a.original != "" {
		h.Set("Original-Request", a.original)
		h.Set("Request-Id", a.original)
	}
	if a.retry != "" {
		h.Set("Stripe-Should-Retry", a.retry)
	}
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body[:n]) // the client may have gone away
}

type errorBody struct {
	Code    string `json:"code,omitzero"`
	DocURL  string `json:"doc_url,omitzero"`
	Message string `json:"message"`
	Param   string `json:"param,omitzero"`
	Type    string `json:"type"`
}

// refusal is an invalid_request_error; code and param may be empty.
func refusal(status int, code, param, message string) answer {
	return refusalOfType(status, "invalid_request_error", code, param, message)
}

func refusalOfType(status int, kind, code, param, message string) answer {
	e := errorBody{Code: code, Message: message, Param: param, Type: kind}
	if code != "" {
		e.DocURL = "https://stripe.com/docs/error-codes/" + strings.ReplaceAll(code, "_", "-")
	}
	return answer{status: status, body: encode(map[string]any{"error": e})}
}

func missing(what, param, id string) answer {
	return refusal(http.StatusNotFound, "resource_missing", param, fmt.Sprintf("No such %s: '%s'", what, id))
}

// encode panics on what cannot be encoded: nothing here is of such a type, and what is not UTF-8 is replaced.
func encode(v any) []byte {
	body, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err)
	}
	return body
}

// newID is random, so that a database which outlives a simulator never sees an id of an earlier one again.
func newID(prefix string) string { return prefix + "_" + rand.Text()[:24] }

func htmlPage(size int) []byte {
	page := []byte("<html><head><title>Bad Gateway</title></head><body>upstream failed</body></html>\n")
	if missing := size - len(page); missing > 0 {
		page = append(page, bytes.Repeat([]byte("."), missing)...)
	}
	return page
}

// pause waits for d of real time and says whether it passed before the client went away or the simulator was closed.
func (s *Simulator) pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}

// await waits until the condition, which is asked with mu held, is met. It returns false when the client went away or the
// simulator was closed before.
func (s *Simulator) await(ctx context.Context, met func() bool) bool {
	for {
		s.mu.Lock()
		ok, changed := met(), s.changed
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-s.ctx.Done():
			return false
		}
	}
}

// announce tells those who await that something changed; mu is held.
func (s *Simulator) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}
