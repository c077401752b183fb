package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/api"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestMain(m *testing.M) { os.Exit(schematest.Run(m)) }

// stand is a door on a fresh database; Temporal is away.
type stand struct {
	t       *testing.T
	client  *client.Client
	store   *schema.Store
	base    *schematest.Database
	options api.Options
	logs    *observer.ObservedLogs
}

func newStand(t *testing.T) *stand {
	t.Helper()
	base := schematest.New(t)
	store, err := schema.Open(t.Context(), base.AppURL, schema.Options{MaxConns: 8})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	// Nothing listens on port 1.
	temporal, err := temporalclient.NewLazyClient(temporalclient.Options{
		HostPort: "127.0.0.1:1", Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	core, logs := observer.New(zapcore.DebugLevel)
	c := client.New(temporal, store, "")
	return &stand{t: t, client: c, store: store, base: base, logs: logs, options: api.Options{
		Client: c, Logger: zap.New(core), Metrics: prometheus.NewRegistry(), Limits: api.DefaultLimits(),
		Ready: func(context.Context) error { return nil },
	}}
}

// open serves the door and returns its address.
func (s *stand) open() string {
	s.t.Helper()
	door, err := api.New(s.options)
	require.NoError(s.t, err)
	server := httptest.NewServer(door)
	s.t.Cleanup(func() {
		door.Stop()
		server.Close()
	})
	return server.URL
}

func (s *stand) key() string {
	s.t.Helper()
	return s.keyFor("acme")
}

func (s *stand) keyFor(tenant string) string {
	s.t.Helper()
	key, err := s.client.CreateKey(s.t.Context(), tenant, "shop", contract.Scopes())
	require.NoError(s.t, err)
	return key.Secret
}

// reply is the head of an answer.
type reply struct {
	StatusCode int
	Header     http.Header
}

// ask sends a request with the key and returns the answer with its body as JSON.
func (s *stand) ask(method, address, key, body string, header ...string) (reply, map[string]any) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, address, strings.NewReader(body))
	require.NoError(s.t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer func() { _ = answer.Body.Close() }()
	var read map[string]any
	_ = json.NewDecoder(answer.Body).Decode(&read)
	return reply{answer.StatusCode, answer.Header}, read
}

func TestOneKeyHasItsShareOfRequests(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.options.Limits = api.Limits{Rate: 0.001, Burst: 3, AtOnce: 10}
	address, key, other := s.open(), s.key(), s.key()
	for range 3 {
		answer, _ := s.ask(http.MethodGet, address+"/v1/issues", key, "")
		assert.Equal(t, http.StatusOK, answer.StatusCode)
	}
	answer, problem := s.ask(http.MethodGet, address+"/v1/issues", key, "")
	assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode)
	assert.Equal(t, "RateLimited", problem["code"])
	assert.Equal(t, "same_key", problem["retry"])
	assert.Equal(t, "1", answer.Header.Get("Retry-After"))
	answer, _ = s.ask(http.MethodGet, address+"/v1/issues", other, "")
	assert.Equal(t, http.StatusOK, answer.StatusCode, "another key has a share of its own")
}

// held lets requests stand still inside the door: its worker's address takes them and does not answer.
func (s *stand) held() (address string, entered func() int, release func()) {
	s.t.Helper()
	var in atomic.Int32
	free := make(chan struct{})
	worker := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		in.Add(1)
		<-free
	}))
	s.t.Cleanup(worker.Close)
	var err error
	s.options.Notices, err = url.Parse(worker.URL)
	require.NoError(s.t, err)
	return s.open(), func() int { return int(in.Load()) }, func() { close(free) }
}

func TestOneTenantHasHalfOfTheRequestsThatItTakes(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.options.Limits.AtOnce = 2
	address, ours, theirs, third := s.open(), s.key(), s.keyFor("globex"), s.keyFor("initech")
	s.charge("acme", "j1")
	s.charge("globex", "j1")
	// Temporal is away, so that whoever waits for a job waits until the door stops.
	for _, key := range []string{ours, theirs} {
		go waitForJob(address+"/v1/jobs/j1", key)
		s.waits(address, map[string]int{ours: 1, theirs: 2}[key])
		if key == ours {
			answer, problem := s.ask(http.MethodGet, address+"/v1/issues", s.key(), "")
			assert.Equal(t, http.StatusTooManyRequests, answer.StatusCode, "another key of the tenant has no other half")
			assert.Contains(t, problem["detail"], "tenant")
			answer, _ = s.ask(http.MethodGet, address+"/v1/issues", third, "")
			assert.Equal(t, http.StatusOK, answer.StatusCode)
		}
	}
	answer, problem := s.ask(http.MethodGet, address+"/v1/issues", third, "")
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	assert.Equal(t, "Unavailable", problem["code"])
	assert.NotEmpty(t, answer.Header.Get("Retry-After"))
	answer, _ = s.ask(http.MethodGet, address+"/healthz", "", "")
	assert.Equal(t, http.StatusOK, answer.StatusCode, "that it lives can be asked however busy it is")
}

// waitForJob asks for a job once it is closed; how it is answered is no matter.
func waitForJob(address, key string) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, address, nil)
	if err != nil {
		return
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Prefer", "wait=60")
	if answer, err := http.DefaultClient.Do(request); err == nil {
		_ = answer.Body.Close()
	}
}

// waits waits until so many requests wait for something.
func (s *stand) waits(address string, n int) {
	s.t.Helper()
	want := fmt.Sprintf("\nreclaim_http_requests_waiting %d\n", n)
	require.Eventually(s.t, func() bool {
		request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, address+"/metrics", nil)
		require.NoError(s.t, err)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(s.t, err)
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		require.NoError(s.t, err)
		return strings.Contains(string(text), want)
	}, 30*time.Second, 10*time.Millisecond)
}

func TestNoticesFillNoPlacesButTheirOwn(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	address, entered, release := s.held()
	const places = 64
	ended := make(chan int, places)
	for range places {
		go func() {
			answer, _ := s.ask(http.MethodPost, address+"/v1/channels/bank/notices", "", "{}")
			ended <- answer.StatusCode
		}()
	}
	require.Eventually(t, func() bool { return entered() == places }, 30*time.Second, time.Millisecond)
	answer, _ := s.ask(http.MethodPost, address+"/v1/channels/bank/notices", "", "{}")
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	answer, _ = s.ask(http.MethodGet, address+"/v1/issues", s.key(), "")
	assert.Equal(t, http.StatusOK, answer.StatusCode, "whoever has no key keeps nobody out who has one")
	release()
	for range places {
		assert.Equal(t, http.StatusOK, <-ended)
	}
	answer, _ = s.ask(http.MethodPost, address+"/v1/channels/bank/notices", "", strings.Repeat("x", 1<<20+1))
	assert.Equal(t, http.StatusRequestEntityTooLarge, answer.StatusCode, "a channel must not send it again for ever")
}

func TestANoticeIsHandedOnToTheLetterWithoutTheCallersCredential(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	var seen *http.Request
	body := make(chan string, 1)
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		text := make([]byte, 100)
		n, _ := r.Body.Read(text)
		body <- string(text[:n])
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(worker.Close)
	var err error
	s.options.Notices, err = url.Parse(worker.URL)
	require.NoError(t, err)
	address := s.open()
	answer, _ := s.ask(http.MethodPost, address+"/v1/channels/bank/notices", "secret", `{"id": "evt_1" }`, "Stripe-Signature", "t=1,v1=ab")
	assert.Equal(t, http.StatusAccepted, answer.StatusCode)
	assert.Equal(t, `{"id": "evt_1" }`, <-body)
	assert.Equal(t, "/v1/channels/bank/notices", seen.URL.Path)
	assert.Equal(t, "t=1,v1=ab", seen.Header.Get("Stripe-Signature"))
	assert.Empty(t, seen.Header.Get("Authorization"))
	worker.Close()
	answer, problem := s.ask(http.MethodPost, address+"/v1/channels/bank/notices", "", "{}")
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode, "the channel sends it again")
	assert.NotContains(t, problem["detail"], "127.0.0.1")
}

func TestAFaultIsLoggedAndNotTold(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	s.options.Ready = func(context.Context) error { return errors.New("password authentication failed for user reclaim") }
	address, key := s.open(), s.key()
	answer, problem := s.ask(http.MethodGet, address+"/readyz", "", "", "X-Request-Id", "their-own")
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	assert.NotContains(t, problem["detail"], "password")
	assert.Equal(t, "their-own", answer.Header.Get("X-Request-Id"))
	logged := s.logs.FilterField(zap.String("request", "their-own")).All()
	require.Len(t, logged, 1)
	assert.Contains(t, logged[0].ContextMap()["error"], "password authentication failed")
	s.store.Close()
	answer, problem = s.ask(http.MethodGet, address+"/v1/accounts/a?secret=1", key, "")
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	assert.Equal(t, "same_key", problem["retry"])
	assert.Regexp(t, regexp.MustCompile(`^[A-Z0-9]{16}$`), answer.Header.Get("X-Request-Id"))
	for _, line := range s.logs.All() {
		text, err := json.Marshal(line.ContextMap())
		require.NoError(t, err)
		assert.NotContains(t, string(text), "secret=1", "queries are not logged")
		assert.NotContains(t, string(text), key[20:])
	}
}

func TestEveryCodeOfTheContractHasAStatus(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../workflows/contract/errors.go")
	require.NoError(t, err)
	codes := regexp.MustCompile(`Code\w+ +Code += "(\w+)"|Code\w+ Code = "(\w+)"`).FindAllStringSubmatch(string(text), -1)
	require.GreaterOrEqual(t, len(codes), 11)
	for _, code := range codes {
		name := contract.Code(code[1] + code[2])
		assert.NotEqual(t, http.StatusInternalServerError, api.StatusOf(name), "%s", name)
	}
	assert.Equal(t, http.StatusInternalServerError, api.StatusOf("NoSuchCode"))
}

func TestAJobIsDescribedByTheFieldsThatTheContractReads(t *testing.T) {
	t.Parallel()
	for _, pair := range []struct{ described, read reflect.Type }{
		{reflect.TypeFor[api.JobBody](), reflect.TypeFor[contract.Job]()},
		{reflect.TypeFor[api.WorkBody](), reflect.TypeFor[contract.Work]()},
		{reflect.TypeFor[api.RetryBody](), reflect.TypeFor[contract.Retrying]()},
	} {
		assert.ElementsMatch(t, members(pair.read), members(pair.described), "%s", pair.described)
	}
}

func members(of reflect.Type) (names []string) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

func TestAMalformedPreferenceIsRefusedAndOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	address, key := s.open(), s.key()
	s.charge("acme", "j1")
	for header, applied := range map[string]string{
		"wait=0": "wait=0", `Wait="0"`: "wait=0", "respond-async , wait = 0; x=y": "wait=0", "return=minimal": "", "": "",
	} {
		answer, _ := s.ask(http.MethodGet, address+"/v1/jobs/j1", key, "", "Prefer", header)
		assert.Equal(t, http.StatusOK, answer.StatusCode, header)
		assert.Equal(t, applied, answer.Header.Get("Preference-Applied"), header)
	}
	for _, header := range []string{"wait=", "wait", "wait=-1", "wait=1.5", "wait=soon", "wait=99999999999999999999"} {
		answer, problem := s.ask(http.MethodGet, address+"/v1/jobs/j1", key, "", "Prefer", header)
		assert.Equal(t, http.StatusBadRequest, answer.StatusCode, header)
		assert.Contains(t, problem["detail"], "Prefer", header)
	}
}

func TestWhileTemporalIsAwayAWaitStillTakesItsTime(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	address, key := s.open(), s.key()
	s.charge("acme", "j1")
	began := time.Now()
	answer, job := s.ask(http.MethodGet, address+"/v1/jobs/j1", key, "", "Prefer", "wait=2")
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Equal(t, "running", job["state"])
	assert.GreaterOrEqual(t, time.Since(began), 2*time.Second, "who is answered at once asks again at once")
}

// charge makes a charged job, which has no run.
func (s *stand) charge(tenant, jobID string) {
	s.t.Helper()
	_, err := s.client.TopUp(s.t.Context(), client.Movement{Tenant: tenant, Actor: "test", Account: "a", Key: jobID, Amount: 5})
	require.NoError(s.t, err)
	row, err := s.store.ChargeJob(s.t.Context(), db.ChargeJobParams{
		TenantID: tenant, JobID: jobID, AccountID: "a", Cost: 1, Fingerprint: "x", Spec: "{}", Reason: "test", NotAfter: s.store.NotAfter(),
	})
	require.NoError(s.t, err)
	require.Equal(s.t, "applied", row.Answer)
}

func TestTheDocumentationReachesNowhereElse(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	address := s.open()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/docs", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	page, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Contains(t, answer.Header.Get("Content-Security-Policy"), "default-src 'none'")
	references := regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, references)
	for _, reference := range references {
		require.True(t, strings.HasPrefix(reference[1], "/docs/"), reference[1])
		asset, _ := s.ask(http.MethodGet, address+reference[1], "", "")
		assert.Equal(t, http.StatusOK, asset.StatusCode, reference[1])
	}
}

func TestAServerStopsOnceWhatIsInProgressIsDone(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	door, err := api.New(s.options)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- door.Serve(ctx, server, func() error { return server.Serve(listener) }) }()
	answer, _ := s.ask(http.MethodGet, "http://"+listener.Addr().String()+"/healthz", "", "")
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	stop()
	assert.NoError(t, <-ended)
	_, err = net.Dial("tcp", listener.Addr().String())
	assert.Error(t, err, "nobody listens any more")
}
