package simulator

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Payment is a payment that can be refunded.
type Payment struct {
	// Intent is the id of the PaymentIntent ("pi_…") and Charge that of the charge ("ch_…"). One is enough: the charge of an
	// intent is named after it.
	Intent string `json:"payment_intent,omitzero"`
	Charge string `json:"charge,omitzero"`
	// Amount was paid, and Fee of it kept by the channel, in the smallest unit of Currency, a lower-case ISO 4217 code.
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Fee      int64  `json:"fee,omitzero"`
}

type payment struct {
	Payment
	refunds  []*refund
	subjects []*subject
}

func (p *payment) remaining() int64 {
	remaining := p.Amount
	for _, r := range p.refunds {
		if r.effective() {
			remaining -= r.amount
		}
	}
	return max(remaining, 0) // a failed refund that succeeds after all may take too much
}

// money is an amount as Stripe's messages have it.
func (p *payment) money(amount int64) string {
	return contract.Decimal(amount, exponent(p.Currency)) + " " + strings.ToUpper(p.Currency)
}

var currencyPattern = regexp.MustCompile(`^[a-z]{3}$`)

// AddPayment registers a payment. The same payment again changes nothing; another with one of its ids is an error.
func (s *Simulator) AddPayment(p Payment) error {
	if p.Charge == "" && p.Intent != "" {
		p.Charge = "ch_" + strings.TrimPrefix(p.Intent, "pi_")
	}
	switch {
	case p.Charge == "":
		return errors.New("a payment needs payment_intent or charge")
	case p.Charge == p.Intent:
		return errors.New("payment_intent and charge must differ")
	case p.Amount < 1:
		return fmt.Errorf("amount of payment %s is %d: it must be at least 1", p.Charge, p.Amount)
	case p.Fee < 0 || p.Fee > p.Amount:
		return fmt.Errorf("fee of payment %s is %d: it must be 0 to the amount, %d", p.Charge, p.Fee, p.Amount)
	case !currencyPattern.MatchString(p.Currency):
		return fmt.Errorf("currency of payment %s is %q: it must be three letters a to z", p.Charge, p.Currency)
	}
	now := s.lock()
	defer s.mu.Unlock()
	known, other := s.payments[p.Charge], s.payments[p.Intent]
	if p.Intent == "" {
		other = known
	}
	if known != nil && known == other && known.Payment == p {
		return nil
	}
	if known != nil || other != nil {
		return fmt.Errorf("payment %s: there is another with one of its ids", p.Charge)
	}
	added := &payment{Payment: p}
	s.payments[p.Charge] = added
	if p.Intent != "" {
		s.payments[p.Intent] = added
	}
	s.book(movement{kind: "payment", at: now, payment: added, amount: p.Amount, fee: p.Fee})
	return nil
}

// movement is a row of the ledger: money that came in, or went out (negative).
type movement struct {
	id          string
	kind        string
	at          time.Time
	payment     *payment
	refund      *refund // nil for a payment
	amount, fee int64
}

// book writes into the ledger and returns the id of the row; mu is held.
func (s *Simulator) book(m movement) string {
	m.id = newID("txn")
	s.ledger = append(s.ledger, m)
	return m.id
}

// Book is what truly happened, as the channel knows it.
type Book struct {
	// Payments are in the order of their registration.
	Payments []PaymentBook `json:"payments"`
	// Sends is how many POSTs came for each refund number, those without effect included.
	Sends map[string]int `json:"sends"`
}

// PaymentBook is a payment and its refunds.
type PaymentBook struct {
	Payment
	// Refunded is the money that is out now.
	Refunded int64 `json:"refunded"`
	// Refunds has every refund that was made, in the order of their making.
	Refunds []RefundBook `json:"refunds"`
}

// RefundBook is a refund that was made.
type RefundBook struct {
	// Number is empty for a refund that has none.
	Number   string `json:"number"`
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Status   string `json:"status"`
	// Moved is the money that is out now: Amount while the refund has succeeded, otherwise 0.
	Moved int64 `json:"moved"`
	// Sends is how many POSTs came for the number (for the idempotency key, without a number), and Applied how many refunds
	// they made: more than 1 is money lost.
	Sends   int `json:"sends"`
	Applied int `json:"applied"`
}

// Book returns the book as it is now.
func (s *Simulator) Book() Book {
	s.lock()
	defer s.mu.Unlock()
	book := Book{Payments: []PaymentBook{}, Sends: map[string]int{}}
	for _, sub := range s.subjects {
		if sub.number != "" {
			book.Sends[sub.number] = sub.sends
		}
	}
	for _, m := range s.ledger {
		if m.kind != "payment" {
			continue
		}
		page := PaymentBook{Payment: m.payment.Payment, Refunds: []RefundBook{}}
		for _, r := range m.payment.refunds {
			page.Refunded += r.moved()
			page.Refunds = append(page.Refunds, RefundBook{
				Number: r.subject.number, ID: r.id, Amount: r.amount, Currency: r.payment.Currency, Status: r.status,
				Moved: r.moved(), Sends: r.subject.sends, Applied: len(r.subject.refunds),
			})
		}
		book.Payments = append(book.Payments, page)
	}
	return book
}

// MovedFor returns the money that is out now for the refund number, over all refunds that were made under it.
func (s *Simulator) MovedFor(number string) int64 {
	s.lock()
	defer s.mu.Unlock()
	var moved int64
	if sub := s.subjects[number]; sub != nil {
		for _, r := range sub.refunds {
			moved += r.moved()
		}
	}
	return moved
}

// Sends returns how many POSTs came for the refund number.
func (s *Simulator) Sends(number string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.subjects[number]; sub != nil {
		return sub.sends
	}
	return 0
}

// Applied returns how many refunds were made under the number. More than 1 is money lost.
func (s *Simulator) Applied(number string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.subjects[number]; sub != nil {
		return len(sub.refunds)
	}
	return 0
}
