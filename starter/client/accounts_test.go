package client_test

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (l *ledger) entries(tenant, account string) []client.Entry {
	l.t.Helper()
	var all []client.Entry
	require.NoError(l.t, l.Entries(l.ctx, tenant, account, 0, func(e client.Entry) error {
		all = append(all, e)
		return nil
	}))
	return all
}

// sound asserts that the audit finds nothing.
func (l *ledger) sound() {
	l.t.Helper()
	report, err := l.Audit(l.ctx, "")
	require.NoError(l.t, err)
	assert.True(l.t, report.Sound, "%+v", report.Breaks)
}

func topUpOf(amount int64, key string) client.Movement {
	return client.Movement{Tenant: "acme", Actor: "api:shop", Account: "team-7", Key: key, Amount: amount}
}

func TestL7TopUpSettledTwiceAtOnceCreditsOnce(t *testing.T) {
	t.Parallel()
	for _, existing := range []bool{false, true} {
		l := newLedger(t)
		if existing {
			l.topUp("acme", "team-7", 5, "before")
		}
		const callers = 20
		var applied, already int
		var moved []client.Moved
		var mu sync.Mutex
		var group sync.WaitGroup
		start := make(chan struct{})
		for range callers {
			group.Go(func() {
				<-start
				answer, err := l.TopUp(l.ctx, topUpOf(100, "payment-1"))
				mu.Lock()
				defer mu.Unlock()
				if !assert.NoError(t, err) {
					return
				}
				moved = append(moved, client.Moved{Seq: answer.Seq, BalanceAfter: answer.BalanceAfter})
				if answer.Already {
					already++
				} else {
					applied++
				}
			})
		}
		close(start)
		group.Wait()
		assert.Equal(t, 1, applied)
		assert.Equal(t, callers-1, already)
		for _, one := range moved {
			assert.Equal(t, moved[0], one, "everybody is told the same entry")
		}
		entries := l.entries("acme", "team-7")
		newest := entries[len(entries)-1]
		assert.Len(t, entries, map[bool]int{false: 1, true: 2}[existing])
		assert.Equal(t, moved[0], client.Moved{Seq: newest.Seq, BalanceAfter: newest.BalanceAfter})
		l.sound()
	}
}

func TestAdjustInParallelUnderOneKeyMovesOnce(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 100, "order-1")
	m := client.Movement{
		Tenant: "acme", Actor: "ann", Account: "team-7", Key: "ticket-4", Amount: -30, Operator: "ann", Reason: "paid twice",
	}
	var group sync.WaitGroup
	for range 10 {
		group.Go(func() {
			moved, err := l.Adjust(l.ctx, m)
			assert.NoError(t, err)
			assert.Equal(t, int64(70), moved.BalanceAfter)
		})
	}
	group.Wait()
	entries := l.entries("acme", "team-7")
	require.Len(t, entries, 2)
	assert.Equal(t, "paid twice (ann)", entries[1].Reason)
	l.sound()
}

func TestParallelMovementsUnderDifferentKeysAllCount(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	var group sync.WaitGroup
	for n := range 40 {
		group.Go(func() {
			_, err := l.TopUp(l.ctx, topUpOf(int64(n+1), "payment-"+string(rune('A'+n))))
			assert.NoError(t, err)
		})
	}
	group.Wait()
	account, err := l.Account(l.ctx, "acme", "team-7")
	require.NoError(t, err)
	assert.Equal(t, int64(40*41/2), account.Balance)
	assert.Equal(t, int64(40), account.Entries)
	l.sound()
}

func TestL34AKeyReusedForOtherContentIsAConflict(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 50, "key-1") // another actor's key
	first, err := l.TopUp(l.ctx, topUpOf(5, "key-1"))
	require.NoError(t, err)
	for _, change := range []func(*client.Movement){
		func(m *client.Movement) { m.Amount = 9 },
		func(m *client.Movement) { m.Account = "team-8" },
		func(m *client.Movement) { m.Asset = "TOKEN" },
	} {
		other := topUpOf(5, "key-1")
		change(&other)
		for range 2 {
			_, err := l.TopUp(l.ctx, other)
			assert.Equal(t, contract.RetryNewKey, refusal(t, contract.CodeConflict, err).Retry)
		}
	}
	assert.Len(t, l.entries("acme", "team-7"), 2)
	_, err = l.Account(l.ctx, "acme", "team-8")
	refusal(t, contract.CodeNotFound, err)
	// Its reason is for people, and no part of what the key stands for.
	again := topUpOf(5, "key-1")
	again.Reason = "said in other words"
	same, err := l.TopUp(l.ctx, again)
	require.NoError(t, err)
	first.Already = true
	assert.Equal(t, first, same)

	adjustment := client.Movement{
		Tenant: "acme", Actor: "api:shop", Account: "team-7", Key: "key-1", Amount: -1, Operator: "ann", Reason: "why",
	}
	_, err = l.Adjust(l.ctx, adjustment)
	require.NoError(t, err, "a key is unique within its kind of operation")
	adjustment.Amount = -2
	_, err = l.Adjust(l.ctx, adjustment)
	refusal(t, contract.CodeConflict, err)
	l.sound()
}

func TestL35AKeyIsUniqueWithinTenantAndActorOnly(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, tenant := range []string{"acme", "globex"} {
		for _, actor := range []string{"api:shop", "api:admin"} {
			m := topUpOf(10, "1")
			m.Tenant, m.Actor = tenant, actor
			moved, err := l.TopUp(l.ctx, m)
			require.NoError(t, err)
			assert.False(t, moved.Already, "%s %s", tenant, actor)
		}
	}
	for _, tenant := range []string{"acme", "globex"} {
		account, err := l.Account(l.ctx, tenant, "team-7")
		require.NoError(t, err)
		assert.Equal(t, int64(20), account.Balance)
	}
	l.sound()
}

func TestL37ARepeatMuchLaterIsAnsweredAsTheFirstTime(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	first, err := l.TopUp(l.ctx, topUpOf(10, "payment-1"))
	require.NoError(t, err)
	l.adjust("acme", "team-7", -3, "ticket-1")
	l.topUp("acme", "team-7", 100, "payment-2")
	l.tamper(`UPDATE reclaim.operations SET created_at = now() - interval '400 days';
		UPDATE reclaim.ledger_entries SET created_at = now() - interval '400 days'`)
	again, err := l.TopUp(l.ctx, topUpOf(10, "payment-1"))
	require.NoError(t, err)
	first.Already = true
	assert.Equal(t, first, again)
	assert.Len(t, l.entries("acme", "team-7"), 3)
}

func TestL38AMovementNeedsItsKey(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, key := range []string{"", " ", strings.Repeat("k", 201), "\x00", "\xff"} {
		_, err := l.TopUp(l.ctx, topUpOf(10, key))
		refused := refusal(t, contract.CodeBadInput, err)
		require.NotEmpty(t, refused.Fields)
		assert.Equal(t, "key", refused.Fields[0].Field)
	}
	_, err := l.Account(l.ctx, "acme", "team-7")
	refusal(t, contract.CodeNotFound, err)
}

func TestL50ABalanceNeverWraps(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", contract.MaxCost, "all")
	for _, amount := range []int64{1, 10, contract.MaxCost} {
		_, err := l.TopUp(l.ctx, topUpOf(amount, "more"))
		assert.Contains(t, refusal(t, contract.CodeBadInput, err).Message, "9007199254740991")
	}
	adjustment := client.Movement{
		Tenant: "acme", Actor: "ann", Account: "team-7", Key: "k", Amount: 1, Operator: "ann", Reason: "why",
	}
	_, err := l.Adjust(l.ctx, adjustment)
	refusal(t, contract.CodeBadInput, err)
	for _, amount := range []int64{math.MaxInt64, math.MinInt64, contract.MaxCost + 1, -contract.MaxCost - 1, 0} {
		adjustment.Amount = amount
		_, err = l.Adjust(l.ctx, adjustment)
		assert.Equal(t, "amount", refusal(t, contract.CodeBadInput, err).Fields[0].Field)
	}
	// The refusals left the key unused.
	adjustment.Amount = -contract.MaxCost
	_, err = l.Adjust(l.ctx, adjustment)
	require.NoError(t, err)
	adjustment.Key = "k2"
	_, err = l.Adjust(l.ctx, adjustment)
	require.NoError(t, err)
	adjustment.Key, adjustment.Amount = "k3", -1
	_, err = l.Adjust(l.ctx, adjustment)
	refusal(t, contract.CodeBadInput, err)
	account, err := l.Account(l.ctx, "acme", "team-7")
	require.NoError(t, err)
	assert.Equal(t, -contract.MaxCost, account.Balance)
	l.sound()
}

func TestTopUpRefusesAnotherAsset(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 10, "order-1")
	m := topUpOf(10, "order-2")
	m.Asset = "TOKEN"
	_, err := l.TopUp(l.ctx, m)
	assert.Contains(t, refusal(t, contract.CodeBadInput, err).Message, "holds CREDIT, not TOKEN")
	assert.Len(t, l.entries("acme", "team-7"), 1)
}

func TestADebtIsPaidBack(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 10, "order-1")
	assert.Equal(t, int64(-15), l.adjust("acme", "team-7", -25, "ticket-1").BalanceAfter)
	assert.Equal(t, int64(-5), l.topUp("acme", "team-7", 10, "order-2").BalanceAfter)
	assert.Equal(t, int64(5), l.topUp("acme", "team-7", 10, "order-3").BalanceAfter)
	l.sound()
}

func TestAdjustNeedsAnAccountAndAReason(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	m := client.Movement{Tenant: "acme", Actor: "ann", Account: "team-7", Key: "k", Amount: 5, Operator: "ann", Reason: "why"}
	_, err := l.Adjust(l.ctx, m)
	refusal(t, contract.CodeNotFound, err)
	m.Operator, m.Reason = "", " "
	_, err = l.Adjust(l.ctx, m)
	fields := refusal(t, contract.CodeBadInput, err).Fields
	require.Len(t, fields, 2, "every mistake at once")
	assert.Equal(t, "operator", fields[0].Field)
	assert.Equal(t, "reason", fields[1].Field)
}

func TestL47ATopUpIsAboveZero(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for _, amount := range []int64{0, -25, math.MinInt64, contract.MaxCost + 1} {
		_, err := l.TopUp(l.ctx, topUpOf(amount, "k"))
		refusal(t, contract.CodeBadInput, err)
	}
	nobodys := topUpOf(1, "k")
	nobodys.Tenant = contract.UnassignedTenant
	_, err := l.TopUp(l.ctx, nobodys)
	assert.Contains(t, refusal(t, contract.CodeBadInput, err).Message, "kept for messages that belong to no tenant")
}

func TestL77TextsAreStoredAsTheyAreOrRefused(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	for n, reason := range []string{"crédit 🎉", `quote " and ' and \ and \u0000`, "=HYPERLINK(\"x\")", "a\nb"} {
		m := topUpOf(1, "key 🎉 '"+string(rune('a'+n)))
		m.Reason = reason
		_, err := l.TopUp(l.ctx, m)
		require.NoError(t, err)
		entries := l.entries("acme", "team-7")
		assert.Equal(t, reason, entries[n].Reason)
	}
	m := topUpOf(1, "nul")
	m.Reason = "a\x00b"
	_, err := l.TopUp(l.ctx, m)
	refusal(t, contract.CodeBadInput, err)
}

func TestALostReplyIsFoundOut(t *testing.T) {
	t.Parallel()
	base := schematest.New(t)
	proxy := schematest.NewLossyProxy(t, base.Address)
	l := openLedger(t, base, proxy.URL(base.AppURL))
	proxy.LoseReply(schematest.Containing("INSERT INTO reclaim.ledger_entries"), 2)
	moved, err := l.TopUp(l.ctx, topUpOf(10, "order-1"))
	require.NoError(t, err)
	assert.Equal(t, 2, proxy.Lost())
	assert.Equal(t, client.Moved{Already: true, Seq: 1, BalanceAfter: 10}, moved)
	assert.Len(t, l.entries("acme", "team-7"), 1)
}

func TestEntriesComePageByPage(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-70", 1, "a neighbour's")
	l.tamper(`INSERT INTO reclaim.accounts (tenant_id, account_id, asset, balance, seq) VALUES ('acme', 'team-7', 'CREDIT', 2500, 2500);
		INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason, created_at)
		SELECT 'acme', 'team-7', n, 'topup', 1, n, 'order ' || n, '2026-03-01T12:00:00+04:00' FROM generate_series(1, 2500) AS n`)
	entries := l.entries("acme", "team-7")
	require.Len(t, entries, 2500)
	for i, entry := range entries {
		require.Equal(t, int64(i+1), entry.Seq)
		require.Equal(t, time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC), entry.CreatedAt)
	}
	for _, after := range []int64{1000, 2000, 2499, 2500, 9999} {
		n := 0
		require.NoError(t, l.Entries(l.ctx, "acme", "team-7", after, func(e client.Entry) error {
			n++
			assert.Greater(t, e.Seq, after)
			return nil
		}))
		assert.Equal(t, int(max(0, 2500-after)), n)
	}
	enough := errors.New("enough")
	assert.Equal(t, enough, l.Entries(l.ctx, "acme", "team-7", 0, func(client.Entry) error { return enough }))
	assert.Empty(t, l.entries("acme", "nobody"))
}
