package schema_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

func TestMigrateASecondTimeRunsNothing(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	url := fresh(t, database, "_fresh")
	store := openStore(t, url, schema.Options{})
	require.EqualError(t, schema.CheckVersion(t.Context(), store),
		"the database has no schema of Reclaim's: run `worker migrate` first")

	applied, err := schema.Migrate(t.Context(), url)
	require.NoError(t, err)
	assert.Positive(t, applied)
	require.NoError(t, schema.CheckVersion(t.Context(), store))
	for range 2 {
		again, err := schema.Migrate(t.Context(), url)
		require.NoError(t, err)
		assert.Zero(t, again)
	}
	_, err = store.Pool.Exec(t.Context(), "INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('a', 'b', 'C')")
	require.NoError(t, err, "the owner's own login acts as the application")
}

// Several deployments start at once on a server that has seen none, and one of them serves another database: the roles
// belong to all of them.
func TestL76_FirstMigrationsFromManyProcessesAtOnceMakeOneSchema(t *testing.T) {
	t.Parallel()
	server, err := localstack.StartPostgres(t.Context(), localstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	admin := openPool(t, server.SuperuserURL("postgres"))
	var urls []string
	for _, name := range []string{"one", "two"} {
		for _, sql := range []string{
			"CREATE ROLE owner_" + name + " LOGIN CREATEROLE NOSUPERUSER PASSWORD 'secret'",
			fmt.Sprintf("CREATE DATABASE %s OWNER owner_%s", name, name),
		} {
			_, err := admin.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		urls = append(urls, server.URL("owner_"+name, "secret", name))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	files, err := filepath.Glob("migrations/*.sql")
	require.NoError(t, err)
	var mu sync.Mutex
	var group sync.WaitGroup
	applied := map[string]string{}
	for i := range 8 {
		url := urls[i%2]
		group.Go(func() {
			var out string
			if i < 4 {
				process := exec.CommandContext(t.Context(), self)
				process.Env = append(os.Environ(), migrateEnv+"="+url)
				told, err := process.CombinedOutput()
				if !assert.NoError(t, err, string(told)) {
					return
				}
				out = string(told)
			} else {
				n, err := schema.Migrate(t.Context(), url)
				if !assert.NoError(t, err) {
					return
				}
				out = fmt.Sprint(n)
			}
			mu.Lock()
			defer mu.Unlock()
			if out != "0" {
				applied[url] += out
			}
		})
	}
	group.Wait()
	for _, url := range urls {
		assert.Equal(t, strconv.Itoa(len(files)), applied[url], "exactly one ran the migrations")
		store := openStore(t, url, schema.Options{})
		require.NoError(t, schema.CheckVersion(t.Context(), store))
		_, err := store.Pool.Exec(t.Context(), "INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('a', 'b', 'C')")
		require.NoError(t, err)
	}
}

// migrateTo brings a database to an older version of the schema.
func migrateTo(t *testing.T, ownerURL string, version int64) {
	t.Helper()
	pool, err := sql.Open("pgx", ownerURL)
	require.NoError(t, err)
	defer func() { assert.NoError(t, pool.Close()) }()
	_, err = pool.ExecContext(t.Context(), "CREATE SCHEMA reclaim")
	require.NoError(t, err)
	versions, err := database.NewStore(database.DialectPostgres, "reclaim.schema_migrations")
	require.NoError(t, err)
	provider, err := goose.NewProvider("", pool, os.DirFS("migrations"), goose.WithStore(versions))
	require.NoError(t, err)
	_, err = provider.UpTo(t.Context(), version)
	require.NoError(t, err)
}

// Version 7 makes the columns' rules domains. It finds rows and sessions that are older than it.
func TestMigrateFromVersion6KeepsRowsAndSessions(t *testing.T) {
	t.Parallel()
	beside := schematest.New(t)
	url := fresh(t, beside, "_six")
	migrateTo(t, url, 6)
	admin := openPool(t, inDatabase(t, beside.SuperuserURL, beside.Name+"_six"))
	_, err := admin.Exec(t.Context(), rowsOfVersion6)
	require.NoError(t, err)
	const files = `SELECT relname || ' ' || relfilenode FROM pg_class
		WHERE relnamespace = 'reclaim'::regnamespace AND relkind IN ('r', 'i') AND relname <> 'jobs_open' ORDER BY 1`
	rows, stored := contents(t, admin), lines(t, admin, files)
	app := openStore(t, inDatabase(t, beside.AppURL, beside.Name+"_six"), schema.Options{MaxConns: 1})
	read := func() error {
		job, err := app.GetJob(t.Context(), db.GetJobParams{TenantID: "acme", JobID: "job"})
		if err == nil {
			assert.EqualValues(t, 40, job.Cost)
		}
		return err
	}
	settle := func() (string, error) {
		row, err := app.SettleJob(t.Context(), db.SettleJobParams{
			TenantID: "acme", JobID: "job", Attempt: 1, Reason: "done", NotAfter: app.NotAfter(),
		})
		return row.Answer, err
	}
	require.NoError(t, read())
	// An instant that is past: the statement is prepared, and does nothing.
	late, err := app.SettleJob(t.Context(), db.SettleJobParams{TenantID: "acme", JobID: "job", Reason: "done"})
	require.NoError(t, err)
	require.Equal(t, "too_late", late.Answer)

	applied, err := schema.Migrate(t.Context(), url)
	require.NoError(t, err)
	assert.Positive(t, applied)
	assert.Equal(t, rows, contents(t, admin))
	assert.Subset(t, lines(t, admin, files), stored, "no table or key is written anew")

	if err := read(); err != nil {
		failure, ok := errors.AsType[*schema.Failure](schema.Classify("read", err))
		require.True(t, ok && failure.Retryable, "%v", err)
		require.NoError(t, read())
	}
	answer, err := settle()
	require.NoError(t, err)
	assert.Equal(t, "applied", answer)
	for _, test := range []struct{ sql, constraint string }{
		{"UPDATE reclaim.jobs SET attempts = -1", "attempt_count_check"},
		{"INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('acme', 'a b', 'CREDIT')", "plain_id_check"},
		{`INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
			VALUES ('acme', 'team', 3, 'topup', 5, 65, '')`, "entry_reason_check"},
	} {
		_, err := app.Pool.Exec(t.Context(), test.sql)
		assert.Equal(t, test.constraint, constraintOf(err), "%s: %v", test.sql, err)
	}
	_, err = openPool(t, url).Exec(t.Context(), "DELETE FROM reclaim.ledger_entries")
	assert.Equal(t, codeAppendOnly, codeOf(err))
}

func TestMigrateSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	_, err := schema.Migrate(t.Context(), database.AppURL)
	require.ErrorContains(t, err, fmt.Sprintf("the login %q may not migrate the database %q: set RECLAIM_MIGRATE_URL to the "+
		"owner's connection", loginOf(t, database.AppURL), database.Name))
	_, err = schema.Migrate(t.Context(), strings.Replace(database.OwnerURL, "127.0.0.1:", "127.0.0.1:1", 1))
	require.Error(t, err)
	_, err = schema.Migrate(t.Context(), "postgres://me:hunter2@[::1:bad/x")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hunter2")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = schema.Migrate(canceled, database.OwnerURL)
	require.ErrorIs(t, err, context.Canceled)
}
