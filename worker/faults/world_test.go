package faults_test

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/worker/meter"
	"github.com/reclaimhq/reclaim/worker/notices"
	"github.com/reclaimhq/reclaim/worker/relay"
	"github.com/reclaimhq/reclaim/worker/runs"
	"github.com/reclaimhq/reclaim/workflows"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// patience bounds every wait for something that is due now. It is long, since the machine may be busy, and what is waited
	// for may come after a pause that doubles.
	patience = 4 * time.Minute
	// look is how often a condition is looked at.
	look = 20 * time.Millisecond
	// patientRPC is how long a busy server may take for an answer.
	patientRPC = time.Minute
	// workRPCTimeout is what the guide tells work workers to use.
	workRPCTimeout = 5 * time.Minute
	// faultsEnv turns on the tests that kill and stop things.
	faultsEnv = "RECLAIM_FAULTS"
	// crashEnv turns on the crash matrix, and the soak.
	crashEnv = "RECLAIM_CRASH"
)

func TestMain(m *testing.M) {
	if settings := os.Getenv(performerEnv); settings != "" {
		os.Exit(performUntilKilled(settings))
	}
	flag.Parse()
	// The tests wait far more than they compute, those that kill and stop things most of all.
	parallel := "20"
	switch {
	case crashWanted():
		parallel = "200" // the servers' worlds are the limit
	case faultsWanted():
		parallel = "64"
	}
	if err := flag.Set("test.parallel", parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	for _, stop := range atExit {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "faults:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

var (
	atExit []func() error
	shared = struct {
		sync.Once
		world *world
	}{}
)

func faultsWanted() bool { return os.Getenv(faultsEnv) == "1" }

// needsQuiet skips a test that runs with every `go test` where the machine is busy with those that take minutes.
func needsQuiet(t *testing.T) {
	t.Helper()
	if faultsWanted() {
		t.Skipf("runs without %s", faultsEnv)
	}
}

// needsFaults skips a test that takes minutes unless it was asked for.
func needsFaults(t *testing.T) {
	t.Helper()
	if !faultsWanted() {
		t.Skipf("kills processes and stops servers for minutes: run it with `make test-faults` (%s=1)", faultsEnv)
	}
}

// world is a Temporal server, a database, a Reclaim worker on them and a crew that does the work.
type world struct {
	temporal client.Client
	address  string
	database *schematest.Database
	// direct reads the database past everything under test.
	direct *pgxpool.Pool
	store  *schema.Store
	queue  string
	crew   *crew
	// postgres is a superuser's URL of the server that the database is on.
	postgres string
	// elsewhere says that the work is done by other workers than the crew.
	elsewhere bool
	// channels are those that workers in this process can reach, and door is where their notices are taken, if it is open.
	channels *channels
	door     string
}

// sharedWorld returns the world that all tests which break nothing share.
func sharedWorld(t *testing.T) *world {
	t.Helper()
	shared.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		postgres, err := localstack.StartPostgres(ctx, localstack.PostgresOptions{MaxConnections: 500})
		require.NoError(t, err)
		atExit = append(atExit, postgres.Close)
		temporal, err := startTemporal(ctx, localstack.TemporalOptions{})
		require.NoError(t, err)
		atExit = append([]func() error{temporal.Close}, atExit...)
		w := newWorld(t, temporal.Address(), schematest.NewOn(t, postgres.SuperuserURL("postgres")), "shared")
		w.postgres = postgres.SuperuserURL("postgres")
		stop := w.startWorker(t, w.store, w.queue)
		stopCrew := w.crew.start(t, w.address)
		stopRelay := w.startRelay(w.temporal)
		closeDoor := w.openDoor()
		atExit = append([]func() error{func() error {
			closeDoor()
			stopRelay()
			stopCrew()
			stop()
			w.close()
			return nil
		}}, atExit...)
		shared.world = w
	})
	require.NotNil(t, shared.world, "the shared servers did not start")
	return shared.world
}

// startTemporal starts a server that has Reclaim's search attributes.
func startTemporal(ctx context.Context, options localstack.TemporalOptions) (*localstack.Temporal, error) {
	options.Headless = true
	options.SearchAttributes = map[string]string{}
	for _, name := range contract.SearchAttributes() {
		options.SearchAttributes[name] = "Keyword"
	}
	return localstack.StartTemporal(ctx, options)
}

func newWorld(t *testing.T, address string, database *schematest.Database, name string) *world {
	t.Helper()
	w := &world{address: address, database: database, queue: "reclaim-" + name, channels: newChannels()}
	w.temporal = dial(t, address, patientRPC)
	var err error
	w.direct, err = pgxpool.New(context.Background(), database.SuperuserURL)
	require.NoError(t, err)
	w.store, err = schema.Open(context.Background(), database.AppURL, schema.Options{MaxConns: 32})
	require.NoError(t, err)
	w.crew = newCrew("work-" + name)
	return w
}

func (w *world) close() {
	w.store.Close()
	w.direct.Close()
	w.temporal.Close()
}

// dial returns a client that says nothing.
func dial(t *testing.T, address string, rpcTimeout time.Duration) client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.DialContext(ctx, client.Options{
		HostPort: address, RPCTimeout: rpcTimeout, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	return c
}

// startWorker runs Reclaim's workflows and activities in this process.
func (w *world) startWorker(t *testing.T, store *schema.Store, queue string) (stop func()) {
	t.Helper()
	worker := sdkworker.New(w.temporal, queue, sdkworker.Options{
		WorkerStopTimeout:                       10 * time.Second,
		MaxConcurrentLocalActivityExecutionSize: 32,
		// A busy machine with the race detector on may well keep a workflow from the processor for a second.
		DeadlockDetectionTimeout: 20 * time.Second,
	})
	workflows.Register(worker)
	refunds := activities.NewRefunds(store, w.channels)
	workflows.RegisterActivities(worker, activities.NewJobs(store), refunds)
	asker := w.asker(queue)
	workflows.RegisterReconciler(worker, activities.NewReconciler(store, w.channels, refunds,
		runs.New(asker, w.temporal, ""), runs.Ledger{Client: asker}, func(string, contract.FindingEffect) {}))
	require.NoError(t, worker.Start())
	return sync.OnceFunc(worker.Stop)
}

// apart gives a world of its own database and queue on the same servers, where nothing is carried out until its test
// starts who does: a relay takes the rows of all tenants of its database.
func (w *world) apart(t *testing.T) *world {
	t.Helper()
	other := newWorld(t, w.address, schematest.NewOn(t, w.postgres), strings.ToLower(rand.Text()[:12]))
	other.postgres = w.postgres
	t.Cleanup(other.close)
	return other
}

// startRelay delivers the outbox through the Temporal client.
func (w *world) startRelay(temporal client.Client) (stop func()) {
	return w.startRelayOn(w.store, temporal, prometheus.NewRegistry())
}

func (w *world) startRelayOn(store *schema.Store, temporal client.Client, metrics prometheus.Registerer) (stop func()) {
	outbox, err := relay.New(store, temporal, w.queue, metrics, zap.NewNop())
	if err != nil {
		// It fails only for metrics that are registered twice.
		panic(err)
	}
	metrics.MustRegister(meter.NewReadings(store, 0, zap.NewNop()))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { outbox.Run(ctx) })
	return sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
}

// openDoor takes channels' notices as a worker process does.
func (w *world) openDoor() (closeIt func()) {
	server := httptest.NewServer(notices.Handler(activities.NewRefunds(w.store, w.channels), notices.TellRun(w.asker(w.queue), w.temporal), zap.NewNop()))
	w.door = server.URL
	return server.Close
}

// asker returns the client that a product would use.
func (w *world) asker(queue string) *reclaim.Client { return reclaim.New(w.temporal, w.store, queue) }

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	within(t, patience, what, holds)
}

func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("did not happen within %s: %s", limit, what)
		}
		<-time.After(look)
	}
}
