package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// product is a program that starts jobs inside its own transactions, on the table sales, by a login that has the role
// reclaim_enqueue and no other.
type product struct {
	*client.Client
	t    *testing.T
	ctx  context.Context
	base *schematest.Database
	// admin reads past every right; conn is the product's own connection.
	admin, conn *pgx.Conn
	login       string
}

func newProduct(t *testing.T) *product {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	p := &product{Client: client.New(nil, nil, ""), t: t, ctx: ctx, base: schematest.New(t)}
	p.admin = p.connect(p.base.SuperuserURL)
	p.login = strings.ToLower(p.base.Name) + "_product"
	p.must("CREATE ROLE " + p.login + " LOGIN PASSWORD 'secret' IN ROLE reclaim_enqueue")
	t.Cleanup(func() {
		p.must("DROP OWNED BY " + p.login)
		p.must("DROP ROLE " + p.login)
	})
	p.must("CREATE TABLE public.sales (id text PRIMARY KEY); GRANT ALL ON public.sales TO " + p.login)
	p.conn = p.connect(p.productURL())
	return p
}

func (p *product) productURL() string {
	login, err := url.Parse(p.base.AppURL)
	require.NoError(p.t, err)
	login.User = url.UserPassword(p.login, "secret")
	return login.String()
}

func (p *product) connect(databaseURL string) *pgx.Conn {
	p.t.Helper()
	conn, err := pgx.Connect(p.ctx, databaseURL)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { assert.NoError(p.t, conn.Close(context.Background())) })
	return conn
}

func (p *product) must(sql string) {
	p.t.Helper()
	_, err := p.admin.Exec(p.ctx, sql)
	require.NoError(p.t, err)
}

func (p *product) begin(options pgx.TxOptions) pgx.Tx {
	p.t.Helper()
	tx, err := p.conn.BeginTx(p.ctx, options)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (p *product) sells(tx pgx.Tx, id string) {
	p.t.Helper()
	_, err := tx.Exec(p.ctx, "INSERT INTO public.sales (id) VALUES ($1)", id)
	require.NoError(p.t, err)
}

// job is a job with every optional field left out.
func (p *product) job(id string) contract.Job {
	return contract.Job{
		Tenant: "acme", JobID: id, Account: "team-7", Cost: 40, Promise: contract.Duration(30 * time.Second),
		Work: contract.Work{Activity: "Render", TaskQueue: "gpu", Timeout: contract.Duration(time.Minute)},
	}
}

// rows lists what a committed transaction has left, as "product's row" or "outbox row" lines.
func (p *product) rows() []string {
	p.t.Helper()
	rows, err := p.admin.Query(p.ctx, `SELECT 'sale ' || id FROM public.sales
		UNION ALL SELECT format('%s %s/%s', kind, tenant_id, subject_id) FROM reclaim.outbox ORDER BY 1`)
	require.NoError(p.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(p.t, err)
	return all
}

func codeOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

func TestAnEnqueuedJobIsARowOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	job := p.job("j-1")
	job.Work.Input = json.RawMessage(`{"b": 1.50, "a": "ä <&> \u0000"}`)
	job.Actor, job.Summary = "api:shop", "one clip"
	tx := p.begin(pgx.TxOptions{})
	p.sells(tx, "s-1")
	require.NoError(t, p.EnqueueJob(p.ctx, tx, job))
	assert.Empty(t, p.rows(), "nothing is seen before the commit")
	require.NoError(t, tx.Commit(p.ctx))
	assert.Equal(t, []string{"sale s-1", "start_job acme/j-1"}, p.rows())

	var payload, lastError string
	var attempts int
	var pending, due bool
	require.NoError(t, p.admin.QueryRow(p.ctx, `SELECT payload, attempts, last_error, delivered_at IS NULL, next_attempt_at <= now()
		FROM reclaim.outbox`).Scan(&payload, &attempts, &lastError, &pending, &due))
	// The same text as StartJob submits: it becomes the job's spec, and its fingerprint is that of any other submission.
	raw, want, err := job.Encode()
	require.NoError(t, err)
	assert.Equal(t, string(raw), payload)
	parsed, err := contract.ParseJob([]byte(payload))
	require.NoError(t, err)
	assert.Equal(t, want, parsed)
	assert.Zero(t, attempts)
	assert.Empty(t, lastError)
	assert.True(t, pending)
	assert.True(t, due)
}

func TestARolledBackTransactionEnqueuesNothing(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	tx := p.begin(pgx.TxOptions{})
	p.sells(tx, "s-1")
	require.NoError(t, p.EnqueueJob(p.ctx, tx, p.job("j-1")))
	require.NoError(t, tx.Rollback(p.ctx))
	assert.Empty(t, p.rows())

	// A connection that is lost before its commit, and a commit that a deferred constraint refuses.
	other := p.connect(p.productURL())
	tx, err := other.Begin(p.ctx)
	require.NoError(t, err)
	require.NoError(t, p.EnqueueJob(p.ctx, tx, p.job("j-2")))
	var ended bool
	require.NoError(t, p.admin.QueryRow(p.ctx, "SELECT pg_terminate_backend($1, 60000)", other.PgConn().PID()).Scan(&ended))
	require.True(t, ended)
	p.must(`ALTER TABLE public.sales ADD COLUMN parent text REFERENCES public.sales DEFERRABLE INITIALLY DEFERRED`)
	tx = p.begin(pgx.TxOptions{})
	require.NoError(t, p.EnqueueJob(p.ctx, tx, p.job("j-3")))
	_, err = tx.Exec(p.ctx, "INSERT INTO public.sales (id, parent) VALUES ('s-3', 'none')")
	require.NoError(t, err)
	require.Error(t, tx.Commit(p.ctx))
	assert.Empty(t, p.rows())
}

func TestSavepointsDecideAboutAnEnqueuedJob(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	tx := p.begin(pgx.TxOptions{})
	require.NoError(t, p.EnqueueJob(p.ctx, tx, p.job("outer")))
	for _, id := range []string{"kept", "undone"} {
		inner, err := tx.Begin(p.ctx)
		require.NoError(t, err)
		p.sells(inner, id)
		require.NoError(t, p.EnqueueJob(p.ctx, inner, p.job(id)))
		if id == "kept" {
			require.NoError(t, inner.Commit(p.ctx))
		} else {
			require.NoError(t, inner.Rollback(p.ctx))
		}
	}
	require.NoError(t, tx.Commit(p.ctx))
	assert.Equal(t, []string{"sale kept", "start_job acme/kept", "start_job acme/outer"}, p.rows())
}

func TestABadJobIsRefusedAndItsTransactionGoesOn(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	tx := p.begin(pgx.TxOptions{})
	for what, spoil := range map[string]func(*contract.Job){
		"tenant":        func(j *contract.Job) { j.Tenant = "a/b" },
		"jobId":         func(j *contract.Job) { j.JobID = "" },
		"account":       func(j *contract.Job) { j.Account = strings.Repeat("a", 101) },
		"cost":          func(j *contract.Job) { j.Cost = -1 },
		"promise":       func(j *contract.Job) { j.Promise = 0 },
		"work.activity": func(j *contract.Job) { j.Work.Activity = "/_sys/x" },
		"work.timeout":  func(j *contract.Job) { j.Work.Timeout = contract.Duration(time.Hour * 24 * 3653) },
		"orderId":       func(j *contract.Job) { j.RefundTo = contract.RefundToSource },
	} {
		job := p.job("bad")
		spoil(&job)
		err := refusal(t, contract.CodeBadInput, p.EnqueueJob(p.ctx, tx, job))
		assert.Equal(t, contract.RetryNewKey, err.Retry, what)
		require.Len(t, err.Fields, 1, what)
		assert.Equal(t, what, err.Fields[0].Field)
	}
	nobodys := p.job("bad")
	nobodys.Tenant = contract.UnassignedTenant
	assert.Contains(t, refusal(t, contract.CodeBadInput, p.EnqueueJob(p.ctx, tx, nobodys)).Message, "belong to no tenant")
	for _, input := range []string{"{", "{} {}", "{\"a\":\"\xff\"}", `{"a":1,"a":2}`} {
		job := p.job("bad")
		job.Work.Input = json.RawMessage(input)
		refusal(t, contract.CodeBadInput, p.EnqueueJob(p.ctx, tx, job))
	}
	p.sells(tx, "s-1")
	require.NoError(t, p.EnqueueJob(p.ctx, tx, p.job("good")))
	require.NoError(t, tx.Commit(p.ctx))
	assert.Equal(t, []string{"sale s-1", "start_job acme/good"}, p.rows())
}

// What may be enqueued, the outbox takes: its own limit is that of a job's whole input.
func TestTheLargestJobIsEnqueuedAndALargerOneRefused(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	job := p.job("large")
	job.Work.Input = json.RawMessage(`""`)
	raw, _, err := job.Encode()
	require.NoError(t, err)
	room := contract.MaxInputBytes - len(raw)
	tx := p.begin(pgx.TxOptions{})
	// Characters of two bytes each, after as many of one byte as make it even.
	text := strings.Repeat("x", room%2) + strings.Repeat("é", room/2)
	job.Work.Input = json.RawMessage(`"` + text + `"`)
	require.NoError(t, p.EnqueueJob(p.ctx, tx, job))
	job.JobID, job.Work.Input = "larger", json.RawMessage(`"`+text+`x"`)
	assert.Contains(t, refusal(t, contract.CodeBadInput, p.EnqueueJob(p.ctx, tx, job)).Message, "more than the 65536 allowed")
	require.NoError(t, tx.Commit(p.ctx))
	assert.Equal(t, []string{"start_job acme/large"}, p.rows())
	var size int
	require.NoError(t, p.admin.QueryRow(p.ctx, "SELECT octet_length(payload) FROM reclaim.outbox").Scan(&size))
	assert.Equal(t, contract.MaxInputBytes, size)
}

func TestALoginThatEnqueuesCanDoNothingElse(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	p.must(`INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload) VALUES ('start_refund', 'acme', 'rf', '{}')`)
	tables, err := p.admin.Query(p.ctx, "SELECT tablename::text FROM pg_tables WHERE schemaname = 'reclaim'")
	require.NoError(t, err)
	names, err := pgx.CollectRows(tables, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, names, "ledger_entries")
	attempts := []string{
		"SET ROLE reclaim_app", "SET ROLE reclaim_support", "SET session_replication_role = replica",
		"INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload) VALUES ('start_job', 'a', 'b', '{}') RETURNING id",
		// The starts of refunds are not a product's to ask for.
		"INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload) VALUES ('start_refund', 'a', 'b', '{}')",
		"UPDATE reclaim.outbox SET kind = 'start_job'", "COPY reclaim.outbox TO STDOUT",
		"SELECT nextval('reclaim.outbox_id_seq')", "SELECT last_value FROM reclaim.outbox_id_seq",
		"ALTER TABLE reclaim.outbox DISABLE TRIGGER ALL", "ALTER TABLE reclaim.outbox DISABLE ROW LEVEL SECURITY",
		"DROP POLICY jobs_only ON reclaim.outbox", "CREATE TABLE reclaim.mine (n int)",
		`CREATE OR REPLACE FUNCTION reclaim.announce_outbox() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
	}
	for _, column := range []string{
		"id", "attempts", "last_error", "next_attempt_at", "created_at", "delivered_at",
	} {
		value := map[string]string{"id": "1", "attempts": "1", "last_error": "'x'"}[column]
		if value == "" {
			value = "now()"
		}
		attempts = append(attempts, fmt.Sprintf(`INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload, %s)
			OVERRIDING SYSTEM VALUE VALUES ('start_job', 'a', 'b', '{}', %s)`, column, value))
	}
	for _, table := range names {
		for _, sql := range []string{
			"SELECT count(*) FROM reclaim.%s", "SELECT FROM reclaim.%s FOR UPDATE", "DELETE FROM reclaim.%s", "TRUNCATE reclaim.%s",
			"INSERT INTO reclaim.%s DEFAULT VALUES", "DROP TABLE reclaim.%s CASCADE", "BEGIN; LOCK TABLE reclaim.%s IN SHARE MODE",
			"CREATE TEMP TABLE copied AS TABLE reclaim.%s",
		} {
			attempts = append(attempts, fmt.Sprintf(sql, table))
		}
	}
	before := p.rows()
	for _, sql := range attempts {
		_, err := p.conn.Exec(p.ctx, sql)
		assert.Equal(t, "42501", codeOf(err), "%s: %v", sql, err)
		if p.conn.PgConn().TxStatus() != 'I' {
			_, err = p.conn.Exec(p.ctx, "ROLLBACK")
			require.NoError(t, err)
		}
	}
	assert.Equal(t, before, p.rows())
}

// A login without the role is told so, and that repeating does not mend it.
func TestALoginWithoutTheRoleIsForbiddenToEnqueue(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	p.must("REVOKE reclaim_enqueue FROM " + p.login)
	tx := p.begin(pgx.TxOptions{})
	refused := refusal(t, contract.CodeForbidden, p.EnqueueJob(p.ctx, tx, p.job("j-1")))
	assert.Equal(t, contract.RetryNever, refused.Retry)
	assert.Equal(t, contract.CodeUnavailable, contract.CodeOf(p.EnqueueJob(p.ctx, tx, p.job("j-1"))), "the transaction is broken")
	require.Error(t, tx.Commit(p.ctx))
	assert.Empty(t, p.rows())
}

// The application's own login may enqueue too: a product that is given no login of its own is not kept from it.
func TestTheApplicationMayEnqueue(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	tx, err := l.store.Pool.Begin(l.ctx)
	require.NoError(t, err)
	require.NoError(t, l.EnqueueJob(l.ctx, tx, l.job("team-7", "j-1", 40)))
	require.NoError(t, tx.Commit(l.ctx))
	waiting, err := l.store.OutboxBacklog(l.ctx)
	require.NoError(t, err)
	assert.EqualValues(t, 1, waiting.Waiting)
}

func TestASerializableTransactionEnqueuesOnceHoweverOftenItIsRepeated(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	serializable := pgx.TxOptions{IsoLevel: pgx.Serializable}
	other := p.connect(p.productURL())
	count := func(tx pgx.Tx) (n int) {
		require.NoError(t, tx.QueryRow(p.ctx, "SELECT count(*) FROM public.sales").Scan(&n))
		return n
	}
	// Both count the sales and then sell: only one of them can have been first.
	mine, err := p.conn.BeginTx(p.ctx, serializable)
	require.NoError(t, err)
	theirs, err := other.BeginTx(p.ctx, serializable)
	require.NoError(t, err)
	count(mine)
	count(theirs)
	p.sells(theirs, "theirs")
	require.NoError(t, p.EnqueueJob(p.ctx, theirs, p.job("theirs")))
	p.sells(mine, "mine")
	require.NoError(t, theirs.Commit(p.ctx))
	// The failure comes with the next statement or with the commit; the caller sees Postgres' code in either.
	err = p.EnqueueJob(p.ctx, mine, p.job("mine"))
	if err == nil {
		err = mine.Commit(p.ctx)
	} else {
		assert.Equal(t, contract.CodeUnavailable, contract.CodeOf(err))
		require.NoError(t, mine.Rollback(p.ctx))
	}
	require.Equal(t, pgSerialization, codeOf(err), "%v", err)
	assert.Equal(t, []string{"sale theirs", "start_job acme/theirs"}, p.rows())

	again := p.begin(serializable)
	assert.Equal(t, 1, count(again))
	p.sells(again, "mine")
	require.NoError(t, p.EnqueueJob(p.ctx, again, p.job("mine")))
	require.NoError(t, again.Commit(p.ctx))
	assert.Equal(t, []string{"sale mine", "sale theirs", "start_job acme/mine", "start_job acme/theirs"}, p.rows())
}

const pgSerialization = "40001"

func TestTheRelayHearsOfAnEnqueuedJobAtItsCommitOnly(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	ear := p.connect(p.base.AppURL)
	_, err := ear.Exec(p.ctx, "SET ROLE reclaim_app; LISTEN reclaim_outbox")
	require.NoError(t, err)
	// hears says what had been announced when this was asked: a notification of the test's own comes after all that was.
	hears := func() (heard []string) {
		p.must("SELECT pg_notify('reclaim_outbox', 'asked')")
		for {
			ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
			notification, err := ear.WaitForNotification(ctx)
			cancel()
			require.NoError(t, err)
			if notification.Payload == "asked" {
				return heard
			}
			heard = append(heard, notification.Channel)
		}
	}
	tx := p.begin(pgx.TxOptions{})
	require.NoError(t, p.EnqueueJob(p.ctx, tx, p.job("j-1")))
	assert.Empty(t, hears(), "before the commit")
	require.NoError(t, tx.Rollback(p.ctx))
	assert.Empty(t, hears(), "after a rollback")
	tx = p.begin(pgx.TxOptions{})
	require.NoError(t, p.EnqueueJob(p.ctx, tx, p.job("j-2")))
	require.NoError(t, p.EnqueueJob(p.ctx, tx, p.job("j-3")))
	require.NoError(t, tx.Commit(p.ctx))
	assert.Equal(t, []string{"reclaim_outbox"}, hears(), "one for the whole transaction")
}
