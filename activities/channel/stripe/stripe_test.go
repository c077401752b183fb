package stripe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "github.com/stripe/stripe-go/v85"

	"github.com/reclaimhq/reclaim/activities/channel"
)

func TestNewNamesEveryFault(t *testing.T) {
	_, err := New(Options{APIKey: "sk_ 1\n", WebhookSecrets: []string{testSecret, ""}, BaseURL: "ftp://user:secret@host"})
	require.Error(t, err)
	for _, part := range []string{"API key", "webhook secret 2", "base URL"} {
		assert.ErrorContains(t, err, part)
	}
	assert.NotContains(t, err.Error(), "secret@")
	for _, base := range []string{"", "https://api.example", "http://127.0.0.1:8080/"} {
		_, err := New(Options{APIKey: testKey, BaseURL: base})
		assert.NoError(t, err, base)
	}
}

func TestSubmitSendsTheNumberAsTheKey(t *testing.T) {
	for payment, parameter := range map[string]string{"pi_1": "payment_intent", "ch_1": "charge", "py_1": "charge"} {
		t.Run(payment, func(t *testing.T) {
			c, s := serveOne(t, 200, "application/json", object(map[string]any{
				"charge": map[bool]string{true: payment, false: "ch_1"}[parameter == "charge"],
			}))
			refund := someRefund
			refund.Payment = payment
			got, err := c.Submit(t.Context(), refund)
			require.NoError(t, err)
			assert.Equal(t, channel.Evidence{
				Outcome: channel.OutcomeSucceeded, Number: "rf_1", Reference: "re_1", Payment: payment, Amount: 1200,
				Currency: "usd", Code: "succeeded", Detail: got.Detail, Sends: 1, ObservedAt: created,
			}, got)
			assert.Contains(t, got.Detail, `"balance_transaction":"txn_1"`)

			require.Len(t, s.asked(), 1)
			sent := s.asked()[0]
			assert.Equal(t, "POST /v1/refunds", sent.Method+" "+sent.Path)
			assert.Equal(t, map[string][]string{
				"amount": {"1200"}, parameter: {payment}, "metadata[reclaim_refund]": {"rf_1"}, "metadata[reclaim_payment]": {payment},
			}, map[string][]string(sent.Form))
			assert.Equal(t, []string{"rf_1"}, sent.Header["Idempotency-Key"])
			assert.Equal(t, "Bearer "+testKey, sent.Header.Get("Authorization"))
			assert.Equal(t, sdk.APIVersion, sent.Header.Get("Stripe-Version"))
			assert.NotContains(t, sent.Header, "X-Stripe-Client-Telemetry")
		})
	}
}

func TestNoTelemetryOnASecondRequest(t *testing.T) {
	c, s := serveOne(t, 200, "application/json", object(nil))
	for range 2 {
		_, err := c.Submit(t.Context(), someRefund)
		require.NoError(t, err)
	}
	require.Len(t, s.asked(), 2)
	assert.NotContains(t, s.asked()[1].Header, "X-Stripe-Client-Telemetry", "the SDK reports on the request before")
}

func TestUnusableIsNotSent(t *testing.T) {
	c, s := serveOne(t, 200, "application/json", object(nil))
	for name, test := range map[string]struct {
		field  string
		change func(*channel.Refund)
	}{
		"no number":           {"number", func(r *channel.Refund) { r.Number = "" }},
		"number with a blank": {"number", func(r *channel.Refund) { r.Number = "rf 1" }},
		"number with a dot":   {"number", func(r *channel.Refund) { r.Number = "rf.1" }},
		"number too long":     {"number", func(r *channel.Refund) { r.Number = strings.Repeat("r", 65) }},
		"no payment":          {"payment", func(r *channel.Refund) { r.Payment = "" }},
		"another object":      {"payment", func(r *channel.Refund) { r.Payment = "cus_1" }},
		"payment with a path": {"payment", func(r *channel.Refund) { r.Payment = "pi_1/../x" }},
		"payment too long":    {"payment", func(r *channel.Refund) { r.Payment = "pi_" + strings.Repeat("1", 300) }},
		"no amount":           {"amount", func(r *channel.Refund) { r.Amount = 0 }},
		"negative amount":     {"amount", func(r *channel.Refund) { r.Amount = -1 }},
		"no currency":         {"currency", func(r *channel.Refund) { r.Currency = "" }},
		"unknown currency":    {"currency", func(r *channel.Refund) { r.Currency = "xxx" }},
		"capitals":            {"currency", func(r *channel.Refund) { r.Currency = "USD" }},
		"a third of a dinar":  {"amount", func(r *channel.Refund) { r.Currency, r.Amount = "kwd", 5124 }},
		"half a króna":        {"amount", func(r *channel.Refund) { r.Currency, r.Amount = "isk", 150 }},
		"half a shilling":     {"amount", func(r *channel.Refund) { r.Currency, r.Amount = "ugx", 50 }},
	} {
		t.Run(name, func(t *testing.T) {
			refund := someRefund
			test.change(&refund)
			for call, ask := range map[string]func(context.Context, channel.Refund) (channel.Evidence, error){
				"submit": c.Submit, "query": c.Query,
			} {
				evidence, err := ask(t.Context(), refund)
				unusable, ok := errors.AsType[*channel.Unusable](err)
				require.True(t, ok, "%s: %v", call, err)
				assert.Equal(t, test.field, unusable.Field, call)
				assert.Zero(t, evidence, call)
			}
		})
	}
	_, err := c.List(t.Context(), "cus_1")
	_, ok := errors.AsType[*channel.Unusable](err)
	assert.True(t, ok, "%v", err)
	assert.Empty(t, s.asked())
}

func TestWholeAmountsOfOddCurrencies(t *testing.T) {
	for currency, amount := range map[string]int64{"kwd": 5120, "isk": 500, "ugx": 500, "jpy": 1, "huf": 1045, "twd": 80045} {
		assert.NoError(t, check(channel.Refund{Number: "rf_1", Payment: "pi_1", Amount: amount, Currency: currency}), currency)
	}
}

// C22 and C23: a refund's own status decides, and none but failed and canceled ends it without effect.
func TestC22_C23_Statuses(t *testing.T) {
	for name, test := range map[string]struct {
		changes map[string]any
		outcome channel.Outcome
		code    string
	}{
		"pending":           {map[string]any{"status": "pending"}, channel.OutcomePending, "pending"},
		"short of funds":    {map[string]any{"status": "pending", "pending_reason": "insufficient_funds"}, channel.OutcomePending, "pending"},
		"requires_action":   {map[string]any{"status": "requires_action"}, channel.OutcomePending, "requires_action"},
		"succeeded":         {nil, channel.OutcomeSucceeded, "succeeded"},
		"failed":            {map[string]any{"status": "failed"}, channel.OutcomeFailed, "failed"},
		"failed, with why":  {map[string]any{"status": "failed", "failure_reason": "lost_or_stolen_card"}, channel.OutcomeFailed, "failed:lost_or_stolen_card"},
		"canceled":          {map[string]any{"status": "canceled"}, channel.OutcomeFailed, "canceled"},
		"canceled, why":     {map[string]any{"status": "canceled", "failure_reason": "merchant_request"}, channel.OutcomeFailed, "canceled:merchant_request"},
		"null":              {map[string]any{"status": (*string)(nil)}, channel.OutcomePending, "status_null"},
		"missing":           {map[string]any{"status": nil}, channel.OutcomePending, "status_null"},
		"empty":             {map[string]any{"status": ""}, channel.OutcomePending, "status_null"},
		"a new word":        {map[string]any{"status": "in_transit"}, channel.OutcomePending, "in_transit"},
		"an endless word":   {map[string]any{"status": strings.Repeat("x", 300)}, channel.OutcomePending, strings.Repeat("x", 97) + "…"},
		"no amount":         {map[string]any{"amount": nil}, channel.OutcomeUnknown, "unreadable"},
		"no currency":       {map[string]any{"currency": nil}, channel.OutcomeUnknown, "unreadable"},
		"status as a list":  {map[string]any{"status": []int{1}}, channel.OutcomeUnknown, "unreadable"},
		"amount as a float": {map[string]any{"amount": 12.5}, channel.OutcomeUnknown, "unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serveOne(t, 200, "application/json", object(test.changes))
			asked := someRefund
			submitted, err := c.Submit(t.Context(), asked)
			require.NoError(t, err)
			asked.Reference = "re_1"
			queried, err := c.Query(t.Context(), asked)
			require.NoError(t, err)
			for call, got := range map[string]channel.Evidence{"submit": submitted, "query": queried} {
				assert.Equal(t, test.outcome, got.Outcome, call)
				assert.Equal(t, test.code, got.Code, call)
				if got.Outcome != channel.OutcomeUnknown {
					assert.Equal(t, "re_1", got.Reference, call)
					assert.Equal(t, "usd", got.Currency, call)
				}
			}
		})
	}
}

func TestC8_HTML502IsUnknown(t *testing.T) {
	c, _ := serveOne(t, 502, "text/html", "<html>"+strings.Repeat("<p>Bad gateway é</p>", 15_000))
	got, err := c.Submit(t.Context(), someRefund)
	require.NoError(t, err)
	assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
	assert.Equal(t, "http_502", got.Code)
	assert.Equal(t, 1, got.Sends)
	assertKeepable(t, got.Detail)
	assert.Contains(t, got.Detail, "<p>Bad gateway")
}

func TestAnEndlessAnswerIsCutOff(t *testing.T) {
	c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	})
	got, err := c.Submit(t.Context(), someRefund)
	require.NoError(t, err)
	assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
	assert.Equal(t, "unreadable", got.Code)
	assertKeepable(t, got.Detail)
}

// stubborn is an SDK that returns whatever it likes.
type stubborn struct {
	refund *sdk.Refund
	err    error
}

func (s stubborn) Create(context.Context, *sdk.RefundCreateParams) (*sdk.Refund, error) {
	return s.refund, s.err
}

func (s stubborn) Retrieve(context.Context, string, *sdk.RefundRetrieveParams) (*sdk.Refund, error) {
	return s.refund, s.err
}

func (s stubborn) List(context.Context, *sdk.RefundListParams) *sdk.V1List[*sdk.Refund] { return nil }

func TestC20_NothingOrAnErrorIsUnknown(t *testing.T) {
	var none *sdk.Error
	for name, test := range map[string]struct {
		sdk  stubborn
		code string
	}{
		"nothing":               {stubborn{}, "unreadable"},
		"an empty refund":       {stubborn{refund: &sdk.Refund{}}, "unreadable"},
		"an error and a refund": {stubborn{&sdk.Refund{ID: "re_1", Object: "refund", Status: "succeeded"}, errors.New("lost")}, "not_sent"},
		"an error":              {stubborn{err: errors.New("lost")}, "not_sent"},
		"an empty error":        {stubborn{err: none}, "not_sent"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(Options{APIKey: testKey})
			require.NoError(t, err)
			c.refunds = test.sdk
			if name == "an empty error" {
				c.refunds = stubborn{err: fmt.Errorf("wrapped: %w", errors.Join(errors.New("odd")))}
			}
			known := someRefund
			known.Reference = "re_1"
			submitted, err := c.Submit(t.Context(), someRefund)
			require.NoError(t, err)
			queried, err := c.Query(t.Context(), known)
			require.NoError(t, err)
			for _, got := range []channel.Evidence{submitted, queried} {
				assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
				assert.Equal(t, test.code, got.Code)
				assert.Empty(t, got.Reference)
			}
			found, err := c.Query(t.Context(), someRefund)
			require.NoError(t, err)
			assert.Equal(t, channel.OutcomeUnknown, found.Outcome)
		})
	}
}

// C43: a success with nothing in it is neither a refund nor the proof that there is none.
func TestC43_AnEmptySuccessIsUnknown(t *testing.T) {
	for name, body := range map[string]string{
		"nothing": "", "null": "null", "an object": "{}", "a word": `"re_1"`, "a list": "[]", "a page of HTML": "<html>OK</html>",
		"only an id": `{"id":"re_1"}`, "another object": `{"id":"ch_1","object":"charge","amount":1200,"currency":"usd"}`,
		"success in words": `{"code":"10000","msg":"Success"}`, "an error in a 200": stripeError(`"code":"charge_disputed"`),
		"a list without data": `{"object":"list","has_more":false}`, "null for data": `{"object":"list","data":null,"has_more":false}`,
		"a list of nulls": `{"object":"list","data":[null],"has_more":true}`, "a list of ids": `{"object":"list","data":["re_1"],"has_more":false}`,
		"no has_more": `{"object":"list","data":[]}`, "half an answer": `{"object":"list","data":[`,
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serveOne(t, 200, "application/json", body)
			known := someRefund
			known.Reference = "re_1"
			for call, ask := range map[string]func() (channel.Evidence, error){
				"submit":             func() (channel.Evidence, error) { return c.Submit(t.Context(), someRefund) },
				"query by reference": func() (channel.Evidence, error) { return c.Query(t.Context(), known) },
				"query by number":    func() (channel.Evidence, error) { return c.Query(t.Context(), someRefund) },
			} {
				got, err := ask()
				require.NoError(t, err, call)
				assert.Equal(t, channel.OutcomeUnknown, got.Outcome, call)
				assert.Equal(t, "unreadable", got.Code, call)
				assert.NotEmpty(t, got.Detail, call)
			}
			_, err := c.List(t.Context(), "pi_1")
			assert.Error(t, err)
		})
	}
}

func TestC44_WhatTheSDKDoesNotKnowIsKept(t *testing.T) {
	c, _ := serveOne(t, 200, "application/json", "  "+object(map[string]any{"novelty": map[string]int{"a": 1}, "status": "held"}))
	got, err := c.Submit(t.Context(), someRefund)
	require.NoError(t, err)
	assert.Equal(t, "held", got.Code)
	assert.Contains(t, got.Detail, `"novelty":{"a":1}`)
}

// C47: the code in an error's body decides, and never its text.
func TestC47_ErrorsReachTheClassifier(t *testing.T) {
	for name, test := range map[string]struct {
		status  int
		fields  string
		outcome channel.Outcome
		code    string
	}{
		"no such payment intent": {404, `"type":"invalid_request_error","code":"resource_missing","param":"payment_intent"`, channel.OutcomeFailed, "resource_missing"},
		"no such charge":         {404, `"type":"invalid_request_error","code":"resource_missing","param":"charge"`, channel.OutcomeFailed, "resource_missing"},
		"something else missing": {404, `"type":"invalid_request_error","code":"resource_missing","param":"account"`, channel.OutcomeUnknown, "resource_missing"},
		"too much":               {400, `"type":"invalid_request_error","code":"amount_too_large","param":"amount"`, channel.OutcomeFailed, "amount_too_large"},
		"no integer":             {400, `"type":"invalid_request_error","code":"parameter_invalid_integer","param":"amount"`, channel.OutcomeFailed, "parameter_invalid_integer"},
		"charged back":           {400, `"type":"invalid_request_error","code":"charge_disputed"`, channel.OutcomeFailed, "charge_disputed"},
		"disputed":               {400, `"type":"invalid_request_error","code":"refund_disputed_payment"`, channel.OutcomeFailed, "refund_disputed_payment"},
		"too late":               {400, `"type":"invalid_request_error","code":"charge_not_refundable"`, channel.OutcomeFailed, "charge_not_refundable"},
		"fractions of a króna":   {400, `"type":"invalid_request_error","code":"invalid_charge_amount_no_decimal_compatible"`, channel.OutcomeFailed, "invalid_charge_amount_no_decimal_compatible"},
		"refusal with a 500":     {500, `"type":"invalid_request_error","code":"charge_disputed"`, channel.OutcomeUnknown, "charge_disputed"},
		"refusal of our server":  {400, `"type":"api_error","code":"charge_disputed"`, channel.OutcomeUnknown, "charge_disputed"},
		"refusal with a 429":     {429, `"type":"invalid_request_error","code":"amount_too_large"`, channel.OutcomeUnknown, "amount_too_large"},
		"a text and no code":     {400, `"type":"invalid_request_error","param":"amount","message":"Refund amount ($25.00) is greater than unrefunded amount on charge ($21.45)"`, channel.OutcomeUnknown, "http_400"},
		"a code in the text":     {400, `"type":"invalid_request_error","message":"charge_disputed"`, channel.OutcomeUnknown, "http_400"},
		"not just now":           {400, `"type":"invalid_request_error","code":"payment_intent_unexpected_state"`, channel.OutcomeUnknown, "payment_intent_unexpected_state"},
		"short of funds":         {400, `"type":"invalid_request_error","code":"balance_insufficient"`, channel.OutcomeUnknown, "balance_insufficient"},
		"key in use":             {409, `"type":"invalid_request_error","code":"idempotency_key_in_use"`, channel.OutcomeUnknown, "idempotency_key_in_use"},
		"key in use, 400":        {400, `"type":"idempotency_error","code":"idempotency_key_in_use"`, channel.OutcomeUnknown, "idempotency_key_in_use"},
		"key of another request": {400, `"type":"idempotency_error","message":"Keys for idempotent requests…"`, channel.OutcomeUnknown, "idempotency_error"},
		"idempotency beats code": {400, `"type":"idempotency_error","code":"parameter_missing"`, channel.OutcomeUnknown, "parameter_missing"},
		"rate limit":             {429, `"type":"invalid_request_error","code":"rate_limit"`, channel.OutcomeUnknown, "rate_limit"},
		"lock timeout":           {429, `"type":"invalid_request_error","code":"lock_timeout"`, channel.OutcomeUnknown, "lock_timeout"},
		"wrong key":              {401, `"type":"invalid_request_error","message":"Invalid API Key provided"`, channel.OutcomeUnknown, "http_401"},
		"expired key":            {401, `"type":"invalid_request_error","code":"api_key_expired"`, channel.OutcomeUnknown, "api_key_expired"},
		"no right":               {403, `"type":"invalid_request_error"`, channel.OutcomeUnknown, "http_403"},
		"live and test":          {400, `"type":"invalid_request_error","code":"livemode_mismatch"`, channel.OutcomeUnknown, "livemode_mismatch"},
		"server error":           {500, `"type":"api_error","message":"Sorry!"`, channel.OutcomeUnknown, "http_500"},
		"a code of tomorrow":     {400, `"type":"invalid_request_error","code":"moon_phase"`, channel.OutcomeUnknown, "moon_phase"},
		"an empty error":         {400, ``, channel.OutcomeUnknown, "http_400"},
	} {
		t.Run(name, func(t *testing.T) {
			fields := test.fields
			if fields != "" && !strings.Contains(fields, `"message"`) {
				fields += `,"message":"what it says"`
			}
			c, s := serveOne(t, test.status, "application/json", stripeError(fields))
			got, err := c.Submit(t.Context(), someRefund)
			require.NoError(t, err)
			assert.Equal(t, test.outcome, got.Outcome)
			assert.Equal(t, test.code, got.Code)
			assert.Equal(t, 1, got.Sends)
			assert.Len(t, s.asked(), 1, "the SDK must repeat nothing by itself")
			assert.Contains(t, got.Detail, fmt.Sprintf("HTTP %d", test.status))
			assert.Contains(t, got.Detail, "req_1")

			known := someRefund
			known.Reference = "re_1"
			looked, err := c.Query(t.Context(), known)
			require.NoError(t, err)
			want := channel.OutcomeUnknown
			if test.status == 404 {
				want = channel.OutcomeNotFound
			}
			assert.Equal(t, want, looked.Outcome, "a look-up is never refused for good")
			looked, err = c.Query(t.Context(), someRefund)
			require.NoError(t, err)
			assert.Equal(t, channel.OutcomeUnknown, looked.Outcome, "an account that does not know the payment proves nothing")
			assert.Equal(t, test.code, looked.Code)
		})
	}
}

func TestAnswersThatAreNoneOfStripes(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		code   string
	}{
		"a redirect":                {302, object(nil), "http_302"},
		"JSON without an error":     {500, `{"message":"upstream"}`, "http_500"},
		"an error that is a word":   {403, `{"error":"forbidden"}`, "http_403"},
		"an error that is null":     {503, `{"error":null}`, "http_503"},
		"nothing with a 504":        {504, ``, "http_504"},
		"HTML with a 404":           {404, `<html>no such page</html>`, "http_404"},
		"a refund in an error's":    {500, object(nil), "http_500"},
		"a charge_disputed in HTML": {400, `<html>charge_disputed</html>`, "http_400"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			known := someRefund
			known.Reference = "re_1"
			submitted, err := c.Submit(t.Context(), someRefund)
			require.NoError(t, err)
			queried, err := c.Query(t.Context(), known)
			require.NoError(t, err)
			for _, got := range []channel.Evidence{submitted, queried} {
				assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
				assert.Equal(t, test.code, got.Code)
			}
		})
	}
}

// C41: the payment is refunded, and only the refund that carries the number says by whom.
func TestC41_AlreadyRefundedIsLookedUp(t *testing.T) {
	for name, test := range map[string]struct {
		listStatus int
		list       string
		outcome    channel.Outcome
		code       string
		detail     string
	}{
		"by this number":        {200, page(false, numbered("re_9", "rf_9"), numbered("re_1", "rf_1")), channel.OutcomeSucceeded, "succeeded", "re_1"},
		"by this number, ended": {200, page(false, object(map[string]any{"status": "failed"})), channel.OutcomeFailed, "failed", "re_1"},
		"of another amount":     {200, page(false, object(map[string]any{"amount": 1})), channel.OutcomeSucceeded, "succeeded", "re_1"},
		"by another":            {200, page(false, numbered("re_9", "rf_9")), channel.OutcomeUnknown, "charge_already_refunded", "no_match"},
		"by nobody":             {200, page(false), channel.OutcomeUnknown, "charge_already_refunded", "no_match"},
		"twice":                 {200, page(false, numbered("re_1", "rf_1"), numbered("re_2", "rf_1")), channel.OutcomeUnknown, "charge_already_refunded", "several_matches: the number is carried by re_1, re_2"},
		"and no list":           {503, "<html>", channel.OutcomeUnknown, "charge_already_refunded", "http_503"},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					w.WriteHeader(test.listStatus)
					_, _ = io.WriteString(w, test.list)
					return
				}
				w.WriteHeader(400)
				_, _ = io.WriteString(w, stripeError(`"type":"invalid_request_error","code":"charge_already_refunded","message":"Charge ch_1 has already been refunded."`))
			})
			got, err := c.Submit(t.Context(), someRefund)
			require.NoError(t, err)
			assert.Equal(t, test.outcome, got.Outcome)
			assert.Equal(t, test.code, got.Code)
			assert.Contains(t, got.Detail, test.detail)
			assert.Equal(t, 1, got.Sends, "only what was submitted counts")
			assert.Len(t, s.asked(), 2)
			if name == "of another amount" {
				assert.Equal(t, int64(1), got.Amount, "for the caller to compare")
			}
		})
	}
}

func TestQueryByReference(t *testing.T) {
	c, s := serveOne(t, 200, "application/json", object(map[string]any{"status": "pending", "charge": "ch_7", "payment_intent": "pi_7"}))
	known := someRefund
	known.Reference = "re_1"
	got, err := c.Query(t.Context(), known)
	require.NoError(t, err)
	assert.Equal(t, channel.Evidence{
		Outcome: channel.OutcomePending, Number: "rf_1", Reference: "re_1", Payment: "pi_7", Amount: 1200, Currency: "usd",
		Code: "pending", Detail: got.Detail,
	}, got, "of another payment, for the caller to compare; and a look-up sends no refund")
	require.Len(t, s.asked(), 1)
	assert.Equal(t, "GET /v1/refunds/re_1", s.asked()[0].Method+" "+s.asked()[0].Path)
	assert.NotContains(t, s.asked()[0].Header, "Idempotency-Key")
}

func TestQueryOfAReferenceThatIsNoneOfStripes(t *testing.T) {
	c, s := serveOne(t, 200, "application/json", page(false, object(nil)))
	for _, reference := range []string{"../charges/ch_1", "re_1?expand[]=charge", strings.Repeat("r", 300)} {
		known := someRefund
		known.Reference = reference
		got, err := c.Query(t.Context(), known)
		require.NoError(t, err)
		assert.Equal(t, "re_1", got.Reference, "what the number finds")
	}
	for _, asked := range s.asked() {
		assert.Equal(t, "/v1/refunds", asked.Path)
	}
}

// paged answers a listing page by page, by the cursor.
func paged(pages ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		at := 0
		if after := r.URL.Query().Get("starting_after"); after != "" {
			for i, page := range pages {
				if strings.Contains(page, `"id":"`+after+`"`) {
					at = i + 1
				}
			}
		}
		if pages[at] == "" {
			w.WriteHeader(502)
		}
		_, _ = io.WriteString(w, pages[at])
	}
}

func TestQueryByNumberReadsEveryPage(t *testing.T) {
	for name, test := range map[string]struct {
		pages     []string
		outcome   channel.Outcome
		code      string
		reference string
		asked     int
	}{
		"on the last of three": {
			[]string{page(true, numbered("re_5", "rf_5")), page(true, numbered("re_4", "")), page(false, numbered("re_1", "rf_1"))},
			channel.OutcomeSucceeded, "succeeded", "re_1", 3,
		},
		"on the first of two": {
			[]string{page(true, numbered("re_1", "rf_1")), page(false, numbered("re_5", "rf_5"))},
			channel.OutcomeSucceeded, "succeeded", "re_1", 2,
		},
		"nowhere": {
			[]string{page(true, numbered("re_5", "rf_5")), page(false, numbered("re_4", "rf_11"))},
			channel.OutcomeNotFound, "no_match", "", 2,
		},
		"no refunds at all":   {[]string{page(false)}, channel.OutcomeNotFound, "no_match", "", 1},
		"an empty last page":  {[]string{page(true, numbered("re_5", "rf_5")), page(false)}, channel.OutcomeNotFound, "no_match", "", 2},
		"no metadata":         {[]string{page(false, object(map[string]any{"metadata": nil}))}, channel.OutcomeNotFound, "no_match", "", 1},
		"twice, pages apart":  {[]string{page(true, numbered("re_1", "rf_1")), page(false, numbered("re_2", "rf_1"))}, channel.OutcomeUnknown, "several_matches", "", 2},
		"the next page fails": {[]string{page(true, numbered("re_5", "rf_5")), ""}, channel.OutcomeUnknown, "http_502", "", 2},
		"found, and the next page fails": {
			[]string{page(true, numbered("re_1", "rf_1")), ""}, channel.OutcomeUnknown, "http_502", "", 2,
		},
		"more, and nothing in it": {[]string{page(true)}, channel.OutcomeUnknown, "unreadable", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := serve(t, paged(test.pages...))
			got, err := c.Query(t.Context(), someRefund)
			require.NoError(t, err)
			assert.Equal(t, test.outcome, got.Outcome)
			assert.Equal(t, test.code, got.Code)
			assert.Equal(t, test.reference, got.Reference)
			assert.Zero(t, got.Sends)
			require.Len(t, s.asked(), test.asked)
			for _, asked := range s.asked() {
				assert.Equal(t, "GET /v1/refunds", asked.Method+" "+asked.Path)
				assert.Equal(t, "pi_1", asked.Query.Get("payment_intent"))
				assert.Equal(t, "100", asked.Query.Get("limit"))
			}
		})
	}
}

func TestAListingThatNeverEndsIsGivenUp(t *testing.T) {
	t.Run("the same page", func(t *testing.T) {
		c, s := serveOne(t, 200, "application/json", page(true, numbered("re_5", "rf_5")))
		got, err := c.Query(t.Context(), someRefund)
		require.NoError(t, err)
		assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
		assert.Equal(t, "unreadable", got.Code)
		assert.Len(t, s.asked(), 2)
	})
	t.Run("ever new ones", func(t *testing.T) {
		c, s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, page(true, numbered("x"+r.URL.Query().Get("starting_after"), "rf_5")))
		})
		got, err := c.Query(t.Context(), someRefund)
		require.NoError(t, err)
		assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
		assert.Equal(t, "too_many", got.Code)
		assert.Len(t, s.asked(), maxPages)
	})
}

func TestListIsComplete(t *testing.T) {
	c, s := serve(t, paged(
		page(true, numbered("re_1", "rf_1"), object(map[string]any{"id": "re_2", "metadata": map[string]string{"other": "x"}, "status": "pending"})),
		page(false, object(map[string]any{"id": "re_3", "metadata": nil, "status": "canceled", "amount": 5})),
	))
	got, err := c.List(t.Context(), "ch_1")
	require.NoError(t, err)
	require.Len(t, got, 3)
	for i, want := range []channel.Evidence{
		{Outcome: channel.OutcomeSucceeded, Number: "rf_1", Reference: "re_1", Amount: 1200, Code: "succeeded"},
		{Outcome: channel.OutcomePending, Reference: "re_2", Amount: 1200, Code: "pending"},
		{Outcome: channel.OutcomeFailed, Reference: "re_3", Amount: 5, Code: "canceled"},
	} {
		want.Payment, want.Currency, want.Detail = "ch_1", "usd", got[i].Detail
		assert.Equal(t, want, got[i])
		assert.Contains(t, got[i].Detail, want.Reference, "each its own text")
	}
	assert.Equal(t, "ch_1", s.asked()[0].Query.Get("charge"))

	c, _ = serve(t, paged(page(true, numbered("re_1", "rf_1")), ""))
	got, err = c.List(t.Context(), "ch_1")
	assert.ErrorContains(t, err, "http_502")
	assert.Nil(t, got, "half a list is none")
}

func TestKeysAreNeverShown(t *testing.T) {
	silent := captureOutput(t)
	for name, test := range map[string]struct {
		status int
		body   func(r *http.Request) string
	}{
		"echoed in HTML": {502, func(r *http.Request) string { return "<p>" + r.Header.Get("Authorization") + "</p>" }},
		"echoed in JSON": {401, func(*http.Request) string { return stripeError(`"message":"Invalid API Key: ` + testKey + `"`) }},
		"echoed in a refund": {200, func(*http.Request) string {
			return object(map[string]any{"description": testKey + testSecret})
		}},
		"around the limit": {500, func(*http.Request) string { return strings.Repeat("x", channel.MaxDetail-10) + testKey }},
		"all over":         {500, func(*http.Request) string { return strings.Repeat(testKey, 5000) }},
		"a client secret": {402, func(*http.Request) string {
			return stripeError(`"type":"card_error","code":"card_declined","payment_intent":{"id":"pi_1","client_secret":"pi_1_secret_9"}`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body(r))
			})
			known := someRefund
			known.Reference = "re_1"
			submitted, err := c.Submit(t.Context(), someRefund)
			require.NoError(t, err)
			queried, err := c.Query(t.Context(), known)
			require.NoError(t, err)
			for _, got := range []channel.Evidence{submitted, queried} {
				assertKeepable(t, got.Detail)
				for _, secret := range []string{testKey[:12], testSecret[:12], "pi_1_secret"} {
					assert.NotContains(t, got.Detail+got.Code, secret)
				}
			}
			_, err = c.List(t.Context(), "pi_1")
			assert.Error(t, err)
			assert.NotContains(t, err.Error(), testKey[:12])
		})
	}
	assert.Empty(t, silent(), "the SDK must not log")
}

// captureOutput takes what is written to the standard streams until the returned function is called.
func captureOutput(t *testing.T) func() string {
	t.Helper()
	path := t.TempDir() + "/output"
	file, err := os.Create(path)
	require.NoError(t, err)
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = file, file
	restore := func() { os.Stdout, os.Stderr = stdout, stderr }
	t.Cleanup(restore)
	return func() string {
		restore()
		require.NoError(t, file.Close())
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
}

func TestCapabilities(t *testing.T) {
	c, err := New(Options{APIKey: testKey})
	require.NoError(t, err)
	got := c.Capabilities()
	assert.Equal(t, "stripe", got.Kind)
	assert.Equal(t, 24*time.Hour, got.IdempotencyLife)
	assert.True(t, got.QueryByNumber)
	assert.True(t, got.Reversible)
	assert.LessOrEqual(t, got.MinSpacing, got.Poll[0])
	assert.Less(t, got.FirstQuery, got.IdempotencyLife, "a number that never arrived can be sent again")
	got.Currencies["usd"] = 7
	assert.Equal(t, 2, c.Capabilities().Currencies["usd"], "nobody can change what is declared")
}

func TestCurrencies(t *testing.T) {
	count := map[int]int{}
	for code, exponent := range currencies {
		assert.Regexp(t, "^[a-z]{3}$", code)
		count[exponent]++
	}
	assert.Equal(t, map[int]int{0: 15, 2: 125, 3: 5}, count)
	for code, exponent := range map[string]int{
		"usd": 2, "eur": 2, "jpy": 0, "krw": 0, "mga": 0, "isk": 2, "ugx": 2, "huf": 2, "twd": 2, "kwd": 3, "bhd": 3, "tnd": 3,
	} {
		assert.Equal(t, exponent, currencies[code], code)
	}
}
