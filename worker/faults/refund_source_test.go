package faults_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// The source's order bought exactly what one job costs, on an account that has nothing else.
const (
	sourceOrder   = "o2"
	sourceAccount = "team-9"
	sourcePaid    = 4000
)

// toSource is a job whose refund leaves through order o2.
func toSource(j *contract.Job) {
	j.Account, j.RefundTo, j.OrderID = sourceAccount, contract.RefundToSource, sourceOrder
}

// startToSource starts job j1, whose channel refund will go as the script says, and returns its call and the refund's id.
func (s *refundStage) startToSource(script simulator.Script, change ...func(*contract.Job)) (*call, string) {
	s.t.Helper()
	s.addOrder(sourceOrder, sourceAccount, sourcePaid, cost)
	id := s.takeOn(contract.JobRefundNumber(s.tenant, "j1"))
	s.simulator.Script(id, script)
	s.startCharged(s.job("j1", append([]func(*contract.Job){toSource, promised(time.Second)}, change...)...))
	return s.next("j1"), id
}

func (s *refundStage) sourceMoney() (c capacity) {
	s.t.Helper()
	assert.NoError(s.t, s.direct.QueryRow(s.ctx(), `SELECT reserved, refunded FROM reclaim.orders
		WHERE tenant_id = $1 AND order_id = $2`, s.tenant, sourceOrder).Scan(&c.reserved, &c.refunded))
	return c
}

// assertDebt checks that the account owes the job's cost, and is declined until it has paid.
func (s *refundStage) assertDebt() {
	s.t.Helper()
	assert.EqualValues(s.t, -cost, s.balanceOf(sourceAccount))
	verdict := s.start(s.job("declined", func(j *contract.Job) { j.Account, j.Cost = sourceAccount, 1 }))
	assert.Equal(s.t, contract.VerdictDeclined, verdict.Verdict)
	assert.EqualValues(s.t, -cost, verdict.Balance)
}

// assertLate checks a job that was delivered after its refund had left for the channel.
func (s *refundStage) assertLate() {
	s.t.Helper()
	result := s.runEnds("j1")
	assert.Equal(s.t, contract.StateSucceeded, result.State)
	assert.True(s.t, result.Late)
	assert.EqualValues(s.t, cost, result.Net)
}

func TestARefundToTheSourceSendsTheMoneyBack(t *testing.T) {
	s := newRefundStage(t, "")
	call, id := s.startToSource(simulator.Script{}, attempts(1))
	call.fail(errBusy)
	s.reaches("j1", contract.StateDeadLetter)
	s.refundEndsAs(id, contract.RefundSucceeded)
	assert.Equal(t, "charge refund payout", s.story("j1"))
	assert.EqualValues(t, 0, s.balanceOf(sourceAccount))
	assert.Equal(t, capacity{refunded: sourcePaid}, s.sourceMoney())
}

// A job that is delivered after all has been refunded to its source meanwhile: wherever that refund stands, the job is
// paid once in the end, or the account shows the debt.
func TestC50_ALateSuccessOfAJobRefundedToItsSourceIsPaidOnceOrOwed(t *testing.T) {
	t.Run("while the refund is accepted", func(t *testing.T) {
		s := newStageApart(t, "")
		t.Cleanup(s.startWorker(t, s.store, s.queue))
		t.Cleanup(s.crew.start(t, s.address))
		call, id := s.startToSource(simulator.Script{})
		s.refundReaches(id, contract.RefundAccepted)
		assert.Equal(t, "charge refund payout", s.story("j1"))
		call.deliver("late")
		s.assertLate()
		assert.Equal(t, contract.RefundCanceled, s.refundState(id))
		assert.Equal(t, "payout payout_return", s.refundStory(id))
		assert.EqualValues(t, 0, s.balanceOf(sourceAccount), "the 40 credits were spent on the job, once")
		assert.Equal(t, capacity{}, s.sourceMoney())
		// Its run comes too late to send it.
		t.Cleanup(s.startRelay(s.temporal))
		s.refundEndsAs(id, contract.RefundCanceled)
		s.assertSent(id, 0, 0)
	})
	for _, c := range []struct {
		name   string
		script simulator.Script
		// then is what the channel does in the end.
		then  string
		state contract.RefundState
	}{
		{"while it is unknown, and it succeeds",
			mistreated(simulator.Fault{Kind: simulator.FaultHang, Applied: true}), "succeeded", contract.RefundUnknown},
		{"while it is unknown, and it fails",
			mistreated(simulator.Fault{Kind: simulator.FaultHang, Applied: true}), "failed", contract.RefundUnknown},
		{"while it is pending, and it succeeds", life(step(0, "pending")), "succeeded", contract.RefundPending},
		{"while it is pending, and it fails", life(step(0, "pending")), "failed", contract.RefundPending},
		{"after it succeeded", life(step(0, "succeeded")), "", contract.RefundSucceeded},
		{"after it succeeded, and the bank takes it back", life(step(0, "succeeded")), "failed", contract.RefundSucceeded},
		{"after it failed", life(step(0, "failed")), "", contract.RefundFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newRefundStage(t, silent).withNotices()
			if c.state == contract.RefundUnknown {
				// What hangs is not told yet either.
				c.script.Life, c.script.Webhooks.Only = []simulator.Step{step(0, "pending")}, []string{"refund.updated"}
			}
			call, id := s.startToSource(c.script)
			s.refundReaches(id, c.state)
			s.isRefunded("j1")
			call.deliver("late")
			s.assertLate()
			if c.state != contract.RefundFailed {
				assert.Equal(t, "charge refund payout reclaim", s.story("j1"), "reclaimed at once, whatever the channel says later")
				s.assertDebt()
			}
			if c.then != "" {
				s.simulator.Script(id, life(step(0, c.then)))
			}
			end := c.state
			switch {
			case c.then == "succeeded":
				end = contract.RefundSucceeded
			case c.then == "failed" && c.state == contract.RefundSucceeded:
				end = contract.RefundReversed
			case c.then == "failed":
				end = contract.RefundFailed
			}
			s.refundReaches(id, end)
			s.refundEndsAs(id, end)
			if end == contract.RefundSucceeded {
				assert.Equal(t, "payout", s.refundStory(id))
				assert.Equal(t, capacity{refunded: sourcePaid}, s.sourceMoney(), "the customer has the money and the job, and owes it")
				s.assertDebt()
			} else {
				assert.Equal(t, "payout payout_return", s.refundStory(id))
				assert.Equal(t, capacity{}, s.sourceMoney())
				assert.EqualValues(t, 0, s.balanceOf(sourceAccount), "the returned credits pay the job")
			}
			s.assertSent(id, 1, 1)
		})
	}
}

func TestC52_AJobRetriedAfterItsRefundIsNotFree(t *testing.T) {
	s := newRefundStage(t, "")
	call, id := s.startToSource(simulator.Script{}, attempts(1))
	call.fail(errBusy)
	s.reaches("j1", contract.StateDeadLetter)
	s.refundEndsAs(id, contract.RefundSucceeded)
	s.resolve("j1", decision("r1", contract.ActionRetry))
	s.next("j1").deliver("done")
	s.assertLate()
	assert.Equal(t, "charge refund payout reclaim", s.story("j1"))
	s.assertDebt()
	s.assertSent(id, 1, 1)
}

func TestARefundToTheSourceOfAnAccountInDebtStaysOnTheAccount(t *testing.T) {
	s := newRefundStage(t, "")
	call, id := s.startToSource(simulator.Script{}, attempts(1), promised(5*time.Minute))
	s.refunds = nil // none will be accepted
	_, err := s.client.Adjust(s.ctx(), reclaim.Movement{
		Tenant: s.tenant, Account: sourceAccount, Actor: "test", Key: "a1", Amount: -50, Operator: "sue", Reason: "ticket 18",
	})
	require.NoError(t, err)
	call.fail(errBusy)
	s.reaches("j1", contract.StateDeadLetter)
	assert.Equal(t, "charge refund", s.story("j1"))
	assert.EqualValues(t, -10, s.balanceOf(sourceAccount))
	assert.Contains(t, s.events("j1"), "source_refused: the credits stay on the account: the account owes 10")
	assert.Equal(t, capacity{}, s.sourceMoney())
	s.resolve("j1", decision("r1", contract.ActionWriteOff))
	s.assertRefunded(s.runEnds("j1"), contract.StateWrittenOff)
	eventually(t, "the Web UI shows that a person is needed", func() bool {
		return len(s.list(fmt.Sprintf("ReclaimAttention = '%s' AND ReclaimTenant = '%s'", contract.AttentionRefundUnconfirmed, s.tenant))) == 1
	})
	s.assertSent(id, 0, 0)
}

func TestARefundToTheSourceNeedsAnOrderOfTheAccount(t *testing.T) {
	s := newRefundStage(t, "")
	for name, orderID := range map[string]string{"another account's": order, "unknown": "o3"} {
		job := s.job("j-"+orderID, toSource, func(j *contract.Job) { j.OrderID = orderID })
		s.topUp(sourceAccount, cost)
		_, err := s.client.StartJob(s.ctx(), job)
		assert.Equal(t, contract.CodeBadInput, contract.CodeOf(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, "orderId must name an order of account team-9", name)
		assert.Empty(t, s.story(job.JobID), name)
		s.noCall(job.JobID)
	}
}
