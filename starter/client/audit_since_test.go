package client_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// longLedger has so much behind its checkpoint that what a test adds is little.
func longLedger(t *testing.T) *ledger {
	t.Helper()
	l := soundLedger(t)
	l.topUp("acme", "busy", 1_000, "busy-0") // 1
	for n := range 40 {
		l.topUp("acme", fmt.Sprintf("quiet-%d", n), 5, fmt.Sprintf("quiet-%d", n))
		l.charge("busy", fmt.Sprintf("busy-%d", n), 1) // 2 to 41
	}
	report, err := l.AuditSinceCheckpoint(l.ctx, 0)
	require.NoError(t, err)
	require.True(t, report.Sound, "%+v", report.Breaks)
	require.True(t, report.Whole, "there was no checkpoint")
	require.NotEmpty(t, report.Checkpoint.Doubt)
	require.True(t, report.Checkpoint.Written, report.Checkpoint.Problem)
	return l
}

// since audits what is new, which must be sound.
func (l *ledger) since() client.AuditReport {
	l.t.Helper()
	report, err := l.AuditSinceCheckpoint(l.ctx, 0)
	require.NoError(l.t, err)
	require.True(l.t, report.Sound, "%s: %+v", report.Checkpoint.Doubt, report.Breaks)
	return report
}

func TestAnAuditSinceTheCheckpointProvesWhatIsNew(t *testing.T) {
	t.Parallel()
	l := longLedger(t)
	report := l.since()
	assert.False(t, report.Whole, report.Checkpoint.Doubt)
	assert.NotNil(t, report.Checkpoint.Since)
	assert.Zero(t, report.Entries)
	assert.Zero(t, report.Accounts)

	l.topUp("acme", "quiet-3", 7, "again")
	l.charge("busy", "new", 3)
	l.settle("busy-4")
	l.refund("busy-5", 0, "")
	l.settle("busy-5")
	l.topUp("acme", "newcomer", 9, "first")
	before := report.TakenAt
	report = l.since()
	assert.False(t, report.Whole, report.Checkpoint.Doubt)
	assert.Equal(t, [2]int64{3, 5}, [2]int64{report.Accounts, report.Entries})
	assert.True(t, before.Equal(*report.Checkpoint.Since), "each sound audit moves the checkpoint on")

	report = l.since()
	assert.Zero(t, report.Entries, "what was proven is not new")

	// Many new entries are proven faster with all others.
	for n := range 60 {
		l.topUp("acme", "crowd", 1, fmt.Sprintf("crowd-%d", n))
	}
	report = l.since()
	assert.True(t, report.Whole)
	assert.Contains(t, report.Checkpoint.Doubt, "60 of")
	report, err := l.AuditSinceCheckpoint(l.ctx, time.Nanosecond)
	require.NoError(t, err)
	assert.True(t, report.Whole, "after the time that was named, all is proven again")
}

// Reconciliations prove a tenant's ledger whole, or with all others what is new.
func TestALedgerIsProvenForATenant(t *testing.T) {
	t.Parallel()
	l := longLedger(t)
	l.topUp("acme", "quiet-1", 1, "more")
	l.topUp("beta", "apart", 1, "apart")
	report, err := l.ProveLedger(l.ctx, "beta", 0)
	require.NoError(t, err)
	assert.True(t, report.Whole)
	assert.Equal(t, "beta", report.Tenant)
	assert.False(t, report.Checkpoint.Written, "a checkpoint covers all tenants")
	report, err = l.ProveLedger(l.ctx, "beta", time.Hour)
	require.NoError(t, err)
	assert.False(t, report.Whole, report.Checkpoint.Doubt)
	assert.EqualValues(t, 2, report.Entries, "those of all tenants")
	assert.NotNil(t, report.Checkpoint.Since)
	assert.True(t, report.Checkpoint.Written)

	ofBeta := func(wholeEvery time.Duration, doubt string) client.AuditReport {
		report, err := l.ProveLedger(l.ctx, "beta", wholeEvery)
		require.NoError(t, err)
		assert.True(t, report.Whole)
		assert.Equal(t, "beta", report.Tenant, "in doubt only its own is proven")
		assert.EqualValues(t, 1, report.Entries)
		assert.Contains(t, report.Checkpoint.Doubt, doubt)
		return report
	}
	assert.True(t, ofBeta(time.Nanosecond, "the last whole audit was").Sound)
	l.topUp("acme", "quiet-2", 1, "another")
	l.tamper(`UPDATE reclaim.accounts SET balance = 99 WHERE account_id = 'quiet-2'`)
	assert.True(t, ofBeta(time.Hour, "what is new does not fit").Sound, "what another tenant's breaks is not its own")
	l.tamper(`UPDATE reclaim.accounts SET balance = 99 WHERE account_id = 'apart'`)
	broken := ofBeta(time.Hour, "what is new does not fit")
	require.False(t, broken.Sound)
	for _, b := range broken.Breaks {
		assert.Equal(t, "beta", b.Tenant)
	}
	_, err = l.ProveLedger(l.ctx, "", time.Hour)
	assert.Equal(t, contract.CodeBadInput, contract.CodeOf(err))
}

// A movement that was begun before an audit and committed after it is new to the next one.
func TestWhatIsCommittedLateIsNew(t *testing.T) {
	t.Parallel()
	l := longLedger(t)
	late, err := l.store.Pool.Begin(l.ctx)
	require.NoError(t, err)
	defer func() { _ = late.Rollback(l.ctx) }()
	_, err = late.Exec(l.ctx, `
		WITH moved AS (UPDATE reclaim.accounts SET balance = balance + 4, seq = seq + 1 WHERE account_id = 'quiet-1' RETURNING *),
		claimed AS (INSERT INTO reclaim.operations (tenant_id, actor, kind, key, fingerprint, subject_id, entry_seq)
			SELECT tenant_id, 'test', 'topup', 'late', 'f', account_id, seq FROM moved)
		INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
		SELECT tenant_id, account_id, seq, 'topup', 4, balance, 'late' FROM moved`)
	require.NoError(t, err)
	assert.Zero(t, l.since().Entries)
	require.NoError(t, late.Commit(l.ctx))
	report := l.since()
	assert.False(t, report.Whole, report.Checkpoint.Doubt)
	assert.EqualValues(t, 1, report.Entries)
}

func TestAnAuditSinceTheCheckpointNamesDamage(t *testing.T) {
	t.Parallel()
	busy := func(check string, seq int64, job string) client.AuditBreak { return at(check, "busy", seq, job) }
	for _, test := range []tampering{
		{"a new entry has a wrong balance", `
			UPDATE reclaim.ledger_entries SET balance_after = balance_after + 1 WHERE account_id = 'busy' AND seq = 43`,
			[]client.AuditBreak{busy("entry_balance", 43, "new-2"), busy("account_balance", 0, "")}},
		{"a new entry is gone", `DELETE FROM reclaim.ledger_entries WHERE account_id = 'busy' AND seq = 43`,
			[]client.AuditBreak{busy("account_balance", 0, ""), busy("account_seq", 0, ""), busy("account_sum", 0, ""),
				busy("job_entries", 0, "new-2"), busy("job_net", 0, "new-2")}},
		{"a new top-up has no operation", `DELETE FROM reclaim.operations WHERE key = 'new'`,
			[]client.AuditBreak{at("entry_operation", "quiet-1", 2, "")}},
		{"a job that is new has another cost", `UPDATE reclaim.jobs SET cost = 5 WHERE job_id = 'new-1'`,
			[]client.AuditBreak{busy("entry_cost", 42, "new-1"), busy("job_net", 0, "new-1")}},
		{"an open job of before lost its charge's mark", `UPDATE reclaim.jobs SET state = 'limbo' WHERE job_id = 'new-1'`,
			[]client.AuditBreak{busy("job_state", 0, "new-1"), busy("job_refunded", 0, "new-1"), busy("job_net", 0, "new-1")}},
		{"an order's reservation is changed", `UPDATE reclaim.orders SET reserved = reserved - 1 WHERE order_id = 'o-1'`,
			[]client.AuditBreak{ofOrder("order_reserved", "shop", "o-1", "")}},
		{"an account went back", `UPDATE reclaim.accounts SET seq = 0, balance = 0 WHERE account_id = 'quiet-2'`,
			[]client.AuditBreak{at("checkpoint_account", "quiet-2", 0, ""), at("account_balance", "quiet-2", 0, ""),
				at("account_seq", "quiet-2", 0, ""), at("account_sum", "quiet-2", 0, "")}},
		{"a covered entry has another reason", `
			UPDATE reclaim.ledger_entries SET reason = 'nothing' WHERE account_id = 'busy' AND seq = 5`,
			[]client.AuditBreak{busy("checkpoint_rewritten", 5, "busy-3")}},
		{"a covered entry was written anew with all that fits to it", `
			UPDATE reclaim.ledger_entries SET amount = 6, balance_after = 6 WHERE account_id = 'quiet-7';
			UPDATE reclaim.accounts SET balance = 6 WHERE account_id = 'quiet-7'`,
			[]client.AuditBreak{at("checkpoint_account", "quiet-7", 0, ""), at("checkpoint_entry", "quiet-7", 1, ""),
				at("checkpoint_rewritten", "quiet-7", 1, "")}},
		{"the newest covered entry of an account that moved on is gone", `
			DELETE FROM reclaim.ledger_entries WHERE account_id = 'busy' AND seq = 41`,
			[]client.AuditBreak{busy("checkpoint_entry", 41, ""), busy("account_seq", 0, ""), busy("account_sum", 0, ""),
				busy("entry_seq", 42, "new-1"), busy("entry_balance", 42, "new-1"), busy("job_entries", 0, "busy-39"),
				busy("job_net", 0, "busy-39")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := longLedger(t)
			l.charge("busy", "new-1", 1) // 42
			l.charge("busy", "new-2", 1) // 43
			l.topUp("acme", "quiet-1", 2, "new")
			l.tamper(test.sql)
			for range 2 {
				report, err := l.AuditSinceCheckpoint(l.ctx, 0)
				require.NoError(t, err)
				assert.False(t, report.Sound)
				assert.True(t, report.Whole, "what is suspect is proven whole")
				assert.False(t, report.Checkpoint.Written, "the checkpoint does not move over damage")
				assert.NotEmpty(t, report.Checkpoint.Doubt)
				found := []client.AuditBreak{}
				for _, b := range report.Breaks {
					assert.NotEmpty(t, b.Expected)
					assert.NotEmpty(t, b.Found)
					b.Expected, b.Found = "", ""
					found = append(found, b)
				}
				assert.ElementsMatch(t, test.breaks, found)
			}
		})
	}
}

func TestAuditsSinceTheCheckpointAreSoundWhileMoneyMoves(t *testing.T) {
	t.Parallel()
	l := longLedger(t)
	l.topUp("acme", "busy", 100_000, "much")
	stop := make(chan struct{})
	var movers sync.WaitGroup
	for mover := range 3 {
		movers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					id := fmt.Sprintf("moving-%d-%d", mover, n)
					l.charge("busy", id, 1)
					l.refund(id, 0, "")
					l.settle(id)
				}
			}
		})
	}
	var auditors sync.WaitGroup
	for range 2 {
		auditors.Go(func() {
			for range 8 {
				report, err := l.AuditSinceCheckpoint(l.ctx, 0)
				if assert.NoError(t, err) {
					assert.True(t, report.Sound, "%s: %+v", report.Checkpoint.Doubt, report.Breaks)
				}
			}
		})
	}
	auditors.Wait()
	close(stop)
	movers.Wait()
	assert.True(t, l.since().Sound)
}

// Who may only read audits as well as ever, and says that there is no checkpoint.
func TestAnAuditWithoutTheRightToWriteProvesAll(t *testing.T) {
	t.Parallel()
	l := soundLedger(t)
	connection, err := pgx.Connect(l.ctx, l.base.SuperuserURL)
	require.NoError(t, err)
	defer func() { _ = connection.Close(l.ctx) }()
	_, err = connection.Exec(l.ctx, "REVOKE INSERT ON reclaim.audit_positions FROM reclaim_app")
	require.NoError(t, err)
	report, err := l.Audit(l.ctx, "")
	require.NoError(t, err)
	assert.True(t, report.Sound)
	assert.False(t, report.Checkpoint.Written)
	assert.Contains(t, report.Checkpoint.Problem, "audit_positions")
}
