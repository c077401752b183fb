package simulator

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// Script is how the simulator treats a refund. The zero value is a channel in good order: the refund succeeds at once,
// look-ups find it, and its webhooks come once, in order, after the answer. In JSON its durations are written as Go
// writes them ("1h30m") and unknown fields are errors.
type Script struct {
	// Create has what goes wrong with the POSTs of the number, in turn: the first for as many as its Times says, then the
	// second, and so on; after the last all goes well.
	Create []Fault `json:"create,omitzero"`
	// Lookup is the same for the GETs of the refund and the lists of its payment.
	Lookup []Fault `json:"lookup,omitzero"`
	// Life is what becomes of the refund, in the order of After. It is pending until the first step, and it succeeds at
	// once if there is none.
	Life []Step `json:"life,omitzero"`
	// ListLag is how long after its making the refund is not in lists, and GetLag how long it is not found by its id.
	ListLag time.Duration `json:"listLag,omitzero"`
	GetLag  time.Duration `json:"getLag,omitzero"`
	// Webhooks is how the refund's events are told.
	Webhooks Webhooks `json:"webhooks,omitzero"`
}

// Fault is something that goes wrong with requests.
type Fault struct {
	Kind FaultKind `json:"kind"`
	// Times is how many requests it befalls: 1 if 0, all if negative.
	Times int `json:"times,omitzero"`
	// Applied says, for FaultLost, FaultError, FaultHTML and FaultHang, whether the refund is made all the same.
	Applied bool `json:"applied,omitzero"`
	// Stored says, for FaultError, that the error is the API's own: the key then has it for ever, as Stripe's keys do. If
	// not, it came from something in between, and another POST with the key is answered with the refund.
	Stored bool `json:"stored,omitzero"`
	// Delay is the real time that the answer, or the cut, is held back.
	Delay time.Duration `json:"delay,omitzero"`
	// Status is the HTTP status of FaultError (500 if 0), FaultHTML (502) and FaultRefuse (400).
	Status int `json:"status,omitzero"`
	// Size is the length of FaultHTML's page in bytes, a short page if 0.
	Size int `json:"size,omitzero"`
	// Type ("invalid_request_error" if empty), Code and Message are the error of FaultRefuse.
	Type    string `json:"type,omitzero"`
	Code    string `json:"code,omitzero"`
	Message string `json:"message,omitzero"`
}

// FaultKind is a way of going wrong.
type FaultKind string

const (
	// FaultLost closes the connection without an answer.
	FaultLost FaultKind = "lost"
	// FaultCut closes the connection in the middle of the answer. The refund is made.
	FaultCut FaultKind = "cut"
	// FaultError answers with an api_error in Stripe's JSON.
	FaultError FaultKind = "error"
	// FaultHTML answers with a page, as a gateway does.
	FaultHTML FaultKind = "html"
	// FaultHang does not answer until the client goes away or Release is called, and then as if nothing had been. If the
	// refund is not Applied it is made upon the release, and never when the client went away.
	FaultHang FaultKind = "hang"
	// FaultSlow answers late, by Delay. The refund is made before.
	FaultSlow FaultKind = "slow"
	// FaultRefuse refuses with an error of the API. The key has the refusal, unless its status is one of those (401, 403,
	// 409, 429) that come before Stripe looks at keys.
	FaultRefuse FaultKind = "refuse"
	// FaultNullStatus answers with the refund, but without its status. The key has that answer.
	FaultNullStatus FaultKind = "null_status"
)

// Step is a change in the life of a refund.
type Step struct {
	// After is the time since the refund was made, or since the script was set if the refund was there already.
	After time.Duration `json:"after,omitzero"`
	// Status is one of Stripe's: pending, requires_action, succeeded, failed, canceled. Money is out from "succeeded" until
	// the next step that says otherwise.
	Status string `json:"status"`
	// Reason is the failure_reason of "failed": "unknown" if empty.
	Reason string `json:"reason,omitzero"`
}

// Webhooks is how the events of a refund are told. A webhook goes out when the answer to the POST that caused it is
// written, or at once where that POST had a fault.
type Webhooks struct {
	// None sends no webhooks, and Only those of the given types if there are any: refund.created, refund.updated,
	// charge.refund.updated, refund.failed.
	None bool     `json:"none,omitzero"`
	Only []string `json:"only,omitzero"`
	// Copies is how often each event is sent: once if 0.
	Copies int `json:"copies,omitzero"`
	// Delay holds each event back, by the simulator's clock.
	Delay time.Duration `json:"delay,omitzero"`
	// Reversed holds all events back until the refund's life is over and sends them then, the last first.
	Reversed bool `json:"reversed,omitzero"`
	// BeforeAnswer, if not 0, sends the events of the making first, waits until the receiver has answered them, and holds
	// the answer to the POST back for so much real time more.
	BeforeAnswer time.Duration `json:"beforeAnswer,omitzero"`
	// APIVersion is the release that the events say they are of: the package's if empty.
	APIVersion string `json:"apiVersion,omitzero"`
	// Secret signs instead of the right one.
	Secret string `json:"secret,omitzero"`
	// SignedAt moves the time in the signature off real time: -10m for a signature that is ten minutes old.
	SignedAt time.Duration `json:"signedAt,omitzero"`
}

type scriptFields Script

// MarshalJSON writes the form that PUT /simulator/scripts takes.
func (s Script) MarshalJSON() ([]byte, error) { return json.Marshal(scriptFields(s), durations) }

// UnmarshalJSON reads that form.
func (s *Script) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, (*scriptFields)(s), durations, json.RejectUnknownMembers(true))
}

// durations has time.Duration in JSON as Go writes it.
var durations = json.JoinOptions(
	json.WithMarshalers(json.MarshalFunc(func(d time.Duration) ([]byte, error) { return json.Marshal(d.String()) })),
	json.WithUnmarshalers(json.UnmarshalFunc(func(data []byte, d *time.Duration) error {
		var text string
		err := json.Unmarshal(data, &text)
		if err == nil {
			*d, err = time.ParseDuration(text)
		}
		return err
	})),
)

var (
	statuses   = []string{"pending", "requires_action", "succeeded", "failed", "canceled"}
	eventTypes = []string{"refund.created", "refund.updated", "charge.refund.updated", "refund.failed"}
	faultKinds = []FaultKind{
		FaultLost, FaultCut, FaultError, FaultHTML, FaultHang, FaultSlow, FaultRefuse, FaultNullStatus,
	}
)

const maxPage = 16 << 20

func (s Script) check() error {
	for _, f := range slices.Concat(s.Create, s.Lookup) {
		switch {
		case !slices.Contains(faultKinds, f.Kind):
			return fmt.Errorf("fault kind is %q: it must be one of %q", f.Kind, faultKinds)
		case f.Status != 0 && (f.Status < 200 || f.Status > 599):
			return fmt.Errorf("status of fault %q is %d: it must be 200 to 599", f.Kind, f.Status)
		case f.Size < 0 || f.Size > maxPage:
			return fmt.Errorf("size of fault %q is %d: it must be 0 to %d", f.Kind, f.Size, maxPage)
		}
	}
	before := time.Duration(0)
	for _, step := range s.Life {
		if !slices.Contains(statuses, step.Status) {
			return fmt.Errorf("status in life is %q: it must be one of %q", step.Status, statuses)
		}
		if step.After < before {
			return errors.New("life must be in the order of after, from 0")
		}
		before = step.After
	}
	for _, kind := range s.Webhooks.Only {
		if !slices.Contains(eventTypes, kind) {
			return fmt.Errorf("type of webhook is %q: it must be one of %q", kind, eventTypes)
		}
	}
	return nil
}

// Script sets the script of the refund number. If the number has been seen, its faults begin anew, and a Life that is not
// empty replaces the steps to come. It panics if the script is not valid.
func (s *Simulator) Script(number string, script Script) { must(s.setScript(number, script)) }

// ScriptPayment sets the script of the refunds of a payment, given by its intent or its charge, for numbers that are not
// seen before and have no script of their own. It panics if the script is not valid.
func (s *Simulator) ScriptPayment(id string, script Script) { must(s.setScript(id, script)) }

// ScriptNext sets the script of the next number that has not been seen and has no script of its own; called again, of
// the one after it. It panics if the script is not valid.
func (s *Simulator) ScriptNext(script Script) { must(s.setScript(nextScript, script)) }

// ScriptDefault sets the script of the numbers that no other script is for. It panics if the script is not valid.
func (s *Simulator) ScriptDefault(script Script) { must(s.setScript(defaultScript, script)) }

// Names of scripts that are neither a number's nor a payment's.
const (
	nextScript    = "next"
	defaultScript = "default"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// setScript needs one name space only: ids of payments and refund numbers are never the same.
func (s *Simulator) setScript(name string, script Script) error {
	if err := script.check(); err != nil {
		return fmt.Errorf("script %q: %w", name, err)
	}
	now := s.lock()
	defer s.mu.Unlock()
	if name == nextScript {
		s.next = append(s.next, script)
		return nil
	}
	s.scripts[name] = script
	known := s.subjects[name]
	if known == nil {
		return nil
	}
	known.follow(script)
	if len(script.Life) > 0 {
		for _, r := range known.refunds {
			r.steps, r.lifeFrom = slices.Clone(script.Life), now
			s.enliven(r, now)
		}
	}
	s.rouse()
	return nil
}

// Release lets the answers go that hang for the refund number.
func (s *Simulator) Release(number string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.subjects[number]; sub != nil {
		sub.releases++
		s.announce()
	}
}

// subject is what a script is for: a refund number, or for a refund without one its idempotency key.
type subject struct {
	number  string // empty for a refund without one
	script  Script
	create  faults
	lookup  faults
	refunds []*refund
	// sends counts the POSTs, and releases the calls of Release.
	sends, releases int
}

func (sub *subject) follow(script Script) {
	sub.script, sub.create, sub.lookup = script, faults{list: script.Create}, faults{list: script.Lookup}
}

// subjectOf returns the subject of a POST, new if it is the first; mu is held.
func (s *Simulator) subjectOf(number, idempotencyKey string, p *payment) *subject {
	name := number
	if name == "" {
		name = idempotencyKey
	}
	sub := s.subjects[name]
	if sub == nil {
		sub = &subject{number: number}
		sub.follow(s.scriptFor(name, p))
		s.subjects[name] = sub
	}
	if p != nil && !slices.Contains(p.subjects, sub) {
		p.subjects = append(p.subjects, sub)
	}
	return sub
}

func (s *Simulator) scriptFor(name string, p *payment) Script {
	if script, ok := s.scripts[name]; ok {
		return script
	}
	if len(s.next) > 0 {
		script := s.next[0]
		s.next = s.next[1:]
		return script
	}
	if p != nil {
		for _, id := range []string{p.Intent, p.Charge} {
			if script, ok := s.scripts[id]; ok {
				return script
			}
		}
	}
	return s.scripts[defaultScript]
}

// faults is a queue of faults of which some may have been used up.
type faults struct {
	list []Fault
	used int
}

// turn gives a request the next of these faults of the subject's; mu is held.
func (sub *subject) turn(f *faults) turn { return turn{sub, f.take(), sub.releases} }

// take returns the fault of the next request, the zero value for none.
func (f *faults) take() Fault {
	for len(f.list) > 0 {
		first := f.list[0]
		if first.Times < 0 {
			return first
		}
		if f.used < max(first.Times, 1) {
			f.used++
			return first
		}
		f.list, f.used = f.list[1:], 0
	}
	return Fault{}
}

// executes says whether the API gets to see the request.
func (f Fault) executes() bool {
	switch f.Kind {
	case FaultLost, FaultHTML:
		return f.Applied
	case FaultError:
		return f.Applied || f.Stored
	}
	return true
}

// error is the answer of FaultError.
func (f Fault) error() answer {
	a := refusalOfType(cmp.Or(f.Status, http.StatusInternalServerError), "api_error", "", "",
		"An unknown error occurred.")
	if f.Stored {
		a.retry = "false"
	}
	return a
}

// refusal is the answer of FaultRefuse.
func (f Fault) refusal() answer {
	return refusalOfType(cmp.Or(f.Status, http.StatusBadRequest), cmp.Or(f.Type, "invalid_request_error"), f.Code, "",
		cmp.Or(f.Message, "The refund was refused."))
}

// kept says whether a refusal is an answer that an idempotency key has.
func (f Fault) kept() bool {
	switch f.Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return true
}

// turn is one request's share of a script.
type turn struct {
	subject *subject
	fault   Fault
	// releases is how many there had been when the request came.
	releases int
}

// hold lets the time pass until the answer. When the client goes away or the simulator is closed before, it panics and so
// ends the handler.
func (s *Simulator) hold(r *http.Request, t turn) {
	if t.fault.Kind == FaultHang {
		s.hang(r, t)
	}
	if !s.pause(r.Context(), s.options.Latency+t.fault.Delay) {
		panic(http.ErrAbortHandler)
	}
}

// hang waits for a release, and panics as hold does.
func (s *Simulator) hang(r *http.Request, t turn) {
	if !s.await(r.Context(), func() bool { return t.subject.releases > t.releases }) {
		panic(http.ErrAbortHandler)
	}
}

// misbehave gives the answer as the fault has it, which may be not at all.
func misbehave(w http.ResponseWriter, f Fault, a answer) {
	switch f.Kind {
	case FaultLost:
		panic(http.ErrAbortHandler)
	case FaultCut:
		write(w, a, len(a.body)/2)
		_ = http.NewResponseController(w).Flush() // or the half would never leave
		panic(http.ErrAbortHandler)
	case FaultHTML:
		a = answer{status: cmp.Or(f.Status, http.StatusBadGateway), body: htmlPage(f.Size), html: true}
	case FaultError:
		a = f.error()
	}
	respond(w, a)
}
