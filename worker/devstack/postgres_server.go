package devstack

import (
	"context"
	"fmt"
	"net"
	"os/exec"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/worker/deploy"
	"github.com/reclaimhq/reclaim/worker/localstack"
)

const (
	temporalLogin = "temporal"
	// namespace and retention are docker-compose.yml's.
	namespace = "reclaim"
	retention = "720h"
	// serverSessions is what the full server's pools, our workers' and those who look around may hold, in
	// docker-compose.yml, too.
	serverSessions = 300
)

// setUpDatabases makes the logins and databases of Reclaim and of Temporal. Reclaim's is migrated with the namespace.
func (s *Stack) setUpDatabases(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("psql"); err != nil {
		return "", fmt.Errorf("the databases of a full Temporal server are made by psql 14 or newer: install Postgres' client programs: %w", err)
	}
	superuser, err := pgx.ParseConfig(s.postgres.SuperuserURL("postgres"))
	if err != nil {
		return "", fmt.Errorf("read the address of the new Postgres: %w", err)
	}
	password := func(login string) string { return derivedPassword(login, superuser.Password) }
	s.ownerURL = s.postgres.URL(ownerRole, password(ownerRole), databaseName)
	s.appURL = s.postgres.URL(appLogin, password(appLogin), databaseName)
	s.temporalPassword = password(temporalLogin)
	host, port, err := net.SplitHostPort(s.postgres.Address())
	if err != nil {
		return "", fmt.Errorf("read the address of the new Postgres: %w", err)
	}
	return "reclaim, temporal and temporal_visibility", runScript(ctx, "setup-databases.sh", deploy.SetupDatabases, []string{
		"PGHOST=" + host, "PGPORT=" + port, "PGUSER=" + superuser.User, "PGPASSWORD=" + superuser.Password,
		"RECLAIM_OWNER_PASSWORD=" + password(ownerRole), "RECLAIM_LOGIN_PASSWORD=" + password(appLogin),
		"TEMPORAL_DB_PASSWORD=" + s.temporalPassword,
	})
}

// keepInPostgres brings the server's databases to its schema, and tells the options to run the server on them.
func (s *Stack) keepInPostgres(ctx context.Context, options *localstack.TemporalOptions) error {
	server, sqlTool, err := localstack.EnsureTemporalServer(ctx, s.options.Progress)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s.postgres.Address())
	if err != nil {
		return fmt.Errorf("read the address of the new Postgres: %w", err)
	}
	if err := runScript(ctx, "setup-schema.sh", deploy.SetupSchema, []string{
		"SQL_PLUGIN=postgres12", "SQL_HOST=" + host, "SQL_PORT=" + port, "SQL_USER=" + temporalLogin,
		"SQL_PASSWORD=" + s.temporalPassword, "TEMPORAL_SQL_TOOL=" + sqlTool,
	}); err != nil {
		return err
	}
	options.Binary, options.Namespace = server, namespace
	options.Server = &localstack.TemporalServer{
		Environment: append(deploy.ServerEnvironment(), "POSTGRES_SEEDS="+host, "DB_PORT="+port,
			"POSTGRES_USER="+temporalLogin, "POSTGRES_PWD="+s.temporalPassword),
		DynamicConfig: deploy.DynamicConfig,
	}
	return nil
}

// prepareNamespace makes the namespace of a full server, and lets the worker migrate Reclaim's database and register the
// search attributes.
func (s *Stack) prepareNamespace(ctx context.Context) (string, error) {
	tool, err := localstack.EnsureTemporal(ctx, s.options.Progress)
	if err != nil {
		return "", err
	}
	if err := runScript(ctx, "setup-namespace.sh", deploy.SetupNamespace, []string{
		"TEMPORAL_ADDRESS=" + s.temporal.Address(), "TEMPORAL_NAMESPACE=" + namespace, "NAMESPACE_RETENTION=" + retention,
		"TEMPORAL_TOOL=" + tool, "TEMPORAL_CONFIG_FILE=/dev/null",
	}); err != nil {
		return "", err
	}
	migrate := exec.CommandContext(ctx, s.options.Program, "migrate")
	migrate.Env = s.environment("RECLAIM_MIGRATE_URL=" + s.ownerURL)
	if said, err := migrate.CombinedOutput(); err != nil {
		return "", fmt.Errorf("worker migrate: %w; it said:\n%s", err, said)
	}
	return namespace + ", closed workflows are kept for " + retention, nil
}

// runScript runs a one-shot job of docker-compose.yml.
func runScript(ctx context.Context, name, text string, settings []string) error {
	script := exec.CommandContext(ctx, "sh", "-c", text, name)
	script.Env = append(localstack.CleanEnv("PG", "SQL_", "TEMPORAL_", "RECLAIM_"), settings...)
	if said, err := script.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w; it said:\n%s", name, err, said)
	}
	return nil
}
