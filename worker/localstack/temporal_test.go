package localstack

import (
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
)

var (
	tenant  = temporal.NewSearchAttributeKeyKeyword("ReclaimTenant")
	account = temporal.NewSearchAttributeKeyKeyword("ReclaimAccount")
)

func TestTemporalSurvivesStopAndKill(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := startTemporal(t, TemporalOptions{
		Persistent: true, Headless: true, Namespace: "local",
		SearchAttributes: map[string]string{"ReclaimTenant": "Keyword"},
		DynamicConfig:    map[string]string{"frontend.namespaceRPS": "5000"},
	})
	assert.Empty(t, server.UIURL())
	startWorkflow(t, server, "one")

	for _, end := range []func(){server.Stop, server.Kill} {
		address, exited, family := server.Address(), server.Exited(), familyOf(t, server.server)
		end()
		assertClosed(t, exited)
		assertGone(t, family)
		require.NoError(t, server.Restart(ctx))
		assert.Equal(t, address, server.Address())
		connection := dial(t, server)
		_, err := connection.DescribeWorkflow(ctx, "one", "")
		require.NoError(t, err)
	}
}

func TestTemporalAddsSearchAttributesToItsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	attributes := map[string]string{"ReclaimTenant": "Keyword"}
	first := startTemporal(t, TemporalOptions{Dir: dir, Persistent: true, Headless: true, SearchAttributes: attributes})
	startWorkflow(t, first, "one", tenant.ValueSet("acme"))
	_, err := StartTemporal(testContext(t), TemporalOptions{Dir: dir, Headless: true})
	require.ErrorContains(t, err, "in use by another copy")
	require.NoError(t, first.Close())

	attributes = map[string]string{"ReclaimTenant": "Keyword", "ReclaimAccount": "Keyword"}
	second := startTemporal(t, TemporalOptions{Dir: dir, Persistent: true, Headless: true, SearchAttributes: attributes})
	startWorkflow(t, second, "two", tenant.ValueSet("acme"), account.ValueSet("a"))
	_, err = dial(t, second).DescribeWorkflow(testContext(t), "one", "")
	require.NoError(t, err)
}

func TestTemporalServesItsUI(t *testing.T) {
	t.Parallel()
	server, err := StartTemporal(testContext(t), TemporalOptions{})
	require.NoError(t, err)
	response, err := http.Get(server.UIURL())
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)
	family := familyOf(t, server.server)
	require.NoError(t, server.Close())
	assertGone(t, family)
	assert.NoDirExists(t, filepath.Dir(server.Dir()))
}

func TestTemporalTellsWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	taken := listener.Addr().(*net.TCPAddr).Port
	for _, options := range []TemporalOptions{{Port: taken}, {UIPort: taken}, {HTTPPort: taken}, {MetricsPort: taken}} {
		_, err = StartTemporal(testContext(t), options)
		require.ErrorIs(t, err, errPortTaken)
	}
	_, err = StartTemporal(testContext(t), TemporalOptions{SearchAttributes: map[string]string{"A": "Number"}})
	require.ErrorContains(t, err, "Number")
	_, err = StartTemporal(testContext(t), TemporalOptions{DynamicConfig: map[string]string{"limit.maxIDLength": "{"}})
	require.ErrorContains(t, err, "dynamic config", "the log is quoted")
}

func TestRecentVersions(t *testing.T) {
	t.Parallel()
	for output, recent := range map[string]bool{
		"temporal version 0.0.0-DEV (Server 1.29.1, UI 2.42.1)\n": true,
		"temporal version 1.5.1 (Server 1.29.0, UI 2.42.1)":       true,
		"temporal version 2.0.0 (Server 2.0.0, UI 3.0.0)":         true,
		"temporal version 1.4.0 (Server 1.28.9, UI 2.40.0)":       false,
		"temporal version 1.0.0 (Server 0.30.0, UI 2.40.0)":       false,
		"tctl version 1.18.0":                                     false,
	} {
		assert.Equal(t, recent, isRecentVersion(output), output)
	}
}

func startTemporal(t *testing.T, options TemporalOptions) *Temporal {
	t.Helper()
	server, err := StartTemporal(testContext(t), options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	return server
}

func dial(t *testing.T, server *Temporal) client.Client {
	t.Helper()
	connection, err := client.DialContext(testContext(t), client.Options{HostPort: server.Address(), Namespace: server.Namespace()})
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	return connection
}

// startWorkflow starts a workflow that no worker will run, at the first attempt.
func startWorkflow(t *testing.T, server *Temporal, id string, attributes ...temporal.SearchAttributeUpdate) {
	t.Helper()
	_, err := dial(t, server).ExecuteWorkflow(testContext(t), client.StartWorkflowOptions{
		ID: id, TaskQueue: "nobody", TypedSearchAttributes: temporal.NewSearchAttributes(attributes...),
	}, "Nothing")
	require.NoError(t, err)
}
