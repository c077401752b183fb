package localstack

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPostgresSurvivesStopAndKill(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	postgres := startPostgres(t, PostgresOptions{})
	execute(t, postgres, "CREATE TABLE kept (n int)")

	for i, end := range []func(){postgres.Stop, postgres.Kill} {
		execute(t, postgres, fmt.Sprintf("INSERT INTO kept VALUES (%d)", i))
		address, exited, family := postgres.Address(), postgres.Exited(), familyOf(t, postgres.server)
		assert.Greater(t, len(family), 3, "the server and its helpers")
		end()
		assertClosed(t, exited)
		assertGone(t, family)
		_, err := pgx.Connect(ctx, postgres.SuperuserURL("postgres"))
		require.Error(t, err, "nothing answers while the server is down")

		require.NoError(t, postgres.Restart(ctx))
		assert.Equal(t, address, postgres.Address())
		assert.Equal(t, i+1, count(t, postgres, "kept"))
	}
	postgres.Kill()
	postgres.Kill()
	postgres.Stop()
}

func TestPostgresKillEndsBusySessions(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	postgres := startPostgres(t, PostgresOptions{})
	busy := make(chan error, 1)
	connection, err := pgx.Connect(ctx, postgres.SuperuserURL("postgres"))
	require.NoError(t, err)
	go func() {
		// A session that computes never looks whether its server still lives.
		_, err := connection.Exec(ctx, "SELECT count(*) FROM generate_series(1, 100000000000)")
		busy <- err
	}()
	require.Eventually(t, func() bool {
		return count(t, postgres, "pg_stat_activity WHERE state = 'active' AND query LIKE '%generate_series%' AND pid <> pg_backend_pid()") == 1
	}, 2*time.Minute, 10*time.Millisecond)
	family := familyOf(t, postgres.server)
	postgres.Kill()
	assertGone(t, family)
	require.Error(t, <-busy)
	require.NoError(t, postgres.Restart(ctx))
}

func TestPostgresReopensItsData(t *testing.T) {
	t.Parallel()
	dir := openDir(t)
	first := startPostgres(t, PostgresOptions{Dir: dir, Durable: true, MaxConnections: 20})
	execute(t, first, "CREATE TABLE kept AS SELECT 1 AS n")
	assert.Equal(t, filepath.Join(dir, "postgres"), first.Dir())
	assert.Equal(t, "on", show(t, first, "fsync"))
	assert.Equal(t, "20", show(t, first, "max_connections"))
	info, err := os.Stat(filepath.Join(first.Dir(), "password"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	_, err = StartPostgres(testContext(t), PostgresOptions{Dir: dir})
	require.ErrorContains(t, err, "in use by another copy")

	require.NoError(t, first.Close())
	second := startPostgres(t, PostgresOptions{Dir: dir})
	assert.Equal(t, 1, count(t, second, "kept"))
	assert.Equal(t, "off", show(t, second, "fsync"))
}

func TestPostgresTellsWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	_, err = StartPostgres(testContext(t), PostgresOptions{Port: listener.Addr().(*net.TCPAddr).Port})
	require.ErrorIs(t, err, errPortTaken)
	require.ErrorContains(t, err, "choose another port")

	_, err = StartPostgres(testContext(t), PostgresOptions{MaxConnections: -1})
	require.ErrorContains(t, err, "max_connections", "the log is quoted")

	ended, end := context.WithCancel(testContext(t))
	end()
	_, err = StartPostgres(ended, PostgresOptions{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestPostgresRemovesTemporaryData(t *testing.T) {
	t.Parallel()
	postgres, err := StartPostgres(testContext(t), PostgresOptions{})
	require.NoError(t, err)
	family := familyOf(t, postgres.server)
	require.NoError(t, postgres.Close())
	assertGone(t, family)
	assert.NoDirExists(t, filepath.Dir(postgres.Dir()))
}

func TestPostgresAvoidsFoldersClosedToItsUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs Postgres as another user")
	}
	dir := filepath.Join(openDir(t), "closed", "inner")
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o700))
	var told []string
	postgres := startPostgres(t, PostgresOptions{Dir: dir, Progress: func(line string) { told = append(told, line) }})
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(postgres.Dir())) })
	assert.Contains(t, postgres.Dir(), rootHome)
	require.Len(t, told, 1)
	assert.Contains(t, told[0], dir)
	assert.Contains(t, told[0], filepath.Dir(postgres.Dir()))
}

func startPostgres(t *testing.T, options PostgresOptions) *Postgres {
	t.Helper()
	postgres, err := StartPostgres(testContext(t), options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = postgres.Close() })
	return postgres
}

func execute(t *testing.T, postgres *Postgres, statement string) {
	t.Helper()
	connection, err := pgx.Connect(testContext(t), postgres.SuperuserURL("postgres"))
	require.NoError(t, err)
	_, err = connection.Exec(testContext(t), statement)
	require.NoError(t, err)
	require.NoError(t, connection.Close(testContext(t)))
}

func count(t *testing.T, postgres *Postgres, from string) int {
	t.Helper()
	return query[int](t, postgres, "SELECT count(*) FROM "+from)
}

func show(t *testing.T, postgres *Postgres, setting string) string {
	t.Helper()
	return query[string](t, postgres, "SELECT current_setting('"+setting+"')")
}

func query[T any](t *testing.T, postgres *Postgres, statement string) (value T) {
	t.Helper()
	connection, err := pgx.Connect(testContext(t), postgres.SuperuserURL("postgres"))
	require.NoError(t, err)
	require.NoError(t, connection.QueryRow(testContext(t), statement).Scan(&value))
	require.NoError(t, connection.Close(testContext(t)))
	return value
}
