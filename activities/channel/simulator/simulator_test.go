package simulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	soon     = 2 * time.Minute
	often    = 5 * time.Millisecond
	testKey  = "sk_test_simulator"
	testPaid = 10_000
)

// start starts a simulator with the payment pi_1 of 100.00 eur.
func start(t *testing.T, o Options) *Simulator {
	t.Helper()
	s, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	require.NoError(t, s.AddPayment(Payment{Intent: "pi_1", Amount: testPaid, Currency: "eur", Fee: 175}))
	return s
}

// Connections are not kept: net/http repeats a request with an Idempotency-Key by itself when one that was kept breaks.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

type reply struct {
	status int
	header http.Header
	body   map[string]any
	raw    string
}

func (r reply) err() map[string]any {
	e, _ := r.body["error"].(map[string]any)
	return e
}

func do(ctx context.Context, method, target, body string, headers ...string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Authorization", "Bearer "+testKey)
	if method == http.MethodPost && strings.Contains(target, "/v1/") {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	raw, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return reply{}, err
	}
	r := reply{status: response.StatusCode, header: response.Header, raw: string(raw)}
	_ = json.Unmarshal(raw, &r.body) // an answer that is not JSON has no body
	return r, nil
}

func form(number string, amount int64) string {
	return url.Values{
		"payment_intent": {"pi_1"}, "amount": {strconv.FormatInt(amount, 10)}, "metadata[reclaim_refund]": {number},
	}.Encode()
}

// try posts a refund under its number.
func (s *Simulator) try(number string, amount int64) (reply, error) {
	return do(context.Background(), http.MethodPost, s.URL()+"/v1/refunds", form(number, amount), "Idempotency-Key", number)
}

func post(t *testing.T, s *Simulator, number string, amount int64) reply {
	t.Helper()
	r, err := s.try(number, amount)
	require.NoError(t, err)
	return r
}

func get(t *testing.T, s *Simulator, path string) reply {
	t.Helper()
	r, err := do(context.Background(), http.MethodGet, s.URL()+path, "")
	require.NoError(t, err)
	return r
}

func list(t *testing.T, s *Simulator) []string {
	t.Helper()
	r := get(t, s, "/v1/refunds?payment_intent=pi_1")
	require.Equal(t, http.StatusOK, r.status, r.raw)
	var ids []string
	for _, item := range r.body["data"].([]any) {
		ids = append(ids, item.(map[string]any)["id"].(string))
	}
	return ids
}

func TestCreate(t *testing.T) {
	s := start(t, Options{})
	r := post(t, s, "rf1", 2500)
	require.Equal(t, http.StatusOK, r.status, r.raw)
	id := r.body["id"].(string)
	assert.Regexp(t, "^re_[A-Z0-9]{24}$", id)
	for field, want := range map[string]any{
		"object": "refund", "amount": 2500.0, "currency": "eur", "payment_intent": "pi_1", "charge": "ch_1",
		"status": "succeeded", "metadata": map[string]any{"reclaim_refund": "rf1"}, "reason": nil,
	} {
		assert.Equal(t, want, r.body[field], field)
	}
	assert.InDelta(t, time.Now().Unix(), r.body["created"], 5)
	assert.Empty(t, r.header.Get("Idempotent-Replayed"))
	assert.Equal(t, r.body, get(t, s, "/v1/refunds/"+id).body)
	assert.Equal(t, int64(2500), s.MovedFor("rf1"))

	// Without an amount the rest is refunded.
	rest, err := do(t.Context(), http.MethodPost, s.URL()+"/v1/refunds", "charge=ch_1", "Idempotency-Key", "other")
	require.NoError(t, err)
	assert.Equal(t, 7500.0, rest.body["amount"])
	assert.Equal(t, []string{rest.body["id"].(string), id}, list(t, s))
	assert.Equal(t, Book{
		Payments: []PaymentBook{{
			Payment:  Payment{Intent: "pi_1", Charge: "ch_1", Amount: testPaid, Currency: "eur", Fee: 175},
			Refunded: testPaid,
			Refunds: []RefundBook{
				{Number: "rf1", ID: id, Amount: 2500, Currency: "eur", Status: "succeeded", Moved: 2500, Sends: 1, Applied: 1},
				{ID: rest.body["id"].(string), Amount: 7500, Currency: "eur", Status: "succeeded", Moved: 7500, Sends: 1, Applied: 1},
			},
		}},
		Sends: map[string]int{"rf1": 1},
	}, s.Book())
}

func TestCreateRefuses(t *testing.T) {
	s := start(t, Options{})
	require.NoError(t, s.AddPayment(Payment{Charge: "ch_jpy", Amount: 500, Currency: "jpy"}))
	for _, tc := range []struct {
		form   string
		status int
		code   any
		say    string
	}{
		{"payment_intent=pi_2&amount=1", 404, "resource_missing", "No such payment_intent: 'pi_2'"},
		{"payment_intent=ch_1&amount=1", 404, "resource_missing", "No such payment_intent: 'ch_1'"},
		{"charge=pi_1&amount=1", 404, "resource_missing", "No such charge: 'pi_1'"},
		{"payment_intent=pi_1&amount=10001", 400, "amount_too_large",
			"Refund amount (100.01 EUR) is greater than unrefunded amount on charge (100.00 EUR)"},
		{"charge=ch_jpy&amount=501", 400, "amount_too_large",
			"Refund amount (501 JPY) is greater than unrefunded amount on charge (500 JPY)"},
		{"payment_intent=pi_1&amount=0", 400, "parameter_invalid_integer", "greater than or equal to 1"},
		{"payment_intent=pi_1&amount=-1", 400, "parameter_invalid_integer", "greater than or equal to 1"},
		{"payment_intent=pi_1&amount=1.5", 400, "parameter_invalid_integer", "Invalid integer"},
		{"payment_intent=pi_1&amount=9223372036854775808", 400, "parameter_invalid_integer", "Invalid integer"},
		{"amount=1", 400, "parameter_missing", "payment_intent or charge"},
		{"payment_intent=pi_1&charge=ch_1", 400, "parameter_missing", "payment_intent or charge"},
		{"payment_intent=pi_1&amont=1", 400, "parameter_unknown", "amont"},
		{"payment_intent=pi_1&reason=because", 400, nil, "Invalid reason"},
		{"payment_intent=pi_1&metadata[" + strings.Repeat("k", 41) + "]=v", 400, nil, "40 characters"},
		{"payment_intent=pi_1&metadata[k]=" + strings.Repeat("v", 501), 400, nil, "500 characters"},
		{"payment_intent=pi_1&metadata[k]=%ff", 400, nil, "UTF-8"},
	} {
		r, err := do(t.Context(), http.MethodPost, s.URL()+"/v1/refunds", tc.form, "Idempotency-Key", tc.form)
		if len(tc.form) > 255 {
			r, err = do(t.Context(), http.MethodPost, s.URL()+"/v1/refunds", tc.form, "Idempotency-Key", "short")
		}
		require.NoError(t, err)
		assert.Equal(t, tc.status, r.status, tc.form)
		assert.Equal(t, "invalid_request_error", r.err()["type"], tc.form)
		assert.Equal(t, tc.code, r.err()["code"], tc.form)
		assert.Contains(t, r.err()["message"], tc.say, tc.form)
	}
	require.Equal(t, 200, post(t, s, "all", testPaid).status)
	r := post(t, s, "more", 1)
	assert.Equal(t, 400, r.status)
	assert.Equal(t, "charge_already_refunded", r.err()["code"])
	assert.Equal(t, map[string]int{"all": 1, "more": 1}, s.Book().Sends)

	r, err := do(t.Context(), http.MethodPost, s.URL()+"/v1/refunds", form("rf", 1))
	require.NoError(t, err)
	assert.Equal(t, 400, r.status)
	assert.Contains(t, r.raw, "Idempotency-Key")
}

func TestAuthentication(t *testing.T) {
	s := start(t, Options{APIKey: "sk_mine"})
	for authorization, want := range map[string]int{
		"": 401, "Bearer sk_test_simulator": 401, "Bearer sk_mine": 404, "Basic c2tfbWluZTo=": 404, "Basic eDo=": 401,
	} {
		r, err := do(t.Context(), http.MethodGet, s.URL()+"/v1/refunds/re_x", "", "Authorization", authorization)
		require.NoError(t, err)
		assert.Equal(t, want, r.status, authorization)
		assert.Equal(t, "invalid_request_error", r.err()["type"], authorization)
	}
	r, err := do(t.Context(), http.MethodGet, s.URL()+"/v1/customers", "", "Authorization", "Bearer sk_mine")
	require.NoError(t, err)
	assert.Equal(t, 404, r.status)
	assert.Contains(t, r.raw, "Unrecognized request URL (GET: /v1/customers)")
}

func TestIdempotencyKeys(t *testing.T) {
	s := start(t, Options{})
	s.Script("rf1", Script{Life: []Step{{After: time.Hour, Status: "succeeded"}}})
	first := post(t, s, "rf1", 100)
	s.Advance(2 * time.Hour)

	// A replay tells what was told, not what is now.
	again := post(t, s, "rf1", 100)
	assert.Equal(t, first.raw, again.raw)
	assert.Equal(t, "pending", again.body["status"])
	assert.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	assert.Equal(t, first.header.Get("Request-Id"), again.header.Get("Original-Request"))

	other := post(t, s, "rf1", 101)
	assert.Equal(t, 400, other.status)
	assert.Equal(t, "idempotency_error", other.err()["type"])

	s.Advance(22*time.Hour - time.Minute)
	assert.Equal(t, first.raw, post(t, s, "rf1", 100).raw)
	assert.Equal(t, 1, s.Applied("rf1"))

	// When the key is forgotten the money goes out twice.
	s.Advance(time.Minute)
	assert.NotEqual(t, first.body["id"], post(t, s, "rf1", 100).body["id"])
	assert.Equal(t, 2, s.Applied("rf1"))
	assert.Equal(t, 5, s.Sends("rf1"))
	s.Advance(time.Hour)
	assert.Equal(t, int64(200), s.MovedFor("rf1"))

	// What was wrong with the request does not stick to the key, what was refused by the books does.
	missing := "payment_intent=pi_2&amount=5"
	for _, want := range []int{404, 200} {
		r, err := do(t.Context(), http.MethodPost, s.URL()+"/v1/refunds", missing, "Idempotency-Key", "k")
		require.NoError(t, err)
		assert.Equal(t, want, r.status)
		require.NoError(t, s.AddPayment(Payment{Intent: "pi_2", Amount: 10, Currency: "usd"}))
	}
	assert.Equal(t, 400, post(t, s, "rf2", testPaid).status)
	again = post(t, s, "rf2", testPaid)
	assert.Equal(t, 400, again.status)
	assert.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
}

func TestKeyInUse(t *testing.T) {
	s := start(t, Options{})
	s.Script("rf1", Script{Create: []Fault{{Kind: FaultHang, Applied: true}}})
	hanging := make(chan reply, 1)
	go func() {
		r, _ := s.try("rf1", 100)
		hanging <- r
	}()
	require.Eventually(t, func() bool { return s.Applied("rf1") == 1 }, soon, often)
	r := post(t, s, "rf1", 100)
	assert.Equal(t, 409, r.status)
	assert.Equal(t, "idempotency_key_in_use", r.err()["code"])
	s.Release("rf1")
	first := <-hanging
	assert.Equal(t, 200, first.status)
	assert.Equal(t, first.raw, post(t, s, "rf1", 100).raw)
	assert.Equal(t, 1, s.Applied("rf1"))
}

func TestList(t *testing.T) {
	s := start(t, Options{})
	require.NoError(t, s.AddPayment(Payment{Intent: "pi_2", Charge: "ch_two", Amount: 10, Currency: "usd"}))
	var ids []string
	for i := range 25 {
		ids = append([]string{post(t, s, fmt.Sprint("rf", i), 10).body["id"].(string)}, ids...)
	}
	page := func(query string) (got []string, more bool) {
		r := get(t, s, "/v1/refunds?"+query)
		require.Equal(t, 200, r.status, r.raw)
		assert.Equal(t, "list", r.body["object"])
		assert.Equal(t, "/v1/refunds", r.body["url"])
		for _, item := range r.body["data"].([]any) {
			got = append(got, item.(map[string]any)["id"].(string))
		}
		return got, r.body["has_more"].(bool)
	}
	got, more := page("payment_intent=pi_1")
	assert.Equal(t, ids[:10], got)
	assert.True(t, more)
	got, more = page("charge=ch_1&limit=15&starting_after=" + ids[9])
	assert.Equal(t, ids[10:], got)
	assert.False(t, more)
	got, more = page("limit=100")
	assert.Equal(t, ids, got)
	assert.False(t, more)
	got, more = page("payment_intent=pi_2")
	assert.Empty(t, got)
	assert.False(t, more)
	for query, status := range map[string]int{
		"payment_intent=pi_3": 404, "charge=pi_1": 404, "starting_after=re_x": 404, "limit=0": 400, "limit=101": 400, "what=1": 400,
	} {
		assert.Equal(t, status, get(t, s, "/v1/refunds?"+query).status, query)
	}
}

func TestAddPaymentRefuses(t *testing.T) {
	s := start(t, Options{})
	for _, p := range []Payment{
		{Amount: 1, Currency: "eur"},
		{Intent: "x", Charge: "x", Amount: 1, Currency: "eur"},
		{Intent: "pi_2", Currency: "eur"},
		{Intent: "pi_2", Amount: 1, Currency: "EUR"},
		{Intent: "pi_2", Amount: 1, Currency: "eur", Fee: 2},
		{Intent: "pi_1", Amount: testPaid + 1, Currency: "eur"},
		{Intent: "pi_2", Charge: "ch_1", Amount: 1, Currency: "eur"},
		{Intent: "pi_1", Charge: "ch_2", Amount: 1, Currency: "eur"},
		{Charge: "ch_1", Amount: testPaid, Currency: "eur", Fee: 175},
	} {
		assert.Error(t, s.AddPayment(p), p)
	}
	assert.NoError(t, s.AddPayment(Payment{Intent: "pi_1", Amount: testPaid, Currency: "eur", Fee: 175}))
	assert.Len(t, s.Book().Payments, 1)
}

func TestSettlement(t *testing.T) {
	s := start(t, Options{})
	require.NoError(t, s.AddPayment(Payment{Charge: "ch_jpy", Amount: 500, Currency: "jpy"}))
	s.Script("rf1", Script{Life: []Step{{Status: "succeeded"}, {After: 9 * 24 * time.Hour, Status: "failed"}}})
	s.Script("rf2", Script{Life: []Step{{After: 24 * time.Hour, Status: "succeeded"}}})
	s.Script("rf3", Script{Life: []Step{{After: time.Hour, Status: "failed"}}})
	ids := map[string]string{}
	for _, number := range []string{"rf1", "rf2", "rf3"} {
		ids[number] = post(t, s, number, 5).body["id"].(string)
	}
	s.Advance(10 * 24 * time.Hour)
	lines := strings.Split(strings.TrimSpace(get(t, s, "/simulator/settlement").raw), "\n")
	assert.Equal(t, "id,type,source,amount,fee,net,currency,created,description,refund_metadata[reclaim_refund],payment_intent_id", lines[0])
	for i, want := range []string{
		"payment,ch_1,100.00,1.75,98.25,eur,TIME,Payment pi_1,,pi_1",
		"payment,ch_jpy,500,0,500,jpy,TIME,Payment,,",
		"refund," + ids["rf1"] + ",-0.05,0.00,-0.05,eur,TIME,REFUND FOR CHARGE,rf1,pi_1",
		"refund," + ids["rf2"] + ",-0.05,0.00,-0.05,eur,TIME,REFUND FOR CHARGE,rf2,pi_1",
		"refund_failure," + ids["rf1"] + ",0.05,0.00,0.05,eur,TIME,REFUND FAILURE,rf1,pi_1",
	} {
		fields := strings.Split(lines[i+1], ",")
		require.Len(t, fields, 11)
		_, err := time.Parse(time.DateTime, fields[7])
		assert.NoError(t, err)
		fields[7] = "TIME"
		assert.Equal(t, want, strings.Join(fields[1:], ","))
	}
	assert.Len(t, lines, 6)
	assert.Equal(t, int64(0), s.MovedFor("rf1"))
	assert.Equal(t, int64(5), s.MovedFor("rf2"))
	assert.Equal(t, int64(5), s.Book().Payments[0].Refunded)
}

func TestDecimal(t *testing.T) {
	for _, tc := range []struct {
		amount   int64
		exponent int
		want     string
	}{
		{0, 2, "0.00"}, {5, 2, "0.05"}, {-5, 2, "-0.05"}, {12345, 2, "123.45"}, {-12345, 0, "-12345"}, {1, 3, "0.001"},
		{9007199254740993, 2, "90071992547409.93"},
	} {
		assert.Equal(t, tc.want, contract.Decimal(tc.amount, tc.exponent))
	}
	assert.Equal(t, []int{0, 2, 2, 3}, []int{exponent("jpy"), exponent("eur"), exponent("isk"), exponent("kwd")})
}

// Everything that the methods do can be done from another program.
func TestControl(t *testing.T) {
	s := start(t, Options{})
	control := func(method, path, body string, want int) reply {
		r, err := do(t.Context(), method, s.URL()+"/simulator/"+path, body)
		require.NoError(t, err)
		require.Equal(t, want, r.status, r.raw)
		return r
	}
	hooks := receive(t, nil)
	control("PUT", "webhook", `{"url":"`+hooks.URL+`"}`, 204)
	control("POST", "payments", `{"payment_intent":"pi_9","charge":"ch_9","amount":700,"currency":"usd"}`, 204)
	control("POST", "payments", `{"payment_intent":"pi_9","amount":700,"currency":"usd"}`, 204)
	control("POST", "payments", `{"payment_intent":"pi_9","amount":800,"currency":"usd"}`, 400)
	// Go programs can send what they have in Go.
	sent, err := json.Marshal(Script{ListLag: 90 * time.Second, Create: []Fault{{Kind: FaultSlow, Delay: time.Millisecond}}})
	require.NoError(t, err)
	assert.JSONEq(t, `{"listLag":"1m30s","create":[{"kind":"slow","delay":"1ms"}]}`, string(sent))
	control("PUT", "scripts/rf1", string(sent), 204)
	control("PUT", "scripts/rf1", `{
		"create": [{"kind": "lost", "times": 2}, {"kind": "html", "size": 300000, "applied": true}],
		"lookup": [{"kind": "error"}],
		"life": [{"after": "72h", "status": "succeeded"}, {"after": "216h", "status": "failed", "reason": "declined"}],
		"listLag": "30s",
		"webhooks": {"copies": 2, "delay": "1m30s"}
	}`, 204)
	for _, bad := range []string{
		`{"kind":"lost"}`, `{"create":[{"kind":"explode"}]}`, `{"life":[{"status":"gone"}]}`, `{"create":[{"kind":"html","size":-1}]}`,
		`{"life":[{"after":"2h","status":"failed"},{"after":"1h","status":"succeeded"}]}`, `{"webhooks":{"only":["refund"]}}`,
		`{"listLag":30}`, `{"create":[{"kind":"error","status":42}]}`, `{`,
	} {
		control("PUT", "scripts/rf1", bad, 400)
	}
	for range 2 {
		_, err := s.try("rf1", 100)
		require.Error(t, err)
	}
	assert.Equal(t, 502, post(t, s, "rf1", 100).status)
	before, err := time.Parse(time.RFC3339, control("GET", "clock", "", 200).body["now"].(string))
	require.NoError(t, err)
	after, err := time.Parse(time.RFC3339, control("POST", "clock", `{"advance":"72h"}`, 200).body["now"].(string))
	require.NoError(t, err)
	assert.InDelta(t, 72*3600, after.Sub(before).Seconds(), 60)
	control("POST", "clock", `{"advance":"-1h"}`, 400)
	control("POST", "clock", `{"advance":"2m"}`, 200)
	control("POST", "deliver", "", 204)
	assert.Len(t, hooks.types(), 6)
	assert.Contains(t, control("GET", "deliveries", "", 200).raw, `"number":"rf1"`)
	control("POST", "release/rf1", "", 204)
	book := control("GET", "book", "", 200).body
	refund := book["payments"].([]any)[0].(map[string]any)["refunds"].([]any)[0].(map[string]any)
	assert.Equal(t, 3.0, refund["sends"])
	assert.Equal(t, 1.0, refund["applied"])
	assert.Equal(t, 100.0, refund["moved"])

	s.ScriptNext(Script{Life: []Step{{Status: "canceled"}}})
	control("PUT", "scripts/next", `{"life":[{"status":"requires_action"}]}`, 204)
	control("PUT", "scripts/default", `{"life":[{"status":"failed"}]}`, 204)
	control("PUT", "scripts/pi_9", `{"life":[{"after":"1s","status":"failed"}]}`, 204)
	s.ScriptPayment("ch_1", Script{Create: []Fault{{Kind: FaultNullStatus}}})
	statuses := []any{}
	for i := range 3 {
		statuses = append(statuses, post(t, s, fmt.Sprint("n", i), 1).body["status"])
	}
	for i, payment := range []string{"pi_9", "pi_1"} {
		s.ScriptPayment("ch_1", Script{Life: []Step{{Status: "canceled"}}})
		r, err := do(t.Context(), "POST", s.URL()+"/v1/refunds", "amount=1&payment_intent="+payment, "Idempotency-Key", fmt.Sprint(i))
		require.NoError(t, err)
		statuses = append(statuses, r.body["status"])
	}
	assert.Equal(t, []any{"canceled", "requires_action", nil, "pending", "canceled"}, statuses)
	assert.Panics(t, func() { s.Script("x", Script{Create: []Fault{{}}}) })
}

func TestHelpListsAllThatCanBeTold(t *testing.T) {
	s := start(t, Options{})
	told, err := do(t.Context(), http.MethodGet, s.URL()+"/simulator", "")
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, told.status)
	assert.Equal(t, Help(), told.raw)
	for _, field := range []string{"create", "lookup", "life", "listLag", "getLag", "webhooks"} {
		assert.Contains(t, told.raw, field)
	}
	for _, listed := range []string{
		"POST /simulator/payments ", "PUT  /simulator/scripts/{name} ", "GET  /simulator/book ", "POST /simulator/clock ",
		"GET  /simulator ",
	} {
		assert.Contains(t, told.raw, "\n  "+listed)
	}
}

func TestManyAtOnce(t *testing.T) {
	hooks := receive(t, nil)
	s := start(t, Options{Latency: 200 * time.Millisecond, WebhookURL: hooks.URL})
	const refunds = 1000
	var all sync.WaitGroup
	began := time.Now()
	for i := range refunds {
		all.Go(func() {
			r, err := s.try(fmt.Sprint("rf", i), 1)
			if assert.NoError(t, err) {
				assert.Equal(t, 200, r.status)
			}
		})
	}
	all.Wait()
	assert.GreaterOrEqual(t, time.Since(began), 200*time.Millisecond)
	s.Deliver()
	assert.Len(t, hooks.types(), refunds)
	assert.Equal(t, int64(refunds), s.Book().Payments[0].Refunded)
}

// Close ends whatever is under way: an answer that hangs, one that is slow, and a webhook that is not answered.
func TestCloseEndsAll(t *testing.T) {
	reached := make(chan struct{}, 1)
	hooks := receive(t, func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
	})
	s := start(t, Options{WebhookURL: hooks.URL})
	s.Script("hangs", Script{Create: []Fault{{Kind: FaultHang}}})
	s.Script("slow", Script{Create: []Fault{{Kind: FaultSlow, Delay: time.Hour}}, Webhooks: Webhooks{None: true}})
	s.Script("early", Script{Webhooks: Webhooks{BeforeAnswer: time.Hour}})
	var clients sync.WaitGroup
	for _, number := range []string{"hangs", "slow", "early"} {
		clients.Go(func() {
			_, err := s.try(number, 1)
			assert.Error(t, err)
		})
	}
	<-reached
	require.Eventually(t, func() bool { return len(s.Book().Sends) == 3 }, soon, often)
	require.NoError(t, s.Close())
	clients.Wait()
	// net/http still has to return from the handlers.
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "simulator.(*Simulator).")
	}, soon, often)
	assert.Zero(t, s.Applied("hangs"))
}

func TestHandler(t *testing.T) {
	s := New(Options{})
	require.NoError(t, s.AddPayment(Payment{Intent: "pi_1", Amount: 1, Currency: "eur"}))
	request := httptest.NewRequest(http.MethodPost, "/v1/refunds", strings.NewReader("payment_intent=pi_1"))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Idempotency-Key", "k")
	request.SetBasicAuth(testKey, "")
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, request)
	assert.Equal(t, 200, answer.Code, answer.Body)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { s.ServeHTTP(answer, request) })
}
