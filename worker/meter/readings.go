package meter

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// ReadEvery is how long a reading stands: however many ask for metrics, the database is asked once in so long.
	ReadEvery = 10 * time.Second
	// readings bounds all statements of one look at the database together, and reading each of them.
	readings = 4 * time.Second
	reading  = 2 * time.Second
	// settled is how old a row is when it is counted. A row's time is that of its writing, and it is seen once its transaction
	// is committed: within one attempt, which makes three statements at most.
	settled = 3 * schema.MoneyAttempt
	// stretch bounds what is counted in one look, after the database could not be read for long.
	stretch = 10 * time.Minute
	// assetsAtMost bounds the assets that are told apart: they are named by whoever tops an account up.
	assetsAtMost = 50
	otherAssets  = "other"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	openJobs = describe("reclaim_jobs", "Jobs that are not closed.", "state")
	// The states of refunds that are not final; the others are counted as they are reached.
	openRefunds  = describe("reclaim_refunds", "Refunds that are not final.", "state")
	oldestRefund = describe("reclaim_refund_oldest_unconfirmed_seconds", "Age of the oldest refund that is not final; 0: none.")
	attention    = describe("reclaim_attention", "Jobs and refunds that wait for a person, by what the run's ReclaimAttention says.", "kind")
	openIssues   = describe("reclaim_issues_open", "Issues that nobody has resolved.", "kind")
	waitingRows  = describe("reclaim_outbox_waiting", "Outbox rows that are not delivered yet.")
	oldestRow    = describe("reclaim_outbox_oldest_seconds", "Age of the outbox row that has waited longest; 0: none waits.")
	moneyMoved   = describe("reclaim_money_moved_total", "Amounts of ledger entries that were written, in the smallest unit of their asset.",
		"type", "direction", "asset")
	moneyEntries   = describe("reclaim_ledger_entries_total", "Ledger entries that were written.", "type", "direction", "asset")
	reached        = describe("reclaim_refund_transitions_total", "States that refunds came into.", "state")
	unsealed       = describe("reclaim_ledger_unsealed", "Ledger entries that are not sealed yet.")
	oldestUnsealed = describe("reclaim_ledger_oldest_unsealed_seconds", "Age of the oldest ledger entry that is not sealed, at most an hour; 0: none.")
	readWell       = describe("reclaim_reading_success", "Whether the database could be read for this group of metrics: 1 or 0.", "reading")
)

// Readings tells, whenever metrics are collected, what the database says. Several workers say the same: take the maximum over
// them, not the sum.
type Readings struct {
	store          *schema.Store
	every, settled time.Duration
	logger         *zap.Logger

	mu   sync.Mutex
	told []prometheus.Metric
	due  time.Time
	// What was counted so far, and until which instant.
	money              map[movement]moved
	moneyTo, reachedTo time.Time
	assets             map[string]bool
	transitions        map[string]int64
}

type movement struct{ kind, direction, asset string }

type moved struct {
	amount  float64
	entries int64
}

// NewReadings returns the readings of a database, each of which stands for so long. What was written before is not counted.
func NewReadings(store *schema.Store, every time.Duration, logger *zap.Logger) *Readings {
	r := &Readings{
		store: store, every: every, settled: settled, logger: logger, money: map[movement]moved{}, assets: map[string]bool{},
		transitions: map[string]int64{},
	}
	for _, state := range []contract.RefundState{
		contract.RefundAccepted, contract.RefundUnknown, contract.RefundPending, contract.RefundSucceeded, contract.RefundFailed,
		contract.RefundCanceled, contract.RefundReversed,
	} {
		r.transitions[string(state)] = 0
	}
	return r
}

// Describe names the metrics.
func (r *Readings) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		openJobs, openRefunds, oldestRefund, attention, openIssues, waitingRows, oldestRow, moneyMoved, moneyEntries, reached, unsealed,
		oldestUnsealed, readWell,
	} {
		to <- desc
	}
}

// Collect tells them. What cannot be read is missing, and reclaim_reading_success says so.
func (r *Readings) Collect(to chan<- prometheus.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); !now.Before(r.due) {
		r.read()
		r.due = now.Add(r.every)
	}
	for _, metric := range r.told {
		to <- metric
	}
}

func (r *Readings) read() {
	ctx, cancel := context.WithTimeout(context.Background(), readings)
	defer cancel()
	r.told = nil
	for _, group := range []struct {
		name string
		read func(context.Context, *db.Queries) error
	}{
		{"jobs", r.readJobs},
		{"refunds", r.readRefunds},
		{"issues", r.readIssues},
		{"outbox", r.readOutbox},
		{"seals", r.readSeals},
		{"ledger", r.readMoney},
		{"refund_events", r.readTransitions},
	} {
		ok := 1.0
		if err := r.apart(ctx, group.read); err != nil {
			ok = 0
			r.logger.Warn("metrics are missing: the database could not be read for them", zap.String("reading", group.name),
				zap.Error(schema.Classify("read "+group.name+" for the metrics", err)))
		}
		r.tell(readWell, ok, group.name)
	}
	r.tellCounted()
}

// apart reads in a transaction of its own, whose statements end on Postgres' side too where they take long.
func (r *Readings) apart(ctx context.Context, read func(context.Context, *db.Queries) error) error {
	return pgx.BeginTxFunc(ctx, r.store.Pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		queries := r.store.WithTx(tx)
		if err := queries.LimitReading(ctx, strconv.FormatInt(reading.Milliseconds(), 10)); err != nil {
			return err
		}
		return read(ctx, queries)
	})
}

func (r *Readings) tell(what *prometheus.Desc, value float64, labels ...string) {
	r.told = append(r.told, prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...))
}

func (r *Readings) readJobs(ctx context.Context, queries *db.Queries) error {
	rows, err := queries.ReadOpenJobs(ctx)
	if err != nil {
		return err
	}
	jobs := map[contract.JobState]int64{contract.StateRunning: 0, contract.StateDeadLetter: 0}
	for _, row := range rows {
		jobs[contract.JobState(row.State)] = row.Jobs
	}
	for state, n := range jobs {
		r.tell(openJobs, float64(n), string(state))
	}
	r.tell(attention, float64(jobs[contract.StateDeadLetter]), contract.AttentionDeadLetter)
	return nil
}

func (r *Readings) readRefunds(ctx context.Context, queries *db.Queries) error {
	rows, err := queries.ReadOpenRefunds(ctx)
	if err != nil {
		return err
	}
	disputed, err := queries.ReadDisputedRefunds(ctx)
	if err != nil {
		return err
	}
	refunds := map[contract.RefundState]int64{contract.RefundAccepted: 0, contract.RefundUnknown: 0, contract.RefundPending: 0}
	var unconfirmed, oldest int64
	for _, row := range rows {
		refunds[contract.RefundState(row.State)] += row.Refunds
		oldest = max(oldest, row.OldestUs)
		if row.NeedsReview {
			unconfirmed += row.Refunds
		}
	}
	for state, n := range refunds {
		r.tell(openRefunds, float64(n), string(state))
	}
	r.tell(oldestRefund, float64(oldest)/1e6)
	r.tell(attention, float64(unconfirmed), contract.AttentionRefundUnconfirmed)
	r.tell(attention, float64(disputed), contract.AttentionEvidenceConflict)
	return nil
}

func (r *Readings) readIssues(ctx context.Context, queries *db.Queries) error {
	rows, err := queries.ReadOpenIssues(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		r.tell(openIssues, float64(row.Issues), row.Kind)
	}
	return nil
}

func (r *Readings) readOutbox(ctx context.Context, queries *db.Queries) error {
	row, err := queries.OutboxBacklog(ctx)
	if err != nil {
		return err
	}
	r.tell(waitingRows, float64(row.Waiting))
	r.tell(oldestRow, float64(row.OldestUs)/1e6)
	return nil
}

func (r *Readings) readSeals(ctx context.Context, queries *db.Queries) error {
	row, err := queries.ReadUnsealed(ctx)
	if err != nil {
		return err
	}
	r.tell(unsealed, float64(row.Entries))
	r.tell(oldestUnsealed, float64(row.OldestUs)/1e6)
	return nil
}

// next is what is counted in this look, after what was counted until the instant done.
func (r *Readings) next(done time.Time) (since, until time.Time) {
	until = r.store.Now().Add(-r.settled)
	if done.IsZero() {
		return until, until
	}
	if stretched := done.Add(stretch); stretched.Before(until) {
		until = stretched
	}
	return done, until
}

func (r *Readings) readMoney(ctx context.Context, queries *db.Queries) error {
	since, until := r.next(r.moneyTo)
	rows, err := queries.ReadMoneyMoved(ctx, db.ReadMoneyMovedParams{Since: since, Until: until})
	if err != nil {
		return err
	}
	for _, row := range rows {
		m := movement{kind: row.Type, direction: "debit", asset: r.asset(row.Asset)}
		if row.IsCredit {
			m.direction = "credit"
		}
		sum := r.money[m]
		r.money[m] = moved{amount: sum.amount + row.Moved, entries: sum.entries + row.Entries}
	}
	r.moneyTo = until
	return nil
}

// asset is the name under which an asset is counted.
func (r *Readings) asset(name string) string {
	if !r.assets[name] && len(r.assets) >= assetsAtMost {
		return otherAssets
	}
	r.assets[name] = true
	return name
}

func (r *Readings) readTransitions(ctx context.Context, queries *db.Queries) error {
	since, until := r.next(r.reachedTo)
	rows, err := queries.ReadRefundTransitions(ctx, db.ReadRefundTransitionsParams{Since: since, Until: until})
	if err != nil {
		return err
	}
	for _, row := range rows {
		r.transitions[row.ToState] += row.Refunds
	}
	r.reachedTo = until
	return nil
}

// tellCounted tells what was counted so far, also where the newest could not be read.
func (r *Readings) tellCounted() {
	count := func(what *prometheus.Desc, value float64, labels ...string) {
		r.told = append(r.told, prometheus.MustNewConstMetric(what, prometheus.CounterValue, value, labels...))
	}
	for m, sum := range r.money {
		count(moneyMoved, sum.amount, m.kind, m.direction, m.asset)
		count(moneyEntries, float64(sum.entries), m.kind, m.direction, m.asset)
	}
	for state, n := range r.transitions {
		count(reached, float64(n), state)
	}
}
