package sealer_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/sealer"
)

func TestMain(m *testing.M) { os.Exit(schematest.Run(m)) }

type stage struct {
	t     *testing.T
	base  *schematest.Database
	store *schema.Store
	asked *client.Client
}

func newStage(t *testing.T) *stage {
	t.Helper()
	base := schematest.New(t)
	s := &stage{t: t, base: base}
	// Compiling the statement that fills the ledger would take longer than it does.
	s.superuser("ALTER DATABASE " + base.Name + " SET jit = off")
	store, err := schema.Open(t.Context(), base.AppURL, schema.Options{MaxConns: 12})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	s.store, s.asked = store, client.New(nil, store, "")
	return s
}

// fill writes 15 entries for each of the accounts.
func (s *stage) fill(tenant, prefix string, accounts int64) {
	s.t.Helper()
	require.NoError(s.t, s.store.FillLedger(s.t.Context(), db.FillLedgerParams{
		TenantID: tenant, Prefix: prefix, Rounds: 1, Accounts: accounts,
	}))
}

func (s *stage) seal() int {
	s.t.Helper()
	sealed, err := sealer.New(s.store, zap.NewNop()).Seal(s.t.Context())
	require.NoError(s.t, err)
	return sealed
}

func (s *stage) verify(expected ...string) client.AuditReport {
	s.t.Helper()
	report := client.AuditReport{Sound: true}
	require.NoError(s.t, s.asked.VerifyChain(s.t.Context(), &report, expected))
	return report
}

// superuser runs SQL past every trigger and foreign key.
func (s *stage) superuser(sql string) {
	s.t.Helper()
	connection, err := pgx.Connect(s.t.Context(), s.base.SuperuserURL)
	require.NoError(s.t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	_, err = connection.Exec(s.t.Context(), "SET session_replication_role = replica; "+sql)
	require.NoError(s.t, err)
}

func (s *stage) count(sql string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.store.Pool.QueryRow(s.t.Context(), sql).Scan(&n))
	return n
}

func TestEntriesAreSealedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fill("acme", "a-", 150)
	s.fill("globex", "a-", 1)
	assert.Equal(t, 2265, s.seal())
	assert.Zero(t, s.seal())
	report := s.verify()
	assert.True(t, report.Sound, "%+v", report.Breaks)
	require.Len(t, report.Chain.Heads, 2)
	acme := report.Chain.Heads[0]
	assert.Equal(t, "acme", acme.Tenant)
	assert.EqualValues(t, 2250, acme.Sealed)
	assert.Len(t, acme.Head, 64)

	s.fill("acme", "b-", 1)
	report = s.verify()
	assert.True(t, report.Sound, "what is not sealed yet breaks nothing")
	assert.EqualValues(t, 15, report.Chain.Heads[0].Unsealed)
	assert.Equal(t, acme.Head, report.Chain.Heads[0].Head)
	assert.Equal(t, 15, s.seal())
	report = s.verify(acme.Head, report.Chain.Heads[1].Head)
	assert.True(t, report.Sound, "earlier heads are in the chains: %+v", report.Breaks)
	assert.NotEqual(t, acme.Head, report.Chain.Heads[0].Head)

	report = s.verify(strings.Repeat("ab", 32))
	assert.False(t, report.Sound)
	require.Len(t, report.Breaks, 1)
	assert.Equal(t, "seal_head", report.Breaks[0].Check)
	err := s.asked.VerifyChain(t.Context(), &report, []string{"abc"})
	assert.ErrorContains(t, err, "64 hexadecimal digits")
}

func TestTamperingIsNamed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, sql, check, account string
		seq                       int64
	}{
		{"an amount", "UPDATE reclaim.ledger_entries SET amount = amount - 1 WHERE account_id = 'a-2' AND seq = 3", "seal_hash", "a-2", 3},
		{"a reason", "UPDATE reclaim.ledger_entries SET reason = 'else' WHERE account_id = 'a-1' AND seq = 1", "seal_hash", "a-1", 1},
		{"an instant", "UPDATE reclaim.ledger_entries SET created_at = 'infinity' WHERE account_id = 'a-3' AND seq = 15", "seal_hash", "a-3", 15},
		{"a job", "UPDATE reclaim.ledger_entries SET job_id = 'other' WHERE account_id = 'a-2' AND seq = 2", "seal_hash", "a-2", 2},
		{"the first of two", "UPDATE reclaim.ledger_entries SET reason = 'x' WHERE seq = 4", "seal_hash", "a-1", 4},
		{"an entry is gone", "DELETE FROM reclaim.ledger_entries WHERE account_id = 'a-2' AND seq = 15", "seal_entry", "a-2", 15},
		{"an entry and its seal are gone", `DELETE FROM reclaim.ledger_entries WHERE account_id = 'a-2' AND seq = 2;
			DELETE FROM reclaim.ledger_seals WHERE account_id = 'a-2' AND seq = 2`, "seal_position", "a-2", 3},
		{"all are gone", "DELETE FROM reclaim.ledger_entries; DELETE FROM reclaim.accounts", "seal_entry", "a-1", 1},
		{"an entry was put in", `ALTER TABLE reclaim.ledger_entries DROP CONSTRAINT ledger_entries_seq_check;
			INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason)
			VALUES ('acme', 'a-2', 0, 'topup', 5, 5, 'gift')`, "seal_missing", "a-2", 0},
		{"seals changed places", `
			UPDATE reclaim.ledger_seals SET position = position + 1000 WHERE position IN (20, 21);
			UPDATE reclaim.ledger_seals SET position = 1041 - position WHERE position > 1000`, "seal_hash", "a-2", 6},
		{"a seal's hash", "UPDATE reclaim.ledger_seals SET hash = sha256('x') WHERE position = 45", "seal_hash", "a-3", 15},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.fill("acme", "a-", 3)
			s.seal()
			head := s.verify().Chain.Heads[0].Head
			s.superuser(test.sql)
			report := s.verify(head)
			assert.False(t, report.Sound)
			require.NotEmpty(t, report.Breaks)
			first := report.Breaks[0]
			assert.Equal(t, [3]any{test.check, test.account, test.seq}, [3]any{first.Check, first.Account, first.Seq}, "%+v", report.Breaks)
		})
	}
}

// Who takes the newest entries away together with their seals leaves a chain that is whole, but for a head that was kept.
func TestATailThatWasCutOffShowsByAKeptHead(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fill("acme", "a-", 2)
	s.seal()
	earlier := s.verify().Chain.Heads[0].Head
	s.fill("acme", "b-", 1)
	s.seal()
	head := s.verify().Chain.Heads[0].Head
	s.superuser(`DELETE FROM reclaim.ledger_seals WHERE account_id = 'b-1' AND seq > 10;
		DELETE FROM reclaim.ledger_entries WHERE account_id = 'b-1' AND seq > 10;
		UPDATE reclaim.accounts SET seq = 10, balance = 10 WHERE account_id = 'b-1'`)
	assert.True(t, s.verify(earlier).Sound)
	report := s.verify(earlier, head)
	assert.False(t, report.Sound)
	require.Len(t, report.Breaks, 1)
	assert.Equal(t, "seal_head", report.Breaks[0].Check)
	assert.Contains(t, report.Breaks[0].Expected, head)
}

func TestSealersShareTheWorkWhileMoneyMovesAndSomeAreKilled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fill("acme", "old-", 200)
	var writers, sealers sync.WaitGroup
	stop := make(chan struct{})
	for n := range 2 {
		writers.Go(func() {
			for round := range 15 {
				s.fill("acme", fmt.Sprintf("w-%d-%d-", n, round), 3)
				s.fill("globex", fmt.Sprintf("w-%d-%d-", n, round), 1)
			}
		})
	}
	for range 3 {
		sealers.Go(func() {
			own := sealer.New(s.store, zap.NewNop())
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = own.Seal(t.Context()) // killed ones fail
				}
			}
		})
	}
	killed := 0
	admin, err := pgx.Connect(t.Context(), s.base.SuperuserURL)
	require.NoError(t, err)
	defer func() { _ = admin.Close(context.Background()) }()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ~ 'ledger_seals' AND state <> 'idle'`).Scan(&n))
		killed += n
		return killed >= 3
	}, 30*time.Second, time.Millisecond)
	writers.Wait()
	close(stop)
	sealers.Wait()
	s.seal()
	assert.Equal(t, s.count("SELECT count(*) FROM reclaim.ledger_entries"), s.count("SELECT count(*) FROM reclaim.ledger_seals"))
	report := s.verify()
	assert.True(t, report.Sound, "%+v", report.Breaks)
}

// What was written long before it was committed is sealed with the account's next entry, or at the next look at all accounts.
func TestAnEntryThatIsCommittedLateIsSealed(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fill("acme", "a-", 2)
	own := sealer.New(s.store, zap.NewNop())
	_, err := own.Seal(t.Context())
	require.NoError(t, err)
	late, err := s.store.Pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = late.Rollback(context.Background()) }()
	add := func(seq int64, age string) {
		_, err := late.Exec(t.Context(), fmt.Sprintf(`
			INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, reason, created_at)
			VALUES ('acme', 'a-1', %d, 'topup', 5, 5, 'late', now() - interval '%s')`, seq, age))
		require.NoError(t, err)
	}
	add(16, "10 minutes")
	sealed, err := own.Seal(t.Context())
	require.NoError(t, err)
	assert.Zero(t, sealed, "it cannot be seen yet")
	add(17, "0 minutes")
	require.NoError(t, late.Commit(t.Context()))
	sealed, err = own.Seal(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, sealed)
	assert.True(t, s.verify().Sound)
}

func TestAWorkerWithoutTheRightSaysSoAndGoesOn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.fill("acme", "a-", 1)
	s.superuser("REVOKE INSERT ON reclaim.ledger_seals FROM reclaim_app")
	core, logged := observer.New(zap.WarnLevel)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { sealer.New(s.store, zap.New(core)).Run(ctx, 20*time.Millisecond) })
	require.Eventually(t, func() bool { return logged.Len() >= 2 }, 30*time.Second, 10*time.Millisecond)
	assert.Contains(t, fmt.Sprint(logged.All()[0].ContextMap()), "permission denied for table ledger_seals")
	assert.Zero(t, s.count("SELECT count(*) FROM reclaim.ledger_seals"))
	s.superuser("GRANT INSERT ON reclaim.ledger_seals TO reclaim_app")
	require.Eventually(t, func() bool { return s.count("SELECT count(*) FROM reclaim.ledger_seals") == 15 }, 30*time.Second, 10*time.Millisecond)
	cancel()
	running.Wait()
}
