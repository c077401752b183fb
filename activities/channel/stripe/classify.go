package stripe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	sdk "github.com/stripe/stripe-go/v85"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Values of Evidence.Code that are not Stripe's own. Others are a refund's status ("failed:" and "canceled:" are followed
// by its failure_reason where it has one), the code of Stripe's error, or "http_" and the status of an answer without one.
const (
	// CodeTimeout: the time was up; CodeCanceled: the caller gave the call up; CodeConnection: the connection was refused or
	// cut.
	CodeTimeout    = "timeout"
	CodeCanceled   = "canceled"
	CodeConnection = "connection"
	// CodeUnreadable: an answer came, and it is not what was asked for.
	CodeUnreadable = "unreadable"
	// CodeNotSent: the SDK made no request of it.
	CodeNotSent = "not_sent"
	// CodeStatusNull: the refund has no status, as some payment methods' have.
	CodeStatusNull = "status_null"
	// CodeNoMatch: no refund of the payment carries the number; CodeSeveralMatches: more than one does.
	CodeNoMatch        = "no_match"
	CodeSeveralMatches = "several_matches"
	// CodeTooMany: the payment has more refunds than are read.
	CodeTooMany = "too_many"
)

// maxCode bounds Evidence.Code, in bytes.
const maxCode = 100

// refusals are the codes by which Stripe says for certain that this request made no refund, and would make none if it were
// repeated: https://docs.stripe.com/error-codes. Whatever is not here is unknown; above all everything that says "not now"
// or "not with this key", and charge_already_refunded, since it may have been this very number that did it.
var refusals = map[sdk.ErrorCode]bool{
	// The payment: it does not exist (its parameter is checked too), was charged back, or can no longer be refunded.
	sdk.ErrorCodeResourceMissing:       true,
	sdk.ErrorCodeChargeDisputed:        true,
	sdk.ErrorCodeRefundDisputedPayment: true,
	sdk.ErrorCodeChargeNotRefundable:   true,
	// The amount.
	sdk.ErrorCodeAmountTooLarge:                   true,
	sdk.ErrorCodeAmountTooSmall:                   true,
	sdk.ErrorCodeInvalidChargeAmount:              true,
	"invalid_charge_amount_no_decimal_compatible": true,
	// The request as such: it was not carried out.
	sdk.ErrorCodeParameterInvalidEmpty:       true,
	sdk.ErrorCodeParameterInvalidInteger:     true,
	sdk.ErrorCodeParameterInvalidStringBlank: true,
	sdk.ErrorCodeParameterInvalidStringEmpty: true,
	sdk.ErrorCodeParameterMissing:            true,
	sdk.ErrorCodeParameterUnknown:            true,
	sdk.ErrorCodeParametersExclusive:         true,
}

// refused says whether the error is one of the refusals: by its code, and only in an answer that blames the request.
func refused(err error) bool {
	far := farError(err)
	if far != nil && overRefund(far) {
		return true
	}
	if far == nil || far.Type != sdk.ErrorTypeInvalidRequest || !refusals[far.Code] ||
		!slices.Contains([]int{http.StatusBadRequest, http.StatusPaymentRequired, http.StatusNotFound}, far.HTTPStatusCode) {
		return false
	}
	return far.Code != sdk.ErrorCodeResourceMissing || far.Param == "payment_intent" || far.Param == "charge"
}

// overRefund says whether the error is how Stripe refuses an amount over what is left of a payment: it gives no code for it,
// only the parameter.
func overRefund(far *sdk.Error) bool {
	return far.Code == "" && far.Param == "amount" && far.HTTPStatusCode == http.StatusBadRequest &&
		far.Type == sdk.ErrorTypeInvalidRequest
}

func farError(err error) *sdk.Error {
	far, _ := errors.AsType[*sdk.Error](err)
	return far
}

func codeOf(err error) sdk.ErrorCode {
	if far := farError(err); far != nil {
		return far.Code
	}
	return ""
}

// answered is the evidence in what the SDK returned for one refund.
func (c *Channel) answered(seen *exchange, refund *sdk.Refund, err error, payment string) channel.Evidence {
	if err == nil && readable(refund) && (seen.status == 0 || seen.status/100 == 2) {
		return c.evidence(refund, rawOf(refund), payment)
	}
	return c.unread(seen, err)
}

// readable says whether it is a refund of Stripe's. The SDK takes much else for one, even a bare JSON string.
func readable(refund *sdk.Refund) bool {
	return refund != nil && refund.Object == "refund" && refund.ID != ""
}

// evidence is what a refund of Stripe's says of itself. asked is the payment's name by which Reclaim knows it.
func (c *Channel) evidence(refund *sdk.Refund, raw []byte, asked string) channel.Evidence {
	payment, alias := paymentOf(refund, asked)
	e := channel.Evidence{
		Number: refund.Metadata[metadataNumber], Reference: refund.ID, Payment: payment, PaymentAlias: alias,
		Detail: c.detail(personal.ReplaceAllString(compact(raw), `"instructions_email":"(left out)"`)),
	}
	e.Outcome, e.Code = outcomeOf(refund)
	if refund.Amount < 1 || refund.Currency == "" {
		// Without its amount it could be taken for another.
		e.Outcome, e.Code = channel.OutcomeUnknown, CodeUnreadable
		return e
	}
	e.Amount, e.Currency = refund.Amount, strings.ToLower(string(refund.Currency))
	return e
}

// outcomeOf maps a refund's status: https://docs.stripe.com/api/refunds/object#refund_object-status. One that is missing or
// new says only that Stripe has the refund.
func outcomeOf(refund *sdk.Refund) (channel.Outcome, string) {
	code := contract.Clip(string(refund.Status), maxCode)
	switch refund.Status {
	case sdk.RefundStatusSucceeded:
		return channel.OutcomeSucceeded, code
	case sdk.RefundStatusFailed, sdk.RefundStatusCanceled:
		if refund.FailureReason != "" {
			code = contract.Clip(code+":"+string(refund.FailureReason), maxCode)
		}
		return channel.OutcomeFailed, code
	case "":
		return channel.OutcomePending, CodeStatusNull
	default:
		return channel.OutcomePending, code
	}
}

// paymentOf names the refunded payment as it was asked for, if it is that one; else as Stripe prefers to, with its other
// name as the alias.
func paymentOf(refund *sdk.Refund, asked string) (payment, alias string) {
	var intent, charge string
	if refund.PaymentIntent != nil {
		intent = refund.PaymentIntent.ID
	}
	if refund.Charge != nil {
		charge = refund.Charge.ID
	}
	switch {
	case intent == "" || asked != "" && asked == charge:
		return charge, ""
	case asked == intent:
		return intent, ""
	default:
		return intent, charge
	}
}

// unread is the evidence in an answer that is no refund, or in none: whatever was asked may have happened.
func (c *Channel) unread(seen *exchange, err error) channel.Evidence {
	e := channel.Evidence{Outcome: channel.OutcomeUnknown}
	text := string(seen.start)
	switch far := farError(err); {
	case far != nil:
		e.Code, text = wordOf(far), describe(far)
	case seen.broken != nil:
		e.Code, text = brokenCode(seen.broken), seen.broken.Error()
	case seen.status != 0 && seen.status/100 != 2:
		e.Code = httpCode(seen.status)
	case err != nil && seen.status == 0:
		e.Code, text = CodeNotSent, err.Error()
	default:
		e.Code = CodeUnreadable
		if text == "" {
			text = "the answer was empty"
		}
		if err != nil {
			text = err.Error() + ": " + text
		}
	}
	e.Code, e.Detail = contract.Clip(e.Code, maxCode), c.detail(text)
	return e
}

func brokenCode(err error) string {
	failure, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, errTooLong):
		return CodeUnreadable
	case errors.Is(err, context.DeadlineExceeded), ok && failure.Timeout():
		return CodeTimeout
	case errors.Is(err, context.Canceled):
		return CodeCanceled
	default:
		return CodeConnection
	}
}

func httpCode(status int) string { return fmt.Sprintf("http_%d", status) }

// wordOf is Stripe's word for an error: its code or, as not every error has one, the HTTP status.
func wordOf(far *sdk.Error) string {
	switch {
	case far.Code != "":
		return string(far.Code)
	case far.Type == sdk.ErrorTypeIdempotency:
		return string(far.Type)
	default:
		return httpCode(far.HTTPStatusCode)
	}
}

// describe tells an error in words. It leaves out the objects that Stripe may add: a payment intent holds a secret.
func describe(far *sdk.Error) string {
	text := fmt.Sprintf("HTTP %d %s", far.HTTPStatusCode, far.Type)
	for _, part := range []struct{ name, value string }{
		{"code", string(far.Code)}, {"decline code", string(far.DeclineCode)}, {"parameter", far.Param}, {"request", far.RequestID},
	} {
		if part.value != "" {
			text += ", " + part.name + " " + part.value
		}
	}
	return text + ": " + far.Msg
}

// detail makes any text fit to be kept: without keys, and within channel.MaxDetail.
func (c *Channel) detail(text string) string {
	return contract.Clip(c.redact.Replace(text), channel.MaxDetail)
}

func rawOf(refund *sdk.Refund) []byte {
	if refund.LastResponse == nil {
		return nil
	}
	return refund.LastResponse.RawJSON
}

// personal is what a refund of Stripe's may say of its customer. Evidence is kept for ever.
var personal = regexp.MustCompile(`"instructions_email":"(?:[^"\\]|\\.)*"`)

// compact takes out the blanks, so that more of the JSON fits.
func compact(raw []byte) string {
	var compacted bytes.Buffer
	if err := json.Compact(&compacted, raw); err != nil {
		return string(raw)
	}
	return compacted.String()
}

func instant(seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
