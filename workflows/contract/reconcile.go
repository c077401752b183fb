package contract

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ReconcileWorkflow is the workflow type of one pass that holds what is written against runs and channels.
const ReconcileWorkflow = "Reconcile"

// ReconcileWorkflowID returns the workflow id of a tenant's passes. Those that a schedule starts have an id that begins with it
// and a slash.
func ReconcileWorkflowID(tenant string) string { return "reconcile/" + tenant }

// ReconcilePart is one of the comparisons that a pass makes.
type ReconcilePart string

const (
	// ReconcileLedger: the ledger's invariants, as audit proves them.
	ReconcileLedger ReconcilePart = "ledger"
	// ReconcileRuns: open jobs and refunds without a run are taken up again, and runs whose row is final are ended.
	ReconcileRuns ReconcilePart = "runs"
	// ReconcileRefunds: the channels' refunds of the period against ours.
	ReconcileRefunds ReconcilePart = "refunds"
	// ReconcilePayments: the channels' payments of the period against our orders.
	ReconcilePayments ReconcilePart = "payments"
)

// ReconcileParts are all parts, in the order in which a pass makes them.
func ReconcileParts() []ReconcilePart {
	return []ReconcilePart{ReconcileLedger, ReconcileRuns, ReconcileRefunds, ReconcilePayments}
}

// ReconcileRequest asks for one pass.
type ReconcileRequest struct {
	Tenant string `json:"tenant"`
	// Parts are the comparisons to make. None named: all.
	Parts []ReconcilePart `json:"parts,omitempty"`
	// Since and Until bound the period of what channels are asked for. Without Until it ends when the pass begins, without
	// Since it lasts Window, which is three days where it is 0.
	Since  time.Time `json:"since,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	Window Duration  `json:"window,omitempty"`
	// Grace is how long a row must have been final before a run that is still open is ended. 0: ten minutes.
	Grace Duration `json:"grace,omitempty"`
	// WholeEvery is after how long the ledger is proven as a whole again: before that the part ledger looks at what is new since
	// the last sound audit of all tenants. 0: the tenant's whole ledger each time.
	WholeEvery Duration `json:"wholeEvery,omitempty"`
	// Settlement is the stored file that the part settlement is about. With one, that part is made beside those that are named.
	Settlement *SettlementKey `json:"settlement,omitempty"`
}

// Defaults of a pass.
const (
	ReconcileWindow = Duration(72 * time.Hour)
	ReconcileGrace  = Duration(10 * time.Minute)
	// ReconcileWholeEvery is the one of passes that a schedule makes.
	ReconcileWholeEvery = Duration(24 * time.Hour)
)

// WithDefaults returns the request with what is not given filled in.
func (r ReconcileRequest) WithDefaults() ReconcileRequest {
	switch {
	case r.Settlement != nil && !slices.Contains(r.Parts, ReconcileSettlement):
		r.Parts = append(slices.Clone(r.Parts), ReconcileSettlement)
	case len(r.Parts) == 0:
		r.Parts = ReconcileParts()
	}
	if r.Window == 0 {
		r.Window = ReconcileWindow
	}
	if r.Grace == 0 {
		r.Grace = ReconcileGrace
	}
	return r
}

// Check applies the rules of a pass. The error has code BadInput and names each field at fault.
func (r ReconcileRequest) Check() error {
	var p problems
	checkID(&p, "tenant", &r.Tenant)
	for _, part := range r.Parts {
		if part == ReconcileSettlement && r.Settlement == nil {
			p.add("settlement", "is missing: the part settlement needs a channel's file")
		} else if part != ReconcileSettlement && !slices.Contains(ReconcileParts(), part) {
			p.add("parts", fmt.Sprintf("has %q: a part is one of %s", clip(string(part), 40), ReconcilePartsInWords()))
		}
	}
	if r.Settlement != nil {
		r.Settlement.check(&p)
	}
	if r.Window < 0 || r.Window.Std() > MaxDuration {
		p.add("window", "must be above 0 and at most ten years")
	}
	if r.Grace < 0 || r.Grace.Std() > MaxDuration {
		p.add("grace", "must be above 0 and at most ten years")
	}
	if r.WholeEvery < 0 || r.WholeEvery.Std() > MaxDuration {
		p.add("wholeEvery", "must be from 0 to ten years")
	}
	if !r.Since.IsZero() && !r.Until.IsZero() && !r.Since.Before(r.Until) {
		p.add("since", "must be before until")
	}
	return p.err(CodeBadInput)
}

// ReconcilePartsInWords lists the parts for people.
func ReconcilePartsInWords() string {
	names := make([]string, 0, len(ReconcileParts()))
	for _, part := range ReconcileParts() {
		names = append(names, string(part))
	}
	return strings.Join(names, ", ")
}

// ParseReconcile reads a request strictly. The error has code BadInput.
func ParseReconcile(raw []byte) (ReconcileRequest, error) {
	var r ReconcileRequest
	if fault := decode(raw, MaxInputBytes, &r); fault != nil {
		return ReconcileRequest{}, problems{*fault}.err(CodeBadInput)
	}
	return r.WithDefaults(), r.Check()
}

// FindingEffect is what a pass did about something that it found.
type FindingEffect string

const (
	// FindingRepaired: the pass set it right.
	FindingRepaired FindingEffect = "repaired"
	// FindingOpened: an issue was opened, which a person resolves.
	FindingOpened FindingEffect = "opened"
	// FindingKnown: its issue had been opened before.
	FindingKnown FindingEffect = "known"
	// FindingNoted: it is told, and nothing is to be done.
	FindingNoted FindingEffect = "noted"
)

// Kinds of findings. One about the ledger has the name of the broken rule, as audit gives it. Where an issue is opened it has the finding's kind, unless evidence opened it under its own.
const (
	// FindingJobWithoutRun: an open job had no open run; one was started from its stored spec.
	FindingJobWithoutRun = "job_without_run"
	// FindingRefundWithoutRun: an open refund had no open run; one was started.
	FindingRefundWithoutRun = "refund_without_run"
	// FindingJobUnreadable: an open job has no run, and its stored spec cannot be read.
	FindingJobUnreadable = "job_unreadable"
	// FindingRunOfFinalJob and FindingRunOfFinalRefund: a run was still open long after its row was final; it was ended.
	FindingRunOfFinalJob    = "run_of_final_job"
	FindingRunOfFinalRefund = "run_of_final_refund"
	// FindingMissingHere: the channel made a refund of one of our payments that nobody asked for here.
	FindingMissingHere = "refund_missing_here"
	// FindingMissingThere: the channel does not know a refund that it had acknowledged.
	FindingMissingThere = "refund_missing_there"
	// FindingMadeTwice: the channel has a second refund under one of our numbers.
	FindingMadeTwice = "refund_made_twice"
	// FindingAmountDiffers, FindingCurrencyDiffers and FindingPaymentDiffers: the channel made the refund otherwise.
	FindingAmountDiffers   = "refund_amount_differs"
	FindingCurrencyDiffers = "refund_currency_differs"
	FindingPaymentDiffers  = "refund_payment_differs"
	// FindingStatusDiffers: the channel says otherwise how the refund stands; its word went through the evidence function.
	FindingStatusDiffers = "refund_status_differs"
	// FindingLateReversal: a refund that had succeeded was taken back.
	FindingLateReversal = "refund_late_reversal"
	// FindingStatusUnknown: the channel gives the refund a status that its adapter does not know.
	FindingStatusUnknown = "refund_status_unknown"
	// FindingPaymentMissingHere: the channel took a payment for which there is no order.
	FindingPaymentMissingHere = "payment_missing_here"
	// FindingPaymentOrderedTwice: two orders stand for the same payment, by its two names or of two tenants.
	FindingPaymentOrderedTwice = "payment_ordered_twice"
	// FindingPaymentMissingThere: the channel does not know the payment of an order.
	FindingPaymentMissingThere = "payment_missing_there"
	// FindingPaymentAmountDiffers, FindingPaymentCurrencyDiffers and FindingPaymentNotPaid: an order says otherwise what was paid.
	FindingPaymentAmountDiffers   = "payment_amount_differs"
	FindingPaymentCurrencyDiffers = "payment_currency_differs"
	FindingPaymentNotPaid         = "payment_not_paid"
)

// ReconcileCompared is how one part went for one channel, or as a whole where it is not about channels.
type ReconcileCompared struct {
	Part    ReconcilePart `json:"part"`
	Channel string        `json:"channel,omitempty"`
	// Ours and Theirs are how many rows (of the ledger: entries), and how many runs or lines of the channel, were looked at.
	Ours   int64 `json:"ours"`
	Theirs int64 `json:"theirs"`
	// NewSince is set where only what is new in the ledger was proven, of all tenants: since the sound audit of that time.
	NewSince *time.Time `json:"newSince,omitempty"`
	// Doubt says why the tenant's whole ledger was proven though only what is new was asked for.
	Doubt string `json:"doubt,omitempty"`
	// Unassigned is how many of the channel's lines belong to no tenant's order; their issues are the tenant "unassigned"'s.
	Unassigned int64 `json:"unassigned,omitempty"`
	// Problem says why the part could not be finished, empty where it was.
	Problem string `json:"problem,omitempty"`
	// Settlement is how the file stands, of the part settlement alone.
	Settlement *SettlementReport `json:"settlement,omitempty"`
}

// ReconcileFound counts findings of a kind and effect.
type ReconcileFound struct {
	Kind     string        `json:"kind"`
	Effect   FindingEffect `json:"effect"`
	Findings int64         `json:"findings"`
}

// ReconcileResult is the result of a pass.
type ReconcileResult struct {
	ReconciliationID string              `json:"reconciliationId"`
	Tenant           string              `json:"tenant"`
	Since            time.Time           `json:"since"`
	Until            time.Time           `json:"until"`
	Compared         []ReconcileCompared `json:"compared"`
	Found            []ReconcileFound    `json:"found"`
	// Finished says that every part could be made.
	Finished bool `json:"finished"`
}
