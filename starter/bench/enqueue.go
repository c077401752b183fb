package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// EnqueueReport is what Enqueue measured.
type EnqueueReport struct {
	// PerSecond is what was asked for, and EnqueuedPerSecond what the transactions came to, over Seconds.
	PerSecond         int     `json:"perSecond"`
	Seconds           int     `json:"seconds"`
	Enqueued          int     `json:"enqueued"`
	EnqueuedPerSecond float64 `json:"enqueuedPerSecond"`
	// EnqueueMillis are of the whole transactions: begin, enqueue, commit. LagMillis are from the row's writing to its mark,
	// which follows on the start.
	EnqueueMillis Quantiles `json:"enqueueMs"`
	LagMillis     Quantiles `json:"lagMs"`
	// Delivered jobs were charged for and done by the end; DeliveredPerSecond is over the time from the first commit until all
	// were, and DeliveredMeanwhile how many were while jobs were being enqueued.
	Delivered          int     `json:"delivered"`
	DeliveredPerSecond float64 `json:"deliveredPerSecond"`
	DeliveredMeanwhile int     `json:"deliveredMeanwhile"`
}

// enqueueClients bounds the transactions under way at once.
const enqueueClients = 32

// lost is when work is tried again that an overloaded server has handed to nobody: all of it is waited for.
const lost = 30 * time.Second

// Enqueue commits transactions that enqueue a job each, at a steady rate, while the system's own worker and relay start and
// run what was enqueued before. The work is a no-op activity that this process runs; all of it is waited for.
func Enqueue(ctx context.Context, system System, perSecond int, seconds int) (EnqueueReport, error) {
	if perSecond < 1 || seconds < 1 {
		return EnqueueReport{}, contract.NewError(contract.CodeBadInput, contract.RetryNewKey, fmt.Sprintf(
			"enqueues per second (%d) and seconds (%d) must be at least 1", perSecond, seconds), nil)
	}
	session := strings.ToLower(rand.Text()[:10])
	if err := fund(ctx, system.Client, session); err != nil {
		return EnqueueReport{}, err
	}
	e := &enqueueRun{System: system, prefix: session + "-e-", work: "bench-work-" + session}
	crew := worker.New(system.Temporal, e.work, worker.Options{ActivityTaskPollerBehavior: scaling()})
	crew.RegisterActivityWithOptions(noop, activity.RegisterOptions{Name: workActivity})
	if err := crew.Start(); err != nil {
		return EnqueueReport{}, fmt.Errorf("start the worker of the no-op work: %w", err)
	}
	defer crew.Stop()

	// The first few warm connections, caches and pollers up, and are not counted.
	if err := e.each(ctx, perSecond, min(perSecond, 50), "warm"); err != nil {
		return EnqueueReport{}, err
	}
	if _, err := e.delivered(ctx, "warm", min(perSecond, 50)); err != nil {
		return EnqueueReport{}, err
	}
	e.spent = nil
	report := EnqueueReport{PerSecond: perSecond, Seconds: seconds, Enqueued: perSecond * seconds}
	began := time.Now()
	if err := e.each(ctx, perSecond, report.Enqueued, "n"); err != nil {
		return report, err
	}
	report.EnqueuedPerSecond = float64(report.Enqueued) / time.Since(began).Seconds()
	var err error
	if report.DeliveredMeanwhile, err = e.delivered(ctx, "n", 0); err != nil {
		return report, err
	}
	if report.Delivered, err = e.delivered(ctx, "n", report.Enqueued); err != nil {
		return report, err
	}
	report.DeliveredPerSecond = float64(report.Delivered) / time.Since(began).Seconds()
	report.EnqueueMillis = quantiles(e.spent)
	lags, err := e.lags(ctx)
	if err == nil && len(lags) != report.Enqueued {
		err = fmt.Errorf("of %d enqueued jobs, the outbox has %d", report.Enqueued, len(lags))
	}
	report.LagMillis = quantiles(lags)
	return report, err
}

// enqueueRun is the state of one measurement.
type enqueueRun struct {
	System
	prefix string
	work   string

	mu    sync.Mutex
	spent []time.Duration
}

// each enqueues so many jobs, each at its own moment: a slow transaction does not slow the next ones down.
func (e *enqueueRun) each(ctx context.Context, perSecond, jobs int, name string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int, jobs)
	var group sync.WaitGroup
	for range enqueueClients {
		group.Go(func() {
			for number := range numbers {
				if err := e.enqueue(ctx, fmt.Sprintf("%s%s-%d", e.prefix, name, number), number); err != nil {
					cancel(err)
				}
			}
		})
	}
	began := time.Now()
	for number := range jobs {
		select {
		case <-time.After(time.Until(began.Add(time.Duration(number) * time.Second / time.Duration(perSecond)))):
			numbers <- number
		case <-ctx.Done():
		}
	}
	close(numbers)
	group.Wait()
	return context.Cause(ctx)
}

func (e *enqueueRun) enqueue(ctx context.Context, id string, number int) error {
	job := contract.Job{
		Tenant: Tenant, JobID: id, Account: account(number), Cost: 1, Actor: "bench", Promise: contract.Duration(limit),
		Work: contract.Work{
			Activity: workActivity, TaskQueue: e.work, Input: json.RawMessage(`{"width":64}`), Timeout: contract.Duration(lost),
		},
	}
	began := time.Now()
	if err := pgx.BeginFunc(ctx, e.Store.Pool, func(tx pgx.Tx) error { return e.Client.EnqueueJob(ctx, tx, job) }); err != nil {
		return fmt.Errorf("enqueue job %s: %w", id, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spent = append(e.spent, time.Since(began))
	return nil
}

// delivered waits until at least so many of the jobs are delivered, and counts them.
func (e *enqueueRun) delivered(ctx context.Context, name string, atLeast int) (int, error) {
	for {
		n, err := e.Store.CountDelivered(ctx, db.CountDeliveredParams{TenantID: Tenant, Prefix: e.prefix + name})
		if err != nil {
			return 0, fmt.Errorf("count the delivered jobs: %w", err)
		}
		if int(n) >= atLeast {
			return int(n), nil
		}
		select {
		case <-ctx.Done():
			return int(n), fmt.Errorf("wait for %d jobs, of which %d are delivered: %w", atLeast, n, ctx.Err())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// lags reads from the outbox how long each row waited for its start. A job may be done before its row is marked.
func (e *enqueueRun) lags(ctx context.Context) ([]time.Duration, error) {
	for {
		rows, err := e.Store.EnqueuedLags(ctx, db.EnqueuedLagsParams{TenantID: Tenant, Prefix: e.prefix + "n"})
		if err != nil {
			return nil, fmt.Errorf("read the lags: %w", err)
		}
		if !slices.Contains(rows, -1) {
			lags := make([]time.Duration, len(rows))
			for i, lag := range rows {
				lags[i] = time.Duration(lag) * time.Microsecond
			}
			return lags, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the last rows to be marked: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}
