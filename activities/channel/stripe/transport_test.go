package stripe

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

func assertKeepable(t *testing.T, detail string) {
	t.Helper()
	assert.LessOrEqual(t, len(detail), channel.MaxDetail)
	assert.True(t, utf8.ValidString(detail))
	assert.NotEmpty(t, detail)
}

// hangUp closes the request's connection without an answer.
func hangUp(t *testing.T, w http.ResponseWriter) {
	t.Helper()
	connection, _, err := w.(http.Hijacker).Hijack()
	if assert.NoError(t, err) {
		assert.NoError(t, connection.Close())
	}
}

// net/http sends a POST with an Idempotency-Key again where a kept-alive connection dies under it. Nobody above learns of
// that but by Sends.
func TestARequestRepeatedByTheTransportIsCounted(t *testing.T) {
	var posts atomic.Int32
	c, s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && posts.Add(1) == 1 {
			hangUp(t, w)
			return
		}
		_, _ = io.WriteString(w, object(nil))
	})
	// A look-up first, so that there is a connection to keep alive.
	known := someRefund
	known.Reference = "re_1"
	_, err := c.Query(t.Context(), known)
	require.NoError(t, err)
	got, err := c.Submit(t.Context(), someRefund)
	require.NoError(t, err)
	assert.Equal(t, channel.OutcomeSucceeded, got.Outcome)
	assert.Equal(t, 2, got.Sends)
	require.Len(t, s.asked(), 3, "the server got the refund twice")
	assert.Equal(t, "rf_1", s.asked()[1].Header.Get("Idempotency-Key"))
	assert.Equal(t, s.asked()[1].Form, s.asked()[2].Form)
	assert.Equal(t, s.asked()[1].Header["Idempotency-Key"], s.asked()[2].Header["Idempotency-Key"])
}

func TestARepeatedRequestThatFailsIsCounted(t *testing.T) {
	c, s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			hangUp(t, w)
			return
		}
		_, _ = io.WriteString(w, object(nil))
	})
	known := someRefund
	known.Reference = "re_1"
	_, err := c.Query(t.Context(), known)
	require.NoError(t, err)
	got, err := c.Submit(t.Context(), someRefund)
	require.NoError(t, err)
	assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
	assert.Equal(t, "connection", got.Code)
	assert.Equal(t, 2, got.Sends)
	assert.Len(t, s.asked(), 3)
}

func TestWhatIsLostOnTheWayIsUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		code   string
	}{
		"cut before an answer": {func(w http.ResponseWriter, _ *http.Request) { hangUp(t, w) }, "connection"},
		"cut within an answer": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, object(nil))
		}, "connection"},
		"cut within an error": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(400)
			_, _ = io.WriteString(w, stripeError(`"type":"invalid_request_error","code":"charge_disputed"`))
		}, "connection"},
		"no answer in time": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "timeout"},
		"half an answer in time": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"object":"refund",`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := serve(t, test.answer)
			ctx := t.Context()
			if test.code == "timeout" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
				defer cancel()
			}
			got, err := c.Submit(ctx, someRefund)
			require.NoError(t, err)
			assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
			assert.Equal(t, test.code, got.Code)
			assert.Equal(t, 1, got.Sends)
			assertKeepable(t, got.Detail)
		})
	}
}

func TestACallThatIsGivenUpIsUnknown(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	got, err := c.Submit(ctx, someRefund)
	require.NoError(t, err)
	assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
	assert.Equal(t, "canceled", got.Code)
	assert.Equal(t, 1, got.Sends)
}

func TestNothingIsSentWhereNobodyListens(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	c, err := New(Options{APIKey: testKey, BaseURL: "http://" + listener.Addr().String()})
	require.NoError(t, err)
	got, err := c.Submit(t.Context(), someRefund)
	require.NoError(t, err)
	assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
	assert.Equal(t, "connection", got.Code)
	assert.Zero(t, got.Sends)
	assert.NotContains(t, got.Detail, testKey)
}

type writtenTwice struct{ http.RoundTripper }

func (w writtenTwice) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(r.Clone(r.Context()))
	if err == nil {
		_ = response.Body.Close()
		r.Body, _ = r.GetBody()
		response, err = w.RoundTripper.RoundTrip(r)
	}
	return response, err
}

func TestATransportOfTheCallersIsCountedToo(t *testing.T) {
	_, s := serveOne(t, 200, "application/json", object(nil))
	c, err := New(Options{APIKey: testKey, BaseURL: s.URL + "/", Transport: writtenTwice{http.DefaultTransport}})
	require.NoError(t, err)
	got, err := c.Submit(t.Context(), someRefund)
	require.NoError(t, err)
	assert.Equal(t, channel.OutcomeSucceeded, got.Outcome)
	assert.Equal(t, 2, got.Sends)
}

func TestARedirectIsNotFollowed(t *testing.T) {
	_, elsewhere := serveOne(t, 200, "application/json", object(nil))
	c, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/v1/refunds", http.StatusTemporaryRedirect)
	})
	got, err := c.Submit(t.Context(), someRefund)
	require.NoError(t, err)
	assert.Equal(t, channel.OutcomeUnknown, got.Outcome)
	assert.Equal(t, "http_307", got.Code)
	assert.Empty(t, elsewhere.asked())
}
