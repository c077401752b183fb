package simulator

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// seconds is a period as Stripe's lists take it: from the first second on and before the second; 0 leaves an end open.
type seconds struct{ gte, lt int64 }

func (s seconds) has(at time.Time) bool { return at.Unix() >= s.gte && (s.lt == 0 || at.Unix() < s.lt) }

// pageOf reads the parameters that every list takes; others are the ones that this list takes beside them.
func pageOf(query url.Values, others ...string) (limit int, made seconds, problem *answer) {
	limit = defaultPage
	number := func(name string, least, most int64) int64 {
		n, err := strconv.ParseInt(query.Get(name), 10, 64)
		if err != nil || n < least || n > most {
			a := refusal(http.StatusBadRequest, "parameter_invalid_integer", name,
				fmt.Sprintf("Invalid %s: must be an integer from %d to %d.", name, least, most))
			problem = &a
		}
		return n
	}
	for name := range query {
		switch {
		case name == "limit":
			limit = int(number(name, 1, maxPageLimit))
		case name == "created[gte]":
			made.gte = number(name, 0, 1<<40)
		case name == "created[lt]":
			made.lt = number(name, 0, 1<<40)
		case name != "starting_after" && !slices.Contains(others, name):
			a := refusal(http.StatusBadRequest, "parameter_unknown", name, "Received unknown parameter: "+name)
			problem = &a
		}
	}
	return limit, made, problem
}

// chargeObject is the part of a charge as Stripe tells it that says what was paid.
type chargeObject struct {
	ID             string            `json:"id"`
	Object         string            `json:"object"`
	Amount         int64             `json:"amount"`
	AmountCaptured int64             `json:"amount_captured"`
	AmountRefunded int64             `json:"amount_refunded"`
	Captured       bool              `json:"captured"`
	Created        int64             `json:"created"`
	Currency       string            `json:"currency"`
	Metadata       map[string]string `json:"metadata"`
	Paid           bool              `json:"paid"`
	PaymentIntent  *string           `json:"payment_intent"`
	Refunded       bool              `json:"refunded"`
	Status         string            `json:"status"`
}

// listCharges answers GET /v1/charges, the newest first.
func (s *Simulator) listCharges(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, made, problem := pageOf(query)
	if problem != nil {
		respond(w, *problem)
		return
	}
	s.lock()
	defer s.mu.Unlock()
	after := query.Get("starting_after")
	if p := s.payments[after]; after != "" && (p == nil || p.Charge != after) {
		respond(w, missing("charge", "starting_after", after))
		return
	}
	page := struct {
		Object  string         `json:"object"`
		Data    []chargeObject `json:"data"`
		HasMore bool           `json:"has_more"`
		URL     string         `json:"url"`
	}{Object: "list", Data: []chargeObject{}, URL: "/v1/charges"}
	for _, m := range slices.Backward(s.ledger) {
		switch {
		case m.kind != "payment":
			continue
		case after != "":
			if m.payment.Charge == after {
				after = ""
			}
			continue
		case !made.has(m.at):
			continue
		}
		if len(page.Data) == limit {
			page.HasMore = true
			break
		}
		p := m.payment
		refunded := p.Amount - p.remaining()
		page.Data = append(page.Data, chargeObject{
			ID: p.Charge, Object: "charge", Amount: p.Amount, AmountCaptured: p.Amount, AmountRefunded: refunded, Captured: true,
			Created: m.at.Unix(), Currency: p.Currency, Metadata: map[string]string{}, Paid: true, PaymentIntent: orNull(p.Intent),
			Refunded: refunded == p.Amount, Status: "succeeded",
		})
	}
	respond(w, answer{status: http.StatusOK, body: encode(page)})
}
