package deploy_test

import (
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/worker/devstack"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

// needsServer skips where the tests that take minutes are not asked for, and builds the worker.
func needsServer(t *testing.T) (worker string) {
	t.Helper()
	if os.Getenv("RECLAIM_FAULTS") != "1" {
		t.Skip("runs a full Temporal server, which is built for minutes the first time: make test-faults")
	}
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("there is no psql, which makes the databases")
	}
	worker = filepath.Join(t.TempDir(), "worker")
	output, err := exec.Command("go", "build", "-o", worker, "github.com/reclaimhq/reclaim/worker").CombinedOutput()
	require.NoError(t, err, "%s", output)
	return worker
}

func TestTheDemoPassesOnTheServerOfTheContainers(t *testing.T) {
	worker := needsServer(t)
	demo := exec.CommandContext(t.Context(), worker, "demo", "--server", "postgres")
	output, err := demo.CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.NotContains(t, string(output), "NOT AS EXPECTED")
	assert.Regexp(t, `(?m)^All 16 scenes took`, string(output))
}

// The jobs of the containers run with every `docker compose up`, so both a new stack and one with data are set up here.
func TestTheJobsOfTheContainersSetUpNewAndKeptData(t *testing.T) {
	worker := needsServer(t)
	// A folder that every user may enter, unlike t.TempDir: Postgres does not run as root.
	dir, err := os.MkdirTemp("", "reclaim-deploy-test-*")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	start := func() *devstack.Stack {
		stack, err := devstack.Start(t.Context(), devstack.Options{
			Server: devstack.PostgresServer, Program: worker, Dir: dir, Progress: func(line string) { t.Log(line) },
		})
		require.NoError(t, err)
		return stack
	}
	stack := start()
	var moved int64
	database, err := pgx.Connect(t.Context(), stack.OwnerURL())
	require.NoError(t, err)
	assert.NoError(t, database.QueryRow(t.Context(), "SELECT count(*) FROM reclaim.accounts").Scan(&moved), "it is migrated")
	_, err = database.Exec(t.Context(), "CREATE TABLE reclaim.kept ()")
	require.NoError(t, err)
	require.NoError(t, database.Close(t.Context()))
	checkSetUp(t, stack, worker)
	require.NoError(t, stack.Close())

	stack = start()
	defer func() { assert.NoError(t, stack.Close()) }()
	checkSetUp(t, stack, worker)
	database, err = pgx.Connect(t.Context(), stack.OwnerURL())
	require.NoError(t, err)
	defer func() { _ = database.Close(t.Context()) }()
	_, err = database.Exec(t.Context(), "DROP TABLE reclaim.kept")
	require.NoError(t, err, "the data is kept")
}

func checkSetUp(t *testing.T, stack *devstack.Stack, worker string) {
	t.Helper()
	ctx := t.Context()
	database, err := pgx.Connect(ctx, stack.OwnerURL())
	require.NoError(t, err)
	defer func() { _ = database.Close(ctx) }()
	rows, err := database.Query(ctx, `SELECT rolname || ' ' || datname FROM pg_roles, pg_database
		WHERE rolcanlogin AND NOT rolsuper AND datname IN ('reclaim', 'temporal', 'temporal_visibility')
			AND has_database_privilege(pg_roles.oid, pg_database.oid, 'CONNECT') ORDER BY 1`)
	require.NoError(t, err)
	mayConnect, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	assert.Equal(t, []string{
		"reclaim_login reclaim", "reclaim_owner reclaim", "temporal temporal", "temporal temporal_visibility",
	}, mayConnect, "each login reaches its own databases only")
	var powerful int
	require.NoError(t, database.QueryRow(ctx, `SELECT count(*) FROM pg_roles WHERE rolname ~ '^(reclaim|temporal)'
		AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls)`).Scan(&powerful))
	assert.Zero(t, powerful)
	store, err := schema.Open(ctx, stack.AppURL(), schema.Options{})
	require.NoError(t, err)
	defer store.Close()
	require.NoError(t, schema.CheckVersion(ctx, store))

	service := stack.Temporal().WorkflowService()
	system, err := service.GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
	require.NoError(t, err)
	assert.Equal(t, localstack.TemporalServerVersion, system.GetServerVersion())
	file := readCompose(t)
	job := file.Services["temporal-namespace"].Environment
	namespace, err := service.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: job["TEMPORAL_NAMESPACE"]})
	require.NoError(t, err)
	retention, err := time.ParseDuration(regexp.MustCompile(`:-(.*)\}`).FindStringSubmatch(job["NAMESPACE_RETENTION"])[1])
	require.NoError(t, err)
	assert.Equal(t, retention, namespace.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())

	// What the containers' health checks ask.
	for service, address := range map[string]string{
		"temporal": stack.TemporalHTTP(), "gateway": stack.GatewayURL(), "simulator": stack.SimulatorURL(),
	} {
		test := file.Services[service].Healthcheck.Test
		asked, err := url.Parse(test[len(test)-1])
		require.NoError(t, err)
		response, err := http.Get(address + asked.Path)
		require.NoError(t, err, service)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusOK, response.StatusCode, service)
	}
	health := func(arguments ...string) (string, error) {
		command := exec.CommandContext(ctx, worker, append([]string{"health"}, arguments...)...)
		command.Env = append(localstack.CleanEnv("TEMPORAL_", "RECLAIM_"), "TEMPORAL_CONFIG_FILE=/dev/null",
			"TEMPORAL_ADDRESS="+stack.TemporalAddress(), "TEMPORAL_NAMESPACE="+job["TEMPORAL_NAMESPACE"])
		said, err := command.CombinedOutput()
		return strings.TrimSpace(string(said)), err
	}
	for _, name := range []string{"worker", "render"} {
		test := file.Services[name].Healthcheck.Test
		said, err := health(test[3:]...)
		require.NoError(t, err, "%s: %s", name, said)
		assert.Contains(t, said, "polls the task queue")
	}
	said, err := health("--task-queue", "nobody")
	require.Error(t, err)
	assert.Contains(t, said, "polls the task queue nobody")
}
