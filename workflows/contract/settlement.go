package contract

import (
	"fmt"
	"regexp"
	"time"
)

// ReconcileSettlement: a channel's settlement file against our refunds and orders and against what the channel's own list said.
// It needs a file, and is none of the parts that a pass makes where none is named.
const ReconcileSettlement ReconcilePart = "settlement"

// SettlementKey names a stored settlement file: the channel and the SHA-256 of the content, in lower-case hexadecimal digits.
type SettlementKey struct {
	Channel string `json:"channel"`
	Hash    string `json:"hash"`
}

var settlementHash = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (s *SettlementKey) check(p *problems) {
	checkID(p, "settlement.channel", &s.Channel)
	if !settlementHash.MatchString(s.Hash) {
		p.add("settlement.hash", "must be the SHA-256 of the stored file, 64 hexadecimal digits in lower case")
	}
}

// Bounds of a settlement file, in bytes: what is stored at most, and in pieces of what size.
const (
	MaxSettlementBytes   = 256 << 20
	SettlementChunkBytes = 1 << 20
)

// CheckSettlementSize refuses a file that is empty or too large. The error has code BadInput.
func CheckSettlementSize(bytes int64) error {
	switch {
	case bytes <= 0:
		return BadField("settlement", "is an empty file")
	case bytes > MaxSettlementBytes:
		return BadField("settlement", fmt.Sprintf("is over %d MB: have the channel's report cover fewer days, and give the files one by one",
			MaxSettlementBytes>>20))
	}
	return nil
}

// Kinds of findings about settlement lines.
const (
	// FindingSettlementAmount, FindingSettlementCurrency and FindingSettlementPayment: a refund was settled otherwise.
	FindingSettlementAmount   = "settlement_amount_differs"
	FindingSettlementCurrency = "settlement_currency_differs"
	FindingSettlementPayment  = "settlement_payment_differs"
	// FindingSettlementMissingHere: a refund of one of our payments was settled that nobody asked for here.
	FindingSettlementMissingHere = "settlement_missing_here"
	// FindingSettlementDuplicate: a second line tells the same movement of a refund, or the same transaction is there twice.
	FindingSettlementDuplicate = "settlement_duplicate"
	// FindingSettlementStatus: the line says otherwise how the refund stands; its word went through the evidence function.
	FindingSettlementStatus = "settlement_status_differs"
	// FindingSettlementReversal: a refund that had succeeded came back; its word went through the evidence function.
	FindingSettlementReversal = "settlement_late_reversal"
	// FindingSettlementCategory: lines of a kind that the channel's adapter does not know.
	FindingSettlementCategory = "settlement_unknown_category"
	// FindingSettlementUnreadable: a line that cannot be read, or whose sums do not agree; it counts for nothing else.
	FindingSettlementUnreadable = "settlement_unreadable"
	// FindingSettlementOutstanding: a refund that is in no file yet. It is carried over until one has it.
	FindingSettlementOutstanding = "settlement_outstanding"
	// FindingSettlementPaymentAmount and FindingSettlementPaymentCurrency: an order says otherwise what was paid.
	FindingSettlementPaymentAmount   = "settlement_payment_amount_differs"
	FindingSettlementPaymentCurrency = "settlement_payment_currency_differs"
	// FindingSettlementAdded, FindingSettlementGone and FindingSettlementChanged: how a corrected file differs from earlier ones.
	FindingSettlementAdded   = "settlement_line_added"
	FindingSettlementGone    = "settlement_line_gone"
	FindingSettlementChanged = "settlement_line_changed"
)

// SettlementReport is how a file stands to what we have. Sums are exact decimal numbers of the smallest unit, of any length.
type SettlementReport struct {
	File     SettlementKey `json:"file"`
	Name     string        `json:"name"`
	Bytes    int64         `json:"bytes"`
	StoredAt time.Time     `json:"storedAt"`
	// Lines are all of the file beside its heading. Matched are those of refunds and payments that are as we have them,
	// Superseded those that a later file corrects or has too, OtherTenants those of other tenants' refunds and payments, which are
	// counted and not shown, and Unassigned those of no tenant's.
	Lines        int64 `json:"lines"`
	Matched      int64 `json:"matched"`
	Superseded   int64 `json:"superseded,omitempty"`
	OtherTenants int64 `json:"otherTenants,omitempty"`
	Unassigned   int64 `json:"unassigned,omitempty"`
	// Totals are the sums by kind and currency, the most lines first, and MoreTotals how many are not listed.
	Totals     []SettlementTotal `json:"totals"`
	MoreTotals int64             `json:"moreTotals,omitempty"`
	// Refunds hold the file's sum of refunds against ours.
	Refunds []SettlementRefunds `json:"refunds"`
}

// SettlementTotal sums the lines of a kind in a currency of the balance. Difference is Gross - Fee - Net, which the findings
// settlement_unreadable make up.
type SettlementTotal struct {
	Kind       string `json:"kind"`
	Currency   string `json:"currency"`
	Lines      int64  `json:"lines"`
	Gross      string `json:"gross"`
	Fee        string `json:"fee"`
	Net        string `json:"net"`
	Difference string `json:"difference"`
}

// SettlementRefunds are the refunds of our payments in one currency of the customers: Theirs by the file, less what came back,
// Ours by our books, for the movements that the file has and those of its days that no file has. Explained is what the differences
// of the pass' other findings sum to.
type SettlementRefunds struct {
	Currency   string `json:"currency"`
	Theirs     string `json:"theirs"`
	Ours       string `json:"ours"`
	Difference string `json:"difference"`
	Explained  string `json:"explained"`
}
