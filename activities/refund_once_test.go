package activities_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// refundGuard is a guard of a refund, on a state in which it takes effect.
type refundGuard struct {
	name, statement string
	from, to        contract.RefundState
	// again is what it answers the second time.
	again string
	call  func(ctx context.Context, store *schema.Store, key contract.RefundKey, e channel.Evidence) (string, error)
}

func evidenceGuard(source activities.Source, outcome channel.Outcome, from, to contract.RefundState) refundGuard {
	return refundGuard{
		fmt.Sprint(source, " says ", outcome, " of one that is ", from), "ApplyEvidence", from, to, "already",
		func(ctx context.Context, store *schema.Store, key contract.RefundKey, e channel.Evidence) (string, error) {
			e.Outcome, e.Code = outcome, string(outcome)
			applied, err := activities.NewRefunds(store, nil).ApplyEvidence(ctx, key, activities.Observation{
				Source: source, Evidence: e, Reversible: true,
			})
			return string(applied.Verdict), err
		},
	}
}

func sendGuard(from contract.RefundState, within int64, again string) refundGuard {
	return refundGuard{
		fmt.Sprint("send, within ", within), "BeginSend", from, contract.RefundUnknown, again,
		func(ctx context.Context, store *schema.Store, key contract.RefundKey, _ channel.Evidence) (string, error) {
			params := sendParams(key)
			params.ResendWithinUs = within
			answer, err := store.BeginSend(ctx, params)
			return answer, schema.Classify("send", err)
		},
	}
}

var refundGuards = []refundGuard{
	evidenceGuard(activities.SourceNotice, channel.OutcomePending, contract.RefundUnknown, contract.RefundPending),
	evidenceGuard(activities.SourceQuery, channel.OutcomePending, contract.RefundUnknown, contract.RefundPending),
	evidenceGuard(activities.SourceNotice, channel.OutcomeSucceeded, contract.RefundUnknown, contract.RefundSucceeded),
	evidenceGuard(activities.SourceQuery, channel.OutcomeSucceeded, contract.RefundPending, contract.RefundSucceeded),
	evidenceGuard(activities.SourceCreate, channel.OutcomeFailed, contract.RefundUnknown, contract.RefundFailed),
	evidenceGuard(activities.SourceSettlement, channel.OutcomeFailed, contract.RefundPending, contract.RefundFailed),
	evidenceGuard(activities.SourceQuery, channel.OutcomeFailed, contract.RefundSucceeded, contract.RefundReversed),
	evidenceGuard(activities.SourceNotice, channel.OutcomeFailed, contract.RefundSucceeded, contract.RefundReversed),
	sendGuard(contract.RefundAccepted, 0, "number_expired"),
	{"cancel", "CancelRefund", contract.RefundAccepted, contract.RefundCanceled, "already",
		func(ctx context.Context, store *schema.Store, key contract.RefundKey, _ channel.Evidence) (string, error) {
			row, err := store.CancelRefund(ctx, db.CancelRefundParams{TenantID: key.Tenant, RefundID: key.RefundID, Actor: "ann", Reason: "withdrawn"})
			return row.Answer, schema.Classify("cancel", err)
		}},
}

func TestEachGuardOfARefundTwice(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	for _, guard := range refundGuards {
		key := w.inState(r, orderID, guard.from)
		evidence := w.says(key, "")
		answer, err := guard.call(t.Context(), w.store, key, evidence)
		require.NoError(t, err, guard.name)
		assert.Equal(t, "applied", answer, guard.name)
		after := w.moneyOf(key)
		assert.Equal(t, string(guard.to), after.state, guard.name)
		events := w.events(key)
		answer, err = guard.call(t.Context(), w.store, key, evidence)
		require.NoError(t, err, guard.name)
		assert.Equal(t, guard.again, answer, guard.name)
		assert.Equal(t, after, w.moneyOf(key), guard.name)
		assert.Equal(t, events, w.events(key), guard.name)
	}
	w.assertRefundsSound()
}

func TestEachGuardOfARefundSixteenTimesAtOnceBehindTheRowsLock(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, callers)
	for _, guard := range refundGuards {
		key := w.inState(r, orderID, guard.from)
		evidence, events := w.says(key, ""), len(w.events(key))
		release := w.holdRefund(key)
		var group sync.WaitGroup
		var answers counted
		for range callers {
			group.Go(func() {
				answer, err := guard.call(t.Context(), w.store, key, evidence)
				if assert.NoError(t, err, guard.name) {
					answers.add(answer, 1)
				}
			})
		}
		w.waitBlocked(callers)
		release()
		group.Wait()
		assert.Equal(t, map[string]int{"applied": 1, guard.again: callers - 1}, answers.by, guard.name)
		assert.Equal(t, string(guard.to), w.refund(key).State, guard.name)
		assert.Len(t, w.events(key), events+1, guard.name)
	}
	w.assertRefundsSound()
}

func TestAGuardOfARefundWhoseReplyIsLostIsFoundAgain(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	proxy, _ := w.refundsBehind(nil, 4)
	store := openStore(t, proxy.URL(w.database.AppURL), 4)
	for _, guard := range refundGuards {
		key := w.inState(r, orderID, guard.from)
		evidence, lost := w.says(key, ""), proxy.Lost()
		proxy.LoseReply(statement(guard.statement), 1)
		_, err := guard.call(t.Context(), store, key, evidence)
		require.Error(t, err, guard.name)
		require.Equal(t, lost+1, proxy.Lost())
		after, events := w.moneyOf(key), w.events(key)
		assert.Equal(t, string(guard.to), after.state, "%s took effect", guard.name)
		answer, err := guard.call(t.Context(), store, key, evidence)
		require.NoError(t, err, guard.name)
		assert.Equal(t, guard.again, answer, guard.name)
		assert.Equal(t, after, w.moneyOf(key), guard.name)
		assert.Equal(t, events, w.events(key), guard.name)
	}
	w.assertRefundsSound()
}

// Every pair of guards, one right behind the other: the second judges what the first left, though its snapshot is older.
func TestTwoGuardsOfARefundRightBehindEachOther(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 8)
	guards := []refundGuard{sendGuard(contract.RefundAccepted, 1<<40, "applied")}
	for _, guard := range refundGuards {
		// One of each kind: those that count look-ups write also where they tell nothing.
		if strings.HasPrefix(guard.name, "query") || strings.HasPrefix(guard.name, "create") || guard.name == "cancel" {
			guards = append(guards, guard)
		}
	}
	states := []contract.RefundState{contract.RefundAccepted, contract.RefundUnknown, contract.RefundPending, contract.RefundSucceeded}
	for _, from := range states {
		for _, one := range guards {
			for _, other := range guards {
				key := w.inState(r, orderID, from)
				evidence := w.says(key, "")
				release := w.holdRefund(key)
				var group sync.WaitGroup
				for i, guard := range []refundGuard{one, other} {
					group.Go(func() {
						_, err := guard.call(t.Context(), w.store, key, evidence)
						assert.NoError(t, err, "%s: %s, then %s", from, one.name, other.name)
					})
					w.waitBlocked(i + 1)
				}
				release()
				group.Wait()
			}
		}
	}
	w.assertRefundsSound()
}

// Acceptance asks for the order first and then for the account; so does whatever gives credits back.
func TestAcceptingAndReleasingOnOneOrderAtOnceNeverDeadlocks(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, callers)
	keys := w.sentMany(orderID, 400, 4)
	waiting := w.write(written{tenant: tenant, orders: []string{orderID}, many: 400, accepted: 1})
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for n := i; n < 400; n += callers {
				var err error
				switch n % 3 {
				case 0:
					_, err = w.acceptAndSend(orderID, 4)
				case 1:
					err = w.tell(r, keys[n], orderID, message{activities.SourceNotice, channel.OutcomeFailed, ""})
				default:
					_, err = w.store.CancelRefund(t.Context(), db.CancelRefundParams{TenantID: tenant, RefundID: waiting[n].RefundID, Reason: "withdrawn"})
				}
				assert.NoError(t, err)
			}
		})
	}
	group.Wait()
	w.assertRefundsSound()
}

// C10: the first request's answer was lost, and the user asks again under the same key.
func TestC10_AcceptingUnderOneKeyTwiceAtOnceAndAfterALostReplyIsOneRefund(t *testing.T) {
	t.Parallel()
	w, _, _, orderID := newRefundWorld(t, callers)
	request := w.ask(orderID, 10, 4)
	release := w.holdLock("SELECT FROM reclaim.orders WHERE order_id = $1 FOR UPDATE", orderID)
	var group sync.WaitGroup
	var answers counted
	for range callers {
		group.Go(func() {
			row, err := w.accept(request)
			if assert.NoError(t, err) {
				answers.add(row.Answer, 1)
			}
		})
	}
	w.waitBlocked(callers)
	release()
	group.Wait()
	assert.Equal(t, map[string]int{"applied": 1, "already": callers - 1}, answers.by)
	assert.Equal(t, [4]int64{10, 0, 4, 0}, w.reserves(orderID))
	other := request
	other.Amount++
	row, err := w.accept(other)
	require.NoError(t, err)
	assert.Equal(t, "conflict", row.Answer)
	w.assertRefundsSound()
}

// C1: two refunds of 60 of a payment of 100. C2: whatever the amount, the order's capacity is judged and never overflows.
func TestC1_C2_NoMoreIsReservedThanThereIs(t *testing.T) {
	t.Parallel()
	w, _, _, _ := newRefundWorld(t, 8)
	orderID := w.order(account, 100, 100)
	release := w.holdLock("SELECT FROM reclaim.orders WHERE order_id = $1 FOR UPDATE", orderID)
	var group sync.WaitGroup
	var answers counted
	for range 2 {
		request := w.ask(orderID, 60, 60)
		group.Go(func() {
			row, err := w.accept(request)
			if assert.NoError(t, err) {
				answers.add(row.Answer, 1)
			}
		})
	}
	w.waitBlocked(2)
	release()
	group.Wait()
	assert.Equal(t, map[string]int{"applied": 1, "capacity": 1}, answers.by)
	assert.Equal(t, [4]int64{60, 0, 60, 0}, w.reserves(orderID))
	small := w.order(account, 1, contract.MaxCost/2)
	for _, order := range []string{orderID, small} {
		for _, amount := range []int64{-1, 0, 1<<63 - 1, contract.MaxCost, 1 << 62} {
			for _, credits := range []*int64{nil, new(int64), &amount} {
				request := w.ask(order, amount, 0)
				request.Credits = credits
				row, err := w.accept(request)
				if assert.NoError(t, err, "%d on %s", amount, order) {
					assert.Contains(t, []string{"capacity", "credits_capacity", "nothing_left"}, row.Answer, "%d on %s", amount, order)
				}
			}
		}
	}
	// A job's refund names its credits alone.
	for _, credits := range []int64{-1, 1<<63 - 1, contract.MaxCost} {
		for _, order := range []string{orderID, small} {
			params := w.acceptParams(w.ask(order, 1, credits))
			params.Amount = nil
			var row db.AcceptRefundRow
			err := pgx.BeginFunc(t.Context(), w.store.Pool, func(tx pgx.Tx) (err error) {
				row, err = w.store.WithTx(tx).AcceptRefund(t.Context(), params)
				return err
			})
			if assert.NoError(t, err, "%d credits of %s", credits, order) {
				assert.Contains(t, []string{"capacity", "credits_capacity", "nothing_left"}, row.Answer)
			}
		}
	}
	assert.Equal(t, [4]int64{60, 0, 60, 0}, w.reserves(orderID))
	assert.Equal(t, [4]int64{}, w.reserves(small))
	w.assertRefundsSound()
}
