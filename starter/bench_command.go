package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

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
	var door bench.DoorOptions
	var measureDoor, measureOutbox bool
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure jobs against plain workflows on a running system, or the guard statements alone",
		Long: `Run jobs on a running system and, by turns, plain workflows that only run the same no-op work, compare their
summed times, and audit what the jobs left. With --guards, drive the charge and settle statements alone, against
pgbench where the machine has it. With --door, ask the HTTP door that RECLAIM_URL names: submissions against the Go
client's, reads while jobs run, and a long statement. With --enqueue, enqueue 100 jobs a second and tell how soon they
start. Everything happens on the tenant "bench".`,
		Args: cobra.NoArgs,
	}
	command.Flags().IntVar(&options.Jobs, "jobs", 2000, "how many jobs, and as many plain workflows")
	command.Flags().IntVar(&options.Concurrency, "concurrency", 32, "how many at once")
	command.Flags().IntVar(&options.Blocks, "blocks", 10, "how often the two take turns")
	command.Flags().BoolVar(&options.AwaitCharge, "await-charge", false, "start jobs as the client does, with await-charge")
	command.Flags().BoolVar(&guards, "guards", false, "measure the guard statements alone")
	command.Flags().BoolVar(&measureDoor, "door", false, "measure the HTTP door that RECLAIM_URL names")
	command.Flags().BoolVar(&measureOutbox, "enqueue", false, "measure how soon jobs start that are enqueued in transactions")
	command.Flags().Int64Var(&door.Entries, "entries", 1_000_000, "with --door, how many entries the statement has")
	command.Flags().IntVar(&door.ReadsPerSecond, "reads", 3300, "with --door, how many reads a second are offered; 0: as many as the clients can make")
	command.AddCommand(a.plainWorkerCommand())
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		a.began = true
		if options.Jobs < 1 || options.Concurrency < 1 || options.Blocks < 1 || options.Jobs < options.Blocks {
			return usagef("--jobs must be at least --blocks, and --blocks and --concurrency at least 1")
		}
		if measureDoor {
			if door.URL = a.getenv("RECLAIM_URL"); door.URL == "" {
				return usagef("RECLAIM_URL is missing: set it to the address of the HTTP door")
			}
			door.Jobs, door.Clients, door.Reading, door.JobsPerSecond = options.Jobs, 16, 15*time.Second, 20
			return a.explain(cmd.Context(), a.benchDoor(cmd.Context(), door))
		}
		if measureOutbox {
			return a.explain(cmd.Context(), a.benchOutbox(cmd.Context()))
		}
		return a.explain(cmd.Context(), a.bench(cmd.Context(), options, guards))
	}
	return command
}

// system connects to what is measured.
func (a *app) system(ctx context.Context, connections int) (system bench.System, databaseURL string, err error) {
	e, err := readEnvironment(a.getenv)
	if err != nil {
		return system, "", usagef("the environment has mistakes:\n%w", err)
	}
	if e.taskQueue == "" {
		e.taskQueue = contract.TaskQueue
	}
	if a.store, err = schema.Open(ctx, e.databaseURL, schema.Options{
		MaxConns: int32(connections), StatementTimeout: -1, Name: "reclaim-bench",
	}); err != nil {
		return system, "", usagef("%w", err)
	}
	a.ends = append(a.ends, a.store.Close)
	temporal, err := temporalclient.DialContext(ctx, e.temporal)
	if err != nil {
		return system, "", unreachable("reach Temporal", err)
	}
	a.ends = append(a.ends, temporal.Close)
	this, err := os.Executable()
	if err != nil {
		return system, "", fmt.Errorf("find this program, to decide plain workflows with: %w", err)
	}
	return bench.System{
		Temporal: temporal, Store: a.store, Client: client.New(temporal, a.store, e.taskQueue), TaskQueue: e.taskQueue,
		PlainWorker: []string{this, "bench", plainWorkerVerb},
	}, e.databaseURL, nil
}

func (a *app) benchDoor(ctx context.Context, options bench.DoorOptions) error {
	system, _, err := a.system(ctx, options.Clients)
	if err != nil {
		return err
	}
	options.Progress = a.stderr
	report, err := bench.Door(ctx, system, options)
	if err != nil {
		return err
	}
	return a.show(report, func(w io.Writer) { doorTable(w, report) })
}

func (a *app) benchOutbox(ctx context.Context) error {
	system, _, err := a.system(ctx, 16)
	if err != nil {
		return err
	}
	const perSecond, seconds = 100, 20
	report, err := bench.Enqueue(ctx, system, perSecond, seconds)
	if err != nil {
		return err
	}
	return a.show(report, func(w io.Writer) {
		line(w, "enqueued", fmt.Sprintf("%d jobs, %.1f a second", report.Enqueued, report.EnqueuedPerSecond))
		line(w, "transaction, ms", quantilesInWords(report.EnqueueMillis))
		line(w, "commit to started, ms", quantilesInWords(report.LagMillis))
		line(w, "delivered", fmt.Sprintf("%d, %d of them while jobs were enqueued; %.1f a second", report.Delivered,
			report.DeliveredMeanwhile, report.DeliveredPerSecond))
	})
}

func doorTable(w io.Writer, r bench.DoorReport) {
	line(w, "POST job, charged, ms", quantilesInWords(r.SubmitMillis))
	line(w, "Go client, charged, ms", quantilesInWords(r.GoMillis))
	line(w, "ratio", fmt.Sprintf("%.3f", r.SubmitRatio))
	offered := "as many as they can"
	if r.OfferedReadsPerSecond > 0 {
		offered = fmt.Sprint(r.OfferedReadsPerSecond)
	}
	line(w, "GET job/s", fmt.Sprintf("%.0f by %d clients, offered %s", r.ReadsPerSecond, r.Clients, offered))
	line(w, "door's processor, ms", fmt.Sprintf("%.3f a read", r.DoorReadMillis))
	line(w, "jobs/s meanwhile", fmt.Sprintf("%.1f ended, offered %d", r.JobsPerSecond, r.OfferedJobsPerSecond))
	line(w, "GET job, ms", quantilesInWords(r.ReadMillis))
	line(w, "statement", fmt.Sprintf("%d entries, %.0f MB in %.1f s", r.StatementEntries, float64(r.StatementBytes)/1e6, r.StatementSeconds))
	line(w, "door's memory then", fmt.Sprintf("%.0f MB at most", r.DoorMegabytes))
}

func quantilesInWords(q bench.Quantiles) string {
	return fmt.Sprintf("p50 %.1f  p95 %.1f  p99 %.1f", q.P50, q.P95, q.P99)
}

func (a *app) bench(ctx context.Context, options bench.Options, guards bool) error {
	system, databaseURL, err := a.system(ctx, options.Concurrency)
	if err != nil {
		return err
	}
	options.Progress = a.stderr
	if guards {
		lines, err := bench.Guards(ctx, system.Store, system.Client, bench.GuardOptions{
			Jobs: options.Jobs, Concurrency: options.Concurrency, DatabaseURL: databaseURL, Progress: a.stderr,
		})
		if err != nil {
			return err
		}
		depth, err := bench.Depth(ctx, system.Store)
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
	report, err := bench.Jobs(ctx, system, options)
	if err != nil {
		return err
	}
	audited, err := system.Client.Audit(ctx, bench.Tenant)
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
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(table, "jobs\t%d, %d at once, in %d blocks\n", r.Jobs, r.Concurrency, r.Blocks)
	_, _ = fmt.Fprintf(table, "jobs/s\t%.1f\n", r.JobsPerSecond)
	_, _ = fmt.Fprintf(table, "plain workflows/s\t%.1f\n", r.PlainPerSecond)
	_, _ = fmt.Fprintf(table, "ratio\t%.3f\n", r.Ratio)
	_, _ = fmt.Fprintf(table, "start to charged, ms\t%s\n", quantilesInWords(r.StartToCharged))
	_, _ = fmt.Fprintf(table, "start to delivered, ms\t%s\n", quantilesInWords(r.StartToDelivered))
	_, _ = fmt.Fprintf(table, "history of a job\t%d events at most, %d bytes on average\n", r.EventsPerJob, r.BytesPerJob)
	_, _ = fmt.Fprintf(table, "database growth\t%d bytes a job\n", r.DatabaseBytesPerJob)
	_ = table.Flush()
}
