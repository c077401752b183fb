package stripe

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

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
		"twice": {200, page(false, numbered("re_1", "rf_1"), numbered("re_2", "rf_1")), channel.OutcomeUnknown,
			"charge_already_refunded", "several_matches: the number is carried by re_1, re_2"},
		"and no list": {503, "<html>", channel.OutcomeUnknown, "charge_already_refunded", "http_503"},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					w.WriteHeader(test.listStatus)
					_, _ = io.WriteString(w, test.list)
					return
				}
				w.WriteHeader(400)
				_, _ = io.WriteString(w, stripeError(
					`"type":"invalid_request_error","code":"charge_already_refunded","message":"Charge ch_1 has been refunded."`))
			})
			got, err := c.Submit(t.Context(), someRefund)
			require.NoError(t, err)
			assert.Equal(t, test.outcome, got.Outcome)
			assert.Equal(t, test.code, got.Code)
			assert.Contains(t, got.Detail, test.detail)
			assert.Equal(t, test.listStatus == 200 && got.Outcome == channel.OutcomeUnknown, got.Elsewhere)
			assert.Equal(t, 1, got.Sends, "only what was submitted counts")
			assert.Len(t, s.asked(), 2)
			if name == "of another amount" {
				assert.Equal(t, int64(1), got.Amount, "for the caller to compare")
			}
		})
	}
}

func TestQueryByReference(t *testing.T) {
	c, s := serveOne(t, 200, "application/json", object(map[string]any{
		"status": "pending", "charge": "ch_7", "payment_intent": "pi_7",
	}))
	known := someRefund
	known.Reference = "re_1"
	got, err := c.Query(t.Context(), known)
	require.NoError(t, err)
	assert.Equal(t, channel.Evidence{
		Outcome: channel.OutcomePending, Number: "rf_1", Reference: "re_1", Payment: "pi_7", PaymentAlias: "ch_7", Amount: 1200, Currency: "usd",
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
		"no refunds at all":  {[]string{page(false)}, channel.OutcomeNotFound, "no_match", "", 1},
		"an empty last page": {[]string{page(true, numbered("re_5", "rf_5")), page(false)}, channel.OutcomeNotFound, "no_match", "", 2},
		"no metadata":        {[]string{page(false, object(map[string]any{"metadata": nil}))}, channel.OutcomeNotFound, "no_match", "", 1},
		"twice, pages apart": {
			[]string{page(true, numbered("re_1", "rf_1")), page(false, numbered("re_2", "rf_1"))},
			channel.OutcomeUnknown, "several_matches", "", 2,
		},
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
		page(true, numbered("re_1", "rf_1"),
			object(map[string]any{"id": "re_2", "metadata": map[string]string{"other": "x"}, "status": "pending"})),
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
