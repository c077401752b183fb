package schematest_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/schematest"
)

const insert = "INSERT INTO written (n) VALUES ($1)"

// proxied gives a database with an empty table, a proxy in front of it, and a session that does not
// go through the proxy.
func proxied(t *testing.T) (*schematest.LossyProxy, string, *pgx.Conn) {
	t.Helper()
	database := schematest.New(t)
	direct := connect(t, database.OwnerURL)
	execute(t, direct, "CREATE TABLE written (n int)")
	proxy := schematest.NewLossyProxy(t, database.Address)
	return proxy, proxy.URL(database.OwnerURL), direct
}

func TestProxyDisturbsNothingByItself(t *testing.T) {
	t.Parallel()
	proxy, url, direct := proxied(t)
	connection := connect(t, url)
	for n := range 3 {
		execute(t, connection, insert, n)
	}
	_, err := connection.Exec(testContext(t), "SELECT 1/0")
	require.ErrorContains(t, err, "division by zero")
	rows := [][]any{{10}, {11}}
	copied, err := connection.CopyFrom(testContext(t), pgx.Identifier{"written"}, []string{"n"}, pgx.CopyFromRows(rows))
	require.NoError(t, err)
	assert.EqualValues(t, 2, copied)
	batch := &pgx.Batch{}
	batch.Queue(insert, 20)
	batch.Queue(insert, 21)
	require.NoError(t, connection.SendBatch(testContext(t), batch).Close())
	require.NoError(t, connection.Close(testContext(t)))
	assert.Equal(t, 7, count(t, direct, "written"))
	assert.Zero(t, proxy.Matched())
}

func TestLostCommitHasCommitted(t *testing.T) {
	t.Parallel()
	proxy, url, direct := proxied(t)
	proxy.LoseReply(schematest.Containing("commit"), 1)
	write := func(n int) error {
		connection := connect(t, url)
		transaction, err := connection.Begin(testContext(t))
		require.NoError(t, err)
		_, err = transaction.Exec(testContext(t), insert, n)
		require.NoError(t, err)
		return transaction.Commit(testContext(t))
	}
	require.Error(t, write(1))
	assert.Equal(t, 1, count(t, direct, "written WHERE n = 1"), "the lost COMMIT took effect")
	require.NoError(t, write(2), "the plan was for one")
	assert.Equal(t, 2, count(t, direct, "written"))
	assert.Equal(t, 1, proxy.Lost())
	assert.Equal(t, 2, proxy.Matched())
}

func TestLostStatementHasTakenEffectInEveryProtocol(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			proxy, url, direct := proxied(t)
			connection := connect(t, url)
			execute(t, connection, insert, mode, 1) // the statement is prepared before anything is lost
			proxy.LoseReply(schematest.Containing("insert into", "WRITTEN"), 1)
			_, err := connection.Exec(testContext(t), insert, mode, 2)
			require.Error(t, err)
			assert.True(t, connection.IsClosed())
			assert.Equal(t, 1, count(t, direct, "written WHERE n = 2"))
			assert.Equal(t, 1, proxy.Lost())
		})
	}
}

func TestLostErrorIsNotSeenEither(t *testing.T) {
	t.Parallel()
	proxy, url, _ := proxied(t)
	proxy.LoseReply(schematest.Containing("1/0"), 1)
	_, err := connect(t, url).Exec(testContext(t), "SELECT 1/0")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "division by zero")
	assert.Equal(t, 1, proxy.Lost())
}

func TestLostBatchHasTakenEffect(t *testing.T) {
	t.Parallel()
	proxy, url, direct := proxied(t)
	proxy.LoseReply(schematest.Containing("insert"), 1)
	batch := &pgx.Batch{}
	batch.Queue(insert, 1)
	batch.Queue(insert, 2)
	require.Error(t, connect(t, url).SendBatch(testContext(t), batch).Close())
	assert.Equal(t, 2, count(t, direct, "written"))
	assert.Equal(t, 1, proxy.Lost())
}

func TestRandomLossLosesRepliesOnly(t *testing.T) {
	t.Parallel()
	proxy, url, direct := proxied(t)
	proxy.LoseRandomly(rand.New(rand.NewPCG(1, 2)), 0.3, schematest.Containing("insert"))
	pool, err := pgxpool.New(testContext(t), url)
	require.NoError(t, err)
	const writes = 100
	failed := make(chan bool, writes)
	for n := range writes {
		go func() {
			_, err := pool.Exec(testContext(t), insert, n)
			failed <- err != nil
		}()
	}
	failures := 0
	for range writes {
		if <-failed {
			failures++
		}
	}
	pool.Close()
	assert.Equal(t, writes, count(t, direct, "written"), "every statement took effect")
	assert.Equal(t, writes, proxy.Matched())
	assert.Equal(t, failures, proxy.Lost())
	assert.Greater(t, failures, 10)
	assert.Less(t, failures, 60)
}

func TestHeldStatementWaits(t *testing.T) {
	t.Parallel()
	proxy, url, direct := proxied(t)
	release := proxy.Hold(schematest.Containing("insert"))
	done := make(chan error, 1)
	connection := connect(t, url)
	go func() {
		_, err := connection.Exec(testContext(t), insert, 1)
		done <- err
	}()
	waitHeld(t, proxy, 1)
	execute(t, connect(t, url), "SELECT 'others pass'")
	assert.Equal(t, 0, count(t, direct, "written"))
	assert.Equal(t, 0, count(t, direct, "pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE 'INSERT%'"),
		"the server has not seen it")
	select {
	case <-done:
		t.Fatal("the client must wait")
	default:
	}
	release()
	release()
	require.NoError(t, <-done)
	assert.Equal(t, 1, count(t, direct, "written"))
	assert.Zero(t, proxy.Held())
	execute(t, connection, insert, 2)
}

func TestHeldStatementArrivesAfterItsClientGaveUp(t *testing.T) {
	t.Parallel()
	proxy, url, direct := proxied(t)
	release := proxy.Hold(schematest.Containing("insert"))
	connection := connect(t, url)
	impatient, giveUp := context.WithCancel(testContext(t))
	done := make(chan error, 1)
	go func() {
		_, err := connection.Exec(impatient, insert, 1)
		done <- err
	}()
	waitHeld(t, proxy, 1)
	giveUp()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, connection.Close(testContext(t)))
	assert.Equal(t, 0, count(t, direct, "written"))
	release()
	require.Eventually(t, func() bool { return count(t, direct, "written") == 1 }, 2*time.Minute, 5*time.Millisecond)
}

func TestHeldStatementIsDroppedWithTheProxy(t *testing.T) {
	t.Parallel()
	done := make(chan error, 1)
	t.Run("inner", func(t *testing.T) {
		proxy, url, _ := proxied(t)
		proxy.Hold(schematest.Containing("insert"))
		connection, err := pgx.Connect(testContext(t), url)
		require.NoError(t, err)
		go func() {
			_, err := connection.Exec(context.Background(), insert, 1)
			done <- err
		}()
		waitHeld(t, proxy, 1)
	})
	require.Error(t, <-done)
}

func waitHeld(t *testing.T, proxy *schematest.LossyProxy, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return proxy.Held() == n }, 2*time.Minute, time.Millisecond)
}
