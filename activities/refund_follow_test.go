package activities_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// follow makes one attempt at following a refund that is known in the given state.
func follow(w *world, r *activities.Refunds, key contract.RefundKey, known contract.RefundState) (activities.FollowAnswer, error) {
	w.t.Helper()
	return r.FollowRefund(w.t.Context(), activities.FollowRequest{
		RefundKey: key, Known: known, NeedsReview: w.refund(key).NeedsReview,
	})
}

// requireNotDue checks that an attempt asks to be made again after about the given time.
func requireNotDue(t *testing.T, err error, after time.Duration) {
	t.Helper()
	failure, ok := errors.AsType[*temporal.ApplicationError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, activities.ErrorNotDue, failure.Type(), failure.Message())
	assert.Equal(t, temporal.ApplicationErrorCategoryBenign, failure.Category())
	assert.False(t, failure.NonRetryable())
	delay := failure.NextRetryDelay()
	assert.LessOrEqual(t, delay, after+2*time.Millisecond)
	assert.Greater(t, delay, after-about/2, "it asks to wait for %s", after)
}

// lost is the answer of a channel whose answer was lost.
func lost(context.Context, channel.Refund) (channel.Evidence, error) {
	return channel.Evidence{Outcome: channel.OutcomeUnknown, Code: "timeout", Sends: 1}, nil
}

func TestARefundIsFollowedFromAcceptanceToItsEnd(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	b.submit = func(_ context.Context, refund channel.Refund) (channel.Evidence, error) {
		row := w.refund(key)
		assert.Equal(t, "unknown", row.State, "it is committed that sending begins before the channel is called")
		assert.NotNil(t, row.FirstSentAt)
		assert.EqualValues(t, 1, row.SendCount)
		assert.Empty(t, w.lines("SELECT state FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"),
			"no transaction is open during the call")
		assert.Equal(t, channel.Refund{Number: key.RefundID, Payment: payment(orderID), Amount: 10, Currency: "eur"}, refund)
		return b.send(refund), nil
	}
	answer, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundPending, answer.Row.State)
	assert.Equal(t, reference(key.RefundID), answer.Row.ChannelRef)
	assert.Equal(t, 1, answer.Row.Sends)
	assert.Equal(t, "1m0s after sending, then after 2m0s, 5m0s, 30m0s, which repeats, until 72h0m0s after sending", answer.Row.Schedule)

	// The first look-up comes after FirstQuery, the others after the pauses of the schedule, of which the last repeats.
	_, err = follow(w, r, key, contract.RefundPending)
	requireNotDue(t, err, time.Minute)
	assert.Equal(t, [2]int{1, 0}, b.calls(), "it is not asked before its time")
	waited := time.Minute
	for i, pause := range []time.Duration{2 * time.Minute, 5 * time.Minute, 30 * time.Minute, 30 * time.Minute, 30 * time.Minute} {
		w.age(key, waited)
		_, err = follow(w, r, key, contract.RefundPending)
		requireNotDue(t, err, pause)
		assert.Equal(t, [2]int{1, i + 1}, b.calls())
		waited = pause
	}
	assert.Equal(t, reference(key.RefundID), b.queried[0].Reference, "it is asked by the reference that is known")
	assert.Len(t, w.events(key), 3, "a look-up that tells nothing new is counted, not told")

	b.becomes(key.RefundID, channel.OutcomeSucceeded, "succeeded")
	w.age(key, waited)
	answer, err = follow(w, r, key, contract.RefundPending)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundSucceeded, answer.Row.State)
	assert.Zero(t, answer.Row.NextLook)
	assert.Equal(t, 6, answer.Row.Looks)
	again, err := follow(w, r, key, contract.RefundPending)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundSucceeded, again.Row.State, "a final refund is answered")
	assert.Equal(t, [2]int{1, 6}, b.calls(), "and not asked for")
	assert.Equal(t, 1, b.moved[key.RefundID])
	w.assertRefundsSound()
}

func TestAChangeSinceWhatIsKnownIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	answer, err := follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundPending, answer.Row.State)
	assert.Equal(t, [2]int{}, b.calls())
	for _, state := range []contract.RefundState{contract.RefundSucceeded, contract.RefundFailed, contract.RefundCanceled, contract.RefundReversed} {
		answer, err := follow(w, r, w.inState(r, orderID, state), contract.RefundPending)
		require.NoError(t, err)
		assert.Equal(t, state, answer.Row.State)
	}
	assert.Equal(t, [2]int{}, b.calls())
}

// C7: the answer is lost, and the refund is found by its own number.
func TestC7_ALostAnswerIsLookedUpByTheNumber(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	b.submit = func(_ context.Context, refund channel.Refund) (channel.Evidence, error) {
		b.send(refund)
		return lost(context.Background(), refund)
	}
	answer, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundUnknown, answer.Row.State)
	assert.Equal(t, "timeout", answer.Row.LastCode)
	assert.Equal(t, [4]int64{10, 0, 4, 0}, w.reserves(orderID))
	w.age(key, time.Minute)
	answer, err = follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundPending, answer.Row.State)
	assert.Equal(t, channel.Refund{Number: key.RefundID, Payment: payment(orderID), Amount: 10, Currency: "eur"}, b.queried[0])
	assert.Equal(t, [2]int{1, 1}, b.calls(), "found, it is not sent again")
	w.assertRefundsSound()
}

// C40: a look-up that comes before the channel's search knows of new refunds proves nothing.
func TestC40_NotFoundProvesNothingBeforeTheSearchKnows(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	b.caps.SearchLag, b.caps.FirstQuery = time.Minute, 10*time.Second
	b.caps.Poll = []time.Duration{15 * time.Second}
	key := w.accepted(orderID, 10, 4)
	b.submit = func(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
		b.send(refund)
		return lost(ctx, refund)
	}
	b.query = func(context.Context, channel.Refund) (channel.Evidence, error) {
		return channel.Evidence{Outcome: channel.OutcomeNotFound}, nil
	}
	_, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	waited := 10 * time.Second
	for range 3 { // 10 s, 25 s, 40 s after sending
		w.age(key, waited)
		waited = 15 * time.Second
		_, err = follow(w, r, key, contract.RefundUnknown)
		requireNotDue(t, err, 15*time.Second)
	}
	assert.Equal(t, [2]int{1, 3}, b.calls(), "it is not sent again")
	assert.Equal(t, moneyOf{"unknown", []string{"payout -4"}, [4]int64{10, 0, 4, 0}, 1_000_000 - 4}, w.moneyOf(key))
	b.query = nil
	w.age(key, waited)
	answer, err := follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundPending, answer.Row.State)
	assert.Equal(t, 1, b.moved[key.RefundID])
	w.assertRefundsSound()
}

// The channel was asked, and acknowledged before its answer to that was applied: a webhook does so, or another attempt.
func TestC40_NotFoundOfBeforeTheAcknowledgementIsNoContradiction(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundUnknown)
	w.age(key, time.Minute)
	b.query = func(context.Context, channel.Refund) (channel.Evidence, error) {
		require.Equal(t, activities.Applied, w.apply(r, key, activities.SourceNotice, w.says(key, channel.OutcomePending)).Verdict)
		return channel.Evidence{Outcome: channel.OutcomeNotFound}, nil
	}
	answer, err := follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundPending, answer.Row.State)
	assert.Empty(t, w.issues(tenant, key.RefundID))
	w.assertRefundsSound()
}

func TestC40_NotFoundBeforeTheSearchKnowsIsNoContradictionEither(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	b.caps.SearchLag, b.caps.FirstQuery = time.Minute, 10*time.Second
	b.query = func(context.Context, channel.Refund) (channel.Evidence, error) {
		return channel.Evidence{Outcome: channel.OutcomeNotFound}, nil
	}
	key := w.accepted(orderID, 10, 4)
	_, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	w.age(key, 10*time.Second)
	_, err = follow(w, r, key, contract.RefundPending)
	requireNotDue(t, err, 2*time.Minute)
	assert.Empty(t, w.issues(tenant, key.RefundID), "10 s after sending, of a channel whose search lags by a minute")
	assert.False(t, w.refund(key).NeedsReview)
	w.age(key, 2*time.Minute)
	answer, err := follow(w, r, key, contract.RefundPending)
	require.NoError(t, err, "its run is told, though the state is as it was")
	assert.True(t, answer.Row.NeedsReview)
	assert.Equal(t, 1, answer.Row.OpenIssues)
	assert.Equal(t, []string{"reference_lost"}, w.issues(tenant, key.RefundID), "after that it is one")
	_, err = follow(w, r, key, contract.RefundPending)
	requireNotDue(t, err, 5*time.Minute)
}

// C10: what a channel does not know, and would know by now, is sent again under the same number.
func TestC10_WhatNeverArrivedIsSentAgainUnderItsNumber(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	b.submit = lost
	_, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	w.age(key, time.Minute)
	b.submit = func(_ context.Context, refund channel.Refund) (channel.Evidence, error) {
		assert.EqualValues(t, 2, w.refund(key).SendCount, "committed before it is sent again")
		return b.send(refund), nil
	}
	answer, err := follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundPending, answer.Row.State)
	assert.Equal(t, 2, answer.Row.Sends)
	assert.Equal(t, b.submitted[0], b.submitted[1], "the same number, amount and payment")
	assert.Equal(t, []string{
		"accept >accepted accepted", "send accepted>unknown sending", "create unknown>unknown unknown",
		"query unknown>unknown not_found", "send unknown>unknown sending", "create unknown>pending pending",
	}, w.events(key))
	assert.Equal(t, 1, b.moved[key.RefundID])
	w.assertRefundsSound()
}

func TestANumberIsNotSentAgainOnceTheChannelHonoursItNoMore(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	b.submit = lost
	_, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	// 23:55 h after it was first sent, of 24 h: too near to the end to be sent.
	w.age(key, 23*time.Hour+55*time.Minute)
	_, err = follow(w, r, key, contract.RefundUnknown)
	requireNotDue(t, err, 2*time.Minute)
	for range 3 {
		w.age(key, 12*time.Hour)
		_, err = follow(w, r, key, contract.RefundUnknown)
		require.Error(t, err)
	}
	assert.Equal(t, [2]int{1, 4}, b.calls(), "only look-ups go on")
	assert.Equal(t, moneyOf{"unknown", []string{"payout -4"}, [4]int64{10, 0, 4, 0}, 1_000_000 - 4}, w.moneyOf(key))
	w.assertRefundsSound()
}

// A person asked in time to send it again, and the worker came too late to do it: looking goes on.
func TestAResendThatComesTooLateIsNotSentAndLookingGoesOn(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundUnknown)
	w.age(key, 23*time.Hour)
	answer, err := r.ResolveRefund(t.Context(), activities.ResolveRefundRequest{
		RefundKey: key, Resolution: decide("d-1", key, contract.ActionResend),
	})
	require.NoError(t, err)
	require.Equal(t, activities.Applied, answer.Verdict)
	w.age(key, 2*time.Hour)
	_, err = follow(w, r, key, contract.RefundUnknown)
	requireNotDue(t, err, 2*time.Minute)
	assert.Equal(t, [2]int{0, 1}, b.calls(), "it is looked up instead")
	w.assertRefundsSound()
}

// C11: a channel that honours no number and cannot be asked is never sent anything twice; a person decides.
func TestC11_WithoutANumberThatIsHonouredNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	b.caps.IdempotencyLife, b.caps.QueryByNumber = 0, false
	key := w.accepted(orderID, 10, 4)
	b.submit = func(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
		b.send(refund)
		return lost(ctx, refund)
	}
	_, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	for range 5 {
		w.age(key, 12*time.Hour)
		_, err = follow(w, r, key, contract.RefundUnknown)
		require.Error(t, err)
	}
	w.age(key, 24*time.Hour)
	answer, err := follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	assert.True(t, answer.GaveUp)
	assert.Equal(t, [2]int{1, 0}, b.calls())
	assert.Equal(t, 1, b.moved[key.RefundID])
	assert.Equal(t, "no_look_up", answer.Row.LastCode, "it says why nothing is known")
	assert.True(t, answer.Row.NeedsReview, "its run is told that a person is asked")
	assert.True(t, w.refund(key).NeedsReview)
	assert.Equal(t, moneyOf{"unknown", []string{"payout -4"}, [4]int64{10, 0, 4, 0}, 1_000_000 - 4}, w.moneyOf(key))

	// The channel's own report settles it, however late, and no person is asked any more.
	b.noticeOf(w.says(key, channel.OutcomeSucceeded))
	assert.Equal(t, activities.AppliedEvidence{Verdict: activities.Applied, State: contract.RefundSucceeded}, w.take(r).Applied)
	assert.Equal(t, moneyOf{"succeeded", []string{"payout -4"}, [4]int64{0, 10, 0, 4}, 1_000_000 - 4}, w.moneyOf(key))
	assert.False(t, w.refund(key).NeedsReview)
	assert.Equal(t, [2]int{1, 0}, b.calls())
	w.assertRefundsSound()
}

func TestAChannelThatCannotBeAskedByNumberIsAskedBySendingItAgain(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	b.caps.QueryByNumber = false
	key := w.accepted(orderID, 10, 4)
	b.submit = func(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
		b.send(refund)
		return lost(ctx, refund)
	}
	_, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	w.age(key, time.Minute)
	b.submit = nil
	answer, err := follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundPending, answer.Row.State)
	assert.Equal(t, [2]int{2, 0}, b.calls())
	w.age(key, time.Minute)
	_, err = follow(w, r, key, contract.RefundPending)
	requireNotDue(t, err, 5*time.Minute)
	assert.Equal(t, [2]int{2, 1}, b.calls(), "by its reference it can be asked")
	assert.Equal(t, 1, b.moved[key.RefundID])
	w.assertRefundsSound()
}

// C38: the end of the schedule is not an outcome. A person is asked, and nothing is settled or released.
func TestC38_WhenTheTimeForLookingIsOverAPersonDecides(t *testing.T) {
	t.Parallel()
	for _, state := range []contract.RefundState{contract.RefundUnknown, contract.RefundPending} {
		w, b, r, orderID := newRefundWorld(t, 4)
		b.caps.IdempotencyLife = time.Minute
		key := w.inState(r, orderID, state)
		before := w.moneyOf(key)
		b.query = func(context.Context, channel.Refund) (channel.Evidence, error) {
			return channel.Evidence{Outcome: channel.OutcomeUnknown, Code: "http_503"}, nil
		}
		w.age(key, 71*time.Hour+59*time.Minute)
		_, err := follow(w, r, key, state)
		requireNotDue(t, err, time.Minute) // and not after the pause of two minutes
		w.age(key, time.Minute)
		answer, err := follow(w, r, key, state)
		require.NoError(t, err)
		assert.True(t, answer.GaveUp)
		assert.True(t, answer.Row.NeedsReview)
		assert.Equal(t, state, answer.Row.State)
		assert.True(t, w.refund(key).NeedsReview)
		assert.Equal(t, before, w.moneyOf(key))
		assert.Equal(t, [2]int{0, 2}, b.calls(), "with a last look")
		again, err := follow(w, r, key, state)
		require.NoError(t, err)
		assert.True(t, again.GaveUp)

		// What is learned later takes effect all the same, and no person is asked any more.
		assert.Equal(t, activities.Applied, w.apply(r, key, activities.SourceNotice, w.says(key, channel.OutcomeSucceeded)).Verdict)
		assert.False(t, w.refund(key).NeedsReview)
		w.assertRefundsSound()
	}
}

// C20: an adapter that answers nothing, or an error of its own, has told nothing. C8: whatever a gateway in between says.
func TestC20_AnAdapterThatAnswersNothingLeavesTheRefundUnknown(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	for _, test := range []struct {
		name, code string
		evidence   channel.Evidence
		err        error
	}{
		{"nothing and no error", "no_outcome_", channel.Evidence{}, nil},
		{"nothing and an error", "adapter_error", channel.Evidence{}, errors.New("connection reset")},
		{"a success and an error", "adapter_error", channel.Evidence{Outcome: channel.OutcomeSucceeded}, errors.New("broken pipe")},
		{"a failure and an error", "adapter_error", channel.Evidence{Outcome: channel.OutcomeFailed}, context.DeadlineExceeded},
		{"a word of its own", "no_outcome_200", channel.Evidence{Outcome: "processing", Code: "200"}, nil},
		{"a success without its parts", "", channel.Evidence{Outcome: channel.OutcomeSucceeded}, nil},
	} {
		key := w.accepted(orderID, 10, 4)
		before := w.moneyOf(key)
		b.submit = func(context.Context, channel.Refund) (channel.Evidence, error) { return test.evidence, test.err }
		b.query = b.submit
		answer, err := follow(w, r, key, contract.RefundAccepted)
		require.NoError(t, err, test.name)
		w.age(key, time.Minute)
		_, err = follow(w, r, key, contract.RefundUnknown)
		requireNotDue(t, err, 2*time.Minute)
		before.state = "unknown"
		assert.Equal(t, before, w.moneyOf(key), test.name)
		assert.Equal(t, test.code, answer.Row.LastCode, test.name)
	}
	w.assertRefundsSound()
}

func TestARefundThatCannotBeAskedForFails(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	b.submit = func(context.Context, channel.Refund) (channel.Evidence, error) {
		return channel.Evidence{}, &channel.Unusable{Field: "currency", Rule: "is not one that the bank takes"}
	}
	answer, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundFailed, answer.Row.State)
	assert.Equal(t, "unusable_currency", answer.Row.LastCode)
	assert.Equal(t, []string{"payout -4", "payout_return 4"}, w.payouts(key))
	w.assertRefundsSound()
}

// What could not be asked was not answered: after a first attempt that may have arrived it says nothing about that one.
func TestWhatCannotBeAskedAnyMoreReleasesNothing(t *testing.T) {
	t.Parallel()
	unusable := func(context.Context, channel.Refund) (channel.Evidence, error) {
		return channel.Evidence{}, &channel.Unusable{Field: "currency", Rule: "is not one that the bank takes"}
	}
	t.Run("look-up", func(t *testing.T) {
		t.Parallel()
		w, b, r, orderID := newRefundWorld(t, 4)
		key := w.inState(r, orderID, contract.RefundPending)
		before := w.moneyOf(key)
		b.query = unusable
		w.age(key, time.Minute)
		_, _ = follow(w, r, key, contract.RefundPending)
		assert.Equal(t, before, w.moneyOf(key))
	})
	t.Run("sent again", func(t *testing.T) {
		t.Parallel()
		w, b, r, orderID := newRefundWorld(t, 4)
		key := w.accepted(orderID, 10, 4)
		b.submit = lost
		_, err := follow(w, r, key, contract.RefundAccepted)
		require.NoError(t, err)
		before := w.moneyOf(key)
		b.submit = unusable
		w.age(key, time.Minute)
		_, _ = follow(w, r, key, contract.RefundUnknown)
		assert.Equal(t, before, w.moneyOf(key))
	})
}

func TestAChannelThatIsNotConfiguredIsWaitedForWithAttention(t *testing.T) {
	t.Parallel()
	w, b, _, orderID := newRefundWorld(t, 4)
	for name, set := range map[string]channel.Set{
		"none":               channel.NewSet(nil),
		"another tenant's":   channel.NewSet(map[string]channel.Member{bankName: {Channel: b, Tenants: []string{"globex"}}}),
		"under another name": channel.NewSet(map[string]channel.Member{"Bank": {Channel: b}}),
	} {
		r := activities.NewRefunds(w.store, set)
		for _, state := range []contract.RefundState{contract.RefundAccepted, contract.RefundUnknown, contract.RefundPending} {
			key := w.inState(w.through(b), orderID, state)
			before := w.moneyOf(key)
			answer, err := follow(w, r, key, state)
			require.NoError(t, err, "the first time its run is told, which shows it")
			assert.Equal(t, state, answer.Row.State)
			assert.True(t, answer.Row.NeedsReview)
			assert.False(t, answer.GaveUp)
			_, err = follow(w, r, key, state)
			requireErrorType(t, err, activities.ErrorChannelMissing, true)
			failure, _ := errors.AsType[*temporal.ApplicationError](err)
			assert.Equal(t, 30*time.Second, failure.NextRetryDelay())
			assert.Contains(t, failure.Error(), `channel "bank"`)
			assert.True(t, w.refund(key).NeedsReview, name)
			assert.Equal(t, before, w.moneyOf(key), name)
		}
		key := w.inState(w.through(b), orderID, contract.RefundSucceeded)
		_, err := follow(w, r, key, contract.RefundPending)
		require.NoError(t, err, "a final refund needs no channel")
	}
	assert.Equal(t, [2]int{}, b.calls())
	w.assertRefundsSound()
}

// A fault of the program or the schema is shown to a person and waited out: once it is mended, the refund goes on by itself.
func TestAFaultIsWaitedOutWithAttention(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	_, err := w.admin.Exec(t.Context(), "ALTER TABLE reclaim.refund_events ADD CONSTRAINT broken CHECK (source <> 'send')")
	require.NoError(t, err)
	answer, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err, "the first time its run is told, which shows it")
	assert.True(t, answer.Row.NeedsReview)
	_, err = follow(w, r, key, contract.RefundAccepted)
	requireErrorType(t, err, string(schema.ErrorBroken), true)
	assert.ErrorContains(t, err, "broken")
	assert.Equal(t, [2]int{}, b.calls(), "nothing is sent before it is committed that it will be")

	_, err = w.admin.Exec(t.Context(), "ALTER TABLE reclaim.refund_events DROP CONSTRAINT broken")
	require.NoError(t, err)
	answer, err = follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
	assert.NotEqual(t, contract.RefundAccepted, answer.Row.State)
	w.assertRefundsSound()
}

func TestACanceledAttemptLeavesTheRefundUnknown(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	ctx, cancel := context.WithCancel(t.Context())
	b.submit = func(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
		b.send(refund)
		cancel()
		<-ctx.Done()
		return channel.Evidence{}, ctx.Err()
	}
	_, err := r.FollowRefund(ctx, activities.FollowRequest{RefundKey: key, Known: contract.RefundAccepted})
	requireErrorType(t, err, string(schema.ErrorUnavailable), true)
	assert.Equal(t, "unknown", w.refund(key).State)
	w.age(key, time.Minute)
	answer, err := follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundPending, answer.Row.State)
	assert.Equal(t, [2]int{1, 1}, b.calls())
	w.assertRefundsSound()
}

func TestACallOfTheChannelHasADeadline(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	b.submit = func(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
		deadline, ok := ctx.Deadline()
		assert.True(t, ok)
		assert.LessOrEqual(t, time.Until(deadline), 30*time.Second)
		return b.send(refund), nil
	}
	_, err := follow(w, r, key, contract.RefundAccepted)
	require.NoError(t, err)
}

func TestFollowingNoRefundIsAnError(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.accepted(orderID, 10, 4)
	for _, key := range []contract.RefundKey{{Tenant: tenant, RefundID: "rf_none"}, {Tenant: "globex", RefundID: key.RefundID}} {
		_, err := r.FollowRefund(t.Context(), activities.FollowRequest{RefundKey: key, Known: contract.RefundAccepted})
		requireErrorType(t, err, activities.ErrorNoRefund, false)
		_, err = r.ReadRefund(t.Context(), key)
		requireErrorType(t, err, activities.ErrorNoRefund, false)
	}
	assert.Equal(t, [2]int{}, b.calls())
}

// The money moves once, however many attempts run at once: a second run of the workflow, a worker that was thought dead.
func TestManyAttemptsAtOnceSendOneNumberAndMoveMoneyOnce(t *testing.T) {
	t.Parallel()
	for name, life := range map[string]time.Duration{"a number that is honoured": 24 * time.Hour, "none": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b, r, orderID := newRefundWorld(t, 8)
			b.caps.IdempotencyLife = life
			key := w.accepted(orderID, 10, 4)
			release := w.holdRefund(key)
			var group sync.WaitGroup
			var went counted
			for range 8 {
				group.Go(func() {
					answer, err := r.FollowRefund(t.Context(), activities.FollowRequest{RefundKey: key, Known: contract.RefundAccepted})
					if assert.NoError(t, err) {
						went.add(string(answer.Row.State), 1)
					}
				})
			}
			w.waitBlocked(8)
			release()
			group.Wait()
			assert.Equal(t, 1, b.moved[key.RefundID])
			if life == 0 {
				assert.Len(t, b.submitted, 1)
			}
			assert.Equal(t, moneyOf{"pending", []string{"payout -4"}, [4]int64{10, 0, 4, 0}, 1_000_000 - 4}, w.moneyOf(key))
			assert.Empty(t, w.issues(tenant, key.RefundID))
			w.assertRefundsSound()
		})
	}
}

// Each commit's reply is lost in turn. Whatever the attempt that noticed did, the next one goes on from the row.
func TestFollowingSurvivesLostReplies(t *testing.T) {
	t.Parallel()
	for _, statementName := range []string{"GetRefund", "BeginSend", "ApplyEvidence", "FlagRefund"} {
		t.Run(statementName, func(t *testing.T) {
			t.Parallel()
			w, b, _, orderID := newRefundWorld(t, 4)
			proxy, r := w.refundsBehind(b, 4)
			key := w.accepted(orderID, 10, 4)
			proxy.LoseReply(statement(statementName), 3)
			state := contract.RefundAccepted
			for range 40 {
				answer, _, err := untilWritten(func() (activities.FollowAnswer, error) {
					return r.FollowRefund(t.Context(), activities.FollowRequest{RefundKey: key, Known: state})
				})
				if err == nil {
					state = answer.Row.State
				} else {
					requireErrorType(t, err, activities.ErrorNotDue, true)
				}
				if answer.GaveUp {
					break
				}
				w.age(key, 6*time.Hour)
			}
			assert.Equal(t, 3, proxy.Lost())
			assert.Equal(t, contract.RefundPending, state)
			assert.True(t, w.refund(key).NeedsReview, "the bank never got on with it")
			assert.Equal(t, 1, b.moved[key.RefundID])
			assert.Equal(t, moneyOf{"pending", []string{"payout -4"}, [4]int64{10, 0, 4, 0}, 1_000_000 - 4}, w.moneyOf(key))
			w.assertRefundsSound()
		})
	}
}

// Two attempts may have the refund in hand at once, when the first is taken for dead.
func TestARefusalIsNotBelievedWhereTheNumberWasSentMeanwhile(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	refused := channel.Evidence{Outcome: channel.OutcomeFailed, Code: "charge_disputed", Sends: 1}
	for name, again := range map[string]bool{"sent once": false, "sent again meanwhile": true} {
		key := w.accepted(orderID, 10, 4)
		before := w.moneyOf(key)
		b.submit = func(context.Context, channel.Refund) (channel.Evidence, error) {
			if again {
				w.beginSend(key)
			}
			return refused, nil
		}
		answer, err := follow(w, r, key, contract.RefundAccepted)
		require.NoError(t, err, name)
		if !again {
			assert.Equal(t, contract.RefundFailed, answer.Row.State, name)
			continue
		}
		assert.Equal(t, contract.RefundUnknown, answer.Row.State, name)
		assert.Equal(t, "refused_when_sent_again: charge_disputed", answer.Row.LastCode, name)
		before.state = "unknown"
		assert.Equal(t, before, w.moneyOf(key), name)
	}
	w.assertRefundsSound()
}
