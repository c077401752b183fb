package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	soakAccounts = 40
	// soakPaid is so much that no order and no account is ever used up.
	soakPaid    = 100_000_000
	soakCredits = 10_000_000
)

func soakAccount(n int) string { return fmt.Sprintf("account-%d", n) }
func soakOrder(n int) string   { return fmt.Sprintf("order-%d", n) }

// plan is what the seed has decided about one job or refund.
type plan struct {
	n    int
	kind string
	// job is set for a job, and request for a refund that a person asks for.
	job     *contract.Job
	request *contract.RefundRequest
	// refundID is the channel refund that may come of it, which the channel treats as the script says.
	refundID string
	script   simulator.Script
	// ends are the states in which it may end.
	ends []string
	// doubled says that it is asked for twice at once, and byDoor that it is asked for by HTTP, with the body.
	doubled, byDoor bool
	body            json.RawMessage
	// later is what happens to it some time after it was asked for.
	later  func(context.Context) error
	after  time.Duration
	decide contract.Action
}

func (p *plan) id() string {
	if p.job != nil {
		return p.job.JobID
	}
	return p.refundID
}

// overHTTP is the body by which it is asked for.
func (p *plan) overHTTP(t *testing.T) json.RawMessage {
	if p.job != nil {
		return body(t, *p.job)
	}
	text, err := json.Marshal(map[string]any{"orderId": p.request.OrderID, "amount": p.request.Amount, "reason": p.request.Reason})
	require.NoError(t, err)
	return text
}

// between gives a random length of time.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// plan decides about the n-th job or refund. Nothing but the seed and n has a say in it.
func (s *soak) plan(n int, isJob bool) *plan {
	r := rand.New(rand.NewPCG(s.seed, uint64(n)))
	if !isJob {
		return s.planRefund(r, n)
	}
	p := &plan{n: n, ends: []string{string(contract.StateSucceeded)}, doubled: r.IntN(10) == 0, decide: contract.ActionRetry}
	account := r.IntN(soakAccounts)
	takes := between(r, 100*time.Millisecond, 2*time.Second)
	turns := []turn{{Takes: takes}}
	job := contract.Job{
		Tenant: s.tenant, JobID: fmt.Sprintf("j%05d", n), Account: soakAccount(account), Cost: 1 + r.Int64N(50), Actor: "soak",
		Work: contract.Work{
			Activity: workActivity, TaskQueue: s.work, Timeout: contract.Duration(25 * time.Second), Heartbeat: contract.Duration(6 * time.Second),
		},
		Promise: contract.Duration(time.Minute), Retry: contract.Retrying{MaxAttempts: 5, MaxBackoff: contract.Duration(4 * time.Second)},
	}
	p.job = &job
	toOrder := func() {
		job.RefundTo, job.OrderID = contract.RefundToSource, soakOrder(account)
		p.refundID, p.script = contract.JobRefundNumber(s.tenant, job.JobID), s.channelScript(r)
	}
	switch kind := r.IntN(100); {
	case kind < 42:
		p.kind = "on time"
	case kind < 52:
		p.kind = "late"
		job.Promise, turns = contract.Duration(time.Second), []turn{{Takes: 3*time.Second + takes}}
	case kind < 60:
		p.kind = "fails, then succeeds"
		turns = []turn{{Fails: true}, {Takes: takes}}
	case kind < 65:
		p.kind, p.ends = "fails for good", []string{string(contract.StateFailed)}
		turns = []turn{{Takes: takes, Hopeless: true}}
	case kind < 71:
		p.kind = "dead letter"
		job.Retry.MaxAttempts, turns = 1, []turn{{Fails: true}, {Takes: takes}}
		p.decide = []contract.Action{contract.ActionRetry, contract.ActionDeliver, contract.ActionWriteOff}[r.IntN(3)]
		if p.decide == contract.ActionWriteOff {
			p.ends = []string{string(contract.StateWrittenOff)}
		}
	case kind < 75:
		p.kind = "found by the probe"
		job.Work.Probe, job.Work.Timeout, turns = probeActivity, contract.Duration(3*time.Second), []turn{{Silent: true}, {}}
	case kind < 80:
		p.kind = "outcome signalled"
		turns = []turn{{Takes: 15 * time.Second}, {Takes: takes}}
		outcome := contract.Outcome{State: contract.OutcomeSucceeded, Output: json.RawMessage(`"outside"`), Source: "gpu-3"}
		if r.IntN(2) == 0 {
			outcome = contract.Outcome{Attempt: 1, State: contract.OutcomeFailed, Error: "out of memory", Source: "gpu-3"}
		}
		p.after = between(r, 0, 4*time.Second)
		p.later = func(ctx context.Context) error { return s.client.ReportOutcome(ctx, s.tenant, job.JobID, outcome) }
	case kind < 86:
		p.kind, p.ends = "canceled", []string{string(contract.StateCanceled), string(contract.StateSucceeded)}
		turns = []turn{{Takes: 4 * time.Second}}
		p.after = between(r, 0, 4*time.Second)
		p.later = func(ctx context.Context) error { return s.client.Cancel(ctx, s.tenant, job.JobID) }
	case kind < 90:
		p.kind = "terminated, submitted again"
		turns = []turn{{Takes: 5 * time.Second}}
		p.after = between(r, 0, 4*time.Second)
		p.later = func(ctx context.Context) error {
			if err := s.terminateAnyRun(ctx, job.JobID); err != nil {
				return err
			}
			_, err := s.client.StartJob(ctx, job)
			return err
		}
	case kind < 92:
		p.kind, p.ends = "declined", nil
		job.Account = "poor"
	case kind < 96:
		p.kind, p.ends = "refunded to its source", []string{string(contract.StateFailed)}
		turns = []turn{{Takes: takes, Hopeless: true}}
		toOrder()
	default:
		p.kind = "late, refunded to its source"
		job.Promise, turns = contract.Duration(time.Second), []turn{{Takes: between(r, 2*time.Second, 12*time.Second)}}
		toOrder()
	}
	job.Work.Input, _ = json.Marshal(score{turns}) // numbers and words
	return p
}

func (s *soak) planRefund(r *rand.Rand, n int) *plan {
	request := contract.RefundRequest{
		Tenant: s.tenant, Actor: "soak", Key: fmt.Sprintf("refund %d", n), OrderID: soakOrder(r.IntN(soakAccounts)),
		Amount: 1 + r.Int64N(2000), Reason: "ticket 17",
	}
	return &plan{
		n: n, kind: "refund", request: &request, doubled: r.IntN(10) == 0, script: s.channelScript(r),
		refundID: contract.RefundNumber(s.tenant, request.Actor, request.Key),
	}
}

// channelScript decides how the channel treats one refund.
func (s *soak) channelScript(r *rand.Rand) (script simulator.Script) {
	lost := simulator.Fault{Kind: simulator.FaultLost, Applied: r.IntN(2) == 0, Times: 1 + r.IntN(2)}
	switch kind := r.IntN(100); {
	case kind < 40:
	case kind < 52:
		script = life(step(0, "pending"), step(between(r, time.Second, 8*time.Second), "succeeded"))
	case kind < 60:
		script = life(step(0, "pending"), step(between(r, 0, 5*time.Second), "failed"))
	case kind < 70:
		script = mistreated(lost)
	case kind < 74:
		script = mistreated(simulator.Fault{Kind: simulator.FaultCut})
	case kind < 78:
		script = mistreated(simulator.Fault{Kind: simulator.FaultHTML, Applied: r.IntN(2) == 0}, lost)
	case kind < 81:
		script = mistreated(simulator.Fault{Kind: simulator.FaultNullStatus})
	case kind < 84:
		script = mistreated(simulator.Fault{Kind: simulator.FaultSlow, Delay: between(r, 0, 4*time.Second)})
	case kind < 87:
		script = mistreated(simulator.Fault{Kind: simulator.FaultError, Applied: r.IntN(2) == 0, Times: 2})
	case kind < 90:
		script = mistreated(simulator.Fault{Kind: simulator.FaultRefuse, Code: "refund_disputed_payment"})
	case kind < 93:
		// Only webhooks tell of what the bank takes back, so they come as they should.
		return life(step(0, "succeeded"), step(between(r, 5*time.Second, 20*time.Second), "failed"))
	case kind < 96:
		script = mute()
	default:
		script.Lookup = []simulator.Fault{lost, {Kind: simulator.FaultError, Times: 2}}
		script.Create = []simulator.Fault{lost}
		script.ListLag = between(r, 0, 5*time.Second)
	}
	switch kind := r.IntN(100); {
	case kind < 30:
		script.Webhooks.None = true
	case kind < 45:
		script.Webhooks.Copies = 2 + r.IntN(2)
	case kind < 55:
		script.Webhooks.Reversed = true
	case kind < 65:
		script.Webhooks.Delay = between(r, 0, 10*time.Second)
	case kind < 70:
		script.Webhooks.BeforeAnswer = between(r, 0, time.Second)
	case kind < 75:
		script.Webhooks.SignedAt = -10 * time.Minute
	}
	return script
}

// reversed says that the bank takes the refund back in the end, if it was made.
func (p *plan) reversed() bool {
	last := len(p.script.Life) - 1
	return last > 0 && p.script.Life[0].Status == "succeeded" && p.script.Life[last].Status == "failed"
}

func (p *plan) mayEnd(state string) bool { return slices.Contains(p.ends, state) }

// mute says that the channel answers no look-up for the refund.
func (p *plan) mute() bool { return len(p.script.Lookup) > 0 && p.script.Lookup[0].Times < 0 }

// orderID is the order whose payment is refunded.
func (p *plan) orderID() string {
	if p.job != nil {
		return p.job.OrderID
	}
	return p.request.OrderID
}
