package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"
	temporalclient "go.temporal.io/sdk/client"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/starter/bench"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (a *app) benchCommand() *cobra.Command {
	options := bench.Options{}
	var guards bool
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure jobs against plain workflows on a running system, or the guard statements alone",
		Long: `Run jobs on a running system and, by turns, plain workflows that only run the same no-op work, compare their
summed times, and audit what the jobs left. With --guards, drive the charge and settle statements alone, against
pgbench where the machine has it. Everything happens on the tenant "bench".`,
		Args: cobra.NoArgs,
	}
	command.Flags().IntVar(&options.Jobs, "jobs", 2000, "how many jobs, and as many plain workflows")
	command.Flags().IntVar(&options.Concurrency, "concurrency", 32, "how many at once")
	command.Flags().IntVar(&options.Blocks, "blocks", 10, "how often the two take turns")
	command.Flags().BoolVar(&options.AwaitCharge, "await-charge", false, "start jobs as the client does, with await-charge")
	command.Flags().BoolVar(&guards, "guards", false, "measure the guard statements alone")
	command.AddCommand(a.plainWorkerCommand())
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		a.began = true
		if options.Jobs < 1 || options.Concurrency < 1 || options.Blocks < 1 || options.Jobs < options.Blocks {
			return usagef("--jobs must be at least --blocks, and --blocks and --concurrency at least 1")
		}
		return a.explain(cmd.Context(), a.bench(cmd.Context(), options, guards))
	}
	return command
}

func (a *app) bench(ctx context.Context, options bench.Options, guards bool) error {
	e, err := readEnvironment(a.getenv)
	if err != nil {
		return usagef("the environment has mistakes:\n%w", err)
	}
	if e.taskQueue == "" {
		e.taskQueue = contract.TaskQueue
	}
	store, err := schema.Open(ctx, e.databaseURL, schema.Options{
		MaxConns: int32(options.Concurrency), StatementTimeout: -1, Name: "reclaim-bench",
	})
	if err != nil {
		return usagef("%w", err)
	}
	a.store, a.ends = store, append(a.ends, store.Close)
	temporal, err := temporalclient.DialContext(ctx, e.temporal)
	if err != nil {
		return unreachable("reach Temporal", err)
	}
	defer temporal.Close()
	c := client.New(temporal, store, e.taskQueue)
	options.Progress = a.stderr
	if guards {
		lines, err := bench.Guards(ctx, store, c, bench.GuardOptions{
			Jobs: options.Jobs, Concurrency: options.Concurrency, DatabaseURL: e.databaseURL, Progress: a.stderr,
		})
		if err != nil {
			return err
		}
		depth, err := bench.Depth(ctx, store)
		if err != nil {
			return err
		}
		value := struct {
			Statements []bench.GuardLine `json:"statements"`
			Depth      bench.DepthReport `json:"depth"`
		}{lines, depth}
		return a.show(value, func(w io.Writer) {
			guardsTable(w, lines)
			_, _ = fmt.Fprintf(w, "\ncharge on an account of %d entries: p50 %.2f ms; of %d entries: p50 %.2f ms; ratio %.2f\n",
				depth.ShortEntries, depth.ShortMillis.P50, depth.LongEntries, depth.LongMillis.P50, depth.Ratio)
		})
	}
	this, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to decide plain workflows with: %w", err)
	}
	report, err := bench.Jobs(ctx, bench.System{
		Temporal: temporal, Store: store, Client: c, TaskQueue: e.taskQueue, PlainWorker: []string{this, "bench", plainWorkerVerb},
	}, options)
	if err != nil {
		return err
	}
	audited, err := c.Audit(ctx, bench.Tenant)
	if err != nil {
		return err
	}
	value := struct {
		bench.JobsReport
		Audit client.AuditReport `json:"audit"`
	}{report, audited}
	if err := a.show(value, func(w io.Writer) {
		benchTable(w, report)
		_, _ = fmt.Fprintln(w)
		auditTable(w, audited)
	}); err != nil {
		return err
	}
	if !audited.Sound {
		return errShown
	}
	return nil
}

const plainWorkerVerb = "plain-worker"

// plainWorkerCommand is what the bench starts to have plain workflows decided in a process of their own.
func (a *app) plainWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use: plainWorkerVerb + " TASK-QUEUE", Short: "Decide the bench's plain workflows until standard input ends",
		Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.began = true
			e, err := readEnvironment(a.getenv)
			if err != nil {
				return usagef("the environment has mistakes:\n%w", err)
			}
			temporal, err := temporalclient.DialContext(cmd.Context(), e.temporal)
			if err != nil {
				return unreachable("reach Temporal", err)
			}
			defer temporal.Close()
			ctx, stop := context.WithCancel(cmd.Context())
			go func() {
				defer stop()
				_, _ = io.Copy(io.Discard, a.stdin)
			}()
			return bench.ServePlain(ctx, temporal, args[0])
		},
	}
}

func guardsTable(w io.Writer, lines []bench.GuardLine) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "STATEMENT\tLOAD\tGO/S\tPGBENCH/S\tRATIO\tP50 MS\tP95 MS\tP99 MS")
	for _, l := range lines {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.2f\n", l.Statement, l.Load, l.GoPerSecond,
			l.PgbenchPerSecond, l.Ratio, l.Millis.P50, l.Millis.P95, l.Millis.P99)
	}
	_ = table.Flush()
}

func benchTable(w io.Writer, r bench.JobsReport) {
	quantiles := func(q bench.Quantiles) string {
		return fmt.Sprintf("p50 %.1f  p95 %.1f  p99 %.1f", q.P50, q.P95, q.P99)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "jobs\t%d, %d at once, in %d blocks\n", r.Jobs, r.Concurrency, r.Blocks)
	_, _ = fmt.Fprintf(table, "jobs/s\t%.1f\n", r.JobsPerSecond)
	_, _ = fmt.Fprintf(table, "plain workflows/s\t%.1f\n", r.PlainPerSecond)
	_, _ = fmt.Fprintf(table, "ratio\t%.3f\n", r.Ratio)
	_, _ = fmt.Fprintf(table, "start to charged, ms\t%s\n", quantiles(r.StartToCharged))
	_, _ = fmt.Fprintf(table, "start to delivered, ms\t%s\n", quantiles(r.StartToDelivered))
	_, _ = fmt.Fprintf(table, "history of a job\t%d events at most, %d bytes on average\n", r.EventsPerJob, r.BytesPerJob)
	_ = table.Flush()
}
