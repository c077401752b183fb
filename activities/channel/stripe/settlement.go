package stripe

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// columnNames are the headings of each column that is read, in any order and case; of several, the first counts. They are
// those of Stripe's report balance_change_from_activity.itemized (https://docs.stripe.com/reports/report-types/balance), of
// the Dashboard's export of all activity, and of balance transactions in the API.
var columnNames = map[string][]string{
	"id":                {"balance_transaction_id", "id"},
	"kind":              {"reporting_category", "type"},
	"source":            {"source_id", "source"},
	"gross":             {"gross", "amount"},
	"fee":               {"fee"},
	"net":               {"net"},
	"currency":          {"currency"},
	"created":           {"created_utc", "created (utc)", "created"},
	"description":       {"description"},
	"number":            {"refund_metadata[" + metadataNumber + "]", metadataNumber + " (metadata)"},
	"payment":           {"refund_metadata[" + metadataPayment + "]", metadataPayment + " (metadata)"},
	"intent":            {"payment_intent_id"},
	"charge":            {"charge_id"},
	"customer_amount":   {"customer_facing_amount"},
	"customer_currency": {"customer_facing_currency"},
}

// neededColumns are those without which no line can be read.
var neededColumns = []string{"kind", "source", "gross", "fee", "net", "currency"}

// settlementKinds maps Stripe's words for what moved the money; others stay as they are:
// https://docs.stripe.com/reports/reporting-categories.
var settlementKinds = map[string]string{
	"charge": "payment", "payment": "payment",
	"refund": "refund", "payment_refund": "refund",
	"refund_failure": "refund_failure",
}

// ordinaryKinds are Stripe's other words for what moves money in the usual course, as reporting categories and as types of balance
// transactions: payouts, fees, adjustments, disputes, and movements between accounts.
var ordinaryKinds = wordsOf(`
	payout payout_cancel payout_failure payout_reversal payout_minimum_balance_hold payout_minimum_balance_release
	fee stripe_fee stripe_fx_fee tax tax_fee network_cost
	adjustment other_adjustment dispute dispute_reversal charge_failure payment_failure_refund payment_reversal
	partial_capture_reversal
	advance advance_funding anticipation_repayment contribution topup topup_reversal
	transfer transfer_cancel transfer_failure transfer_refund transfer_reversal
	application_fee application_fee_refund platform_earning platform_earning_refund
	connect_collection_transfer connect_reserved_funds reserve_transaction reserved_funds risk_reserved_funds`)

func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		words[word] = true
	}
	return words
}

// Settlement reads a CSV file with a heading: balance_transaction_id or id, reporting_category or type, source_id or source
// (the refund's id), gross or amount, fee, net, currency, created_utc or created, description and, where the report was
// asked for it, refund_metadata[reclaim_refund], the refund's number, refund_metadata[reclaim_payment], payment_intent_id and
// charge_id. Amounts are decimal numbers in the currency's major unit with a point.
//
// Evidence.Amount has no sign: Kind says which way the money went, and so does the sign of Net. It is in the customer's
// currency where the file gives customer_facing_amount; Fee and Net are always in the balance's. A refund line says
// OutcomeSucceeded, a refund_failure OutcomeFailed, and others nothing of a refund. Code is Stripe's word for the kind.
//
// A line that cannot be read yields its number and an error; one where gross - fee is not net yields everything in it, and an
// error. Without a usable heading there is one error, of line 1, and nothing else; an error of line 0 ends the reading.
func (c *Channel) Settlement(file io.Reader) iter.Seq2[channel.SettlementLine, error] {
	return func(yield func(channel.SettlementLine, error) bool) {
		records := &recorder{from: file}
		reader := csv.NewReader(records)
		reader.FieldsPerRecord = -1
		heading, err := reader.Read()
		if err != nil {
			yield(channel.SettlementLine{Line: 1}, fmt.Errorf("read the heading: %w", err))
			return
		}
		columns, err := findColumns(heading)
		if err != nil {
			yield(channel.SettlementLine{Line: 1}, err)
			return
		}
		records.take(reader.InputOffset())
		for {
			fields, err := reader.Read()
			if errors.Is(err, io.EOF) {
				return
			}
			raw := records.take(reader.InputOffset())
			var line channel.SettlementLine
			broken, syntax := errors.AsType[*csv.ParseError](err)
			switch {
			case err == nil:
				at, _ := reader.FieldPos(0)
				line, err = c.settled(row{columns, fields}, at)
			case syntax:
				line.Line = broken.StartLine
			}
			if line.Line > 0 {
				line.Raw = raw
			}
			if !yield(line, err) || err != nil && line.Line == 0 {
				return
			}
		}
	}
}

// maxRecord bounds one line of the file, and so what is kept of it: a quote that is left open reaches to the file's end.
const maxRecord = 1 << 20

var errLongRecord = fmt.Errorf("there is a line of more than %d bytes: a quote may have been left open", maxRecord)

// recorder keeps what was read and not yet taken.
type recorder struct {
	from io.Reader
	kept []byte
	// at is how far into the file kept begins.
	at int64
}

// Read hands on what it reads, unless more is kept than a line may have.
func (r *recorder) Read(p []byte) (int, error) {
	if len(r.kept) > maxRecord {
		return 0, errLongRecord
	}
	n, err := r.from.Read(p)
	r.kept = append(r.kept, p[:n]...)
	return n, err
}

// take returns what is kept up to that point of the file, without the line ends around it.
func (r *recorder) take(until int64) string {
	n := until - r.at
	record := string(bytes.Trim(r.kept[:n], "\r\n"))
	r.kept, r.at = r.kept[n:], until
	return record
}

func findColumns(heading []string) (map[string]int, error) {
	at := map[string]int{}
	for i, name := range heading {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\uFEFF")))
		if _, twice := at[name]; twice && name != "" {
			return nil, fmt.Errorf("line 1: the column %q is there twice", contract.Clip(name, maxCode))
		}
		at[name] = i
	}
	columns := map[string]int{}
	for column, names := range columnNames {
		for _, name := range names {
			if i, ok := at[name]; ok {
				columns[column] = i
				break
			}
		}
	}
	for _, column := range neededColumns {
		if _, ok := columns[column]; !ok {
			return nil, fmt.Errorf("line 1: the column %s is missing", strings.Join(columnNames[column], " or "))
		}
	}
	return columns, nil
}

// row is one line of the file.
type row struct {
	columns map[string]int
	fields  []string
}

func (r row) field(column string) string {
	if i, ok := r.columns[column]; ok && i < len(r.fields) {
		return strings.TrimSpace(r.fields[i])
	}
	return ""
}

func (c *Channel) settled(r row, at int) (channel.SettlementLine, error) {
	line := channel.SettlementLine{Line: at}
	currency := strings.ToLower(r.field("currency"))
	var gross, fee, net int64
	for _, amount := range []struct {
		column string
		into   *int64
	}{{"gross", &gross}, {"fee", &fee}, {"net", &net}} {
		value, err := parseMajor(r.field(amount.column), currency)
		if err != nil {
			return line, fmt.Errorf("line %d: %s: %w", at, amount.column, err)
		}
		*amount.into = value
	}
	e := channel.Evidence{
		Outcome: channel.OutcomeUnknown, Number: r.field("number"), Amount: max(gross, -gross), Currency: currency,
		Code:   contract.Clip(r.field("kind"), maxCode),
		Detail: c.detail(strings.TrimSpace(r.field("id") + " " + r.field("description"))),
	}
	if theirs := r.field("customer_amount"); theirs != "" {
		e.Currency = strings.ToLower(r.field("customer_currency"))
		value, err := parseMajor(theirs, e.Currency)
		if err != nil {
			return line, fmt.Errorf("line %d: customer_facing_amount: %w", at, err)
		}
		e.Amount = max(value, -value)
	}
	created, err := parseCreated(r.field("created"))
	if err != nil {
		return line, fmt.Errorf("line %d: %w", at, err)
	}
	e.ObservedAt = created
	kind, ok := settlementKinds[e.Code]
	if !ok {
		kind = e.Code
	}
	switch kind {
	case "payment":
		e.Payment = r.field("source")
		if intent := r.field("intent"); intent != "" {
			e.Payment, e.PaymentAlias = intent, e.Payment
		}
	case "refund", "refund_failure":
		e.Outcome, e.Reference, e.Payment = channel.OutcomeSucceeded, r.field("source"), r.field("payment")
		if kind == "refund_failure" {
			e.Outcome = channel.OutcomeFailed
		}
		// The payment by which it was asked for is the refund's; what the report calls it may be its other name.
		e.PaymentAlias = cmp.Or(r.field("intent"), r.field("charge"))
	default:
		line.Ordinary = ordinaryKinds[kind]
	}
	line.Evidence, line.Transaction, line.Kind = e, contract.Clip(r.field("id"), 200), kind
	line.Gross, line.Fee, line.Net, line.Settled = gross, fee, net, currency
	if gross-fee != net {
		return line, fmt.Errorf("line %d: gross %d - fee %d is not net %d (in the smallest unit of %s)",
			at, gross, fee, net, currency)
	}
	return line, nil
}

// maxSettled keeps the differences of three amounts within int64.
const maxSettled = 1 << 60

// parseMajor reads a decimal number of the currency's major unit exactly, in the smallest unit.
func parseMajor(text, currency string) (int64, error) {
	exponent, known := currencies[currency]
	if !known {
		return 0, fmt.Errorf("%q is no currency of Stripe's", contract.Clip(currency, maxCode))
	}
	unsigned, negative := strings.CutPrefix(text, "-")
	whole, fraction, point := strings.Cut(unsigned, ".")
	// Zeros beyond the currency's decimals change nothing.
	for len(fraction) > exponent && strings.HasSuffix(fraction, "0") {
		fraction = fraction[:len(fraction)-1]
	}
	digits := whole + fraction + strings.Repeat("0", max(exponent-len(fraction), 0))
	value, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || whole == "" || point && strings.HasSuffix(unsigned, ".") || len(fraction) > exponent || value > maxSettled {
		return 0, fmt.Errorf("%q is no amount in %s with at most %d decimals", contract.Clip(text, maxCode), currency, exponent)
	}
	if negative {
		return -int64(value), nil
	}
	return int64(value), nil
}

// parseCreated reads a time as Stripe's exports give it, in UTC, or as its API does. Without one it is zero.
func parseCreated(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		return instant(seconds), nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("created: %q is no time", contract.Clip(text, maxCode))
}
