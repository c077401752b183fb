package simulator

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCreateFaults(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fault Fault
		// status of the faulty answer, 0 for none.
		status int
		// moved after the faulty answer.
		moved int64
		// then is the status of the next POST, and replayed whether it says so.
		then     int
		replayed string
	}{
		{"lost before", Fault{Kind: FaultLost}, 0, 0, 200, ""},
		{"lost after", Fault{Kind: FaultLost, Applied: true}, 0, 100, 200, "true"},
		{"cut", Fault{Kind: FaultCut}, 0, 100, 200, "true"},
		{"error before", Fault{Kind: FaultError, Status: 503}, 503, 0, 200, ""},
		{"error before, stored", Fault{Kind: FaultError, Stored: true}, 500, 0, 500, "true"},
		{"error after", Fault{Kind: FaultError, Applied: true}, 500, 100, 200, "true"},
		{"error after, stored", Fault{Kind: FaultError, Applied: true, Stored: true}, 500, 100, 500, "true"},
		{"page before", Fault{Kind: FaultHTML, Size: 300_000}, 502, 0, 200, ""},
		{"page after", Fault{Kind: FaultHTML, Status: 200, Applied: true}, 200, 100, 200, "true"},
		{"slow", Fault{Kind: FaultSlow, Delay: 20 * time.Millisecond}, 200, 100, 200, "true"},
		{"refusal", Fault{Kind: FaultRefuse, Code: "charge_disputed"}, 400, 0, 400, "true"},
		{"throttled", Fault{Kind: FaultRefuse, Status: 429, Code: "rate_limit"}, 429, 0, 200, ""},
		{"no status", Fault{Kind: FaultNullStatus}, 200, 100, 200, "true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := start(t, Options{})
			s.Script("rf1", Script{Create: []Fault{tc.fault}})
			first, err := s.try("rf1", 100)
			if tc.status == 0 {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, tc.status, first.status)
			assert.Equal(t, tc.moved, s.MovedFor("rf1"))
			switch tc.fault.Kind {
			case FaultHTML:
				assert.Nil(t, first.body)
				assert.GreaterOrEqual(t, len(first.raw), tc.fault.Size)
				assert.Contains(t, first.header.Get("Content-Type"), "text/html")
			case FaultError:
				assert.Equal(t, "api_error", first.err()["type"])
			case FaultRefuse:
				assert.Equal(t, tc.fault.Code, first.err()["code"])
			case FaultNullStatus:
				assert.Contains(t, first.body, "status")
				assert.Nil(t, first.body["status"])
			}
			then := post(t, s, "rf1", 100)
			assert.Equal(t, tc.then, then.status)
			assert.Equal(t, tc.replayed, then.header.Get("Idempotent-Replayed"))
			assert.Equal(t, 2, s.Sends("rf1"))
			assert.LessOrEqual(t, s.Applied("rf1"), 1)
		})
	}
}

func TestFaultsTakeTurns(t *testing.T) {
	s := start(t, Options{})
	s.Script("rf1", Script{Create: []Fault{
		{Kind: FaultHTML, Times: 2},
		{Kind: FaultError},
		{Kind: FaultRefuse, Status: 429, Times: -1},
	}})
	var got []int
	for range 6 {
		got = append(got, post(t, s, "rf1", 100).status)
	}
	assert.Equal(t, []int{502, 502, 500, 429, 429, 429}, got)
	s.Script("rf1", Script{})
	assert.Equal(t, 200, post(t, s, "rf1", 100).status)

	// Throttling comes before the key is looked at.
	s.Script("rf1", Script{Create: []Fault{{Kind: FaultRefuse, Status: 429}}})
	assert.Equal(t, 429, post(t, s, "rf1", 100).status)
	assert.Equal(t, 200, post(t, s, "rf1", 100).status)

	// The default is for whatever has no other script.
	s.ScriptDefault(Script{Create: []Fault{{Kind: FaultHTML}}})
	s.Script("rf2", Script{})
	assert.Equal(t, 200, post(t, s, "rf2", 100).status)
	assert.Equal(t, 502, post(t, s, "rf3", 100).status)
}

func TestHang(t *testing.T) {
	for _, applied := range []bool{false, true} {
		s := start(t, Options{})
		s.Script("gone", Script{Create: []Fault{{Kind: FaultHang, Applied: applied}}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := do(ctx, http.MethodPost, s.URL()+"/v1/refunds", form("gone", 1), "Idempotency-Key", "gone")
			ended <- err
		}()
		require.Eventually(t, func() bool { return s.Sends("gone") == 1 }, soon, often)
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		// The simulator notices a little later that the client has gone; until then the key is in use.
		require.Eventually(t, func() bool {
			r, err := s.try("gone", 1)
			return err == nil && r.status == 200
		}, soon, often)
		assert.Equal(t, 1, s.Applied("gone"))

		s.Script("released", Script{Create: []Fault{{Kind: FaultHang, Applied: applied}}})
		answered := make(chan reply, 1)
		go func() {
			r, _ := s.try("released", 1)
			answered <- r
		}()
		require.Eventually(t, func() bool { return s.Sends("released") == 1 }, soon, often)
		s.Release("released")
		assert.Equal(t, 200, (<-answered).status)
		assert.Equal(t, 1, s.Applied("released"))
	}
}

func TestLife(t *testing.T) {
	const day = 24 * time.Hour
	s := start(t, Options{})
	s.Script("rf1", Script{Life: []Step{
		{After: 3 * day, Status: "succeeded"},
		{After: 9 * day, Status: "failed", Reason: "expired_or_canceled_card"},
	}})
	r := post(t, s, "rf1", testPaid)
	assert.Equal(t, "pending", r.body["status"])
	assert.Equal(t, "processing", r.body["pending_reason"])
	assert.Nil(t, r.body["balance_transaction"])
	assert.Zero(t, s.MovedFor("rf1"))
	assert.Equal(t, 400, post(t, s, "rf2", 1).status) // what is pending is taken

	s.Advance(3 * day)
	path := "/v1/refunds/" + r.body["id"].(string)
	r = get(t, s, path)
	assert.Equal(t, "succeeded", r.body["status"])
	assert.NotEmpty(t, r.body["balance_transaction"])
	assert.Equal(t, int64(testPaid), s.MovedFor("rf1"))

	s.Advance(6 * day)
	r = get(t, s, path)
	assert.Equal(t, "failed", r.body["status"])
	assert.Equal(t, "expired_or_canceled_card", r.body["failure_reason"])
	assert.NotEmpty(t, r.body["failure_balance_transaction"])
	assert.Zero(t, s.MovedFor("rf1"))

	// A script set later goes on from there.
	s.Script("rf1", Script{Life: []Step{{After: day, Status: "succeeded"}}})
	assert.Equal(t, "failed", get(t, s, path).body["status"])
	s.Advance(day)
	assert.Equal(t, "succeeded", get(t, s, path).body["status"])
	assert.Equal(t, int64(testPaid), s.MovedFor("rf1"))

	require.NoError(t, s.AddPayment(Payment{Intent: "pi_2", Amount: 10, Currency: "usd"}))
	s.Script("rf3", Script{Life: []Step{{Status: "requires_action"}, {After: day, Status: "canceled"}}})
	r, err := do(t.Context(), http.MethodPost, s.URL()+"/v1/refunds",
		"payment_intent=pi_2&amount=10&metadata[reclaim_refund]=rf3", "Idempotency-Key", "rf3")
	require.NoError(t, err)
	assert.Equal(t, "requires_action", r.body["status"])
	assert.NotEmpty(t, r.body["next_action"])
	s.Advance(day)
	assert.Equal(t, "canceled", get(t, s, "/v1/refunds/"+r.body["id"].(string)).body["status"])
	assert.Zero(t, s.MovedFor("rf3"))
}

func TestLookupFaults(t *testing.T) {
	s := start(t, Options{})
	s.Script("rf1", Script{ListLag: 30 * time.Second, GetLag: 10 * time.Second, Lookup: []Fault{
		{Kind: FaultError, Times: 2},
		{Kind: FaultLost},
		{Kind: FaultRefuse, Status: 429, Code: "rate_limit"},
		{Kind: FaultNullStatus},
	}})
	id := post(t, s, "rf1", 100).body["id"].(string)
	const lists = "/v1/refunds?payment_intent=pi_1"
	assert.Equal(t, 500, get(t, s, lists).status)
	assert.Equal(t, 500, get(t, s, "/v1/refunds/"+id).status)
	_, err := do(t.Context(), http.MethodGet, s.URL()+lists, "")
	require.Error(t, err)
	assert.Equal(t, 429, get(t, s, lists).status)

	s.Advance(10 * time.Second)
	r := get(t, s, "/v1/refunds/"+id)
	assert.Equal(t, 200, r.status)
	assert.Nil(t, r.body["status"])
	assert.Empty(t, list(t, s))
	s.Advance(20 * time.Second)
	assert.Equal(t, []string{id}, list(t, s))

	// Look-ups of a payment go wrong also where the refund was never made.
	s.Script("rf2", Script{Create: []Fault{{Kind: FaultLost}}, Lookup: []Fault{{Kind: FaultHTML}}, GetLag: time.Hour})
	_, err = s.try("rf2", 100)
	require.Error(t, err)
	assert.Equal(t, 502, get(t, s, lists).status)
	assert.Equal(t, []string{id}, list(t, s))
	id = post(t, s, "rf2", 100).body["id"].(string)
	r = get(t, s, "/v1/refunds/"+id)
	assert.Equal(t, 404, r.status)
	assert.Equal(t, "resource_missing", r.err()["code"])
}
