package activities_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// message is one thing that is observed of a refund or decided about it.
type message struct {
	source  activities.Source
	outcome channel.Outcome
	// code is the channel's word; empty: the outcome.
	code string
}

// oneSecond is when the channel says that it all happened. Its times are no finer, so nothing can be put in order by them.
var oneSecond = time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)

// evidence is what the message says: a settlement line has no number, a notice no payment, and what is not known nothing.
func (m message) evidence(key contract.RefundKey, orderID string) channel.Evidence {
	e := channel.Evidence{
		Outcome: m.outcome, Number: key.RefundID, Reference: reference(key.RefundID), Payment: payment(orderID), Amount: 10,
		Currency: "eur", Code: m.code,
	}
	if m.code == "" {
		e.Code = string(m.outcome)
	}
	if m.outcome == channel.OutcomeUnknown || m.outcome == channel.OutcomeNotFound {
		e = channel.Evidence{Outcome: e.Outcome, Code: e.Code}
	}
	e.ObservedAt = oneSecond
	switch m.source {
	case activities.SourceCreate:
		e.Sends = 1
	case activities.SourceNotice:
		e.Payment = ""
	case activities.SourceSettlement:
		e.Number = ""
	}
	return e
}

func (m message) String() string { return string(m.source) + " " + string(m.outcome) }

// tell hands a message on: evidence, or a person's settle or release.
func (w *world) tell(r *activities.Refunds, key contract.RefundKey, orderID string, m message) error {
	if m.source != activities.SourcePerson {
		_, err := r.ApplyEvidence(w.t.Context(), key, activities.Observation{
			Source: m.source, Evidence: m.evidence(key, orderID), Reversible: true,
		})
		return err
	}
	action := contract.ActionSettle
	if m.outcome == channel.OutcomeFailed {
		action = contract.ActionRelease
	}
	_, err := r.ResolveRefund(w.t.Context(), activities.ResolveRefundRequest{
		RefundKey: key, Resolution: decide("d-"+string(action), key, action), RecordRefusal: true,
	})
	return err
}

// ending is where a refund stands when all is said.
type ending struct {
	state   contract.RefundState
	payouts string
	issue   bool
}

// observed are sets of messages about one refund that one channel could really produce, with the ends of all their orders.
// Where a success was taken back there are two, by what was seen first; money is in the same place in both.
var observed = []struct {
	name     string
	credits  int64
	messages []message
	ends     []ending
}{
	{"C40: the answer is lost, and found later", 4, []message{
		{activities.SourceCreate, channel.OutcomeUnknown, "timeout"}, {activities.SourceQuery, channel.OutcomeNotFound, ""},
		{activities.SourceNotice, channel.OutcomePending, ""}, {activities.SourceQuery, channel.OutcomeSucceeded, ""},
		{activities.SourceSettlement, channel.OutcomeSucceeded, ""},
	}, []ending{{contract.RefundSucceeded, "payout -4", false}}},
	{"C23: it is taken on and fails", 4, []message{
		{activities.SourceCreate, channel.OutcomePending, ""}, {activities.SourceNotice, channel.OutcomePending, "created"},
		{activities.SourceNotice, channel.OutcomeFailed, "canceled"}, {activities.SourceQuery, channel.OutcomeFailed, ""},
		{activities.SourceSettlement, channel.OutcomeFailed, "refund_failure"},
	}, []ending{{contract.RefundFailed, "payout -4, payout_return 4", false}}},
	{"C17: it succeeds and is taken back", 4, []message{
		{activities.SourceCreate, channel.OutcomePending, ""}, {activities.SourceQuery, channel.OutcomeSucceeded, ""},
		{activities.SourceNotice, channel.OutcomeSucceeded, ""}, {activities.SourceSettlement, channel.OutcomeSucceeded, ""},
		{activities.SourceNotice, channel.OutcomeFailed, "reversed"},
	}, []ending{
		{contract.RefundReversed, "payout -4, payout_return 4", true}, {contract.RefundFailed, "payout -4, payout_return 4", true},
	}},
	{"C26: created, updated and failed at one instant", 4, []message{
		{activities.SourceNotice, channel.OutcomePending, "created"}, {activities.SourceNotice, channel.OutcomeSucceeded, "updated"},
		{activities.SourceNotice, channel.OutcomeFailed, "failed"},
	}, []ending{
		{contract.RefundReversed, "payout -4, payout_return 4", true}, {contract.RefundFailed, "payout -4, payout_return 4", true},
	}},
	{"C64: a person settles what the channel then confirms", 4, []message{
		{activities.SourceCreate, channel.OutcomeUnknown, "timeout"}, {activities.SourceQuery, channel.OutcomeUnknown, "http_500"},
		{activities.SourcePerson, channel.OutcomeSucceeded, ""}, {activities.SourceNotice, channel.OutcomeSucceeded, ""},
		{activities.SourceSettlement, channel.OutcomeSucceeded, ""},
	}, []ending{{contract.RefundSucceeded, "payout -4", false}}},
	{"a person releases what the channel then refuses", 4, []message{
		{activities.SourceCreate, channel.OutcomeUnknown, "timeout"}, {activities.SourceQuery, channel.OutcomeNotFound, ""},
		{activities.SourcePerson, channel.OutcomeFailed, ""}, {activities.SourceNotice, channel.OutcomeFailed, ""},
		{activities.SourceQuery, channel.OutcomeFailed, ""},
	}, []ending{{contract.RefundFailed, "payout -4, payout_return 4", false}}},
	{"a person settles what is then taken back", 4, []message{
		{activities.SourceCreate, channel.OutcomePending, ""}, {activities.SourcePerson, channel.OutcomeSucceeded, ""},
		{activities.SourceSettlement, channel.OutcomeSucceeded, ""}, {activities.SourceNotice, channel.OutcomeFailed, "reversed"},
		{activities.SourceQuery, channel.OutcomeFailed, ""},
	}, []ending{
		{contract.RefundReversed, "payout -4, payout_return 4", true}, {contract.RefundFailed, "payout -4, payout_return 4", true},
	}},
	{"C22: it stays pending", 4, []message{
		{activities.SourceCreate, channel.OutcomeUnknown, "http_502"}, {activities.SourceNotice, channel.OutcomePending, "created"},
		{activities.SourceQuery, channel.OutcomePending, "processing"}, {activities.SourceQuery, channel.OutcomeUnknown, "http_500"},
		{activities.SourceNotice, channel.OutcomePending, "updated"},
	}, []ending{{contract.RefundPending, "payout -4", false}}},
	{"goodwill succeeds and is taken back", 0, []message{
		{activities.SourceCreate, channel.OutcomePending, ""}, {activities.SourceQuery, channel.OutcomeSucceeded, ""},
		{activities.SourceSettlement, channel.OutcomeSucceeded, ""}, {activities.SourceNotice, channel.OutcomeFailed, "reversed"},
	}, []ending{{contract.RefundReversed, "", true}, {contract.RefundFailed, "", true}}},
}

// expect gives the end of the messages in this order: the first end, unless a failure is seen before any success.
func expect(ends []ending, order []message) ending {
	if len(ends) > 1 {
		for _, m := range order {
			if m.outcome == channel.OutcomeSucceeded {
				break
			}
			if m.outcome == channel.OutcomeFailed {
				return ends[1]
			}
		}
	}
	return ends[0]
}

// losesReference says whether a look-up finds nothing after the channel had given its reference: that is an issue of its
// own, whatever the end.
func losesReference(order []message) bool {
	known := false
	for _, m := range order {
		switch m.outcome {
		case channel.OutcomePending, channel.OutcomeSucceeded:
			known = true
		case channel.OutcomeFailed:
			return false
		case channel.OutcomeNotFound:
			if known {
				return true
			}
		}
	}
	return false
}

// endings reads where the refunds stand, and the kinds of issues about each other than reference_lost.
func (w *world) endings(keys []contract.RefundKey) (ends []ending, lost []bool) {
	w.t.Helper()
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = key.RefundID
	}
	rows := w.lines(`
		SELECT concat_ws('|', state, coalesce(moved, ''), about.opened, about.lost, needs_review = (about.opened OR about.lost))
		FROM unnest($1::text[]) WITH ORDINALITY AS asked (refund_id, place)
		JOIN reclaim.refunds USING (refund_id)
		LEFT JOIN (SELECT refund_id, string_agg(type || ' ' || amount, ', ' ORDER BY seq) AS moved
			FROM reclaim.ledger_entries WHERE refund_id = ANY ($1::text[]) GROUP BY refund_id) AS ledger USING (refund_id),
		LATERAL (SELECT coalesce(bool_or(kind <> 'reference_lost'), false) AS opened,
				coalesce(bool_or(kind = 'reference_lost'), false) AS lost
			FROM reclaim.issues WHERE subject_id = refund_id AND state = 'open') AS about
		ORDER BY place`, ids)
	require.Len(w.t, rows, len(keys))
	for _, row := range rows {
		part := strings.Split(row, "|")
		ends = append(ends, ending{contract.RefundState(part[0]), part[1], part[2] == "t"})
		lost = append(lost, part[3] == "t")
		if part[4] != "t" {
			w.t.Errorf("%s: a person is asked if and only if an issue is open", row)
		}
	}
	return ends, lost
}

// permutations gives every order of n things.
func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, shorter := range permutations(n - 1) {
		for place := range n {
			all = append(all, slices.Insert(slices.Clone(shorter), place, n-1))
		}
	}
	return all
}

// repetitions are ways of hearing the same messages: each once, each twice in a row, and all once more.
var repetitions = []func([]message) []message{
	func(order []message) []message { return order },
	func(order []message) (twice []message) {
		for _, m := range order {
			twice = append(twice, m, m)
		}
		return twice
	},
	func(order []message) []message { return slices.Concat(order, order) },
}

func TestC26_EveryOrderAndRepetitionOfWhatIsObservedComesToTheSameEnd(t *testing.T) {
	t.Parallel()
	for _, set := range observed {
		t.Run(set.name, func(t *testing.T) {
			t.Parallel()
			w, _, r, orderID := newRefundWorld(t, 4)
			orders := permutations(len(set.messages))
			if testing.Short() {
				rand.Shuffle(len(orders), func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
				orders = orders[:min(len(orders), 10)]
			}
			var told [][]message
			for i, order := range orders {
				var messages []message
				for _, place := range order {
					messages = append(messages, set.messages[place])
				}
				for way, repeat := range repetitions {
					// Of many orders, each is repeated one way or the other.
					if len(orders) < 100 || way == 0 || way == 1+i%2 {
						told = append(told, repeat(messages))
					}
				}
			}
			keys := w.sentMany(orderID, len(told), set.credits)
			for i, messages := range told {
				for _, m := range messages {
					require.NoError(t, w.tell(r, keys[i], orderID, m), "%s in %v", m, messages)
				}
			}
			ends, lost := w.endings(keys)
			for i, messages := range told {
				assert.Equal(t, expect(set.ends, messages), ends[i], "%v", messages)
				assert.Equal(t, losesReference(messages), lost[i], "%v: a reference that is lost", messages)
			}
			w.assertSameMoney(orderID, set.ends[0].state, set.credits, len(told))
			w.assertRefundsSound()
		})
	}
}

// assertSameMoney checks that all the refunds of an order left its money, and the account's, in the same place.
func (w *world) assertSameMoney(orderID string, state contract.RefundState, credits int64, refunds int) {
	w.t.Helper()
	money, points := int64(10*refunds), credits*int64(refunds)
	switch state {
	case contract.RefundPending:
		assert.Equal(w.t, [4]int64{money, 0, points, 0}, w.reserves(orderID))
	case contract.RefundSucceeded:
		assert.Equal(w.t, [4]int64{0, money, 0, points}, w.reserves(orderID))
	default:
		assert.Equal(w.t, [4]int64{}, w.reserves(orderID))
		points = 0
	}
	assert.Equal(w.t, 1_000_000-points, w.balance(tenant, account))
}

func TestC29_WhatIsObservedAtOnceComesToTheSameEnd(t *testing.T) {
	t.Parallel()
	for _, set := range observed {
		t.Run(set.name, func(t *testing.T) {
			t.Parallel()
			w, _, r, orderID := newRefundWorld(t, 12)
			refunds := 5
			if testing.Short() {
				refunds = 2
			}
			keys := w.sentMany(orderID, refunds, set.credits)
			for _, key := range keys {
				release := w.holdRefund(key)
				var group sync.WaitGroup
				for range 2 {
					for _, m := range set.messages {
						group.Go(func() { assert.NoError(t, w.tell(r, key, orderID, m), m) })
					}
				}
				w.waitBlocked(2 * len(set.messages))
				release()
				group.Wait()
			}
			ends, _ := w.endings(keys)
			for i, end := range ends {
				assert.Contains(t, set.ends, end, "%v", w.events(keys[i]))
			}
			w.assertSameMoney(orderID, set.ends[0].state, set.credits, refunds)
			w.assertRefundsSound()
		})
	}
}

// Nothing but the refund ties its messages together: many refunds of one order and account, all at once.
func TestMessagesOfManyRefundsOfOneOrderAtOnce(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 16)
	seed := seedOf(t)
	sent := map[string]int64{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range uint64(16) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, i))
			for range 12 {
				set := observed[random.IntN(len(observed))]
				key, err := w.acceptAndSend(orderID, set.credits)
				if !assert.NoError(t, err) {
					return
				}
				order := slices.Concat(set.messages, set.messages)
				random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
				for _, m := range order {
					if !assert.NoError(t, w.tell(r, key, orderID, m), m) {
						return
					}
				}
				mu.Lock()
				sent[fmt.Sprint(set.ends[0].state, " ", set.credits)]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	reserves := w.reserves(orderID)
	assert.Equal(t, 10*sent["pending 4"], reserves[0])
	assert.Equal(t, 10*sent["succeeded 4"], reserves[1])
	assert.Equal(t, 1_000_000-4*(sent["pending 4"]+sent["succeeded 4"]), w.balance(tenant, account))
	w.assertRefundsSound()
}
