package conformance

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
)

// answering is a far end that answers everything with this.
func answering(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const (
	page = "<html><body>Bad Gateway \xff\xfe</body></html>"
	html = "text/html"
	text = "application/json"
)

// shortTime is what an end gets that does not answer.
const shortTime = 200 * time.Millisecond

// disorder runs the adapter against ends that answer what no channel means: it stays unknown what became of the refund, a
// look-up has found out nothing, and there is no list.
func disorder(t *testing.T, s Subject) {
	var strayed atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strayed.Add(1) }))
	t.Cleanup(elsewhere.Close)
	echo := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			dump, _ := httputil.DumpRequest(r, true)
			body, _ := json.Marshal(map[string]any{
				"message": string(dump), "error": map[string]string{"message": string(dump), "type": "api_error"},
			})
			answering(status, text, string(body))(w, r)
		}
	}
	redirect := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(status)
		}
	}
	ends := map[string]http.HandlerFunc{
		"a gateway's page":           answering(http.StatusBadGateway, html, page),
		"a page of 300 kB":           answering(http.StatusBadGateway, html, strings.Repeat(page, 7000)),
		"a page and all is well":     answering(http.StatusOK, html, page),
		"a page that says not found": answering(http.StatusNotFound, html, page),
		"nothing, not found":         answering(http.StatusNotFound, text, ""),
		"gone":                       answering(http.StatusGone, text, "{}"),
		"bad request":                answering(http.StatusBadRequest, text, "{}"),
		"a page that says bad":       answering(http.StatusBadRequest, html, page),
		"unauthorized":               answering(http.StatusUnauthorized, html, page),
		"forbidden":                  answering(http.StatusForbidden, html, page),
		"conflict":                   answering(http.StatusConflict, text, "{}"),
		"too many":                   answering(http.StatusTooManyRequests, text, "{}"),
		"unavailable":                answering(http.StatusServiceUnavailable, text, ""),
		"no content":                 answering(http.StatusNoContent, text, ""),
		"accepted":                   answering(http.StatusAccepted, text, ""),
		"nothing":                    answering(http.StatusOK, text, ""),
		"empty object":               answering(http.StatusOK, text, "{}"),
		"null":                       answering(http.StatusOK, text, "null"),
		"another thing":              answering(http.StatusOK, text, `{"id":"x_1","object":"x","amount":400,"currency":"usd","status":"succeeded"}`),
		"list":                       answering(http.StatusOK, text, "[]"),
		"text":                       answering(http.StatusOK, text, `"ok"`),
		"cut off":                    answering(http.StatusOK, text, `{"id":"re_1","object":"refu`),
		"not UTF-8":                  answering(http.StatusOK, text, "\xff\xfe\x00"),
		"its own error":              answering(http.StatusInternalServerError, text, `{"error":{"type":"api_error","message":"\ud800"}}`),
		"the request, as an error":   echo(http.StatusInternalServerError),
		"the request, as an answer":  echo(http.StatusOK),
		"moved":                      redirect(http.StatusFound),
		"moved, ask the same":        redirect(http.StatusTemporaryRedirect),
		"hangs up":                   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"hangs up in the middle": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"id":"re_1","object":"refund","amount":400`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
	}
	silent := map[string]http.HandlerFunc{
		"does not answer": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then is the server told that the client has gone
			<-r.Context().Done()
		},
		"begins to answer": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(w, `{"id":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	}
	run := func(ends map[string]http.HandlerFunc, patience time.Duration) {
		for name, handler := range ends {
			t.Run(name, func(t *testing.T) {
				far := httptest.NewServer(handler)
				t.Cleanup(far.Close)
				s.tellsNothing(t, far.URL, patience, 1)
			})
		}
	}
	run(ends, callTime)
	run(silent, shortTime)
	assert.Zero(t, strayed.Load(), "a redirection is not followed: the key and the refund would go there")

	t.Run("is not there", func(t *testing.T) {
		far := httptest.NewServer(nil)
		far.Close()
		s.tellsNothing(t, far.URL, callTime, 0)
	})
}

// tellsNothing requires that nothing is learned from the end at the URL within that time, and that a refund was written to
// it so many times, or more where that is not 0.
func (s Subject) tellsNothing(t *testing.T, url string, patience time.Duration, sends int) {
	s.Channel = s.Elsewhere(t, url)
	r := s.refund(s.Payment(t, 1000), 400)
	byReference := r
	byReference.Reference = "re_1"
	briefly := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		return ctx
	}

	e, err := s.Channel.Submit(briefly(), r)
	require.NoError(t, err)
	s.check(t, e)
	assert.Equal(t, channel.OutcomeUnknown, e.Outcome, "%+v", e)
	assert.GreaterOrEqual(t, e.Sends, sends)
	if sends == 0 {
		assert.Zero(t, e.Sends)
	}
	for _, asked := range []channel.Refund{r, byReference} {
		if asked.Reference == "" && !s.Channel.Capabilities().QueryByNumber {
			continue
		}
		e, err = s.Channel.Query(briefly(), asked)
		require.NoError(t, err)
		s.check(t, e)
		assert.Equal(t, channel.OutcomeUnknown, e.Outcome, "%+v", e)
	}
	all, err := s.Channel.List(briefly(), r.Payment)
	require.Error(t, err)
	assert.Empty(t, all)
	for _, secret := range s.Secrets {
		assert.NotContains(t, err.Error(), secret)
	}
}
