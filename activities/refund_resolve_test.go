package activities_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// resolve takes a decision that was asked for by update: a refusal is told and not kept.
func (w *world) resolve(r *activities.Refunds, key contract.RefundKey, d contract.RefundResolution) activities.ResolveRefundAnswer {
	w.t.Helper()
	answer, err := r.ResolveRefund(w.t.Context(), activities.ResolveRefundRequest{RefundKey: key, Resolution: d})
	require.NoError(w.t, err)
	return answer
}

// decided lists what is kept of decisions about a refund.
func (w *world) decided(key contract.RefundKey) []string {
	w.t.Helper()
	return w.lines(`SELECT concat_ws(' ', resolution_id, action, outcome, state) FROM reclaim.resolutions
		WHERE tenant_id = $1 AND subject_kind = 'refund' AND subject_id = $2 ORDER BY created_at`, key.Tenant, key.RefundID)
}

// decisionTable is the state after each decision in each state; - is a refusal that changes nothing.
const decisionTable = `
           settle     release    resend     extend     cancel
accepted   -          -          -          -          canceled
unknown    succeeded  failed     unknown    unknown    -
pending    succeeded  failed     -          pending    -
succeeded  -          -          -          -          -
failed     -          -          -          -          -
canceled   -          -          -          -          -
reversed   -          -          -          -          -
`

func TestEveryDecisionInEveryStateOnceAndOnceMore(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-10s", "")
	for _, action := range decisions {
		fmt.Fprintf(&table, " %-10s", action)
	}
	for _, state := range refundStates {
		fmt.Fprintf(&table, "\n%-10s", state)
		for i, action := range decisions {
			key := w.inState(r, orderID, state)
			before, where := w.moneyOf(key), fmt.Sprint(action, " on ", state)
			d := decide(fmt.Sprint("d-", i), key, action)
			first := w.resolve(r, key, d)
			after := w.moneyOf(key)
			assert.Equal(t, string(first.State), after.state, where)
			assert.Equal(t, first.State, first.Row.State, where)
			if slices.Contains(state.Actions(), action) {
				assert.Equal(t, activities.Applied, first.Verdict, "%s: %s", where, first.Refusal)
				assert.Equal(t, contract.ResolutionApplied, first.Outcome, where)
				assert.Equal(t, []string{fmt.Sprintf("%s %s applied %s", d.ID, action, first.State)}, w.decided(key), where)
				fmt.Fprintf(&table, " %-10s", first.State)
			} else {
				assert.Equal(t, activities.Refused, first.Verdict, where)
				assert.Equal(t, activities.WhyWrongState, first.Why, where)
				assert.Equal(t, contract.ResolutionRefused, first.Outcome, where)
				assert.Contains(t, first.Refusal, fmt.Sprintf("%s is not possible while the refund is %s", action, state))
				assert.Equal(t, before, after, where)
				assert.Empty(t, w.decided(key), where)
				fmt.Fprintf(&table, " %-10s", "-")
			}
			events := w.events(key)
			again := w.resolve(r, key, d)
			if first.Verdict == activities.Applied {
				first.Verdict = activities.Already
			}
			assert.Equal(t, []any{first.Verdict, first.Why, first.Outcome, first.State, first.Refusal},
				[]any{again.Verdict, again.Why, again.Outcome, again.State, again.Refusal}, "%s, once more", where)
			assert.Equal(t, after, w.moneyOf(key), "%s, once more", where)
			assert.Equal(t, events, w.events(key), "%s, once more", where)
		}
	}
	table.WriteString("\n")
	trimmed := strings.Split(table.String(), "\n")
	for i := range trimmed {
		trimmed[i] = strings.TrimRight(trimmed[i], " ")
	}
	assert.Equal(t, decisionTable, strings.Join(trimmed, "\n"))
	w.assertRefundsSound()
}

func TestADecisionMovesTheMoneyAndIsEvidence(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	settled := w.inState(r, orderID, contract.RefundUnknown)
	d := decide("d-1", settled, contract.ActionSettle)
	d.Approver = "bob"
	w.resolve(r, settled, d)
	assert.Equal(t, moneyOf{"succeeded", []string{"payout -4"}, [4]int64{0, 10, 0, 4}, 1_000_000 - 4}, w.moneyOf(settled))
	assert.Equal(t, reference(settled.RefundID), w.refund(settled).ChannelRef)
	assert.Equal(t, []string{"person ann, approved by bob settle the bank called (evidence: statement 7)"},
		w.lines(`SELECT concat_ws(' ', source, actor, code, evidence) FROM reclaim.refund_events WHERE source = 'person'`))

	released := w.inState(r, orderID, contract.RefundPending)
	w.resolve(r, released, decide("d-1", released, contract.ActionRelease))
	assert.Equal(t, moneyOf{"failed", []string{"payout -4", "payout_return 4"}, [4]int64{0, 10, 0, 4}, 1_000_000 - 4}, w.moneyOf(released))

	canceled := w.inState(r, orderID, contract.RefundAccepted)
	w.resolve(r, canceled, decide("d-1", canceled, contract.ActionCancel))
	assert.Equal(t, moneyOf{"canceled", []string{"payout -4", "payout_return 4"}, [4]int64{0, 10, 0, 4}, 1_000_000 - 4}, w.moneyOf(canceled))

	// What the channel says after a release is a contradiction, which a person corrects.
	assert.Equal(t, "success_after_failure", w.apply(r, released, activities.SourceSettlement, w.says(released, channel.OutcomeSucceeded)).Why)
	w.assertRefundsSound()
}

func TestTheLongestDecisionsAreKept(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	for action, state := range map[contract.RefundAction]contract.RefundState{
		contract.ActionSettle: contract.RefundUnknown, contract.ActionRelease: contract.RefundUnknown,
		contract.ActionResend: contract.RefundUnknown, contract.ActionExtend: contract.RefundUnknown,
		contract.ActionCancel: contract.RefundAccepted,
	} {
		key := w.inState(r, orderID, state)
		d := decide("d-"+strings.Repeat("1", 98), key, action)
		for _, text := range []*string{&d.Operator, &d.Approver, &d.Reason, &d.Evidence} {
			*text = strings.Repeat("é", contract.MaxReasonBytes/2)
		}
		require.NoError(t, d.Check())
		assert.Equal(t, activities.Applied, w.resolve(r, key, d).Verdict, "%s", action)
	}
	w.assertRefundsSound()
}

func TestExtendAndResendGoOnFromNow(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundUnknown)
	b.caps.IdempotencyLife = 1000 * time.Hour
	w.age(key, 100*time.Hour)
	answer, err := follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err)
	require.True(t, answer.GaveUp)
	extended := w.resolve(r, key, decide("d-1", key, contract.ActionExtend))
	assert.False(t, extended.Row.NeedsReview)
	assert.WithinDuration(t, w.refundRead(key).Now.Add(72*time.Hour), extended.Row.LookUntil, about)
	queried := b.calls()[1]
	_, err = follow(w, r, key, contract.RefundUnknown)
	require.NoError(t, err, "looked up at once, not found, sent")
	assert.Equal(t, queried+1, b.calls()[1])

	again := w.inState(r, orderID, contract.RefundUnknown)
	submitted := b.calls()[0]
	w.resolve(r, again, decide("d-1", again, contract.ActionResend))
	answer, err = follow(w, r, again, contract.RefundUnknown)
	require.NoError(t, err)
	assert.Equal(t, contract.RefundPending, answer.Row.State)
	assert.Equal(t, submitted+1, b.calls()[0])
	assert.False(t, w.refund(again).ResendRequested)
	assert.Equal(t, 1, b.moved[again.RefundID])
	w.assertRefundsSound()
}

func TestAnExtensionDoesNotHideAnOpenIssue(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	w.apply(r, key, activities.SourceNotice, with(w.says(key, channel.OutcomeSucceeded), func(e *channel.Evidence) { e.Amount++ }))
	assert.True(t, w.resolve(r, key, decide("d-1", key, contract.ActionExtend)).Row.NeedsReview)

	accepted := w.inState(r, orderID, contract.RefundAccepted)
	w.apply(r, accepted, activities.SourceNotice, w.says(accepted, channel.OutcomeSucceeded))
	assert.True(t, w.resolve(r, accepted, decide("d-1", accepted, contract.ActionCancel)).Row.NeedsReview,
		"the channel says that it sent what was never sent")
	w.assertRefundsSound()
}

// C65: the decision is about another refund than was meant. C64: and it names what it knows it by.
func TestC65_ADecisionThatDoesNotNameThisRefundIsRefused(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	// By update a refusal is told to whoever asked and leaves no trace: no event, no decision, and nothing moved.
	type all struct {
		refund  standsAs
		order   db.ReclaimOrder
		account db.ReclaimAccount
		entries []string
	}
	stand := func() (a all) {
		a.refund = w.standsAs(key)
		var err error
		a.order, err = w.store.GetOrder(t.Context(), db.GetOrderParams{TenantID: tenant, OrderID: orderID})
		require.NoError(t, err)
		a.account, err = w.store.GetAccount(t.Context(), db.GetAccountParams{TenantID: tenant, AccountID: account})
		require.NoError(t, err)
		a.entries = w.lines("SELECT type || ' ' || amount FROM reclaim.ledger_entries ORDER BY account_id, seq")
		return a
	}
	before := stand()
	for name, spoil := range map[string]func(*contract.RefundResolution){
		"number":     func(d *contract.RefundResolution) { d.Number = "rf_other" },
		"amount":     func(d *contract.RefundResolution) { d.Amount = 100 },
		"currency":   func(d *contract.RefundResolution) { d.Currency = "usd" },
		"channelRef": func(d *contract.RefundResolution) { d.ChannelRef = "re-other" },
	} {
		for i, action := range []contract.RefundAction{contract.ActionSettle, contract.ActionRelease} {
			d := decide(fmt.Sprint("d-", name, i), key, action)
			spoil(&d)
			answer := w.resolve(r, key, d)
			assert.Equal(t, activities.Refused, answer.Verdict, name)
			assert.Equal(t, activities.WhyEvidenceMismatch, answer.Why, name)
			assert.Contains(t, answer.Refusal, "the "+name+" ", name)
			assert.Contains(t, answer.Refusal, "is not this refund's", name)
			assert.Equal(t, before, stand(), "%s of the wrong %s", action, name)
		}
	}
	assert.Empty(t, before.refund.decided)
	assert.Empty(t, w.issues(tenant, key.RefundID), "a slip is no contradiction of the channel's")
	d := decide("d-1", key, contract.ActionSettle)
	d.Currency, d.Number = "EUR", ""
	assert.Equal(t, activities.Applied, w.resolve(r, key, d).Verdict, "the number may be left out, and letters be large")
	w.assertRefundsSound()
}

// C64: above an amount a second person approves.
func TestC64_ALargeDecisionNeedsASecondPerson(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	for _, test := range []struct {
		from     int64
		approver string
		applied  bool
	}{
		{0, "", true}, {11, "", true}, {10, "", false}, {1, "", false}, {10, "ann", false}, {10, " Ann ", false}, {10, " ", false},
		{10, "bob", true},
	} {
		b.caps.SecondPersonFrom = test.from
		for _, action := range decisions {
			key := w.inState(r, orderID, contract.RefundUnknown)
			if action == contract.ActionCancel {
				key = w.inState(r, orderID, contract.RefundAccepted)
			}
			before := w.moneyOf(key)
			d := decide("d-1", key, action)
			d.Approver = test.approver
			answer := w.resolve(r, key, d)
			// Going on with looking, and withdrawing what was not sent, takes nobody's money.
			if test.applied || action == contract.ActionExtend || action == contract.ActionCancel {
				assert.Equal(t, activities.Applied, answer.Verdict, "%s, %+v: %s", action, test, answer.Refusal)
				continue
			}
			assert.Equal(t, activities.WhySecondPerson, answer.Why, "%s, %+v", action, test)
			assert.Contains(t, answer.Refusal, fmt.Sprint(test.from, " eur or more needs a second person"))
			assert.Equal(t, before, w.moneyOf(key))
		}
	}
	w.assertRefundsSound()
}

func TestAResendAfterTheNumbersLifeIsRefusedInSoManyWords(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	for _, test := range []struct {
		life, age time.Duration
		applied   bool
	}{
		{24 * time.Hour, 23 * time.Hour, true}, {24 * time.Hour, 24*time.Hour - 9*time.Minute, false}, {24 * time.Hour, 30 * time.Hour, false},
		{0, 0, false},
	} {
		b.caps.IdempotencyLife = test.life
		key := w.inState(r, orderID, contract.RefundUnknown)
		w.age(key, test.age)
		answer := w.resolve(r, key, decide("d-1", key, contract.ActionResend))
		if test.applied {
			assert.Equal(t, activities.Applied, answer.Verdict)
			continue
		}
		assert.Equal(t, activities.WhyNumberExpired, answer.Why)
		assert.Contains(t, answer.Refusal, "sent again it could refund twice")
		assert.Contains(t, answer.Refusal, w.refund(key).FirstSentAt.UTC().Format("2006-01-02 15:04 MST"))
		assert.False(t, w.refund(key).ResendRequested)
	}
	w.assertRefundsSound()
}

func TestAResolutionIDStandsForOneDecision(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	first := decide("d-1", key, contract.ActionSettle)
	require.Equal(t, activities.Applied, w.resolve(r, key, first).Verdict)
	for name, change := range map[string]func(*contract.RefundResolution){
		"action": func(d *contract.RefundResolution) { d.Action = contract.ActionRelease }, "operator": func(d *contract.RefundResolution) { d.Operator = "bob" },
		"approver": func(d *contract.RefundResolution) { d.Approver = "bob" }, "reason": func(d *contract.RefundResolution) { d.Reason = "r" },
		"evidence": func(d *contract.RefundResolution) { d.Evidence = "e" }, "number": func(d *contract.RefundResolution) { d.Number = "" },
		"reference": func(d *contract.RefundResolution) { d.ChannelRef = "re" }, "amount": func(d *contract.RefundResolution) { d.Amount++ },
		"currency": func(d *contract.RefundResolution) { d.Currency = "" },
	} {
		other := first
		change(&other)
		answer := w.resolve(r, key, other)
		assert.Equal(t, activities.WhyIDReused, answer.Why, name)
		assert.Contains(t, answer.Refusal, `"d-1" stands for another decision`, name)
	}
	assert.Len(t, w.decided(key), 1)
	// It is this refund's: another refund has an id of the same name.
	other := w.inState(r, orderID, contract.RefundPending)
	assert.Equal(t, activities.Applied, w.resolve(r, other, decide("d-1", other, contract.ActionSettle)).Verdict)
	// And it is answered as the first time, also when the refund has moved on.
	w.apply(r, key, activities.SourceNotice, w.says(key, channel.OutcomeFailed))
	again := w.resolve(r, key, first)
	assert.Equal(t, activities.Already, again.Verdict)
	assert.Equal(t, contract.RefundSucceeded, again.State, "as it then was")
	assert.Equal(t, contract.RefundReversed, again.Row.State, "and as it is")
	w.assertRefundsSound()
}

// A signal whose id stands for another decision is kept beside it, once however often it is delivered.
func TestASignalUnderAUsedIDIsKept(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	first := decide("d-1", key, contract.ActionExtend)
	require.Equal(t, activities.Applied, w.resolve(r, key, first).Verdict)
	other := decide("d-1", key, contract.ActionRelease)
	for range 2 {
		answer, err := r.ResolveRefund(t.Context(), activities.ResolveRefundRequest{
			RefundKey: key, Resolution: other, RecordRefusal: true,
		})
		require.NoError(t, err)
		assert.Equal(t, [2]string{activities.WhyIDReused, contract.ResolutionRefused}, [2]string{answer.Why, answer.Outcome})
	}
	assert.Equal(t, []string{"extend applied ", `release refused the resolution id "d-1" stands for another decision: use a new id`},
		w.lines("SELECT concat_ws(' ', action, outcome, refusal) FROM reclaim.resolutions WHERE subject_id = $1 ORDER BY created_at", key.RefundID))
	assert.Equal(t, "pending", w.refund(key).State)
	w.assertRefundsSound()
}

// A signal has nobody to answer to: what it asked for and was refused is kept.
func TestARefusedSignalIsKeptAndFoundAgain(t *testing.T) {
	t.Parallel()
	w, b, r, orderID := newRefundWorld(t, 4)
	b.caps.SecondPersonFrom = 1
	mismatch := func(key contract.RefundKey) contract.RefundResolution {
		d := decide("d-1", key, contract.ActionRelease)
		d.Amount = 99
		return d
	}
	for name, test := range map[string]struct {
		state    contract.RefundState
		decision func(contract.RefundKey) contract.RefundResolution
		invalid  string
		why      string
	}{
		"wrong state": {contract.RefundSucceeded, func(key contract.RefundKey) contract.RefundResolution {
			return decide("d-1", key, contract.ActionSettle)
		}, "", activities.WhyWrongState},
		"mismatch": {contract.RefundPending, mismatch, "", activities.WhyEvidenceMismatch},
		"second person": {contract.RefundPending, func(key contract.RefundKey) contract.RefundResolution {
			return decide("d-1", key, contract.ActionSettle)
		}, "", activities.WhySecondPerson},
		"invalid": {contract.RefundPending, func(contract.RefundKey) contract.RefundResolution {
			return contract.RefundResolution{ID: "refused-1", Action: "burn"}
		}, "action must be one of five", activities.WhyInvalid},
	} {
		key := w.inState(r, orderID, test.state)
		before := w.moneyOf(key)
		request := activities.ResolveRefundRequest{RefundKey: key, Resolution: test.decision(key), Invalid: test.invalid, RecordRefusal: true}
		first, err := r.ResolveRefund(t.Context(), request)
		require.NoError(t, err, name)
		assert.Equal(t, activities.Refused, first.Verdict, name)
		assert.Equal(t, test.why, first.Why, name)
		assert.Equal(t, []string{fmt.Sprintf("%s %s refused %s", request.Resolution.ID, request.Resolution.Action, test.state)}, w.decided(key), name)
		again, err := r.ResolveRefund(t.Context(), request)
		require.NoError(t, err, name)
		assert.Equal(t, activities.Already, again.Verdict, name)
		assert.Equal(t, []any{first.Outcome, first.State, first.Refusal}, []any{again.Outcome, again.State, again.Refusal}, name)
		assert.Equal(t, before, w.moneyOf(key), name)
		assert.Len(t, w.decided(key), 1, name)
	}
	w.assertRefundsSound()
}

func TestADecisionNeedsItsChannelOnlyToActOnIt(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	without := activities.NewRefunds(w.store, channel.NewSet(nil))
	for _, action := range []contract.RefundAction{contract.ActionSettle, contract.ActionRelease, contract.ActionResend, contract.ActionExtend} {
		key := w.inState(r, orderID, contract.RefundUnknown)
		before := w.moneyOf(key)
		answer := w.resolve(without, key, decide("d-1", key, action))
		assert.Equal(t, activities.WhyChannelMissing, answer.Why, action)
		assert.Equal(t, before, w.moneyOf(key), action)
	}
	key := w.inState(r, orderID, contract.RefundAccepted)
	assert.Equal(t, activities.Applied, w.resolve(without, key, decide("d-1", key, contract.ActionCancel)).Verdict)
	w.assertRefundsSound()
}

func TestADecisionAboutNoRefundIsAnError(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 4)
	key := w.inState(r, orderID, contract.RefundPending)
	for _, key := range []contract.RefundKey{{Tenant: tenant, RefundID: "rf_none"}, {Tenant: "globex", RefundID: key.RefundID}} {
		_, err := r.ResolveRefund(t.Context(), activities.ResolveRefundRequest{RefundKey: key, Resolution: decide("d-1", key, contract.ActionExtend)})
		requireErrorType(t, err, activities.ErrorNoRefund, false)
	}
	assert.Empty(t, w.decided(key))
}

// standsAs is all that is known of a refund, to be compared with later.
type standsAs struct {
	money           moneyOf
	events, decided []string
	row             db.ReclaimRefund
}

func (w *world) standsAs(key contract.RefundKey) standsAs {
	w.t.Helper()
	return standsAs{w.moneyOf(key), w.events(key), w.decided(key), w.refund(key)}
}

// startOf is a state in which a decision can be taken.
func startOf(action contract.RefundAction) contract.RefundState {
	if action == contract.ActionCancel {
		return contract.RefundAccepted
	}
	return contract.RefundUnknown
}

func TestADecisionWhoseReplyIsLostIsFoundAgain(t *testing.T) {
	t.Parallel()
	w, b, own, orderID := newRefundWorld(t, 4)
	proxy, r := w.refundsBehind(b, 4)
	commit := func(sql string) bool { return strings.EqualFold(sql, "commit") }
	for _, action := range decisions {
		for _, refused := range []bool{false, true} {
			key := w.inState(own, orderID, startOf(action))
			request := activities.ResolveRefundRequest{RefundKey: key, Resolution: decide("d-1", key, action), RecordRefusal: true}
			if refused {
				request.Invalid = "it breaks a rule"
			}
			before, lost := w.standsAs(key), proxy.Lost()
			proxy.LoseReply(commit, 1)
			_, err := r.ResolveRefund(t.Context(), request)
			requireErrorType(t, err, string(schema.ErrorUnavailable), true)
			require.Equal(t, lost+1, proxy.Lost())
			after := w.standsAs(key)
			assert.NotEqual(t, before, after, "%s took effect", action)
			answer, err := r.ResolveRefund(t.Context(), request)
			require.NoError(t, err)
			assert.Equal(t, activities.Already, answer.Verdict, action)
			assert.Equal(t, refused, answer.Outcome == contract.ResolutionRefused, action)
			assert.Equal(t, after, w.standsAs(key), action)
		}
	}
	w.assertRefundsSound()
}

func TestADecisionTakenManyTimesAtOnceTakesEffectOnce(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 8)
	for _, action := range decisions {
		key := w.inState(r, orderID, startOf(action))
		release := w.holdRefund(key)
		var group sync.WaitGroup
		var verdicts counted
		for range 8 {
			group.Go(func() {
				answer, err := r.ResolveRefund(t.Context(), activities.ResolveRefundRequest{RefundKey: key, Resolution: decide("d-1", key, action)})
				if assert.NoError(t, err) {
					verdicts.add(fmt.Sprint(answer.Verdict, " ", answer.Outcome), 1)
				}
			})
		}
		w.waitBlocked(8)
		release()
		group.Wait()
		assert.Equal(t, map[string]int{"applied applied": 1, "already applied": 7}, verdicts.by, action)
		assert.Len(t, w.decided(key), 1)
	}
	w.assertRefundsSound()
}

// Two people decide otherwise at the same instant, and the channel speaks too.
func TestOppositeDecisionsAtOnceMoveTheMoneyOnce(t *testing.T) {
	t.Parallel()
	w, _, r, orderID := newRefundWorld(t, 8)
	for range 5 {
		key := w.inState(r, orderID, contract.RefundUnknown)
		release := w.holdRefund(key)
		evidence := w.says(key, channel.OutcomeSucceeded)
		var group sync.WaitGroup
		var verdicts counted
		for i := range 4 {
			for _, action := range []contract.RefundAction{contract.ActionSettle, contract.ActionRelease} {
				if i == 3 && action == contract.ActionRelease {
					continue
				}
				group.Go(func() {
					answer, err := r.ResolveRefund(t.Context(), activities.ResolveRefundRequest{
						RefundKey: key, Resolution: decide(fmt.Sprint("d-", action, i), key, action),
					})
					if assert.NoError(t, err) {
						verdicts.add(string(answer.Verdict), 1)
					}
				})
			}
		}
		group.Go(func() { verdicts.add("channel "+string(w.apply(r, key, activities.SourceNotice, evidence).Verdict), 1) })
		w.waitBlocked(8)
		release()
		group.Wait()
		money := w.moneyOf(key)
		if money.state == "failed" {
			assert.Equal(t, []string{"payout -4", "payout_return 4"}, money.payouts)
			assert.Equal(t, 1, verdicts.by["channel refused"])
			assert.Equal(t, []string{"success_after_failure"}, w.issues(tenant, key.RefundID))
		} else {
			assert.Equal(t, []string{"payout -4"}, money.payouts)
			assert.Equal(t, 1, verdicts.by["applied"]+verdicts.by["channel applied"])
		}
	}
	w.assertRefundsSound()
}
