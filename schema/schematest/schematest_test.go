package schematest_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

func TestMain(m *testing.M) { os.Exit(schematest.Run(m)) }

func TestEachTestHasItsOwnMigratedDatabase(t *testing.T) {
	t.Parallel()
	one, two := schematest.New(t), schematest.New(t)
	assert.NotEqual(t, one.Name, two.Name)
	owner := connect(t, one.OwnerURL)
	execute(t, owner, "CREATE TABLE only_here (n int)")
	assert.Equal(t, 1, count(t, owner, "pg_tables WHERE tablename = 'only_here'"))
	assert.Equal(t, 0, count(t, connect(t, two.OwnerURL), "pg_tables WHERE tablename = 'only_here'"))
	assert.Positive(t, count(t, owner, "reclaim.schema_migrations"))
}

func TestLoginRolesHaveTheRightsTheyClaim(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	const rights = "SELECT rolsuper, rolcreaterole, current_user = (SELECT pg_get_userbyid(datdba) FROM pg_database " +
		"WHERE datname = current_database()) FROM pg_roles WHERE rolname = current_user"
	for url, expected := range map[string][3]bool{
		database.OwnerURL: {false, true, true},
		database.AppURL:   {false, false, false},
	} {
		var actual [3]bool
		require.NoError(t, connect(t, url).QueryRow(testContext(t), rights).Scan(&actual[0], &actual[1], &actual[2]))
		assert.Equal(t, expected, actual)
	}
	execute(t, connect(t, database.AppURL), "SET ROLE reclaim_app")
	assert.Equal(t, 1, count(t, connect(t, database.SuperuserURL), "pg_roles WHERE rolname = current_user AND rolsuper"))
}

func TestDatabaseIsDroppedWithItsTest(t *testing.T) {
	t.Parallel()
	outer := schematest.New(t)
	var name string
	t.Run("inner", func(t *testing.T) {
		inner := schematest.New(t)
		name = inner.Name
		// A session that the test forgot does not keep its database alive.
		_, err := pgx.Connect(testContext(t), inner.OwnerURL)
		require.NoError(t, err)
	})
	require.NotEmpty(t, name)
	assert.Equal(t, 0, count(t, connect(t, outer.SuperuserURL), "pg_database WHERE datname = '"+name+"'"))
}

func TestNewOnAServerThatIsKilled(t *testing.T) {
	t.Parallel()
	server, err := localstack.StartPostgres(testContext(t), localstack.PostgresOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	database := schematest.NewOn(t, server.SuperuserURL("postgres"))
	execute(t, connect(t, database.OwnerURL), "CREATE TABLE kept AS SELECT 1 AS n")
	server.Kill()
	require.NoError(t, server.Restart(testContext(t)))
	assert.Equal(t, 1, count(t, connect(t, database.OwnerURL), "kept"))
	schematest.NewOn(t, server.SuperuserURL("postgres"))
}

// testContext bounds everything a test waits for.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	connection, err := pgx.Connect(testContext(t), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close(context.Background()) })
	return connection
}

func execute(t *testing.T, connection *pgx.Conn, sql string, arguments ...any) {
	t.Helper()
	_, err := connection.Exec(testContext(t), sql, arguments...)
	require.NoError(t, err)
}

func count(t *testing.T, connection *pgx.Conn, from string) (n int) {
	t.Helper()
	require.NoError(t, connection.QueryRow(testContext(t), "SELECT count(*) FROM "+from).Scan(&n))
	return n
}
