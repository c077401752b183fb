package stripe_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/reclaimhq/reclaim/activities/channel/conformance"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/activities/channel/stripe"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

const (
	apiKey        = "sk_test_simulator"
	webhookSecret = "whsec_simulator"
)

// root is the folder of the module, below which `make prepare` puts the tools.
func root(t *testing.T) string {
	t.Helper()
	path, err := exec.Command("go", "env", "GOMOD").Output()
	require.NoError(t, err)
	return filepath.Dir(strings.TrimSpace(string(path)))
}

// needs skips the test where there is no such file.
func needs(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("there is no %s: make prepare", path)
	}
}

// door lets requests through to a far end, counts them, and loses an answer when it is told to.
type door struct {
	url      string
	requests atomic.Int64
	lose     atomic.Bool
}

func openDoor(t *testing.T, address string, transport http.RoundTripper) *door {
	t.Helper()
	to, err := url.Parse(address)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport,
		ErrorLog:  log.New(io.Discard, "", 0), // of clients that go away on purpose
	}
	d := &door{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.requests.Add(1)
		if d.lose.Swap(false) {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

// subject is the adapter at a far end of which nothing is known yet.
func (d *door) subject(t *testing.T) conformance.Subject {
	t.Helper()
	return conformance.Subject{
		Channel: open(t, d.url), Currency: "usd", Secrets: []string{apiKey, webhookSecret},
		Requests:   func() int { return int(d.requests.Load()) },
		LoseAnswer: func() { d.lose.Store(true) },
		Foreign: func(t *testing.T, payment string, amount int64) {
			name := "charge"
			if strings.HasPrefix(payment, "pi_") {
				name = "payment_intent"
			}
			d.post(t, "/v1/refunds", url.Values{name: {payment}, "amount": {strconv.FormatInt(amount, 10)}})
		},
		Sign: func(body []byte, at time.Time) http.Header {
			signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{
				Payload: body, Secret: webhookSecret, Timestamp: at,
			})
			return http.Header{"Stripe-Signature": {signed.Header}}
		},
	}
}

func open(t *testing.T, url string) *stripe.Channel {
	t.Helper()
	c, err := stripe.New(stripe.Options{APIKey: apiKey, WebhookSecrets: []string{webhookSecret}, BaseURL: url})
	require.NoError(t, err)
	return c
}

// post asks the far end itself, and returns the id of what was made.
func (d *door) post(t *testing.T, path string, form url.Values) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+apiKey)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Idempotency-Key", rand.Text())
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	require.Equal(t, http.StatusOK, response.StatusCode, string(body))
	var made struct {
		ID string `json:"id"`
	}
	require.NoError(t, json.Unmarshal(body, &made))
	return made.ID
}

// startSimulator starts our own simulator with a receiver for its webhooks.
func startSimulator(t *testing.T) (*simulator.Simulator, *receiver) {
	t.Helper()
	sim, err := simulator.Start(simulator.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sim.Close()) })
	received := &receiver{sim: sim}
	server := httptest.NewServer(received)
	t.Cleanup(server.Close)
	sim.SetWebhookURL(server.URL)
	return sim, received
}

// receiver keeps the webhooks that the simulator sends.
type receiver struct {
	sim *simulator.Simulator
	mu  sync.Mutex
	all []conformance.Notice
}

func (r *receiver) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, conformance.Notice{Header: request.Header, Body: body})
}

// notices waits for what is due and returns all so far.
func (r *receiver) notices(*testing.T) []conformance.Notice {
	r.sim.Deliver()
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]conformance.Notice(nil), r.all...)
}

// startProgram runs a far end that listens on a socket in the file system, and opens a door to it. The program is named by
// its path and arguments; the socket's path comes last.
func startProgram(t *testing.T, path string, args ...string) *door {
	t.Helper()
	folder := t.TempDir()
	socket, logFile := filepath.Join(folder, "socket"), filepath.Join(folder, "log")
	child, err := localstack.StartChild(filepath.Base(path), localstack.ChildOptions{
		Path: path, Args: append(args, socket), Env: []string{"PATH=" + os.Getenv("PATH")}, Log: logFile,
	})
	require.NoError(t, err)
	t.Cleanup(func() { child.Stop(5 * time.Second) })
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	require.Eventually(t, func() bool {
		select {
		case <-child.Exited():
			require.NoError(t, child.Failure("ended"))
		default:
		}
		connection, err := dial(t.Context(), "", "")
		return err == nil && connection.Close() == nil
	}, time.Minute, 20*time.Millisecond, "%s does not listen", path)
	transport := &http.Transport{DialContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	return openDoor(t, "http://localhost", transport)
}

var makesStripeMock = regexp.MustCompile(`(?m)^STRIPE_MOCK := \$\(TOOLS\)/(\S+)$`)

// startStripeMock runs Stripe's own mock, which checks requests against the API's description and remembers nothing.
func startStripeMock(t *testing.T) *door {
	t.Helper()
	root := root(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	name := makesStripeMock.FindSubmatch(makefile)
	require.NotNil(t, name, "the Makefile does not name STRIPE_MOCK")
	path := filepath.Join(root, ".cache", "bin", string(name[1]))
	needs(t, path)
	return startProgram(t, path, "-http-unix")
}

// startStatefulMock runs stripe-stateful-mock, which keeps charges and refunds, idempotency keys and metadata.
func startStatefulMock(t *testing.T) *door {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no Node.js: make prepare")
	}
	module := filepath.Join(root(t), ".cache", "npm", "node_modules", "stripe-stateful-mock")
	needs(t, module)
	return startProgram(t, node, "-e", `require(process.argv[1]).createExpressApp().listen(process.argv[2])`, module)
}
