// Package stripe refunds through Stripe with Stripe's own Go SDK: https://docs.stripe.com/api/refunds.
//
// A refund's number is Stripe's Idempotency-Key, which Stripe honours for 24 hours, and the refund's metadata
// reclaim_refund, by which it is found again at any time. Amounts are in the unit in which Stripe takes them: see
// Capabilities. Stripe takes no currency with a refund: it refunds in the payment's own, and the answer says which.
package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	sdk "github.com/stripe/stripe-go/v85"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Kind is the adapter's name in configurations.
const Kind = "stripe"

// Metadata keys of a refund at Stripe. Its payment is kept under the name by which it was asked for, since Stripe knows
// most payments by two: a payment intent's and a charge's.
const (
	metadataNumber  = "reclaim_refund"
	metadataPayment = "reclaim_payment"
)

const (
	// callTimeout bounds a call whose ctx has no deadline: Stripe's own choice for its SDKs.
	callTimeout = 80 * time.Second
	// pageSize is the most that Stripe gives at once, maxPages what a listing is given up after.
	pageSize = 100
	maxPages = 100
	// maxID is the longest id that is taken for one of Stripe's.
	maxID = 200
)

// Options says how Stripe is reached.
type Options struct {
	// APIKey is a secret or restricted key that may write refunds and read charges.
	APIKey string
	// WebhookSecrets are the endpoint's signing secrets (whsec_…). A signature by any of them counts, so that a secret can
	// be rolled. None: no webhook is accepted.
	WebhookSecrets []string
	// BaseURL is where the API is. Empty: Stripe's own.
	BaseURL string
	// Transport carries the requests. nil: a net/http transport of its own. It must tell an httptrace.ClientTrace what it
	// does, as net/http's does: Evidence.Sends is counted by that.
	Transport http.RoundTripper
}

// refundService and chargeService are the parts of the SDK that are used.
type refundService interface {
	Create(context.Context, *sdk.RefundCreateParams) (*sdk.Refund, error)
	Retrieve(context.Context, string, *sdk.RefundRetrieveParams) (*sdk.Refund, error)
	List(context.Context, *sdk.RefundListParams) *sdk.V1List[*sdk.Refund]
}

type chargeService interface {
	List(context.Context, *sdk.ChargeListParams) *sdk.V1List[*sdk.Charge]
}

// Channel is one Stripe account.
type Channel struct {
	refunds refundService
	charges chargeService
	secrets []string
	// redact takes the keys out of any text.
	redact *strings.Replacer
}

var _ channel.Channel = (*Channel)(nil)

// New returns the channel of one Stripe account; it sends nothing yet. The error names every option at fault and never
// shows a key.
func New(o Options) (*Channel, error) {
	var problems []error
	if !printable(o.APIKey) {
		problems = append(problems, errors.New("the API key is missing or has blanks or characters outside ASCII"))
	}
	hidden := []string{o.APIKey, "[key]"}
	for i, secret := range o.WebhookSecrets {
		// With an empty secret anybody could sign.
		if !printable(secret) {
			problems = append(problems, fmt.Errorf("webhook secret %d is empty or has blanks or characters outside ASCII", i+1))
		}
		hidden = append(hidden, secret, "[secret]")
	}
	if o.BaseURL == "" {
		o.BaseURL = sdk.APIURL
	}
	if base, err := url.Parse(o.BaseURL); err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" ||
		base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		problems = append(problems, errors.New("the base URL must be http:// or https:// with a host, and neither user nor query"))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fmt.Errorf("stripe: %w", err)
	}
	if o.Transport == nil {
		o.Transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	backend := sdk.GetBackendWithConfig(sdk.APIBackend, &sdk.BackendConfig{
		URL: &o.BaseURL,
		HTTPClient: &http.Client{
			Transport: transport{base: o.Transport}, Timeout: callTimeout,
			// A redirect would send the refund, and the key, somewhere else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		// When to repeat is the workflow's decision: only it knows how often and for how long.
		MaxNetworkRetries: new(int64),
		EnableTelemetry:   new(bool),
		LeveledLogger:     &sdk.LeveledLogger{Level: sdk.LevelNull},
	})
	client := sdk.NewClient(o.APIKey, sdk.WithBackends(&sdk.Backends{API: backend}))
	return &Channel{
		refunds: client.V1Refunds, charges: client.V1Charges, secrets: slices.Clone(o.WebhookSecrets), redact: strings.NewReplacer(hidden...),
	}, nil
}

func printable(secret string) bool {
	return secret != "" && !strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Capabilities declares what Stripe can do. Amounts are in the smallest unit as the API takes it, by the exponents in
// Currencies. A refund is listed at once, yet not found proves nothing in its first minute. Sources:
// https://docs.stripe.com/api/idempotent_requests (24 hours), https://docs.stripe.com/refunds (it may fail after it
// succeeded).
func (c *Channel) Capabilities() channel.Capabilities {
	return channel.Capabilities{
		Kind:            Kind,
		NumberLength:    64,
		IdempotencyLife: 24 * time.Hour,
		QueryByNumber:   true,
		SearchLag:       time.Minute,
		FirstQuery:      time.Minute,
		Poll:            []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 6 * time.Hour},
		GiveUp:          72 * time.Hour,
		MinSpacing:      10 * time.Second,
		Reversible:      true,
		Currencies:      maps.Clone(currencies),
		MaxNotice:       maxNotice,
		NoticeTolerance: noticeTolerance,
	}
}

// Submit creates the refund with its number as the Idempotency-Key. Evidence.Sends counts what went onto the wire, since
// net/http repeats such a request by itself where a kept-alive connection dies under it. Where Stripe says that the
// payment is refunded already, the number is looked up: the one refund that carries it is the answer.
//
// OutcomeFailed is what Stripe refused by one of the codes in refusals, or a refund that it made and that failed; any
// other error is OutcomeUnknown. Errors: *channel.Unusable.
func (c *Channel) Submit(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
	if err := check(refund); err != nil {
		return channel.Evidence{}, err
	}
	params := &sdk.RefundCreateParams{
		Amount:   &refund.Amount,
		Metadata: map[string]string{metadataNumber: refund.Number, metadataPayment: refund.Payment},
	}
	params.IdempotencyKey = &refund.Number
	params.PaymentIntent, params.Charge = nameOf(refund.Payment)
	watched, seen := watch(ctx)
	answer, err := c.refunds.Create(watched, params)
	e := c.answered(seen, answer, err, refund.Payment)
	switch {
	case e.Reference != "":
		e.ObservedAt = instant(answer.Created)
	case codeOf(err) == sdk.ErrorCodeChargeAlreadyRefunded:
		e = c.foundInstead(ctx, refund, e)
	case refused(err):
		e.Outcome = channel.OutcomeFailed
	}
	e.Sends = seen.sends
	return e, nil
}

// foundInstead is what a look-up says of a refund whose payment is refunded already. Only the refund itself says whether
// it was this number or another that did so.
func (c *Channel) foundInstead(ctx context.Context, refund channel.Refund, e channel.Evidence) channel.Evidence {
	found := c.find(ctx, refund)
	switch found.Outcome {
	case channel.OutcomePending, channel.OutcomeSucceeded, channel.OutcomeFailed:
		return found
	default:
		e.Detail = c.detail(e.Detail + "; looked up by its number: " + found.Code + ": " + found.Detail)
		e.Elsewhere = found.Code == CodeNoMatch || found.Code == CodeSeveralMatches
		return e
	}
}

// Query looks the refund up by its reference or, where there is none, through all refunds of its payment, of which one must
// carry its number. Evidence.Sends stays 0: a look-up sends no refund. Errors: *channel.Unusable.
func (c *Channel) Query(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
	if err := check(refund); err != nil {
		return channel.Evidence{}, err
	}
	// A reference that cannot be Stripe's own is not asked for; what the number finds then shows that it is wrong.
	if !validID(refund.Reference) {
		return c.find(ctx, refund), nil
	}
	watched, seen := watch(ctx)
	answer, err := c.refunds.Retrieve(watched, refund.Reference, nil)
	e := c.answered(seen, answer, err, refund.Payment)
	if codeOf(err) == sdk.ErrorCodeResourceMissing && seen.status == http.StatusNotFound {
		e.Outcome = channel.OutcomeNotFound
	}
	return e, nil
}

// find looks for the one refund of the payment that carries the number.
func (c *Channel) find(ctx context.Context, refund channel.Refund) channel.Evidence {
	all, failure := c.list(ctx, refund.Payment)
	if failure != nil {
		return *failure
	}
	var matches []*sdk.Refund
	var ids []string
	for _, one := range all {
		if one.Metadata[metadataNumber] == refund.Number {
			matches, ids = append(matches, one), append(ids, one.ID)
		}
	}
	switch len(matches) {
	case 0:
		return channel.Evidence{Outcome: channel.OutcomeNotFound, Code: CodeNoMatch,
			Detail: fmt.Sprintf("none of the %d refunds of %s carries the number", len(all), refund.Payment)}
	case 1:
		return c.evidence(matches[0], rawOf(matches[0]), refund.Payment)
	default:
		return channel.Evidence{Outcome: channel.OutcomeUnknown, Code: CodeSeveralMatches,
			Detail: c.detail("the number is carried by " + strings.Join(ids, ", "))}
	}
}

// List returns all refunds of the payment. Errors: *channel.Unusable for what is no payment of Stripe's; any other where
// the list is not complete.
func (c *Channel) List(ctx context.Context, payment string) ([]channel.Evidence, error) {
	if !isPayment(payment) {
		return nil, &channel.Unusable{Field: "payment", Rule: rulePayment}
	}
	all, failure := c.list(ctx, payment)
	if failure != nil {
		return nil, fmt.Errorf("list the refunds of %s at Stripe: %s: %s", payment, failure.Code, failure.Detail)
	}
	listed := make([]channel.Evidence, len(all))
	for i, one := range all {
		listed[i] = c.evidence(one, rawOf(one), payment)
	}
	return listed, nil
}

// list reads every page, or says as unknown evidence why it could not: half a list proves nothing.
func (c *Channel) list(ctx context.Context, payment string) ([]*sdk.Refund, *channel.Evidence) {
	params := &sdk.RefundListParams{}
	params.PaymentIntent, params.Charge = nameOf(payment)
	params.Limit = sdk.Int64(pageSize)
	// The SDK would go on for ever where every page says that there is another.
	params.Single = true
	var all []*sdk.Refund
	for range maxPages {
		watched, seen := watch(ctx)
		page, more, err := readPage(func() *sdk.V1List[*sdk.Refund] { return c.refunds.List(watched, params) }, readable)
		if err == nil && more && (len(page) == 0 || page[len(page)-1].ID == sdk.StringValue(params.StartingAfter)) {
			err = errNoWayOn
		}
		if err != nil {
			failure := c.unread(seen, err)
			return nil, &failure
		}
		all = append(all, page...)
		if !more {
			return all, nil
		}
		params.StartingAfter = &page[len(page)-1].ID
	}
	return nil, &channel.Evidence{Outcome: channel.OutcomeUnknown, Code: CodeTooMany,
		Detail: fmt.Sprintf("%s has more than %d refunds", payment, len(all))}
}

// readPage reads one page and makes sure that it is one: the SDK takes any JSON object for an empty last page.
func readPage[T any](ask func() *sdk.V1List[T], readable func(T) bool) (page []T, more bool, err error) {
	defer func() {
		// The SDK dereferences whatever the list holds, null included.
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the page cannot be read: %v", cause)
		}
	}()
	list := ask()
	if err := list.Err(); err != nil {
		return nil, false, err
	}
	var shape struct {
		Object  string            `json:"object"`
		Data    []json.RawMessage `json:"data"`
		HasMore *bool             `json:"has_more"`
	}
	if err := json.Unmarshal(list.LastResponse().RawJSON, &shape); err != nil {
		return nil, false, err
	}
	if shape.Object != "list" || shape.Data == nil || shape.HasMore == nil {
		return nil, false, errors.New("the answer is no list")
	}
	for _, one := range list.Data() {
		if !readable(one) {
			return nil, false, errors.New("the list holds what was not asked for")
		}
	}
	return list.Data(), *shape.HasMore, nil
}

const rulePayment = "must be a payment intent (pi_…) or a charge (ch_… or py_…) of Stripe's"

// check refuses what Stripe cannot be asked for.
func check(r channel.Refund) error {
	_, known := currencies[r.Currency]
	switch {
	case !contract.ValidRefundNumber(r.Number):
		return &channel.Unusable{Field: "number", Rule: "must be 1 to 64 characters of 0-9 A-Z a-z _ -"}
	case !isPayment(r.Payment):
		return &channel.Unusable{Field: "payment", Rule: rulePayment}
	case r.Amount < 1:
		return &channel.Unusable{Field: "amount", Rule: fmt.Sprintf("must be more than 0, not %d", r.Amount)}
	case !known:
		return &channel.Unusable{Field: "currency", Rule: "must be a currency of Stripe's in lower case"}
	case r.Amount%stepOf(r.Currency) != 0:
		return &channel.Unusable{Field: "amount", Rule: fmt.Sprintf(
			"must be a multiple of %d in %s, not %d", stepOf(r.Currency), r.Currency, r.Amount)}
	}
	return nil
}

func isPayment(id string) bool {
	return validID(id) && (strings.HasPrefix(id, "pi_") || strings.HasPrefix(id, "ch_") || strings.HasPrefix(id, "py_"))
}

func validID(id string) bool {
	return len(id) >= 1 && len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-'
	})
}

// nameOf says which of Stripe's two parameters names the payment.
func nameOf(payment string) (intent, charge *string) {
	if strings.HasPrefix(payment, "pi_") {
		return &payment, nil
	}
	return nil, &payment
}
