package channel

import (
	"context"
	"io"
	"iter"
	"net/http"
	"time"
)

// Channel sends money back through a payment provider and tells what became of it. Every method is safe for concurrent
// use and makes no call longer than its ctx allows.
//
// Submit and Query answer with Evidence whatever the channel does: an answer that was lost, late, malformed or an error
// of the channel's own is Evidence with OutcomeUnknown, since the refund may or may not have happened. They return an
// error only where the request could not even be made, an *Unusable, and then nothing was sent.
type Channel interface {
	// Capabilities declares what the channel can do; it is constant.
	Capabilities() Capabilities
	// Submit asks for the refund under its number. Asking again under the same number, while the channel honours it,
	// makes no second refund.
	Submit(ctx context.Context, refund Refund) (Evidence, error)
	// Query looks the refund up by its number or, where that is known, by the channel's reference. OutcomeNotFound means
	// that the channel knows no such refund now.
	Query(ctx context.Context, refund Refund) (Evidence, error)
	// List returns every refund that the channel knows of a payment, those of other people's making included (their
	// Number is then empty).
	List(ctx context.Context, payment string) ([]Evidence, error)
	// RefundsMade returns a page of all refunds that the channel made in the period, whoever asked for them, and PaymentsMade one
	// of all payments that it took. after is the Next of the page before, empty for the first. An error: the page is not
	// complete, and nothing follows from what is not in it.
	RefundsMade(ctx context.Context, period Period, after string) (Listing, error)
	PaymentsMade(ctx context.Context, period Period, after string) (Listing, error)
	// ParseNotice verifies a webhook's signature over its raw body against the time now and returns what it says. Errors:
	// *NoticeError.
	ParseNotice(header http.Header, body []byte, now time.Time) (Notice, error)
	// Settlement reads the channel's settlement file line by line. A line that cannot be read yields an error and the
	// reading goes on.
	Settlement(file io.Reader) iter.Seq2[SettlementLine, error]
}

// Refund is what a channel is asked to send back.
type Refund struct {
	// Number is Reclaim's refund id, the channel's idempotency key: 1 to 64 characters of 0-9 A-Z a-z _ -.
	Number string
	// Payment is the channel's id of the payment that is refunded.
	Payment string
	// Amount is in the smallest unit of Currency, a lower-case ISO 4217 code.
	Amount   int64
	Currency string
	// Reference is the channel's own id of the refund, empty until the channel has given it.
	Reference string
}

// Outcome is what a piece of evidence says about a refund.
type Outcome string

const (
	// OutcomeUnknown: the refund may or may not have happened.
	OutcomeUnknown Outcome = "unknown"
	// OutcomePending: the channel has acknowledged the refund and given its reference.
	OutcomePending Outcome = "pending"
	// OutcomeSucceeded: the channel has confirmed that the money went back.
	OutcomeSucceeded Outcome = "succeeded"
	// OutcomeFailed: the channel has confirmed that no money moved, or that it came back, and that none will move.
	OutcomeFailed Outcome = "failed"
	// OutcomeNotFound: the channel knows no such refund at this moment.
	OutcomeNotFound Outcome = "not_found"
)

// Evidence is one observation of a refund. Fields that the channel did not report are empty; Amount counts only where
// Currency is not empty.
type Evidence struct {
	Outcome   Outcome
	Number    string
	Reference string
	Payment   string
	// PaymentAlias is the payment's other name, where the channel has two and it is not known by which it was asked for.
	PaymentAlias string
	Amount       int64
	Currency     string
	// Code is the channel's own word for it: a status, an error code, an HTTP status, or what went wrong in between.
	Code string
	// Detail is the answer's text, for people, at most MaxDetail bytes of valid UTF-8. It holds no secrets.
	Detail string
	// Elsewhere is set where the outcome is unknown since the channel says that the payment was refunded already, and shows
	// no one refund of this number: somebody may have sent the money back in another way.
	Elsewhere bool
	// Sends is how many times a request for the refund was written to a connection: 0 where none was, look-ups included, and
	// 2 or more where a transport repeated it.
	Sends int
	// ObservedAt is the channel's own time of the fact, zero where it gives none.
	ObservedAt time.Time
}

// MaxDetail bounds Evidence.Detail, in bytes.
const MaxDetail = 2000

// Period is from Since on and before Until, by the channel's clock.
type Period struct{ Since, Until time.Time }

// Has says whether an instant is in the period.
func (p Period) Has(at time.Time) bool { return !at.Before(p.Since) && at.Before(p.Until) }

// Listing is a page of what a channel made: for a refund what it says of itself; for a payment its names, what was taken, and
// whether it succeeded. Reference is the channel's own id of it and ObservedAt when it was made. Next is empty on the last page.
type Listing struct {
	Lines []Evidence
	Next  string
}

// Capabilities declares what a channel can do. The refund workflow obeys them.
type Capabilities struct {
	// Kind is the adapter's name, such as "stripe".
	Kind string
	// NumberLength is the most characters that a refund number may have at this channel.
	NumberLength int
	// IdempotencyLife is how long the channel honours a number after its first use. 0: it honours none, and a refund
	// whose answer was lost is never sent again.
	IdempotencyLife time.Duration
	// QueryByNumber says whether a refund can be looked up without the channel's own reference.
	QueryByNumber bool
	// SearchLag is how long a refund may exist before a look-up finds it: before that, not found proves nothing.
	SearchLag time.Duration
	// FirstQuery is how long after sending the first look-up comes, Poll the pauses after it, of which the last repeats,
	// GiveUp how long after sending a person is asked.
	FirstQuery time.Duration
	Poll       []time.Duration
	GiveUp     time.Duration
	// MinSpacing is the least pause between two look-ups of one refund.
	MinSpacing time.Duration
	// Reversible says whether a refund that succeeded may fail later.
	Reversible bool
	// SecondPersonFrom is the amount, in the smallest unit, from which a person's decision needs an approver. 0: never.
	SecondPersonFrom int64
	// Currencies is the exponent of every currency that the channel takes: 2 where 100 smallest units make one.
	Currencies map[string]int
	// MaxNotice bounds a webhook's body, in bytes, and NoticeTolerance its age.
	MaxNotice       int
	NoticeTolerance time.Duration
}

// Notice is what a verified webhook says. Evidence is nil where it is about something else, which is then acknowledged
// and ignored.
type Notice struct {
	// ID is the channel's id of the event, the same for every delivery of it.
	ID string
	// Type is the channel's name of the event.
	Type     string
	Evidence *Evidence
}

// SettlementLine is one line of a settlement file: money that moved, as the channel accounts for it.
type SettlementLine struct {
	// Line counts from 1, the heading included.
	Line int
	// Raw is the line as it stands in the file, without its end.
	Raw string
	// Evidence is what the line says of the refund; its Amount is positive. A line whose sums do not agree is given
	// together with the error that says so.
	Evidence
	// Transaction is the channel's own id of the movement, the same in every file; empty where the file gives none.
	Transaction string
	// Kind is what moved the money: "payment", "refund", "refund_failure" or the channel's own word. Ordinary says that such a
	// word is one of the usual: a payout, a fee, an adjustment.
	Kind     string
	Ordinary bool
	// Gross is what the line moved, Fee what the channel kept of it and Net what it paid out, in the smallest unit of Settled,
	// the settlement's currency. Gross and Net are negative where money left.
	Gross, Fee, Net int64
	Settled         string
}

// Unusable is a refund that the channel cannot be asked for at all: nothing was sent.
type Unusable struct {
	// Field is the part of the Refund at fault and Rule what it breaks.
	Field, Rule string
}

// Error says which field breaks which rule.
func (u *Unusable) Error() string { return u.Field + " " + u.Rule }

// NoticeError is a webhook that was not accepted.
type NoticeError struct {
	// Code is one of the Notice… constants.
	Code   string
	Reason string
}

// Error gives the code and the reason.
func (e *NoticeError) Error() string { return e.Code + ": " + e.Reason }

// Codes of webhooks that are not accepted.
const (
	// NoticeBadSignature: the signature is missing or is not the body's.
	NoticeBadSignature = "bad_signature"
	// NoticeStale: the signature is older, or younger, than the tolerance.
	NoticeStale = "stale_signature"
	// NoticeTooLarge: the body is over MaxNotice.
	NoticeTooLarge = "too_large"
	// NoticeMalformed: the signature is right, but the body cannot be read.
	NoticeMalformed = "malformed"
	// NoticeOtherRelease: the event was made by a release of the channel's API that this adapter does not read.
	NoticeOtherRelease = "other_release"
)
