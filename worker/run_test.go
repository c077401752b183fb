package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/worker/config"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestRunSaysThatPostgresIsAwayAndStops(t *testing.T) {
	t.Parallel()
	r := startRun(t, settings("postgres://nobody@127.0.0.1:1/reclaim", "127.0.0.1:1"))
	r.waitFor(t, "Postgres cannot be used yet; trying again")
	r.stopsWithin(t, 5*time.Second)
}

func TestRunWaitsForTemporal(t *testing.T) {
	t.Parallel()
	attributes := map[string]string{}
	for _, name := range contract.SearchAttributes() {
		attributes[name] = "Keyword"
	}
	temporal := startTemporal(t, attributes)
	temporal.Stop()
	r := startRun(t, settings(schematest.New(t).AppURL, temporal.Address()))
	r.waitFor(t, "Temporal cannot be used yet; trying again")
	require.NoError(t, temporal.Restart(t.Context()))
	r.waitFor(t, "polling")
	r.stopsWithin(t, 30*time.Second)
}

func TestRunNamesTheMissingSearchAttributeUntilItIsMigrated(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	temporal := startTemporal(t, nil)
	c := settings(database.AppURL, temporal.Address())
	c.MigrateURL = database.OwnerURL
	r := startRun(t, c)
	err := <-r.ended
	require.ErrorContains(t, err, "lacks the search attribute "+contract.SearchAttributes()[0]+": run `worker migrate`")

	require.NoError(t, migrate(t.Context(), c, t.Output()))
	require.NoError(t, migrate(t.Context(), c, t.Output()), "it is safe to run again")
	r = startRun(t, c)
	r.waitFor(t, "polling")
	r.stopsWithin(t, 30*time.Second)
}

func TestANamespaceThatDoesNotExistIsNamed(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	temporal := startTemporal(t, nil)
	c := settings(database.AppURL, temporal.Address())
	c.MigrateURL, c.Temporal.Namespace = database.OwnerURL, "nowhere"
	r := startRun(t, c)
	const says = `the Temporal server has no namespace "nowhere": set TEMPORAL_NAMESPACE`
	require.ErrorContains(t, <-r.ended, says)
	require.ErrorContains(t, migrate(t.Context(), c, t.Output()), says)
	require.ErrorContains(t, runRender(t.Context(), c.Temporal, "gpu", t.TempDir(), zap.NewNop()), says)
}

func startTemporal(t *testing.T, attributes map[string]string) *localstack.Temporal {
	t.Helper()
	temporal, err := localstack.StartTemporal(t.Context(), localstack.TemporalOptions{Headless: true, SearchAttributes: attributes})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, temporal.Close()) })
	return temporal
}

func settings(database, temporal string) config.Config {
	return config.Config{
		DatabaseURL: database, TaskQueue: contract.TaskQueue, Connections: 4,
		Temporal: client.Options{HostPort: temporal, Namespace: client.DefaultNamespace},
	}
}

// runUnderTest is a run command with the lines that it logs.
type runUnderTest struct {
	stop  context.CancelFunc
	ended chan error
	lines *observer.ObservedLogs
}

func startRun(t *testing.T, c config.Config) *runUnderTest {
	t.Helper()
	core, lines := observer.New(zapcore.InfoLevel)
	ctx, stop := context.WithCancel(t.Context())
	r := &runUnderTest{stop: stop, ended: make(chan error, 1), lines: lines}
	go func() {
		r.ended <- run(ctx, c, zap.New(core))
		close(r.ended)
	}()
	t.Cleanup(func() {
		stop()
		for range r.ended { // until it is closed
		}
	})
	return r
}

func (r *runUnderTest) waitFor(t *testing.T, message string) {
	t.Helper()
	require.Eventually(t, func() bool { return r.lines.FilterMessage(message).Len() > 0 }, time.Minute, 20*time.Millisecond, message)
}

func (r *runUnderTest) stopsWithin(t *testing.T, limit time.Duration) {
	t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		require.NoError(t, err)
	case <-time.After(limit):
		t.Fatalf("run did not stop within %s", limit)
	}
}
