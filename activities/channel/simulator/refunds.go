package simulator

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// NumberField is the field of a refund's metadata that has its number.
const NumberField = "reclaim_refund"

const (
	maxBody       = 1 << 20
	maxKeyLength  = 255
	maxMetadata   = 50
	maxFieldName  = 40
	maxFieldValue = 500
	defaultPage   = 10
	maxPageLimit  = 100
)

type refund struct {
	id            string
	payment       *payment
	subject       *subject
	amount        int64
	metadata      map[string]string
	reason        string
	created       time.Time
	status        string
	failureReason string
	// transaction and failureTransaction are the rows of the ledger that the refund made.
	transaction, failureTransaction string
	// steps are the changes to come, counted from lifeFrom.
	steps    []Step
	lifeFrom time.Time
	// answering holds the webhooks back until the answer to the POST is written.
	answering bool
	// reserve has the events of a script that reverses them.
	reserve []*delivery
}

func (r *refund) moved() int64 {
	if r.status == "succeeded" {
		return r.amount
	}
	return 0
}

// effective says whether the refund takes a part of its payment.
func (r *refund) effective() bool { return r.status != "failed" && r.status != "canceled" }

// refundObject is a refund as Stripe tells it.
type refundObject struct {
	ID                        string             `json:"id"`
	Object                    string             `json:"object"`
	Amount                    int64              `json:"amount"`
	BalanceTransaction        *string            `json:"balance_transaction"`
	Charge                    *string            `json:"charge"`
	Created                   int64              `json:"created"`
	Currency                  string             `json:"currency"`
	DestinationDetails        destinationDetails `json:"destination_details"`
	FailureBalanceTransaction string             `json:"failure_balance_transaction,omitzero"`
	FailureReason             string             `json:"failure_reason,omitzero"`
	Metadata                  map[string]string  `json:"metadata"`
	NextAction                *nextAction        `json:"next_action,omitzero"`
	PaymentIntent             *string            `json:"payment_intent"`
	PendingReason             string             `json:"pending_reason,omitzero"`
	Reason                    *string            `json:"reason"`
	ReceiptNumber             *string            `json:"receipt_number"`
	SourceTransferReversal    *string            `json:"source_transfer_reversal"`
	Status                    *string            `json:"status"`
	TransferReversal          *string            `json:"transfer_reversal"`
}

type destinationDetails struct {
	Card struct {
		ReferenceStatus string `json:"reference_status"`
		ReferenceType   string `json:"reference_type"`
		Type            string `json:"type"`
	} `json:"card"`
	Type string `json:"type"`
}

type nextAction struct {
	DisplayDetails struct {
		EmailSent struct {
			EmailSentAt int64  `json:"email_sent_at"`
			EmailSentTo string `json:"email_sent_to"`
		} `json:"email_sent"`
		ExpiresAt int64 `json:"expires_at"`
	} `json:"display_details"`
	Type string `json:"type"`
}

// object is the refund as it is now, or under FaultNullStatus.
func (r *refund) object(f Fault) refundObject {
	o := refundObject{
		ID: r.id, Object: "refund", Amount: r.amount, BalanceTransaction: orNull(r.transaction),
		Charge: orNull(r.payment.Charge), Created: r.created.Unix(), Currency: r.payment.Currency,
		FailureBalanceTransaction: r.failureTransaction, FailureReason: r.failureReason, Metadata: r.metadata,
		PaymentIntent: orNull(r.payment.Intent), Reason: orNull(r.reason), Status: orNull(r.status),
	}
	o.DestinationDetails.Type = "card"
	o.DestinationDetails.Card.Type = "refund"
	o.DestinationDetails.Card.ReferenceStatus = "pending"
	o.DestinationDetails.Card.ReferenceType = "acquirer_reference_number"
	switch r.status {
	case "pending":
		o.PendingReason = "processing"
	case "requires_action":
		o.NextAction = &nextAction{Type: "display_details"}
		o.NextAction.DisplayDetails.EmailSent.EmailSentAt = r.created.Unix()
		o.NextAction.DisplayDetails.EmailSent.EmailSentTo = "customer@example.com"
		o.NextAction.DisplayDetails.ExpiresAt = r.created.Add(90 * 24 * time.Hour).Unix()
	}
	if f.Kind == FaultNullStatus {
		o.Status = nil
	}
	return o
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// createRefund answers POST /v1/refunds.
func (s *Simulator) createRefund(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		respond(w, refusal(http.StatusBadRequest, "", "", "Invalid request body: "+err.Error()))
		return
	}
	form, name := r.PostForm, r.Header.Get("Idempotency-Key")
	if name == "" || len(name) > maxKeyLength {
		respond(w, refusal(http.StatusBadRequest, "", "",
			fmt.Sprintf("This simulator needs the header Idempotency-Key, of at most %d characters.", maxKeyLength)))
		return
	}

	s.lock()
	sub := s.subjectOf(form.Get("metadata["+NumberField+"]"), name, s.paymentOf(form))
	sub.sends++
	turn, beforeAnswer := sub.turn(&sub.create), sub.script.Webhooks.BeforeAnswer
	s.mu.Unlock()

	if turn.fault.Kind == FaultHang && !turn.fault.Applied {
		s.hang(r, turn)
		turn.fault = Fault{}
	}
	var a answer
	var k *key
	if turn.fault.executes() {
		var made *refund
		a, made, k = s.execute(name, form, turn)
		defer s.finish(k, made)
		if made != nil && beforeAnswer > 0 && !s.sendFirst(r.Context(), made, beforeAnswer) {
			panic(http.ErrAbortHandler)
		}
	}
	s.hold(r, turn)
	// Whoever has the answer may use the key again.
	s.finish(k, nil)
	misbehave(w, turn.fault, a)
	// The webhooks that are let go on return must not overtake the answer.
	_ = http.NewResponseController(w).Flush()
}

// execute answers the request under its idempotency key and says what it made, if anything. When it returns a key, that
// is in use, and the webhooks of the refund may be held, until finish is called.
func (s *Simulator) execute(name string, form url.Values, t turn) (a answer, made *refund, k *key) {
	if t.fault.Kind == FaultRefuse && !t.fault.kept() {
		return t.fault.refusal(), nil, nil
	}
	now := s.lock()
	defer s.mu.Unlock()
	k, a = s.claim(name, form, now)
	if k == nil {
		return a, nil, nil
	}
	keep := true
	switch f := t.fault; {
	case f.Kind == FaultRefuse:
		a = f.refusal()
	case f.Kind == FaultError && !f.Applied:
		a = f.error()
	default:
		made, a, keep = s.apply(form, t, now)
		if f.Kind == FaultError && f.Stored {
			a = f.error()
		}
	}
	a.original = newID("req")
	k.answer = a
	if !keep {
		delete(s.keys, name)
	}
	return a, made, k
}

// finish ends the use of the key and lets the webhooks of the refund go, where they are not nil.
func (s *Simulator) finish(k *key, made *refund) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k != nil {
		k.running = false
	}
	if made != nil {
		made.answering = false
	}
	s.announce()
	s.rouse()
}

// apply makes the refund that is asked for; mu is held. Without one, keep says whether the key has the refusal: not if the
// request was not valid to begin with.
func (s *Simulator) apply(form url.Values, t turn, now time.Time) (made *refund, a answer, keep bool) {
	if a, ok := checkForm(form); !ok {
		return nil, a, false
	}
	p := s.paymentOf(form)
	if p == nil {
		if id := form.Get("charge"); id != "" {
			return nil, missing("charge", "charge", id), false
		}
		return nil, missing("payment_intent", "payment_intent", form.Get("payment_intent")), false
	}
	remaining := p.remaining()
	amount := remaining
	if form.Has("amount") {
		amount, _ = strconv.ParseInt(form.Get("amount"), 10, 64) // checked above
	}
	switch {
	case remaining == 0:
		return nil, refusal(http.StatusBadRequest, "charge_already_refunded", "",
			fmt.Sprintf("Charge %s has already been refunded.", p.Charge)), true
	case amount > remaining:
		return nil, refusal(http.StatusBadRequest, "amount_too_large", "amount",
			fmt.Sprintf("Refund amount (%s) is greater than unrefunded amount on charge (%s)",
				p.money(amount), p.money(remaining))), true
	}
	r := &refund{
		id: newID("re"), payment: p, subject: t.subject, amount: amount, metadata: metadataOf(form),
		reason: form.Get("reason"), created: now, lifeFrom: now, status: "pending",
		steps: slices.Clone(t.subject.script.Life), answering: t.fault.Kind == "",
	}
	if len(r.steps) == 0 {
		r.steps = []Step{{Status: "succeeded"}}
	}
	s.refunds = append(s.refunds, r)
	s.byID[r.id] = r
	p.refunds = append(p.refunds, r)
	t.subject.refunds = append(t.subject.refunds, r)
	if r.steps[0].After == 0 {
		s.enter(r, r.steps[0], now)
		r.steps = r.steps[1:]
	}
	s.tell(r, "refund.created", now, "")
	if r.status == "failed" {
		s.tell(r, "refund.failed", now, "")
	}
	s.enliven(r, now)
	return r, answer{status: http.StatusOK, body: encode(r.object(t.fault))}, true
}

// paymentOf returns the payment that a request is about, nil if it is not known; mu is held.
func (s *Simulator) paymentOf(form url.Values) *payment {
	intent, charge := form.Get("payment_intent"), form.Get("charge")
	p := s.payments[cmp.Or(intent, charge)]
	if p == nil || intent != "" && p.Intent != intent || charge != "" && p.Charge != charge {
		return nil
	}
	return p
}

func checkForm(form url.Values) (answer, bool) {
	refuse := func(code, param, message string) (answer, bool) {
		return refusal(http.StatusBadRequest, code, param, message), false
	}
	fields := 0
	for _, name := range slices.Sorted(maps.Keys(form)) {
		field, isMetadata := metadataField(name)
		switch value := form.Get(name); {
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			return refuse("", name, "Invalid UTF-8")
		case isMetadata && len([]rune(field)) > maxFieldName:
			return refuse("", name, fmt.Sprintf("Metadata keys can be up to %d characters long.", maxFieldName))
		case isMetadata && len([]rune(value)) > maxFieldValue:
			return refuse("", name, fmt.Sprintf("Metadata values can be up to %d characters long.", maxFieldValue))
		case isMetadata:
			if fields++; fields > maxMetadata {
				return refuse("", "metadata", fmt.Sprintf("Metadata can have up to %d keys.", maxMetadata))
			}
		case !slices.Contains([]string{"payment_intent", "charge", "amount", "reason"}, name):
			return refuse("parameter_unknown", name, "Received unknown parameter: "+name)
		}
	}
	if form.Has("payment_intent") == form.Has("charge") {
		return refuse("parameter_missing", "", "Exactly one of the following params should be provided for this request: "+
			"payment_intent or charge.")
	}
	if amount := form.Get("amount"); form.Has("amount") {
		if n, err := strconv.ParseInt(amount, 10, 64); err != nil {
			return refuse("parameter_invalid_integer", "amount", "Invalid integer: "+amount)
		} else if n < 1 {
			return refuse("parameter_invalid_integer", "amount", "This value must be greater than or equal to 1.")
		}
	}
	if reason := form.Get("reason"); form.Has("reason") &&
		!slices.Contains([]string{"duplicate", "fraudulent", "requested_by_customer"}, reason) {
		return refuse("", "reason", "Invalid reason: must be one of duplicate, fraudulent, or requested_by_customer")
	}
	return answer{}, true
}

// metadataField returns the field that a parameter of the form metadata[field] sets.
func metadataField(name string) (string, bool) {
	field, ok := strings.CutPrefix(name, "metadata[")
	if !ok {
		return "", false
	}
	field, ok = strings.CutSuffix(field, "]")
	return field, ok && field != ""
}

func metadataOf(form url.Values) map[string]string {
	metadata := map[string]string{}
	for name := range form {
		if field, ok := metadataField(name); ok {
			metadata[field] = form.Get(name)
		}
	}
	return metadata
}

// enliven takes the steps of the refund that are due and sees to the others; mu is held.
func (s *Simulator) enliven(r *refund, now time.Time) {
	if !slices.Contains(s.live, r) {
		s.live = append(s.live, s.settle([]*refund{r}, now)...)
	}
}

// settle takes the steps that are due and returns the refunds that have steps to come; mu is held.
func (s *Simulator) settle(refunds []*refund, now time.Time) []*refund {
	var live []*refund
	for _, r := range refunds {
		for len(r.steps) > 0 && !now.Before(r.lifeFrom.Add(r.steps[0].After)) {
			step, before := r.steps[0], r.status
			at := r.lifeFrom.Add(step.After)
			r.steps = r.steps[1:]
			s.enter(r, step, at)
			s.tell(r, "refund.updated", at, before)
			s.tell(r, "charge.refund.updated", at, before)
			if r.status == "failed" {
				s.tell(r, "refund.failed", at, before)
			}
		}
		if len(r.steps) > 0 {
			live = append(live, r)
		} else {
			s.tellReserve(r)
		}
	}
	return live
}

// enter gives the refund the status of the step, and moves the money; mu is held.
func (s *Simulator) enter(r *refund, step Step, at time.Time) {
	before := r.moved()
	r.status, r.failureReason = step.Status, ""
	if r.status == "failed" {
		r.failureReason = cmp.Or(step.Reason, "unknown")
	}
	switch after := r.moved(); {
	case after > before:
		r.transaction = s.book(movement{kind: "refund", at: at, payment: r.payment, refund: r, amount: -after})
	case after < before:
		r.failureTransaction = s.book(movement{kind: "refund_failure", at: at, payment: r.payment, refund: r, amount: before})
	}
}

// getRefund answers GET /v1/refunds/{id}.
func (s *Simulator) getRefund(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	now := s.lock()
	a, t := missing("refund", "id", id), turn{}
	if found := s.byID[id]; found != nil {
		t = found.subject.turn(&found.subject.lookup)
		if t.fault.Kind == FaultRefuse {
			a = t.fault.refusal()
		} else if !now.Before(found.created.Add(found.subject.script.GetLag)) {
			a = answer{status: http.StatusOK, body: encode(found.object(t.fault))}
		}
	}
	s.mu.Unlock()
	s.hold(r, t)
	misbehave(w, t.fault, a)
}

// listRefunds answers GET /v1/refunds.
func (s *Simulator) listRefunds(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	now := s.lock()
	var t turn
	if p := s.paymentOf(query); p != nil {
		for _, sub := range p.subjects {
			if t = sub.turn(&sub.lookup); t.fault.Kind != "" {
				break
			}
		}
	}
	a := s.list(query, t, now)
	s.mu.Unlock()
	s.hold(r, t)
	misbehave(w, t.fault, a)
}

func (s *Simulator) list(query url.Values, t turn, now time.Time) answer {
	if t.fault.Kind == FaultRefuse {
		return t.fault.refusal()
	}
	limit, made, problem := pageOf(query, "payment_intent", "charge")
	if problem != nil {
		return *problem
	}
	for _, name := range []string{"payment_intent", "charge"} {
		if id := query.Get(name); query.Has(name) && s.paymentOf(url.Values{name: {id}}) == nil {
			return missing(name, name, id)
		}
	}
	after := query.Get("starting_after")
	if after != "" && s.byID[after] == nil {
		return missing("refund", "starting_after", after)
	}
	page := struct {
		Object  string         `json:"object"`
		Data    []refundObject `json:"data"`
		HasMore bool           `json:"has_more"`
		URL     string         `json:"url"`
	}{Object: "list", URL: "/v1/refunds"}
	for _, r := range slices.Backward(s.refunds) {
		if after != "" {
			if r.id == after {
				after = ""
			}
			continue
		}
		if now.Before(r.created.Add(r.subject.script.ListLag)) || !made.has(r.created) ||
			query.Has("payment_intent") && r.payment.Intent != query.Get("payment_intent") ||
			query.Has("charge") && r.payment.Charge != query.Get("charge") {
			continue
		}
		if len(page.Data) == limit {
			page.HasMore = true
			break
		}
		fault := Fault{}
		if r.subject == t.subject {
			fault = t.fault
		}
		page.Data = append(page.Data, r.object(fault))
	}
	return answer{status: http.StatusOK, body: encode(page)}
}
