package simulator

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"
)

// receiver takes webhooks and keeps the events whose signature is right.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	events []stripe.Event
	errors []error
}

// receive starts a receiver; handle may answer in its stead.
func receive(t *testing.T, handle http.HandlerFunc) *receiver {
	t.Helper()
	rc := &receiver{}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		event, err := webhook.ConstructEvent(body, r.Header.Get("Stripe-Signature"), "whsec_simulator")
		rc.mu.Lock()
		if err != nil {
			rc.errors = append(rc.errors, err)
		} else {
			rc.events = append(rc.events, event)
		}
		rc.mu.Unlock()
		if handle != nil {
			handle(w, r)
		}
	}))
	t.Cleanup(rc.Close)
	return rc
}

func (rc *receiver) types() []string {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	var types []string
	for _, e := range rc.events {
		types = append(types, string(e.Type))
	}
	return types
}

func TestWebhooks(t *testing.T) {
	hooks := receive(t, nil)
	s := start(t, Options{WebhookURL: hooks.URL})
	s.Script("rf1", Script{Life: []Step{
		{After: time.Hour, Status: "succeeded"}, {After: 2 * time.Hour, Status: "failed", Reason: "declined"},
	}})
	r := post(t, s, "rf1", 100)
	created := s.Now()
	s.Deliver()
	assert.Equal(t, []string{"refund.created"}, hooks.types())
	s.Advance(3 * time.Hour)
	s.Deliver()
	assert.Equal(t, []string{
		"refund.created",
		"refund.updated", "charge.refund.updated",
		"refund.updated", "charge.refund.updated", "refund.failed",
	}, hooks.types())
	assert.Empty(t, hooks.errors)

	ids := map[string]bool{}
	for i, want := range []struct {
		status, before any
		at             time.Duration
	}{
		{"pending", nil, 0},
		{"succeeded", "pending", time.Hour}, {"succeeded", "pending", time.Hour},
		{"failed", "succeeded", 2 * time.Hour}, {"failed", "succeeded", 2 * time.Hour}, {"failed", "succeeded", 2 * time.Hour},
	} {
		e := hooks.events[i]
		ids[e.ID] = true
		assert.Equal(t, stripe.APIVersion, e.APIVersion)
		assert.Equal(t, r.body["id"], e.Data.Object["id"])
		assert.Equal(t, want.status, e.Data.Object["status"])
		assert.Equal(t, want.before, e.Data.PreviousAttributes["status"])
		assert.InDelta(t, created.Add(want.at).Unix(), e.Created, 5)
	}
	assert.Len(t, ids, 6)
	assert.Equal(t, Delivery{
		Event: hooks.events[0].ID, Type: "refund.created", Number: "rf1", Refund: r.body["id"].(string), Try: 1, Status: 200,
	}, s.Deliveries()[0])

	// Without a receiver's address events are not kept.
	s.SetWebhookURL("")
	post(t, s, "rf2", 100)
	s.SetWebhookURL(hooks.URL)
	s.Deliver()
	assert.Len(t, hooks.types(), 6)
}

func TestWebhookScripts(t *testing.T) {
	life := []Step{{After: time.Hour, Status: "succeeded"}}
	for _, tc := range []struct {
		name   string
		script Webhooks
		// at the making, and when the life is over
		first, all []string
	}{
		{"none", Webhooks{None: true}, nil, nil},
		{"only", Webhooks{Only: []string{"charge.refund.updated"}}, nil, []string{"charge.refund.updated"}},
		{"copies", Webhooks{Copies: 2, Only: []string{"refund.created"}},
			[]string{"refund.created", "refund.created"}, []string{"refund.created", "refund.created"}},
		{"delay", Webhooks{Delay: 90 * time.Minute}, nil, []string{"refund.created"}},
		{"reversed", Webhooks{Reversed: true}, nil, []string{"charge.refund.updated", "refund.updated", "refund.created"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hooks := receive(t, nil)
			s := start(t, Options{WebhookURL: hooks.URL})
			s.Script("rf1", Script{Life: life, Webhooks: tc.script})
			post(t, s, "rf1", 100)
			s.Deliver()
			assert.Equal(t, tc.first, hooks.types())
			s.Advance(2 * time.Hour)
			s.Deliver()
			assert.Equal(t, tc.all, hooks.types())
		})
	}
}

func TestWebhooksNotToBeAccepted(t *testing.T) {
	for want, script := range map[string]Webhooks{
		webhook.ErrNoValidSignature.Error():               {Secret: "whsec_other"},
		webhook.ErrTooOld.Error():                         {SignedAt: -10 * time.Minute},
		"Received event with API version 2022-08-01, but": {APIVersion: "2022-08-01"},
	} {
		hooks := receive(t, nil)
		s := start(t, Options{WebhookURL: hooks.URL})
		s.Script("rf1", Script{Webhooks: script})
		post(t, s, "rf1", 100)
		s.Deliver()
		require.Len(t, hooks.errors, 1)
		assert.ErrorContains(t, hooks.errors[0], want)
	}
}

func TestWebhookRetries(t *testing.T) {
	hooks := receive(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) })
	s := start(t, Options{WebhookURL: hooks.URL, WebhookRetries: 2})
	post(t, s, "rf1", 100)
	for range 5 {
		s.Deliver()
		s.Advance(time.Minute)
	}
	assert.Len(t, hooks.events, 3)
	assert.Equal(t, hooks.events[0].ID, hooks.events[2].ID)
	tries := s.Deliveries()
	assert.Equal(t, 3, tries[2].Try)
	assert.Equal(t, http.StatusFound, tries[2].Status)

	hooks.Close()
	post(t, s, "rf2", 100)
	s.Deliver()
	last := s.Deliveries()[3]
	assert.Zero(t, last.Status)
	assert.NotEmpty(t, last.Error)
}

// The receiver knows of the refund before the one who asked for it does.
func TestWebhookBeforeAnswer(t *testing.T) {
	var s *Simulator
	answered, early := make(chan reply, 1), make(chan bool, 1)
	hooks := receive(t, func(http.ResponseWriter, *http.Request) {
		early <- s.Applied("rf1") == 1 && len(answered) == 0
	})
	s = start(t, Options{WebhookURL: hooks.URL})
	s.Script("rf1", Script{Webhooks: Webhooks{BeforeAnswer: 50 * time.Millisecond}})
	began := time.Now()
	answered <- post(t, s, "rf1", 100)
	assert.True(t, <-early)
	assert.Equal(t, 200, (<-answered).status)
	assert.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
	assert.Equal(t, []string{"refund.created"}, hooks.types())
}

// The refund's fate does not hang on that of the answer.
func TestWebhookOfLostAnswer(t *testing.T) {
	hooks := receive(t, nil)
	s := start(t, Options{WebhookURL: hooks.URL})
	s.Script("rf1", Script{Create: []Fault{{Kind: FaultHang, Applied: true}}})
	ended := make(chan error, 1)
	go func() {
		_, err := s.try("rf1", 100)
		ended <- err
	}()
	require.Eventually(t, func() bool { return len(hooks.types()) == 1 }, soon, often)
	assert.Empty(t, ended)
	s.Release("rf1")
	require.NoError(t, <-ended)
}
