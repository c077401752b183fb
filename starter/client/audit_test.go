package client_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/db"
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
	l.orders()
	_, err := l.store.Pool.Exec(l.ctx, "INSERT INTO reclaim.accounts (tenant_id, account_id, asset) VALUES ('acme', 'empty', 'CREDIT')")
	require.NoError(t, err)
	return l
}

// orders adds orders and refunds in every state, all on the account shop.
func (l *ledger) orders() {
	l.t.Helper()
	for _, order := range []contract.Order{orderOf("o-1", 10_000, 100), orderOf("o-2", 1000, 10)} { // entries 1 and 2
		order.Account = "shop"
		_, err := l.AddOrder(l.ctx, order)
		require.NoError(l.t, err)
	}
	accept := func(id, order string, amount, credits int64) {
		l.t.Helper()
		l.applies(func() (string, error) {
			row, err := l.store.AcceptRefund(l.ctx, db.AcceptRefundParams{
				TenantID: "acme", RefundID: id, OrderID: order, Actor: "test", Key: id, Fingerprint: "f", Amount: &amount,
				Credits: &credits, Reason: "asked for", RetentionUs: 1e12, NotAfter: l.store.NotAfter(),
			})
			return row.Answer, err
		})
	}
	accept("open", "o-1", 1000, 10)    // 3
	accept("pending", "o-1", 1000, 10) // 4
	l.send("pending")
	l.hears("pending", "create", "pending", "")
	accept("done", "o-1", 2000, 20) // 5
	l.send("done")
	l.hears("done", "create", "succeeded", "")
	accept("failed", "o-1", 1000, 10) // 6
	l.send("failed")
	l.hears("failed", "create", "failed", "closed") // 7
	accept("reversed", "o-1", 1000, 10)             // 8
	l.send("reversed")
	l.hears("reversed", "create", "succeeded", "")
	l.hears("reversed", "notice", "failed", "returned") // 9
	accept("free", "o-1", 500, 0)
	l.send("free")
	l.charge("shop", "paid-back", 5)                             // 10
	l.refund("paid-back", 0, "")                                 // 11
	l.jobRefund("paid-back", "o-1", 5)                           // 12
	accept("canceled", "o-2", 100, 1)                            // 13
	_, err := l.store.CancelRefund(l.ctx, db.CancelRefundParams{ // 14
		TenantID: "acme", RefundID: "canceled", Actor: "ann", Reason: "withdrawn",
	})
	require.NoError(l.t, err)
}

func TestAuditFindsNothingInASoundLedger(t *testing.T) {
	t.Parallel()
	l := soundLedger(t)
	report, err := l.Audit(l.ctx, "")
	require.NoError(t, err)
	assert.True(t, report.Sound, "%+v", report.Breaks)
	assert.Empty(t, report.Breaks)
	assert.Equal(t, [6]int64{5, 32, 9, 2, 8, 15}, [6]int64{
		report.Accounts, report.Entries, report.Jobs, report.Orders, report.Refunds, report.Operations,
	})
	assert.False(t, report.TakenAt.IsZero())
	assert.False(t, report.Runs.Checked, "there is no Temporal")
	assert.NotEmpty(t, report.Runs.Problem)

	proven, err := l.ProvesBySums(l.ctx)
	require.NoError(t, err)
	assert.True(t, proven, "the checks that name breaks are not needed")

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
	breaks []client.AuditBreak // check and subject of each
}

func at(check, account string, seq int64, job string) client.AuditBreak {
	return client.AuditBreak{Check: check, Tenant: "acme", Account: account, Seq: seq, JobID: job}
}

// ofOrder is a break of an order, or of a refund of it.
func ofOrder(check, account, order, refund string) client.AuditBreak {
	return client.AuditBreak{Check: check, Tenant: "acme", Account: account, OrderID: order, RefundID: refund}
}

// ofEntry is a break of an entry on the account shop that names an order and a refund.
func ofEntry(check string, seq int64, order, refund string) client.AuditBreak {
	return client.AuditBreak{Check: check, Tenant: "acme", Account: "shop", Seq: seq, OrderID: order, RefundID: refund}
}

// ofJobRefund is a break of the refund of a job, or of its entry.
func ofJobRefund(check string, seq int64, job string) client.AuditBreak {
	return client.AuditBreak{
		Check: check, Tenant: "acme", Account: "shop", Seq: seq, JobID: job, OrderID: "o-1",
		RefundID: contract.JobRefundNumber("acme", "paid-back"),
	}
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
	{"an order's operation is of another kind", `UPDATE reclaim.operations SET kind = 'topup' WHERE key = 'order o-1'`,
		[]client.AuditBreak{at("operation_entry", "o-1", 1, ""), at("entry_operation", "shop", 1, "")}},
	{"two orders' operations changed places", `
		UPDATE reclaim.operations SET entry_seq = 3 - entry_seq WHERE kind = 'order'`,
		[]client.AuditBreak{at("operation_entry", "shop", 1, ""), at("operation_entry", "shop", 2, "")}},
	{"a refund's operation names another", `UPDATE reclaim.operations SET subject_id = 'ghost' WHERE key = 'open'`,
		[]client.AuditBreak{at("operation_subject", "", 0, "")}},
	{"an order is gone", `DELETE FROM reclaim.orders WHERE order_id = 'o-2'`,
		[]client.AuditBreak{
			at("operation_subject", "", 2, ""), at("operation_entry", "", 2, ""), at("entry_operation", "shop", 2, ""),
			ofEntry("entry_order", 2, "o-2", ""), ofEntry("entry_order", 13, "o-2", "canceled"),
			ofEntry("entry_order", 14, "o-2", "canceled"), ofOrder("refund_order", "", "o-2", "canceled"),
		}},
	{"an order belongs to another account", `UPDATE reclaim.orders SET account_id = 'team-1' WHERE order_id = 'o-2'`,
		[]client.AuditBreak{
			at("operation_entry", "team-1", 2, ""), at("entry_operation", "shop", 2, ""),
			ofEntry("entry_order", 2, "o-2", ""), ofEntry("entry_order", 13, "o-2", "canceled"),
			ofEntry("entry_order", 14, "o-2", "canceled"),
		}},
	{"an order reserves more", `UPDATE reclaim.orders SET reserved = reserved + 1 WHERE order_id = 'o-1'`,
		[]client.AuditBreak{ofOrder("order_reserved", "shop", "o-1", "")}},
	{"an order reserves other credits", `UPDATE reclaim.orders SET reserved_credits = 0 WHERE order_id = 'o-1'`,
		[]client.AuditBreak{ofOrder("order_reserved", "shop", "o-1", "")}},
	{"an order forgets what went back", `UPDATE reclaim.orders SET refunded = 0 WHERE order_id = 'o-1'`,
		[]client.AuditBreak{ofOrder("order_refunded", "shop", "o-1", "")}},
	{"an order forgets the credits", `UPDATE reclaim.orders SET refunded_credits = 0 WHERE order_id = 'o-1'`,
		[]client.AuditBreak{ofOrder("order_refunded", "shop", "o-1", "")}},
	{"less was paid than went back", `UPDATE reclaim.orders SET paid = 4000 WHERE order_id = 'o-1'`,
		[]client.AuditBreak{ofOrder("order_capacity", "shop", "o-1", "")}},
	{"an order's sums are beyond int64", `
		UPDATE reclaim.orders SET reserved = 9223372036854775807, refunded = 9223372036854775807 WHERE order_id = 'o-2'`,
		[]client.AuditBreak{
			ofOrder("order_reserved", "shop", "o-2", ""), ofOrder("order_refunded", "shop", "o-2", ""),
			ofOrder("order_capacity", "shop", "o-2", ""),
		}},
	{"an order bought other credits", `UPDATE reclaim.orders SET credits = credits + 1 WHERE order_id = 'o-2'`,
		[]client.AuditBreak{ofOrder("order_entry", "shop", "o-2", "")}},
	{"an order's topup names another", `UPDATE reclaim.ledger_entries SET order_id = 'o-1' WHERE account_id = 'shop' AND seq = 2`,
		[]client.AuditBreak{
			ofOrder("order_entry", "shop", "o-1", ""), ofOrder("order_entry", "shop", "o-2", ""),
			at("operation_entry", "shop", 2, ""),
		}},
	{"a refund is gone", `DELETE FROM reclaim.refunds WHERE refund_id = 'canceled'`,
		[]client.AuditBreak{
			ofEntry("entry_refund", 13, "o-2", "canceled"), ofEntry("entry_refund", 14, "o-2", "canceled"),
			ofOrder("event_refund", "", "", "canceled"), ofOrder("event_refund", "", "", "canceled"),
			at("operation_subject", "", 0, ""),
		}},
	{"a refund's credits are changed", `UPDATE reclaim.refunds SET credits = 2 WHERE refund_id = 'canceled'`,
		[]client.AuditBreak{
			ofEntry("entry_credits", 13, "o-2", "canceled"), ofEntry("entry_credits", 14, "o-2", "canceled"),
		}},
	{"a payout names another order", `UPDATE reclaim.ledger_entries SET order_id = 'o-2' WHERE account_id = 'shop' AND seq = 3`,
		[]client.AuditBreak{ofEntry("entry_names", 3, "o-2", "open")}},
	{"a payout names no order", `UPDATE reclaim.ledger_entries SET order_id = NULL WHERE account_id = 'shop' AND seq = 3`,
		[]client.AuditBreak{ofEntry("entry_names", 3, "", "open")}},
	{"a refund is in another currency", `UPDATE reclaim.refunds SET currency = 'usd' WHERE refund_id = 'open'`,
		[]client.AuditBreak{ofOrder("refund_order", "shop", "o-1", "open")}},
	{"a refund's job does not exist", `UPDATE reclaim.refunds SET job_id = 'nowhere' WHERE job_id = 'paid-back'`,
		[]client.AuditBreak{ofJobRefund("refund_job", 0, "nowhere"), ofJobRefund("entry_names", 12, "paid-back")}},
	{"a refund's job is another account's", `UPDATE reclaim.refunds SET job_id = 'run' WHERE job_id = 'paid-back'`,
		[]client.AuditBreak{ofJobRefund("refund_job", 0, "run"), ofJobRefund("entry_names", 12, "paid-back")}},
	{"a refund's job was not refunded", `UPDATE reclaim.jobs SET is_refunded = false, refunded_at = NULL WHERE job_id = 'paid-back'`,
		[]client.AuditBreak{
			at("job_entries", "shop", 0, "paid-back"), at("job_net", "shop", 0, "paid-back"), ofJobRefund("refund_job", 0, "paid-back"),
		}},
	{"two refunds share a reference", `UPDATE reclaim.refunds SET channel_ref = (SELECT channel_ref FROM reclaim.refunds
		WHERE refund_id = 'done') WHERE refund_id = 'pending'`,
		[]client.AuditBreak{ofOrder("refund_reference", "shop", "o-1", "done"), ofOrder("refund_reference", "shop", "o-1", "pending")}},
	{"a refund is of no money", `UPDATE reclaim.refunds SET amount = 0 WHERE refund_id = 'canceled'`,
		[]client.AuditBreak{ofOrder("refund_amount", "shop", "o-2", "canceled")}},
	{"a refund's state does not exist", `UPDATE reclaim.refunds SET state = 'limbo' WHERE refund_id = 'free'`,
		[]client.AuditBreak{
			ofOrder("refund_state", "shop", "o-1", "free"), ofOrder("order_reserved", "shop", "o-1", ""),
			ofOrder("event_last", "", "o-1", "free"),
		}},
	{"a sent refund was never sent", `UPDATE reclaim.refunds SET first_sent_at = NULL WHERE refund_id = 'pending'`,
		[]client.AuditBreak{ofOrder("refund_sent", "shop", "o-1", "pending")}},
	{"an unsent refund was sent", `UPDATE reclaim.refunds SET send_count = 1, first_sent_at = now() WHERE refund_id = 'open'`,
		[]client.AuditBreak{ofOrder("refund_sent", "shop", "o-1", "open")}},
	{"a success without its time", `UPDATE reclaim.refunds SET succeeded_at = NULL WHERE refund_id = 'reversed'`,
		[]client.AuditBreak{ofOrder("refund_end", "shop", "o-1", "reversed")}},
	{"a release that was none", `UPDATE reclaim.refunds SET returned_at = now() WHERE refund_id = 'done'`,
		[]client.AuditBreak{ofOrder("refund_end", "shop", "o-1", "done")}},
	{"a success without a reference", `UPDATE reclaim.refunds SET channel_ref = '' WHERE refund_id = 'done'`,
		[]client.AuditBreak{ofOrder("refund_reference", "shop", "o-1", "done")}},
	{"credits came back of a refund that is on its way", `
		INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, order_id, refund_id, reason)
		SELECT tenant_id, account_id, 15, 'payout_return', 10, balance + 10, 'o-1', 'open', 'by hand' FROM reclaim.accounts
		WHERE account_id = 'shop';
		UPDATE reclaim.accounts SET balance = balance + 10, seq = 15 WHERE account_id = 'shop'`,
		[]client.AuditBreak{ofOrder("refund_entries", "shop", "o-1", "open")}},
	{"a goodwill refund took credits", `
		INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, order_id, refund_id, reason)
		SELECT tenant_id, account_id, 15, 'payout', -1, balance - 1, 'o-1', 'free', 'by hand' FROM reclaim.accounts
		WHERE account_id = 'shop';
		UPDATE reclaim.accounts SET balance = balance - 1, seq = 15 WHERE account_id = 'shop'`,
		[]client.AuditBreak{ofOrder("refund_entries", "shop", "o-1", "free"), ofEntry("entry_credits", 15, "o-1", "free")}},
	{"the credits of a refund that failed stay away", `
		DELETE FROM reclaim.ledger_entries WHERE account_id = 'shop' AND seq = 14;
		UPDATE reclaim.accounts SET balance = balance - 1, seq = 13 WHERE account_id = 'shop'`,
		[]client.AuditBreak{ofOrder("refund_entries", "shop", "o-2", "canceled")}},
	{"a reversal without an issue", `DELETE FROM reclaim.issues`,
		[]client.AuditBreak{ofOrder("refund_issue", "shop", "o-1", "reversed")}},
	{"events belong to no refund", `UPDATE reclaim.refund_events SET refund_id = 'ghost' WHERE refund_id = 'free'`,
		[]client.AuditBreak{
			ofOrder("event_refund", "", "", "ghost"), ofOrder("event_refund", "", "", "ghost"),
			ofOrder("event_last", "", "o-1", "free"),
		}},
	{"an event is gone", `DELETE FROM reclaim.refund_events WHERE refund_id = 'done' AND seq = 2`,
		[]client.AuditBreak{ofOrder("event_seq", "", "o-1", "done"), ofOrder("event_chain", "", "o-1", "done")}},
	{"the first event is gone", `DELETE FROM reclaim.refund_events WHERE refund_id = 'done' AND seq = 1`,
		[]client.AuditBreak{ofOrder("event_seq", "", "o-1", "done"), ofOrder("event_chain", "", "o-1", "done")}},
	{"the last event is gone", `DELETE FROM reclaim.refund_events WHERE refund_id = 'done' AND seq = 3`,
		[]client.AuditBreak{ofOrder("event_last", "", "o-1", "done")}},
	{"an event begins elsewhere", `UPDATE reclaim.refund_events SET from_state = 'pending' WHERE refund_id = 'done' AND seq = 2`,
		[]client.AuditBreak{ofOrder("event_chain", "", "o-1", "done")}},
	{"a refund's state is moved without an event", `
		UPDATE reclaim.refunds SET state = 'unknown' WHERE refund_id = 'pending'`,
		[]client.AuditBreak{ofOrder("event_last", "", "o-1", "pending")}},
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
