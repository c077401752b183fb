package simulator

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"time"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Settlement returns the settlement file: CSV in the form of Stripe's export of balance transactions, all money that
// moved since the start, oldest first. Times are UTC.
func (s *Simulator) Settlement() []byte {
	s.lock()
	rows := slices.Clone(s.ledger)
	s.mu.Unlock()
	// Rows are booked when they are noticed, which may be later than they happened.
	slices.SortStableFunc(rows, func(a, b movement) int { return a.at.Compare(b.at) })
	var file bytes.Buffer
	w := csv.NewWriter(&file)
	write := func(fields ...string) { _ = w.Write(fields) } // a buffer takes everything
	write("id", "type", "source", "amount", "fee", "net", "currency", "created", "description",
		"refund_metadata["+NumberField+"]", "payment_intent_id")
	for _, m := range rows {
		source, number, description := m.payment.Charge, "", "Payment "+m.payment.Intent
		if m.refund != nil {
			source, number = m.refund.id, m.refund.metadata[NumberField]
			description = "REFUND FOR CHARGE"
			if m.kind == "refund_failure" {
				description = "REFUND FAILURE"
			}
		}
		digits := exponent(m.payment.Currency)
		write(m.id, m.kind, source, contract.Decimal(m.amount, digits), contract.Decimal(m.fee, digits), contract.Decimal(m.amount-m.fee, digits),
			m.payment.Currency, m.at.Format(time.DateTime), strings.TrimSpace(description), number, m.payment.Intent)
	}
	w.Flush()
	return file.Bytes()
}

// exponent is how many decimal places an amount of the currency has in Stripe's API. ISK and UGX have two there, although
// they have no smaller unit.
func exponent(currency string) int {
	switch currency {
	case "bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf":
		return 0
	case "bhd", "jod", "kwd", "omr", "tnd":
		return 3
	}
	return 2
}
