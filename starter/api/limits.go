package api

import (
	"net/http"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Limits bound what the door takes on.
type Limits struct {
	// Rate is how many requests a second one key may make, and Burst how many at once beyond that.
	Rate  float64
	Burst int
	// AtOnce is how many requests are in progress at most, those that wait for something included. One key may have half.
	AtOnce int
}

// DefaultLimits are right for one process beside a Postgres of its own.
func DefaultLimits() Limits { return Limits{Rate: 500, Burst: 1000, AtOnce: 1024} }

// usage is what each key does at the moment. It holds keys that exist only, so that it cannot grow without bounds.
type usage struct {
	mu   sync.Mutex
	keys map[string]*keyUsage
}

type keyUsage struct {
	rate       *rate.Limiter
	inProgress int
}

// enter counts a request of the key in, until leave is called.
func (u *usage) enter(keyID string, limits Limits) (leave func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := u.keys[keyID]
	if key == nil {
		key = &keyUsage{rate: rate.NewLimiter(rate.Limit(limits.Rate), limits.Burst)}
		u.keys[keyID] = key
	}
	if !key.rate.Allow() {
		return nil, contract.NewError(contract.CodeRateLimited, contract.RetrySameKey,
			"the API key makes more requests than its share: wait, and repeat the same request", nil)
	}
	if key.inProgress >= max(limits.AtOnce/2, 1) {
		return nil, contract.NewError(contract.CodeRateLimited, contract.RetrySameKey,
			"the API key has too many requests in progress: wait for some of them, and repeat the same request", nil)
	}
	key.inProgress++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		key.inProgress--
	}, nil
}

// admit bounds how many requests are in progress. More are refused at once: a queue would only make all of them late.
func (d *Door) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			// That the door lives can be asked however busy it is.
			next.ServeHTTP(w, r)
			return
		}
		select {
		case d.places <- struct{}{}:
			defer func() { <-d.places }()
			next.ServeHTTP(w, r)
		default:
			p := plainProblem(http.StatusServiceUnavailable, "the server has as many requests as it takes: wait, and repeat the same request")
			p.headers.Set("Retry-After", retryAfter)
			refuse(w, r, p)
		}
	})
}
