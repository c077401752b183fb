package stripe

import (
	"context"
	"errors"
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
	assert.Equal(t, map[int]int{0: 15, 2: 123, 3: 5}, count)
	for code, exponent := range map[string]int{
		"usd": 2, "eur": 2, "jpy": 0, "krw": 0, "mga": 0, "isk": 2, "ugx": 2, "huf": 2, "twd": 2, "kwd": 3, "bhd": 3, "tnd": 3,
	} {
		assert.Equal(t, exponent, currencies[code], code)
	}
}
