// Package relay carries out what committed transactions have left in the outbox: it starts the workflows of accepted
// refunds and of enqueued jobs.
package relay

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	temporalclient "go.temporal.io/sdk/client"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// batch is how many rows one look takes, atOnce how many of them are carried out at the same time, and lease how long
	// they are left to it: longer than the whole batch can take.
	batch  = 50
	atOnce = 16
	lease  = time.Minute
	// look is how often the outbox is looked at where no notification came.
	look = 2 * time.Second
	// A row that cannot be delivered is tried again after a pause that doubles from firstPause to longestPause.
	firstPause, longestPause = time.Second, 5 * time.Minute
	// sweep is how often what has had its retention is cleared away.
	sweep         = time.Hour
	sweepAtMost   = 1000
	keepDelivered = 7 * 24 * time.Hour
	call          = 10 * time.Second
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

// New returns a Relay that starts workflows on the task queue. Its metrics are reclaim_outbox_lag_seconds, by kind of row,
// and, read from the database at each look, reclaim_outbox_waiting and reclaim_outbox_oldest_seconds.
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
	for _, collector := range []prometheus.Collector{r.lag, backlog{store}} {
		if err := metrics.Register(collector); err != nil {
			return nil, fmt.Errorf("register the outbox's metrics: %w", err)
		}
	}
	return r, nil
}

// Run delivers until ctx ends. Postgres or Temporal being away is waited out.
func (r *Relay) Run(ctx context.Context) {
	news := make(chan struct{}, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.listen(ctx, news)
	}()
	defer func() { <-done }()
	looks, sweeps := time.NewTicker(look), time.NewTicker(sweep)
	defer looks.Stop()
	defer sweeps.Stop()
	r.clear(ctx)
	for {
		for r.deliver(ctx) {
		}
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-looks.C:
		case <-sweeps.C:
			r.clear(ctx)
		}
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
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

// deliver takes a batch and reports whether there may be more.
func (r *Relay) deliver(ctx context.Context) bool {
	rows, err := r.store.ClaimOutbox(ctx, db.ClaimOutboxParams{LeaseUs: lease.Microseconds(), AtMost: batch})
	if err != nil {
		if ctx.Err() == nil {
			r.logger.Warn("the outbox cannot be read", zap.Error(schema.Classify("claim outbox rows", err)))
		}
		return false
	}
	var carrying sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, row := range rows {
		places <- struct{}{}
		carrying.Go(func() {
			defer func() { <-places }()
			r.deliverOne(ctx, row)
		})
	}
	carrying.Wait()
	return len(rows) == batch
}

func (r *Relay) deliverOne(ctx context.Context, row db.ReclaimOutbox) {
	err := r.start(ctx, row)
	if err == nil {
		err = r.store.DeliverOutbox(ctx, row.ID)
	}
	if err == nil {
		r.lag.WithLabelValues(row.Kind).Observe(r.store.Now().Sub(row.CreatedAt).Seconds())
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	pause := longestPause
	if row.Attempts < 10 {
		pause = min(firstPause<<max(row.Attempts-1, 0), longestPause)
	}
	r.logger.Warn("an outbox row could not be delivered", zap.Int64("id", row.ID), zap.String("kind", row.Kind),
		zap.String("subject", row.SubjectID), zap.Int32("attempts", row.Attempts), zap.Duration("again", pause), zap.Error(err))
	if err := r.store.DeferOutbox(ctx, db.DeferOutboxParams{
		ID: row.ID, LastError: contract.Clip(err.Error(), contract.MaxReasonBytes), PauseUs: pause.Microseconds(),
	}); err != nil {
		r.logger.Warn("an outbox row could not be deferred; its lease ends by itself", zap.Int64("id", row.ID), zap.Error(err))
	}
}

func (r *Relay) start(ctx context.Context, row db.ReclaimOutbox) error {
	ctx, cancel := context.WithTimeout(ctx, call)
	defer cancel()
	switch row.Kind {
	case "start_refund":
		key, err := contract.ParseRefundKey([]byte(row.Payload))
		if err != nil {
			return err
		}
		return r.client.StartRefund(ctx, key.Tenant, key.RefundID)
	case "start_job":
		err := r.client.StartEnqueued(ctx, row.ID, []byte(row.Payload), row.Attempts > 1)
		if code := contract.CodeOf(err); code == contract.CodeConflict || code == contract.CodeBadInput {
			return r.giveUp(ctx, row, err)
		}
		return err
	default:
		return fmt.Errorf("outbox rows of kind %q cannot be delivered by this release", row.Kind)
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
	return r.store.OpenIssue(ctx, db.OpenIssueParams{
		TenantID: tenant, IssueID: "enqueued_job:" + strconv.FormatInt(row.ID, 10), Kind: "enqueued_job_refused",
		SubjectKind: "job", SubjectID: job,
		Evidence: contract.Clip("the job was enqueued in a committed transaction and not started: "+why.Error(), contract.MaxReasonBytes),
	})
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
