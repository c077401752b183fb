package activities_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestMain(m *testing.M) { os.Exit(schematest.Run(m)) }

const (
	tenant  = "acme"
	account = "team-7"
	// patience bounds every wait of a test. It is long, since the machine may be busy.
	patience = 3 * time.Minute
	// about is how far a moment that Postgres notes may be from when a test looks at it.
	about = 30 * time.Second
)

// world is a database with the guards in front of it.
type world struct {
	t        testing.TB
	database *schematest.Database
	store    *schema.Store
	jobs     *activities.Jobs
	// admin sees and may do everything.
	admin *pgxpool.Pool
	keys  atomic.Int64
}

func newWorld(t testing.TB, connections int32) *world {
	t.Helper()
	database := schematest.New(t)
	w := &world{t: t, database: database, store: openStore(t, database.AppURL, connections)}
	w.jobs = activities.NewJobs(w.store)
	var err error
	w.admin, err = pgxpool.New(t.Context(), database.SuperuserURL)
	require.NoError(t, err)
	t.Cleanup(w.admin.Close)
	return w
}

func openStore(t testing.TB, url string, connections int32) *schema.Store {
	t.Helper()
	store, err := schema.Open(t.Context(), url, schema.Options{MaxConns: connections})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	// On a busy machine opening a connection takes a good part of the time in which a statement that was issued before must
	// take effect.
	require.NoError(t, store.Pool.Ping(t.Context()))
	return store
}

// inTime repeats a money statement that reached Postgres after its instant, and so did nothing, as every caller of the
// store does. call gives the statement's answer.
func (w *world) inTime(call func() (answer string, err error)) {
	w.t.Helper()
	var answer string
	w.wait("the statement is in time", func() bool {
		var err error
		answer, err = call()
		require.NoError(w.t, err)
		return answer != "too_late"
	})
	require.Equal(w.t, "applied", answer)
}

// behind gives a proxy in front of the database and the guards behind it.
func (w *world) behind(connections int32) (*schematest.LossyProxy, *activities.Jobs) {
	w.t.Helper()
	proxy := schematest.NewLossyProxy(w.t, w.database.Address)
	return proxy, activities.NewJobs(openStore(w.t, proxy.URL(w.database.AppURL), connections))
}

// statement matches the executions of a statement by the name that schema gave it.
func statement(name string) func(sql string) bool {
	return schematest.Containing("-- name: " + name + " ")
}

func (w *world) topUp(tenant, account string, amount int64) {
	w.t.Helper()
	w.inTime(func() (string, error) {
		row, err := w.store.TopUpAccount(w.t.Context(), db.TopUpAccountParams{
			TenantID: tenant, AccountID: account, Actor: "test", Key: fmt.Sprint("top-up ", w.keys.Add(1)), Asset: "CREDIT",
			Amount: amount, Fingerprint: "f", Reason: "top-up", NotAfter: w.store.NotAfter(),
		})
		return row.Answer, err
	})
}

func (w *world) adjust(tenant, account string, amount int64) {
	w.t.Helper()
	w.inTime(func() (string, error) {
		row, err := w.store.AdjustAccount(w.t.Context(), db.AdjustAccountParams{
			TenantID: tenant, AccountID: account, Actor: "test", Key: fmt.Sprint("adjust ", w.keys.Add(1)),
			Amount: amount, Fingerprint: "f", Reason: "adjusted", NotAfter: w.store.NotAfter(),
		})
		return row.Answer, err
	})
}

func (w *world) balance(tenant, account string) int64 {
	w.t.Helper()
	row, err := w.store.GetAccount(w.t.Context(), db.GetAccountParams{TenantID: tenant, AccountID: account})
	require.NoError(w.t, err)
	return row.Balance
}

// newKey names a job that no other of the test has the name of.
func (w *world) newKey() activities.JobKey {
	return activities.JobKey{Tenant: tenant, JobID: fmt.Sprint("job-", w.keys.Add(1))}
}

func chargeOf(key activities.JobKey, account string, cost int64) activities.ChargeRequest {
	return activities.ChargeRequest{
		JobKey: key, Account: account, Cost: cost, Fingerprint: fmt.Sprint(account, " ", cost), Spec: "{}", Reason: "render",
	}
}

// charged makes a job that is charged.
func (w *world) charged(account string, cost int64) activities.JobKey {
	w.t.Helper()
	key := w.newKey()
	w.inTime(func() (string, error) {
		answer, err := w.jobs.ChargeJob(w.t.Context(), chargeOf(key, account, cost))
		if cameTooLate(err) {
			return "too_late", nil
		}
		return string(answer.Verdict), err
	})
	return key
}

// cameTooLate says whether a guard's statement reached Postgres after its instant, and so did nothing.
func cameTooLate(err error) bool {
	failure, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && failure.Type() == string(schema.ErrorTooLate)
}

// lines reads one text column, row by row.
func (w *world) lines(sql string, arguments ...any) []string {
	w.t.Helper()
	rows, err := w.admin.Query(w.t.Context(), sql, arguments...)
	require.NoError(w.t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	return lines
}

// entries lists what a job moved, such as "charge -40".
func (w *world) entries(key activities.JobKey) []string {
	w.t.Helper()
	return w.lines(`SELECT type || ' ' || amount FROM reclaim.ledger_entries
		WHERE tenant_id = $1 AND job_id = $2 ORDER BY seq`, key.Tenant, key.JobID)
}

// story lists what is written of a job beside its money: events and decisions.
func (w *world) story(key activities.JobKey) []string {
	w.t.Helper()
	return w.lines(`
		SELECT line FROM (
			SELECT 1 AS part, event_id, kind || CASE WHEN attempt > 0 THEN ' ' || attempt ELSE '' END AS line
			FROM reclaim.job_events WHERE tenant_id = $1 AND job_id = $2
			UNION ALL
			SELECT 2, 0, 'resolution ' || outcome FROM reclaim.resolutions WHERE tenant_id = $1 AND subject_id = $2
		) AS story ORDER BY part, event_id, line`, key.Tenant, key.JobID)
}

// job reads a job's row, nil where there is none.
func (w *world) job(key activities.JobKey) *db.ReclaimJob {
	w.t.Helper()
	row, err := w.store.GetJob(w.t.Context(), db.GetJobParams{TenantID: key.Tenant, JobID: key.JobID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	require.NoError(w.t, err)
	return &row
}

// holdLock locks a row in a transaction of its own until release is called.
func (w *world) holdLock(sql string, arguments ...any) (release func()) {
	w.t.Helper()
	tx, err := w.admin.Begin(w.t.Context())
	require.NoError(w.t, err)
	tag, err := tx.Exec(w.t.Context(), sql, arguments...)
	require.NoError(w.t, err)
	require.EqualValues(w.t, 1, tag.RowsAffected(), "there is a row to lock")
	w.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return func() {
		w.t.Helper()
		require.NoError(w.t, tx.Rollback(w.t.Context()))
	}
}

func (w *world) holdJob(key activities.JobKey) (release func()) {
	w.t.Helper()
	return w.holdLock("SELECT FROM reclaim.jobs WHERE tenant_id = $1 AND job_id = $2 FOR UPDATE", key.Tenant, key.JobID)
}

func (w *world) holdAccount(tenant, account string) (release func()) {
	w.t.Helper()
	return w.holdLock("SELECT FROM reclaim.accounts WHERE tenant_id = $1 AND account_id = $2 FOR UPDATE", tenant, account)
}

// waitBlocked waits until the given number of sessions wait for locks.
func (w *world) waitBlocked(sessions int) {
	w.t.Helper()
	w.wait(fmt.Sprint(sessions, " sessions wait for locks"), func() bool {
		var waiting int
		require.NoError(w.t, w.admin.QueryRow(w.t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting == sessions
	})
}

func (w *world) wait(what string, condition func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("it never came about that %s", what)
		}
	}
}

// audit lists every broken invariant of accounts, entries and jobs, independently of the queries that the audit runs.
func (w *world) audit() []string {
	w.t.Helper()
	return w.lines(`
		SELECT format('account %s: balance %s, sum %s', account_id, balance, coalesce(booked, 0))
		FROM reclaim.accounts LEFT JOIN (
			SELECT tenant_id, account_id, sum(amount) AS booked, count(*) AS entries, max(seq) AS newest
			FROM reclaim.ledger_entries GROUP BY tenant_id, account_id) AS ledger USING (tenant_id, account_id)
		WHERE balance <> coalesce(booked, 0) OR seq <> coalesce(entries, 0) OR seq <> coalesce(newest, 0)
		UNION ALL
		SELECT format('account %s: entry %s leaves %s, the one before %s', account_id, seq, balance_after, before)
		FROM (SELECT *, coalesce(lag(balance_after) OVER of_account, 0) AS before, row_number() OVER of_account AS place
			FROM reclaim.ledger_entries WINDOW of_account AS (PARTITION BY tenant_id, account_id ORDER BY seq)) AS entry
		WHERE balance_after <> before + amount OR seq <> place
		UNION ALL
		SELECT format('job %s: %s, refunded %s, reclaimed %s, cost %s, entries %s', job_id, state, is_refunded,
			is_reclaimed, cost, coalesce(moved, 'none'))
		FROM reclaim.jobs LEFT JOIN (
			SELECT tenant_id, job_id, string_agg(type || ' ' || amount, ', ' ORDER BY seq) AS moved, sum(amount) AS net
			FROM reclaim.ledger_entries WHERE type IN ('charge', 'refund', 'reclaim') GROUP BY tenant_id, job_id
		) AS ledger USING (tenant_id, job_id)
		WHERE coalesce(net, 0) <> CASE WHEN state = 'succeeded' OR NOT is_refunded THEN -cost ELSE 0 END
			OR coalesce(moved, '') <> CASE WHEN cost = 0 THEN '' ELSE format('charge %s', -cost)
				|| CASE WHEN is_refunded THEN format(', refund %s', cost) ELSE '' END
				|| CASE WHEN is_reclaimed THEN format(', reclaim %s', -cost) ELSE '' END END`)
}

// deadlocks counts those that Postgres found in the database so far.
func (w *world) deadlocks() (found int) {
	w.t.Helper()
	require.NoError(w.t, w.admin.QueryRow(w.t.Context(),
		"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&found))
	return found
}

// retryable says whether Temporal would try the call again.
func retryable(err error) bool {
	failure, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && !failure.NonRetryable()
}

// untilAnswered repeats a call as Temporal does, without its pauses, and counts what it took by the errors' types.
func untilAnswered[A any](call func() (A, error)) (answer A, errorTypes map[string]int, err error) {
	errorTypes = map[string]int{}
	for range 200 {
		if answer, err = call(); !retryable(err) {
			return answer, errorTypes, err
		}
		failure, _ := errors.AsType[*temporal.ApplicationError](err)
		errorTypes[failure.Type()]++
	}
	return answer, errorTypes, fmt.Errorf("200 tries: %w", err)
}

// assertBusy checks that all a loser has to do is to try again. Under load a statement may come too late as well.
func assertBusy(t testing.TB, errorTypes map[string]int) {
	t.Helper()
	for errorType := range errorTypes {
		assert.Contains(t, []string{string(schema.ErrorBusy), string(schema.ErrorTooLate)}, errorType)
	}
}

// requireErrorType checks the type that Temporal and the workflow see.
func requireErrorType(t require.TestingT, err error, errorType string, retries bool) {
	failure, ok := errors.AsType[*temporal.ApplicationError](err)
	require.True(t, ok, "an application error, not %v", err)
	require.Equal(t, errorType, failure.Type(), failure.Message())
	require.Equal(t, retries, !failure.NonRetryable(), failure.Message())
}

// assertSound checks every invariant and that nothing deadlocked.
func (w *world) assertSound() {
	w.t.Helper()
	assert.Empty(w.t, strings.Join(w.audit(), "\n"))
	assert.Zero(w.t, w.deadlocks())
}

// sameRow makes rows comparable: the age goes on by itself.
func sameRow(row activities.JobRow) activities.JobRow {
	row.Age = 0
	return row
}

func resolution(id string, action contract.Action) contract.Resolution {
	decision := contract.Resolution{ID: id, Action: action, Operator: "ann", Reason: "customer called"}
	switch action {
	case contract.ActionDeliver:
		decision.Evidence = "file 8841 is in the customer's bucket"
	case contract.ActionRetry:
		decision.Attempts = 2
	}
	return decision
}
