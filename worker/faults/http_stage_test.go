package faults_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/reclaimhq/reclaim/starter/api"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// httpDoor is the HTTP door of a world.
type httpDoor struct {
	t   *testing.T
	url string
	*api.Door
	// log is what the door has logged.
	log *observer.ObservedLogs
}

// openHTTP opens a door on the client's connections.
func openHTTP(t *testing.T, client *reclaim.Client, change ...func(*api.Options)) *httpDoor {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	options := api.Options{
		Client: client, Logger: zap.New(core), Metrics: prometheus.NewRegistry(), Limits: api.DefaultLimits(),
		Ready: func(context.Context) error { return nil },
	}
	for _, c := range change {
		c(&options)
	}
	door, err := api.New(options)
	require.NoError(t, err)
	server := httptest.NewServer(door)
	t.Cleanup(func() {
		// Those who wait are answered: the server ends only once all are.
		door.Stop()
		server.Close()
	})
	return &httpDoor{t: t, url: server.URL, Door: door, log: logs}
}

// call is one request. Body is sent as JSON unless it is empty; a string goes as it is.
type httpCall struct {
	method, path, bearer string
	body                 any
	header               http.Header
}

// httpAnswer is what came back.
type httpAnswer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

func (d *httpDoor) do(call httpCall) httpAnswer {
	d.t.Helper()
	var body io.Reader
	switch given := call.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(given)
	default:
		text, err := json.Marshal(given)
		require.NoError(d.t, err)
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(d.t.Context(), call.method, d.url+call.path, body)
	require.NoError(d.t, err)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if call.bearer != "" {
		request.Header.Set("Authorization", "Bearer "+call.bearer)
	}
	for name, values := range call.header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(d.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(d.t, err)
	return httpAnswer{t: d.t, status: response.StatusCode, header: response.Header, body: text}
}

func (d *httpDoor) get(path, bearer string, header ...string) httpAnswer {
	d.t.Helper()
	return d.do(httpCall{method: http.MethodGet, path: path, bearer: bearer, header: headers(header...)})
}

func (d *httpDoor) post(path, bearer string, body any, header ...string) httpAnswer {
	d.t.Helper()
	return d.do(httpCall{method: http.MethodPost, path: path, bearer: bearer, body: body, header: headers(header...)})
}

// waits says how many requests wait for something to end.
func (d *httpDoor) waits() (n int) {
	d.t.Helper()
	for line := range strings.Lines(string(d.get("/metrics", "").body)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "reclaim_http_requests_waiting "); ok {
			var err error
			n, err = strconv.Atoi(text)
			require.NoError(d.t, err)
		}
	}
	return n
}

// headers makes a header of names and values by turns.
func headers(given ...string) http.Header {
	header := http.Header{}
	for i := 0; i+1 < len(given); i += 2 {
		header.Set(given[i], given[i+1])
	}
	return header
}

// into reads the answer, which must have the status.
func into[T any](a httpAnswer, status int) (value T) {
	a.t.Helper()
	require.Equal(a.t, status, a.status, "%s", a.body)
	require.NoError(a.t, json.Unmarshal(a.body, &value), "%s", a.body)
	return value
}

// refused checks that the answer is a problem with the status and code, and returns it.
func (a httpAnswer) refused(status int, code contract.Code) (problem api.Problem) {
	a.t.Helper()
	require.Equal(a.t, status, a.status, "%s", a.body)
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"))
	require.NoError(a.t, json.Unmarshal(a.body, &problem), "%s", a.body)
	assert.Equal(a.t, code, problem.Code, "%s", a.body)
	assert.Equal(a.t, status, problem.Status)
	assert.NotEmpty(a.t, problem.Retry)
	return problem
}

// keyOf makes a key of the tenant; without scopes it has all of them.
func (s *stage) keyOf(tenant string, scopes ...contract.Scope) reclaim.CreatedKey {
	s.t.Helper()
	if len(scopes) == 0 {
		scopes = contract.Scopes()
	}
	key, err := s.client.CreateKey(s.ctx(), tenant, "test", scopes)
	require.NoError(s.t, err)
	return key
}
