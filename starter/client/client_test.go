package client_test

import (
	"context"
	"log/slog"

	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// ledger is a database with a client on it. There is no Temporal.
type ledger struct {
	*client.Client
	t     *testing.T
	ctx   context.Context
	store *schema.Store
	base  *schematest.Database
	// referenced are the refunds that the channel has given a reference, in order.
	referenced []string
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	base := schematest.New(t)
	return openLedger(t, base, base.AppURL)
}

func openLedger(t *testing.T, base *schematest.Database, url string) *ledger {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	store, err := schema.Open(ctx, url, schema.Options{MaxConns: 8})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	// Nothing listens on port 1.
	temporal, err := temporalclient.NewLazyClient(temporalclient.Options{
		HostPort: "127.0.0.1:1", Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	return &ledger{Client: client.New(temporal, store, ""), t: t, ctx: ctx, store: store, base: base}
}

// tamper runs SQL as nobody but a superuser can: no trigger, no foreign key, no CHECK and no unique index is in its way.
func (l *ledger) tamper(sql string) {
	l.t.Helper()
	connection, err := pgx.Connect(l.ctx, l.base.SuperuserURL)
	require.NoError(l.t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	_, err = connection.Exec(l.ctx, `
		SET session_replication_role = replica;
		DO $$ DECLARE c record; BEGIN
			FOR c IN SELECT conname, CASE WHEN contypid = 0 THEN 'TABLE ' || conrelid::regclass
					ELSE 'DOMAIN ' || contypid::regtype END AS holder
				FROM pg_constraint WHERE contype = 'c' AND connamespace = 'reclaim'::regnamespace LOOP
				EXECUTE format('ALTER %s DROP CONSTRAINT %I', c.holder, c.conname);
			END LOOP;
		END $$;
		DROP INDEX IF EXISTS reclaim.ledger_entries_job;`)
	require.NoError(l.t, err)
	_, err = connection.Exec(l.ctx, sql)
	require.NoError(l.t, err)
}

func (l *ledger) topUp(tenant, account string, amount int64, key string) client.Moved {
	l.t.Helper()
	moved, err := l.TopUp(l.ctx, client.Movement{Tenant: tenant, Actor: "test", Account: account, Key: key, Amount: amount})
	require.NoError(l.t, err)
	return moved
}

func (l *ledger) adjust(tenant, account string, amount int64, key string) client.Moved {
	l.t.Helper()
	moved, err := l.Adjust(l.ctx, client.Movement{
		Tenant: tenant, Actor: "test", Account: account, Key: key, Amount: amount, Operator: "ann", Reason: "a correction",
	})
	require.NoError(l.t, err)
	return moved
}

func (l *ledger) job(account, id string, cost int64) contract.Job {
	return contract.Job{
		Tenant: "acme", JobID: id, Account: account, Cost: cost, Promise: contract.Duration(30 * time.Second),
		Work: contract.Work{Activity: "Render", TaskQueue: "gpu", Timeout: contract.Duration(time.Minute)},
	}
}

// applies makes a money statement, which must be applied. One that reached Postgres after its instant did nothing, and is
// made again, as every caller of the store does.
func (l *ledger) applies(call func() (answer string, err error)) {
	l.t.Helper()
	answer, err := call()
	for err == nil && answer == "too_late" && l.ctx.Err() == nil {
		answer, err = call()
	}
	assert.NoError(l.t, err)
	assert.Equal(l.t, "applied", answer)
}

func (l *ledger) charge(account, id string, cost int64) {
	l.t.Helper()
	raw, job, err := l.job(account, id, cost).Encode()
	assert.NoError(l.t, err)
	fingerprint, err := job.Fingerprint()
	assert.NoError(l.t, err)
	l.applies(func() (string, error) {
		row, err := l.store.ChargeJob(l.ctx, db.ChargeJobParams{
			TenantID: "acme", JobID: id, AccountID: account, Cost: cost, Fingerprint: fingerprint, Spec: string(raw),
			Reason: "job " + id + " started", NotAfter: l.store.NotAfter(),
		})
		return row.Answer, err
	})
}

func (l *ledger) refund(id string, attempt int32, attemptError string) {
	l.t.Helper()
	l.applies(func() (string, error) {
		row, err := l.store.RefundJob(l.ctx, db.RefundJobParams{
			TenantID: "acme", JobID: id, Reason: "the promise passed", Attempt: attempt, AttemptFailed: attempt > 0,
			AttemptError: attemptError, NotAfter: l.store.NotAfter(),
		})
		return row.Answer, err
	})
}

func (l *ledger) settle(id string) {
	l.t.Helper()
	output := `{"frames":3}`
	l.applies(func() (string, error) {
		row, err := l.store.SettleJob(l.ctx, db.SettleJobParams{
			TenantID: "acme", JobID: id, Reason: "attempt 1 succeeded", Attempt: 1, Output: &output, NotAfter: l.store.NotAfter(),
		})
		return row.Answer, err
	})
}

func (l *ledger) park(id string) {
	l.t.Helper()
	row, err := l.store.ParkJob(l.ctx, db.ParkJobParams{TenantID: "acme", JobID: id, Reason: "1 of 1 attempts failed", MaxAttempts: 1})
	assert.NoError(l.t, err)
	assert.Equal(l.t, "applied", row.Answer)
}

func (l *ledger) cancel(id string) {
	l.t.Helper()
	l.applies(func() (string, error) {
		row, err := l.store.CloseJob(l.ctx, db.CloseJobParams{
			TenantID: "acme", JobID: id, State: "canceled", Reason: "canceled", NotAfter: l.store.NotAfter(),
		})
		return row.Answer, err
	})
}

// refusal asserts that err is the contract's refusal with the code.
func refusal(t *testing.T, code contract.Code, err error) contract.Error {
	t.Helper()
	var refused *contract.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, code, refused.Code, refused.Message)
	require.NotEmpty(t, refused.Retry)
	return *refused
}
