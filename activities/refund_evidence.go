package activities

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Source says where a piece of evidence comes from.
type Source string

// The sources of evidence.
const (
	SourceCreate     Source = "create"
	SourceQuery      Source = "query"
	SourceNotice     Source = "notice"
	SourceSettlement Source = "settlement"
	SourcePerson     Source = "person"
)

// Observation is a piece of evidence with where it comes from.
type Observation struct {
	Source   Source
	Evidence channel.Evidence
	// Actor is who decided, where a person did.
	Actor string
	// Reversible says whether the channel is known to take a refund back that had succeeded.
	Reversible bool
	// Refusal says that the channel refused to make the refund, rather than told of one that it had made. It counts only
	// where the number was sent once.
	Refusal bool
	// KnownSeq is the refund's newest event when the channel was asked, 0 where that is not known: not found contradicts only
	// what was known then.
	KnownSeq int64
	// NextLook is how long after this observation the next look-up is due; 0 leaves the schedule as it is.
	NextLook time.Duration
}

// AppliedEvidence is how an observation went: Verdict is Applied where it moved the refund, Already where it told nothing new,
// and Refused where it contradicts what is known, which opened an issue; Why is then the kind.
type AppliedEvidence struct {
	Verdict     Verdict
	Why         string
	State       contract.RefundState
	NeedsReview bool
}

// ApplyEvidence is the one way by which anything observed of a refund takes effect. It is no activity of its own.
func (r *Refunds) ApplyEvidence(ctx context.Context, key contract.RefundKey, o Observation) (AppliedEvidence, error) {
	if err := noActivity(ctx); err != nil {
		return AppliedEvidence{}, err
	}
	return r.apply(ctx, r.store.Queries, key, o)
}

func (r *Refunds) apply(
	ctx context.Context, queries *db.Queries, key contract.RefundKey, o Observation,
) (AppliedEvidence, error) {
	tried := "apply what " + string(o.Source) + " says of " + refundName(key)
	e := o.Evidence
	var observed *time.Time
	if !e.ObservedAt.IsZero() {
		observed = &e.ObservedAt
	}
	row, err := queries.ApplyEvidence(ctx, db.ApplyEvidenceParams{
		TenantID: key.Tenant, RefundID: key.RefundID, Source: string(o.Source), Outcome: string(e.Outcome),
		Number: contract.Clip(e.Number, 200), ChannelRef: contract.Clip(e.Reference, 200),
		Payment: contract.Clip(e.Payment, 200), Amount: e.Amount, Currency: contract.Clip(e.Currency, 20),
		Code: contract.Clip(e.Code, 200), Evidence: contract.Clip(e.Detail, contract.MaxReasonBytes),
		Sends: int32(e.Sends), Actor: contract.Clip(o.Actor, contract.MaxReasonBytes), ObservedAt: observed,
		Reversible: o.Reversible, NextLookUs: o.NextLook.Microseconds(), Refusal: o.Refusal,
		Elsewhere: e.Elsewhere, KnownSeq: o.KnownSeq,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return AppliedEvidence{}, noRefund(tried, key)
	}
	if err != nil {
		return AppliedEvidence{}, retry(ctx, schema.Classify(tried, err))
	}
	applied := AppliedEvidence{State: contract.RefundState(row.State), NeedsReview: row.NeedsReview}
	switch row.Answer {
	case "applied":
		applied.Verdict = Applied
	case "already":
		applied.Verdict = Already
	default:
		applied.Verdict, applied.Why = Refused, row.Effect
	}
	r.observed(o.Source, applied)
	return applied, nil
}
