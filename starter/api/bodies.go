package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// maxReport bounds an outcome's body, in bytes: its output may be longer than what is kept of it.
const maxReport = 2 << 20

type bodyInContext struct{}

// takeBody reads the body of an operation that has one, to the letter: what it says is for the contract's own decoders,
// which see more than a general one does (names given twice, numbers that would be rounded).
func (d *Door) takeBody(ctx huma.Context, next func(huma.Context)) {
	described := ctx.Operation().RequestBody
	if described == nil {
		next(ctx)
		return
	}
	r, w := humago.Unwrap(ctx)
	// Two readers could each take another one for the operation's key.
	if len(r.Header.Values(keyHeader)) > 1 {
		refuse(w, r, contract.BadField(keyHeader, "is given twice"))
		return
	}
	body, err := readBody(w, r, ctx.Operation().MaxBodyBytes)
	if err != nil {
		refuse(w, r, err)
		return
	}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	_, odd := parameters["charset"]
	odd = odd && parameters["charset"] != "utf-8" && parameters["charset"] != "UTF-8" || len(r.Header.Values("Content-Type")) > 1
	if (len(body) > 0 || described.Required) && (err != nil || kind != "application/json" || odd) {
		refuse(w, r, plainProblem(http.StatusUnsupportedMediaType, "the body must be JSON in UTF-8: send Content-Type: application/json"))
		return
	}
	next(huma.WithValue(ctx, bodyInContext{}, body))
}

// readBody reads a body of at most so many bytes.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, plainProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is over %d bytes, which is the most here", most))
	}
	if err != nil {
		return nil, plainProblem(http.StatusBadRequest, "the body could not be read to its end")
	}
	return body, nil
}

func bodyOf(ctx context.Context) []byte {
	body, _ := ctx.Value(bodyInContext{}).([]byte)
	return body
}

// decoded reads the request's body as one of the door's own bodies.
func decoded[B any](ctx context.Context) (body B, err error) {
	return body, contract.Decode(bodyOf(ctx), contract.MaxInputBytes, &body)
}

// refuseOddQueries refuses query strings that two readers could understand differently.
func (d *Door) refuseOddQueries(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		refuse(w, r, contract.BadField("the query", "cannot be read: write reserved characters as %XX"))
		return
	}
	for name, given := range values {
		if len(given) > 1 {
			refuse(w, r, contract.BadField(contract.Clip(name, 100), "is given twice"))
			return
		}
	}
	next(ctx)
}
