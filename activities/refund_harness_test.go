package activities_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// bankName is the channel of the tests' orders.
const bankName = "bank"

// bank is a channel of the tests' own. By itself it keeps a book of what it sent back, moves money once for each number
// that it honours, acknowledges, and finds what is in its book; a test scripts other answers, or looks around in a call.
type bank struct {
	channel.Channel
	caps channel.Capabilities
	// submit and query answer instead of the bank, where they are set; they may call its own answers.
	submit, query func(ctx context.Context, refund channel.Refund) (channel.Evidence, error)
	// parse reads webhooks.
	parse func(header http.Header, body []byte, now time.Time) (channel.Notice, error)

	mu sync.Mutex
	// book is what Query finds, moved how often money moved, by number.
	book  map[string]channel.Evidence
	moved map[string]int
	// submitted and queried are the calls.
	submitted, queried []channel.Refund
}

func newBank() *bank {
	return &bank{
		book: map[string]channel.Evidence{}, moved: map[string]int{},
		caps: channel.Capabilities{
			Kind: "bank", NumberLength: 64, IdempotencyLife: 24 * time.Hour, QueryByNumber: true, SearchLag: 30 * time.Second,
			FirstQuery: time.Minute, Poll: []time.Duration{2 * time.Minute, 5 * time.Minute, 30 * time.Minute},
			GiveUp: 72 * time.Hour, MinSpacing: 10 * time.Second, Reversible: true, Currencies: map[string]int{"eur": 2},
			MaxNotice: 64 << 10, NoticeTolerance: 5 * time.Minute,
		},
	}
}

func (b *bank) Capabilities() channel.Capabilities { return b.caps }

func (b *bank) Submit(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
	b.mu.Lock()
	b.submitted = append(b.submitted, refund)
	b.mu.Unlock()
	if b.submit != nil {
		return b.submit(ctx, refund)
	}
	return b.send(refund), nil
}

// send sends money back and acknowledges, as the bank itself does.
func (b *bank) send(refund channel.Refund) channel.Evidence {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.book[refund.Number]
	if !known || b.caps.IdempotencyLife == 0 {
		b.moved[refund.Number]++
	}
	if !known {
		b.book[refund.Number] = channel.Evidence{
			Outcome: channel.OutcomePending, Number: refund.Number, Reference: reference(refund.Number), Payment: refund.Payment,
			Amount: refund.Amount, Currency: refund.Currency, Code: "pending",
		}
	}
	evidence := b.book[refund.Number]
	evidence.Sends = 1
	return evidence
}

func (b *bank) Query(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
	b.mu.Lock()
	b.queried = append(b.queried, refund)
	b.mu.Unlock()
	if b.query != nil {
		return b.query(ctx, refund)
	}
	return b.find(refund), nil
}

func (b *bank) find(refund channel.Refund) channel.Evidence {
	b.mu.Lock()
	defer b.mu.Unlock()
	if evidence, ok := b.book[refund.Number]; ok {
		return evidence
	}
	return channel.Evidence{Outcome: channel.OutcomeNotFound, Code: "no_such_refund"}
}

// becomes changes what the bank knows of a refund.
func (b *bank) becomes(number string, outcome channel.Outcome, code string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	evidence := b.book[number]
	evidence.Outcome, evidence.Code = outcome, code
	b.book[number] = evidence
}

func (b *bank) ParseNotice(header http.Header, body []byte, now time.Time) (channel.Notice, error) {
	return b.parse(header, body, now)
}

// calls counts submissions and look-ups so far.
func (b *bank) calls() [2]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return [2]int{len(b.submitted), len(b.queried)}
}

// reference is the channel's own id of a refund.
func reference(number string) string { return "re-" + number }

// through gives the activities of refunds with these channels behind them.
func (w *world) through(far channel.Channel) *activities.Refunds {
	return activities.NewRefunds(w.store, channels(far))
}

func channels(far channel.Channel) channel.Set {
	return channel.NewSet(map[string]channel.Member{bankName: {Channel: far, Tenants: []string{tenant}}})
}

// order registers a payment through the bank, which tops the account up with its credits.
func (w *world) order(account string, paid, credits int64) (orderID string) {
	w.t.Helper()
	return w.orderOf(tenant, account, paid, credits)
}

func (w *world) orderOf(tenant, account string, paid, credits int64) (orderID string) {
	w.t.Helper()
	orderID = fmt.Sprint("order-", w.keys.Add(1))
	w.inTime(func() (string, error) {
		row, err := w.store.AddOrder(w.t.Context(), db.AddOrderParams{
			TenantID: tenant, OrderID: orderID, AccountID: account, Channel: bankName, Payment: payment(orderID), Currency: "eur",
			Paid: paid, Credits: credits, Asset: "CREDIT", Actor: "test", Key: orderID, Fingerprint: "f", Reason: "bought",
			NotAfter: w.store.NotAfter(),
		})
		return row.Answer, err
	})
	return orderID
}

// payment is the channel's id of an order's payment.
func payment(orderID string) string { return "pay-" + orderID }

// ask is a request for a refund, under a key of its own, of as many credits as money.
func (w *world) ask(orderID string, amount, credits int64) contract.RefundRequest {
	return contract.RefundRequest{
		Tenant: tenant, Actor: "ann", Key: fmt.Sprint("refund-", w.keys.Add(1)), OrderID: orderID, Amount: amount,
		Credits: &credits, Reason: "customer asked",
	}
}

// accept accepts a refund as the client does: under the order's lock.
func (w *world) accept(r contract.RefundRequest) (row db.AcceptRefundRow, err error) {
	err = pgx.BeginFunc(w.t.Context(), w.store.Pool, func(tx pgx.Tx) error {
		queries := w.store.WithTx(tx)
		if _, err := queries.LockOrder(w.t.Context(), db.LockOrderParams{TenantID: r.Tenant, OrderID: r.OrderID}); err != nil {
			return err
		}
		row, err = queries.AcceptRefund(w.t.Context(), w.acceptParams(r))
		return err
	})
	return row, err
}

func (w *world) acceptParams(r contract.RefundRequest) db.AcceptRefundParams {
	return db.AcceptRefundParams{
		TenantID: r.Tenant, RefundID: contract.RefundNumber(r.Tenant, r.Actor, r.Key), OrderID: r.OrderID, Actor: r.Actor,
		Key: r.Key, Fingerprint: r.Fingerprint(), Amount: &r.Amount, Credits: r.Credits, Currency: r.Currency,
		Reason: r.Reason, RetentionUs: contract.RefundKeyRetention.Microseconds(), NotAfter: w.store.NotAfter(),
	}
}

// accepted makes a refund that is accepted.
func (w *world) accepted(orderID string, amount, credits int64) contract.RefundKey {
	w.t.Helper()
	request, refundID := w.ask(orderID, amount, credits), ""
	w.inTime(func() (string, error) {
		row, err := w.accept(request)
		refundID = row.RefundID
		return row.Answer, err
	})
	return contract.RefundKey{Tenant: tenant, RefundID: refundID}
}

// written are refunds of 10 eur that were written past acceptance, many at once, as acceptance and sending leave them.
type written struct {
	tenant string
	orders []string
	many   int
	// Every goodwill-th refund takes no credits, the others 4; every accepted-th is not sent. 0: none.
	goodwill, accepted int
}

// write writes the refunds, which go round the orders in turn.
func (w *world) write(as written) (keys []contract.RefundKey) {
	w.t.Helper()
	var numbers []string
	for range as.many {
		numbers = append(numbers, fmt.Sprint("rf_", w.keys.Add(1)))
		keys = append(keys, contract.RefundKey{Tenant: as.tenant, RefundID: numbers[len(numbers)-1]})
	}
	_, err := w.admin.Exec(w.t.Context(), `
		WITH asked AS MATERIALIZED (
			SELECT $1::text AS tenant_id, number AS refund_id, place, ($3::text[])[1 + place % cardinality($3::text[])] AS order_id,
				CASE WHEN $4::int > 0 AND place % $4::int = 0 THEN 0 ELSE 4 END AS credits,
				$5::int = 0 OR place % $5::int > 0 AS sent, clock_timestamp() AS at
			FROM unnest($2::text[]) WITH ORDINALITY AS given (number, place)
		), refund AS (
			INSERT INTO reclaim.refunds (tenant_id, refund_id, order_id, amount, currency, credits, state, requested_by, reason,
				send_count, first_sent_at, next_look_at, look_until, event_seq, last_outcome)
			SELECT tenant_id, refund_id, order_id, 10, 'eur', credits, CASE WHEN sent THEN 'unknown' ELSE 'accepted' END, 'ann',
				'customer asked', sent::int, CASE WHEN sent THEN at END, CASE WHEN sent THEN at + interval '1 minute' END,
				CASE WHEN sent THEN at + interval '3 days' END, 1 + sent::int, CASE WHEN sent THEN 'sending' ELSE 'accepted' END
			FROM asked
		), told AS (
			INSERT INTO reclaim.refund_events (tenant_id, refund_id, seq, source, from_state, to_state, outcome, observed_at)
			SELECT tenant_id, refund_id, 1, 'accept', '', 'accepted', 'accepted', at FROM asked
			UNION ALL
			SELECT tenant_id, refund_id, 2, 'send', 'accepted', 'unknown', 'sending', at FROM asked WHERE sent
		), reserved AS (
			UPDATE reclaim.orders SET reserved = reserved + sum, reserved_credits = reserved_credits + sum_credits
			FROM (SELECT order_id, 10 * count(*) AS sum, sum(credits) AS sum_credits FROM asked GROUP BY order_id) AS held
			WHERE orders.tenant_id = $1 AND orders.order_id = held.order_id
		), paid AS (
			SELECT asked.*, row_number() OVER (ORDER BY place) AS entry, sum(credits) OVER (ORDER BY place) AS so_far
			FROM asked WHERE credits > 0
		), payer AS (
			SELECT tenant_id, account_id, balance, seq FROM reclaim.accounts WHERE tenant_id = $1
		), entry AS (
			INSERT INTO reclaim.ledger_entries (tenant_id, account_id, seq, type, amount, balance_after, order_id, refund_id, reason)
			SELECT paid.tenant_id, account_id, seq + entry, 'payout', -credits, balance - so_far, order_id, refund_id, 'customer asked'
			FROM paid, payer
		), moved AS (
			UPDATE reclaim.accounts SET balance = accounts.balance - sum, seq = accounts.seq + entries
			FROM (SELECT coalesce(sum(credits), 0) AS sum, count(*) AS entries FROM paid) AS all_paid WHERE accounts.tenant_id = $1
		), claimed AS (
			INSERT INTO reclaim.operations (tenant_id, actor, kind, key, fingerprint, subject_id)
			SELECT tenant_id, 'ann', 'refund', refund_id, 'f', refund_id FROM asked
		)
		INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload)
		SELECT 'start_refund', tenant_id, refund_id, '{}' FROM asked`,
		as.tenant, numbers, as.orders, as.goodwill, as.accepted)
	require.NoError(w.t, err)
	return keys
}

// sentMany makes many refunds of an order whose sending has begun, all with 4 credits or with none.
func (w *world) sentMany(orderID string, many int, credits int64) []contract.RefundKey {
	w.t.Helper()
	as := written{tenant: tenant, orders: []string{orderID}, many: many}
	if credits == 0 {
		as.goodwill = 1
	}
	return w.write(as)
}

func sendParams(key contract.RefundKey) db.BeginSendParams {
	return db.BeginSendParams{
		TenantID: key.Tenant, RefundID: key.RefundID, ResendWithinUs: time.Hour.Microseconds(),
		FirstLookUs: time.Minute.Microseconds(), GiveUpUs: (72 * time.Hour).Microseconds(),
	}
}

// acceptAndSend makes a refund of 10 eur whose sending has begun, in a goroutine, which may not stop the test.
func (w *world) acceptAndSend(orderID string, credits int64) (key contract.RefundKey, err error) {
	row, err := w.accept(w.ask(orderID, 10, credits))
	if err != nil || row.Answer != "applied" {
		return key, fmt.Errorf("accept: %s: %w", row.Answer, err)
	}
	key = contract.RefundKey{Tenant: tenant, RefundID: row.RefundID}
	_, err = w.store.BeginSend(w.t.Context(), sendParams(key))
	return key, err
}

// beginSend commits that sending begins, as an attempt does that then dies.
func (w *world) beginSend(key contract.RefundKey) {
	w.t.Helper()
	answer, err := w.store.BeginSend(w.t.Context(), sendParams(key))
	require.NoError(w.t, err)
	require.Equal(w.t, "applied", answer)
}

// says is complete evidence about a refund.
func (w *world) says(key contract.RefundKey, outcome channel.Outcome) channel.Evidence {
	w.t.Helper()
	refund := w.refund(key)
	return channel.Evidence{
		Outcome: outcome, Number: key.RefundID, Reference: reference(key.RefundID), Payment: payment(refund.OrderID),
		Amount: refund.Amount, Currency: refund.Currency, Code: string(outcome),
	}
}

// apply applies what a source says of a refund of a channel that takes refunds back.
func (w *world) apply(
	r *activities.Refunds, key contract.RefundKey, source activities.Source, e channel.Evidence,
) activities.AppliedEvidence {
	w.t.Helper()
	applied, err := r.ApplyEvidence(w.t.Context(), key, activities.Observation{Source: source, Evidence: e, Reversible: true})
	require.NoError(w.t, err)
	return applied
}

// refundStates are all states, in the order of their making.
var refundStates = []contract.RefundState{
	contract.RefundAccepted, contract.RefundUnknown, contract.RefundPending, contract.RefundSucceeded, contract.RefundFailed,
	contract.RefundCanceled, contract.RefundReversed,
}

// inState makes a refund of 10 eur and 4 credits that stands in the state.
func (w *world) inState(r *activities.Refunds, orderID string, state contract.RefundState) (key contract.RefundKey) {
	w.t.Helper()
	key = w.accepted(orderID, 10, 4)
	w.bring(r, key, state)
	return key
}

// bring takes an accepted refund to the state.
func (w *world) bring(r *activities.Refunds, key contract.RefundKey, state contract.RefundState) {
	w.t.Helper()
	if state == contract.RefundCanceled {
		row, err := w.store.CancelRefund(w.t.Context(), db.CancelRefundParams{
			TenantID: key.Tenant, RefundID: key.RefundID, Actor: "ann", Reason: "withdrawn",
		})
		require.NoError(w.t, err)
		require.Equal(w.t, "applied", row.Answer)
	} else if state != contract.RefundAccepted {
		w.beginSend(key)
	}
	for _, outcome := range map[contract.RefundState][]channel.Outcome{
		contract.RefundPending:   {channel.OutcomePending},
		contract.RefundSucceeded: {channel.OutcomePending, channel.OutcomeSucceeded},
		contract.RefundFailed:    {channel.OutcomeFailed},
		contract.RefundReversed:  {channel.OutcomePending, channel.OutcomeSucceeded, channel.OutcomeFailed},
	}[state] {
		require.Equal(w.t, activities.Applied, w.apply(r, key, activities.SourceNotice, w.says(key, outcome)).Verdict)
	}
	require.Equal(w.t, string(state), w.refund(key).State)
}

// refund reads a refund's row.
func (w *world) refund(key contract.RefundKey) db.ReclaimRefund {
	w.t.Helper()
	return w.refundRead(key).ReclaimRefund
}

func (w *world) refundRead(key contract.RefundKey) db.GetRefundRow {
	w.t.Helper()
	row, err := w.store.GetRefund(w.t.Context(), db.GetRefundParams{TenantID: key.Tenant, RefundID: key.RefundID})
	require.NoError(w.t, err)
	return row
}

// age lets a refund's time pass: everything that happened to it happened so much earlier.
func (w *world) age(key contract.RefundKey, by time.Duration) {
	w.t.Helper()
	tag, err := w.admin.Exec(w.t.Context(), `UPDATE reclaim.refunds SET first_sent_at = first_sent_at - past,
			next_look_at = next_look_at - past, look_until = look_until - past, last_checked_at = last_checked_at - past
		FROM (SELECT $3::bigint * interval '1 microsecond' AS past) AS so
		WHERE tenant_id = $1 AND refund_id = $2`, key.Tenant, key.RefundID, by.Microseconds())
	require.NoError(w.t, err)
	require.EqualValues(w.t, 1, tag.RowsAffected())
}

// payouts lists what a refund moved on the account, such as "payout -4".
func (w *world) payouts(key contract.RefundKey) []string {
	w.t.Helper()
	return w.lines(`SELECT type || ' ' || amount FROM reclaim.ledger_entries
		WHERE tenant_id = $1 AND refund_id = $2 ORDER BY seq`, key.Tenant, key.RefundID)
}

// events lists a refund's events, such as "notice unknown>pending pending".
func (w *world) events(key contract.RefundKey) []string {
	w.t.Helper()
	return w.lines(`SELECT source || ' ' || from_state || '>' || to_state || ' ' || outcome FROM reclaim.refund_events
		WHERE tenant_id = $1 AND refund_id = $2 ORDER BY seq`, key.Tenant, key.RefundID)
}

// issues lists the kinds of the open issues about a subject.
func (w *world) issues(tenant, subject string) []string {
	w.t.Helper()
	return w.lines(`SELECT kind FROM reclaim.issues
		WHERE tenant_id = $1 AND subject_id = $2 AND state = 'open' ORDER BY kind`, tenant, subject)
}

// reserves gives what an order has reserved and refunded, of money and of credits.
func (w *world) reserves(orderID string) [4]int64 {
	w.t.Helper()
	row, err := w.store.GetOrder(w.t.Context(), db.GetOrderParams{TenantID: tenant, OrderID: orderID})
	require.NoError(w.t, err)
	return [4]int64{row.Reserved, row.Refunded, row.ReservedCredits, row.RefundedCredits}
}

// auditRefunds lists every broken invariant of a tenant's orders and refunds, independently of the queries that the audit
// runs. No tenant: of all.
func (w *world) auditRefunds(tenant string) []string {
	w.t.Helper()
	return w.lines(`
		WITH refund AS MATERIALIZED (
			SELECT *, state IN ('accepted', 'unknown', 'pending') AS open, state IN ('failed', 'canceled', 'reversed') AS returned
			FROM reclaim.refunds WHERE $1 = '' OR tenant_id = $1
		), held AS MATERIALIZED (
			SELECT tenant_id, order_id, format('%s %s %s %s',
				coalesce(sum(amount) FILTER (WHERE open), 0), coalesce(sum(amount) FILTER (WHERE state = 'succeeded'), 0),
				coalesce(sum(credits) FILTER (WHERE open), 0), coalesce(sum(credits) FILTER (WHERE state = 'succeeded'), 0)) AS sums
			FROM refund GROUP BY tenant_id, order_id
		), ledger AS MATERIALIZED (
			SELECT tenant_id, refund_id, string_agg(type || ' ' || amount, ', ' ORDER BY seq) AS moved
			FROM reclaim.ledger_entries WHERE type IN ('payout', 'payout_return') AND ($1 = '' OR tenant_id = $1)
			GROUP BY tenant_id, refund_id
		), story AS MATERIALIZED (
			SELECT tenant_id, refund_id, string_agg(seq || ' ' || from_state || '>' || to_state, ', ' ORDER BY seq) AS told,
				count(*) AS events, min(seq) AS oldest, max(seq) AS newest,
				(array_agg(to_state ORDER BY seq DESC))[1] AS last_state, bool_and(from_state = state_before) AS chained
			FROM (SELECT *, coalesce(lag(to_state) OVER (PARTITION BY tenant_id, refund_id ORDER BY seq), '') AS state_before
				FROM reclaim.refund_events WHERE $1 = '' OR tenant_id = $1) AS event
			GROUP BY tenant_id, refund_id
		)
		SELECT format('order %s: holds %s %s %s %s, its refunds sum to %s', order_id, reserved, refunded, reserved_credits,
			refunded_credits, sums)
		FROM reclaim.orders LEFT JOIN held USING (tenant_id, order_id)
		WHERE ($1 = '' OR tenant_id = $1) AND coalesce(sums, '0 0 0 0')
			<> format('%s %s %s %s', reserved, refunded, reserved_credits, refunded_credits)
		UNION ALL
		SELECT format('refund %s: %s, credits %s, entries %s', refund_id, state, credits, coalesce(moved, 'none'))
		FROM refund LEFT JOIN ledger USING (tenant_id, refund_id)
		WHERE coalesce(moved, '') <> CASE WHEN credits = 0 THEN '' ELSE format('payout %s', -credits)
			|| CASE WHEN returned THEN format(', payout_return %s', credits) ELSE '' END END
		UNION ALL
		SELECT format('refund %s is %s by %s events, which say %s', refund_id, state, event_seq, told)
		FROM refund LEFT JOIN story USING (tenant_id, refund_id)
		WHERE (events, oldest, newest, last_state, chained) IS DISTINCT FROM (event_seq, 1::bigint, event_seq, state, true)
		UNION ALL
		SELECT format('refund %s is reversed without an issue', refund_id) FROM refund
		WHERE state = 'reversed' AND NOT EXISTS (SELECT FROM reclaim.issues AS i
			WHERE (i.tenant_id, i.issue_id) = (refund.tenant_id, 'refund_reversed:' || refund_id))
		UNION ALL
		SELECT format('refund %s: %s outbox rows, %s operations', refund_id, queued, claims)
		FROM (SELECT *,
				(SELECT count(*) FROM reclaim.outbox AS b WHERE (b.tenant_id, b.subject_id, b.kind)
					= (refund.tenant_id, refund.refund_id, 'start_refund')) AS queued,
				(SELECT count(*) FROM reclaim.operations AS p WHERE (p.tenant_id, p.subject_id, p.kind)
					= (refund.tenant_id, refund.refund_id, 'refund')) AS claims
			FROM refund WHERE $1 = '') AS asked WHERE queued <> 1 OR claims <> 1`, tenant)
}

// assertRefundsSound checks every invariant, those of refunds included, and that nothing deadlocked.
func (w *world) assertRefundsSound() {
	w.t.Helper()
	assert.Empty(w.t, strings.Join(w.auditRefunds(""), "\n"))
	w.assertSound()
}

// moneyOf is where the money of a refund and of its order is, to be compared with later.
type moneyOf struct {
	state    string
	payouts  []string
	reserves [4]int64
	balance  int64
}

func (w *world) moneyOf(key contract.RefundKey) moneyOf {
	w.t.Helper()
	row := w.refundRead(key)
	return moneyOf{
		row.ReclaimRefund.State, w.payouts(key), w.reserves(row.ReclaimRefund.OrderID), w.balance(key.Tenant, row.AccountID),
	}
}

// newRefundWorld gives a world with a bank, the activities in front of it, and an order of 1,000,000 eur cents and credits.
func newRefundWorld(t testing.TB, connections int32) (w *world, b *bank, r *activities.Refunds, orderID string) {
	t.Helper()
	w, b = newWorld(t, connections), newBank()
	return w, b, w.through(b), w.order(account, 1_000_000, 1_000_000)
}

func (w *world) holdRefund(key contract.RefundKey) (release func()) {
	w.t.Helper()
	return w.holdLock("SELECT FROM reclaim.refunds WHERE tenant_id = $1 AND refund_id = $2 FOR UPDATE", key.Tenant, key.RefundID)
}

// with gives the evidence with something changed.
func with(e channel.Evidence, change func(*channel.Evidence)) channel.Evidence {
	change(&e)
	return e
}

// decide is a person's decision with what each action needs, about a refund of 10 eur.
func decide(id string, key contract.RefundKey, action contract.RefundAction) contract.RefundResolution {
	d := contract.RefundResolution{ID: id, Action: action, Operator: "ann", Reason: "the bank called"}
	if action == contract.ActionSettle || action == contract.ActionRelease {
		d.Evidence, d.Number, d.Amount, d.Currency = "statement 7", key.RefundID, 10, "eur"
	}
	if action == contract.ActionSettle {
		d.ChannelRef = reference(key.RefundID)
	}
	return d
}

// counted adds up what many goroutines were told.
type counted struct {
	mu sync.Mutex
	by map[string]int
}

func (c *counted) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.by[what] += n
}

func (c *counted) addAll(by map[string]int) {
	for what, n := range maps.Clone(by) {
		c.add(what, n)
	}
}

// refundsBehind gives a proxy in front of the database and the activities of refunds behind it.
func (w *world) refundsBehind(far channel.Channel, connections int32) (*schematest.LossyProxy, *activities.Refunds) {
	w.t.Helper()
	proxy := schematest.NewLossyProxy(w.t, w.database.Address)
	return proxy, activities.NewRefunds(openStore(w.t, proxy.URL(w.database.AppURL), connections), channels(far))
}

// untilWritten repeats a call while the database fails it.
func untilWritten[A any](call func() (A, error)) (answer A, failures int, err error) {
	for range 200 {
		answer, err = call()
		failure, ok := errors.AsType[*temporal.ApplicationError](err)
		if !ok || failure.NonRetryable() || failure.Type() == activities.ErrorNotDue {
			return answer, failures, err
		}
		failures++
	}
	return answer, failures, fmt.Errorf("200 tries: %w", err)
}

// noRows and noRefund take it that there may be no such refund yet.
func noRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

func noRefund(err error) error {
	if failure, ok := errors.AsType[*temporal.ApplicationError](err); ok && failure.Type() == activities.ErrorNoRefund {
		return nil
	}
	return err
}
