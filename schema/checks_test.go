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

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
)

const codeCheck = "23514"

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
	"orders": {
		"tenant_id": "'acme'", "order_id": "'second'", "account_id": "'team'", "channel": "'bank'",
		"channel_payment_id": "'pay-2'", "currency": "'eur'", "paid": "100", "credits": "50",
	},
	"refunds": {
		"tenant_id": "'acme'", "refund_id": "'second'", "order_id": "'order'", "amount": "10", "currency": "'eur'",
		"credits": "5", "state": "'accepted'", "requested_by": "'ann'", "reason": "'goodwill'",
	},
	"refund_events": {
		"tenant_id": "'acme'", "refund_id": "'refund'", "seq": "2", "source": "'notice'", "from_state": "'unknown'",
		"to_state": "'pending'", "outcome": "'pending'", "observed_at": "now()",
	},
	"issues": {
		"tenant_id": "'acme'", "issue_id": "'second'", "kind": "'k'", "subject_kind": "'refund'", "subject_id": "'refund'",
		"evidence": "''",
	},
	"api_keys": {
		"key_id": "'key2'", "tenant_id": "'acme'", "actor": "'shop'", "scopes": "ARRAY['jobs:read']",
		"secret_hash": "decode(repeat('ab', 32), 'hex')",
	},
	"outbox":          {"kind": "'start_refund'", "tenant_id": "'acme'", "subject_id": "'refund'", "payload": "'{}'"},
	"audit_positions": {"tenant_id": "'acme'", "account_id": "'second'", "seq": "1", "balance": "5"},
	"audit_checkpoint": {
		"is_newest": "true", "taken_at": "now()", "whole_at": "now()", "ledger_file": "1", "ledger_pages": "1",
		"ledger_edits": "0", "next_xid": "3",
	},
	"reconciliations": {
		"tenant_id": "'acme'", "reconciliation_id": "'second'", "since": "now() - interval '1 d'", "until": "now()",
	},
	"reconciliation_findings": {
		"tenant_id": "'acme'", "reconciliation_id": "'pass'", "kind": "'job_without_run'", "subject_kind": "'job'",
		"subject_id": "'second'", "effect": "'repaired'", "detail": "'taken up'",
	},
	"channel_lines": {
		"tenant_id": "'acme'", "channel": "'bank'", "kind": "'refund'", "reference": "'re-2'", "amount": "10", "currency": "'eur'",
		"outcome": "'succeeded'", "made_at": "now()", "reconciliation_id": "'pass'",
	},
	"settlement_files": {
		"tenant_id": "'acme'", "channel": "'bank'", "file_hash": "repeat('cd', 32)", "name": "'july.csv'", "bytes": "4", "actor": "'ann'",
	},
	"settlement_chunks": {"tenant_id": "'acme'", "file_no": "1", "chunk": "1", "content": "'line'"},
	"settlement_lines": {
		"tenant_id": "'acme'", "file_no": "1", "line": "3", "channel": "'bank'", "raw": "'line'", "transaction_id": "'txn_2'",
	},
	"settlement_readings": {"tenant_id": "'acme'", "file_no": "1", "lines": "1"},
	"settlement_gone":     {"tenant_id": "'acme'", "channel": "'bank'", "transaction_id": "'txn_2'", "file_no": "1"},
	"ledger_seals": {
		"tenant_id": "'acme'", "position": "2", "account_id": "'team'", "seq": "2", "hash": "decode(repeat('ab', 32), 'hex')",
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
	// of a refund
	sent      = cells{"first_sent_at": "now()", "send_count": "1"}
	known     = cells{"channel_ref": "'re-1'"}
	confirmed = cells{"succeeded_at": "now()"}
	returned  = cells{"returned_at": "now()"}
)

// refundStates are the parts that each state of a refund needs beside its name.
var refundStates = map[string]cells{
	"accepted": {}, "unknown": sent, "pending": and(sent, known), "succeeded": and(sent, known, confirmed),
	"failed": and(sent, returned), "canceled": returned, "reversed": and(sent, known, confirmed, returned),
}

// in gives a refund in the state, with or without the given parts.
func in(state string, with ...cells) cells {
	return and(append([]cells{{"state": "'" + state + "'"}}, with...)...)
}

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
		{"accounts", "accounts_seq_check", cells{"balance": "5"}},
		{"accounts", "accounts_seq_check", cells{"balance": "-5"}},
		{"accounts", "accounts_seq_check", cells{"seq": "-1"}},
		{"accounts", "accounts_pkey", cells{"account_id": "'team'"}},
		{"accounts", "", cells{"account_id": "'team'", "tenant_id": "'globex'"}},

		{"jobs", "", nil},
		{"jobs", "jobs_pkey", cells{"job_id": "'job'"}},
		{"jobs", "jobs_tenant_id_account_id_fkey", cells{"account_id": "'nobody'"}},
		{"jobs", "jobs_tenant_id_account_id_fkey", cells{"tenant_id": "'globex'"}},
		{"jobs", "", cells{"cost": "0"}},
		{"jobs", "", cells{"cost": "9007199254740991"}},
		{"jobs", "cost_check", cells{"cost": "-1"}},
		{"jobs", "cost_check", cells{"cost": "9007199254740992"}},
		{"jobs", "fingerprint_check", cells{"fingerprint": "''"}},
		{"jobs", "jobs_state_check", and(refunded, cells{"state": "'declined'"})},
		{"jobs", "jobs_state_check", cells{"state": "'declined'"}},
		{"jobs", "", refunded},
		{"jobs", "jobs_instants_check", cells{"is_refunded": "true"}},
		{"jobs", "jobs_instants_check", cells{"refunded_at": "now()"}},
		{"jobs", "", and(delivered, refunded, reclaimed)},
		{"jobs", "jobs_instants_check", and(delivered, refunded, cells{"is_reclaimed": "true"})},
		{"jobs", "jobs_instants_check", cells{"reclaimed_at": "now()"}},
		{"jobs", "", delivered},
		{"jobs", "jobs_state_check", cells{"state": "'succeeded'"}},
		{"jobs", "jobs_state_check", cells{"delivered_at": "now()"}},
		{"jobs", "jobs_state_check", and(delivered, refunded)},
		{"jobs", "jobs_state_check", and(delivered, reclaimed)},
		{"jobs", "jobs_state_check", and(refunded, reclaimed)},
		{"jobs", "jobs_state_check", reclaimed},
		{"jobs", "", and(delivered, cells{"output": "'{}'"})},
		{"jobs", "jobs_state_check", cells{"output": "'{}'"}},
		{"jobs", "jobs_state_check", and(refunded, cells{"state": "'failed'", "output": "'{}'"})},
		{"jobs", "", and(delivered, cells{"output": bytes(65536)})},
		{"jobs", "document_check", and(delivered, cells{"output": bytes(65537)})},
		{"jobs", "", cells{"spec": bytes(65536)}},
		{"jobs", "document_check", cells{"spec": bytes(65537)}},
		{"jobs", "", cells{"last_error": bytes(2000), "reason": bytes(2000)}},
		{"jobs", "note_check", cells{"last_error": bytes(2001)}},
		{"jobs", "note_check", cells{"reason": "repeat('é', 1001)"}},
		{"jobs", "", cells{"attempts": "3", "granted": "2", "key_attempt": "4"}},
		{"jobs", "attempt_count_check", cells{"attempts": "-1"}},
		{"jobs", "attempt_count_check", cells{"granted": "-1"}},
		{"jobs", "attempt_number_check", cells{"key_attempt": "0"}},

		{"ledger_entries", "ledger_entries_pkey", cells{"seq": "2"}},
		{"ledger_entries", "ledger_entries_seq_check", cells{"seq": "0"}},
		{"ledger_entries", "ledger_entries_type_check", cells{"type": "'gift'", "amount": "-5"}},
		{"ledger_entries", "ledger_entries_type_check", cells{"type": "'gift'", "amount": "5"}},
		{"ledger_entries", "ledger_entries_type_check", cells{"type": "'gift'", "amount": "-5", "balance_after": "-1"}},
		{"ledger_entries", "ledger_entries_type_check", cells{"type": "'adjust'", "amount": "0"}},
		{"ledger_entries", "ledger_entries_type_check", cells{"type": "'adjust'", "amount": "0", "balance_after": "-1"}},
		{"ledger_entries", "entry_reason_check", cells{"reason": "''"}},
		{"ledger_entries", "entry_reason_check", cells{"reason": bytes(2001)}},
		{"ledger_entries", "", cells{"reason": bytes(2000)}},
		{"ledger_entries", "ledger_entries_tenant_id_account_id_fkey", cells{"account_id": "'nobody'"}},
		{"ledger_entries", "ledger_entries_tenant_id_job_id_fkey", cells{"type": "'refund'", "job_id": "'nothing'"}},
		{"ledger_entries", "ledger_entries_job", cells{"type": "'charge'", "amount": "-40", "job_id": "'job'"}},
		{"ledger_entries", "ledger_entries_subject_check", cells{"job_id": "'job'"}},
		{"ledger_entries", "ledger_entries_subject_check", cells{"type": "'adjust'", "job_id": "'job'"}},
		{"ledger_entries", "ledger_entries_subject_check", cells{"type": "'adjust'", "refund_id": "'refund'"}},
		{"ledger_entries", "", cells{"type": "'adjust'", "amount": "-100", "balance_after": "-40"}},
	}
	for state, positive := range map[string]bool{"running": true, "dead_letter": false, "failed": false, "canceled": false, "written_off": false} {
		cell := cells{"state": "'" + state + "'"}
		cases = append(cases, rowCase{"jobs", "", and(cell, refunded)},
			rowCase{"jobs", "jobs_state_check", and(cell, refunded, reclaimed)},
			rowCase{"jobs", "jobs_state_check", and(cell, refunded, cells{"delivered_at": "now()"})},
			rowCase{"jobs", "jobs_state_check", and(cell, refunded, cells{"output": "'{}'"})})
		if !positive {
			cases = append(cases, rowCase{"jobs", "jobs_state_check", cell})
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
		{"payout", false, false, cells{"refund_id": "'refund'", "order_id": "'order'", "job_id": "'job'"}},
		{"payout_return", true, true, cells{"refund_id": "'refund'", "order_id": "'order'"}},
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
		cases = append(cases, rowCase{"ledger_entries", "ledger_entries_type_check", and(entry, cells{"amount": wrongSign})})
		debt := rowCase{"ledger_entries", "", and(entry, cells{"balance_after": "-1"})}
		if !of.debts {
			debt.constraint = "ledger_entries_type_check"
		}
		cases = append(cases, debt)
		switch {
		case of.belongs["refund_id"] != "":
			cases = append(cases,
				rowCase{"ledger_entries", "ledger_entries_subject_check", and(entry, cells{"refund_id": "NULL"})},
				rowCase{"ledger_entries", "ledger_entries_tenant_id_refund_id_fkey", and(entry, cells{"refund_id": "'nothing'"})},
				rowCase{"ledger_entries", "ledger_entries_tenant_id_order_id_fkey", and(entry, cells{"order_id": "'nothing'"})},
				rowCase{"ledger_entries", "ledger_entries_tenant_id_job_id_fkey", and(entry, cells{"job_id": "'nothing'"})})
		case of.belongs["job_id"] != "":
			cases = append(cases,
				rowCase{"ledger_entries", "ledger_entries_subject_check", and(entry, cells{"job_id": "NULL"})},
				rowCase{"ledger_entries", "ledger_entries_subject_check", and(entry, cells{"refund_id": "'refund'"})})
		default:
			cases = append(cases, rowCase{"ledger_entries", "ledger_entries_subject_check", and(entry, cells{"refund_id": "'refund'"})})
		}
	}
	for kind := range strings.FieldsSeq("attempt_failed attempt_unknown probe_answered outcome_recorded cancel_requested dead_letter closed message_refused " +
		"source_refund source_refused") {
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
		{"operations", "", cells{"kind": "'order'"}},
		{"operations", "", cells{"kind": "'refund'", "entry_seq": "NULL", "actor": "''"}},
		{"operations", "operations_actor_check", cells{"kind": "'order'", "actor": "''"}},
		{"operations", "operations_actor_check", cells{"kind": "'refund'", "entry_seq": "NULL", "actor": bytes(201)}},
		{"operations", "operations_entry_check", cells{"kind": "'refund'"}},
		{"operations", "operations_entry_check", cells{"kind": "'order'", "entry_seq": "NULL"}},
		{"operations", "operations_entry_check", cells{"entry_seq": "NULL"}},

		{"resolutions", "", nil},
		{"resolutions", "resolutions_pkey", cells{"resolution_id": "'r'"}},
		{"resolutions", "resolutions_subject_kind_check", cells{"subject_kind": "'account'"}},
		{"resolutions", "", cells{"subject_kind": "'refund'"}},
		{"resolutions", "", cells{"subject_kind": "'issue'", "particulars": bytes(2000)}},
		{"resolutions", "resolutions_particulars_check", cells{"particulars": bytes(2001)}},
		{"resolutions", "resolutions_action_check", cells{"action": bytes(201)}},
		{"resolutions", "resolutions_operator_check", cells{"operator": bytes(2001)}},
		{"resolutions", "resolutions_approver_check", cells{"approver": bytes(2001)}},
		{"resolutions", "resolutions_reason_check", cells{"reason": bytes(2001)}},
		{"resolutions", "resolutions_evidence_check", cells{"evidence": bytes(2001)}},
		{"resolutions", "resolutions_outcome_check", cells{"outcome": "'maybe'"}},
		{"resolutions", "", cells{"outcome": "'refused'", "refusal": "'no'"}},
		{"resolutions", "resolutions_check", cells{"outcome": "'refused'"}},
		{"resolutions", "resolutions_check", cells{"refusal": "'no'"}},

		{"orders", "", nil},
		{"orders", "orders_pkey", cells{"order_id": "'order'"}},
		{"orders", "orders_tenant_id_channel_channel_payment_id_key", cells{"channel_payment_id": "'pay-1'"}},
		{"orders", "", cells{"channel_payment_id": "'pay-1'", "channel": "'other'"}},
		{"orders", "orders_tenant_id_account_id_fkey", cells{"account_id": "'nobody'"}},
		{"orders", "orders_tenant_id_account_id_fkey", cells{"tenant_id": "'globex'"}},
		{"orders", "", cells{"channel_payment_id": bytes(200)}},
		{"orders", "orders_channel_payment_id_check", cells{"channel_payment_id": bytes(201)}},
		{"orders", "orders_channel_payment_id_check", cells{"channel_payment_id": "''"}},
		{"orders", "", cells{"paid": "9007199254740991", "credits": "9007199254740991"}},
		{"orders", "orders_paid_check", cells{"paid": "0"}},
		{"orders", "orders_paid_check", cells{"paid": "9007199254740992"}},
		{"orders", "orders_credits_check", cells{"credits": "0"}},
		{"orders", "orders_credits_check", cells{"credits": "9007199254740992"}},
		{"orders", "", cells{"reserved": "60", "refunded": "40", "reserved_credits": "20", "refunded_credits": "30"}},
		{"orders", "orders_check", cells{"reserved": "61", "refunded": "40"}},
		{"orders", "orders_check1", cells{"reserved_credits": "20", "refunded_credits": "31"}},
		{"orders", "orders_reserved_check", cells{"reserved": "-1", "refunded": "1"}},
		{"orders", "orders_refunded_check", cells{"reserved": "1", "refunded": "-1"}},
		{"orders", "orders_reserved_credits_check", cells{"reserved_credits": "-1", "refunded_credits": "1"}},
		{"orders", "orders_refunded_credits_check", cells{"reserved_credits": "1", "refunded_credits": "-1"}},

		{"refunds", "", nil},
		{"refunds", "refunds_pkey", cells{"refund_id": "'refund'"}},
		{"refunds", "refunds_job", cells{"job_id": "'job'"}},
		{"refunds", "refunds_tenant_id_order_id_fkey", cells{"order_id": "'nothing'"}},
		{"refunds", "refunds_tenant_id_order_id_fkey", cells{"tenant_id": "'globex'"}},
		{"refunds", "refunds_tenant_id_job_id_fkey", cells{"job_id": "'nothing'"}},
		{"refunds", "", cells{"refund_id": "'azAZ09_-'"}},
		{"refunds", "", cells{"refund_id": bytes(64)}},
		{"refunds", "", cells{"amount": "9007199254740991", "credits": "9007199254740991"}},
		{"refunds", "", cells{"credits": "0"}},
		{"refunds", "refunds_amount_check", cells{"amount": "0"}},
		{"refunds", "refunds_amount_check", cells{"amount": "9007199254740992"}},
		{"refunds", "refunds_credits_check", cells{"credits": "-1"}},
		{"refunds", "refunds_credits_check", cells{"credits": "9007199254740992"}},
		{"refunds", "refunds_state_check", and(sent, cells{"state": "'sending'"})},
		{"refunds", "refunds_send_count_check", cells{"send_count": "-1"}},
		{"refunds", "refunds_check1", cells{"send_count": "1"}},
		{"refunds", "refunds_check1", in("unknown", cells{"first_sent_at": "now()"})},
		{"refunds", "refunds_look_count_check", cells{"look_count": "-1"}},
		{"refunds", "refunds_event_seq_check", cells{"event_seq": "-1"}},
		{"refunds", "refunds_ended_by_check", cells{"ended_by": "'nobody'"}},
		{"refunds", "", cells{"requested_by": "''", "channel_ref": bytes(200)}},
		{"refunds", "refunds_requested_by_check", cells{"requested_by": bytes(201)}},
		{"refunds", "refunds_channel_ref_check", cells{"channel_ref": bytes(201)}},
		{"refunds", "", cells{"reason": bytes(2000), "requested_by": bytes(200)}},
		{"refunds", "refunds_reason_check", cells{"reason": bytes(2001)}},
		{"refunds", "refunds_reason_check", cells{"reason": "''"}},

		{"refund_events", "", nil},
		{"refund_events", "refund_events_pkey", cells{"seq": "1"}},
		{"refund_events", "refund_events_seq_check", cells{"seq": "0"}},
		{"refund_events", "refund_events_tenant_id_refund_id_fkey", cells{"refund_id": "'nothing'"}},
		{"refund_events", "refund_events_tenant_id_refund_id_fkey", cells{"tenant_id": "'globex'"}},
		{"refund_events", "refund_events_source_check", cells{"source": "'gossip'"}},
		{"refund_events", "refund_events_sends_check", cells{"sends": "-1"}},
		{"refund_events", "", cells{
			"outcome": bytes(100), "channel_ref": bytes(200), "code": bytes(200), "evidence": bytes(2000), "actor": bytes(2000),
		}},
		{"refund_events", "refund_events_outcome_check", cells{"outcome": bytes(101)}},
		{"refund_events", "refund_events_channel_ref_check", cells{"channel_ref": bytes(201)}},
		{"refund_events", "refund_events_code_check", cells{"code": bytes(201)}},
		{"refund_events", "refund_events_evidence_check", cells{"evidence": "repeat('é', 1001)"}},
		{"refund_events", "refund_events_actor_check", cells{"actor": bytes(2001)}},

		{"issues", "", nil},
		{"issues", "issues_pkey", cells{"issue_id": "'issue'"}},
		{"issues", "", cells{"issue_id": "'issue'", "tenant_id": "'globex'"}},
		{"issues", "", cells{"issue_id": bytes(200), "kind": bytes(100), "evidence": bytes(2000)}},
		{"issues", "issues_issue_id_check", cells{"issue_id": "''"}},
		{"issues", "issues_issue_id_check", cells{"issue_id": bytes(201)}},
		{"issues", "issues_kind_check", cells{"kind": "''"}},
		{"issues", "issues_kind_check", cells{"kind": bytes(101)}},
		{"issues", "issues_evidence_check", cells{"evidence": bytes(2001)}},
		{"issues", "issues_subject_kind_check", cells{"subject_kind": "'moon'"}},
		{"issues", "issues_state_check", cells{"state": "'closed'"}},
		{"issues", "", cells{"state": "'resolved'", "resolved_at": "now()"}},
		{"issues", "issues_check", cells{"state": "'resolved'"}},
		{"issues", "issues_check", cells{"resolved_at": "now()"}},

		{"api_keys", "", nil},
		{"api_keys", "", cells{"key_id": "repeat('a', 40)", "tenant_id": "repeat('t', 100)", "actor": bytes(200), "revoked_at": "now()"}},
		{"api_keys", "", cells{"scopes": "ARRAY['jobs:write', 'jobs:read', 'refunds:write', 'refunds:read', 'accounts:write', " +
			"'accounts:read', 'resolve']"}},
		{"api_keys", "api_keys_pkey", cells{"key_id": "'key'"}},
		{"api_keys", "api_keys_pkey", cells{"key_id": "'key'", "tenant_id": "'globex'"}},
		{"api_keys", "api_keys_key_id_check", cells{"key_id": "'Key'"}},
		{"api_keys", "api_keys_key_id_check", cells{"key_id": "repeat('a', 41)"}},
		{"api_keys", "api_keys_tenant_id_check", cells{"tenant_id": "'ac/me'"}},
		{"api_keys", "api_keys_tenant_id_check", cells{"tenant_id": "repeat('t', 101)"}},
		{"api_keys", "api_keys_tenant_id_check", cells{"tenant_id": "'unassigned'"}},
		{"api_keys", "api_keys_actor_check", cells{"actor": "''"}},
		{"api_keys", "api_keys_actor_check", cells{"actor": bytes(201)}},
		{"api_keys", "api_keys_scopes_check", cells{"scopes": "ARRAY[]::text[]"}},
		{"api_keys", "api_keys_scopes_check", cells{"scopes": "ARRAY['jobs:read', 'everything']"}},
		{"api_keys", "api_keys_secret_hash_check", cells{"secret_hash": "decode(repeat('ab', 31), 'hex')"}},

		{"audit_positions", "", nil},
		{"audit_positions", "audit_positions_pkey", cells{"account_id": "'team'"}},
		{"audit_checkpoint", "audit_checkpoint_pkey", nil},
		{"audit_checkpoint", "audit_checkpoint_is_newest_check", cells{"is_newest": "false"}},

		{"ledger_seals", "", nil},
		{"ledger_seals", "ledger_seals_pkey", cells{"position": "1"}},
		{"ledger_seals", "ledger_seals_tenant_id_account_id_seq_key", cells{"seq": "1"}},
		{"ledger_seals", "ledger_seals_position_check", cells{"position": "0"}},
		{"ledger_seals", "ledger_seals_seq_check", cells{"seq": "0"}},
		{"ledger_seals", "ledger_seals_hash_check", cells{"hash": "decode(repeat('ab', 31), 'hex')"}},

		{"reconciliations", "", nil},
		{"reconciliations", "reconciliations_pkey", cells{"reconciliation_id": "'pass'"}},
		{"reconciliations", "reconciliations_check", cells{"since": "now()"}},
		{"reconciliations", "reconciliations_unfinished_check", cells{"unfinished": bytes(20001)}},

		{"reconciliation_findings", "", nil},
		{"reconciliation_findings", "reconciliation_findings_pkey", cells{"subject_id": "'job'"}},
		{"reconciliation_findings", "", cells{"subject_id": "'job'", "particular": "'run 2'"}},
		{"reconciliation_findings", "reconciliation_findings_tenant_id_reconciliation_id_fkey", cells{"reconciliation_id": "'none'"}},
		{"reconciliation_findings", "reconciliation_findings_kind_check", cells{"kind": "''"}},
		{"reconciliation_findings", "reconciliation_findings_kind_check", cells{"kind": bytes(101)}},
		{"reconciliation_findings", "reconciliation_findings_subject_kind_check", cells{"subject_kind": "'moon'"}},
		{"reconciliation_findings", "reconciliation_findings_subject_id_check", cells{"subject_id": bytes(201)}},
		{"reconciliation_findings", "reconciliation_findings_particular_check", cells{"particular": bytes(201)}},
		{"reconciliation_findings", "reconciliation_findings_effect_check", cells{"effect": "'hidden'"}},
		{"reconciliation_findings", "reconciliation_findings_issue_id_check", cells{"issue_id": bytes(201)}},
		{"reconciliation_findings", "reconciliation_findings_detail_check", cells{"detail": bytes(2001)}},
		{"reconciliation_findings", "reconciliation_findings_currency_check", cells{"currency": bytes(21)}},
		{"reconciliation_findings", "reconciliation_findings_check", cells{"effect": "'opened'"}},
		{"reconciliation_findings", "reconciliation_findings_check", cells{"effect": "'known'"}},
		{"reconciliation_findings", "", cells{"effect": "'known'", "issue_id": "'issue'"}},

		{"channel_lines", "", nil},
		{"channel_lines", "", cells{"kind": "'payment'", "reference": "'re-1'"}},
		{"channel_lines", "channel_lines_pkey", cells{"reference": "'re-1'"}},
		{"channel_lines", "channel_lines_kind_check", cells{"kind": "'fee'"}},
		{"channel_lines", "channel_lines_reference_check", cells{"reference": "''"}},
		{"channel_lines", "channel_lines_reference_check", cells{"reference": bytes(201)}},
		{"channel_lines", "channel_lines_number_check", cells{"number": bytes(201)}},
		{"channel_lines", "channel_lines_payment_check", cells{"payment": bytes(201)}},
		{"channel_lines", "channel_lines_currency_check", cells{"currency": bytes(21)}},
		{"channel_lines", "channel_lines_outcome_check", cells{"outcome": bytes(101)}},
		{"channel_lines", "channel_lines_code_check", cells{"code": bytes(201)}},

		{"settlement_files", "", nil},
		{"settlement_files", "", cells{"file_hash": "repeat('ab', 32)", "channel": "'other'"}},
		{"settlement_files", "settlement_files_pkey", cells{"file_hash": "repeat('ab', 32)"}},
		{"settlement_files", "settlement_files_tenant_id_check", cells{"tenant_id": "''"}},
		{"settlement_files", "settlement_files_channel_check", cells{"channel": "'a b'"}},
		{"settlement_files", "settlement_files_file_hash_check", cells{"file_hash": "repeat('AB', 32)"}},
		{"settlement_files", "settlement_files_name_check", cells{"name": bytes(201)}},
		{"settlement_files", "settlement_files_bytes_check", cells{"bytes": "0"}},
		{"settlement_files", "settlement_files_bytes_check", cells{"bytes": "268435457"}},
		{"settlement_files", "settlement_files_actor_check", cells{"actor": "''"}},
		{"settlement_files", "settlement_files_actor_check", cells{"actor": bytes(201)}},

		{"settlement_chunks", "", nil},
		{"settlement_chunks", "settlement_chunks_pkey", cells{"chunk": "0"}},
		{"settlement_chunks", "settlement_chunks_chunk_check", cells{"chunk": "-1"}},
		{"settlement_chunks", "settlement_chunks_content_check", cells{"content": "''"}},
		{"settlement_chunks", "settlement_chunks_content_check", cells{"content": bytes(1<<20+1) + "::bytea"}},
		{"settlement_chunks", "settlement_chunks_tenant_id_file_no_fkey", cells{"file_no": "9"}},

		{"settlement_lines", "", nil},
		{"settlement_lines", "", cells{"transaction_id": "'txn_1'"}},
		{"settlement_lines", "settlement_lines_pkey", cells{"line": "2"}},
		{"settlement_lines", "settlement_lines_line_check", cells{"line": "0"}},
		{"settlement_lines", "settlement_lines_raw_check", cells{"raw": bytes(2<<20+1) + "::bytea"}},
		{"settlement_lines", "settlement_lines_transaction_id_check", cells{"transaction_id": "''"}},
		{"settlement_lines", "settlement_lines_transaction_id_check", cells{"transaction_id": bytes(201)}},
		{"settlement_lines", "settlement_lines_kind_check", cells{"kind": bytes(201)}},
		{"settlement_lines", "settlement_lines_reference_check", cells{"reference": bytes(201)}},
		{"settlement_lines", "settlement_lines_number_check", cells{"number": bytes(201)}},
		{"settlement_lines", "settlement_lines_payment_check", cells{"payment": bytes(201)}},
		{"settlement_lines", "settlement_lines_alias_check", cells{"alias": bytes(201)}},
		{"settlement_lines", "settlement_lines_amount_check", cells{"amount": "-1"}},
		{"settlement_lines", "settlement_lines_currency_check", cells{"currency": bytes(21)}},
		{"settlement_lines", "settlement_lines_settled_check", cells{"settled": bytes(21)}},
		{"settlement_lines", "settlement_lines_code_check", cells{"code": bytes(201)}},
		{"settlement_lines", "settlement_lines_problem_check", cells{"problem": bytes(2001)}},
		{"settlement_lines", "settlement_lines_tenant_id_file_no_fkey", cells{"file_no": "9"}},

		{"settlement_readings", "settlement_readings_pkey", nil},
		{"settlement_readings", "settlement_readings_lines_check", cells{"lines": "-1"}},
		{"settlement_readings", "settlement_readings_check", cells{"since": "now()"}},
		{"settlement_readings", "settlement_readings_tenant_id_file_no_fkey", cells{"file_no": "9"}},

		{"settlement_gone", "", nil},
		{"settlement_gone", "settlement_gone_pkey", cells{"transaction_id": "'txn_0'"}},
		{"settlement_gone", "settlement_gone_tenant_id_file_no_fkey", cells{"file_no": "9"}},

		{"outbox", "", nil},
		{"outbox", "", cells{"kind": "'start_job'", "payload": bytes(65536), "last_error": bytes(2000)}},
		{"outbox", "outbox_kind_check", cells{"kind": "'mail'"}},
		{"outbox", "outbox_payload_check", cells{"payload": bytes(65537)}},
		{"outbox", "outbox_attempts_check", cells{"attempts": "-1"}},
		{"outbox", "outbox_last_error_check", cells{"last_error": bytes(2001)}},
	}...)
	for source := range strings.FieldsSeq("accept send create query notice settlement person") {
		cases = append(cases, rowCase{"refund_events", "", cells{"source": "'" + source + "'"}})
	}
	for kind := range strings.FieldsSeq("refund order job account channel") {
		cases = append(cases, rowCase{"issues", "", cells{"subject_kind": "'" + kind + "'"}})
	}
	for _, column := range []string{"orders.currency", "refunds.currency"} {
		table, column, _ := strings.Cut(column, ".")
		cases = append(cases, rowCase{table, "", cells{column: "'jpy'"}})
		for _, code := range []string{"''", "'EUR'", "'eu'", "'euro'", "'e1r'", "E'eur\\n'"} {
			cases = append(cases, rowCase{table, table + "_currency_check", cells{column: code}})
		}
	}
	for _, number := range []string{"''", bytes(65), "'a.b'", "'a:b'", "'a b'", "'é'", "E'a\\n'"} {
		cases = append(cases, rowCase{"refunds", "refunds_refund_id_check", cells{"refund_id": number}})
	}
	// Each state of a refund has its timestamps and its reference, and no other's.
	for state, parts := range refundStates {
		cases = append(cases, rowCase{"refunds", "", in(state, parts)})
		for column, constraint := range map[string]string{
			"first_sent_at": "refunds_check", "succeeded_at": "refunds_check2", "returned_at": "refunds_check3",
		} {
			other := and(parts, cells{column: "now()"})
			if parts[column] != "" {
				other[column] = "NULL"
			}
			if column == "first_sent_at" {
				other["send_count"] = map[bool]string{true: "0", false: "1"}[other[column] == "NULL"]
			}
			cases = append(cases, rowCase{"refunds", constraint, in(state, other)})
		}
		if parts["channel_ref"] != "" {
			cases = append(cases, rowCase{"refunds", "refunds_check4", in(state, parts, cells{"channel_ref": "''"})})
		} else {
			cases = append(cases, rowCase{"refunds", "", in(state, parts, known)})
		}
	}
	// L77: ids are plain.
	for _, of := range []struct{ table, column, constraint string }{
		{"accounts", "tenant_id", "tenant_id_check"}, {"accounts", "account_id", "plain_id_check"},
		{"accounts", "asset", "plain_id_check"}, {"jobs", "job_id", "plain_id_check"},
		{"resolutions", "resolution_id", "resolutions_resolution_id_check"}, {"orders", "order_id", "orders_order_id_check"},
		{"orders", "channel", "orders_channel_check"}, {"reconciliations", "tenant_id", "reconciliations_tenant_id_check"},
		{"reconciliations", "reconciliation_id", "reconciliations_reconciliation_id_check"},
	} {
		cases = append(cases, rowCase{of.table, "", cells{of.column: "'aZ09._:-'"}}, rowCase{of.table, "", cells{of.column: bytes(100)}})
		for _, id := range []string{"''", bytes(101), "'a b'", "E'a\\n'", "'é'", "'🎬'", "'a/b'", `'a\b'`, "'a''b'"} {
			cases = append(cases, rowCase{of.table, of.constraint, cells{of.column: id}})
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
		if strings.HasSuffix(test.constraint, "_check") {
			assert.Equal(t, codeCheck, codeOf(err), sql)
		}
		met[test.constraint] = true
		for column := range test.change {
			met[test.table+"."+column+" "+test.constraint] = true
		}
	}
	twice := "INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, %s_id, reason) " +
		"VALUES ('acme', 'team', 3, '%[2]s', %[3]d, 9, '%[4]s', 'r'), ('acme', 'team', 4, '%[2]s', %[3]d, 9, '%[4]s', 'r')"
	for _, of := range []struct {
		subject, kind, id, index string
		amount                   int
	}{
		{"job", "refund", "job", "ledger_entries_job", 5}, {"job", "reclaim", "job", "ledger_entries_job", -5},
		{"refund", "payout", "refund", "ledger_entries_refund", -5},
		{"refund", "payout_return", "refund", "ledger_entries_refund", 5},
	} {
		_, err := admin.Exec(t.Context(), fmt.Sprintf(twice, of.subject, of.kind, of.amount, of.id))
		assert.Equal(t, of.index, constraintOf(err), "a second %s: %v", of.kind, err)
	}
	for _, name := range lines(t, admin, `SELECT conname::text FROM pg_constraint
		WHERE connamespace = 'reclaim'::regnamespace AND conrelid <> 'reclaim.schema_migrations'::regclass`) {
		// These are of numbers that are always generated.
		if !slices.Contains([]string{"job_events_pkey", "outbox_pkey", "settlement_files_tenant_id_file_no_key"}, name) {
			assert.True(t, met[name], "no row comes up against %s", name)
		}
	}
	// A domain's rule is every column's that has it.
	rules := lines(t, admin, `SELECT format('%s.%s %s', relname, attname, conname) FROM pg_constraint
		JOIN pg_attribute ON atttypid = contypid JOIN pg_class ON pg_class.oid = attrelid
		WHERE connamespace = 'reclaim'::regnamespace AND contypid <> 0 AND relkind = 'r'`)
	require.NotEmpty(t, rules)
	for _, rule := range rules {
		assert.True(t, met[rule], "no row comes up against %s", rule)
	}
	assert.Equal(t, []string{"0"}, lines(t, admin, `SELECT count(*)::text FROM pg_constraint
		WHERE connamespace = 'reclaim'::regnamespace AND NOT convalidated`))
}

// An update assigns what it computes, and a CTE hands values on: they are held to the rule where they are stored.
func TestWhatAStatementComputesIsHeldToItsColumnsRule(t *testing.T) {
	t.Parallel()
	database, admin := filled(t)
	before := contents(t, admin)
	app := openStore(t, database.AppURL, schema.Options{})
	for _, test := range []struct{ sql, constraint string }{
		{"UPDATE reclaim.jobs SET attempts = attempts - 1", "attempt_count_check"},
		{"UPDATE reclaim.jobs SET granted = least(granted, -1)", "attempt_count_check"},
		{"UPDATE reclaim.jobs SET key_attempt = key_attempt - 1", "attempt_number_check"},
		{"UPDATE reclaim.jobs SET reason = CASE WHEN attempts = 0 THEN repeat('x', 2001) ELSE reason END", "note_check"},
		{"WITH said AS (SELECT repeat('x', 2001) AS x) UPDATE reclaim.jobs SET last_error = x FROM said", "note_check"},
		{"UPDATE reclaim.jobs SET state = 'succeeded', delivered_at = now(), output = repeat(spec, 40000)", "document_check"},
		{"UPDATE reclaim.jobs SET state = lower('DONE')", "jobs_state_check"},
		{"UPDATE reclaim.accounts SET seq = seq - 3", "accounts_seq_check"},
		{`WITH moved AS (UPDATE reclaim.accounts SET balance = balance - 100, seq = seq + 1 RETURNING *)
			INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
			SELECT tenant_id, account_id, seq, 'payout', -100, balance, NULL, 'r' FROM moved`, "ledger_entries_subject_check"},
		{`WITH moved AS (UPDATE reclaim.accounts SET balance = balance - 100, seq = seq + 1 RETURNING *)
			INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, refund_id, reason)
			SELECT tenant_id, account_id, seq, 'payout', -100, balance, 'refund', 'r' FROM moved`, "ledger_entries_type_check"},
	} {
		_, err := app.Pool.Exec(t.Context(), test.sql)
		assert.Equal(t, test.constraint, constraintOf(err), "%s: %v", test.sql, err)
		assert.Equal(t, codeCheck, codeOf(err), test.sql)
	}
	charge := func(change func(*db.ChargeJobParams)) error {
		params := db.ChargeJobParams{
			TenantID: "acme", JobID: "guarded", AccountID: "team", Cost: 1, Fingerprint: "f", Spec: "{}", Reason: "r",
			NotAfter: app.NotAfter(),
		}
		change(&params)
		_, err := app.ChargeJob(t.Context(), params)
		return err
	}
	for constraint, change := range map[string]func(*db.ChargeJobParams){
		"cost_check":         func(p *db.ChargeJobParams) { p.Cost = -1 },
		"plain_id_check":     func(p *db.ChargeJobParams) { p.JobID = "a b" },
		"fingerprint_check":  func(p *db.ChargeJobParams) { p.Fingerprint = "" },
		"document_check":     func(p *db.ChargeJobParams) { p.Spec = strings.Repeat("x", 65537) },
		"entry_reason_check": func(p *db.ChargeJobParams) { p.Reason = "" },
	} {
		err := charge(change)
		assert.Equal(t, constraint, constraintOf(err), "%v", err)
		failure, ok := errors.AsType[*schema.Failure](schema.Classify("charge", err))
		if assert.True(t, ok, constraint) {
			assert.Equal(t, schema.ErrorBroken, failure.Type)
			assert.False(t, failure.Retryable)
		}
	}
	assert.Equal(t, before, contents(t, admin))
	require.NoError(t, charge(func(*db.ChargeJobParams) {}))
}

func TestNothingThatMattersIsNull(t *testing.T) {
	t.Parallel()
	_, admin := filled(t)
	assert.ElementsMatch(t, []string{
		"jobs.refunded_at", "jobs.reclaimed_at", "jobs.delivered_at", "jobs.output",
		"ledger_entries.job_id", "ledger_entries.order_id", "ledger_entries.refund_id", "operations.expires_at",
		// a refund that gives no credits back has no entry
		"operations.entry_seq",
		"refunds.job_id", "refunds.first_sent_at", "refunds.last_checked_at", "refunds.next_look_at", "refunds.look_until",
		"refunds.succeeded_at", "refunds.returned_at",
		// a channel that says nothing of the amount
		"refund_events.amount", "refund_events.currency", "reconciliations.ended_at",
		"issues.resolved_at", "outbox.delivered_at", "api_keys.revoked_at",
		// a line that cannot be read, and a file without any that can
		"settlement_lines.made_at", "settlement_readings.since", "settlement_readings.until",
	}, lines(t, admin, `SELECT table_name || '.' || column_name FROM information_schema.columns
		JOIN information_schema.tables USING (table_schema, table_name)
		WHERE table_schema = 'reclaim' AND table_type = 'BASE TABLE' AND is_nullable = 'YES' AND table_name <> 'schema_migrations'`))
}
