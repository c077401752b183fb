package stripe

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

const (
	// maxAnswer bounds an answer, in bytes: a page of 100 refunds with full metadata takes 3 MB.
	maxAnswer = 8 << 20
	// maxStart is how much of an answer is kept for people, before it is made fit for Evidence.Detail.
	maxStart = 64 << 10
)

var errTooLong = errors.New("the answer is too long")

// exchange is what the transport saw of one request: the SDK tells neither of it.
type exchange struct {
	// sends is how often the request was written, or may have been.
	sends int
	// status is the answer's HTTP status, 0 where none came, and start how its body begins.
	status int
	start  []byte
	// broken is what kept the answer from arriving whole.
	broken error
}

type exchangeKey struct{}

// watch returns a ctx for one request, and where its exchange is recorded. It may be read once the request has returned.
func watch(ctx context.Context) (context.Context, *exchange) {
	seen := &exchange{}
	return context.WithValue(ctx, exchangeKey{}, seen), seen
}

// transport records the exchange of each request.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	seen, ok := request.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		seen = &exchange{}
	}
	var connections, writes atomic.Int32
	ctx := httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { connections.Add(1) },
		WroteHeaders: func() { writes.Add(1) },
	})
	response, err := t.base.RoundTrip(request.WithContext(ctx))
	if err != nil {
		// Another goroutine writes, and may do so after this one was told that the time is up: what has a connection counts.
		seen.sends, seen.broken = int(max(connections.Load(), writes.Load())), err
		return nil, err
	}
	seen.sends, seen.status = max(int(writes.Load()), 1), response.StatusCode
	response.Body = &watchedBody{ReadCloser: response.Body, seen: seen}
	return response, nil
}

type watchedBody struct {
	io.ReadCloser
	seen *exchange
	read int
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += n
	b.seen.start = append(b.seen.start, p[:min(n, maxStart-len(b.seen.start))]...)
	if b.read > maxAnswer {
		err = errTooLong
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.seen.broken = err
	}
	return n, err
}
