package faults_test

import (
	"context"
	"encoding/json"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// story is a way of a job or a refund through the system, told to its end. It says itself how all must be in the end, whatever
// breaks meanwhile; a playing's own end then proves ledger, channel and histories.
type story struct {
	name string
	// works, pays and knocks say that it has work done, uses a payment channel, and asks by HTTP.
	works, pays, knocks bool
	tell                func(*play)
}

var (
	works = []turn{{Takes: time.Second}}
	idles = []turn{{Waits: true}}
	soon  = promised(2 * time.Second)
)

// muted is a channel that took the refund, lost its answer, and answers no look-up. Nobody is told of it either.
func muted() simulator.Script {
	script := mute()
	script.Life, script.Webhooks.None = []simulator.Step{step(0, "pending")}, true
	return script
}

// lateAt tells of a job that is delivered while its refund to the source is in a state that the channel's script keeps it in.
// Then the channel goes on.
func lateAt(state contract.RefundState, script simulator.Script, then string) func(*play) {
	return func(p *play) {
		job, id := p.toSource1(script, idles, soon)
		p.begins(job)
		p.seesRefund(id, state)
		p.letGo()
		p.seesJob("delivered late", "is_reclaimed")
		if then != "" {
			p.simulator.Script(id, life(step(0, then)))
		}
		p.refundEnded(id, contract.RefundSucceeded, "payout")
		p.jobEnds(contract.StateSucceeded, "charge refund payout reclaim")
		p.isQuiet()
		p.owes(-cost, capacity{refunded: sourcePaid})
	}
}

var stories = []story{
	{"on time", true, false, false, func(p *play) {
		p.begins(p.job1(works))
		p.jobEnds(contract.StateSucceeded, "charge")
	}},
	{"late", true, false, false, func(p *play) {
		p.begins(p.job1(idles, soon))
		p.seesJob("refunded", "is_refunded")
		p.letGo()
		p.jobEnds(contract.StateSucceeded, "charge refund reclaim")
	}},
	{"fails, then succeeds", true, false, false, func(p *play) {
		p.begins(p.job1([]turn{{Fails: true}, {Takes: time.Second}}))
		p.jobEnds(contract.StateSucceeded, "charge refund reclaim")
	}},
	{"fails for good", true, false, false, func(p *play) {
		p.begins(p.job1([]turn{{Hopeless: true}}))
		p.jobEnds(contract.StateFailed, "charge refund")
	}},
	{"declined", false, false, false, func(p *play) {
		verdict := p.submit(p.job1(works, func(j *contract.Job) { j.Account = "poor" }))
		assert.Equal(p.t, contract.VerdictDeclined, verdict.Verdict)
		p.isQuiet()
		p.sees("it has no entry", "SELECT count(*) = 0 FROM reclaim.ledger_entries WHERE tenant_id = $1 AND job_id = 'j1'")
	}},
	{"dead letter, retried", true, false, false, func(p *play) {
		p.begins(p.job1([]turn{{Fails: true}, {Takes: time.Second}}, attempts(1)))
		p.seesJob("a dead letter", "state = 'dead_letter'")
		retry := decision("r1", contract.ActionRetry)
		retry.Attempts = 5 // one may be lost with its process
		p.decideJob(retry)
		p.jobEnds(contract.StateSucceeded, "charge refund reclaim")
	}},
	{"found by the probe", true, false, false, func(p *play) {
		p.begins(p.job1([]turn{{Silent: true}, {}}, timeout(5*time.Second), probed))
		p.jobEnds(contract.StateSucceeded, "charge")
		assert.False(p.t, !p.lenient && p.begun(2), "what the probe found was not done again")
	}},
	{"outcome signalled", true, false, false, func(p *play) {
		p.begins(p.job1(idles))
		p.insist("the outcome is reported", func(ctx context.Context) error {
			return p.client.ReportOutcome(ctx, p.tenant, "j1", contract.Outcome{
				State: contract.OutcomeSucceeded, Output: json.RawMessage(`"from outside"`), Source: "gpu-3",
			})
		})
		p.jobEnds(contract.StateSucceeded, "charge")
	}},
	{"canceled", true, false, false, func(p *play) {
		p.begins(p.job1(idles))
		p.until("the cancel is asked for", func(ctx context.Context) (bool, error) {
			err := p.client.Cancel(ctx, p.tenant, "j1")
			return err == nil, err
		})
		p.jobEnds(contract.StateCanceled, "charge refund")
	}},
	{"terminated, submitted again", true, false, false, func(p *play) {
		job := p.job1(idles)
		p.begins(job)
		p.terminateRun()
		p.begins(job)
		p.letGo()
		p.jobEnds(contract.StateSucceeded, "charge")
	}},
	{"refunded to its source", true, true, false, func(p *play) {
		job, id := p.toSource1(life(step(0, "pending"), step(2*time.Second, "succeeded")), []turn{{Hopeless: true}})
		p.begins(job)
		p.refundEnded(id, contract.RefundSucceeded, "payout")
		p.jobEnds(contract.StateFailed, "charge refund payout")
		p.isQuiet()
		p.owes(0, capacity{refunded: sourcePaid})
	}},
	{"the channel's answer is lost", false, true, false, func(p *play) {
		id := p.refunds1(mistreated(simulator.Fault{Kind: simulator.FaultLost, Applied: true}))
		p.refundEnded(id, contract.RefundSucceeded, "payout")
	}},
	{"the channel fails", false, true, false, func(p *play) {
		id := p.refunds1(life(step(0, "pending"), step(2*time.Second, "failed")))
		p.refundEnded(id, contract.RefundFailed, "payout payout_return")
	}},
	{"a webhook comes first", false, true, false, func(p *play) {
		id := p.refunds1(simulator.Script{Webhooks: simulator.Webhooks{BeforeAnswer: time.Second}})
		p.refundEnded(id, contract.RefundSucceeded, "payout")
	}},
	{"late while accepted", true, true, false, func(p *play) {
		// Nothing is sent until the delivery has canceled the refund.
		release := p.proxy.Hold(statement("BeginSend"))
		job, id := p.toSource1(simulator.Script{}, idles, soon)
		p.begins(job)
		p.seesRefund(id, contract.RefundAccepted)
		p.letGo()
		p.seesJob("delivered late", "delivered_at IS NOT NULL AND is_refunded")
		release()
		p.refundEnded(id, contract.RefundCanceled, "payout payout_return")
		p.jobEnds(contract.StateSucceeded, "charge refund payout reclaim payout_return")
		p.isQuiet()
		p.owes(0, capacity{})
		p.assertSent(id, 0, 0)
	}},
	{"late while unknown", true, true, false, lateAt(contract.RefundUnknown, muted(), "succeeded")},
	{"late while pending", true, true, false, lateAt(contract.RefundPending, life(step(0, "pending")), "succeeded")},
	{"late after its success", true, true, false, lateAt(contract.RefundSucceeded, life(step(0, "succeeded")), "")},
	{"a job by HTTP", true, false, true, func(p *play) {
		p.asks("/v1/accounts/team-8/topups", "bought", map[string]any{"amount": cost})
		p.asks("/v1/jobs", "", body(p.t, p.job1(idles, func(j *contract.Job) { j.Account = "team-8" })))
		p.asks("/v1/jobs/j1/outcome", "", map[string]any{"state": "succeeded", "output": "by HTTP"})
		p.jobEnds(contract.StateSucceeded, "charge")
		p.holds("team-8", 0)
	}},
	{"a refund by HTTP", false, true, true, func(p *play) {
		require.NoError(p.t, p.simulator.AddPayment(simulator.Payment{Intent: payment("o3"), Amount: 4000, Currency: currency}))
		p.asks("/v1/orders", "paid", map[string]any{
			"orderId": "o3", "account": "team-8", "channel": p.channel, "payment": payment("o3"), "currency": currency, "paid": 4000,
			"credits": 400,
		})
		id := p.number(0)
		p.channelWill(id, life(step(0, "pending"), step(2*time.Second, "succeeded")))
		p.asks("/v1/refunds", "refund 0", map[string]any{"orderId": "o3", "amount": 1000, "reason": "ticket 17"})
		p.refundEnded(id, contract.RefundSucceeded, "payout")
		p.holds("team-8", 300)
	}},
}
