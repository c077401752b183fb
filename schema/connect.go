package schema

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reclaimhq/reclaim/schema/db"
)

// StatementTimeout bounds one statement on Postgres' side, lock waits included. It is below MoneyAttempt, so that a
// statement has ended before its caller gives up on it and tries again.
const StatementTimeout = 4 * time.Second

// NotAfterWindow is how long after it was issued a money statement may still take effect, by Postgres' clock.
const NotAfterWindow = 4 * time.Second

// MoneyAttempt bounds one attempt at a money statement on the caller's side.
const MoneyAttempt = 5 * time.Second

// AppRole owns nothing and has no right to change what is append-only. Every connection of the application has it.
const AppRole = "reclaim_app"

// Store is a pool of connections that act as AppRole, with Postgres' clock.
type Store struct {
	Pool *pgxpool.Pool
	*db.Queries
	// offset is Postgres' clock minus this process' monotonic one (as wall time since start), in nanoseconds.
	offset atomic.Int64
	start  time.Time
}

// Options tune a Store. The zero value is right for short commands.
type Options struct {
	// MaxConns bounds the pool; 0 means 4.
	MaxConns int32
	// StatementTimeout replaces the package's; negative means none (audits and exports).
	StatementTimeout time.Duration
	// Name is shown in pg_stat_activity; empty means "reclaim".
	Name string
}

// Open prepares a Store for the database URL. It does not connect: the first use does, and every later use connects
// again where a connection was lost.
func Open(ctx context.Context, databaseURL string, options Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("DATABASE_URL %w", redact(err))
	}
	config.MaxConns = max(options.MaxConns, 4)
	timeout := options.StatementTimeout
	if timeout == 0 {
		timeout = StatementTimeout
	}
	params := config.ConnConfig.RuntimeParams
	params["statement_timeout"] = fmt.Sprint(max(timeout, 0).Milliseconds())
	params["idle_in_transaction_session_timeout"] = "60000"
	// Guards look rows up by their keys: one plan is right for every value, and planning anew costs a quarter of the call.
	params["plan_cache_mode"] = "force_generic_plan"
	if params["application_name"] == "" {
		params["application_name"] = "reclaim"
	}
	if options.Name != "" {
		params["application_name"] = options.Name
	}
	store := &Store{start: time.Now()}
	config.AfterConnect = store.afterConnect
	if store.Pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("prepare the connection pool: %w", redact(err))
	}
	store.Queries = db.New(store.Pool)
	return store, nil
}

// Close ends every connection, after those in use are given back.
func (s *Store) Close() { s.Pool.Close() }

// NotAfter returns the instant of Postgres' clock after which a money statement issued now must not take effect.
func (s *Store) NotAfter() time.Time { return s.Now().Add(NotAfterWindow) }

// Now estimates Postgres' clock. It does not follow this machine's wall clock, which may be shifted at any time.
func (s *Store) Now() time.Time {
	return s.start.Add(time.Since(s.start) + time.Duration(s.offset.Load())).Round(0)
}

// Resync measures Postgres' clock again. A money statement that was refused as too late calls for it.
func (s *Store) Resync(ctx context.Context) error {
	return s.Pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error { return s.measureClock(ctx, c.Conn()) })
}

func (s *Store) afterConnect(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "SET ROLE "+AppRole); err != nil {
		if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (pg.Code == "42704" || pg.Code == "22023") {
			return fmt.Errorf("the database has no role %s: %w", AppRole, ErrNotMigrated)
		}
		return fmt.Errorf("act as %s (grant it to %q): %w", AppRole, conn.Config().User, err)
	}
	return s.measureClock(ctx, conn)
}

func (s *Store) measureClock(ctx context.Context, conn *pgx.Conn) error {
	now, err := db.New(conn).DatabaseClock(ctx)
	if err != nil {
		return fmt.Errorf("read Postgres' clock: %w", err)
	}
	// Taken as if the answer needed no time to arrive, the estimate lags by that time and never runs ahead.
	s.offset.Store(int64(now.Sub(s.start.Add(time.Since(s.start)))))
	return nil
}
