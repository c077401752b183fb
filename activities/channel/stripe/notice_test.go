package stripe

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/reclaimhq/reclaim/activities/channel"
)

var received = time.Unix(1700000000, 0)

func signature(body string, at time.Time, secret string) string {
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(webhook.ComputeSignature(at, []byte(body), secret)))
}

func signed(signature string) http.Header { return http.Header{"Stripe-Signature": {signature}} }

func event(kind, version, object string) string {
	return fmt.Sprintf(`{"id":"evt_1","object":"event","api_version":%s,"created":1699999990,"type":%q,"data":{"object":%s},
		"livemode":false,"pending_webhooks":1,"request":{"id":"req_1","idempotency_key":"rf_1"}}`, version, kind, object)
}

var ownVersion = `"` + sdk.APIVersion + `"`

func parse(t *testing.T, body string) (channel.Notice, error) {
	t.Helper()
	c, err := New(Options{APIKey: testKey, WebhookSecrets: []string{testSecret}})
	require.NoError(t, err)
	return c.ParseNotice(signed(signature(body, received, testSecret)), []byte(body), received)
}

func TestARefundsEventSaysItsStatus(t *testing.T) {
	for name, test := range map[string]struct {
		kind    string
		changes map[string]any
		outcome channel.Outcome
		code    string
	}{
		"created":                 {"refund.created", map[string]any{"status": "pending"}, channel.OutcomePending, "pending"},
		"created, and done":       {"refund.created", nil, channel.OutcomeSucceeded, "succeeded"},
		"updated":                 {"refund.updated", nil, channel.OutcomeSucceeded, "succeeded"},
		"C23 updated to canceled": {"refund.updated", map[string]any{"status": "canceled"}, channel.OutcomeFailed, "canceled"},
		"failed": {"refund.failed", map[string]any{"status": "failed", "failure_reason": "unknown"},
			channel.OutcomeFailed, "failed:unknown"},
		"failed in name only": {"refund.failed", map[string]any{"status": "pending"}, channel.OutcomePending, "pending"},
		"of old":              {"charge.refund.updated", map[string]any{"status": nil}, channel.OutcomePending, "status_null"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(t, event(test.kind, ownVersion, object(test.changes)))
			require.NoError(t, err)
			require.NotNil(t, got.Evidence)
			assert.Equal(t, channel.Notice{ID: "evt_1", Type: test.kind, Evidence: &channel.Evidence{
				Outcome: test.outcome, Number: "rf_1", Reference: "re_1", Payment: "pi_1", PaymentAlias: "ch_1", Amount: 1200, Currency: "usd",
				Code: test.code, Detail: got.Evidence.Detail, ObservedAt: time.Unix(1699999990, 0).UTC(),
			}}, got)
		})
	}
}

func TestANoticeNamesThePaymentAsItWasAskedFor(t *testing.T) {
	for asked, want := range map[string][2]string{
		"": {"pi_1", "ch_1"}, "pi_1": {"pi_1", ""}, "ch_1": {"ch_1", ""}, "ch_2": {"pi_1", "ch_1"},
	} {
		got, err := parse(t, event("refund.updated", ownVersion,
			object(map[string]any{"metadata": map[string]string{"reclaim_payment": asked}})))
		require.NoError(t, err)
		assert.Equal(t, want, [2]string{got.Evidence.Payment, got.Evidence.PaymentAlias}, asked)
	}
	got, err := parse(t, event("refund.updated", ownVersion, object(map[string]any{"payment_intent": nil})))
	require.NoError(t, err)
	assert.Equal(t, "ch_1", got.Evidence.Payment)
	got, err = parse(t, event("refund.updated", ownVersion,
		object(map[string]any{"charge": json.RawMessage(`{"id":"ch_7","object":"charge"}`), "payment_intent": nil})))
	require.NoError(t, err)
	assert.Equal(t, "ch_7", got.Evidence.Payment, "expanded")
}

func TestOtherEventsAreAcknowledged(t *testing.T) {
	for _, kind := range []string{"charge.refunded", "charge.succeeded", "payout.paid", "refund.tomorrow"} {
		for _, about := range []string{`{"id":"ch_1","object":"charge","refunds":{"data":[` + object(nil) + `]}}`, `null`, `{}`} {
			got, err := parse(t, event(kind, `"1999-01-01"`, about))
			require.NoError(t, err)
			assert.Equal(t, channel.Notice{ID: "evt_1", Type: kind}, got)
		}
	}
}

func TestEventsOfOtherReleases(t *testing.T) {
	for name, test := range map[string]struct {
		version, object, code string
	}{
		"ours":                     {ownVersion, object(nil), ""},
		"the same train":           {`"2026-09-30.dahlia"`, object(nil), ""},
		"a later train, the shape": {`"2031-01-01.zinnia"`, object(nil), ""},
		"before there were trains": {`"2014-01-31"`, object(nil), ""},
		"none named":               {`null`, object(nil), ""},
		"a later train, no shape": {`"2031-01-01.zinnia"`, `{"id":"re_1","object":"refund","value":{"minor":1200}}`,
			channel.NoticeOtherRelease},
		"a later train, other types": {`"2031-01-01.zinnia"`, `{"id":"re_1","object":"refund","amount":"12.00","currency":"usd"}`,
			channel.NoticeOtherRelease},
		"a later train, an id": {`"2031-01-01.zinnia"`, `"re_1"`, channel.NoticeOtherRelease},
		"none named, no shape": {`null`, `{"id":"re_1","object":"refund"}`, channel.NoticeOtherRelease},
		"ours, no shape":       {ownVersion, `{"id":"re_1","object":"refund"}`, channel.NoticeMalformed},
		"ours, another object": {ownVersion, `{"id":"ch_1","object":"charge","amount":1,"currency":"usd"}`, channel.NoticeMalformed},
		"ours, no object":      {ownVersion, `null`, channel.NoticeMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(t, event("refund.updated", test.version, test.object))
			if test.code == "" {
				require.NoError(t, err)
				assert.Equal(t, "re_1", got.Evidence.Reference)
				return
			}
			assertRefused(t, err, test.code)
			assert.Zero(t, got)
			if test.code == channel.NoticeOtherRelease {
				assert.ErrorContains(t, err, sdk.APIVersion, "the reason says what is read")
			}
		})
	}
}

func assertRefused(t *testing.T, err error, code string) {
	t.Helper()
	refused, ok := errors.AsType[*channel.NoticeError](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, code, refused.Code)
	assert.NotEmpty(t, refused.Reason)
	assert.NotContains(t, refused.Reason, testSecret)
}

func TestBodiesThatAreNoEvent(t *testing.T) {
	for name, test := range map[string]struct{ body, code string }{
		"nothing":        {"", channel.NoticeMalformed},
		"no JSON":        {"<html>", channel.NoticeMalformed},
		"null":           {"null", channel.NoticeMalformed},
		"a list":         {"[]", channel.NoticeMalformed},
		"another object": {object(nil), channel.NoticeMalformed},
		"no id":          {`{"object":"event","type":"refund.updated"}`, channel.NoticeMalformed},
		"two events":     {event("payout.paid", ownVersion, "{}") + event("payout.paid", ownVersion, "{}"), channel.NoticeMalformed},
		"a thin event":   {`{"id":"evt_1","object":"v2.core.event","type":"v1.refund.updated"}`, channel.NoticeOtherRelease},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, test.body)
			assertRefused(t, err, test.code)
		})
	}
}

// C46: the signature is over the raw body and its time, by a secret of ours, and both its age and its youth are bounded.
func TestC46_Signatures(t *testing.T) {
	body := event("refund.updated", ownVersion, object(nil))
	old, next := "whsec_old", testSecret
	c, err := New(Options{APIKey: testKey, WebhookSecrets: []string{old, next}})
	require.NoError(t, err)
	good := signature(body, received, next)
	v1 := func(body, secret string) string { return strings.SplitN(signature(body, received, secret), ",", 2)[1] }
	at := func(shift time.Duration) string { return signature(body, received.Add(shift), next) }
	var again map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &again))
	encodedAgain, err := json.Marshal(again)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		signature, body, code string
	}{
		"right":                        {good, body, ""},
		"by the secret that is rolled": {signature(body, received, old), body, ""},
		"several, one of them right": {
			fmt.Sprintf("t=%d,v1=00,%s,%s,v0=ff", received.Unix(), v1(body, "whsec_other"), v1(body, next)), body, ""},
		"not hexadecimal, then right": {fmt.Sprintf("t=%d,v1=zz,%s", received.Unix(), v1(body, next)), body, ""},
		"5 minutes old":               {at(-5 * time.Minute), body, ""},
		"5 minutes ahead":             {at(5 * time.Minute), body, ""},
		"6 minutes old":               {at(-6 * time.Minute), body, channel.NoticeStale},
		"6 minutes ahead":             {at(6 * time.Minute), body, channel.NoticeStale},
		"from the beginning of time":  {signature(body, time.Unix(0, 0), next), body, channel.NoticeStale},
		"from its end":                {signature(body, time.Unix(1<<62, 0), next), body, channel.NoticeStale},
		"old, and another's":          {signature(body, received.Add(-time.Hour), "whsec_other"), body, channel.NoticeBadSignature},
		"missing":                     {"", body, channel.NoticeBadSignature},
		"of an unknown secret":        {signature(body, received, "whsec_other"), body, channel.NoticeBadSignature},
		"of no secret":                {signature(body, received, ""), body, channel.NoticeBadSignature},
		"of a body encoded anew":      {good, string(encodedAgain), channel.NoticeBadSignature},
		"of a body with a blank more": {good, body + " ", channel.NoticeBadSignature},
		"of another time":             {fmt.Sprintf("t=%d,%s", received.Unix()+1, v1(body, next)), body, channel.NoticeBadSignature},
		"without a time":              {v1(body, next), body, channel.NoticeBadSignature},
		"with two times": {
			fmt.Sprintf("t=%d,t=%d,%s", received.Unix()-900, received.Unix(), v1(body, next)), body, channel.NoticeBadSignature},
		"of another scheme": {strings.Replace(good, "v1=", "v0=", 1), body, channel.NoticeBadSignature},
		"without a scheme":  {fmt.Sprintf("t=%d", received.Unix()), body, channel.NoticeBadSignature},
		"noise":             {"=,==,t=,v1", body, channel.NoticeBadSignature},
		"too large":         {good, strings.Repeat("x", maxNotice+1), channel.NoticeTooLarge},
		"almost too large": {
			signature(strings.Repeat("x", maxNotice), received, next), strings.Repeat("x", maxNotice), channel.NoticeMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.ParseNotice(signed(test.signature), []byte(test.body), received)
			if test.code == "" {
				require.NoError(t, err)
				assert.Equal(t, "evt_1", got.ID)
				return
			}
			assertRefused(t, err, test.code)
			assert.Zero(t, got)
		})
	}
	none, err := New(Options{APIKey: testKey})
	require.NoError(t, err)
	_, err = none.ParseNotice(signed(signature(body, received, "")), []byte(body), received)
	assertRefused(t, err, channel.NoticeBadSignature)
}

func FuzzParseNotice(f *testing.F) {
	good := event("refund.updated", ownVersion, object(nil))
	f.Add(signature(good, received, testSecret), []byte(good), true)
	f.Add("t=1,v1=00,v1=", []byte(`{}`), false)
	f.Add("", []byte(event("refund.failed", `"2014-01-31"`, `{"object":"refund","id":"re_1","amount":1e3}`)), true)
	f.Add("", []byte(event("charge.refund.updated", `null`,
		`{"object":"refund","id":"re_1","amount":1,"currency":"\u0000","status":"\ud800"}`)), true)
	c, err := New(Options{APIKey: testKey, WebhookSecrets: []string{testSecret}})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, header string, body []byte, sign bool) {
		if sign {
			header = signature(string(body), received, testSecret)
		}
		got, err := c.ParseNotice(signed(header), body, received)
		if err != nil {
			refused, ok := errors.AsType[*channel.NoticeError](err)
			if !ok || refused.Code == "" || got.ID != "" || got.Evidence != nil {
				t.Fatalf("%v with %+v", err, got)
			}
			if sign && refused.Code == channel.NoticeBadSignature {
				t.Fatalf("a right signature is refused: %v", err)
			}
			return
		}
		if webhook.ValidatePayloadIgnoringTolerance(body, header, testSecret) != nil {
			t.Fatal("a wrong signature went through")
		}
		if got.ID == "" || got.Type == "" {
			t.Fatalf("an event without id or type: %+v", got)
		}
		if e := got.Evidence; e != nil && (e.Reference == "" || e.Amount < 1 || e.Currency == "" || e.Outcome == channel.OutcomeUnknown ||
			len(e.Detail) > channel.MaxDetail || !utf8.ValidString(e.Detail) || len(e.Code) > maxCode) {
			t.Fatalf("evidence that proves nothing, or cannot be kept: %+v", e)
		}
	})
}
