package api

import (
	"net/http"
	"strings"
	"sync"

	"golang.org/x/time/rate"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Limits bound what the door takes on.
type Limits struct {
	// Rate is how many requests a second one key may make, and Burst how many at once beyond that.
	Rate  float64
	Burst int
	// AtOnce is how many requests are in progress at most, those that wait for something included. One tenant may have half.
	AtOnce int
}

// DefaultLimits are right for one process beside a Postgres of its own.
func DefaultLimits() Limits { return Limits{Rate: 500, Burst: 1000, AtOnce: 1024} }

// noticesAtOnce is how many payment channels' notices are in progress at most. They come without a key, so that they have
// places of their own: whoever fills those closes the door for nobody else.
const noticesAtOnce = 64

// usage is what each key and tenant does at the moment. It holds keys that exist only, so that it cannot grow without bounds.
type usage struct {
	mu         sync.Mutex
	rates      map[string]*rate.Limiter
	inProgress map[string]int
}

func newUsage() *usage {
	return &usage{rates: map[string]*rate.Limiter{}, inProgress: map[string]int{}}
}

// enter counts a request in, until leave is called.
func (u *usage) enter(key client.Key, limits Limits) (leave func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	limiter := u.rates[key.KeyID]
	if limiter == nil {
		limiter = rate.NewLimiter(rate.Limit(limits.Rate), limits.Burst)
		u.rates[key.KeyID] = limiter
	}
	if !limiter.Allow() {
		return nil, contract.NewError(contract.CodeRateLimited, contract.RetrySameKey,
			"the API key makes more requests than its share: wait, and repeat the same request", nil)
	}
	if u.inProgress[key.Tenant] >= max(limits.AtOnce/2, 1) {
		return nil, contract.NewError(contract.CodeRateLimited, contract.RetrySameKey,
			"the tenant has too many requests in progress: wait for some of them, and repeat the same request", nil)
	}
	u.inProgress[key.Tenant]++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.inProgress[key.Tenant]--; u.inProgress[key.Tenant] == 0 {
			delete(u.inProgress, key.Tenant)
		}
	}, nil
}

// admit bounds how many requests are in progress. More are refused at once: a queue would only make all of them late.
func (d *Door) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// That the door lives can be asked however busy it is, and notices have places of their own.
		if !strings.HasPrefix(r.URL.Path, "/v1/") || strings.HasPrefix(r.URL.Path, "/v1/channels/") {
			next.ServeHTTP(w, r)
			return
		}
		inPlace(d.places, next, w, r)
	})
}

// inPlace has the request answered in one of the places, if one is free.
func inPlace(places chan struct{}, next http.Handler, w http.ResponseWriter, r *http.Request) {
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
		next.ServeHTTP(w, r)
	default:
		p := plainProblem(http.StatusServiceUnavailable, "the server has as many requests as it takes: wait, and repeat the same request")
		p.headers.Set("Retry-After", retryAfter)
		refuse(w, r, p)
	}
}
