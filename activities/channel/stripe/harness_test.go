package stripe

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

const (
	testKey    = "sk_test_4eC39HqLyjWDarjtT1zdp7dc"
	testSecret = "whsec_test_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

var (
	someRefund = channel.Refund{Number: "rf_1", Payment: "pi_1", Amount: 1200, Currency: "usd"}
	created    = time.Unix(1692942318, 0).UTC()
)

// asked is one request as the server got it.
type asked struct {
	Method, Path string
	Query, Form  url.Values
	Header       http.Header
}

// server stands in for Stripe and records what it is asked.
type server struct {
	*httptest.Server
	mu   sync.Mutex
	seen []asked
}

func (s *server) asked() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// serve starts a server that answers with the handler, and a channel that asks it.
func serve(t *testing.T, answer http.HandlerFunc) (*Channel, *server) {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		form, err := url.ParseQuery(string(body))
		assert.NoError(t, err)
		s.mu.Lock()
		s.seen = append(s.seen, asked{r.Method, r.URL.Path, r.URL.Query(), form, r.Header.Clone()})
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	c, err := New(Options{APIKey: testKey, WebhookSecrets: []string{testSecret}, BaseURL: s.URL})
	require.NoError(t, err)
	return c, s
}

// serveOne starts a server with the same answer to everything.
func serveOne(t *testing.T, status int, contentType, body string) (*Channel, *server) {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Request-Id", "req_1")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// object is a refund as Stripe gives it, with changes; a nil one takes the field out.
func object(changes map[string]any) string {
	refund := map[string]any{
		"id": "re_1", "object": "refund", "amount": 1200, "currency": "usd", "charge": "ch_1", "payment_intent": "pi_1",
		"created": created.Unix(), "status": "succeeded", "balance_transaction": "txn_1",
		"metadata": map[string]string{"reclaim_refund": "rf_1"},
	}
	maps.Copy(refund, changes)
	maps.DeleteFunc(refund, func(_ string, value any) bool { return value == nil })
	text, err := json.Marshal(refund)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// numbered is the change that gives a refund an id and a number.
func numbered(id, number string) string {
	return object(map[string]any{"id": id, "metadata": map[string]string{"reclaim_refund": number}})
}

func page(more bool, refunds ...string) string {
	return fmt.Sprintf(`{"object":"list","url":"/v1/refunds","has_more":%t,"data":[%s]}`, more, strings.Join(refunds, ","))
}

func stripeError(fields string) string { return `{"error":{` + fields + `}}` }
