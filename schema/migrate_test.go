package schema_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
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
			applied[url] += out
		})
	}
	group.Wait()
	for _, url := range urls {
		assert.Equal(t, strconv.Itoa(len(files)), strings.ReplaceAll(applied[url], "0", ""), "exactly one ran the migrations")
		store := openStore(t, url, schema.Options{})
		require.NoError(t, schema.CheckVersion(t.Context(), store))
		_, err := store.Pool.Exec(t.Context(), "INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('a', 'b', 'C')")
		require.NoError(t, err)
	}
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
