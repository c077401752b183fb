package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	commonpb "go.temporal.io/api/common/v1"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Options say what to measure.
type Options struct {
	// Jobs is how many of each kind are run in all, Concurrency how many at once.
	Jobs        int
	Concurrency int
	// Blocks is how often the two kinds take turns; single blocks scatter by several per cent.
	Blocks int
	// AwaitCharge starts jobs as the client does, with await-charge, instead of with a plain start.
	AwaitCharge bool
	// Progress is told of every block; nil for none.
	Progress io.Writer
}

// System is what is measured: the connections to a running Reclaim. TaskQueue is where its worker polls.
type System struct {
	Temporal  temporalclient.Client
	Store     *schema.Store
	Client    *client.Client
	TaskQueue string
	// PlainWorker is the command, to which a task queue is added, of a process that does ServePlain: plain workflows are
	// then decided as jobs are, in a process apart from the work's and the caller's. Where it is empty, this process does it.
	PlainWorker []string
}

// Quantiles are times in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// JobsReport is what Jobs measured.
type JobsReport struct {
	Jobs        int  `json:"jobs"`
	Concurrency int  `json:"concurrency"`
	Blocks      int  `json:"blocks"`
	AwaitCharge bool `json:"awaitCharge"`
	// JobsPerSecond and PlainPerSecond are over the summed times of all blocks; Ratio is the first by the second.
	JobsPerSecond    float64   `json:"jobsPerSecond"`
	PlainPerSecond   float64   `json:"plainPerSecond"`
	Ratio            float64   `json:"ratio"`
	StartToCharged   Quantiles `json:"startToChargedMs"`
	StartToDelivered Quantiles `json:"startToDeliveredMs"`
	// EventsPerJob is the most events that a job's history had, BytesPerJob the mean size.
	EventsPerJob int64 `json:"eventsPerJob"`
	BytesPerJob  int64 `json:"bytesPerJob"`
	// DatabaseBytesPerJob is how much a job made the database's tables and indexes grow.
	DatabaseBytesPerJob int64 `json:"databaseBytesPerJob"`
}

const (
	Tenant       = "bench"
	workActivity = "BenchNoop"
	plainType    = "BenchPlain"
	accounts     = 32
	perAccount   = 1_000_000
)

// limit is the work's timeout in both kinds, and the job's promise. It is longer than a measurement, so that the timers of
// jobs that are done do not come due in the middle of later blocks.
const limit = 10 * time.Minute

func noop(context.Context, json.RawMessage, json.RawMessage) (string, error) { return "done", nil }

// plain is the workflow that jobs are compared with: it runs the work and nothing else.
func plain(ctx workflow.Context, queue string, input converter.RawValue) (string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{TaskQueue: queue, StartToCloseTimeout: limit})
	var result string
	err := workflow.ExecuteActivity(ctx, workActivity, input, input).Get(ctx, &result)
	return result, err
}

// Jobs runs jobs and plain workflows by turns and compares their summed times. The work is a no-op activity that this
// process runs.
func Jobs(ctx context.Context, system System, o Options) (JobsReport, error) {
	if o.Jobs < o.Blocks || o.Concurrency < 1 || o.Blocks < 1 {
		return JobsReport{}, contract.NewError(contract.CodeBadInput, contract.RetryNewKey, fmt.Sprintf(
			"jobs (%d) must be at least the number of blocks (%d), and concurrency (%d) at least 1",
			o.Jobs, o.Blocks, o.Concurrency), nil)
	}
	session := strings.ToLower(rand.Text()[:10])
	if err := fund(ctx, system.Client, session); err != nil {
		return JobsReport{}, err
	}
	b := &run{System: system, Options: o, session: session, work: "bench-work-" + session, plain: "bench-plain-" + session}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := b.startWorkers(ctx, cancel)
	if err != nil {
		return JobsReport{}, err
	}
	defer stop()

	var jobTime, plainTime time.Duration
	// One small block of each warms caches and pollers up and is not counted.
	for _, block := range []func(context.Context, int, int) (time.Duration, error){b.jobBlock, b.plainBlock} {
		if _, err := block(ctx, -1, min(50, o.Jobs/o.Blocks)); err != nil {
			return JobsReport{}, err
		}
	}
	b.charged, b.delivered, b.ids = nil, nil, nil
	before, err := b.Store.JobBytes(ctx)
	if err != nil {
		return JobsReport{}, fmt.Errorf("measure the tables: %w", err)
	}
	for i := range o.Blocks {
		size := (o.Jobs*(i+1))/o.Blocks - (o.Jobs*i)/o.Blocks
		// Turns change order from block to block, so that neither kind always runs on the warmer machine.
		kinds := []struct {
			sum *time.Duration
			run func(context.Context, int, int) (time.Duration, error)
		}{{&jobTime, b.jobBlock}, {&plainTime, b.plainBlock}}
		if i%2 == 1 {
			slices.Reverse(kinds)
		}
		for _, kind := range kinds {
			spent, err := kind.run(ctx, i, size)
			if err != nil {
				return JobsReport{}, err
			}
			*kind.sum += spent
		}
		if o.Progress != nil {
			fmt.Fprintf(o.Progress, "block %d of %d: ratio so far %.3f\n", i+1, o.Blocks, plainTime.Seconds()/jobTime.Seconds())
		}
	}
	report := JobsReport{
		Jobs: o.Jobs, Concurrency: o.Concurrency, Blocks: o.Blocks, AwaitCharge: o.AwaitCharge,
		JobsPerSecond: float64(o.Jobs) / jobTime.Seconds(), PlainPerSecond: float64(o.Jobs) / plainTime.Seconds(),
		Ratio:          plainTime.Seconds() / jobTime.Seconds(),
		StartToCharged: quantiles(b.charged), StartToDelivered: quantiles(b.delivered),
	}
	after, err := b.Store.JobBytes(ctx)
	if err != nil {
		return JobsReport{}, fmt.Errorf("measure the tables: %w", err)
	}
	report.DatabaseBytesPerJob = (after - before) / int64(o.Jobs)
	report.EventsPerJob, report.BytesPerJob, err = b.historySizes(ctx)
	return report, err
}

func fund(ctx context.Context, c *client.Client, session string) error {
	for i := range accounts {
		if _, err := c.TopUp(ctx, client.Movement{
			Tenant: Tenant, Actor: "bench", Account: account(i), Key: fmt.Sprintf("%s-%d", session, i), Amount: perAccount, Reason: "bench",
		}); err != nil {
			return err
		}
	}
	return nil
}

func account(i int) string { return fmt.Sprintf("account-%d", i%accounts) }

// run is the state of one measurement.
type run struct {
	System
	Options
	session string
	// work and plain are the task queues of the no-op work, which both kinds run, and of the plain workflows.
	work, plain string

	mu        sync.Mutex
	charged   []time.Duration
	delivered []time.Duration
	ids       []string
}

// startWorkers polls for the work and for the plain workflows. Where the latter cannot be decided, fail is told why: nothing
// would end otherwise.
func (b *run) startWorkers(ctx context.Context, fail context.CancelCauseFunc) (stop func(), err error) {
	crew := worker.New(b.Temporal, b.work, worker.Options{ActivityTaskPollerBehavior: scaling()})
	crew.RegisterActivityWithOptions(noop, activity.RegisterOptions{Name: workActivity})
	if err := crew.Start(); err != nil {
		return nil, fmt.Errorf("start the worker of the no-op work: %w", err)
	}
	decider, stopDecider := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := b.servePlain(decider); err != nil && decider.Err() == nil {
			fail(fmt.Errorf("decide plain workflows: %w", err))
		}
	}()
	return func() {
		stopDecider()
		<-ended
		crew.Stop()
	}, nil
}

func (b *run) servePlain(ctx context.Context) error {
	if len(b.PlainWorker) == 0 {
		return ServePlain(ctx, b.Temporal, b.plain)
	}
	command := exec.CommandContext(ctx, b.PlainWorker[0], append(b.PlainWorker[1:], b.plain)...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = 10 * time.Second
	command.Stderr = os.Stderr
	// Nothing is ever written: its end tells the process that this one is gone, in whatever way.
	_, err := command.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the worker of the plain workflows: %w", err)
	}
	return command.Run()
}

// ServePlain polls for plain workflows until ctx ends, as a job's worker polls for jobs.
func ServePlain(ctx context.Context, temporal temporalclient.Client, queue string) error {
	decider := worker.New(temporal, queue, worker.Options{WorkflowTaskPollerBehavior: scaling()})
	decider.RegisterWorkflowWithOptions(plain, workflow.RegisterOptions{Name: plainType})
	if err := decider.Start(); err != nil {
		return fmt.Errorf("start the worker of the plain workflows: %w", err)
	}
	<-ctx.Done()
	decider.Stop()
	return nil
}

// scaling polls as Reclaim's worker does, with two pollers for each of the four partitions of a task queue at least.
func scaling() worker.PollerBehavior {
	return worker.NewPollerBehaviorAutoscaling(worker.PollerBehaviorAutoscalingOptions{
		InitialNumberOfPollers: 8, MinimumNumberOfPollers: 8,
	})
}

// each calls one for every number below n, Concurrency at a time, and returns how long all took.
func (b *run) each(ctx context.Context, n int, one func(context.Context, int) error) (time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var group sync.WaitGroup
	start := time.Now()
	for range b.Concurrency {
		group.Go(func() {
			for number := range numbers {
				if err := one(ctx, number); err != nil {
					cancel(err)
				}
			}
		})
	}
	for number := range n {
		select {
		case numbers <- number:
		case <-ctx.Done():
		}
	}
	close(numbers)
	group.Wait()
	return time.Since(start), context.Cause(ctx)
}

func (b *run) jobBlock(ctx context.Context, block, size int) (time.Duration, error) {
	starts := make(map[string]time.Time, size)
	spent, err := b.each(ctx, size, func(ctx context.Context, number int) error {
		job := contract.Job{
			Tenant: Tenant, JobID: fmt.Sprintf("%s-%d-%d", b.session, block, number), Account: account(number), Cost: 1,
			Actor: "bench", Promise: contract.Duration(limit),
			Work: contract.Work{
				Activity: workActivity, TaskQueue: b.work, Input: json.RawMessage(`{"width":64}`),
				Timeout: contract.Duration(limit),
			},
		}
		began, start := time.Now(), b.Store.Now()
		if err := b.runJob(ctx, job); err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		starts[job.JobID] = start
		b.delivered = append(b.delivered, time.Since(began))
		b.ids = append(b.ids, job.JobID)
		return nil
	})
	if err != nil {
		return 0, err
	}
	for id, start := range starts {
		row, err := b.Store.GetJob(ctx, db.GetJobParams{TenantID: Tenant, JobID: id})
		if err != nil {
			return 0, fmt.Errorf("read job %s: %w", id, err)
		}
		b.charged = append(b.charged, row.CreatedAt.Sub(start))
	}
	return spent, nil
}

func (b *run) runJob(ctx context.Context, job contract.Job) error {
	if b.AwaitCharge {
		if _, err := b.Client.StartJob(ctx, job); err != nil {
			return err
		}
		return b.finished(ctx, b.Temporal.GetWorkflow(ctx, job.WorkflowID(), ""))
	}
	raw, job, err := job.Encode()
	if err != nil {
		return err
	}
	started, err := b.Temporal.ExecuteWorkflow(ctx, b.Client.StartOptions(job), contract.MeteredJobWorkflow, rawJSON(raw))
	if err != nil {
		return fmt.Errorf("start job %s: %w", job.JobID, err)
	}
	return b.finished(ctx, started)
}

func (b *run) finished(ctx context.Context, started temporalclient.WorkflowRun) error {
	var result contract.JobResult
	if err := started.Get(ctx, &result); err != nil {
		return fmt.Errorf("await %s: %w", started.GetID(), err)
	}
	if result.State != contract.StateSucceeded || result.Net != 1 {
		return fmt.Errorf("%s ended as %s with net %d instead of succeeded with 1", started.GetID(), result.State, result.Net)
	}
	return nil
}

func (b *run) plainBlock(ctx context.Context, block, size int) (time.Duration, error) {
	return b.each(ctx, size, func(ctx context.Context, number int) error {
		started, err := b.Temporal.ExecuteWorkflow(ctx, temporalclient.StartWorkflowOptions{
			ID: fmt.Sprintf("bench/%s/%d/%d", b.session, block, number), TaskQueue: b.plain,
		}, plainType, b.work, rawJSON([]byte(`{"width":64}`)))
		if err != nil {
			return fmt.Errorf("start a plain workflow: %w", err)
		}
		return started.Get(ctx, nil)
	})
}

// historySizes looks at a sample of the finished jobs.
func (b *run) historySizes(ctx context.Context) (most, bytes int64, err error) {
	sample := b.ids[:min(len(b.ids), 100)]
	for _, id := range sample {
		described, err := b.Temporal.DescribeWorkflow(ctx, contract.JobWorkflowID(Tenant, id), "")
		if err != nil {
			return 0, 0, fmt.Errorf("describe job %s: %w", id, err)
		}
		most = max(most, int64(described.HistoryLength))
		bytes += described.RawResponse.GetWorkflowExecutionInfo().GetHistorySizeBytes()
	}
	return most, bytes / max(int64(len(sample)), 1), nil
}

func rawJSON(data []byte) converter.RawValue {
	return converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)}, Data: data,
	})
}

func quantiles(times []time.Duration) Quantiles {
	slices.Sort(times)
	at := func(q float64) float64 {
		if len(times) == 0 {
			return 0
		}
		return float64(times[min(int(q*float64(len(times))), len(times)-1)].Microseconds()) / 1000
	}
	return Quantiles{P50: at(0.50), P95: at(0.95), P99: at(0.99)}
}
