package schema_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

func TestEveryPooledConnectionActsAsTheApplication(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	for login, url := range map[string]string{
		"app": database.AppURL, "owner": database.OwnerURL, "superuser": database.SuperuserURL,
	} {
		store := openStore(t, url, schema.Options{MaxConns: 6, Name: "worker-1"})
		roles := map[string]int{}
		// Two rounds: the second one's connections are new.
		for range 2 {
			var held []*pgxpool.Conn
			for range 6 {
				connection, err := store.Pool.Acquire(t.Context())
				require.NoError(t, err)
				held = append(held, connection)
				var role, name, timeout string
				require.NoError(t, connection.QueryRow(t.Context(), `SELECT current_user, current_setting('application_name'),
					current_setting('statement_timeout')`).Scan(&role, &name, &timeout))
				roles[role]++
				assert.Equal(t, "worker-1", name)
				assert.Equal(t, "4s", timeout)
			}
			for _, connection := range held {
				_ = connection.Conn().Close(t.Context())
				connection.Release()
			}
		}
		assert.Equal(t, map[string]int{schema.AppRole: 12}, roles, login)
	}
}

func TestALoginThatMayNotActAsTheApplicationIsNamed(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	admin := openPool(t, database.SuperuserURL)
	stranger := database.Name + "_stranger"
	_, err := admin.Exec(t.Context(), "CREATE ROLE "+stranger+" LOGIN PASSWORD 'secret'")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP ROLE "+stranger)
		assert.NoError(t, err)
	})
	store := openStore(t, fmt.Sprintf("postgres://%s:secret@%s/%s", stranger, database.Address, database.Name), schema.Options{})
	_, err = store.DatabaseClock(t.Context())
	require.ErrorContains(t, err, stranger)
	require.ErrorContains(t, err, schema.AppRole)
	store.Close()
}

func TestAMissingRoleIsMendedByMigrating(t *testing.T) {
	t.Parallel()
	server, err := localstack.StartPostgres(t.Context(), localstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	store := openStore(t, server.SuperuserURL("postgres"), schema.Options{})
	_, err = store.DatabaseClock(t.Context())
	require.EqualError(t, err, "the database has no role reclaim_app: run `worker migrate` first")
	require.ErrorIs(t, err, schema.ErrNotMigrated)
	assert.Equal(t, schema.ErrorMisconfigured, classified(t, err).Type)
	store.Close()
}

func TestStatementTimeoutIsAnOption(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	for given, expected := range map[time.Duration]string{0: "4s", -1: "0", 90 * time.Second: "90s"} {
		store := openStore(t, database.AppURL, schema.Options{StatementTimeout: given})
		var timeout string
		require.NoError(t, store.Pool.QueryRow(t.Context(), "SELECT current_setting('statement_timeout')").Scan(&timeout))
		parsed, err := time.ParseDuration(timeout + map[bool]string{true: "s"}[timeout == "0"])
		require.NoError(t, err)
		wanted, err := time.ParseDuration(expected + map[bool]string{true: "s"}[expected == "0"])
		require.NoError(t, err)
		assert.Equal(t, wanted, parsed)
	}
}

// shiftableClock makes clock_timestamp() of new sessions return Postgres' clock shifted by what shift sets.
func shiftableClock(t *testing.T, admin *pgxpool.Pool, database *schematest.Database) (shift func(by string)) {
	t.Helper()
	for _, sql := range []string{
		"CREATE SCHEMA fake", "GRANT USAGE ON SCHEMA fake TO reclaim_app",
		"CREATE TABLE fake.shift AS SELECT interval '0' AS by", "GRANT SELECT ON fake.shift TO reclaim_app",
		`CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
			AS 'SELECT pg_catalog.clock_timestamp() + by FROM fake.shift'`,
		"ALTER DATABASE " + database.Name + " SET search_path = fake, pg_catalog",
	} {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	return func(by string) {
		_, err := admin.Exec(t.Context(), "UPDATE fake.shift SET by = $1", by)
		require.NoError(t, err)
	}
}

func TestNowFollowsPostgresClock(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	admin := openPool(t, database.SuperuserURL)
	shift := shiftableClock(t, admin, database)
	for _, by := range []string{"0", "3 days", "-2 hours"} {
		shift(by)
		store := openStore(t, database.AppURL, schema.Options{})
		assert.Less(t, lag(t, store), patience, "%s, at the first connection", by)
	}
	store := openStore(t, database.AppURL, schema.Options{})
	lag(t, store)
	shift("1 hour")
	require.Greater(t, lag(t, store), 2*time.Hour, "it does not know yet")
	require.NoError(t, store.Resync(t.Context()))
	assert.Less(t, lag(t, store), patience)
	before := store.Now()
	assert.InDelta(t, schema.NotAfterWindow, store.NotAfter().Sub(before), float64(time.Second))
	assert.False(t, store.Now().Before(before))
}

// lag measures how far Now is behind Postgres' clock, and that it is not ahead of it.
func lag(t *testing.T, store *schema.Store) time.Duration {
	t.Helper()
	// The first use connects, which measures.
	_, err := store.DatabaseClock(t.Context())
	require.NoError(t, err)
	estimate := store.Now()
	clock, err := store.DatabaseClock(t.Context())
	require.NoError(t, err)
	behind := clock.Sub(estimate)
	require.Positive(t, behind, "the estimate never runs ahead")
	return behind
}
