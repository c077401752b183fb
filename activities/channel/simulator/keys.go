package simulator

import (
	"net/http"
	"net/url"
	"time"
)

// key is what is kept of an idempotency key.
type key struct {
	params  string
	first   time.Time
	running bool
	answer  answer
}

// claim takes the idempotency key for a request with these parameters; mu is held. If there is nothing to do under the
// key it returns nil and the answer: the one that was stored, or why there is none.
func (s *Simulator) claim(name string, form url.Values, now time.Time) (*key, answer) {
	params := form.Encode() // sorted: the order of parameters does not matter
	k := s.keys[name]
	switch {
	case k == nil || !k.running && now.Sub(k.first) >= s.options.KeyLife:
		k = &key{params: params, first: now, running: true}
		s.keys[name] = k
		return k, answer{}
	case k.params != params:
		return nil, refusalOfType(http.StatusBadRequest, "idempotency_error", "", "",
			"Keys for idempotent requests can only be used with the same parameters they were first used with. Try using a key "+
				"other than '"+name+"' if you meant to execute a different request.")
	case k.running:
		a := refusalOfType(http.StatusConflict, "idempotency_error", "idempotency_key_in_use", "",
			"There is currently another in-progress request using this Idempotent Key (that probably means you submitted twice, "+
				"and the other request is still going through): "+name+". Please try again later.")
		a.retry = "true"
		return nil, a
	}
	a := k.answer
	a.replayed = true
	return nil, a
}
