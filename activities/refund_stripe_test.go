package activities_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/activities/channel/stripe"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	stripeKey    = "sk_test_activities"
	stripeSecret = "whsec_activities"
)

// newStripeWorld gives a world whose order was paid through the real adapter of Stripe, in front of a far end at the URL.
func newStripeWorld(t *testing.T, url string, transport http.RoundTripper) (w *world, r *activities.Refunds, orderID string) {
	t.Helper()
	far, err := stripe.New(stripe.Options{
		APIKey: stripeKey, WebhookSecrets: []string{stripeSecret}, BaseURL: url, Transport: transport,
	})
	require.NoError(t, err)
	w = newWorld(t, 4)
	orderID = w.order(account, 1_000_000, 1_000_000)
	_, err = w.admin.Exec(t.Context(), "UPDATE reclaim.orders SET channel_payment_id = $1", intent(orderID))
	require.NoError(t, err)
	return w, w.through(far), orderID
}

// intent is Stripe's id of an order's payment.
func intent(orderID string) string { return "pi_" + orderID }

// C16: the client waits no longer, while the channel has made the refund: that is no failure, whatever the wait was worth.
func TestC16_AClientThatTimedOutReleasesNothingAndTheWebhookSettles(t *testing.T) {
	t.Parallel()
	type mail struct {
		header http.Header
		body   []byte
	}
	mails := make(chan mail, 8)
	box := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		mails <- mail{r.Header, body}
	}))
	t.Cleanup(box.Close)
	far, err := simulator.Start(simulator.Options{APIKey: stripeKey, WebhookSecret: stripeSecret, WebhookURL: box.URL})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, far.Close()) })
	w, r, orderID := newStripeWorld(t, far.URL(), &http.Transport{ResponseHeaderTimeout: 200 * time.Millisecond})
	require.NoError(t, far.AddPayment(simulator.Payment{Intent: intent(orderID), Amount: 1_000_000, Currency: "eur"}))
	key := w.accepted(orderID, 10, 4)
	far.Script(key.RefundID, simulator.Script{Create: []simulator.Fault{{Kind: simulator.FaultHang, Applied: true}}})

	answer, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundUnknown, answer.Row.State)
	assert.Equal(t, stripe.CodeTimeout, answer.Row.LastCode)
	var told mail
	select {
	case told = <-mails:
	case <-time.After(patience):
		t.Fatal("the channel never told of the refund")
	}
	assert.Equal(t, int64(10), far.MovedFor(key.RefundID), "the money is gone")
	_, err = follow(w, r, key, contract.RefundUnknown)
	requireNotDue(t, err, time.Minute)
	assert.Equal(t, moneyOf{"unknown", []string{"payout -4"}, [4]int64{10, 0, 4, 0}, 1_000_000 - 4}, w.moneyOf(key))
	assert.False(t, w.refund(key).NeedsReview, "a person need not look yet")

	taken, err := r.TakeNotice(t.Context(), bankName, told.header, told.body, time.Now())
	require.NoError(t, err)
	assert.Equal(t, key, taken.Refund)
	assert.Equal(t, activities.AppliedEvidence{Verdict: activities.Applied, State: contract.RefundSucceeded}, taken.Applied)
	assert.Equal(t, moneyOf{"succeeded", []string{"payout -4"}, [4]int64{0, 10, 0, 4}, 1_000_000 - 4}, w.moneyOf(key))
	answer, err = follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundSucceeded, answer.Row.State)
	assert.Equal(t, []string{
		"accept >accepted accepted", "send accepted>unknown sending", "create unknown>unknown unknown",
		"notice unknown>succeeded succeeded",
	}, w.events(key))
	assert.Equal(t, [2]int{1, 1}, [2]int{far.Sends(key.RefundID), far.Applied(key.RefundID)}, "sent once, made once")
	assert.Empty(t, w.issues(tenant, key.RefundID))
	w.assertRefundsSound()
}

// stripeRefund is a refund as Stripe shows it; every refund there has an id of its own.
func stripeRefund(id, number, orderID string, amount int64) string {
	return fmt.Sprintf(`{"id":%q,"object":"refund","amount":%d,"currency":"eur","payment_intent":%q,"created":1782900000,
		"status":"succeeded","metadata":{"reclaim_refund":%q}}`, id, amount, intent(orderID), number)
}

// C41: the payment was refunded already, and only its list of refunds says whether it was this one that did it.
func TestC41_APaymentThatIsRefundedAlready(t *testing.T) {
	t.Parallel()
	var listed atomic.Pointer[string]
	far := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		answer.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(answer, *listed.Load())
			return
		}
		answer.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(answer, `{"error":{"type":"invalid_request_error","code":"charge_already_refunded","message":"It was."}}`)
	}))
	t.Cleanup(far.Close)
	w, r, orderID := newStripeWorld(t, far.URL, nil)
	list := func(refunds ...string) string {
		return `{"object":"list","url":"/v1/refunds","has_more":false,"data":[` + strings.Join(refunds, ",") + `]}`
	}
	for _, test := range []struct {
		name  string
		list  func(number string) string
		issue string
		// sends is how often it is sent in the end: again where nothing is listed under its number.
		sends int32
	}{
		{"by this number", func(number string) string {
			return list(stripeRefund("re_9", "rf_9", orderID, 10), stripeRefund("re_1_"+number, number, orderID, 10))
		}, "", 1},
		{"by nobody that is listed", func(string) string { return list() }, "refunded_elsewhere", 4},
		{"by another number", func(string) string { return list(stripeRefund("re_9", "rf_9", orderID, 10)) }, "refunded_elsewhere", 4},
		{"by this number twice", func(number string) string {
			return list(stripeRefund("re_1_"+number, number, orderID, 10), stripeRefund("re_2_"+number, number, orderID, 10))
		}, "refunded_elsewhere", 1},
		{"by this number over another amount", func(number string) string {
			return list(stripeRefund("re_1_"+number, number, orderID, 11))
		}, "evidence_mismatch", 1},
		{"and the list cannot be read", func(string) string { return "<html>" }, "", 1},
	} {
		key := w.accepted(orderID, 10, 4)
		before := w.moneyOf(key)
		listed.Store(new(test.list(key.RefundID)))
		answer, err := follow(w, r, key, contract.RefundAccepted)
		require.NoError(t, err, test.name)
		if test.name == "by this number" {
			assert.Equal(t, contract.RefundSucceeded, answer.Row.State, test.name)
			assert.Equal(t, "re_1_"+key.RefundID, answer.Row.ChannelRef, test.name)
			assert.Empty(t, w.issues(tenant, key.RefundID), test.name)
			continue
		}
		before.state = "unknown"
		open := []string{}
		if test.issue != "" {
			open = []string{test.issue}
		}
		stands := func(when string) {
			t.Helper()
			assert.Equal(t, before, w.moneyOf(key), "%s, %s: nothing is settled or released", test.name, when)
			assert.Equal(t, open, w.issues(tenant, key.RefundID), "%s, %s", test.name, when)
			assert.Equal(t, test.issue != "", w.refund(key).NeedsReview, "%s, %s", test.name, when)
			assert.Empty(t, w.refund(key).ChannelRef, "%s, %s: none is known to be this refund's", test.name, when)
		}
		assert.Equal(t, test.issue != "", answer.Row.NeedsReview, "%s: its run is told at once", test.name)
		stands("at once")
		// It is looked up and, where it is not found, sent again: the answer is the same, and opens no second issue.
		for range 3 {
			w.age(key, time.Hour)
			_, err = follow(w, r, key, contract.RefundUnknown)
			requireErrorType(t, err, activities.ErrorNotDue, true)
			stands("once more")
		}
		assert.Equal(t, test.sends, w.refund(key).SendCount, test.name)
		if test.issue == "refunded_elsewhere" {
			assert.Contains(t, w.lines("SELECT evidence FROM reclaim.issues WHERE subject_id = $1", key.RefundID)[0],
				"charge_already_refunded", test.name)
		}

		// What the channel says of it in the end takes effect, and the issue stays for a person.
		signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{
			Payload: fmt.Appendf(nil, `{"id":"evt_1","object":"event","type":"refund.updated","api_version":%q,"created":1782900000,
				"data":{"object":%s}}`, sdk.APIVersion, stripeRefund("re_7_"+key.RefundID, key.RefundID, orderID, 10)),
			Secret: stripeSecret,
		})
		taken, err := r.TakeNotice(t.Context(), bankName, http.Header{"Stripe-Signature": {signed.Header}}, signed.Payload, time.Now())
		require.NoError(t, err, test.name)
		assert.Equal(t, activities.AppliedEvidence{
			Verdict: activities.Applied, State: contract.RefundSucceeded, NeedsReview: test.issue != "",
		}, taken.Applied, test.name)
		before.state = "succeeded"
		before.reserves = [4]int64{before.reserves[0] - 10, before.reserves[1] + 10, before.reserves[2] - 4, before.reserves[3] + 4}
		assert.Equal(t, before, w.moneyOf(key), test.name)
		assert.Equal(t, "re_7_"+key.RefundID, w.refund(key).ChannelRef, test.name)
		assert.Equal(t, open, w.issues(tenant, key.RefundID), "%s: a person closes it", test.name)
	}
	w.assertRefundsSound()
}

// C41: only of a refund whose outcome is unknown does it say anything that somebody refunded the payment.
func TestC41_RefundedElsewhereIsAnIssueOnlyWhileTheRefundIsUnknown(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	elsewhere := channel.Evidence{Outcome: channel.OutcomeUnknown, Code: "charge_already_refunded", Elsewhere: true, Sends: 1}
	for _, state := range refundStates {
		key := w.inState(r, orderID, state)
		before, open := w.moneyOf(key), w.issues(tenant, key.RefundID)
		for i := range 3 {
			applied := w.apply(r, key, activities.SourceCreate, elsewhere)
			if state != contract.RefundUnknown {
				assert.Equal(t, activities.Already, applied.Verdict, state)
				continue
			}
			assert.Equal(t, activities.Refused, applied.Verdict)
			assert.Equal(t, "refunded_elsewhere", applied.Why)
			assert.True(t, applied.NeedsReview)
			if i == 0 {
				open = append(open, "refunded_elsewhere")
			}
		}
		assert.Equal(t, before, w.moneyOf(key), state)
		assert.Equal(t, open, w.issues(tenant, key.RefundID), state)
	}
	w.assertRefundsSound()
}
