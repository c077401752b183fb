package schema_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
)

// most is the largest amount and balance of an account: 2^53−1.
const most int64 = 1<<53 - 1

// movedRow is the row that a top-up and an adjustment answer.
type movedRow struct {
	Answer, Asset     string
	Seq, BalanceAfter int64
}

func moved[row db.TopUpAccountRow | db.AdjustAccountRow](answer row, err error) (movedRow, error) {
	return movedRow(answer), err
}

func adjustParams(store *schema.Store, account, key string, amount int64) db.AdjustAccountParams {
	return db.AdjustAccountParams{
		TenantID: "acme", AccountID: account, Actor: "test", Key: key, Amount: amount,
		Fingerprint: fmt.Sprint(account, " ", amount), Reason: "corrected", NotAfter: store.NotAfter(),
	}
}

// untilAnswered repeats a movement while it is to be tried again.
func untilAnswered(move func() (movedRow, error)) (row movedRow, err error) {
	for range 100 {
		row, err = move()
		failure, ok := errors.AsType[*schema.Failure](schema.Classify("move", err))
		if row.Answer != "too_late" && (!ok || !failure.Retryable) {
			break
		}
	}
	return row, err
}

// atOnce makes a movement in 16 sessions that all wait for the account's lock, and counts the answers.
func atOnce(t *testing.T, admin *pgxpool.Pool, account string, move func() (movedRow, error)) map[string]int {
	t.Helper()
	const sessions = 16
	hold, err := admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = hold.Rollback(context.Background()) }()
	tag, err := hold.Exec(t.Context(), "SELECT FROM reclaim.accounts WHERE account_id = $1 FOR UPDATE", account)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	var mu sync.Mutex
	var group sync.WaitGroup
	answers := map[string]int{}
	for range sessions {
		group.Go(func() {
			row, err := untilAnswered(move)
			mu.Lock()
			defer mu.Unlock()
			assert.NoError(t, err)
			answers[fmt.Sprint(row.Answer, " ", row.Seq, " ", row.BalanceAfter)]++
		})
	}
	waitBlocked(t, admin, sessions)
	require.NoError(t, hold.Rollback(t.Context()))
	group.Wait()
	return answers
}

// broken counts accounts whose row is not what their entries say.
func broken(t *testing.T, admin *pgxpool.Pool) []string {
	t.Helper()
	return lines(t, admin, `SELECT account_id FROM reclaim.accounts LEFT JOIN (
			SELECT tenant_id, account_id, sum(amount) AS booked, count(*) AS entries, max(seq) AS newest
			FROM reclaim.ledger_entries GROUP BY tenant_id, account_id) AS ledger USING (tenant_id, account_id)
		WHERE balance <> coalesce(booked, 0) OR seq <> coalesce(entries, 0) OR seq <> coalesce(newest, 0)`)
}

func TestL7_OneKeyMovesOnceHoweverManyAskAtOnce(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	store, admin := openStore(t, database.AppURL, schema.Options{MaxConns: 16}), openPool(t, database.SuperuserURL)
	for _, test := range []struct {
		account string
		first   int64
		move    func(account string) (movedRow, error)
		after   int64
	}{
		{"top-up", 5, func(account string) (movedRow, error) {
			return moved(store.TopUpAccount(t.Context(), topUpParams(store, "acme", account, "same "+account, 10)))
		}, 15},
		{"top-up-to-the-most", 5, func(account string) (movedRow, error) {
			return moved(store.TopUpAccount(t.Context(), topUpParams(store, "acme", account, "same "+account, most-5)))
		}, most},
		{"adjust", 5, func(account string) (movedRow, error) {
			return moved(store.AdjustAccount(t.Context(), adjustParams(store, account, "same "+account, -10)))
		}, -5},
		{"adjust-to-the-most", 5, func(account string) (movedRow, error) {
			return moved(store.AdjustAccount(t.Context(), adjustParams(store, account, "same "+account, most-5)))
		}, most},
		{"adjust-to-the-least", 5, func(account string) (movedRow, error) {
			return moved(store.AdjustAccount(t.Context(), adjustParams(store, account, "same "+account, -most-5)))
		}, -most},
	} {
		topUp(t, store, "acme", test.account, test.first)
		answers := atOnce(t, admin, test.account, func() (movedRow, error) { return test.move(test.account) })
		assert.Equal(t, map[string]int{
			fmt.Sprint("applied 2 ", test.after): 1, fmt.Sprint("already 2 ", test.after): 15,
		}, answers, test.account)
	}
	assert.Empty(t, broken(t, admin))
}

// Nobody can hold the lock of an account that does not exist yet: here the first top-ups race as they come.
func TestL76_FirstTopUpsOfANewTenantAtOnce(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	store, admin := openStore(t, database.AppURL, schema.Options{MaxConns: 20}), openPool(t, database.SuperuserURL)
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			row, err := untilAnswered(func() (movedRow, error) {
				return moved(store.TopUpAccount(t.Context(), topUpParams(store, "newcomer", "account", fmt.Sprint("key ", i/2), 3)))
			})
			assert.NoError(t, err)
			assert.Contains(t, []string{"applied", "already"}, row.Answer)
		})
	}
	group.Wait()
	account, err := store.GetAccount(t.Context(), db.GetAccountParams{TenantID: "newcomer", AccountID: "account"})
	require.NoError(t, err)
	assert.EqualValues(t, 30, account.Balance)
	assert.EqualValues(t, 10, account.Seq)
	assert.Empty(t, broken(t, admin))
}

func TestL8_MovementsAndChargesInterleavedKeepTheSum(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	store, admin := openStore(t, database.AppURL, schema.Options{MaxConns: 12}), openPool(t, database.SuperuserURL)
	topUp(t, store, "acme", "a", 1000)
	var group sync.WaitGroup
	for i := range 12 {
		group.Go(func() {
			for n := range 20 {
				key := fmt.Sprint(i, "-", n)
				_, err := untilAnswered(func() (row movedRow, err error) {
					switch i % 3 {
					case 0:
						return moved(store.TopUpAccount(t.Context(), topUpParams(store, "acme", "a", key, 7)))
					case 1:
						return moved(store.AdjustAccount(t.Context(), adjustParams(store, "a", key, -4)))
					default:
						charged, err := store.ChargeJob(t.Context(), chargeParams(store, key, "a"))
						return movedRow{Answer: charged.Answer}, err
					}
				})
				assert.NoError(t, err)
			}
		})
	}
	group.Wait()
	account, err := store.GetAccount(t.Context(), db.GetAccountParams{TenantID: "acme", AccountID: "a"})
	require.NoError(t, err)
	assert.EqualValues(t, 1000+80*7-80*4-80, account.Balance)
	assert.EqualValues(t, 241, account.Seq)
	assert.Empty(t, broken(t, admin))
}

func TestMovementsAnswerWhatStands(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	store, admin := openStore(t, database.AppURL, schema.Options{}), openPool(t, database.SuperuserURL)
	topUp(t, store, "acme", "a", 10)
	topUp(t, store, "acme", "rich", most)
	for _, test := range []struct {
		name   string
		change func(*db.TopUpAccountParams)
		answer movedRow
	}{
		{"again", func(*db.TopUpAccountParams) {}, movedRow{"already", "CREDIT", 1, 10}},
		{"L34: another amount", func(p *db.TopUpAccountParams) { p.Amount, p.Fingerprint = 9, "a 9" }, movedRow{"conflict", "CREDIT", 1, 10}},
		{"L34: another account", func(p *db.TopUpAccountParams) { p.AccountID, p.Fingerprint = "rich", "rich 10" }, movedRow{"conflict", "CREDIT", 1, 10}},
		{"L35: another tenant", func(p *db.TopUpAccountParams) { p.TenantID = "globex" }, movedRow{"applied", "CREDIT", 1, 10}},
		{"another actor", func(p *db.TopUpAccountParams) { p.Actor = "other" }, movedRow{"applied", "CREDIT", 2, 20}},
		{"another asset", func(p *db.TopUpAccountParams) { p.Key, p.Asset = "gold", "GOLD" }, movedRow{"other_asset", "CREDIT", 0, 20}},
		{"L50: one too many", func(p *db.TopUpAccountParams) { p.AccountID, p.Key, p.Amount = "rich", "one", 1 }, movedRow{"overflow", "CREDIT", 0, most}},
		{"too late", func(p *db.TopUpAccountParams) { p.Key, p.NotAfter = "late", p.NotAfter.Add(-schema.NotAfterWindow*100) }, movedRow{"too_late", "CREDIT", 0, 20}},
		{"too late for an account", func(p *db.TopUpAccountParams) {
			p.AccountID, p.Key, p.NotAfter = "none", "late", p.NotAfter.Add(-schema.NotAfterWindow*100)
		}, movedRow{"too_late", "CREDIT", 0, 0}},
		{"found, though late", func(p *db.TopUpAccountParams) { p.NotAfter = p.NotAfter.Add(-schema.NotAfterWindow * 100) }, movedRow{"already", "CREDIT", 1, 10}},
	} {
		params := topUpParams(store, "acme", "a", "first of a", 10)
		test.change(&params)
		row, err := moved(store.TopUpAccount(t.Context(), params))
		require.NoError(t, err, test.name)
		assert.Equal(t, test.answer, row, test.name)
	}
	for _, test := range []struct {
		name   string
		change func(*db.AdjustAccountParams)
		answer movedRow
	}{
		{"applied", func(*db.AdjustAccountParams) {}, movedRow{"applied", "CREDIT", 3, -10}},
		{"again", func(*db.AdjustAccountParams) {}, movedRow{"already", "CREDIT", 3, -10}},
		{"L34: another amount", func(p *db.AdjustAccountParams) { p.Fingerprint = "x" }, movedRow{"conflict", "CREDIT", 3, -10}},
		{"unknown account", func(p *db.AdjustAccountParams) { p.Key, p.AccountID = "u", "nobody" }, movedRow{"unknown_account", "", 0, 0}},
		{"L50: too much", func(p *db.AdjustAccountParams) { p.Key, p.AccountID, p.Amount = "o", "rich", 1 }, movedRow{"overflow", "CREDIT", 0, most}},
		{"L50: too little", func(p *db.AdjustAccountParams) { p.Key, p.Amount = "o", -most }, movedRow{"overflow", "CREDIT", 0, -10}},
		{"too late", func(p *db.AdjustAccountParams) {
			p.Key, p.NotAfter = "late", p.NotAfter.Add(-schema.NotAfterWindow*100)
		}, movedRow{"too_late", "CREDIT", 0, -10}},
		{"the key of a top-up", func(p *db.AdjustAccountParams) { p.Key, p.Amount = "first of a", 10 }, movedRow{"applied", "CREDIT", 4, 0}},
	} {
		params := adjustParams(store, "a", "adjust", -30)
		test.change(&params)
		row, err := moved(store.AdjustAccount(t.Context(), params))
		require.NoError(t, err, test.name)
		assert.Equal(t, test.answer, row, test.name)
	}
	assert.Empty(t, broken(t, admin))
}

func TestL5_ALostReplyToAMovementIsFoundAgain(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	admin := openPool(t, database.SuperuserURL)
	proxy := schematest.NewLossyProxy(t, database.Address)
	store := openStore(t, proxy.URL(database.AppURL), schema.Options{})
	proxy.LoseReply(schematest.Containing("-- name: TopUpAccount "), 1)
	proxy.LoseReply(schematest.Containing("-- name: AdjustAccount "), 1)
	row, err := untilAnswered(func() (movedRow, error) {
		return moved(store.TopUpAccount(t.Context(), topUpParams(store, "acme", "a", "k", 10)))
	})
	require.NoError(t, err)
	assert.Equal(t, movedRow{"already", "CREDIT", 1, 10}, row)
	row, err = untilAnswered(func() (movedRow, error) {
		return moved(store.AdjustAccount(t.Context(), adjustParams(store, "a", "k", -30)))
	})
	require.NoError(t, err)
	assert.Equal(t, movedRow{"already", "CREDIT", 2, -20}, row)
	assert.Equal(t, 2, proxy.Lost())
	assert.Empty(t, broken(t, admin))
}
