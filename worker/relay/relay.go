// Package relay carries out what committed transactions have left in the outbox: it starts the workflows of accepted
// refunds and of enqueued jobs.
package relay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/api/serviceerror"
	temporalclient "go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// atOnce is how many rows are carried out at the same time. Others are taken once a handful of places is free, so that a
	// row which has to wait for Temporal holds up nobody else.
	atOnce  = 32
	handful = 8
	// call bounds one row's start, and mark each statement about rows: an answer that never comes is not waited for.
	call = 10 * time.Second
	mark = 5 * time.Second
	// lease is how long a row is left to who took it: longer than its start and its two marks may take. When a relay dies,
	// what it had in hand waits for so long.
	lease = 30 * time.Second
	// look is how often the outbox is looked at where no notification came.
	look = 2 * time.Second
	// A row that cannot be delivered is tried again after a pause that doubles from firstPause to longestPause, or to
	// longestAway where it is Temporal that does not answer: when it is back, nothing should have to wait for minutes more.
	firstPause, longestPause, longestAway = time.Second, 5 * time.Minute, 8 * time.Second
	// sweep is how often what has had its retention is cleared away.
	sweep         = time.Hour
	sweepAtMost   = 1000
	keepDelivered = 7 * 24 * time.Hour
)

// Relay delivers outbox rows. Any number of them may run: each row is taken by one at a time, and starting a workflow
// that runs already is a success.
type Relay struct {
	store  *schema.Store
	client *client.Client
	logger *zap.Logger
	// lag is from an outbox row's birth, inside its transaction, to its delivery.
	lag *prometheus.HistogramVec
}

// New returns a Relay that starts workflows on the task queue. Its metric is reclaim_outbox_lag_seconds, by kind of row.
func New(
	store *schema.Store, temporal temporalclient.Client, taskQueue string, metrics prometheus.Registerer, logger *zap.Logger,
) (*Relay, error) {
	r := &Relay{
		store: store, client: client.New(temporal, store, taskQueue), logger: logger,
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "reclaim_outbox_lag_seconds", Help: "From the writing of an outbox row to the start of its workflow.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600},
		}, []string{"kind"}),
	}
	if err := metrics.Register(r.lag); err != nil {
		return nil, fmt.Errorf("register the outbox's metrics: %w", err)
	}
	for _, kind := range []string{"start_job", "start_refund"} {
		r.lag.WithLabelValues(kind)
	}
	return r, nil
}

// Run delivers until ctx ends, and then finishes the rows that it has in hand, which takes no longer than lease. Postgres or
// Temporal being away is waited out.
func (r *Relay) Run(ctx context.Context) {
	news := make(chan struct{}, 1)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.listen(ctx, news) })
	beside.Go(func() { r.clearAlways(ctx) })
	looks := time.NewTicker(look)
	defer looks.Stop()
	// What was taken is finished also when ctx ends meanwhile: left to its lease, a row would wait for it at every deploy.
	carrying := context.WithoutCancel(ctx)
	finished := make(chan struct{}, atOnce)
	free, due := atOnce, true
	for ctx.Err() == nil {
		if due && free >= handful {
			rows := r.claim(carrying, free)
			// Fewer than were asked for may also mean that another relay held those whose turn it was.
			due = len(rows) > 0
			free -= len(rows)
			for _, row := range rows {
				go func() {
					defer func() { finished <- struct{}{} }()
					r.deliver(carrying, row)
				}()
			}
			continue
		}
		select {
		case <-ctx.Done():
		case <-finished:
			free++
		case <-news:
			due = true
		case <-looks.C:
			due = true
		}
	}
	for ; free < atOnce; free++ {
		<-finished
	}
}

// listen wakes the relay at once when a row is committed. Where it cannot listen, the regular look finds the rows.
func (r *Relay) listen(ctx context.Context, news chan<- struct{}) {
	for ctx.Err() == nil {
		err := r.listenOnce(ctx, news)
		if err != nil && ctx.Err() == nil {
			r.logger.Warn("the outbox cannot be listened to; it is looked at every "+look.String(), zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
}

func (r *Relay) listenOnce(ctx context.Context, news chan<- struct{}) error {
	pooled, err := r.store.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	// A connection that listens is not given back: its next user would be told too.
	conn := pooled.Hijack()
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN reclaim_outbox"); err != nil {
		return err
	}
	for {
		// Also at first: rows may have been committed before this connection listened.
		select {
		case news <- struct{}{}:
		default:
		}
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}

// claim takes rows that are due, no more than are asked for.
func (r *Relay) claim(ctx context.Context, atMost int) []db.ReclaimOutbox {
	ctx, cancel := context.WithTimeout(ctx, mark)
	defer cancel()
	rows, err := r.store.ClaimOutbox(ctx, db.ClaimOutboxParams{LeaseUs: lease.Microseconds(), AtMost: int32(atMost)})
	if err != nil {
		r.logger.Warn("the outbox cannot be read", zap.Error(schema.Classify("claim outbox rows", err)))
	}
	return rows
}

// deliver carries out one row and marks it, or puts it off.
func (r *Relay) deliver(ctx context.Context, row db.ReclaimOutbox) {
	started, err := r.carryOut(ctx, row)
	if err == nil {
		err = r.within(ctx, func(ctx context.Context) error { return r.store.DeliverOutbox(ctx, row.ID) })
	}
	if err == nil {
		if started {
			r.lag.WithLabelValues(row.Kind).Observe(r.store.Now().Sub(row.CreatedAt).Seconds())
		}
		return
	}
	pause := pauseAfter(row.Attempts, err)
	r.logger.Warn("an outbox row could not be delivered", zap.Int64("id", row.ID), zap.String("kind", row.Kind),
		zap.String("subject", contract.Clip(row.SubjectID, 100)), zap.Int32("attempts", row.Attempts), zap.Duration("again", pause),
		zap.Error(err))
	if err := r.within(ctx, func(ctx context.Context) error {
		return r.store.DeferOutbox(ctx, db.DeferOutboxParams{
			ID: row.ID, LastError: contract.Clip(err.Error(), contract.MaxReasonBytes), PauseUs: pause.Microseconds(),
		})
	}); err != nil {
		r.logger.Warn("an outbox row could not be deferred; its lease ends by itself", zap.Int64("id", row.ID), zap.Error(err))
	}
}

// within makes one statement about a row, whose answer is waited for only so long.
func (r *Relay) within(ctx context.Context, statement func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, mark)
	defer cancel()
	return statement(ctx)
}

// pauseAfter is how long a row waits after an attempt that failed.
func pauseAfter(attempts int32, err error) time.Duration {
	longest := longestPause
	if away(err) {
		longest = longestAway
	}
	return min(firstPause<<min(max(attempts-1, 0), 20), longest)
}

// away says whether Temporal did not answer, or not in time: nothing is wrong with the row.
func away(err error) bool {
	_, unavailable := errors.AsType[*serviceerror.Unavailable](err)
	_, late := errors.AsType[*serviceerror.DeadlineExceeded](err)
	_, busy := errors.AsType[*serviceerror.ResourceExhausted](err)
	return unavailable || late || busy || errors.Is(err, context.DeadlineExceeded)
}

// carryOut does what the row asks for; started is false where that is to open an issue in place of a start.
func (r *Relay) carryOut(ctx context.Context, row db.ReclaimOutbox) (started bool, _ error) {
	starting, cancel := context.WithTimeout(ctx, call)
	defer cancel()
	switch row.Kind {
	case "start_refund":
		key, err := contract.ParseRefundKey([]byte(row.Payload))
		if err != nil {
			return false, err
		}
		return true, r.client.StartRefund(starting, key.Tenant, key.RefundID)
	case "start_job":
		err := r.client.StartEnqueued(starting, client.Enqueued{
			ID: row.ID, Tenant: row.TenantID, JobID: row.SubjectID, Payload: []byte(row.Payload),
			CreatedAt: row.CreatedAt, Again: row.Attempts > 1,
		})
		if code := contract.CodeOf(err); code == contract.CodeConflict || code == contract.CodeBadInput {
			return false, r.giveUp(ctx, row, err)
		}
		return true, err
	default:
		return false, fmt.Errorf("outbox rows of kind %q cannot be delivered by this release", row.Kind)
	}
}

// giveUp opens an issue about a job that can never be started, in place of starting it: its transaction is committed, and
// nobody waits for an answer.
func (r *Relay) giveUp(ctx context.Context, row db.ReclaimOutbox, why error) error {
	tenant, job := row.TenantID, row.SubjectID
	if !contract.ValidID(tenant) || !contract.ValidID(job) {
		// What EnqueueJob did not write may be anything.
		tenant, job = contract.UnassignedTenant, contract.Clip(job, 100)
	}
	r.logger.Error("an enqueued job cannot be started; an issue is opened", zap.Int64("id", row.ID), zap.String("tenant", tenant),
		zap.String("job", job), zap.Error(why))
	return r.within(ctx, func(ctx context.Context) error {
		return r.store.OpenIssue(ctx, db.OpenIssueParams{
			TenantID: tenant, IssueID: "enqueued_job:" + strconv.FormatInt(row.ID, 10), Kind: "enqueued_job_refused",
			SubjectKind: "job", SubjectID: job,
			Evidence: contract.Clip("the job was enqueued in a committed transaction and not started: "+why.Error(), contract.MaxReasonBytes),
		})
	})
}

// clearAlways clears away at once and then regularly, until ctx ends, beside the deliveries.
func (r *Relay) clearAlways(ctx context.Context) {
	sweeps := time.NewTicker(sweep)
	defer sweeps.Stop()
	for {
		r.clear(ctx)
		select {
		case <-ctx.Done():
			return
		case <-sweeps.C:
		}
	}
}

// clear forgets operations whose retention has passed and rows that were delivered long ago.
func (r *Relay) clear(ctx context.Context) {
	for _, cleared := range []struct {
		what string
		by   func() (int64, error)
	}{
		{"operation keys", func() (int64, error) { return r.store.PurgeOperations(ctx, sweepAtMost) }},
		{"outbox rows", func() (int64, error) {
			return r.store.ClearOutbox(ctx, db.ClearOutboxParams{RetentionUs: keepDelivered.Microseconds(), AtMost: sweepAtMost})
		}},
	} {
		n, err := cleared.by()
		for err == nil && n == sweepAtMost {
			n, err = cleared.by()
		}
		if err != nil && ctx.Err() == nil {
			r.logger.Warn("old "+cleared.what+" could not be cleared away", zap.Error(err))
		}
	}
}
