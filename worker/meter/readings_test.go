package meter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
)

// page is the text that Prometheus reads.
func page(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	var text strings.Builder
	for _, family := range families {
		_, err := expfmt.MetricFamilyToText(&text, family)
		require.NoError(t, err)
	}
	return "\n" + text.String()
}

func has(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		assert.Contains(t, page, "\n"+line+"\n")
	}
}

// books is a database in which the test writes as its superuser, and a store on it.
type books struct {
	t     *testing.T
	owner *pgx.Conn
	store *schema.Store
}

func newBooks(t *testing.T) *books {
	t.Helper()
	database := schematest.New(t)
	owner, err := pgx.Connect(t.Context(), database.SuperuserURL)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, owner.Close(context.Background())) })
	store, err := schema.Open(t.Context(), database.AppURL, schema.Options{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return &books{t: t, owner: owner, store: store}
}

func (b *books) does(statements ...string) {
	b.t.Helper()
	for _, statement := range statements {
		_, err := b.owner.Exec(b.t.Context(), statement)
		require.NoError(b.t, err, statement)
	}
}

// account writes an account with one top-up of 1,000.
func (b *books) account(id, asset string) {
	b.t.Helper()
	b.does(fmt.Sprintf("INSERT INTO reclaim.accounts (tenant_id, account_id, asset, balance, seq) VALUES ('acme', '%s', '%s', 1000, 1)", id, asset),
		fmt.Sprintf(`INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
			VALUES ('acme', '%s', 1, 'topup', 1000, 1000, 'paid')`, id))
}

func (b *books) refund(id, state, columns, values string) {
	b.t.Helper()
	b.does(fmt.Sprintf(`INSERT INTO reclaim.refunds (tenant_id, refund_id, order_id, amount, currency, credits, state, requested_by,
		reason, channel_ref%s) VALUES ('acme', '%s', 'o1', 10, 'usd', 1, '%s', 'test', 'r', 're_%s'%s)`, columns, id, state, id, values))
	b.does(fmt.Sprintf(`INSERT INTO reclaim.refund_events (tenant_id, refund_id, seq, source, from_state, to_state, outcome, observed_at)
		VALUES ('acme', '%s', 1, 'accept', '', '%s', '', clock_timestamp())`, id, state))
}

func TestReadingsTellWhatTheDatabaseSays(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	readings := NewReadings(b.store, 0, zap.NewNop())
	readings.settled = 0
	registry := prometheus.NewRegistry()
	registry.MustRegister(readings)
	first := page(t, registry)
	has(t, first, `reclaim_jobs{state="running"} 0`, `reclaim_refund_oldest_unconfirmed_seconds 0`, `reclaim_outbox_oldest_seconds 0`,
		`reclaim_attention{kind="dead_letter"} 0`, `reclaim_refund_transitions_total{state="reversed"} 0`,
		`reclaim_reading_success{reading="refund_events"} 1`)

	b.account("a", "CREDIT")
	job := `INSERT INTO reclaim.jobs (tenant_id, job_id, account_id, cost, fingerprint, state, is_refunded, refunded_at, spec) VALUES `
	b.does(job+"('acme', 'j1', 'a', 5, 'f', 'running', false, NULL, '{}'), ('acme', 'j2', 'a', 5, 'f', 'dead_letter', true, now(), '{}')",
		job+"('acme', 'j3', 'a', 5, 'f', 'failed', true, now(), '{}')",
		`INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
			VALUES ('acme', 'a', 2, 'charge', -5, 995, 'j1', 'r')`,
		`INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
			VALUES ('acme', 'a', 3, 'adjust', -7, 988, 'r'), ('acme', 'a', 4, 'adjust', 2, 990, 'r')`,
		`INSERT INTO reclaim.orders (tenant_id, order_id, account_id, channel, channel_payment_id, currency, paid, credits)
			VALUES ('acme', 'o1', 'a', 'sim', 'pi_1', 'usd', 1000, 100)`,
		`INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence, state, resolved_at)
			VALUES ('acme', 'i1', 'unknown_refund', 'channel', 'sim', '', 'open', NULL),
			('acme', 'i2', 'unknown_refund', 'channel', 'sim', '', 'resolved', now())`,
		`INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload, created_at) VALUES
			('start_job', 'acme', 'j9', '{}', clock_timestamp() - interval '100 s')`)
	b.refund("r1", "accepted", ", created_at", ", clock_timestamp() - interval '1000 s'")
	b.refund("r2", "pending", ", first_sent_at, send_count, needs_review", ", now(), 1, true")
	b.refund("r3", "succeeded", ", first_sent_at, send_count, succeeded_at, needs_review", ", now(), 1, now(), true")
	b.refund("r4", "succeeded", ", first_sent_at, send_count, succeeded_at", ", now(), 1, now()")
	// The clock of Postgres that the store knows lags a little.
	var second string
	require.Eventually(t, func() bool {
		second = page(t, registry)
		return strings.Contains(second, `reclaim_refund_transitions_total{state="succeeded"} 2`)
	}, time.Minute, 10*time.Millisecond)
	has(t, second, `reclaim_jobs{state="running"} 1`, `reclaim_jobs{state="dead_letter"} 1`,
		`reclaim_refunds{state="accepted"} 1`, `reclaim_refunds{state="unknown"} 0`, `reclaim_refunds{state="pending"} 1`,
		`reclaim_attention{kind="dead_letter"} 1`, `reclaim_attention{kind="refund_unconfirmed"} 1`,
		`reclaim_attention{kind="evidence_conflict"} 1`, `reclaim_issues_open{kind="unknown_refund"} 1`, `reclaim_outbox_waiting 1`,
		`reclaim_money_moved_total{asset="CREDIT",direction="credit",type="topup"} 1000`,
		`reclaim_money_moved_total{asset="CREDIT",direction="debit",type="charge"} 5`,
		`reclaim_money_moved_total{asset="CREDIT",direction="debit",type="adjust"} 7`,
		`reclaim_money_moved_total{asset="CREDIT",direction="credit",type="adjust"} 2`,
		`reclaim_ledger_entries_total{asset="CREDIT",direction="debit",type="charge"} 1`,
		`reclaim_refund_transitions_total{state="succeeded"} 2`, `reclaim_refund_transitions_total{state="accepted"} 1`)
	assert.Regexp(t, `\nreclaim_refund_oldest_unconfirmed_seconds 100\d`, second)
	assert.Regexp(t, `\nreclaim_outbox_oldest_seconds 10\d`, second)
	// What was counted is not counted again.
	has(t, page(t, registry), `reclaim_money_moved_total{asset="CREDIT",direction="credit",type="topup"} 1000`,
		`reclaim_refund_transitions_total{state="succeeded"} 2`)
}

func TestWhatCannotBeReadIsMissingAndSaysSo(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewReadings(b.store, 0, zap.NewNop()))
	b.does("INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence) VALUES ('a', 'i', 'k', 'job', 'j', '')",
		"REVOKE SELECT ON reclaim.issues FROM reclaim_app")
	text := page(t, registry)
	has(t, text, `reclaim_reading_success{reading="issues"} 0`, `reclaim_reading_success{reading="outbox"} 1`, `reclaim_outbox_waiting 0`)
	assert.NotContains(t, text, "reclaim_issues_open")
	b.does("GRANT SELECT ON reclaim.issues TO reclaim_app")
	has(t, page(t, registry), `reclaim_reading_success{reading="issues"} 1`, `reclaim_issues_open{kind="k"} 1`)

	// A table that is locked holds a reading up for so long and no longer.
	lock, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE reclaim.issues IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	began := time.Now()
	has(t, page(t, registry), `reclaim_reading_success{reading="issues"} 0`, `reclaim_reading_success{reading="outbox"} 1`)
	assert.Less(t, time.Since(began), readings+time.Second)
	require.NoError(t, lock.Rollback(t.Context()))
}

func TestAReadingStandsForAWhile(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewReadings(b.store, time.Hour, zap.NewNop()))
	has(t, page(t, registry), `reclaim_outbox_waiting 0`)
	b.does("INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload) VALUES ('start_job', 'acme', 'j9', '{}')")
	has(t, page(t, registry), `reclaim_outbox_waiting 0`)
}

func TestAssetsBeyondALimitAreCountedTogether(t *testing.T) {
	t.Parallel()
	readings := NewReadings(nil, 0, zap.NewNop())
	for n := range assetsAtMost {
		assert.Equal(t, fmt.Sprint("A", n), readings.asset(fmt.Sprint("A", n)))
	}
	assert.Equal(t, otherAssets, readings.asset("one more"))
	assert.Equal(t, "A0", readings.asset("A0"))
}

// The readings must not read what has grown: each of them uses an index.
func TestReadingsDoNotReadTheHistory(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.does("INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('acme', 'a', 'CREDIT')",
		`INSERT INTO reclaim.jobs (tenant_id, job_id, account_id, cost, fingerprint, state, is_refunded, refunded_at, spec)
			SELECT 'acme', 'j' || n, 'a', 5, 'f', 'failed', true, now(), '{}' FROM generate_series(1, 20000) AS n`,
		`INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason, created_at)
			SELECT 'acme', 'a', n, 'adjust', 1, n, 'r', now() - (30000 - n) * interval '1 s' FROM generate_series(1, 30000) AS n`,
		"VACUUM ANALYZE reclaim.jobs", "VACUUM ANALYZE reclaim.ledger_entries")
	text, err := schema.QueryText("readings")
	require.NoError(t, err)
	for name, index := range map[string]string{"ReadOpenJobs": "jobs_open", "ReadMoneyMoved": "ledger_entries_written"} {
		_, query, found := strings.Cut(text, "-- name: "+name+" :many\n")
		require.True(t, found, name)
		query, _, _ = strings.Cut(query, ";")
		query = strings.NewReplacer("@since", "(now() - interval '10 s')", "@until", "now()").Replace(query)
		rows, err := b.owner.Query(t.Context(), "EXPLAIN\n"+query)
		require.NoError(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		assert.Contains(t, strings.Join(lines, "\n"), index)
	}
}
