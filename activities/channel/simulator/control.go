package simulator

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// endpoint is something under /simulator that sets the scene or tells of it. It does what the methods do, for programs that
// are not in Go.
type endpoint struct {
	method, path, meaning string
	handler               func(*Simulator) http.HandlerFunc
}

var endpoints = []endpoint{
	{
		"POST", "/simulator/payments", `a payment that can be refunded: {"payment_intent":"pi_1","amount":10000,"currency":"eur"}`,
		func(s *Simulator) http.HandlerFunc {
			return taking(func(_ *http.Request, p Payment) (any, error) { return nil, s.AddPayment(p) })
		},
	},
	{
		"PUT", "/simulator/scripts/{name}", `how refunds go: of a number (rf_…) or a payment (pi_…), the "next", or by "default"`,
		func(s *Simulator) http.HandlerFunc {
			return taking(func(r *http.Request, script Script) (any, error) {
				return nil, s.setScript(r.PathValue("name"), script)
			})
		},
	},
	{
		"GET", "/simulator/book", "what was paid, sent back, and asked for",
		func(s *Simulator) http.HandlerFunc { return giving(func(*http.Request) any { return s.Book() }) },
	},
	{
		"GET", "/simulator/settlement", "the settlement file, CSV",
		func(s *Simulator) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/csv; charset=utf-8")
				_, _ = w.Write(s.Settlement()) // the client may have gone away
			}
		},
	},
	{
		"GET", "/simulator/clock", "the simulator's time",
		func(s *Simulator) http.HandlerFunc { return giving(func(*http.Request) any { return s.clock() }) },
	},
	{
		"POST", "/simulator/clock", `moves that time ahead: {"advance":"24h"}`,
		func(s *Simulator) http.HandlerFunc {
			return taking(func(_ *http.Request, by struct {
				Advance time.Duration `json:"advance"`
			}) (any, error) {
				if by.Advance < 0 {
					return nil, errors.New("advance must not be negative")
				}
				s.Advance(by.Advance)
				return s.clock(), nil
			})
		},
	},
	{
		"PUT", "/simulator/webhook", `where webhooks go from now on: {"url":"http://127.0.0.1:8080/v1/channels/simulator/notices"}`,
		func(s *Simulator) http.HandlerFunc {
			return taking(func(_ *http.Request, to struct {
				URL string `json:"url"`
			}) (any, error) {
				s.SetWebhookURL(to.URL)
				return nil, nil
			})
		},
	},
	{
		"POST", "/simulator/deliver", "sends the webhooks that are due and waits for them",
		func(s *Simulator) http.HandlerFunc {
			return giving(func(r *http.Request) any {
				s.awaitSent(r.Context(), nil)
				return nil
			})
		},
	},
	{
		"GET", "/simulator/deliveries", "every webhook that was sent, and how it was answered",
		func(s *Simulator) http.HandlerFunc { return giving(func(*http.Request) any { return s.Deliveries() }) },
	},
	{
		"POST", "/simulator/release/{number}", "lets the answers go that hang for a refund number",
		func(s *Simulator) http.HandlerFunc {
			return giving(func(r *http.Request) any {
				s.Release(r.PathValue("number"))
				return nil
			})
		},
	},
}

// Help lists what is under /simulator, for people.
func Help() string {
	var text strings.Builder
	text.WriteString("Control, without a key; bodies are JSON:\n\n")
	for _, e := range endpoints {
		fmt.Fprintf(&text, "  %-4s %-29s %s\n", e.method, e.path, e.meaning)
	}
	text.WriteString("  GET  /simulator                    this text\n")
	fmt.Fprintf(&text, `
A script is how a refund goes; {} is a channel in good order. Its fields:

  create, lookup    what goes wrong with sending it and with looking it up, in turn: [{"kind":"lost","times":-1}]
                    kind: %s
                    times: how many requests, 1 unless given, -1 for all; applied: the refund is made all the same;
                    delay ("2s"), status, code, message
  life              what becomes of it: [{"after":"1m","status":"succeeded"}]; without one it succeeds at once
                    status: %s
  listLag, getLag   how long after its making it is not found ("10s")
  webhooks          {"none":true}, {"copies":2}, {"delay":"5s"}, {"reversed":true}, {"beforeAnswer":"1s"}

A payment's script is for refunds that are sent for the first time: what becomes of a number that was sent already,
the script of that number (rf_…) changes. Nothing is kept over a restart.
`, joined(faultKinds), joined(statuses))
	return text.String()
}

func joined[T ~string](words []T) string {
	text := ""
	for i, word := range words {
		if i > 0 {
			text += ", "
		}
		text += string(word)
	}
	return text
}

// control routes what sets the scene.
func (s *Simulator) control(mux *http.ServeMux) {
	for _, e := range endpoints {
		mux.HandleFunc(e.method+" "+e.path, e.handler(s))
	}
	mux.HandleFunc("GET /simulator", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, Help()) // the client may have gone away
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
