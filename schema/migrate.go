package schema

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver that goose runs on
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock that one migrating process holds at a time: the bytes of "reclaim".
const migrationLock int64 = 0x7265636c61696d

// Migrate brings the database at ownerURL to the newest schema and returns how many migrations it ran. It is safe to
// run again and from several processes at once. The login must be able to create the roles reclaim_app and
// reclaim_support, or they must exist; a login that is to run the application from the same URL is made a member of
// reclaim_app.
func Migrate(ctx context.Context, ownerURL string) (applied int, err error) {
	config, err := pgx.ParseConfig(ownerURL)
	if err != nil {
		return 0, fmt.Errorf("the owner's database URL %w", redact(err))
	}
	lock, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return 0, fmt.Errorf("connect to Postgres as the owner %q: %w", config.User, redact(err))
	}
	// Closing the session is what releases the advisory lock.
	defer func() { _ = lock.Close(context.WithoutCancel(ctx)) }()
	if _, err := lock.Exec(ctx, "SELECT pg_advisory_lock($1)", migrationLock); err != nil {
		return 0, fmt.Errorf("wait for another migration to finish: %w", err)
	}
	if _, err := lock.Exec(ctx, "CREATE SCHEMA IF NOT EXISTS reclaim"); err != nil {
		return 0, fmt.Errorf("create the schema reclaim: %w", needsOwner(config, err))
	}
	pool, err := sql.Open("pgx", ownerURL)
	if err != nil {
		return 0, fmt.Errorf("open the database for migrations: %w", redact(err))
	}
	defer func() { _ = pool.Close() }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, fmt.Errorf("read the embedded migrations: %w", err)
	}
	store, err := database.NewStore(database.DialectPostgres, "reclaim.schema_migrations")
	if err != nil {
		return 0, fmt.Errorf("prepare the migration table: %w", err)
	}
	provider, err := goose.NewProvider("", pool, files, goose.WithStore(store), goose.WithVerbose(false))
	if err != nil {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return len(results), fmt.Errorf("run the migrations: %w", needsOwner(config, err))
	}
	// From Postgres 16 on, who creates a role may grant it but not act as it; SET is what the pool needs.
	if _, err := lock.Exec(ctx, `DO $$ BEGIN
		IF NOT pg_has_role(current_user, 'reclaim_app',
			CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END) THEN
			EXECUTE format('GRANT reclaim_app TO %I', current_user);
		END IF;
	END $$`); err != nil {
		return len(results), fmt.Errorf("let the owner %q act as reclaim_app: %w", config.User, err)
	}
	return len(results), nil
}

// needsOwner says which login a migration needs, where this one lacks a right.
func needsOwner(config *pgx.ConnConfig, err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" {
		return fmt.Errorf("the login %q may not migrate the database %q: set RECLAIM_MIGRATE_URL to the owner's connection "+
			"(the owner needs CREATE on the database, and CREATEROLE unless the roles reclaim_app and reclaim_support exist): %w",
			config.User, config.Database, pg)
	}
	return err
}

// ErrNotMigrated marks what fails because the database lacks migrations that this program was built with.
var ErrNotMigrated = errors.New("run `worker migrate` first")

// CheckVersion fails, with ErrNotMigrated, where the database is behind the migrations that this program was built with;
// it fails, too, where the database cannot be reached.
func CheckVersion(ctx context.Context, store *Store) error {
	var version int64
	err := store.Pool.QueryRow(ctx,
		"SELECT coalesce(max(version_id), 0) FROM reclaim.schema_migrations WHERE is_applied").Scan(&version)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "42P01" || pg.Code == "3F000") {
		return fmt.Errorf("the database has no schema of Reclaim's: %w", ErrNotMigrated)
	}
	if err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	newest, err := goose.NumericComponent(names[len(names)-1])
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	if version < newest {
		return fmt.Errorf("the database is at schema version %d and this program needs %d: %w", version, newest, ErrNotMigrated)
	}
	return nil
}
