package contract

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RefundNumber returns the id of the refund that the operation key stands for: the same for every retry, unique over all
// tenants, and within the alphabet of every channel (1 to 64 characters of 0-9 A-Z a-z _ -). It is also the number that
// is sent to the channel.
func RefundNumber(tenant, actor, key string) string {
	h := sha256.New()
	for _, part := range []string{"refund", tenant, actor, key} {
		h.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return "rf_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:20]))
}

// JobRefundKey returns the operation key of the channel refund of a job with refundTo source, which has no actor.
func JobRefundKey(jobID string) string { return "job:" + jobID }

// JobRefundNumber returns the id of the channel refund of a job with refundTo source.
func JobRefundNumber(tenant, jobID string) string {
	return RefundNumber(tenant, "", JobRefundKey(jobID))
}

// RefundKeyRetention is how long at least a refund's operation key is remembered with what it was asked for. The refund
// itself is kept: its key then answers Expired, with its id, and never makes another.
const RefundKeyRetention = 30 * 24 * time.Hour

// ValidRefundNumber says whether the text can be a refund number: 1 to 64 characters of 0-9 A-Z a-z _ -.
func ValidRefundNumber(number string) bool {
	return len(number) >= 1 && len(number) <= 64 && !strings.ContainsFunc(number, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_' && r != '-'
	})
}

// RefundWorkflowID returns the only workflow id under which the refund may run.
func RefundWorkflowID(tenant, refundID string) string { return "refund/" + tenant + "/" + refundID }

// RefundRequest asks to send money of an order back through its payment channel.
type RefundRequest struct {
	Tenant string `json:"tenant"`
	// Actor and Key name the operation: the same key of the same actor is the same refund for ever.
	Actor   string `json:"actor"`
	Key     string `json:"key"`
	OrderID string `json:"orderId"`
	// Amount is in the smallest unit of the order's currency. Currency may be left out; otherwise it must be the order's.
	Amount   int64  `json:"amount"`
	Currency string `json:"currency,omitempty"`
	// Credits leave the account with the money. nil: as many as the amount stands for, rounded up. 0: goodwill, the
	// customer keeps them.
	Credits *int64 `json:"credits,omitempty"`
	Reason  string `json:"reason"`
}

// Check applies the rules that need no look at the order. The error has code BadInput and names each field at fault.
func (r RefundRequest) Check() error {
	var p problems
	checkID(&p, "tenant", &r.Tenant)
	checkID(&p, "orderId", &r.OrderID)
	checkKey(&p, "actor", r.Actor)
	checkKey(&p, "key", r.Key)
	if r.Amount < 1 || r.Amount > MaxCost {
		p.add("amount", fmt.Sprintf("must be a whole number from 1 to %d, not %d", MaxCost, r.Amount))
	}
	if r.Credits != nil && (*r.Credits < 0 || *r.Credits > MaxCost) {
		p.add("credits", fmt.Sprintf("must be a whole number from 0 to %d, not %d", MaxCost, *r.Credits))
	}
	if r.Currency != "" {
		checkCurrency(&p, r.Currency)
	}
	checkNeeded(&p, "reason", r.Reason)
	return p.err(CodeBadInput)
}

// Fingerprint identifies what the refund is for: order, amount, currency, credits and reason.
func (r RefundRequest) Fingerprint() string {
	credits := ""
	if r.Credits != nil {
		credits = strconv.FormatInt(*r.Credits, 10)
	}
	return Fingerprint("order", r.OrderID, "amount", strconv.FormatInt(r.Amount, 10), "currency",
		strings.ToLower(r.Currency), "credits", credits, "reason", r.Reason)
}

// Order is a payment that came through a channel and bought credits.
type Order struct {
	Tenant  string `json:"tenant"`
	OrderID string `json:"orderId"`
	// Account is topped up with Credits.
	Account string `json:"account"`
	// Channel is the name of a configured channel and Payment the channel's own id of the payment.
	Channel string `json:"channel"`
	Payment string `json:"payment"`
	// Currency is an ISO 4217 code; Paid is in its smallest unit.
	Currency string `json:"currency"`
	Paid     int64  `json:"paid"`
	Credits  int64  `json:"credits"`
	Asset    string `json:"asset,omitempty"`
	// Actor and Key name the operation.
	Actor string `json:"actor"`
	Key   string `json:"key"`
}

// Check applies the rules of an order. The error has code BadInput and names each field at fault.
func (o Order) Check() error {
	var p problems
	checkOwner(&p, o.Tenant)
	for _, id := range []struct{ field, value string }{
		{"orderId", o.OrderID}, {"account", o.Account}, {"channel", o.Channel}, {"asset", o.Asset},
	} {
		checkID(&p, id.field, &id.value)
	}
	checkKey(&p, "actor", o.Actor)
	checkKey(&p, "key", o.Key)
	checkKey(&p, "payment", o.Payment)
	checkCurrency(&p, o.Currency)
	if o.Paid < 1 || o.Paid > MaxCost {
		p.add("paid", fmt.Sprintf("must be a whole number from 1 to %d, not %d", MaxCost, o.Paid))
	}
	if o.Credits < 1 || o.Credits > MaxCost {
		p.add("credits", fmt.Sprintf("must be a whole number from 1 to %d, not %d", MaxCost, o.Credits))
	}
	return p.err(CodeBadInput)
}

// Fingerprint identifies what was paid.
func (o Order) Fingerprint() string {
	return Fingerprint("order", o.OrderID, "account", o.Account, "channel", o.Channel, "payment", o.Payment, "currency",
		strings.ToLower(o.Currency), "paid", strconv.FormatInt(o.Paid, 10), "credits", strconv.FormatInt(o.Credits, 10),
		"asset", o.Asset)
}

func checkKey(p *problems, field, value string) {
	if value == "" {
		p.add(field, "is missing")
		return
	}
	checkText(p, field, value, 200)
}

func checkNeeded(p *problems, field, value string) {
	if strings.TrimSpace(value) == "" {
		p.add(field, "is missing")
		return
	}
	checkText(p, field, value, MaxReasonBytes)
}

func checkCurrency(p *problems, value string) {
	if len(value) != 3 || strings.ContainsFunc(value, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		p.add("currency", fmt.Sprintf("must be the three letters of an ISO 4217 currency, not %q", clip(value, 40)))
	}
}

// RefundKey is the input of a ChannelRefund run: which refund it follows. Everything else stands in the refund's row.
type RefundKey struct {
	Tenant   string `json:"tenant"`
	RefundID string `json:"refundId"`
}

// ParseRefundKey reads and checks the input of a ChannelRefund run. The error has code BadInput.
func ParseRefundKey(raw []byte) (RefundKey, error) {
	var k RefundKey
	if err := Decode(raw, MaxInputBytes, &k); err != nil {
		return RefundKey{}, err
	}
	var p problems
	checkID(&p, "tenant", &k.Tenant)
	if !ValidRefundNumber(k.RefundID) {
		p.add("refundId", fmt.Sprintf("must be 1 to 64 characters of 0-9 A-Z a-z _ -, not %q", clip(k.RefundID, 70)))
	}
	return k, p.err(CodeBadInput)
}

// RefundResolution is the payload of a ChannelRefund's resolve: a person's decision about a channel refund.
type RefundResolution struct {
	// ID makes the decision repeatable: the same id and content is answered as the first time.
	ID     string       `json:"id"`
	Action RefundAction `json:"action"`
	// Operator decided, and Reason says why. Approver is a second person; above the channel's amount there must be one.
	Operator string `json:"operator"`
	Approver string `json:"approver,omitempty"`
	Reason   string `json:"reason"`
	// Evidence says how it is known; settle and release need it, with the refund's number, and the amount, which must be
	// the refund's. ChannelRef is the channel's own reference; settle needs it.
	Evidence   string `json:"evidence,omitempty"`
	Number     string `json:"number,omitempty"`
	ChannelRef string `json:"channelRef,omitempty"`
	Amount     int64  `json:"amount,omitzero"`
	Currency   string `json:"currency,omitempty"`
}

// ParseRefundResolution reads and checks a person's decision. The error has code BadResolution and names each field at
// fault; the RefundResolution then holds what could be read.
func ParseRefundResolution(raw []byte) (RefundResolution, error) {
	var r RefundResolution
	if fault := decode(raw, MaxInputBytes, &r); fault != nil {
		return r, problems{*fault}.err(CodeBadResolution)
	}
	return r, r.Check()
}

// Check applies the rules that need no look at the refund.
func (r RefundResolution) Check() error {
	var p problems
	checkID(&p, "id", &r.ID)
	if !slices.Contains(RefundActions(), r.Action) {
		p.add("action", fmt.Sprintf("must be settle, release, resend, extend or cancel, not %q", clip(string(r.Action), 40)))
	}
	checkNeeded(&p, "operator", r.Operator)
	checkNeeded(&p, "reason", r.Reason)
	checkText(&p, "approver", r.Approver, MaxReasonBytes)
	checkText(&p, "evidence", r.Evidence, MaxReasonBytes)
	checkText(&p, "channelRef", r.ChannelRef, 200)
	if r.Number != "" && !ValidRefundNumber(r.Number) {
		p.add("number", fmt.Sprintf("must be a refund number, 1 to 64 characters of 0-9 A-Z a-z _ -, not %q", clip(r.Number, 70)))
	}
	proves := r.Action == ActionSettle || r.Action == ActionRelease
	if proves && strings.TrimSpace(r.Evidence) == "" {
		p.add("evidence", fmt.Sprintf("is missing: %s needs it", r.Action))
	}
	if proves && r.Amount < 1 {
		p.add("amount", fmt.Sprintf("is missing: %s needs the refund's amount, so that the right refund is decided", r.Action))
	}
	if r.Action == ActionSettle && strings.TrimSpace(r.ChannelRef) == "" {
		p.add("channelRef", "is missing: settle needs the channel's own reference of the refund")
	}
	if r.Currency != "" {
		checkCurrency(&p, r.Currency)
	}
	return p.err(CodeBadResolution)
}

// RefundOutcome is what a channel says of a refund.
type RefundOutcome string

// The outcomes that a channel notice may report.
const (
	NoticePending   RefundOutcome = "pending"
	NoticeSucceeded RefundOutcome = "succeeded"
	NoticeFailed    RefundOutcome = "failed"
)

// ChannelNotice is the payload of the channel-notice signal: what a message of the channel says of the refund. Only outcome
// is needed. It is no evidence itself, since a signal carries no signature: the row is read, and where it does not say the
// same, the channel is asked at once.
type ChannelNotice struct {
	// ID is the channel's id of the event.
	ID         string        `json:"id,omitempty"`
	Outcome    RefundOutcome `json:"outcome"`
	Number     string        `json:"number,omitempty"`
	ChannelRef string        `json:"channelRef,omitempty"`
	Payment    string        `json:"payment,omitempty"`
	// Amount is in the smallest unit of Currency.
	Amount   int64  `json:"amount,omitzero"`
	Currency string `json:"currency,omitempty"`
	Code     string `json:"code,omitempty"`
	// ObservedAt is the channel's own time of the fact, RFC 3339.
	ObservedAt time.Time `json:"observedAt,omitzero"`
}

// ParseChannelNotice reads and checks a notice. The error has code BadInput.
func ParseChannelNotice(raw []byte) (ChannelNotice, error) {
	var n ChannelNotice
	if err := Decode(raw, MaxInputBytes, &n); err != nil {
		return ChannelNotice{}, err
	}
	var p problems
	if n.Outcome != NoticePending && n.Outcome != NoticeSucceeded && n.Outcome != NoticeFailed {
		p.add("outcome", fmt.Sprintf("must be pending, succeeded or failed, not %q", clip(string(n.Outcome), 40)))
	}
	if n.Amount < 0 || n.Amount > MaxCost {
		p.add("amount", fmt.Sprintf("must be between 0 and %d, not %d", MaxCost, n.Amount))
	}
	if n.Currency != "" {
		checkCurrency(&p, n.Currency)
	}
	for _, text := range []struct{ field, value string }{
		{"id", n.ID}, {"number", n.Number}, {"channelRef", n.ChannelRef}, {"payment", n.Payment}, {"code", n.Code},
	} {
		checkText(&p, text.field, text.value, 200)
	}
	return n, p.err(CodeBadInput)
}

// Particulars is what the decision names beside its action, people, reason and evidence, as it is kept: two decisions under
// one id are the same if and only if this is too.
func (r RefundResolution) Particulars() (string, error) {
	text, err := json.Marshal([]any{r.Number, r.ChannelRef, r.Amount, strings.ToLower(r.Currency)})
	return Clip(string(text), MaxReasonBytes), err
}

// RefundResolutionAnswer is what resolve answers: how the decision with this id went, and the refund's state after it.
type RefundResolutionAnswer struct {
	ID      string      `json:"id"`
	Outcome string      `json:"outcome"`
	State   RefundState `json:"state"`
}

// RefundStatus is what the status query of a ChannelRefund answers, in the order in which a person asks.
type RefundStatus struct {
	State RefundState `json:"state"`
	// DidItHappen says in words whether the money went back.
	DidItHappen string `json:"didItHappen"`
	// Known says what is known about it, and Since since when.
	Known string    `json:"known"`
	Since time.Time `json:"since"`
	// NextLook is when the channel is asked next, LookUntil when that ends, both zero where it is not; Then is what
	// happens after that.
	NextLook  time.Time `json:"nextLook,omitzero"`
	LookUntil time.Time `json:"lookUntil,omitzero"`
	Then      string    `json:"then"`
	// WaitsFor says what the refund waits for, Actions what a person can decide now.
	WaitsFor    string         `json:"waitsFor"`
	NeedsReview bool           `json:"needsReview"`
	Actions     []RefundAction `json:"actions"`
	// Amount is in the smallest unit of Currency; Credits left the account with it.
	Amount     int64  `json:"amount"`
	Currency   string `json:"currency"`
	Credits    int64  `json:"credits"`
	ChannelRef string `json:"channelRef,omitempty"`
}

// RefundResult is what a ChannelRefund run returns.
type RefundResult struct {
	RefundID   string      `json:"refundId"`
	State      RefundState `json:"state"`
	ChannelRef string      `json:"channelRef,omitempty"`
	Amount     int64       `json:"amount"`
	Currency   string      `json:"currency"`
	Credits    int64       `json:"credits"`
	Reason     string      `json:"reason"`
}

// CheckApprover refuses an approver, if there is one, who is the operator or the sender, whom role names. The error has code
// BadInput.
func (r RefundResolution) CheckApprover(sender, role string) error {
	approver := strings.TrimSpace(r.Approver)
	if approver != "" && (strings.EqualFold(approver, sender) || strings.EqualFold(approver, strings.TrimSpace(r.Operator))) {
		return BadField("approver", "must be a second person, neither the operator nor "+role)
	}
	return nil
}
