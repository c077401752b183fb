package schema_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
)

const (
	codeNoRight    = "42501"
	codeAppendOnly = "23001"
)

// aRowInEveryTable writes one job that was charged and decided about, and one refund that was accepted on an order.
const aRowInEveryTable = rowsOfVersion6 + rowsOfLaterTables

const rowsOfVersion6 = `
	INSERT INTO reclaim.accounts (tenant_id, account_id, asset, balance, seq) VALUES ('acme', 'team', 'CREDIT', 60, 2);
	INSERT INTO reclaim.jobs (tenant_id, job_id, account_id, cost, fingerprint, state, spec)
		VALUES ('acme', 'job', 'team', 40, 'f', 'running', '{}');
	INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
		VALUES ('acme', 'team', 1, 'topup', 100, 100, 'top-up');
	INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
		VALUES ('acme', 'team', 2, 'charge', -40, 60, 'job', 'render');
	INSERT INTO reclaim.job_events (tenant_id, job_id, kind) VALUES ('acme', 'job', 'probe_answered');
	INSERT INTO reclaim.operations (tenant_id, actor, kind, key, fingerprint, subject_id, entry_seq)
		VALUES ('acme', 'a', 'topup', 'k', 'f', 'team', 1);
	INSERT INTO reclaim.resolutions (tenant_id, subject_kind, subject_id, resolution_id, action, operator, reason, outcome, state)
		VALUES ('acme', 'job', 'job', 'r', 'deliver', 'ann', 'called', 'applied', 'running');
	INSERT INTO reclaim.orders (tenant_id, order_id, account_id, channel, channel_payment_id, currency, paid, credits, reserved)
		VALUES ('acme', 'order', 'team', 'bank', 'pay-1', 'eur', 100, 50, 10);
	INSERT INTO reclaim.refunds (tenant_id, refund_id, order_id, job_id, amount, currency, credits, state, requested_by, reason)
		VALUES ('acme', 'refund', 'order', 'job', 10, 'eur', 0, 'accepted', 'ann', 'goodwill');
	INSERT INTO reclaim.refund_events (tenant_id, refund_id, seq, source, from_state, to_state, outcome, observed_at)
		VALUES ('acme', 'refund', 1, 'accept', '', 'accepted', 'accepted', now());
	INSERT INTO reclaim.issues (tenant_id, issue_id, kind, subject_kind, subject_id, evidence)
		VALUES ('acme', 'issue', 'evidence_mismatch', 'refund', 'refund', '11 eur');
	INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload) VALUES ('start_refund', 'acme', 'refund', '{}');
	INSERT INTO reclaim.api_keys (key_id, tenant_id, actor, scopes, secret_hash)
		VALUES ('key', 'acme', 'shop', ARRAY['jobs:read'], decode(repeat('ab', 32), 'hex'));`

const rowsOfLaterTables = `
	INSERT INTO reclaim.audit_positions (tenant_id, account_id, seq, balance) VALUES ('acme', 'team', 2, 60);
	INSERT INTO reclaim.audit_checkpoint (taken_at, whole_at, ledger_file, ledger_pages, ledger_edits, next_xid)
		VALUES (now(), now(), 1, 1, 0, 3);
	INSERT INTO reclaim.ledger_seals (tenant_id, position, account_id, seq, hash)
		VALUES ('acme', 1, 'team', 1, decode(repeat('ab', 32), 'hex'));
	INSERT INTO reclaim.reconciliations (tenant_id, reconciliation_id, since, until) VALUES ('acme', 'pass', now() - interval '1 d', now());
	INSERT INTO reclaim.reconciliation_findings (tenant_id, reconciliation_id, kind, subject_kind, subject_id, effect, detail)
		VALUES ('acme', 'pass', 'job_without_run', 'job', 'job', 'repaired', 'taken up');
	INSERT INTO reclaim.channel_lines (tenant_id, channel, kind, reference, amount, currency, outcome, made_at, reconciliation_id)
		VALUES ('acme', 'bank', 'refund', 're-1', 10, 'eur', 'succeeded', now(), 'pass');
	INSERT INTO reclaim.settlement_files (tenant_id, channel, file_hash, name, bytes, actor)
		VALUES ('acme', 'bank', repeat('ab', 32), 'july.csv', 4, 'ann');
	INSERT INTO reclaim.settlement_chunks (tenant_id, file_no, chunk, content) VALUES ('acme', 1, 0, 'line');
	INSERT INTO reclaim.settlement_lines (tenant_id, file_no, line, channel, raw, transaction_id, kind, reference, amount, currency)
		VALUES ('acme', 1, 2, 'bank', 'line', 'txn_1', 'refund', 're-1', 10, 'eur');
	INSERT INTO reclaim.settlement_readings (tenant_id, file_no, lines) VALUES ('acme', 1, 1);
	INSERT INTO reclaim.settlement_gone (tenant_id, channel, transaction_id, file_no) VALUES ('acme', 'bank', 'txn_0', 1);`

// filled gives a database with a row in every table, and a pool that may do everything.
func filled(t *testing.T) (*schematest.Database, *pgxpool.Pool) {
	t.Helper()
	database := schematest.New(t)
	admin := openPool(t, database.SuperuserURL)
	_, err := admin.Exec(t.Context(), aRowInEveryTable)
	require.NoError(t, err)
	return database, admin
}

// contents reads every table of the schema that its version has as text.
func contents(t *testing.T, admin *pgxpool.Pool) (all []string) {
	t.Helper()
	for _, table := range tables {
		if len(lines(t, admin, fmt.Sprintf("SELECT 'there' WHERE to_regclass('reclaim.%s') IS NOT NULL", table))) == 0 {
			continue
		}
		columns := table
		if table == "api_keys" {
			// Support does not read the hash.
			columns = "(key_id, tenant_id, actor, scopes, created_at, revoked_at)"
		}
		all = append(all, lines(t, admin, fmt.Sprintf("SELECT %s::text FROM reclaim.%s ORDER BY 1", columns, table))...)
	}
	return all
}

var tables = []string{
	"accounts", "jobs", "ledger_entries", "job_events", "operations", "resolutions", "orders", "refunds", "refund_events",
	"issues", "outbox", "api_keys", "audit_positions", "audit_checkpoint", "ledger_seals",
	"reconciliations", "reconciliation_findings", "channel_lines",
	"settlement_files", "settlement_chunks", "settlement_lines", "settlement_readings", "settlement_gone",
}

func TestTheTablesAreAllOfTheSchema(t *testing.T) {
	t.Parallel()
	_, admin := filled(t)
	assert.ElementsMatch(t, append([]string{"schema_migrations"}, tables...),
		lines(t, admin, "SELECT tablename::text FROM pg_tables WHERE schemaname = 'reclaim'"))
}

func TestHistoryCannotBeChangedByAnyone(t *testing.T) {
	t.Parallel()
	database, admin := filled(t)
	before := contents(t, admin)
	logins := map[string]*pgxpool.Pool{
		codeNoRight:    openStore(t, database.AppURL, schema.Options{}).Pool,
		codeAppendOnly: openPool(t, database.OwnerURL),
	}
	for code, pool := range logins {
		for _, table := range []string{
			"ledger_entries", "job_events", "resolutions", "refund_events", "ledger_seals", "reconciliation_findings",
			"settlement_files", "settlement_chunks", "settlement_lines", "settlement_readings", "settlement_gone",
		} {
			for _, sql := range []string{
				"UPDATE reclaim.%s SET tenant_id = tenant_id",
				"UPDATE reclaim.%s SET tenant_id = 'x' WHERE tenant_id = 'nobody'",
				"DELETE FROM reclaim.%s",
				"DELETE FROM reclaim.%s WHERE false",
				"TRUNCATE reclaim.%s CASCADE",
				"MERGE INTO reclaim.%s AS t USING (SELECT 1) AS s ON true WHEN MATCHED THEN DELETE",
			} {
				sql := fmt.Sprintf(sql, table)
				_, err := pool.Exec(t.Context(), sql)
				assert.Equal(t, code, codeOf(err), "%s: %v", sql, err)
			}
		}
	}
	owner := logins[codeAppendOnly]
	for _, sql := range []string{
		"TRUNCATE reclaim.jobs CASCADE", "TRUNCATE reclaim.accounts CASCADE", "TRUNCATE reclaim.orders CASCADE",
		"TRUNCATE reclaim.refunds CASCADE",
		`INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
			VALUES ('acme', 'team', 1, 'topup', 7, 7, 'again') ON CONFLICT (tenant_id, account_id, seq) DO UPDATE SET amount = 7`,
		`INSERT INTO reclaim.refund_events (tenant_id, refund_id, seq, source, from_state, to_state, outcome, observed_at)
			VALUES ('acme', 'refund', 1, 'notice', 'accepted', 'failed', 'failed', now())
			ON CONFLICT (tenant_id, refund_id, seq) DO UPDATE SET outcome = 'failed'`,
	} {
		_, err := owner.Exec(t.Context(), sql)
		assert.Equal(t, codeAppendOnly, codeOf(err), "%s: %v", sql, err)
	}
	for _, table := range []string{"ledger_entries", "refund_events", "ledger_seals"} {
		_, err := admin.Exec(t.Context(), "DELETE FROM reclaim."+table)
		assert.Equal(t, codeAppendOnly, codeOf(err), "not even a superuser's slip")
	}
	assert.Equal(t, before, contents(t, admin))
}

func TestTheApplicationCannotDoWhatNoGuardDoes(t *testing.T) {
	t.Parallel()
	database, admin := filled(t)
	before := contents(t, admin)
	app := openStore(t, database.AppURL, schema.Options{}).Pool
	for _, sql := range []string{
		"UPDATE reclaim.jobs SET cost = 1", "UPDATE reclaim.jobs SET spec = '{}'", "UPDATE reclaim.jobs SET fingerprint = 'g'",
		"UPDATE reclaim.jobs SET account_id = 'team'", "UPDATE reclaim.jobs SET created_at = now()",
		"UPDATE reclaim.jobs SET job_id = 'other'", "UPDATE reclaim.jobs SET tenant_id = 'other'",
		"UPDATE reclaim.jobs SET state = 'running', cost = 1",
		"UPDATE reclaim.accounts SET asset = 'GOLD'", "UPDATE reclaim.accounts SET account_id = 'mine'",
		"UPDATE reclaim.accounts SET tenant_id = 'mine'", "UPDATE reclaim.accounts SET created_at = now()",
		"UPDATE reclaim.operations SET fingerprint = 'g'", "UPDATE reclaim.operations SET expires_at = now()",
		"DELETE FROM reclaim.jobs", "DELETE FROM reclaim.accounts", "UPDATE reclaim.operations SET subject_id = 'other'",
		"UPDATE reclaim.orders SET paid = 1000", "UPDATE reclaim.orders SET credits = 1000",
		"UPDATE reclaim.orders SET account_id = 'team'", "UPDATE reclaim.orders SET channel = 'other'",
		"UPDATE reclaim.orders SET channel_payment_id = 'other'", "UPDATE reclaim.orders SET currency = 'jpy'",
		"UPDATE reclaim.orders SET order_id = 'other'", "UPDATE reclaim.orders SET refunded = 0, paid = 1000",
		"DELETE FROM reclaim.orders", "TRUNCATE reclaim.orders CASCADE",
		"UPDATE reclaim.refunds SET amount = 1000", "UPDATE reclaim.refunds SET credits = 1000",
		"UPDATE reclaim.refunds SET currency = 'jpy'", "UPDATE reclaim.refunds SET order_id = 'order'",
		"UPDATE reclaim.refunds SET job_id = NULL", "UPDATE reclaim.refunds SET refund_id = 'other'",
		"UPDATE reclaim.refunds SET tenant_id = 'other'", "UPDATE reclaim.refunds SET requested_by = 'other'",
		"UPDATE reclaim.refunds SET reason = 'other'", "UPDATE reclaim.refunds SET created_at = now()",
		"UPDATE reclaim.refunds SET state = 'succeeded', amount = 1000",
		"DELETE FROM reclaim.refunds", "TRUNCATE reclaim.refunds CASCADE",
		"UPDATE reclaim.issues SET kind = 'other'", "UPDATE reclaim.issues SET evidence = 'other'",
		"UPDATE reclaim.issues SET subject_id = 'other'", "UPDATE reclaim.issues SET opened_at = now()",
		"DELETE FROM reclaim.issues", "TRUNCATE reclaim.issues",
		"UPDATE reclaim.outbox SET payload = '{}'", "UPDATE reclaim.outbox SET kind = 'start_job'",
		"UPDATE reclaim.outbox SET subject_id = 'other'", "UPDATE reclaim.outbox SET tenant_id = 'other'",
		"TRUNCATE reclaim.outbox", "DROP FUNCTION reclaim.announce_outbox CASCADE",
		"DROP TRIGGER append_only ON reclaim.refund_events", "ALTER TABLE reclaim.refund_events DISABLE TRIGGER ALL",
		"TRUNCATE reclaim.jobs CASCADE", "TRUNCATE reclaim.operations",
		"UPDATE reclaim.schema_migrations SET version_id = 0", "DELETE FROM reclaim.schema_migrations",
		"INSERT INTO reclaim.schema_migrations (version_id, is_applied) VALUES (99, true)",
		"ALTER TABLE reclaim.ledger_entries DISABLE TRIGGER ALL", "ALTER TABLE reclaim.ledger_entries DISABLE TRIGGER append_only",
		"DROP TRIGGER append_only ON reclaim.ledger_entries", "ALTER TABLE reclaim.jobs DROP CONSTRAINT jobs_state_check",
		"ALTER DOMAIN reclaim.cost DROP CONSTRAINT cost_check", "DROP DOMAIN reclaim.cost CASCADE",
		"DROP TABLE reclaim.resolutions", "DROP SCHEMA reclaim CASCADE", "DROP FUNCTION reclaim.refuse_change CASCADE",
		`CREATE OR REPLACE FUNCTION reclaim.refuse_change() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`,
		"CREATE TABLE reclaim.mine (n int)", "SET session_replication_role = replica",
		"UPDATE reclaim.audit_positions SET account_id = 'mine'", "DELETE FROM reclaim.audit_positions",
		"DELETE FROM reclaim.audit_checkpoint", "ALTER TABLE reclaim.ledger_seals DISABLE TRIGGER append_only",
		"DROP FUNCTION reclaim.entry_fits CASCADE",
		"GRANT UPDATE ON reclaim.ledger_entries TO reclaim_app", "SET ROLE " + loginOf(t, database.OwnerURL),
		"SET SESSION AUTHORIZATION postgres",
	} {
		_, err := app.Exec(t.Context(), sql)
		// A GRANT of what one does not own is a warning that does nothing where some right is held.
		if sql[:5] != "GRANT" || err != nil {
			assert.Equal(t, codeNoRight, codeOf(err), "%s: %v", sql, err)
		}
	}
	_, err := app.Exec(t.Context(), "UPDATE reclaim.ledger_entries SET amount = 1")
	assert.Equal(t, codeNoRight, codeOf(err))
	assert.Equal(t, before, contents(t, admin))
}

// What the application may do to each table, as the catalog has it: a right that no guard needs does not slip in.
func TestTheApplicationsRightsAreThese(t *testing.T) {
	t.Parallel()
	_, admin := filled(t)
	assert.ElementsMatch(t, []string{
		"accounts: INSERT, SELECT", "jobs: INSERT, SELECT", "ledger_entries: INSERT, SELECT", "job_events: INSERT, SELECT",
		"operations: DELETE, INSERT, SELECT", "resolutions: INSERT, SELECT", "orders: INSERT, SELECT",
		"refunds: INSERT, SELECT", "refund_events: INSERT, SELECT", "issues: INSERT, SELECT",
		"outbox: DELETE, INSERT, SELECT", "api_keys: INSERT, SELECT", "schema_migrations: SELECT",
		"audit_positions: INSERT, SELECT", "audit_checkpoint: INSERT, SELECT", "ledger_seals: INSERT, SELECT",
		"reconciliations: INSERT, SELECT", "reconciliation_findings: INSERT, SELECT", "channel_lines: INSERT, SELECT",
		"settlement_files: INSERT, SELECT", "settlement_chunks: INSERT, SELECT", "settlement_lines: INSERT, SELECT",
		"settlement_readings: INSERT, SELECT", "settlement_gone: INSERT, SELECT", "settlement_book: SELECT",
		"settlement_expected: SELECT", "settlement_claims: SELECT",
	}, lines(t, admin, `SELECT table_name || ': ' || string_agg(privilege_type, ', ' ORDER BY privilege_type)
		FROM information_schema.role_table_grants
		WHERE table_schema = 'reclaim' AND grantee IN ('reclaim_app', 'PUBLIC') GROUP BY table_name`))
	assert.ElementsMatch(t, []string{
		"accounts: balance, seq",
		"jobs: attempts, cancel_requested, delivered_at, granted, is_reclaimed, is_refunded, key_attempt, last_error, " +
			"output, reason, reclaimed_at, refunded_at, state, updated_at",
		"orders: refunded, refunded_credits, reserved, reserved_credits",
		"refunds: channel_ref, ended_by, event_seq, first_sent_at, last_checked_at, last_code, last_outcome, look_count, look_until, " +
			"needs_review, next_look_at, resend_requested, returned_at, send_count, state, succeeded_at, updated_at",
		"issues: resolved_at, state",
		"outbox: attempts, delivered_at, last_error, next_attempt_at",
		"api_keys: revoked_at",
		"audit_positions: balance, seq",
		"reconciliations: ended_at, unfinished",
		"channel_lines: amount, code, currency, made_at, number, outcome, payment, reconciliation_id, seen_at",
		"audit_checkpoint: ledger_edits, ledger_file, ledger_pages, next_xid, taken_at, whole_at",
	}, lines(t, admin, `SELECT table_name || ': ' || string_agg(column_name, ', ' ORDER BY column_name)
		FROM information_schema.column_privileges
		WHERE table_schema = 'reclaim' AND grantee IN ('reclaim_app', 'PUBLIC') AND privilege_type = 'UPDATE' GROUP BY table_name`))
}

// L83: the guards write balance and seq, so the application's role may; what the rows themselves refuse is refused, and
// what they do not is a break that shows against the entries, which nobody can change along with it.
func TestL83_ABalanceWrittenPastTheGuardsIsRefusedOrShows(t *testing.T) {
	t.Parallel()
	database, admin := filled(t)
	app := openStore(t, database.AppURL, schema.Options{}).Pool
	_, err := app.Exec(t.Context(), "INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('acme', 'new', 'CREDIT')")
	require.NoError(t, err)
	for _, test := range []struct{ sql, constraint string }{
		{"UPDATE reclaim.accounts SET balance = 1000 WHERE account_id = 'new'", "accounts_seq_check"},
		{"UPDATE reclaim.accounts SET seq = 0 WHERE account_id = 'team'", "accounts_seq_check"},
		{"UPDATE reclaim.accounts SET seq = -1, balance = 0 WHERE account_id = 'team'", "accounts_seq_check"},
		{"UPDATE reclaim.accounts SET balance = 1000 WHERE account_id = 'team'", ""},
		{"UPDATE reclaim.accounts SET balance = 1000, seq = 3 WHERE account_id = 'team'", ""},
		{"UPDATE reclaim.accounts SET seq = 1 WHERE account_id = 'team'", ""},
		{"UPDATE reclaim.accounts SET balance = 1, seq = 1 WHERE account_id = 'new'", ""},
	} {
		tx, err := app.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), test.sql)
		if test.constraint != "" {
			assert.Equal(t, test.constraint, constraintOf(err), test.sql)
		} else {
			require.NoError(t, err, test.sql)
			var broken int
			require.NoError(t, tx.QueryRow(t.Context(), `SELECT count(*) FROM reclaim.accounts AS a LEFT JOIN
				(SELECT tenant_id, account_id, sum(amount) AS booked, max(seq) AS newest FROM reclaim.ledger_entries
					GROUP BY tenant_id, account_id) AS e USING (tenant_id, account_id)
				WHERE a.balance <> coalesce(booked, 0) OR a.seq <> coalesce(newest, 0)`).Scan(&broken))
			assert.Equal(t, 1, broken, "%s shows", test.sql)
		}
		require.NoError(t, tx.Rollback(t.Context()))
	}
	assert.Equal(t, []string{"60"}, lines(t, admin, "SELECT balance::text FROM reclaim.accounts WHERE account_id = 'team'"))
}

func TestSupportReadsEverythingAndChangesNothing(t *testing.T) {
	t.Parallel()
	database, admin := filled(t)
	config, err := pgxpool.ParseConfig(database.SuperuserURL)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["role"] = "reclaim_support"
	support, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(support.Close)
	before := contents(t, admin)
	assert.Equal(t, []string{"reclaim_support"}, lines(t, support, "SELECT current_user::text"))
	assert.Equal(t, before, contents(t, support))
	_, err = support.Exec(t.Context(), "SELECT secret_hash FROM reclaim.api_keys")
	assert.Equal(t, codeNoRight, codeOf(err), "%v", err)
	for _, table := range tables {
		column := "tenant_id"
		if table == "audit_checkpoint" {
			column = "taken_at"
		}
		for _, sql := range []string{
			"INSERT INTO reclaim.%s DEFAULT VALUES", "UPDATE reclaim.%s SET " + column + " = " + column,
			"DELETE FROM reclaim.%s", "TRUNCATE reclaim.%s CASCADE", "SELECT FROM reclaim.%s FOR UPDATE",
		} {
			sql := fmt.Sprintf(sql, table)
			_, err := support.Exec(t.Context(), sql)
			assert.Equal(t, codeNoRight, codeOf(err), "%s: %v", sql, err)
		}
	}
	assert.Equal(t, before, contents(t, admin))
}
