package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/worker/notices"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// life is what becomes of a refund, each status a time after its making.
func life(steps ...simulator.Step) simulator.Script { return simulator.Script{Life: steps} }

func step(after time.Duration, status string) simulator.Step {
	return simulator.Step{After: after, Status: status}
}

// mistreated is a refund that succeeds at once, with a fault in the answers to its requests.
func mistreated(faults ...simulator.Fault) simulator.Script { return simulator.Script{Create: faults} }

func TestARefundIsConfirmedByPolling(t *testing.T) {
	s := newRefundStage(t, "")
	id := s.refund(6000, life(step(0, "pending")))
	s.refundReaches(id, contract.RefundPending)
	assert.Equal(t, capacity{reserved: 6000}, s.capacity())
	eventually(t, "the run knows", func() bool { return s.refundStatus(id).State == contract.RefundPending })
	status := s.refundStatus(id)
	assert.Contains(t, status.DidItHappen, "Not yet")
	assert.Contains(t, status.WaitsFor, "it is asked 1s after sending, then after 1s, 2s, 5s, which repeats")
	s.simulator.Script(id, life(step(0, "succeeded")))
	result := s.refundEnds(id)
	assert.Equal(t, contract.RefundResult{
		RefundID: id, State: contract.RefundSucceeded, ChannelRef: s.refundRow(id).reference, Amount: 6000, Currency: currency,
		Credits: 600, Reason: "ticket 17",
	}, result)
	assert.Equal(t, capacity{refunded: 6000}, s.capacity())
	assert.Equal(t, "payout", s.refundStory(id))
	assert.EqualValues(t, credits+orderCredits-600, s.balance())
	assert.Equal(t, []string{"accept: accepted", "send: sending", "create: pending", "query: succeeded"}, s.evidenceOf(id))
	s.assertSent(id, 1, 1)
}

func TestC25_AProcessingRefundIsFollowedForDaysAndSettledByALookUpAlone(t *testing.T) {
	s := newRefundStage(t, eager)
	id := s.refund(6000, life(step(0, "pending"), step(72*time.Hour, "succeeded")))
	eventually(t, "it was looked up several times", func() bool { return s.refundRow(id).looks >= 5 })
	assert.Equal(t, contract.RefundPending, s.refundState(id))
	assert.Equal(t, capacity{reserved: 6000}, s.capacity(), "processing is not final")
	s.simulator.Advance(72 * time.Hour)
	s.refundEndsAs(id, contract.RefundSucceeded)
	s.assertSent(id, 1, 1)
}

func TestC32_AnAnswerWithAReferenceAloneMakesTheRefundPending(t *testing.T) {
	s := newRefundStage(t, silent)
	id := s.refund(6000, mistreated(simulator.Fault{Kind: simulator.FaultNullStatus}))
	s.refundReaches(id, contract.RefundPending)
	assert.NotEmpty(t, s.refundRow(id).reference)
	assert.Equal(t, capacity{reserved: 6000}, s.capacity())
}

func TestAnAnswerLostAfterTheRefundWasMadeIsFoundByALookUp(t *testing.T) {
	for name, fault := range map[string]simulator.Fault{
		"the connection is lost": {Kind: simulator.FaultLost, Applied: true},
		"the answer is cut":      {Kind: simulator.FaultCut},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, "")
			id := s.refund(6000, mistreated(fault))
			s.refundPasses(id, contract.RefundUnknown)
			s.refundEndsAs(id, contract.RefundSucceeded)
			assert.Equal(t, []string{"accept: accepted", "send: sending", "create: unknown", "query: succeeded"}, s.evidenceOf(id))
			s.assertSent(id, 1, 1)
		})
	}
}

func TestAnAnswerLostBeforeTheRefundWasMadeIsSentAgainUnderItsNumber(t *testing.T) {
	s := newRefundStage(t, "")
	id := s.refund(6000, mistreated(simulator.Fault{Kind: simulator.FaultLost}))
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.Equal(t, []string{
		"accept: accepted", "send: sending", "create: unknown", "query: not_found", "send: sending", "create: succeeded",
	}, s.evidenceOf(id))
	assert.Equal(t, 2, s.refundRow(id).sends)
	s.assertSent(id, 2, 1)
}

func TestC40_ARefundThatListsDoNotShowYetIsMadeOnce(t *testing.T) {
	s := newRefundStage(t, "")
	script := mistreated(simulator.Fault{Kind: simulator.FaultLost, Applied: true})
	script.ListLag = time.Minute
	id := s.refund(6000, script)
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.Contains(t, s.evidenceOf(id), "query: not_found")
	s.assertSent(id, 2, 1)
}

func TestC10_AnErrorAfterTheRefundWasMadeRefundsOnceHoweverOftenItIsAskedFor(t *testing.T) {
	for name, fault := range map[string]simulator.Fault{
		"the channel stores the error":  {Kind: simulator.FaultError, Applied: true, Stored: true},
		"something in between answered": {Kind: simulator.FaultError, Applied: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, "")
			id := s.refund(6000, mistreated(fault))
			s.refundPasses(id, contract.RefundUnknown)
			again, err := s.client.RequestRefund(s.ctx(), s.request(0, 6000))
			require.NoError(t, err)
			assert.Equal(t, id, again.RefundID)
			assert.False(t, again.Created)
			_, err = s.client.RequestRefund(s.ctx(), s.request(1, 6000))
			assert.Equal(t, contract.CodeCapacityExceeded, contract.CodeOf(err), "another key finds the money reserved: %v", err)
			s.refundEndsAs(id, contract.RefundSucceeded)
			s.assertSent(id, 1, 1)
			assert.Equal(t, capacity{refunded: 6000}, s.capacity())
		})
	}
}

func TestC8_AGatewaysPageIsNoAnswer(t *testing.T) {
	s := newRefundStage(t, "")
	id := s.refund(6000, mistreated(simulator.Fault{Kind: simulator.FaultHTML, Size: 300 << 10, Applied: true}))
	s.refundPasses(id, contract.RefundUnknown)
	s.refundEndsAs(id, contract.RefundSucceeded)
	s.assertSent(id, 1, 1)
	assert.Equal(t, "http_502", value[string](s.stage, `SELECT code FROM reclaim.refund_events
		WHERE refund_id = $1 AND source = 'create'`, id))
	assert.LessOrEqual(t, value[int](s.stage, `SELECT max(octet_length(evidence)) FROM reclaim.refund_events
		WHERE refund_id = $1`, id), 2000)
}

func TestC13_AWebhookBeforeTheAnswerRefundsOnce(t *testing.T) {
	s := newRefundStage(t, silent).withNotices()
	script := simulator.Script{Webhooks: simulator.Webhooks{BeforeAnswer: time.Second}}
	id := s.refund(6000, script)
	s.refundReaches(id, contract.RefundSucceeded)
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.Equal(t, "notice: succeeded", s.evidenceOf(id)[2], "the notice came first: %q", s.evidenceOf(id))
	assert.Equal(t, "payout", s.refundStory(id))
	assert.Equal(t, capacity{refunded: 6000}, s.capacity())
	s.assertSent(id, 1, 1)
}

func TestC14_AnAnswerAndAWebhookThatMeetBehindTheRowsLockSettleOnce(t *testing.T) {
	s := newRefundStage(t, silent).withNotices()
	id := s.refund(6000, mistreated(simulator.Fault{Kind: simulator.FaultHang}))
	eventually(t, "the channel has the request", func() bool { return s.simulator.Sends(id) == 1 })
	tx, err := s.direct.Begin(s.ctx())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(s.ctx()) }()
	_, err = tx.Exec(s.ctx(), `SELECT FROM reclaim.refunds WHERE refund_id = $1 FOR UPDATE`, id)
	require.NoError(t, err)
	s.simulator.Release(id)
	waiting := func() int {
		return value[int](s.stage, `SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))
			OR pg_blocking_pids(pid) && ARRAY (SELECT pid FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))`,
			int32(tx.Conn().PgConn().PID()))
	}
	eventually(t, "the answer and the webhook wait for the row", func() bool { return waiting() == 2 })
	require.NoError(t, tx.Commit(s.ctx()))
	s.refundEndsAs(id, contract.RefundSucceeded)
	s.simulator.Deliver()
	assert.Equal(t, "payout", s.refundStory(id))
	assert.Equal(t, capacity{refunded: 6000}, s.capacity())
	assert.Equal(t, 1, value[int](s.stage, `SELECT count(*) FROM reclaim.refund_events
		WHERE refund_id = $1 AND from_state <> to_state AND to_state = 'succeeded'`, id))
}

func TestC16_AWebhookSettlesWhatTimedOutAndNothingIsReleasedBefore(t *testing.T) {
	s := newRefundStage(t, silent)
	id := s.refund(6000, mistreated(simulator.Fault{Kind: simulator.FaultHang, Applied: true}))
	eventually(t, "the channel has made it", func() bool { return s.simulator.MovedFor(id) == 6000 })
	assert.Equal(t, contract.RefundUnknown, s.refundState(id))
	assert.Equal(t, capacity{reserved: 6000}, s.capacity())
	assert.Equal(t, "payout", s.refundStory(id))
	// The channel tells it later, while its answer still hangs.
	s.withNotices()
	s.simulator.Script(id, life(step(0, "succeeded")))
	s.refundEndsAs(id, contract.RefundSucceeded)
	s.assertSent(id, 1, 1)
}

// permutations lists every order of n things.
func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, rest := range permutations(n - 1) {
		for at := range n {
			all = append(all, slices.Insert(slices.Clone(rest), at, n-1))
		}
	}
	return all
}

func TestC26_WebhooksInAnyOrderReachTheSameEnd(t *testing.T) {
	for name, story := range map[string]struct {
		life  simulator.Script
		net   int64
		story string
		// ends is the state where the success, if there is one, comes before a failure, and after it.
		ends [2]contract.RefundState
		// capacity is the order's after all, and issues the kinds that a person is asked about.
		capacity capacity
		issues   []string
	}{
		"pending, then succeeded": {
			life(step(0, "pending"), step(time.Hour, "succeeded")), -100, "payout",
			[2]contract.RefundState{contract.RefundSucceeded, contract.RefundSucceeded}, capacity{refunded: 6000}, nil,
		},
		"pending, then failed": {
			life(step(0, "pending"), step(time.Hour, "failed")), 0, "payout payout_return",
			[2]contract.RefundState{contract.RefundFailed, contract.RefundFailed}, capacity{}, nil,
		},
		"pending, succeeded, then failed": {
			life(step(0, "pending"), step(time.Hour, "succeeded"), step(24*time.Hour, "failed")), 0, "payout payout_return",
			[2]contract.RefundState{contract.RefundReversed, contract.RefundFailed}, capacity{},
			[]string{
				"refund_reversed", "refund_reversed", "refund_reversed",
				"success_after_failure", "success_after_failure", "success_after_failure",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRefundStage(t, silent)
			box := s.keepNotices()
			// The answer hangs, so that nothing but the webhooks tells.
			story.life.Create = []simulator.Fault{{Kind: simulator.FaultHang, Applied: true}}
			var ids []string
			for range permutations(3) {
				ids = append(ids, s.refund(1000, story.life))
			}
			for _, id := range ids {
				eventually(t, "the channel has made it", func() bool { return s.simulator.Applied(id) == 1 })
			}
			s.simulator.Advance(25 * time.Hour)
			s.simulator.Deliver()
			for i, order := range permutations(3) {
				mails := box.about(ids[i])
				require.GreaterOrEqual(t, len(mails), 3)
				// The first, a middle and the last one tell the whole story.
				mails = []webhook{mails[0], mails[1], mails[len(mails)-1]}
				for _, n := range order {
					status, _ := post(t, s.noticesURL(s.door), mails[n])
					assert.Equal(t, http.StatusOK, status)
				}
				end := story.ends[0]
				if slices.Index(order, 2) < slices.Index(order, 1) {
					end = story.ends[1]
				}
				s.refundEndsAs(ids[i], end)
				assert.Equal(t, story.story, s.refundStory(ids[i]), "order %v", order)
				assert.Equal(t, story.net, value[int64](s.stage, `SELECT sum(amount) FROM reclaim.ledger_entries
					WHERE refund_id = $1`, ids[i]), "order %v", order)
			}
			assert.Equal(t, story.capacity, s.capacity())
			assert.EqualValues(t, credits+orderCredits+6*story.net, s.balance())
			assert.ElementsMatch(t, story.issues, s.issues())
		})
	}
}

func TestC29_ARedeliveredWebhookChangesNothing(t *testing.T) {
	t.Run("twice, one after the other and at once", func(t *testing.T) {
		s := newRefundStage(t, silent)
		box := s.keepNotices()
		id := s.refund(6000, mistreated(simulator.Fault{Kind: simulator.FaultHang, Applied: true}))
		eventually(t, "the channel tells", func() bool { return len(box.about(id)) == 1 })
		mail := box.about(id)[0]
		for range 2 {
			status, _ := post(t, s.noticesURL(s.door), mail)
			assert.Equal(t, http.StatusOK, status)
		}
		s.refundEndsAs(id, contract.RefundSucceeded)
		events := len(s.evidenceOf(id))
		runs := len(s.runsOf(contract.RefundWorkflowID(s.tenant, id)))
		var posts sync.WaitGroup
		for range 8 {
			posts.Go(func() {
				status, _ := post(t, s.noticesURL(s.door), mail)
				assert.Equal(t, http.StatusOK, status)
			})
		}
		posts.Wait()
		assert.Equal(t, "payout", s.refundStory(id))
		assert.Equal(t, capacity{refunded: 6000}, s.capacity())
		assert.Len(t, s.evidenceOf(id), events, "a repeated notice is not told twice")
		assert.Len(t, s.runsOf(contract.RefundWorkflowID(s.tenant, id)), runs, "nor does it start a run")
		assert.Empty(t, s.issues())
	})
	t.Run("eight at once for a failure", func(t *testing.T) {
		s := newRefundStage(t, silent)
		box := s.keepNotices()
		script := life(step(0, "failed"))
		script.Create = []simulator.Fault{{Kind: simulator.FaultHang, Applied: true}}
		id := s.refund(6000, script)
		eventually(t, "the channel tells", func() bool { return len(box.about(id)) == 2 })
		var posts sync.WaitGroup
		for n := range 8 {
			posts.Go(func() {
				status, _ := post(t, s.noticesURL(s.door), box.about(id)[n%2])
				assert.Equal(t, http.StatusOK, status)
			})
		}
		posts.Wait()
		s.refundEndsAs(id, contract.RefundFailed)
		assert.Equal(t, "payout payout_return", s.refundStory(id))
		assert.EqualValues(t, credits+orderCredits, s.balance())
	})
}

func TestC22_APendingRefundIsReleasedOnlyOnceItHasFailed(t *testing.T) {
	s := newRefundStage(t, "")
	id := s.refund(6000, life(step(0, "pending")))
	s.refundReaches(id, contract.RefundPending)
	assert.Equal(t, "payout", s.refundStory(id))
	assert.Equal(t, capacity{reserved: 6000}, s.capacity())
	s.simulator.Script(id, life(step(0, "failed")))
	s.refundEndsAs(id, contract.RefundFailed)
	assert.Equal(t, "payout payout_return", s.refundStory(id))
	assert.Equal(t, capacity{}, s.capacity())
	assert.EqualValues(t, credits+orderCredits, s.balance())
	assert.Empty(t, s.issues())
}

func TestC23_ACanceledRefundSentNoMoney(t *testing.T) {
	s := newRefundStage(t, silent).withNotices()
	script := life(step(0, "pending"), step(time.Hour, "canceled"))
	script.Webhooks.Only = []string{"refund.updated"}
	id := s.refund(6000, script)
	s.refundReaches(id, contract.RefundPending)
	s.simulator.Advance(time.Hour)
	s.refundEndsAs(id, contract.RefundFailed)
	assert.Equal(t, "payout payout_return", s.refundStory(id))
	assert.Equal(t, capacity{}, s.capacity())
}

func TestC17_AFailureDaysAfterTheSuccessReversesItOnce(t *testing.T) {
	s := newRefundStage(t, "").withNotices()
	id := s.refund(6000, life(step(0, "succeeded"), step(9*24*time.Hour, "failed")))
	s.refundEndsAs(id, contract.RefundSucceeded)
	first := value[time.Time](s.stage, `SELECT succeeded_at FROM reclaim.refunds WHERE refund_id = $1`, id)
	before := s.evidenceOf(id)
	s.simulator.Advance(9 * 24 * time.Hour)
	s.simulator.Deliver()
	s.refundReaches(id, contract.RefundReversed)
	s.refundEndsAs(id, contract.RefundReversed)
	assert.Equal(t, "payout payout_return", s.refundStory(id))
	assert.Equal(t, capacity{}, s.capacity())
	assert.EqualValues(t, credits+orderCredits, s.balance())
	assert.Equal(t, []string{"refund_reversed"}, s.issues())
	assert.Equal(t, before, s.evidenceOf(id)[:len(before)], "the first fact stands")
	assert.Equal(t, first, value[time.Time](s.stage, `SELECT succeeded_at FROM reclaim.refunds WHERE refund_id = $1`, id))
	eventually(t, "the Web UI shows the conflict", func() bool {
		return len(s.list(fmt.Sprintf("ReclaimAttention = '%s' AND ReclaimRefund = '%s'", contract.AttentionEvidenceConflict, id))) >= 1
	})
	// The capacity is free again: the money can be sent back in another refund.
	again := s.refund(paid, simulator.Script{})
	s.refundEndsAs(again, contract.RefundSucceeded)
}

// mute is a channel that took the refund, lost its answer, and answers no look-up.
func mute() simulator.Script {
	return simulator.Script{
		Create: []simulator.Fault{{Kind: simulator.FaultLost, Applied: true}},
		Lookup: []simulator.Fault{{Kind: simulator.FaultError, Times: -1}},
	}
}

func (s *refundStage) reference(refundID string) string {
	s.t.Helper()
	for _, p := range s.simulator.Book().Payments {
		for _, r := range p.Refunds {
			if r.Number == refundID {
				return r.ID
			}
		}
	}
	s.t.Fatalf("the channel has no refund %s", refundID)
	return ""
}

func settled(id, number, reference string, amount int64) contract.RefundResolution {
	return contract.RefundResolution{
		ID: id, Action: contract.ActionSettle, Number: number, ChannelRef: reference, Amount: amount, Currency: "USD",
		Evidence: "seen in the channel's own list",
	}
}

func TestC38_ARefundThatNobodyConfirmsWaitsForAPerson(t *testing.T) {
	s := newRefundStage(t, eager+"give_up = \"2s\"\n")
	id := s.refund(6000, mute())
	s.needsAPerson(id)
	assert.Equal(t, contract.RefundUnknown, s.refundState(id))
	assert.Equal(t, capacity{reserved: 6000}, s.capacity(), "neither settled nor released")
	assert.Equal(t, "payout", s.refundStory(id))
	looks := s.refundRow(id).looks

	// Extending looks for another while, in vain.
	assert.Equal(t, contract.RefundUnknown, s.decided(id, contract.RefundResolution{ID: "d1", Action: contract.ActionExtend}))
	eventually(t, "it is looked up again", func() bool { return s.refundRow(id).looks > looks })
	s.needsAPerson(id)

	assert.Equal(t, contract.RefundSucceeded, s.decided(id, settled("d2", id, s.reference(id), 6000)))
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.Equal(t, capacity{refunded: 6000}, s.capacity())
	assert.Contains(t, s.evidenceOf(id), "person: succeeded")
	s.assertSent(id, 1, 1)
	eventually(t, "the Web UI lists it no more", func() bool {
		return len(s.list(fmt.Sprintf("ReclaimAttention IS NOT NULL AND ReclaimRefund = '%s'", id))) == 0
	})

	answer, err := s.decide(id, settled("d2", id, s.reference(id), 6000))
	require.NoError(t, err, "the same decision again is answered as the first time")
	assert.Equal(t, contract.RefundSucceeded, answer.State)
}

func TestC64_ADecisionAboutMuchMoneyNeedsASecondPerson(t *testing.T) {
	s := newRefundStage(t, silent+"second_person_from = 5000\n")
	id := s.refund(6000, mute())
	eventually(t, "it is sent", func() bool { return s.simulator.Applied(id) == 1 })
	s.refundReaches(id, contract.RefundUnknown)
	for n, approver := range []string{"", " ", "sue", " Sue "} {
		decision := settled(fmt.Sprintf("alone %d", n), id, s.reference(id), 6000)
		decision.ID, decision.Approver = fmt.Sprintf("alone-%d", n), approver
		_, err := s.decide(id, decision)
		assert.Equal(t, contract.CodeBadResolution, contract.CodeOf(err), "approver %q: %v", approver, err)
		assert.ErrorContains(t, err, "second person")
	}
	bare := settled("bare", id, s.reference(id), 6000)
	bare.Evidence, bare.Approver = "", "max"
	_, err := s.decide(id, bare)
	assert.ErrorContains(t, err, "evidence")
	assert.Equal(t, contract.RefundUnknown, s.refundState(id))

	together := settled("together", id, s.reference(id), 6000)
	together.Approver = "max"
	assert.Equal(t, contract.RefundSucceeded, s.decided(id, together))
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.Equal(t, "sue, approved by max", value[string](s.stage, `SELECT actor FROM reclaim.refund_events
		WHERE refund_id = $1 AND source = 'person'`, id))

	// A small one needs nobody else.
	small := s.refund(1000, mute())
	eventually(t, "it is sent", func() bool { return s.simulator.Applied(small) == 1 })
	s.decided(small, settled("small", small, s.reference(small), 1000))
	s.refundEndsAs(small, contract.RefundSucceeded)
}

func TestC65_ADecisionAboutAnotherRefundIsRefused(t *testing.T) {
	s := newRefundStage(t, silent)
	id, other := s.refund(6000, mute()), s.refund(1000, mute())
	eventually(t, "both are sent", func() bool { return s.simulator.Applied(id)+s.simulator.Applied(other) == 2 })
	for name, decision := range map[string]contract.RefundResolution{
		"number":   settled("d1", other, s.reference(id), 6000),
		"amount":   settled("d2", id, s.reference(id), 600),
		"currency": {ID: "d3", Action: contract.ActionRelease, Amount: 6000, Currency: "eur", Evidence: "seen"},
	} {
		_, err := s.decide(id, decision)
		assert.Equal(t, contract.CodeBadResolution, contract.CodeOf(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, "the "+name)
	}
	assert.Equal(t, contract.RefundUnknown, s.refundState(id))
	assert.Equal(t, capacity{reserved: 7000}, s.capacity())
}

func TestARefundWhoseNumberHasExpiredIsNotSentAgainAndIsFoundByListing(t *testing.T) {
	s := newRefundStage(t, eager+"give_up = \"2s\"\n")
	id := s.refund(6000, mute())
	s.needsAPerson(id)
	s.change(id, "first_sent_at = first_sent_at - interval '25 hours'")
	s.simulator.Advance(25 * time.Hour)
	_, err := s.decide(id, contract.RefundResolution{ID: "d1", Action: contract.ActionResend})
	assert.Equal(t, contract.CodeBadResolution, contract.CodeOf(err), "%v", err)
	assert.ErrorContains(t, err, "the channel honours a refund number for 24h0m0s")
	s.assertSent(id, 1, 1)

	s.simulator.Script(id, simulator.Script{})
	s.decided(id, contract.RefundResolution{ID: "d2", Action: contract.ActionExtend})
	s.refundEndsAs(id, contract.RefundSucceeded)
	s.assertSent(id, 1, 1)
}

func TestARefundThatIsNeverFoundAsksAPersonAndIsSentNoMoreOnceItsNumberHasExpired(t *testing.T) {
	s := newRefundStage(t, eager)
	id := s.refund(6000, mistreated(simulator.Fault{Kind: simulator.FaultLost, Times: -1}))
	eventually(t, "its number is sent again while the channel honours it", func() bool { return s.simulator.Sends(id) >= 3 })
	s.change(id, "first_sent_at = first_sent_at - interval '25 hours'")
	looks := s.refundRow(id).looks
	eventually(t, "it is looked up after that", func() bool { return s.refundRow(id).looks >= looks+3 })
	s.change(id, "look_until = clock_timestamp()")
	sends := s.simulator.Sends(id)
	s.needsAPerson(id)
	assert.Equal(t, sends, s.simulator.Sends(id))
	assert.Zero(t, s.simulator.Applied(id))
	assert.Equal(t, contract.RefundUnknown, s.refundState(id), "not found releases nothing by itself")
	assert.Equal(t, capacity{reserved: 6000}, s.capacity())

	assert.Equal(t, contract.RefundFailed, s.decided(id, contract.RefundResolution{
		ID: "d1", Action: contract.ActionRelease, Amount: 6000, Evidence: "the channel's support says that it never came",
	}))
	s.refundEndsAs(id, contract.RefundFailed)
	assert.Equal(t, "payout payout_return", s.refundStory(id))
}

func TestC41_APaymentRefundedByOthersIsNotTakenForThisRefund(t *testing.T) {
	s := newRefundStage(t, eager)
	box := s.keepNotices()
	s.refundByHand(payment(order), paid)
	s.simulator.Deliver()
	byHand := box.about(payment(order))[0]
	id := s.refund(6000, simulator.Script{})
	eventually(t, "an issue is opened at once", func() bool { return slices.Equal(s.issues(), []string{"refunded_elsewhere"}) })
	eventually(t, "it is sent again, which is answered the same", func() bool { return s.simulator.Sends(id) >= 3 })
	eventually(t, "its answer is applied", func() bool { return s.refundRow(id).sends >= 4 })
	assert.Equal(t, []string{"refunded_elsewhere"}, s.issues(), "the same answer opens one issue")
	assert.True(t, s.refundRow(id).needsReview)
	eventually(t, "the Web UI lists it", func() bool {
		return len(s.list(fmt.Sprintf("ReclaimAttention = '%s' AND ReclaimRefund = '%s'", contract.AttentionRefundUnconfirmed, id))) == 1
	})
	assert.Equal(t, contract.RefundUnknown, s.refundState(id))
	assert.Equal(t, capacity{reserved: 6000}, s.capacity(), "neither settled nor released")
	assert.Equal(t, "payout", s.refundStory(id))
	assert.Contains(t, value[string](s.stage, `SELECT string_agg(code, ' ') FROM reclaim.refund_events WHERE refund_id = $1`, id),
		"charge_already_refunded")
	assert.Zero(t, s.simulator.Applied(id))

	// The channel says later that it made this one too: that settles it, and a person still looks what else was sent.
	says := func(status string) {
		t.Helper()
		answer, _ := post(t, s.noticesURL(s.door), byHand.changed(t, func(refund map[string]any) {
			refund["id"], refund["amount"], refund["status"] = "re_"+s.tenant, 6000, status
			refund["metadata"] = map[string]any{"reclaim_refund": id}
		}))
		assert.Equal(t, http.StatusOK, answer)
	}
	says("succeeded")
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.Equal(t, capacity{refunded: 6000}, s.capacity())
	assert.Equal(t, []string{"refunded_elsewhere"}, s.issues())
	assert.True(t, s.refundRow(id).needsReview)
	// It takes that back, so that its book, in which nothing moved, and ours agree in the end.
	says("failed")
	s.refundEndsAs(id, contract.RefundReversed)
	assert.Equal(t, []string{"refunded_elsewhere", "refund_reversed"}, s.issues())
}

// refundByHand refunds a payment as somebody does in the channel's own Web UI, without a number.
func (s *refundStage) refundByHand(payment string, amount int64) {
	s.t.Helper()
	form := url.Values{"payment_intent": {payment}, "amount": {fmt.Sprint(amount)}}
	request, err := http.NewRequest(http.MethodPost, s.simulator.URL()+"/v1/refunds", strings.NewReader(form.Encode()))
	require.NoError(s.t, err)
	request.Header.Set("Authorization", "Bearer "+channelKey)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Idempotency-Key", "by hand")
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	require.NoError(s.t, response.Body.Close())
	require.Equal(s.t, http.StatusOK, response.StatusCode)
}

func TestARefundCanceledBeforeItWasSentIsNeverSent(t *testing.T) {
	s := newStageApart(t, "")
	id := s.refund(6000, simulator.Script{})
	assert.Equal(t, contract.RefundAccepted, s.refundState(id))
	require.NoError(t, s.temporal.SignalWorkflow(s.ctx(), contract.RefundWorkflowID(s.tenant, id), "", contract.ResolveMessage,
		contract.RefundResolution{ID: "d1", Action: contract.ActionCancel, Operator: "sue", Reason: "ticket 17"}))
	t.Cleanup(s.startWorker(t, s.store, s.queue))
	s.refundEndsAs(id, contract.RefundCanceled)
	assert.Equal(t, "payout payout_return", s.refundStory(id))
	assert.Equal(t, capacity{}, s.capacity())
	assert.EqualValues(t, credits+orderCredits, s.balance())
	s.assertSent(id, 0, 0)
}

func TestARefundIsNotCanceledOnceItWasSent(t *testing.T) {
	s := newRefundStage(t, silent)
	id := s.refund(6000, life(step(0, "pending")))
	s.refundReaches(id, contract.RefundPending)
	_, err := s.decide(id, contract.RefundResolution{ID: "d1", Action: contract.ActionCancel})
	assert.Equal(t, contract.CodeBadResolution, contract.CodeOf(err), "%v", err)
	assert.Equal(t, contract.RefundPending, s.refundState(id))
}

func TestC31_ALateNoticeThatContradictsOpensAnIssueWhichStays(t *testing.T) {
	s := newRefundStage(t, "").withNotices()
	box := s.keepNotices()
	id := s.refund(6000, simulator.Script{})
	s.refundEndsAs(id, contract.RefundSucceeded)
	s.simulator.Deliver()
	genuine := box.about(id)[0]
	other := genuine.changed(t, func(refund map[string]any) { refund["amount"] = 6001 })
	for range 3 {
		status, _ := post(t, s.noticesURL(s.door), other)
		assert.Equal(t, http.StatusOK, status, "what it says is kept: it need not be sent again")
	}
	assert.Equal(t, []string{"evidence_mismatch"}, s.issues(), "the same contradiction opens one issue")
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.True(t, s.refundRow(id).needsReview)
	assert.Equal(t, "payout", s.refundStory(id))
	assert.Equal(t, capacity{refunded: 6000}, s.capacity())

	// What says nothing new after the end is taken and forgotten.
	events := s.evidenceOf(id)
	for _, mail := range box.about(id) {
		status, _ := post(t, s.noticesURL(s.door), mail)
		assert.Equal(t, http.StatusOK, status)
	}
	status, _ := post(t, s.noticesURL(s.door), genuine.changed(t, func(refund map[string]any) { refund["status"] = "pending" }))
	assert.Equal(t, http.StatusOK, status)
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.Subset(t, s.evidenceOf(id), events)
	assert.Len(t, s.issues(), 1)
}

func TestASuccessAfterAFailureOpensAnIssueAndMovesNothing(t *testing.T) {
	s := newRefundStage(t, "").withNotices()
	id := s.refund(6000, life(step(0, "failed")))
	s.refundEndsAs(id, contract.RefundFailed)
	s.simulator.Script(id, life(step(0, "succeeded")))
	s.simulator.Deliver()
	eventually(t, "the issue is open", func() bool { return slices.Equal(s.issues(), []string{"success_after_failure"}) })
	s.refundEndsAs(id, contract.RefundFailed)
	assert.Equal(t, "payout payout_return", s.refundStory(id), "a person corrects it with adjust")
	// The channel takes the success back, so that its book and ours agree in the end.
	s.simulator.Script(id, life(step(0, "failed")))
}

func TestC61_ANoticeAboutAnUnknownRefundOpensAnIssue(t *testing.T) {
	s := newRefundStage(t, "")
	box := s.keepNotices()
	id := s.refund(1000, simulator.Script{})
	s.refundEndsAs(id, contract.RefundSucceeded)
	s.simulator.Deliver()
	genuine := box.about(id)[0]
	nobodys := func(change map[string]any) webhook {
		return genuine.changed(t, func(refund map[string]any) {
			refund["id"] = "re_" + s.tenant
			refund["metadata"].(map[string]any)["reclaim_refund"] = "rf_" + s.tenant
			for name, v := range change {
				refund[name] = v
			}
		})
	}
	for range 2 {
		status, _ := post(t, s.noticesURL(s.door), nobodys(nil))
		assert.Equal(t, http.StatusAccepted, status)
	}
	assert.Equal(t, []string{"unknown_refund"}, s.issues(), "of a known payment: the order's tenant is told")

	status, _ := post(t, s.noticesURL(s.door), nobodys(map[string]any{"payment_intent": "pi_nobodys", "charge": "ch_nobodys",
		"metadata": map[string]any{"reclaim_refund": "rf_" + s.tenant}}))
	assert.Equal(t, http.StatusAccepted, status)
	assert.Equal(t, 1, value[int](s.stage, `SELECT count(*) FROM reclaim.issues
		WHERE tenant_id = 'unassigned' AND kind = 'unknown_refund' AND subject_id = $1`, s.channel))

	// Somebody refunds in the channel's own Web UI, without a number.
	s.withNotices()
	s.refundByHand(payment(order), 2000)
	s.simulator.Deliver()
	assert.Equal(t, []string{"unknown_refund", "unknown_refund"}, s.issues())
	deliveries := s.simulator.Deliveries()
	assert.Equal(t, http.StatusAccepted, deliveries[len(deliveries)-1].Status)
	assert.Equal(t, capacity{refunded: 1000}, s.capacity())
}

func TestC28_ANoticeStandsInTheRowThoughItsRunCannotBeTold(t *testing.T) {
	s := newRefundStage(t, silent)
	away := func(context.Context, contract.RefundKey, contract.ChannelNotice, bool) error {
		return errors.New("Temporal is away")
	}
	deaf := httptest.NewServer(notices.Handler(activities.NewRefunds(s.store, s.channels), away, zap.NewNop()))
	t.Cleanup(deaf.Close)
	s.simulator.SetWebhookURL(s.noticesURL(deaf.URL))
	id := s.refund(6000, life(step(0, "pending"), step(time.Hour, "succeeded")))
	s.refundReaches(id, contract.RefundPending)
	s.simulator.Advance(time.Hour)
	s.simulator.Deliver()
	s.refundReaches(id, contract.RefundSucceeded)
	assert.Equal(t, capacity{refunded: 6000}, s.capacity())
	deliveries := s.simulator.Deliveries()
	assert.Equal(t, http.StatusServiceUnavailable, deliveries[len(deliveries)-1].Status, "it is sent again until the run is told")

	// The run finds it in the row, whatever it is told: here a notice that cannot be read.
	require.NoError(t, s.temporal.SignalWorkflow(s.ctx(), contract.RefundWorkflowID(s.tenant, id), "", contract.ChannelNoticeSignal,
		"no notice"))
	s.refundEndsAs(id, contract.RefundSucceeded)
}

// Whoever signals proves nothing, and the channel need not be waited for: it is asked at once.
func TestASignalledNoticeHasTheChannelAsked(t *testing.T) {
	s := newRefundStage(t, silent)
	signal := func(id string, outcome contract.RefundOutcome) {
		require.NoError(t, s.temporal.SignalWorkflow(s.ctx(), contract.RefundWorkflowID(s.tenant, id), "",
			contract.ChannelNoticeSignal, contract.ChannelNotice{Outcome: outcome, ChannelRef: "re_made_up", Amount: 6000, Currency: currency}))
	}
	id := s.refund(6000, life(step(0, "pending"), step(time.Hour, "succeeded")))
	s.refundReaches(id, contract.RefundPending)
	checked := func() time.Time {
		return value[time.Time](s.stage, "SELECT last_checked_at FROM reclaim.refunds WHERE refund_id = $1", id)
	}
	before := checked()
	signal(id, contract.NoticeFailed)
	eventually(t, "the channel is asked", func() bool { return checked().After(before) })
	assert.Equal(t, contract.RefundPending, s.refundState(id), "and says otherwise")
	assert.Equal(t, capacity{reserved: 6000}, s.capacity())

	s.simulator.Advance(time.Hour)
	signal(id, contract.NoticeSucceeded)
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.Empty(t, s.issues())
}

func TestC46_ANoticeThatIsNotTheChannelsIsRefusedAndWritesNothing(t *testing.T) {
	s := newRefundStage(t, silent)
	box := s.keepNotices()
	id := s.refund(6000, life(step(0, "pending"), step(time.Hour, "succeeded")))
	s.refundReaches(id, contract.RefundPending)
	s.simulator.Advance(time.Hour)
	s.simulator.Deliver()
	mails := box.about(id)
	genuine := mails[len(mails)-1]
	now := time.Now()
	var event any
	require.NoError(t, json.Unmarshal(genuine.body, &event))
	reencoded, err := json.MarshalIndent(event, "", " ")
	require.NoError(t, err)
	padded := func(size int) webhook { return signed(append(genuine.body, make([]byte, size)...), channelSecret, now) }
	state := func() string {
		return value[string](s.stage, `SELECT concat_ws('/', state, updated_at, event_seq, needs_review, last_checked_at,
			(SELECT count(*) FROM reclaim.refund_events WHERE tenant_id = $1), (SELECT count(*) FROM reclaim.ledger_entries
			WHERE tenant_id = $1), (SELECT count(*) FROM reclaim.issues WHERE tenant_id = $1 OR subject_id = $3))
			FROM reclaim.refunds WHERE tenant_id = $1 AND refund_id = $2`, s.tenant, id, s.channel)
	}
	before := state()
	for name, c := range map[string]struct {
		mail   webhook
		status int
		code   string
	}{
		"another secret":         {signed(genuine.body, "whsec_another", now), 400, channel.NoticeBadSignature},
		"no signature":           {webhook{http.Header{}, genuine.body}, 400, channel.NoticeBadSignature},
		"a re-encoded body":      {webhook{genuine.header, reencoded}, 400, channel.NoticeBadSignature},
		"a changed body":         {webhook{genuine.header, append([]byte(" "), genuine.body...)}, 400, channel.NoticeBadSignature},
		"an empty body":          {webhook{genuine.header, nil}, 400, channel.NoticeBadSignature},
		"ten minutes old":        {signed(genuine.body, channelSecret, now.Add(-10*time.Minute)), 400, channel.NoticeStale},
		"six minutes ahead":      {signed(genuine.body, channelSecret, now.Add(6*time.Minute)), 400, channel.NoticeStale},
		"5 MB":                   {padded(5_000_000), 413, channel.NoticeTooLarge},
		"300 kB":                 {padded(300_000), 413, channel.NoticeTooLarge},
		"signed, but no JSON":    {signed([]byte("refunded!"), channelSecret, now), 400, channel.NoticeMalformed},
		"signed, but no event":   {signed([]byte(`{"object":"refund"}`), channelSecret, now), 400, channel.NoticeMalformed},
		"a refund without money": {genuine.changed(t, func(refund map[string]any) { delete(refund, "amount") }), 400, channel.NoticeMalformed},
	} {
		status, code := post(t, s.noticesURL(s.door), c.mail)
		assert.Equal(t, c.status, status, name)
		assert.Equal(t, c.code, code, name)
	}
	status, code := post(t, s.door+"/v1/channels/nobodys/notices", genuine)
	assert.Equal(t, http.StatusNotFound, status)
	assert.Equal(t, "unknown_channel", code)
	assert.Equal(t, before, state(), "nothing was written")

	// An event about something else is acknowledged and forgotten.
	var other map[string]any
	require.NoError(t, json.Unmarshal(genuine.body, &other))
	other["type"] = "charge.refunded"
	body, err := json.Marshal(other)
	require.NoError(t, err)
	status, _ = post(t, s.noticesURL(s.door), signed(body, channelSecret, now))
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, before, state())

	status, _ = post(t, s.noticesURL(s.door), genuine)
	assert.Equal(t, http.StatusOK, status)
	s.refundEndsAs(id, contract.RefundSucceeded)
}

func TestARefundPolledManyTimesKeepsAShortHistory(t *testing.T) {
	s := newRefundStage(t, eager)
	id := s.refund(6000, life(step(0, "pending")))
	// Each takes a second or more: the server's timers are no finer.
	within(t, 5*time.Minute, "it was looked up 20 times", func() bool { return s.refundRow(id).looks >= 20 })
	assert.Len(t, s.evidenceOf(id), 3, "a look-up that finds nothing new is not told")
	s.simulator.Script(id, life(step(0, "succeeded")))
	s.refundEndsAs(id, contract.RefundSucceeded)
	events := len(s.historyOf(contract.RefundWorkflowID(s.tenant, id), ""))
	assert.Less(t, events, 40)
	t.Logf("%d look-ups, %d events", s.refundRow(id).looks, events)
}
