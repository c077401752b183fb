package schema_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
)

// migrateEnv makes the test binary a process that migrates the database at the URL, and nothing else.
const migrateEnv = "RECLAIM_TEST_MIGRATE"

func TestMain(m *testing.M) {
	if url := os.Getenv(migrateEnv); url != "" {
		applied, err := schema.Migrate(context.Background(), url)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(applied)
		os.Exit(0)
	}
	os.Exit(schematest.Run(m))
}

// patience bounds every wait of a test.
const patience = 4 * time.Minute

func openPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func openStore(t *testing.T, url string, options schema.Options) *schema.Store {
	t.Helper()
	store, err := schema.Open(t.Context(), url, options)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

// loginOf gives the role that a URL logs in as.
func loginOf(t *testing.T, address string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	return parsed.User.Username()
}

// inDatabase gives the URL of another database on the same server.
func inDatabase(t *testing.T, address, name string) string {
	t.Helper()
	parsed, err := url.Parse(address)
	require.NoError(t, err)
	parsed.Path = "/" + name
	return parsed.String()
}

// fresh makes an empty database beside the given one, owned by its owner, and gives the owner's URL of it.
func fresh(t *testing.T, beside *schematest.Database, suffix string) (ownerURL string) {
	t.Helper()
	admin := openPool(t, beside.SuperuserURL)
	name := beside.Name + suffix
	_, err := admin.Exec(t.Context(), "CREATE DATABASE "+name+" OWNER "+loginOf(t, beside.OwnerURL))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		require.NoError(t, err)
	})
	return inDatabase(t, beside.OwnerURL, name)
}

// lines reads one text column, row by row.
func lines(t *testing.T, pool *pgxpool.Pool, sql string, arguments ...any) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, arguments...)
	require.NoError(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return all
}

// codeOf gives Postgres' code of an error, "" where it has none.
func codeOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never came about that %s", what)
		}
	}
}

// waitBlocked waits until the given number of sessions of the pool's database wait for locks.
func waitBlocked(t *testing.T, admin *pgxpool.Pool, sessions int) {
	t.Helper()
	wait(t, fmt.Sprint(sessions, " sessions wait for locks"), func() bool {
		var waiting int
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting == sessions
	})
}
