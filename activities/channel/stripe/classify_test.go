package stripe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "github.com/stripe/stripe-go/v85"

	"github.com/reclaimhq/reclaim/activities/channel"
)

// C22 and C23: a refund's own status decides, and none but failed and canceled ends it without effect.
func TestC22_C23_Statuses(t *testing.T) {
	for name, test := range map[string]struct {
		changes map[string]any
		outcome channel.Outcome
		code    string
	}{
		"pending": {map[string]any{"status": "pending"}, channel.OutcomePending, "pending"},
		"short of funds": {map[string]any{"status": "pending", "pending_reason": "insufficient_funds"},
			channel.OutcomePending, "pending"},
		"requires_action": {map[string]any{"status": "requires_action"}, channel.OutcomePending, "requires_action"},
		"succeeded":       {nil, channel.OutcomeSucceeded, "succeeded"},
		"failed":          {map[string]any{"status": "failed"}, channel.OutcomeFailed, "failed"},
		"failed, with why": {map[string]any{"status": "failed", "failure_reason": "lost_or_stolen_card"},
			channel.OutcomeFailed, "failed:lost_or_stolen_card"},
		"canceled": {map[string]any{"status": "canceled"}, channel.OutcomeFailed, "canceled"},
		"canceled, with why": {map[string]any{"status": "canceled", "failure_reason": "merchant_request"},
			channel.OutcomeFailed, "canceled:merchant_request"},
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
		"a list of nulls": `{"object":"list","data":[null],"has_more":true}`,
		"a list of ids":   `{"object":"list","data":["re_1"],"has_more":false}`,
		"no has_more":     `{"object":"list","data":[]}`, "half an answer": `{"object":"list","data":[`,
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
	const request, key, server = "invalid_request_error", "idempotency_error", "api_error"
	for name, test := range map[string]struct {
		status                int
		kind, code, parameter string
		message               string
		outcome               channel.Outcome
		// word is the evidence's code where that is not the error's.
		word string
	}{
		"no such payment intent": {404, request, "resource_missing", "payment_intent", "", channel.OutcomeFailed, ""},
		"no such charge":         {404, request, "resource_missing", "charge", "", channel.OutcomeFailed, ""},
		"something else missing": {404, request, "resource_missing", "account", "", channel.OutcomeUnknown, ""},
		"too much":               {400, request, "amount_too_large", "amount", "", channel.OutcomeFailed, ""},
		"no integer":             {400, request, "parameter_invalid_integer", "amount", "", channel.OutcomeFailed, ""},
		"charged back":           {400, request, "charge_disputed", "", "", channel.OutcomeFailed, ""},
		"disputed":               {400, request, "refund_disputed_payment", "", "", channel.OutcomeFailed, ""},
		"too late":               {400, request, "charge_not_refundable", "", "", channel.OutcomeFailed, ""},
		"half a króna":           {400, request, "invalid_charge_amount_no_decimal_compatible", "", "", channel.OutcomeFailed, ""},
		"refused with a 500":     {500, request, "charge_disputed", "", "", channel.OutcomeUnknown, ""},
		"refused with a 429":     {429, request, "amount_too_large", "", "", channel.OutcomeUnknown, ""},
		"refused by the server":  {400, server, "charge_disputed", "", "", channel.OutcomeUnknown, ""},
		"more than is left, which has no code": {400, request, "", "amount",
			"Refund amount ($25.00) is greater than unrefunded amount on charge ($21.45)", channel.OutcomeFailed, "http_400"},
		"a text and no code": {400, request, "", "", "Refund amount ($25.00) is greater than unrefunded amount",
			channel.OutcomeUnknown, "http_400"},
		"a code in the text":     {400, request, "", "", "charge_disputed", channel.OutcomeUnknown, "http_400"},
		"not just now":           {400, request, "payment_intent_unexpected_state", "", "", channel.OutcomeUnknown, ""},
		"short of funds":         {400, request, "balance_insufficient", "", "", channel.OutcomeUnknown, ""},
		"key in use":             {409, request, "idempotency_key_in_use", "", "", channel.OutcomeUnknown, ""},
		"key in use, 400":        {400, key, "idempotency_key_in_use", "", "", channel.OutcomeUnknown, ""},
		"key of another request": {400, key, "", "", "", channel.OutcomeUnknown, "idempotency_error"},
		"key beats code":         {400, key, "parameter_missing", "", "", channel.OutcomeUnknown, ""},
		"rate limit":             {429, request, "rate_limit", "", "", channel.OutcomeUnknown, ""},
		"lock timeout":           {429, request, "lock_timeout", "", "", channel.OutcomeUnknown, ""},
		"wrong API key":          {401, request, "", "", "Invalid API Key provided", channel.OutcomeUnknown, "http_401"},
		"expired API key":        {401, request, "api_key_expired", "", "", channel.OutcomeUnknown, ""},
		"no right":               {403, request, "", "", "", channel.OutcomeUnknown, "http_403"},
		"live and test":          {400, request, "livemode_mismatch", "", "", channel.OutcomeUnknown, ""},
		"server error":           {500, server, "", "", "Sorry!", channel.OutcomeUnknown, "http_500"},
		"a code of tomorrow":     {400, request, "moon_phase", "", "", channel.OutcomeUnknown, ""},
		"an empty error":         {400, "", "", "", "", channel.OutcomeUnknown, "http_400"},
	} {
		t.Run(name, func(t *testing.T) {
			word := cmp.Or(test.word, test.code)
			body := stripeError(fmt.Sprintf(`"type":%q,"code":%q,"param":%q,"message":%q`, test.kind, test.code, test.parameter, test.message))
			c, s := serveOne(t, test.status, "application/json", body)
			got, err := c.Submit(t.Context(), someRefund)
			require.NoError(t, err)
			assert.Equal(t, test.outcome, got.Outcome)
			assert.Equal(t, word, got.Code)
			assert.Equal(t, 1, got.Sends)
			assert.Len(t, s.asked(), 1, "the SDK must repeat nothing by itself")
			for _, part := range []string{fmt.Sprintf("HTTP %d", test.status), "req_1", test.kind, test.parameter, test.message} {
				assert.Contains(t, got.Detail, part)
			}

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
			assert.Equal(t, word, looked.Code)
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

func TestACustomersAddressIsNotKept(t *testing.T) {
	raw := compact([]byte(`{"id":"re_1", "instructions_email":"ann+\"x\"@example.com","status":"pending"}`))
	assert.Equal(t, `{"id":"re_1","instructions_email":"(left out)","status":"pending"}`,
		personal.ReplaceAllString(raw, `"instructions_email":"(left out)"`))
}
