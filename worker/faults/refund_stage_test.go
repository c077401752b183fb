package faults_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/config"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	order        = "o1"
	currency     = "usd"
	paid         = 10_000
	orderCredits = 1000

	channelKey    = "sk_test_faults"
	channelSecret = "whsec_faults"
)

// Settings of a channel, as lines of its TOML table.
const (
	// eager looks as often as a simulator allows.
	eager = "first_query = \"100ms\"\npoll = [\"100ms\"]\n"
	// silent never looks within a test, so that only notices tell.
	silent = "first_query = \"1h\"\npoll = [\"1h\"]\n"
)

// channels is a set of channels to which each test adds its own.
type channels struct {
	mu  sync.Mutex
	set map[string]channel.Channel
}

func newChannels() *channels { return &channels{set: map[string]channel.Channel{}} }

func (c *channels) add(name string, far channel.Channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set[name] = far
}

func (c *channels) Named(name string) (channel.Channel, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if far, ok := c.set[name]; ok {
		return far, nil
	}
	return nil, fmt.Errorf("channel %q: %w", name, channel.ErrUnknownChannel)
}

// NamesFor gives the channel of a tenant's own stage.
func (c *channels) NamesFor(tenant string) []string {
	if _, err := c.Named(channelOf(tenant)); err != nil {
		return nil
	}
	return []string{channelOf(tenant)}
}

func channelOf(tenant string) string { return "sim-" + tenant }

func (c *channels) Get(name, _ string) (channel.Channel, error) { return c.Named(name) }

// refundStage is a stage with a payment channel, through which order o1 of 10,000 usd bought 1,000 credits. When the test
// ends, the channel's own book must agree with ours on every refund that was asked for.
type refundStage struct {
	*stage
	simulator *simulator.Simulator
	channel   string
	// file is the worker's file of channels.
	file    string
	refunds []string
}

// newRefundStage gives a stage in the shared world, whose channel sends no webhooks and has the settings.
func newRefundStage(t *testing.T, settings string) *refundStage {
	t.Helper()
	return newStage(t).withChannel(settings)
}

// newStageApart gives a stage in a world apart: only what its test starts carries anything out.
func newStageApart(t *testing.T, settings string) *refundStage {
	t.Helper()
	needsQuiet(t)
	t.Parallel()
	return sharedWorld(t).apart(t).stage(t, "").withChannel(settings)
}

func (s *stage) withChannel(settings string) *refundStage {
	s.t.Helper()
	r := &refundStage{stage: s, channel: channelOf(s.tenant), file: filepath.Join(s.t.TempDir(), "channels.toml")}
	var err error
	r.simulator, err = simulator.Start(simulator.Options{APIKey: channelKey, WebhookSecret: channelSecret})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { assert.NoError(s.t, r.simulator.Close()) })
	r.connect(r.simulator.URL(), settings)
	r.addOrder(order, account, paid, orderCredits)
	s.t.Cleanup(r.checkRefunds)
	return r
}

// connect configures the channel as an operator does, and gives it to the workers of this process. Without another word a
// refund is not given up within a test.
func (s *refundStage) connect(url, settings string) {
	s.t.Helper()
	if !strings.Contains(settings, "give_up") {
		settings += "give_up = \"2h\"\n"
	}
	require.NoError(s.t, os.WriteFile(s.file, fmt.Appendf(nil, "[[channel]]\nname = %q\nkind = \"simulator\"\n"+
		"api_key_env = \"SIM_KEY\"\nwebhook_secret_env = \"SIM_SECRET\"\nbase_url = %q\n%s", s.channel, url, settings), 0o600))
	environment := map[string]string{
		"DATABASE_URL": s.database.AppURL, "RECLAIM_CHANNELS": s.file, "SIM_KEY": channelKey, "SIM_SECRET": channelSecret,
	}
	loaded, err := config.Load(func(name string) string { return environment[name] })
	require.NoError(s.t, err)
	far, err := config.ChannelSet(loaded.Channels).Named(s.channel)
	require.NoError(s.t, err)
	s.channels.add(s.channel, far)
}

// environment is what a worker process needs to know of the channel.
func (s *refundStage) environment(more ...string) []string {
	return append([]string{"RECLAIM_CHANNELS=" + s.file, "SIM_KEY=" + channelKey, "SIM_SECRET=" + channelSecret}, more...)
}

func (s *refundStage) noticesURL(door string) string {
	return door + "/v1/channels/" + s.channel + "/notices"
}

// withNotices lets the channel send its webhooks to the world's door.
func (s *refundStage) withNotices() *refundStage {
	s.simulator.SetWebhookURL(s.noticesURL(s.door))
	return s
}

func payment(orderID string) string { return "pi_" + orderID }

// addOrder registers a payment with the channel and here.
func (s *refundStage) addOrder(orderID, account string, paid, credits int64) {
	s.t.Helper()
	require.NoError(s.t, s.simulator.AddPayment(simulator.Payment{Intent: payment(orderID), Amount: paid, Currency: currency}))
	_, err := s.client.AddOrder(s.ctx(), contract.Order{
		Tenant: s.tenant, OrderID: orderID, Account: account, Channel: s.channel, Payment: payment(orderID),
		Currency: currency, Paid: paid, Credits: credits, Actor: "test", Key: "order " + orderID,
	})
	require.NoError(s.t, err)
}

// request is the n-th refund's request.
func (s *refundStage) request(n int, amount int64) contract.RefundRequest {
	return contract.RefundRequest{
		Tenant: s.tenant, Actor: "test", Key: fmt.Sprintf("refund %d", n), OrderID: order, Amount: amount, Reason: "ticket 17",
	}
}

// number is the id of the n-th refund.
func (s *refundStage) number(n int) string {
	return contract.RefundNumber(s.tenant, "test", fmt.Sprintf("refund %d", n))
}

// refund asks for a refund of order o1, which the channel treats as the script says.
func (s *refundStage) refund(amount int64, script simulator.Script) string {
	s.t.Helper()
	n := len(s.refunds)
	s.simulator.Script(s.number(n), script)
	s.refunds = append(s.refunds, s.number(n))
	requested := s.ask(s.client, s.request(n, amount))
	require.Equal(s.t, s.number(n), requested.RefundID)
	require.Equal(s.t, 1, value[int](s.stage, `SELECT count(*) FROM reclaim.operations
		WHERE tenant_id = $1 AND kind = 'refund' AND subject_id = $2`, s.tenant, requested.RefundID), "it was accepted")
	return requested.RefundID
}

// ask asks for a refund until there is an answer, as the error says: on a busy machine Postgres ends statements that wait
// too long for the order's lock.
func (s *refundStage) ask(asker *reclaim.Client, request contract.RefundRequest) (requested reclaim.RequestedRefund) {
	s.t.Helper()
	eventually(s.t, "the request is answered", func() bool {
		var err error
		requested, err = asker.RequestRefund(s.ctx(), request)
		if contract.CodeOf(err) == contract.CodeUnavailable {
			return false
		}
		require.NoError(s.t, err)
		return true
	})
	return requested
}

// takeOn sets the refunds that jobs asked for among those that are checked in the end.
func (s *refundStage) takeOn(refundID string) string {
	s.refunds = append(s.refunds, refundID)
	return refundID
}

// refundEnds waits for the refund's newest run to end and returns its result.
func (s *refundStage) refundEnds(refundID string) contract.RefundResult {
	s.t.Helper()
	var result contract.RefundResult
	id := contract.RefundWorkflowID(s.tenant, refundID)
	eventually(s.t, "the refund has a run", func() bool {
		_, err := s.temporal.DescribeWorkflow(s.ctx(), id, "")
		return err == nil
	})
	require.NoError(s.t, s.temporal.GetWorkflow(s.ctx(), id, "").Get(s.ctx(), &result))
	return result
}

// refundEndsAs waits until the refund's newest run has ended in the state.
func (s *refundStage) refundEndsAs(refundID string, state contract.RefundState) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the refund's run ends as %s", state), func() bool { return s.refundEnds(refundID).State == state })
	assert.Equal(s.t, state, s.refundState(refundID))
}

// refundRow is what the tests look at of a refund's row.
type refundRow struct {
	state        contract.RefundState
	needsReview  bool
	reference    string
	sends, looks int
	amount       int64
	credits      int64
}

func (s *refundStage) refundRow(refundID string) (row refundRow) {
	s.t.Helper()
	require.NoError(s.t, s.direct.QueryRow(s.ctx(), `SELECT state, needs_review, channel_ref, send_count, look_count, amount, credits
		FROM reclaim.refunds WHERE tenant_id = $1 AND refund_id = $2`, s.tenant, refundID).
		Scan(&row.state, &row.needsReview, &row.reference, &row.sends, &row.looks, &row.amount, &row.credits))
	return row
}

func (s *refundStage) refundState(refundID string) contract.RefundState {
	return s.refundRow(refundID).state
}

func (s *refundStage) refundReaches(refundID string, state contract.RefundState) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the refund is %s", state), func() bool {
		return value[string](s.stage, `SELECT coalesce((SELECT state FROM reclaim.refunds WHERE tenant_id = $1 AND refund_id = $2), '')`,
			s.tenant, refundID) == string(state)
	})
}

// refundPasses waits until the refund has been in the state, which it may have left since.
func (s *refundStage) refundPasses(refundID string, state contract.RefundState) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the refund has been %s", state), func() bool {
		return value[bool](s.stage, `SELECT EXISTS (SELECT FROM reclaim.refund_events
			WHERE tenant_id = $1 AND refund_id = $2 AND to_state = $3)`, s.tenant, refundID, string(state))
	})
}

// refundStory lists the types of the refund's ledger entries in their order.
func (s *refundStage) refundStory(refundID string) string {
	s.t.Helper()
	return value[string](s.stage, `SELECT coalesce(string_agg(type, ' ' ORDER BY seq), '') FROM reclaim.ledger_entries
		WHERE tenant_id = $1 AND refund_id = $2`, s.tenant, refundID)
}

// evidenceOf lists what was recorded of the refund, as "source: outcome".
func (s *refundStage) evidenceOf(refundID string) []string {
	s.t.Helper()
	return value[[]string](s.stage, `SELECT array_agg(source || ': ' || outcome ORDER BY seq)
		FROM reclaim.refund_events WHERE tenant_id = $1 AND refund_id = $2`, s.tenant, refundID)
}

// issues lists the kinds of the tenant's open issues.
func (s *stage) issues() []string {
	s.t.Helper()
	return value[[]string](s, `SELECT coalesce(array_agg(kind ORDER BY opened_at, issue_id), '{}') FROM reclaim.issues
		WHERE tenant_id = $1 AND state = 'open'`, s.tenant)
}

func (s *refundStage) balanceOf(account string) int64 {
	s.t.Helper()
	return value[int64](s.stage, `SELECT balance FROM reclaim.accounts WHERE tenant_id = $1 AND account_id = $2`, s.tenant, account)
}

// capacity is an order's money: what is reserved, and what is refunded.
type capacity struct{ reserved, refunded int64 }

func (s *refundStage) capacity() (c capacity) {
	s.t.Helper()
	require.NoError(s.t, s.direct.QueryRow(s.ctx(), `SELECT reserved, refunded FROM reclaim.orders
		WHERE tenant_id = $1 AND order_id = $2`, s.tenant, order).Scan(&c.reserved, &c.refunded))
	return c
}

// assertSent checks what the channel's book says of the refund: how many requests came for its number, and that it was
// made at most once.
func (s *refundStage) assertSent(refundID string, sends, made int) {
	s.t.Helper()
	assert.Equal(s.t, sends, s.simulator.Sends(refundID), "requests for the number")
	assert.Equal(s.t, made, s.simulator.Applied(refundID), "refunds made under the number")
}

// decide takes a person's decision to the refund. Where no answer came, it is asked again, as the error says: a task that
// ends the run while something else happens is repeated by the server, which loses the answer.
func (s *refundStage) decide(
	refundID string, decision contract.RefundResolution,
) (answer contract.RefundResolutionAnswer, err error) {
	s.t.Helper()
	if decision.Operator == "" {
		decision.Operator = "sue"
	}
	decision.Reason = "ticket 17"
	eventually(s.t, "the decision is answered", func() bool {
		answer, err = s.client.ResolveRefund(s.ctx(), s.tenant, refundID, decision)
		return contract.CodeOf(err) != contract.CodeUnavailable
	})
	return answer, err
}

func (s *refundStage) decided(refundID string, decision contract.RefundResolution) contract.RefundState {
	s.t.Helper()
	answer, err := s.decide(refundID, decision)
	require.NoError(s.t, err)
	require.Equal(s.t, contract.ResolutionApplied, answer.Outcome)
	return answer.State
}

func (s *refundStage) refundStatus(refundID string) (status contract.RefundStatus) {
	s.t.Helper()
	answer, err := s.temporal.QueryWorkflow(s.ctx(), contract.RefundWorkflowID(s.tenant, refundID), "", contract.StatusQuery)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Get(&status))
	return status
}

// needsAPerson waits until the refund's run asks for a person, in the row, in its status and in the Web UI's list.
func (s *refundStage) needsAPerson(refundID string) {
	s.t.Helper()
	eventually(s.t, "a person is asked", func() bool {
		return s.refundRow(refundID).needsReview && strings.HasPrefix(s.refundStatus(refundID).WaitsFor, "a person's decision")
	})
	eventually(s.t, "the Web UI lists it", func() bool {
		return len(s.list(fmt.Sprintf("ReclaimAttention = '%s' AND ReclaimRefund = '%s'", contract.AttentionRefundUnconfirmed, refundID))) == 1
	})
}

// change sets columns of the refund's row past everything under test, as if time had passed.
func (s *refundStage) change(refundID, columns string) {
	s.t.Helper()
	changed, err := s.direct.Exec(s.ctx(), "UPDATE reclaim.refunds SET "+columns+" WHERE tenant_id = $1 AND refund_id = $2",
		s.tenant, refundID)
	require.NoError(s.t, err)
	require.EqualValues(s.t, 1, changed.RowsAffected())
}

// refundBreaks finds, independently of the audit, what no history of faults may lead to.
const refundBreaks = `
WITH moved AS (
	SELECT refund_id, coalesce(sum(amount), 0) AS net, count(*) FILTER (WHERE type = 'payout') AS payouts,
		count(*) FILTER (WHERE type = 'payout_return') AS returns
	FROM reclaim.ledger_entries WHERE tenant_id = $1 AND refund_id IS NOT NULL GROUP BY refund_id
), held AS (
	SELECT order_id,
		coalesce(sum(amount) FILTER (WHERE state IN ('accepted', 'unknown', 'pending')), 0) AS reserved,
		coalesce(sum(credits) FILTER (WHERE state IN ('accepted', 'unknown', 'pending')), 0) AS reserved_credits,
		coalesce(sum(amount) FILTER (WHERE state = 'succeeded'), 0) AS refunded,
		coalesce(sum(credits) FILTER (WHERE state = 'succeeded'), 0) AS refunded_credits
	FROM reclaim.refunds WHERE tenant_id = $1 GROUP BY order_id
)
SELECT 'refund ' || refund_id || ' is ' || state || ' with net ' || coalesce(net, 0)
FROM reclaim.refunds LEFT JOIN moved USING (refund_id) WHERE tenant_id = $1 AND credits > 0 AND (
	coalesce(payouts, 0) <> 1 OR returns > 1 OR (returns = 1) <> (state IN ('failed', 'canceled', 'reversed'))
	OR net <> CASE WHEN state IN ('failed', 'canceled', 'reversed') THEN 0 ELSE -credits END)
UNION ALL
SELECT 'order ' || order_id || ' counts ' || o.reserved || '/' || o.refunded || ', but its refunds sum to '
	|| coalesce(h.reserved, 0) || '/' || coalesce(h.refunded, 0)
FROM reclaim.orders AS o LEFT JOIN held AS h USING (order_id) WHERE tenant_id = $1
	AND (o.reserved, o.reserved_credits, o.refunded, o.refunded_credits) IS DISTINCT FROM (coalesce(h.reserved, 0),
		coalesce(h.reserved_credits, 0), coalesce(h.refunded, 0), coalesce(h.refunded_credits, 0))
UNION ALL
SELECT 'refund ' || refund_id || ' has events that do not follow from each other'
FROM (SELECT refund_id, seq, from_state, row_number() OVER w AS place, lag(to_state, 1, '') OVER w AS before
	FROM reclaim.refund_events WHERE tenant_id = $1 WINDOW w AS (PARTITION BY refund_id ORDER BY seq)) AS told
WHERE seq <> place OR from_state <> before`

// checkRefunds holds every refund against the channel's own book, proves orders and entries, and replays every run.
func (s *refundStage) checkRefunds() {
	s.t.Helper()
	rows, err := s.direct.Query(s.ctx(), refundBreaks, s.tenant)
	require.NoError(s.t, err)
	for rows.Next() {
		var line string
		require.NoError(s.t, rows.Scan(&line))
		s.t.Error("the refunds are broken: " + line)
	}
	require.NoError(s.t, rows.Err())
	for _, id := range s.refunds {
		row, made := s.refundRow(id), s.simulator.Applied(id)
		assert.LessOrEqual(s.t, made, 1, "refunds made under number %s", id)
		switch row.state {
		case contract.RefundSucceeded:
			assert.Equal(s.t, row.amount, s.simulator.MovedFor(id), "money out for %s", id)
		case contract.RefundFailed, contract.RefundCanceled, contract.RefundReversed, contract.RefundAccepted:
			assert.Zero(s.t, s.simulator.MovedFor(id), "money out for %s", id)
		}
	}
	for _, id := range s.refunds[:min(len(s.refunds), 50)] {
		s.checkHistories(contract.RefundWorkflowID(s.tenant, id))
	}
	if s.t.Failed() {
		for _, id := range s.refunds[:min(len(s.refunds), 5)] {
			s.t.Logf("refund %s: %+v; entries: %s; evidence: %q; issues: %q; requests %d, made %d", id, s.refundRow(id),
				s.refundStory(id), s.evidenceOf(id), s.issues(), s.simulator.Sends(id), s.simulator.Applied(id))
			s.tellHistories(contract.RefundWorkflowID(s.tenant, id))
		}
	}
}

// webhook is a message of a channel as it arrived.
type webhook struct {
	header http.Header
	body   []byte
}

// mailbox keeps a channel's webhooks instead of handing them on.
type mailbox struct {
	mu    sync.Mutex
	mails []webhook
}

// keepNotices lets the channel send its webhooks to a mailbox.
func (s *refundStage) keepNotices() *mailbox {
	box := &mailbox{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(s.t, err)
		box.mu.Lock()
		defer box.mu.Unlock()
		box.mails = append(box.mails, webhook{r.Header, body})
	}))
	s.t.Cleanup(server.Close)
	s.simulator.SetWebhookURL(server.URL)
	return box
}

// about returns the webhooks so far that are about the refund.
func (b *mailbox) about(refundID string) (found []webhook) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, mail := range b.mails {
		if bytes.Contains(mail.body, []byte(refundID)) {
			found = append(found, mail)
		}
	}
	return found
}

// signed is a webhook with the body, signed as Stripe signs.
func signed(body []byte, secret string, at time.Time) webhook {
	seconds := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return webhook{http.Header{"Stripe-Signature": {"t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))}}, body}
}

// changed is the webhook with its refund changed, signed anew.
func (w webhook) changed(t *testing.T, change func(refund map[string]any)) webhook {
	t.Helper()
	var event map[string]any
	require.NoError(t, json.Unmarshal(w.body, &event))
	change(event["data"].(map[string]any)["object"].(map[string]any))
	body, err := json.Marshal(event)
	require.NoError(t, err)
	return signed(body, channelSecret, time.Now())
}

// post delivers a webhook and returns the answer's status, and its code where it is a problem.
func post(t *testing.T, url string, mail webhook) (status int, code string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(mail.body))
	require.NoError(t, err)
	request.Header = mail.header.Clone()
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	var problem struct {
		Code string `json:"code"`
	}
	if response.StatusCode >= 400 {
		assert.Equal(t, "application/problem+json", response.Header.Get("Content-Type"))
		require.NoError(t, json.NewDecoder(response.Body).Decode(&problem))
	}
	return response.StatusCode, problem.Code
}
