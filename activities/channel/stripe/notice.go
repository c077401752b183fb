package stripe

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	sdk "github.com/stripe/stripe-go/v85"
	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/reclaimhq/reclaim/activities/channel"
)

const (
	maxNotice       = 256 << 10
	noticeTolerance = 5 * time.Minute
)

// ParseNotice verifies Stripe's signature (https://docs.stripe.com/webhooks#verify-manually) and reads an event. Events of a
// refund (refund.created, refund.updated, refund.failed, charge.refund.updated) say what the refund's own status says,
// whatever the event is called, and are told apart by event.created. charge.refunded is no refund but a charge, and like
// all others has no evidence.
//
// An event of another release of Stripe's API is read where its refund has what is needed, which has kept its shape
// through all of them. Errors: *channel.NoticeError.
func (c *Channel) ParseNotice(header http.Header, body []byte, now time.Time) (channel.Notice, error) {
	if len(body) > maxNotice {
		return channel.Notice{}, refuse(channel.NoticeTooLarge, "the body has %d bytes, more than the %d allowed",
			len(body), maxNotice)
	}
	if err := c.verify(header.Get("Stripe-Signature"), body, now); err != nil {
		return channel.Notice{}, err
	}
	var event struct {
		ID         string        `json:"id"`
		Object     string        `json:"object"`
		Type       sdk.EventType `json:"type"`
		APIVersion string        `json:"api_version"`
		Created    int64         `json:"created"`
		Data       struct {
			Object json.RawMessage `json:"object"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &event); err != nil {
		return channel.Notice{}, refuse(channel.NoticeMalformed, "the body is no event: %v", err)
	}
	if strings.HasPrefix(event.Object, "v2.") {
		return channel.Notice{}, refuse(channel.NoticeOtherRelease,
			"the endpoint is sent thin events (%s), which do not hold the refund: set it to snapshot events", event.Object)
	}
	if event.Object != "event" || event.ID == "" || event.Type == "" {
		return channel.Notice{}, refuse(channel.NoticeMalformed, "the body is no event: it lacks object, id or type")
	}
	notice := channel.Notice{ID: event.ID, Type: string(event.Type)}
	switch event.Type {
	case sdk.EventTypeRefundCreated, sdk.EventTypeRefundUpdated, sdk.EventTypeRefundFailed, sdk.EventTypeChargeRefundUpdated:
	default:
		return notice, nil
	}
	var refund sdk.Refund
	err := json.Unmarshal(event.Data.Object, &refund)
	if err != nil || !readable(&refund) || refund.Amount < 1 || refund.Currency == "" {
		why := "it is no refund with id, amount and currency"
		if err != nil {
			why = err.Error()
		}
		if _, train, _ := strings.Cut(event.APIVersion, "."); train != sdk.APIMajorVersion {
			return channel.Notice{}, refuse(channel.NoticeOtherRelease, "event %s is of API release %q, and its object cannot be "+
				"read as %s has it: %s; set the endpoint to that release", event.ID, event.APIVersion, sdk.APIVersion, why)
		}
		return channel.Notice{}, refuse(channel.NoticeMalformed, "the object of event %s cannot be read: %s", event.ID, why)
	}
	evidence := c.evidence(&refund, event.Data.Object, refund.Metadata[metadataPayment])
	evidence.ObservedAt = instant(event.Created)
	notice.Evidence = &evidence
	return notice, nil
}

// verify checks the signature by any of the secrets, and then its time: the SDK knows only the time that it is, and lets
// the future pass.
func (c *Channel) verify(signature string, body []byte, now time.Time) error {
	if len(c.secrets) == 0 {
		return refuse(channel.NoticeBadSignature, "no webhook secret is configured")
	}
	signed := false
	for _, secret := range c.secrets {
		signed = webhook.ValidatePayloadIgnoringTolerance(body, signature, secret) == nil || signed
	}
	at, once := signedAt(signature)
	if !signed || !once {
		return refuse(channel.NoticeBadSignature, "Stripe-Signature is missing or is not the body's by any of the %d secrets",
			len(c.secrets))
	}
	if age := now.Sub(at); age > noticeTolerance || age < -noticeTolerance {
		return refuse(channel.NoticeStale, "signed at %s and received at %s, more than %s apart",
			at.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), noticeTolerance)
	}
	return nil
}

// signedAt is the time in a signature, which must give one.
func signedAt(signature string) (at time.Time, once bool) {
	times := 0
	for part := range strings.SplitSeq(signature, ",") {
		if seconds, ok := strings.CutPrefix(part, "t="); ok {
			parsed, err := strconv.ParseInt(seconds, 10, 64)
			if err != nil {
				return time.Time{}, false
			}
			at, times = time.Unix(parsed, 0), times+1
		}
	}
	return at, times == 1
}

func refuse(code, format string, args ...any) *channel.NoticeError {
	return &channel.NoticeError{Code: code, Reason: fmt.Sprintf(format, args...)}
}
