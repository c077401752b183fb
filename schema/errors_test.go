package schema_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
)

// classified gives the Failure that an error is.
func classified(t *testing.T, err error) *schema.Failure {
	t.Helper()
	failure, ok := errors.AsType[*schema.Failure](schema.Classify("charge job/acme/1", err))
	require.True(t, ok)
	require.ErrorIs(t, failure, err)
	return failure
}

func TestEveryCodeOfPostgresHasItsMeaning(t *testing.T) {
	t.Parallel()
	for code, expected := range map[string]struct {
		kind    schema.ErrorType
		retries bool
		delays  bool
	}{
		"08000": {schema.ErrorUnavailable, true, false}, // connection_exception
		"08006": {schema.ErrorUnavailable, true, false}, // connection_failure
		"22003": {schema.ErrorBroken, false, false},     // numeric_value_out_of_range
		"22021": {schema.ErrorBroken, false, false},     // character_not_in_repertoire
		"23001": {schema.ErrorBroken, false, false},     // restrict_violation: append-only
		"23503": {schema.ErrorBroken, false, false},     // foreign_key_violation
		"23505": {schema.ErrorBusy, true, false},        // unique_violation
		"23514": {schema.ErrorBroken, false, false},     // check_violation
		"25006": {schema.ErrorUnavailable, true, true},  // read_only_sql_transaction
		"28P01": {schema.ErrorMisconfigured, true, true},
		"3D000": {schema.ErrorMisconfigured, true, true}, // invalid_catalog_name
		"3F000": {schema.ErrorMisconfigured, true, true}, // invalid_schema_name
		"40001": {schema.ErrorBusy, true, false},         // serialization_failure
		"40003": {schema.ErrorUnavailable, true, false},  // statement_completion_unknown
		"40P01": {schema.ErrorBusy, true, false},         // deadlock_detected
		"42501": {schema.ErrorMisconfigured, true, true}, // insufficient_privilege
		"42703": {schema.ErrorMisconfigured, true, true}, // undefined_column
		"42P01": {schema.ErrorMisconfigured, true, true}, // undefined_table
		"53100": {schema.ErrorUnavailable, true, true},   // disk_full
		"53300": {schema.ErrorUnavailable, true, true},   // too_many_connections
		"55P03": {schema.ErrorBusy, true, false},         // lock_not_available
		"57014": {schema.ErrorBusy, true, false},         // query_canceled
		"57P01": {schema.ErrorUnavailable, true, true},   // admin_shutdown
		"57P03": {schema.ErrorUnavailable, true, true},   // cannot_connect_now
		"58030": {schema.ErrorMisconfigured, true, true}, // io_error
		"XX000": {schema.ErrorMisconfigured, true, true}, // internal_error
		"P0001": {schema.ErrorBroken, false, false},      // raise_exception
		"":      {schema.ErrorBroken, false, false},
	} {
		failure := classified(t, fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: code, Message: "m", Detail: "Key (actor)=(secret)"}))
		assert.Equal(t, expected.kind, failure.Type, code)
		assert.Equal(t, expected.retries, failure.Retryable, code)
		assert.Equal(t, expected.delays, failure.Delay > 0, code)
		assert.ErrorContains(t, failure, "charge job/acme/1")
		assert.NotContains(t, failure.Error(), "secret")
	}
}

func TestWhateverHasNoAnswerIsUnknownNotFailed(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		context.DeadlineExceeded, context.Canceled, net.ErrClosed, errors.New("conn closed"),
		&net.OpError{Op: "dial", Err: errors.New("connection refused")}, &pgconn.ConnectError{},
	} {
		failure := classified(t, err)
		assert.Equal(t, schema.ErrorUnavailable, failure.Type, "%T", err)
		assert.True(t, failure.Retryable, "%T", err)
	}
	scan := classified(t, fmt.Errorf("scan: %w", pgx.ScanArgError{Err: errors.New("cannot scan NULL")}))
	assert.Equal(t, schema.ErrorBroken, scan.Type)
	assert.False(t, scan.Retryable)
	require.NoError(t, schema.Classify("anything", nil))
	late := schema.TooLate("refund")
	assert.Equal(t, late, schema.Classify("another", late), "classified once")
	assert.Equal(t, schema.ErrorTooLate, classified(t, late).Type)
	assert.True(t, classified(t, late).Retryable)
}

func chargeParams(store *schema.Store, job, account string) db.ChargeJobParams {
	return db.ChargeJobParams{
		TenantID: "acme", JobID: job, AccountID: account, Cost: 1, Fingerprint: "f", Spec: "{}", Reason: "render",
		NotAfter: store.NotAfter(),
	}
}

// twoAccounts makes accounts a and b with 100 credits each.
func twoAccounts(t *testing.T, store *schema.Store) {
	t.Helper()
	for _, account := range []string{"a", "b"} {
		topUp(t, store, "acme", account, 100)
	}
}

func topUp(t *testing.T, store *schema.Store, tenant, account string, amount int64) {
	t.Helper()
	row, err := store.TopUpAccount(t.Context(), topUpParams(store, tenant, account, "first of "+account, amount))
	require.NoError(t, err)
	require.Equal(t, "applied", row.Answer)
}

func topUpParams(store *schema.Store, tenant, account, key string, amount int64) db.TopUpAccountParams {
	return db.TopUpAccountParams{
		TenantID: tenant, AccountID: account, Actor: "test", Key: key, Asset: "CREDIT", Amount: amount,
		Fingerprint: fmt.Sprint(account, " ", amount), Reason: "top-up", NotAfter: store.NotAfter(),
	}
}

func TestL32_ARealDeadlockIsBusyAndNeverInsufficient(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	store, admin := openStore(t, database.AppURL, schema.Options{}), openPool(t, database.SuperuserURL)
	twoAccounts(t, store)
	var transactions []pgx.Tx
	for _, job := range []string{"a", "b"} {
		tx, err := store.Pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		row, err := db.New(tx).ChargeJob(t.Context(), chargeParams(store, "job-"+job, job))
		require.NoError(t, err)
		require.Equal(t, "applied", row.Answer)
		transactions = append(transactions, tx)
	}
	type end struct {
		answer string
		err    error
	}
	ends := make(chan end, 2)
	for i, other := range []string{"b", "a"} {
		go func() {
			row, err := db.New(transactions[i]).ChargeJob(t.Context(), chargeParams(store, "second-"+other, other))
			if err != nil {
				_ = transactions[i].Rollback(t.Context())
			}
			ends <- end{row.Answer, err}
		}()
		if i == 0 {
			waitBlocked(t, admin, 1)
		}
	}
	victims := 0
	for range 2 {
		if e := <-ends; e.err != nil {
			victims++
			assert.Equal(t, "40P01", codeOf(e.err))
			assert.Equal(t, schema.ErrorBusy, classified(t, e.err).Type)
			assert.True(t, classified(t, e.err).Retryable)
		} else {
			assert.Equal(t, "applied", e.answer)
		}
	}
	assert.Equal(t, 1, victims)
}

func TestL32_ARealSerializationFailureIsBusyAndNeverInsufficient(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	store := openStore(t, database.AppURL, schema.Options{})
	twoAccounts(t, store)
	tx, err := store.Pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.Serializable})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = db.New(tx).GetAccount(t.Context(), db.GetAccountParams{TenantID: "acme", AccountID: "a"})
	require.NoError(t, err)
	_, err = store.ChargeJob(t.Context(), chargeParams(store, "other", "a"))
	require.NoError(t, err)
	_, err = db.New(tx).ChargeJob(t.Context(), chargeParams(store, "mine", "a"))
	assert.Equal(t, "40001", codeOf(err))
	assert.Equal(t, schema.ErrorBusy, classified(t, err).Type)
}

func TestALockThatIsHeldEndsTheStatementBusy(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	store := openStore(t, database.AppURL, schema.Options{StatementTimeout: 200 * time.Millisecond})
	admin := openPool(t, database.SuperuserURL)
	twoAccounts(t, store)
	hold, err := admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), "SELECT FROM reclaim.accounts WHERE account_id = 'a' FOR UPDATE")
	require.NoError(t, err)
	_, err = store.ChargeJob(t.Context(), chargeParams(store, "job", "a"))
	assert.Equal(t, "57014", codeOf(err))
	assert.Equal(t, schema.ErrorBusy, classified(t, err).Type)
	require.NoError(t, hold.Rollback(t.Context()))
	row, err := store.ChargeJob(t.Context(), chargeParams(store, "job", "a"))
	require.NoError(t, err)
	assert.Equal(t, "applied", row.Answer, "the one that ended did nothing")
}

func TestLostConnectionsAreUnavailable(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	admin := openPool(t, database.SuperuserURL)
	proxy := schematest.NewLossyProxy(t, database.Address)
	store := openStore(t, proxy.URL(database.AppURL), schema.Options{})
	twoAccounts(t, store)

	proxy.LoseReply(schematest.Containing("-- name: ChargeJob "), 1)
	_, err := store.ChargeJob(t.Context(), chargeParams(store, "lost", "a"))
	assert.Equal(t, schema.ErrorUnavailable, classified(t, err).Type)
	row, err := store.ChargeJob(t.Context(), chargeParams(store, "lost", "a"))
	require.NoError(t, err, "the pool connects again")
	assert.Equal(t, "already", row.Answer)

	// An administrator ends the session while its statement waits.
	hold, err := admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), "SELECT FROM reclaim.accounts WHERE account_id = 'b' FOR UPDATE")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := store.ChargeJob(t.Context(), chargeParams(store, "ended", "b"))
		ended <- err
	}()
	waitBlocked(t, admin, 1)
	_, err = admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	require.NoError(t, err)
	assert.Equal(t, schema.ErrorUnavailable, classified(t, <-ended).Type)
	require.NoError(t, hold.Rollback(t.Context()))

	nowhere, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := nowhere.Addr().String()
	require.NoError(t, nowhere.Close())
	gone := openStore(t, "postgres://u:p@"+address+"/d", schema.Options{})
	_, err = gone.DatabaseClock(t.Context())
	assert.Equal(t, schema.ErrorUnavailable, classified(t, err).Type)
	closed, err := pgxpool.New(t.Context(), database.AppURL)
	require.NoError(t, err)
	closed.Close()
	_, err = db.New(closed).DatabaseClock(t.Context())
	assert.Equal(t, schema.ErrorUnavailable, classified(t, err).Type)
}

func TestWhatAnOperatorHasToMendIsMisconfigured(t *testing.T) {
	t.Parallel()
	database := schematest.New(t)
	empty := openStore(t, fresh(t, database, "_empty"), schema.Options{})
	_, err := empty.ChargeJob(t.Context(), chargeParams(empty, "job", "a"))
	assert.Equal(t, "42P01", codeOf(err))
	assert.Equal(t, schema.ErrorMisconfigured, classified(t, err).Type)
	missing := openStore(t, inDatabase(t, database.AppURL, "no_such_database"), schema.Options{})
	_, err = missing.DatabaseClock(t.Context())
	assert.Equal(t, schema.ErrorMisconfigured, classified(t, err).Type)
	assert.True(t, classified(t, err).Retryable, "it goes on being tried")
}
