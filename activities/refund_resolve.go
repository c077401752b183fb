package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// More reasons for a refusal.
const (
	WhyEvidenceMismatch = "evidence_mismatch"
	WhySecondPerson     = "second_person"
	WhyNumberExpired    = "number_expired"
	WhyChannelMissing   = "channel_missing"
)

// ResolveRefundRequest is a person's decision about a channel refund. Invalid and RecordRefusal are as in ResolveRequest.
type ResolveRefundRequest struct {
	contract.RefundKey
	Resolution    contract.RefundResolution `json:"resolution"`
	Invalid       string                    `json:"invalid,omitempty"`
	RecordRefusal bool                      `json:"recordRefusal,omitempty"`
}

// ResolveRefundAnswer is the answer to a decision. Outcome and State are those of the first time where it was taken
// before.
type ResolveRefundAnswer struct {
	Verdict Verdict              `json:"verdict"`
	Why     string               `json:"why,omitempty"`
	Outcome string               `json:"outcome"`
	State   contract.RefundState `json:"state"`
	Refusal string               `json:"refusal,omitempty"`
	Row     RefundRow            `json:"row"`
}

// ResolveRefund applies a decision with its effect in one transaction that holds the refund's lock, once for each
// resolution id. Settle and release are evidence and go the way of all evidence.
func (r *Refunds) ResolveRefund(ctx context.Context, q ResolveRefundRequest) (ResolveRefundAnswer, error) {
	if err := ownRefund(ctx, q.RefundKey); err != nil {
		return ResolveRefundAnswer{}, err
	}
	tried := "resolve " + refundName(q.RefundKey)
	var answer ResolveRefundAnswer
	err := pgx.BeginFunc(ctx, r.store.Pool, func(tx pgx.Tx) (err error) {
		answer, err = r.resolve(ctx, r.store.WithTx(tx), q)
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return ResolveRefundAnswer{}, noRefund(tried, q.RefundKey)
	}
	if _, classified := errors.AsType[*temporal.ApplicationError](err); err != nil && !classified {
		err = retry(ctx, schema.Classify(tried, err))
	}
	if err != nil {
		return ResolveRefundAnswer{}, err
	}
	return answer, nil
}

func (r *Refunds) resolve(ctx context.Context, queries *db.Queries, q ResolveRefundRequest) (ResolveRefundAnswer, error) {
	d, key := q.Resolution, q.RefundKey
	if _, err := queries.LockRefund(ctx, db.LockRefundParams{TenantID: key.Tenant, RefundID: key.RefundID}); err != nil {
		return ResolveRefundAnswer{}, err
	}
	row, err := queries.GetRefund(ctx, db.GetRefundParams{TenantID: key.Tenant, RefundID: key.RefundID})
	if err != nil {
		return ResolveRefundAnswer{}, err
	}
	particulars, err := d.Particulars()
	if err != nil {
		return ResolveRefundAnswer{}, err
	}
	record := db.InsertResolutionParams{
		TenantID: key.Tenant, SubjectKind: "refund", SubjectID: key.RefundID, ResolutionID: d.ID,
		Action: string(d.Action), Operator: d.Operator, Approver: d.Approver, Reason: d.Reason, Evidence: d.Evidence,
		Particulars: particulars, Outcome: contract.ResolutionApplied,
	}
	answer := ResolveRefundAnswer{
		Verdict: Applied, Outcome: contract.ResolutionApplied, State: contract.RefundState(row.ReclaimRefund.State),
		Row: r.rowOf(row),
	}
	prior, err := queries.GetResolution(ctx, db.GetResolutionParams{
		TenantID: key.Tenant, SubjectKind: "refund", SubjectID: key.RefundID, ResolutionID: d.ID,
	})
	switch {
	case err == nil && sameDecision(prior, record):
		answer.Verdict, answer.Outcome, answer.Refusal = Already, prior.Outcome, prior.Refusal
		answer.State = contract.RefundState(prior.State)
		return answer, nil
	case err == nil:
		answer.Verdict, answer.Why, answer.Outcome = Refused, WhyIDReused, contract.ResolutionRefused
		answer.Refusal = fmt.Sprintf("the resolution id %q stands for another decision: use a new id", d.ID)
		if !q.RecordRefusal {
			return answer, nil
		}
		// Nobody waits for the answer to a signal: it is kept under an id of its own, the same for every delivery.
		record.ResolutionID = reusedID(record)
		record.Outcome, record.State, record.Refusal = contract.ResolutionRefused, string(answer.State), answer.Refusal
		_, err = queries.GetResolution(ctx, db.GetResolutionParams{
			TenantID: key.Tenant, SubjectKind: "refund", SubjectID: key.RefundID, ResolutionID: record.ResolutionID,
		})
		if errors.Is(err, pgx.ErrNoRows) {
			err = queries.InsertResolution(ctx, record)
		}
		return answer, err
	case !errors.Is(err, pgx.ErrNoRows):
		return answer, err
	}
	caps, why, refusal := r.refuses(row, q)
	if refusal == "" {
		if why, refusal, err = r.takeDecision(ctx, queries, row, q, caps); err != nil {
			return answer, err
		}
	}
	if refusal != "" {
		answer.Verdict, answer.Why, answer.Outcome, answer.Refusal = Refused, why, contract.ResolutionRefused, refusal
		if !q.RecordRefusal {
			return answer, nil
		}
		record.Outcome, record.State = contract.ResolutionRefused, string(answer.State)
		record.Refusal = contract.Clip(refusal, contract.MaxReasonBytes)
		return answer, queries.InsertResolution(ctx, record)
	}
	if row, err = queries.GetRefund(ctx, db.GetRefundParams{TenantID: key.Tenant, RefundID: key.RefundID}); err != nil {
		return answer, err
	}
	answer.Row = r.rowOf(row)
	answer.State = answer.Row.State
	record.State = string(answer.State)
	return answer, queries.InsertResolution(ctx, record)
}

// reusedID names a refused decision whose own id stands for another one.
func reusedID(r db.InsertResolutionParams) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{
		r.ResolutionID, r.Action, r.Operator, r.Approver, r.Reason, r.Evidence, r.Particulars,
	}))
	return "reused:" + hex.EncodeToString(sum[:16])
}

func sameDecision(prior db.ReclaimResolution, now db.InsertResolutionParams) bool {
	return prior.Action == now.Action && prior.Operator == now.Operator && prior.Approver == now.Approver &&
		prior.Reason == now.Reason && prior.Evidence == now.Evidence && prior.Particulars == now.Particulars
}

// refuses says why the decision cannot be taken, as code and in words, or nothing. It also gives what the channel declares,
// which a cancel does without.
func (r *Refunds) refuses(
	row db.GetRefundRow, q ResolveRefundRequest,
) (caps channel.Capabilities, why, refusal string) {
	d, refund := q.Resolution, row.ReclaimRefund
	if q.Invalid != "" {
		return caps, WhyInvalid, q.Invalid
	}
	if refusal := contract.RefundState(refund.State).Refuses(d.Action); refusal != "" {
		return caps, WhyWrongState, refusal
	}
	if d.Action == contract.ActionCancel {
		// Nothing was sent, so it does not matter whether the channel can be asked.
		return caps, "", ""
	}
	far, err := r.channels.Get(row.Channel, q.Tenant)
	if err != nil {
		return caps, WhyChannelMissing, err.Error()
	}
	caps = far.Capabilities()
	if d.Action == contract.ActionSettle || d.Action == contract.ActionRelease {
		for _, fact := range []struct {
			name          string
			given, stored any
			compared      bool
		}{
			{"number", d.Number, refund.RefundID, d.Number != ""},
			{"amount", d.Amount, refund.Amount, true},
			{"currency", strings.ToLower(d.Currency), refund.Currency, d.Currency != ""},
			{"channelRef", d.ChannelRef, refund.ChannelRef, d.ChannelRef != "" && refund.ChannelRef != ""},
		} {
			if fact.compared && fact.given != fact.stored {
				return caps, WhyEvidenceMismatch, fmt.Sprintf("the %s %v is not this refund's, which is %v: look whether this is the "+
					"refund that was meant", fact.name, fact.given, fact.stored)
			}
		}
	}
	if d.Action != contract.ActionExtend && caps.SecondPersonFrom > 0 && refund.Amount >= caps.SecondPersonFrom &&
		(strings.TrimSpace(d.Approver) == "" || strings.EqualFold(strings.TrimSpace(d.Approver), strings.TrimSpace(d.Operator))) {
		return caps, WhySecondPerson, fmt.Sprintf("a decision about %d %s or more needs a second person as approver",
			caps.SecondPersonFrom, refund.Currency)
	}
	if d.Action == contract.ActionResend && row.Now.Sub(instant(refund.FirstSentAt)) >= resendWithin(caps) {
		return caps, WhyNumberExpired, fmt.Sprintf("the channel honours a refund number for %s and this one was first sent at %s: "+
			"sent again it could refund twice. Look at the channel, then settle or release",
			caps.IdempotencyLife, instant(refund.FirstSentAt).Format("2006-01-02 15:04 MST"))
	}
	return caps, "", ""
}

// takeDecision carries out a decision that may be taken.
func (r *Refunds) takeDecision(
	ctx context.Context, queries *db.Queries, row db.GetRefundRow, q ResolveRefundRequest, caps channel.Capabilities,
) (why, refusal string, err error) {
	d, refund := q.Resolution, row.ReclaimRefund
	who := d.Operator
	if d.Approver != "" {
		who += ", approved by " + d.Approver
	}
	// Together the two may be longer than what is kept of one.
	who = contract.Clip(who, contract.MaxReasonBytes)
	switch d.Action {
	case contract.ActionSettle, contract.ActionRelease:
		if refusal, err := whoseReference(ctx, queries, row, d.ChannelRef); refusal != "" || err != nil {
			return WhyEvidenceMismatch, refusal, err
		}
		outcome := channel.OutcomeSucceeded
		if d.Action == contract.ActionRelease {
			outcome = channel.OutcomeFailed
		}
		applied, err := r.apply(ctx, queries, q.RefundKey, Observation{
			Source: SourcePerson, Actor: who, Reversible: caps.Reversible,
			Evidence: channel.Evidence{
				Outcome: outcome, Number: d.Number, Reference: d.ChannelRef, Amount: d.Amount, Currency: refund.Currency,
				Code: string(d.Action), Detail: d.Reason + " (evidence: " + d.Evidence + ")",
			},
		})
		if err == nil && applied.Verdict != Applied {
			return WhyEvidenceMismatch, "the decision contradicts what is known of the refund: " + applied.Why, nil
		}
		return "", "", err
	case contract.ActionCancel:
		answer, err := queries.CancelRefund(ctx, db.CancelRefundParams{
			TenantID: q.Tenant, RefundID: q.RefundID, Actor: who,
			Reason: contract.Clip("withdrawn before it was sent: "+d.Reason, contract.MaxReasonBytes),
		})
		if err == nil && answer.Answer != "applied" {
			return WhyWrongState, "the refund is " + answer.State, nil
		}
		return "", "", err
	default:
		return "", "", queries.ExtendRefund(ctx, db.ExtendRefundParams{
			TenantID: q.Tenant, RefundID: q.RefundID, GiveUpUs: caps.GiveUp.Microseconds(),
			Resend: d.Action == contract.ActionResend,
		})
	}
}

// whoseReference says in words that the reference is another refund's, or nothing.
func whoseReference(ctx context.Context, queries *db.Queries, row db.GetRefundRow, reference string) (string, error) {
	other, err := queries.GetRefundOfReference(ctx, db.GetRefundOfReferenceParams{
		ChannelRef: reference, Channel: row.Channel, RefundID: row.ReclaimRefund.RefundID,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	whose := "refund " + other.RefundID
	if other.TenantID != row.ReclaimRefund.TenantID {
		whose = "another tenant's refund"
	}
	return fmt.Sprintf("the channelRef %s is that of %s: look whether this is the refund that was meant", reference, whose), err
}
