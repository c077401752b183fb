package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// channelCall bounds one call of a channel. What takes longer is unknown and looked up.
	channelCall = 30 * time.Second
	// heartbeat is how often an attempt that calls a channel says that it lives.
	heartbeat = 5 * time.Second
)

// Types of the errors by which FollowRefund asks to be run again. ErrorNotDue is the ordinary course of things.
const (
	ErrorNotDue         = "RefundNotDue"
	ErrorChannelMissing = "ChannelMissing"
)

// FollowRequest asks to bring a refund on. Known is the state that the caller knows of, and NeedsReview whether it knows that
// a person must look.
type FollowRequest struct {
	contract.RefundKey
	Known       contract.RefundState `json:"known"`
	NeedsReview bool                 `json:"needsReview,omitempty"`
}

// news says whether the row is otherwise than the caller knows it.
func (f FollowRequest) news(row RefundRow) bool {
	return row.State != f.Known || row.NeedsReview != f.NeedsReview
}

// FollowAnswer is the refund as it stands. GaveUp is true where its time for looking has passed and a person decides.
type FollowAnswer struct {
	Row    RefundRow `json:"row"`
	GaveUp bool      `json:"gaveUp,omitempty"`
}

// FollowRefund brings a refund on by one step (send it, look it up, send its number again) and answers as soon as the
// refund is otherwise than the caller knows it, is final, has had its time, or was flagged since it cannot go on. Otherwise it
// fails with ErrorNotDue and the time until the next look-up as its retry delay: waiting costs no history, and the retry is
// the poll.
//
// Sending is committed before the channel is called, and whatever the channel says goes through ApplyEvidence. An
// attempt that dies anywhere is repeated from what the row then says.
func (r *Refunds) FollowRefund(ctx context.Context, f FollowRequest) (FollowAnswer, error) {
	if err := ownRefund(ctx, f.RefundKey); err != nil {
		return FollowAnswer{}, err
	}
	answer, err := r.follow(ctx, f)
	if errors.Is(err, channel.ErrUnknownChannel) || errors.Is(err, channel.ErrNotForTenant) {
		return r.stuck(ctx, f, ErrorChannelMissing, err)
	}
	if fault, ok := errors.AsType[*temporal.ApplicationError](err); ok && fault.NonRetryable() && fault.Type() != ErrorNoRefund {
		return r.stuck(ctx, f, fault.Type(), fault)
	}
	return answer, err
}

func (r *Refunds) follow(ctx context.Context, f FollowRequest) (FollowAnswer, error) {
	row, err := r.read(ctx, r.store.Queries, f.RefundKey)
	if err != nil {
		return FollowAnswer{}, err
	}
	if state := contract.RefundState(row.ReclaimRefund.State); !state.Open() {
		return FollowAnswer{Row: r.rowOf(row)}, nil
	}
	far, err := r.channels.Get(row.Channel, f.Tenant)
	if err != nil {
		return FollowAnswer{}, err
	}
	stop := beat(ctx)
	defer stop()
	if err := r.step(ctx, f.RefundKey, row, far); err != nil {
		return FollowAnswer{}, err
	}
	if row, err = r.read(ctx, r.store.Queries, f.RefundKey); err != nil {
		return FollowAnswer{}, err
	}
	answer := FollowAnswer{Row: r.rowOf(row)}
	answer.Row.Schedule = scheduleInWords(far.Capabilities())
	state := answer.Row.State
	if !state.Open() || f.news(answer.Row) && !hasHadItsTime(row) {
		return answer, nil
	}
	if hasHadItsTime(row) {
		tried := "flag " + refundName(f.RefundKey)
		if _, err := r.store.FlagRefund(ctx, db.FlagRefundParams{TenantID: f.Tenant, RefundID: f.RefundID}); err != nil {
			return FollowAnswer{}, retry(ctx, schema.Classify(tried, err))
		}
		answer.Row.NeedsReview, answer.GaveUp = true, true
		return answer, nil
	}
	next := answer.Row.NextLook
	if until := answer.Row.LookUntil; until.Before(next) {
		next = until
	}
	return FollowAnswer{}, notDue(f.RefundKey, row, next)
}

func hasHadItsTime(row db.GetRefundRow) bool {
	until := row.ReclaimRefund.LookUntil
	return until != nil && !row.Now.Before(*until)
}

// step sends the refund or looks it up, whichever is due.
func (r *Refunds) step(ctx context.Context, key contract.RefundKey, row db.GetRefundRow, far channel.Channel) error {
	refund := row.ReclaimRefund
	state := contract.RefundState(refund.State)
	if state == contract.RefundAccepted || state == contract.RefundUnknown && refund.ResendRequested {
		if sent, err := r.send(ctx, key, row, far); sent || err != nil {
			return err
		}
	}
	if refund.NextLookAt != nil && row.Now.Before(*refund.NextLookAt) && !hasHadItsTime(row) {
		return nil
	}
	pauses := far.Capabilities().Poll
	pause := max(pauses[min(int(refund.LookCount), len(pauses)-1)], far.Capabilities().MinSpacing)
	evidence, applied, err := r.lookUp(ctx, key, row, far, pause)
	if err != nil || applied.State != contract.RefundUnknown || hasHadItsTime(row) {
		return err
	}
	// Not found, once a look-up would find it, means that the number never arrived: it may be sent again while the channel
	// honours it. A channel that cannot be asked is asked by sending the same number.
	if evidence.Outcome == channel.OutcomeNotFound || evidence.Code == "no_look_up" {
		_, err = r.send(ctx, key, row, far)
	}
	return err
}

// lookUp asks the channel about the refund and applies what it says. next is how long after it the next look is due, 0 for
// one that is beside the schedule.
func (r *Refunds) lookUp(
	ctx context.Context, key contract.RefundKey, row db.GetRefundRow, far channel.Channel, next time.Duration,
) (evidence channel.Evidence, applied AppliedEvidence, err error) {
	refund, caps, asked := row.ReclaimRefund, far.Capabilities(), channelRefund(row)
	evidence = channel.Evidence{Outcome: channel.OutcomeUnknown, Code: "no_look_up",
		Detail: "the channel cannot look a refund up without its own reference"}
	if caps.QueryByNumber || asked.Reference != "" {
		evidence = observe(ctx, func(ctx context.Context) (channel.Evidence, error) { return far.Query(ctx, asked) })
		if evidence.Outcome == channel.OutcomeFailed && evidence.Reference == "" {
			// Only the refund itself can be seen to have failed: a look-up that is refused tells nothing of it.
			evidence.Outcome = channel.OutcomeUnknown
		}
	}
	findable := row.Now.Sub(instant(refund.FirstSentAt)) >= caps.SearchLag
	if evidence.Outcome == channel.OutcomeNotFound && !findable {
		// The channel's search may not have it yet.
		evidence.Outcome, evidence.Code = channel.OutcomeUnknown, "not_found_yet"
	}
	applied, err = r.apply(ctx, r.store.Queries, key, Observation{
		Source: SourceQuery, Evidence: evidence, Reversible: caps.Reversible, NextLook: next, KnownSeq: refund.EventSeq,
	})
	return evidence, applied, err
}

// LookUpRefund asks the channel once about a refund that was sent, in whatever state it is and beside its schedule, though
// not sooner than the channel allows. Where the channel is not configured there is nobody to ask.
func (r *Refunds) LookUpRefund(ctx context.Context, key contract.RefundKey) error {
	if err := ownRefund(ctx, key); err != nil {
		return err
	}
	row, err := r.read(ctx, r.store.Queries, key)
	if err != nil {
		return err
	}
	far, err := r.channels.Get(row.Channel, key.Tenant)
	if err != nil || row.ReclaimRefund.FirstSentAt == nil {
		return nil //nolint:nilerr // see above
	}
	allowed := instant(row.ReclaimRefund.LastCheckedAt).Add(far.Capabilities().MinSpacing)
	if row.Now.Before(allowed) {
		return notDue(key, row, allowed)
	}
	stop := beat(ctx)
	defer stop()
	_, _, err = r.lookUp(ctx, key, row, far, 0)
	return err
}

// notDue asks to be run again at the given time. Rounding up keeps a retry from arriving just before what it waits for.
func notDue(key contract.RefundKey, row db.GetRefundRow, next time.Time) error {
	return temporal.NewApplicationErrorWithOptions(
		fmt.Sprintf("%s is %s; the channel is asked again at %s", refundName(key), row.ReclaimRefund.State, next.Format(time.RFC3339)),
		ErrorNotDue, temporal.ApplicationErrorOptions{
			NextRetryDelay: max(next.Sub(row.Now)+time.Millisecond, 10*time.Millisecond),
			Category:       temporal.ApplicationErrorCategoryBenign,
		})
}

// send commits that sending begins, asks the channel, and applies its answer. A number that the channel no longer honours
// is not sent, which it reports.
func (r *Refunds) send(
	ctx context.Context, key contract.RefundKey, row db.GetRefundRow, far channel.Channel,
) (sent bool, err error) {
	tried, caps := "begin sending "+refundName(key), far.Capabilities()
	answer, err := r.store.BeginSend(ctx, db.BeginSendParams{
		TenantID: key.Tenant, RefundID: key.RefundID, ResendWithinUs: resendWithin(caps).Microseconds(),
		FirstLookUs: caps.FirstQuery.Microseconds(), GiveUpUs: caps.GiveUp.Microseconds(),
	})
	if err != nil {
		return false, retry(ctx, schema.Classify(tried, err))
	}
	if answer != "applied" {
		return false, nil
	}
	asked := channelRefund(row)
	evidence := observe(ctx, func(ctx context.Context) (channel.Evidence, error) { return far.Submit(ctx, asked) })
	return true, r.keep(ctx, key, Observation{
		Source: SourceCreate, Evidence: evidence, Reversible: caps.Reversible,
		Refusal: evidence.Outcome == channel.OutcomeFailed && evidence.Reference == "",
	})
}

// keepFor is how long an answer to sending is tried to be applied. It is given once: a refusal that is lost could not be told
// later from one of a number that was sent again.
const keepFor = 20 * time.Second

// keep applies an answer to sending, also where the attempt is canceled meanwhile or Postgres is away for a moment.
func (r *Refunds) keep(ctx context.Context, key contract.RefundKey, o Observation) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepFor)
	defer cancel()
	for {
		_, err := r.apply(ctx, r.store.Queries, key, o)
		fault, ok := errors.AsType[*temporal.ApplicationError](err)
		if !ok || fault.NonRetryable() {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// resendWithin is how long after its first use a number may be sent again: somewhat less than the channel honours it, for
// the time that a call is under way and for clocks that differ.
func resendWithin(caps channel.Capabilities) time.Duration {
	return caps.IdempotencyLife - min(caps.IdempotencyLife/10, 10*time.Minute)
}

func channelRefund(row db.GetRefundRow) channel.Refund {
	refund := row.ReclaimRefund
	return channel.Refund{
		Number: refund.RefundID, Payment: row.ChannelPaymentID, Amount: refund.Amount, Currency: refund.Currency,
		Reference: refund.ChannelRef,
	}
}

// observe calls a channel and makes sure that its answer is evidence: a refund that cannot be asked for at all is refused,
// and an adapter that answers nothing, or an error of its own, tells nothing.
func observe(ctx context.Context, call func(context.Context) (channel.Evidence, error)) channel.Evidence {
	ctx, cancel := context.WithTimeout(ctx, channelCall)
	defer cancel()
	evidence, err := call(ctx)
	if unusable, ok := errors.AsType[*channel.Unusable](err); ok {
		return channel.Evidence{Outcome: channel.OutcomeFailed, Code: "unusable_" + unusable.Field, Detail: err.Error()}
	}
	if err != nil {
		return channel.Evidence{Outcome: channel.OutcomeUnknown, Code: "adapter_error", Detail: err.Error()}
	}
	switch evidence.Outcome {
	case channel.OutcomeUnknown, channel.OutcomePending, channel.OutcomeSucceeded, channel.OutcomeFailed,
		channel.OutcomeNotFound:
		return evidence
	default:
		evidence.Code = "no_outcome_" + evidence.Code
		evidence.Outcome = channel.OutcomeUnknown
		return evidence
	}
}

// stuck says that a person must look why the refund does not go on: the first time to the run, which shows it, and after
// that by failing until what is in the way is gone, be it a channel that is not configured or a fault of the program.
func (r *Refunds) stuck(ctx context.Context, f FollowRequest, why string, cause error) (FollowAnswer, error) {
	_, err := r.store.FlagRefund(ctx, db.FlagRefundParams{TenantID: f.Tenant, RefundID: f.RefundID})
	if err == nil && !f.NeedsReview {
		var row db.GetRefundRow
		if row, err = r.read(ctx, r.store.Queries, f.RefundKey); err == nil {
			return FollowAnswer{Row: r.rowOf(row)}, nil
		}
	}
	cause = errors.Join(cause, err)
	return FollowAnswer{}, temporal.NewApplicationErrorWithOptions("follow "+refundName(f.RefundKey)+": "+cause.Error(), why,
		temporal.ApplicationErrorOptions{NextRetryDelay: 30 * time.Second, Cause: cause})
}

// beat tells Temporal that the attempt lives until stop is called, so that a worker that died is noticed soon.
func beat(ctx context.Context, details ...any) (stop func()) {
	if !activity.IsActivity(ctx) {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(heartbeat)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-ticker.C:
				activity.RecordHeartbeat(ctx, details...)
			}
		}
	}()
	return func() { close(done) }
}

func scheduleInWords(caps channel.Capabilities) string {
	pauses := make([]string, len(caps.Poll))
	for i, pause := range caps.Poll {
		pauses[i] = pause.String()
	}
	return fmt.Sprintf("%s after sending, then after %s, which repeats, until %s after sending",
		caps.FirstQuery, strings.Join(pauses, ", "), caps.GiveUp)
}
