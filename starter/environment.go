package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"go.temporal.io/api/serviceerror"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/log"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
	"github.com/reclaimhq/reclaim/workflows/contract/codec"
)

// environment is what the process is told besides its arguments.
type environment struct {
	databaseURL string
	taskQueue   string
	temporal    temporalclient.Options
}

// readEnvironment reads what the verbs need. The error joins every mistake, each naming its variable.
func readEnvironment(getenv func(string) string) (environment, error) {
	e := environment{databaseURL: getenv("DATABASE_URL"), taskQueue: getenv("RECLAIM_TASK_QUEUE")}
	var mistakes []error
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if e.databaseURL == "" {
		mistake("DATABASE_URL is missing: set it to postgres://user:password@host:port/database")
	} else if err := schema.CheckURL(e.databaseURL); err != nil {
		mistake("DATABASE_URL %w", err)
	}
	if len(e.taskQueue) > 200 || strings.HasPrefix(e.taskQueue, "/_sys/") {
		mistake("RECLAIM_TASK_QUEUE must have at most 200 characters and not begin with /_sys/")
	}
	if tenant := getenv("RECLAIM_TENANT"); tenant != "" && !contract.ValidID(tenant) {
		mistake("RECLAIM_TENANT must be 1 to 100 characters of A-Z a-z 0-9 . _ : -")
	}
	if len(getenv("RECLAIM_ACTOR")) > 200 {
		mistake("RECLAIM_ACTOR must have at most 200 bytes")
	}
	var err error
	e.temporal, err = envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{EnvLookup: lookup(getenv)})
	if err != nil {
		mistake("the TEMPORAL_… variables or their configuration file cannot be read: %w", err)
	}
	if err := codec.ApplyFile(&e.temporal, getenv(codec.KeysVariable)); err != nil {
		mistakes = append(mistakes, err)
	}
	// Requests are small: packing them takes more of both sides' processors than it saves of the network.
	e.temporal.ConnectionOptions.GrpcCompression = &temporalclient.GrpcCompressionNone{}
	// What the SDK logs, the verb's error says.
	e.temporal.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	return e, errors.Join(mistakes...)
}

// lookup lets the Temporal SDK read its variables through getenv.
type lookup func(string) string

// LookupEnv returns the variable's value and whether it is set; an empty one counts as unset.
func (l lookup) LookupEnv(name string) (string, bool) {
	value := l(name)
	return value, value != ""
}

// Environ lists the process' variables, whose names only the process knows.
func (l lookup) Environ() []string { return os.Environ() }

// explain replaces a failure whose own words do not say what to do about it: the Temporal namespace does not exist, or the
// database is not migrated.
func (a *app) explain(ctx context.Context, err error) error {
	if missing, ok := errors.AsType[*serviceerror.NamespaceNotFound](err); ok {
		return contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, fmt.Sprintf("the Temporal server has no "+
			"namespace %q: set TEMPORAL_NAMESPACE (or namespace in the profile that TEMPORAL_PROFILE names) to one that exists, "+
			"or create it", missing.Namespace), err)
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (strings.HasPrefix(pg.Code, "42") || pg.Code == "3F000") {
		if version := schema.CheckVersion(ctx, a.store); errors.Is(version, schema.ErrNotMigrated) {
			return contract.NewError(contract.CodeUnavailable, contract.RetrySameKey, version.Error(), err)
		}
	}
	return err
}

// connect prepares the client. Neither Postgres nor Temporal is called before a verb asks something of it.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	e, err := readEnvironment(a.getenv)
	if err != nil {
		return nil, usagef("the environment has mistakes:\n%w", err)
	}
	if a.tenant == "" {
		a.tenant = a.getenv("RECLAIM_TENANT")
	}
	if a.actor == "" {
		a.actor = a.getenv("RECLAIM_ACTOR")
	}
	a.store, err = schema.Open(ctx, e.databaseURL, schema.Options{Name: "reclaim-starter"})
	if err != nil {
		return nil, usagef("%w", err)
	}
	a.ends = append(a.ends, a.store.Close)
	temporal, err := temporalclient.NewLazyClient(e.temporal)
	if err != nil {
		return nil, usagef("the TEMPORAL_… variables cannot be used: %w", err)
	}
	a.ends = append(a.ends, temporal.Close)
	return client.New(temporal, a.store, e.taskQueue), nil
}
