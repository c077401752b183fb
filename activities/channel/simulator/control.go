package simulator

import (
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
)

// control routes what sets the scene. It does what the methods do, for programs that are not in Go.
func (s *Simulator) control(mux *http.ServeMux) {
	mux.HandleFunc("POST /simulator/payments", taking(func(_ *http.Request, p Payment) (any, error) {
		return nil, s.AddPayment(p)
	}))
	mux.HandleFunc("PUT /simulator/scripts/{name}", taking(func(r *http.Request, script Script) (any, error) {
		return nil, s.setScript(r.PathValue("name"), script)
	}))
	mux.HandleFunc("POST /simulator/clock", taking(func(_ *http.Request, by struct {
		Advance time.Duration `json:"advance"`
	}) (any, error) {
		if by.Advance < 0 {
			return nil, errors.New("advance must not be negative")
		}
		s.Advance(by.Advance)
		return s.clock(), nil
	}))
	mux.HandleFunc("PUT /simulator/webhook", taking(func(_ *http.Request, to struct {
		URL string `json:"url"`
	}) (any, error) {
		s.SetWebhookURL(to.URL)
		return nil, nil
	}))
	mux.HandleFunc("GET /simulator/clock", giving(func(*http.Request) any { return s.clock() }))
	mux.HandleFunc("GET /simulator/book", giving(func(*http.Request) any { return s.Book() }))
	mux.HandleFunc("GET /simulator/deliveries", giving(func(*http.Request) any { return s.Deliveries() }))
	mux.HandleFunc("POST /simulator/deliver", giving(func(r *http.Request) any {
		s.awaitSent(r.Context(), nil)
		return nil
	}))
	mux.HandleFunc("POST /simulator/release/{number}", giving(func(r *http.Request) any {
		s.Release(r.PathValue("number"))
		return nil
	}))
	mux.HandleFunc("GET /simulator/settlement", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		_, _ = w.Write(s.Settlement()) // the client may have gone away
	})
}

func (s *Simulator) clock() any { return map[string]time.Time{"now": s.Now()} }

// taking is a handler that reads a T from the body. An error is the client's.
func taking[T any](do func(*http.Request, T) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in T
		err := json.UnmarshalRead(http.MaxBytesReader(w, r.Body, maxBody), &in, durations, json.RejectUnknownMembers(true))
		var out any
		if err == nil {
			out, err = do(r, in)
		}
		if err != nil {
			give(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		give(w, http.StatusOK, out)
	}
}

func giving(get func(*http.Request) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { give(w, http.StatusOK, get(r)) }
}

func give(w http.ResponseWriter, status int, v any) {
	if v == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encode(v)) // the client may have gone away
}
