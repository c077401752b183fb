package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/worker/config"
)

func migrateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to the newest schema and the namespace to the search attributes",
		Long: "Bring the database to the newest schema, as RECLAIM_MIGRATE_URL (else DATABASE_URL), and register the " +
			"search attributes in the Temporal namespace. Safe to run again and from several places at once.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A migration asks no payment channel, so it needs none of their secrets.
			settings, err := config.Load(func(name string) string {
				if name == "RECLAIM_CHANNELS" {
					return ""
				}
				return os.Getenv(name)
			})
			if err != nil {
				return environmentError(err)
			}
			return migrate(cmd.Context(), settings, cmd.OutOrStdout())
		},
	}
}

// migrate does both halves, even where one fails, and joins their errors.
func migrate(ctx context.Context, settings config.Config, out io.Writer) error {
	applied, databaseErr := schema.Migrate(ctx, settings.MigrateURL)
	if databaseErr == nil {
		fmt.Fprintf(out, "database: %d migrations run, now at the newest schema\n", applied)
	}
	temporalErr := prepareNamespace(ctx, settings)
	if temporalErr == nil {
		fmt.Fprintf(out, "namespace %s: search attributes are registered\n", settings.Temporal.Namespace)
	}
	return errors.Join(databaseErr, temporalErr)
}

func prepareNamespace(ctx context.Context, settings config.Config) error {
	options := settings.Temporal
	options.Logger = config.SDKLogger(zap.NewNop())
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	temporal, err := client.DialContext(ctx, options)
	if err != nil {
		return fmt.Errorf("connect to Temporal at %s: %w", options.HostPort, err)
	}
	defer temporal.Close()
	return registerSearchAttributes(ctx, temporal, options.Namespace)
}
