package client_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// soundLedger has entries of every type and jobs in every kind of state, all made by the guards.
func soundLedger(t *testing.T) *ledger {
	t.Helper()
	l := newLedger(t)
	l.topUp("acme", "team-1", 1000, "order-1") // entry 1
	l.charge("team-1", "run", 100)             // 2
	l.charge("team-1", "done", 50)             // 3
	l.settle("done")
	l.charge("team-1", "late", 40)   // 4
	l.refund("late", 0, "")          // 5
	l.settle("late")                 // 6
	l.charge("team-1", "dead", 30)   // 7
	l.refund("dead", 1, "GPU fault") // 8
	l.park("dead")
	l.charge("team-1", "free", 0)
	l.charge("team-1", "gone", 20)             // 9
	l.cancel("gone")                           // 10
	l.adjust("acme", "team-1", -5, "ticket-9") // 11
	l.topUp("acme", "team-2", 10, "order-2")   // 1
	l.charge("team-2", "debtor", 10)           // 2
	l.refund("debtor", 0, "")                  // 3
	l.charge("team-2", "eater", 10)            // 4
	l.settle("debtor")                         // 5: to −10
	l.topUp("acme", "team-2", 3, "order-3")    // 6: still a debt
	l.topUp("other", "a", 7, "order-1")
	_, err := l.store.Pool.Exec(l.ctx, "INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('acme', 'empty', 'CREDIT')")
	require.NoError(t, err)
	return l
}

func TestAuditFindsNothingInASoundLedger(t *testing.T) {
	t.Parallel()
	l := soundLedger(t)
	report, err := l.Audit(l.ctx, "")
	require.NoError(t, err)
	assert.True(t, report.Sound, "%+v", report.Breaks)
	assert.Empty(t, report.Breaks)
	assert.Equal(t, [4]int64{4, 18, 8, 5}, [4]int64{report.Accounts, report.Entries, report.Jobs, report.Operations})
	assert.False(t, report.TakenAt.IsZero())
	assert.False(t, report.Runs.Checked, "there is no Temporal")
	assert.NotEmpty(t, report.Runs.Problem)

	other, err := l.Audit(l.ctx, "other")
	require.NoError(t, err)
	assert.Equal(t, [4]int64{1, 1, 0, 1}, [4]int64{other.Accounts, other.Entries, other.Jobs, other.Operations})
	assert.True(t, other.Runs.Checked, "a tenant without open jobs needs no Temporal to say so")
	_, err = l.Audit(l.ctx, "no tenant")
	refusal(t, contract.CodeBadInput, err)
}

// tampering is what somebody with a superuser's rights did, and the checks that must tell.
type tampering struct {
	name   string
	sql    string
	breaks []client.AuditBreak // check, account, entry and job of each, in the order of the report
}

func at(check, account string, seq int64, job string) client.AuditBreak {
	return client.AuditBreak{Check: check, Tenant: "acme", Account: account, Seq: seq, JobID: job}
}

var tamperings = []tampering{
	{"an entry is renumbered", `
		UPDATE reclaim.ledger_entries SET seq = 12 WHERE account_id = 'team-1' AND seq = 11;
		UPDATE reclaim.operations SET entry_seq = 12 WHERE key = 'ticket-9';
		UPDATE reclaim.accounts SET seq = 12 WHERE account_id = 'team-1'`,
		[]client.AuditBreak{at("entry_seq", "team-1", 12, ""), at("account_seq", "team-1", 0, "")}},
	{"the first entry is gone", `
		DELETE FROM reclaim.ledger_entries WHERE account_id = 'team-2' AND seq = 1;
		DELETE FROM reclaim.operations WHERE key = 'order-2'`,
		[]client.AuditBreak{
			at("entry_balance", "team-2", 2, "debtor"), at("entry_seq", "team-2", 2, "debtor"),
			at("account_seq", "team-2", 0, ""), at("account_sum", "team-2", 0, ""),
		}},
	{"the last entry is gone", `
		DELETE FROM reclaim.ledger_entries WHERE account_id = 'team-1' AND seq = 11;
		DELETE FROM reclaim.operations WHERE key = 'ticket-9'`,
		[]client.AuditBreak{
			at("account_balance", "team-1", 0, ""), at("account_seq", "team-1", 0, ""), at("account_sum", "team-1", 0, ""),
		}},
	{"a balance_after is changed", `UPDATE reclaim.ledger_entries SET balance_after = balance_after + 1 WHERE account_id = 'team-1' AND seq = 3`,
		[]client.AuditBreak{at("entry_balance", "team-1", 3, "done"), at("entry_balance", "team-1", 4, "late")}},
	{"a balance_after is as large as can be", `UPDATE reclaim.ledger_entries SET balance_after = 9223372036854775807 WHERE account_id = 'team-1' AND seq = 3`,
		[]client.AuditBreak{at("entry_balance", "team-1", 3, "done"), at("entry_balance", "team-1", 4, "late")}},
	{"an amount is changed", `UPDATE reclaim.ledger_entries SET amount = amount + 1 WHERE account_id = 'team-1' AND seq = 1`,
		[]client.AuditBreak{at("entry_balance", "team-1", 1, ""), at("account_sum", "team-1", 0, "")}},
	{"amounts sum beyond int64", `UPDATE reclaim.ledger_entries SET amount = 9223372036854775807 WHERE account_id = 'team-2' AND seq IN (1, 6)`,
		[]client.AuditBreak{
			at("entry_balance", "team-2", 1, ""), at("entry_balance", "team-2", 6, ""), at("account_sum", "team-2", 0, ""),
		}},
	{"a charge made a debt", `UPDATE reclaim.ledger_entries SET type = 'charge' WHERE account_id = 'team-2' AND seq = 5`,
		[]client.AuditBreak{at("entry_debt", "team-2", 5, "debtor"), at("job_entries", "team-2", 0, "debtor")}},
	{"an amount has the other sign", `UPDATE reclaim.ledger_entries SET type = 'topup' WHERE account_id = 'team-1' AND seq = 11;
		UPDATE reclaim.operations SET kind = 'topup' WHERE key = 'ticket-9'`,
		[]client.AuditBreak{at("entry_amount", "team-1", 11, "")}},
	{"an entry has no reason", `UPDATE reclaim.ledger_entries SET reason = '' WHERE account_id = 'team-1' AND seq = 1`,
		[]client.AuditBreak{at("entry_subject", "team-1", 1, "")}},
	{"a refund has no job", `UPDATE reclaim.ledger_entries SET job_id = NULL WHERE account_id = 'team-1' AND seq = 10`,
		[]client.AuditBreak{
			at("entry_subject", "team-1", 10, ""), at("entry_job", "team-1", 10, ""),
			at("job_entries", "team-1", 0, "gone"), at("job_net", "team-1", 0, "gone"),
		}},
	{"an account is gone", `DELETE FROM reclaim.accounts WHERE account_id = 'team-1'; DELETE FROM reclaim.jobs WHERE account_id = 'team-1';
		DELETE FROM reclaim.ledger_entries WHERE account_id = 'team-1' AND seq > 1; DELETE FROM reclaim.operations WHERE key = 'ticket-9'`,
		[]client.AuditBreak{at("account_missing", "team-1", 0, "")}},
	{"an account without entries has credits", `UPDATE reclaim.accounts SET balance = 5 WHERE account_id = 'empty'`,
		[]client.AuditBreak{at("account_empty", "empty", 0, "")}},
	{"an account's seq is changed", `UPDATE reclaim.accounts SET seq = seq + 1 WHERE account_id = 'team-1'`,
		[]client.AuditBreak{at("account_seq", "team-1", 0, "")}},
	{"an account's balance is changed", `UPDATE reclaim.accounts SET balance = balance + 1 WHERE account_id = 'team-1'`,
		[]client.AuditBreak{at("account_balance", "team-1", 0, ""), at("account_sum", "team-1", 0, "")}},
	{"a job is gone", `DELETE FROM reclaim.jobs WHERE job_id = 'run'`,
		[]client.AuditBreak{at("entry_job", "team-1", 2, "run")}},
	{"a job belongs to another account", `UPDATE reclaim.jobs SET account_id = 'team-2' WHERE job_id = 'run'`,
		[]client.AuditBreak{at("entry_account", "team-1", 2, "run")}},
	{"a job's cost is changed", `UPDATE reclaim.jobs SET cost = 39 WHERE job_id = 'late'`,
		[]client.AuditBreak{
			at("entry_cost", "team-1", 4, "late"), at("entry_cost", "team-1", 5, "late"), at("entry_cost", "team-1", 6, "late"),
			at("job_net", "team-1", 0, "late"),
		}},
	{"a job without cost has been given one", `UPDATE reclaim.jobs SET cost = 1 WHERE job_id = 'free'`,
		[]client.AuditBreak{at("job_entries", "team-1", 0, "free"), at("job_net", "team-1", 0, "free")}},
	{"a job's account does not exist", `UPDATE reclaim.jobs SET account_id = 'nobody' WHERE job_id = 'free'`,
		[]client.AuditBreak{at("job_account", "nobody", 0, "free")}},
	{"a job costs less than nothing", `UPDATE reclaim.jobs SET cost = -1 WHERE job_id = 'free'`,
		[]client.AuditBreak{at("job_cost", "team-1", 0, "free"), at("job_net", "team-1", 0, "free")}},
	{"a job is marked refunded without its entry", `UPDATE reclaim.jobs SET is_refunded = true, refunded_at = now() WHERE job_id = 'run'`,
		[]client.AuditBreak{at("job_entries", "team-1", 0, "run"), at("job_net", "team-1", 0, "run")}},
	{"a job is refunded twice", `
		INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
		SELECT tenant_id, account_id, 12, 'refund', 20, balance + 20, 'gone', 'again' FROM reclaim.accounts WHERE account_id = 'team-1';
		UPDATE reclaim.accounts SET balance = balance + 20, seq = 12 WHERE account_id = 'team-1'`,
		[]client.AuditBreak{at("job_entries", "team-1", 0, "gone"), at("job_net", "team-1", 0, "gone")}},
	{"a delivered job is refunded and not reclaimed", `
		INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, job_id, reason)
		SELECT tenant_id, account_id, 12, 'refund', 50, balance + 50, 'done', 'by hand' FROM reclaim.accounts WHERE account_id = 'team-1';
		UPDATE reclaim.accounts SET balance = balance + 50, seq = 12 WHERE account_id = 'team-1';
		UPDATE reclaim.jobs SET is_refunded = true, refunded_at = now() WHERE job_id = 'done'`,
		[]client.AuditBreak{at("job_net", "team-1", 0, "done"), at("job_reclaimed", "team-1", 0, "done")}},
	{"a state does not exist", `UPDATE reclaim.jobs SET state = 'limbo' WHERE job_id = 'dead'`,
		[]client.AuditBreak{at("job_state", "team-1", 0, "dead")}},
	{"is_refunded without refunded_at", `UPDATE reclaim.jobs SET refunded_at = NULL WHERE job_id = 'dead'`,
		[]client.AuditBreak{at("job_refunded", "team-1", 0, "dead")}},
	{"refunded_at without is_refunded", `UPDATE reclaim.jobs SET refunded_at = now() WHERE job_id = 'free'`,
		[]client.AuditBreak{at("job_refunded", "team-1", 0, "free")}},
	{"closed, undelivered and not refunded", `UPDATE reclaim.jobs SET state = 'failed' WHERE job_id = 'free'`,
		[]client.AuditBreak{at("job_refunded", "team-1", 0, "free")}},
	{"is_reclaimed without reclaimed_at", `UPDATE reclaim.jobs SET reclaimed_at = NULL WHERE job_id = 'late'`,
		[]client.AuditBreak{at("job_reclaimed", "team-1", 0, "late")}},
	{"reclaimed without a delivery", `UPDATE reclaim.jobs SET is_reclaimed = true, reclaimed_at = now() WHERE job_id = 'free'`,
		[]client.AuditBreak{at("job_reclaimed", "team-1", 0, "free")}},
	{"delivered_at without a delivery", `UPDATE reclaim.jobs SET delivered_at = now() WHERE job_id = 'run'`,
		[]client.AuditBreak{at("job_delivered", "team-1", 0, "run")}},
	{"a delivery without delivered_at", `UPDATE reclaim.jobs SET delivered_at = NULL WHERE job_id = 'done'`,
		[]client.AuditBreak{at("job_delivered", "team-1", 0, "done")}},
	{"an output without a delivery", `UPDATE reclaim.jobs SET output = '1' WHERE job_id = 'run'`,
		[]client.AuditBreak{at("job_delivered", "team-1", 0, "run")}},
	{"an operation is gone", `DELETE FROM reclaim.operations WHERE key = 'order-2'`,
		[]client.AuditBreak{at("entry_operation", "team-2", 1, "")}},
	{"an operation names an entry that is not there", `UPDATE reclaim.operations SET entry_seq = 99 WHERE key = 'order-2'`,
		[]client.AuditBreak{at("entry_operation", "team-2", 1, ""), at("operation_entry", "team-2", 99, "")}},
	{"two operations name one entry", `UPDATE reclaim.operations SET entry_seq = 1 WHERE key = 'order-3'`,
		[]client.AuditBreak{at("entry_operation", "team-2", 6, ""), at("operation_entry", "team-2", 1, "")}},
	{"an operation is of another kind than its entry", `UPDATE reclaim.operations SET kind = 'adjust' WHERE key = 'order-2'`,
		[]client.AuditBreak{at("operation_entry", "team-2", 1, "")}},
}

func TestAuditNamesEveryTampering(t *testing.T) {
	t.Parallel()
	for _, tampering := range tamperings {
		t.Run(tampering.name, func(t *testing.T) {
			t.Parallel()
			l := soundLedger(t)
			l.tamper(tampering.sql)
			report, err := l.Audit(l.ctx, "acme")
			require.NoError(t, err)
			assert.False(t, report.Sound)
			found := []client.AuditBreak{}
			broken := map[string]int64{}
			for _, b := range report.Breaks {
				assert.NotEmpty(t, b.Expected)
				assert.NotEmpty(t, b.Found)
				broken[b.Check]++
				b.Expected, b.Found = "", ""
				found = append(found, b)
			}
			assert.ElementsMatch(t, tampering.breaks, found)
			for _, check := range report.Checks {
				assert.Equal(t, broken[check.Name], check.Broken, check.Name)
			}
			other, err := l.Audit(l.ctx, "other")
			require.NoError(t, err)
			assert.True(t, other.Sound, "another tenant is not concerned")
		})
	}
}

func TestEveryCheckOfTheAuditIsTampered(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	report, err := l.Audit(l.ctx, "")
	require.NoError(t, err)
	tampered := map[string]bool{}
	for _, tampering := range tamperings {
		for _, b := range tampering.breaks {
			tampered[b.Check] = true
		}
	}
	var checks []string
	for _, check := range report.Checks {
		checks = append(checks, check.Name)
	}
	assert.ElementsMatch(t, checks, slices.Collect(maps.Keys(tampered)))
}

func TestAuditListsAtMostItsLimitAndCountsTheRest(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.tamper(`INSERT INTO reclaim.accounts (tenant_id, account_id, asset, balance, seq)
		SELECT 'acme', 'a-' || n, 'CREDIT', 5, 0 FROM generate_series(1, 1200) AS n`)
	report, err := l.Audit(l.ctx, "")
	require.NoError(t, err)
	assert.Len(t, report.Breaks, client.AuditLimit)
	for _, check := range report.Checks {
		if check.Name == "account_empty" {
			assert.EqualValues(t, 1200, check.Broken)
		}
	}
}

// The audit looks at one snapshot: what moves meanwhile is wholly in it or not at all.
func TestAuditIsSoundWhileMoneyMoves(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-1", 100_000, "order-0")
	stop := make(chan struct{})
	var movers sync.WaitGroup
	for mover := range 3 {
		movers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					id := fmt.Sprintf("job-%d-%d", mover, n)
					l.charge("team-1", id, 1)
					l.refund(id, 0, "")
					l.settle(id)
				}
			}
		})
	}
	for range 10 {
		report, err := l.Audit(l.ctx, "acme")
		if assert.NoError(t, err) {
			assert.True(t, report.Sound, "%+v", report.Breaks)
		}
	}
	close(stop)
	movers.Wait()
}
