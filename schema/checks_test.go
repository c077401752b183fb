package schema_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// constraintOf gives the constraint or index that an error names, "" where there is none.
func constraintOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.ConstraintName
	}
	return ""
}

// cells are the columns of a row, as SQL.
type cells map[string]string

// possible is a row of each table that can exist beside the rows of aRowInEveryTable.
var possible = map[string]cells{
	"accounts": {"tenant_id": "'acme'", "account_id": "'second'", "asset": "'CREDIT'"},
	"jobs": {
		"tenant_id": "'acme'", "job_id": "'second'", "account_id": "'team'", "cost": "40", "fingerprint": "'f'",
		"state": "'running'", "spec": "'{}'",
	},
	"ledger_entries": {
		"tenant_id": "'acme'", "account_id": "'team'", "seq": "3", "type": "'topup'", "amount": "5", "balance_after": "65",
		"reason": "'top-up'",
	},
	"job_events": {"tenant_id": "'acme'", "job_id": "'job'", "kind": "'closed'"},
	"operations": {
		"tenant_id": "'acme'", "actor": "'a'", "kind": "'adjust'", "key": "'k'", "fingerprint": "'f'", "subject_id": "'team'",
		"entry_seq": "1",
	},
	"resolutions": {
		"tenant_id": "'acme'", "subject_kind": "'job'", "subject_id": "'job'", "resolution_id": "'second'",
		"action": "'deliver'", "operator": "'ann'", "reason": "'called'", "outcome": "'applied'", "state": "'running'",
	},
}

// rowCase is a possible row with other cells. Without a constraint it can exist.
type rowCase struct {
	table      string
	constraint string
	change     cells
}

var (
	refunded  = cells{"is_refunded": "true", "refunded_at": "now()"}
	reclaimed = cells{"is_reclaimed": "true", "reclaimed_at": "now()"}
	delivered = cells{"state": "'succeeded'", "delivered_at": "now()"}
)

func and(parts ...cells) cells {
	all := cells{}
	for _, part := range parts {
		maps.Copy(all, part)
	}
	return all
}

func bytes(n int) string { return fmt.Sprintf("repeat('x', %d)", n) }

// rowCases come to every CHECK, unique key and foreign key from both sides.
func rowCases() []rowCase {
	cases := []rowCase{
		{"accounts", "", nil},
		{"accounts", "", cells{"balance": "-5", "seq": "1"}},
		{"accounts", "", cells{"balance": "0", "seq": "2"}},
		{"accounts", "accounts_check", cells{"balance": "5"}},
		{"accounts", "accounts_check", cells{"balance": "-5"}},
		{"accounts", "accounts_seq_check", cells{"seq": "-1"}},
		{"accounts", "accounts_pkey", cells{"account_id": "'team'"}},
		{"accounts", "", cells{"account_id": "'team'", "tenant_id": "'globex'"}},

		{"jobs", "", nil},
		{"jobs", "jobs_pkey", cells{"job_id": "'job'"}},
		{"jobs", "jobs_tenant_id_account_id_fkey", cells{"account_id": "'nobody'"}},
		{"jobs", "jobs_tenant_id_account_id_fkey", cells{"tenant_id": "'globex'"}},
		{"jobs", "", cells{"cost": "0"}},
		{"jobs", "", cells{"cost": "9007199254740991"}},
		{"jobs", "jobs_cost_check", cells{"cost": "-1"}},
		{"jobs", "jobs_cost_check", cells{"cost": "9007199254740992"}},
		{"jobs", "jobs_fingerprint_check", cells{"fingerprint": "''"}},
		{"jobs", "jobs_state_check", cells{"state": "'declined'", "is_refunded": "true", "refunded_at": "now()"}},
		{"jobs", "", refunded},
		{"jobs", "jobs_check", cells{"is_refunded": "true"}},
		{"jobs", "jobs_check", cells{"refunded_at": "now()"}},
		{"jobs", "", and(delivered, refunded, reclaimed)},
		{"jobs", "jobs_check1", and(delivered, refunded, cells{"is_reclaimed": "true"})},
		{"jobs", "jobs_check1", cells{"reclaimed_at": "now()"}},
		{"jobs", "", delivered},
		{"jobs", "jobs_check2", cells{"state": "'succeeded'"}},
		{"jobs", "jobs_check2", cells{"delivered_at": "now()"}},
		{"jobs", "jobs_check3", and(delivered, refunded)},
		{"jobs", "jobs_check3", and(delivered, reclaimed)},
		{"jobs", "jobs_check3", and(refunded, reclaimed)},
		{"jobs", "jobs_check3", reclaimed},
		{"jobs", "", and(delivered, cells{"output": "'{}'"})},
		{"jobs", "jobs_check5", cells{"output": "'{}'"}},
		{"jobs", "jobs_check5", and(refunded, cells{"state": "'failed'", "output": "'{}'"})},
		{"jobs", "", and(delivered, cells{"output": bytes(65536)})},
		{"jobs", "jobs_output_check", and(delivered, cells{"output": bytes(65537)})},
		{"jobs", "", cells{"spec": bytes(65536)}},
		{"jobs", "jobs_spec_check", cells{"spec": bytes(65537)}},
		{"jobs", "", cells{"last_error": bytes(2000), "reason": bytes(2000)}},
		{"jobs", "jobs_last_error_check", cells{"last_error": bytes(2001)}},
		{"jobs", "jobs_reason_check", cells{"reason": "repeat('é', 1001)"}},
		{"jobs", "", cells{"attempts": "3", "granted": "2", "key_attempt": "4"}},
		{"jobs", "jobs_attempts_check", cells{"attempts": "-1"}},
		{"jobs", "jobs_granted_check", cells{"granted": "-1"}},
		{"jobs", "jobs_key_attempt_check", cells{"key_attempt": "0"}},

		{"ledger_entries", "ledger_entries_pkey", cells{"seq": "2"}},
		{"ledger_entries", "ledger_entries_seq_check", cells{"seq": "0"}},
		{"ledger_entries", "ledger_entries_type_check", cells{"type": "'gift'", "amount": "-5"}},
		{"ledger_entries", "ledger_entries_amount_check", cells{"type": "'adjust'", "amount": "0"}},
		{"ledger_entries", "ledger_entries_reason_check", cells{"reason": "''"}},
		{"ledger_entries", "ledger_entries_reason_check", cells{"reason": bytes(2001)}},
		{"ledger_entries", "", cells{"reason": bytes(2000)}},
		{"ledger_entries", "ledger_entries_tenant_id_account_id_fkey", cells{"account_id": "'nobody'"}},
		{"ledger_entries", "ledger_entries_tenant_id_job_id_fkey", cells{"type": "'refund'", "job_id": "'nothing'"}},
		{"ledger_entries", "ledger_entries_job", cells{"type": "'charge'", "amount": "-40", "job_id": "'job'"}},
		{"ledger_entries", "ledger_entries_check3", cells{"job_id": "'job'"}},
		{"ledger_entries", "ledger_entries_check3", cells{"type": "'adjust'", "job_id": "'job'"}},
		{"ledger_entries", "", cells{"type": "'adjust'", "amount": "-100", "balance_after": "-40"}},
	}
	for state, positive := range map[string]bool{"running": true, "dead_letter": false, "failed": false, "canceled": false, "written_off": false} {
		cell := cells{"state": "'" + state + "'"}
		cases = append(cases, rowCase{"jobs", "", and(cell, refunded)})
		if !positive {
			cases = append(cases, rowCase{"jobs", "jobs_check4", cell})
		}
	}
	// Each type of entry: its sign, what it belongs to, and whether it may leave a debt.
	types := []struct {
		name            string
		positive, debts bool
		belongs         cells
	}{
		{"topup", true, true, nil},
		{"charge", false, false, cells{"job_id": "'job'"}},
		{"refund", true, true, cells{"job_id": "'job'"}},
		{"reclaim", false, true, cells{"job_id": "'job'"}},
		{"payout", false, false, cells{"refund_id": "'refund'"}},
		{"payout_return", true, true, cells{"refund_id": "'refund'"}},
	}
	for _, of := range types {
		entry := and(cells{"type": "'" + of.name + "'", "amount": "5"}, of.belongs)
		if !of.positive {
			entry["amount"] = "-5"
		}
		if of.name != "charge" { // the job has its charge
			cases = append(cases, rowCase{"ledger_entries", "", entry})
		}
		wrongSign := map[bool]string{true: "-5", false: "5"}[of.positive]
		cases = append(cases, rowCase{"ledger_entries", "ledger_entries_check", and(entry, cells{"amount": wrongSign})})
		debt := rowCase{"ledger_entries", "", and(entry, cells{"balance_after": "-1"})}
		if !of.debts {
			debt.constraint = "ledger_entries_check1"
		}
		cases = append(cases, debt)
		switch {
		case of.belongs["job_id"] != "":
			cases = append(cases,
				rowCase{"ledger_entries", "ledger_entries_check2", and(entry, cells{"job_id": "NULL"})},
				rowCase{"ledger_entries", "ledger_entries_check4", and(entry, cells{"refund_id": "'refund'"})})
		case of.belongs["refund_id"] != "":
			cases = append(cases, rowCase{"ledger_entries", "ledger_entries_check4", and(entry, cells{"refund_id": "NULL"})})
		default:
			cases = append(cases, rowCase{"ledger_entries", "ledger_entries_check3", and(entry, cells{"refund_id": "'refund'"})})
		}
	}
	for kind := range strings.FieldsSeq("attempt_failed attempt_unknown probe_answered outcome_recorded cancel_requested dead_letter closed message_refused") {
		cases = append(cases, rowCase{"job_events", "", cells{"kind": "'" + kind + "'"}})
	}
	cases = append(cases, []rowCase{
		{"job_events", "job_events_kind_check", cells{"kind": "'gossip'"}},
		{"job_events", "job_events_attempt_check", cells{"attempt": "-1"}},
		{"job_events", "", cells{"detail": bytes(2000)}},
		{"job_events", "job_events_detail_check", cells{"detail": bytes(2001)}},
		{"job_events", "job_events_tenant_id_job_id_fkey", cells{"job_id": "'nothing'"}},
		{"job_events", "job_events_tenant_id_job_id_fkey", cells{"tenant_id": "'globex'"}},

		{"operations", "", nil},
		{"operations", "operations_pkey", cells{"kind": "'topup'"}},
		{"operations", "", cells{"kind": "'topup'", "actor": "'b'"}},
		{"operations", "", cells{"kind": "'topup'", "tenant_id": "'globex'"}},
		{"operations", "operations_actor_check", cells{"actor": "''"}},
		{"operations", "operations_actor_check", cells{"actor": bytes(201)}},
		{"operations", "operations_key_check", cells{"key": "''"}},
		{"operations", "operations_key_check", cells{"key": bytes(201)}},
		{"operations", "", cells{"key": bytes(200), "actor": bytes(200)}},
		{"operations", "operations_kind_check", cells{"kind": "'gift'"}},
		{"operations", "operations_fingerprint_check", cells{"fingerprint": "''"}},

		{"resolutions", "", nil},
		{"resolutions", "resolutions_pkey", cells{"resolution_id": "'r'"}},
		{"resolutions", "resolutions_subject_kind_check", cells{"subject_kind": "'account'"}},
		{"resolutions", "resolutions_action_check", cells{"action": bytes(201)}},
		{"resolutions", "resolutions_operator_check", cells{"operator": bytes(2001)}},
		{"resolutions", "resolutions_approver_check", cells{"approver": bytes(2001)}},
		{"resolutions", "resolutions_reason_check", cells{"reason": bytes(2001)}},
		{"resolutions", "resolutions_evidence_check", cells{"evidence": bytes(2001)}},
		{"resolutions", "resolutions_outcome_check", cells{"outcome": "'maybe'"}},
		{"resolutions", "", cells{"outcome": "'refused'", "refusal": "'no'"}},
		{"resolutions", "resolutions_check", cells{"outcome": "'refused'"}},
		{"resolutions", "resolutions_check", cells{"refusal": "'no'"}},
	}...)
	// L77: ids are plain.
	for _, of := range []struct{ table, column string }{
		{"accounts", "tenant_id"}, {"accounts", "account_id"}, {"accounts", "asset"}, {"jobs", "job_id"}, {"resolutions", "resolution_id"},
	} {
		cases = append(cases, rowCase{of.table, "", cells{of.column: "'aZ09._:-'"}}, rowCase{of.table, "", cells{of.column: bytes(100)}})
		for _, id := range []string{"''", bytes(101), "'a b'", "E'a\\n'", "'é'", "'🎬'", "'a/b'", `'a\b'`, "'a''b'"} {
			cases = append(cases, rowCase{of.table, of.table + "_" + of.column + "_check", cells{of.column: id}})
		}
	}
	return cases
}

func TestEveryImpossibleRowIsRefusedByItsConstraint(t *testing.T) {
	t.Parallel()
	_, admin := filled(t)
	met := map[string]bool{}
	for _, test := range rowCases() {
		row := and(possible[test.table], test.change)
		columns := slices.Sorted(maps.Keys(row))
		values := make([]string, len(columns))
		for i, column := range columns {
			values[i] = row[column]
		}
		sql := fmt.Sprintf("INSERT INTO reclaim.%s (%s) VALUES (%s)", test.table, strings.Join(columns, ", "), strings.Join(values, ", "))
		tx, err := admin.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, tx.Rollback(t.Context()))
		assert.Equal(t, test.constraint, constraintOf(err), "%s: %v", sql, err)
		if test.constraint == "" {
			assert.NoError(t, err, sql)
		}
		met[test.constraint] = true
	}
	twice := "INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, %s_id, reason) " +
		"VALUES ('acme', 'team', 3, '%[2]s', %[3]d, 9, '%[4]s', 'r'), ('acme', 'team', 4, '%[2]s', %[3]d, 9, '%[4]s', 'r')"
	for _, of := range []struct {
		subject, kind, id, index string
		amount                   int
	}{
		{"job", "refund", "job", "ledger_entries_job", 5}, {"job", "reclaim", "job", "ledger_entries_job", -5},
		{"refund", "payout", "r", "ledger_entries_refund", -5}, {"refund", "payout_return", "r", "ledger_entries_refund", 5},
	} {
		_, err := admin.Exec(t.Context(), fmt.Sprintf(twice, of.subject, of.kind, of.amount, of.id))
		assert.Equal(t, of.index, constraintOf(err), "a second %s: %v", of.kind, err)
	}
	for _, name := range lines(t, admin, `SELECT conname::text FROM pg_constraint
		WHERE connamespace = 'reclaim'::regnamespace AND conrelid <> 'reclaim.schema_migrations'::regclass`) {
		if name != "job_events_pkey" { // its number is always generated
			assert.True(t, met[name], "no row comes up against %s", name)
		}
	}
}

func TestNothingThatMattersIsNull(t *testing.T) {
	t.Parallel()
	_, admin := filled(t)
	assert.ElementsMatch(t, []string{
		"jobs.refunded_at", "jobs.reclaimed_at", "jobs.delivered_at", "jobs.output",
		"ledger_entries.job_id", "ledger_entries.order_id", "ledger_entries.refund_id", "operations.expires_at",
	}, lines(t, admin, `SELECT table_name || '.' || column_name FROM information_schema.columns
		WHERE table_schema = 'reclaim' AND is_nullable = 'YES' AND table_name <> 'schema_migrations'`))
}
