package client_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	temporalclient "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/activities/channel/stripe"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/worker/localstack"
	"github.com/reclaimhq/reclaim/workflows"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// runningShop is a shop on a Temporal whose runs take two updates each, with a worker, and a channel that never says what
// became of a refund.
func runningShop(t *testing.T) *shop {
	t.Helper()
	s := newShop(t)
	attributes := map[string]string{}
	for _, name := range contract.SearchAttributes() {
		attributes[name] = "Keyword"
	}
	server, err := localstack.StartTemporal(s.ctx, localstack.TemporalOptions{
		Headless: true, SearchAttributes: attributes, DynamicConfig: map[string]string{"history.maxTotalUpdates": "2"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Close()) })
	temporal, err := temporalclient.DialContext(s.ctx, temporalclient.Options{
		HostPort: server.Address(), Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	require.NoError(t, err)
	t.Cleanup(temporal.Close)

	far, err := simulator.Start(simulator.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, far.Close()) })
	far.ScriptDefault(simulator.Script{
		Create: []simulator.Fault{{Kind: simulator.FaultLost, Times: -1}},
		Lookup: []simulator.Fault{{Kind: simulator.FaultError, Times: -1}},
	})
	require.NoError(t, far.AddPayment(simulator.Payment{Intent: "pi_o-1", Amount: 10_000, Currency: "eur"}))
	opened, err := stripe.New(stripe.Options{
		APIKey: "sk_test_simulator", WebhookSecrets: []string{"whsec_simulator"}, BaseURL: far.URL(),
	})
	require.NoError(t, err)
	declared := opened.Capabilities()
	declared.MinSpacing, declared.FirstQuery, declared.GiveUp = 50*time.Millisecond, 50*time.Millisecond, 300*time.Millisecond
	declared.Poll = []time.Duration{50 * time.Millisecond}
	channels := channel.NewSet(map[string]channel.Member{"stripe-main": {Channel: channel.Declare(opened, declared)}})

	worker := sdkworker.New(temporal, contract.TaskQueue, sdkworker.Options{})
	workflows.Register(worker)
	workflows.RegisterActivities(worker, activities.NewJobs(s.store), activities.NewRefunds(s.store, channels))
	require.NoError(t, worker.Start())
	t.Cleanup(worker.Stop)
	s.temporal, s.Client = temporal, client.New(temporal, s.store, "")
	s.order("o-1", 10_000, 100)
	return s
}

// stuck asks for a refund and waits until a person is asked about it.
func (s *shop) stuck(key string) string {
	s.t.Helper()
	id := s.back("o-1", 1000, key).RefundID
	s.needsAPerson(id)
	return id
}

func (s *shop) needsAPerson(id string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.told(id).NeedsReview }, 3*time.Minute, 20*time.Millisecond)
}

func TestAPersonDecidesAStuckRefund(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a Temporal server")
	}
	t.Parallel()
	s := runningShop(t)
	id := s.stuck("k1")
	decide := func(change func(*contract.RefundResolution)) (contract.RefundResolutionAnswer, error) {
		decision := contract.RefundResolution{
			ID: "settle", Action: contract.ActionSettle, Operator: "ann", Reason: "it is on the statement", Evidence: "line 7",
			Amount: 1000, Currency: "EUR", ChannelRef: "re_1",
		}
		change(&decision)
		return s.ResolveRefund(s.ctx, "acme", id, decision)
	}
	extend := func(d *contract.RefundResolution) { d.ID, d.Action = "extend", contract.ActionExtend }
	for range 3 {
		answer, err := decide(extend)
		require.NoError(t, err)
		assert.Equal(t, contract.RefundResolutionAnswer{ID: "extend", Outcome: "applied", State: "unknown"}, answer)
	}
	s.needsAPerson(id)
	for _, change := range []func(*contract.RefundResolution){
		func(d *contract.RefundResolution) { d.Reason = "another" },
		func(d *contract.RefundResolution) { d.Amount = 999 },
		func(d *contract.RefundResolution) { d.Approver = "bob" },
	} {
		_, err := decide(func(d *contract.RefundResolution) { extend(d); change(d) })
		assert.Contains(t, refusal(t, contract.CodeBadResolution, err).Message, "stands for another decision")
	}
	_, err := decide(func(d *contract.RefundResolution) { d.ID, d.Amount = "wrong", 999 })
	assert.Contains(t, refusal(t, contract.CodeBadResolution, err).Message, "amount 999 is not this refund's")

	// The run has had its two updates: decisions come by signal, and refusals are then recorded.
	for range 2 {
		_, err = decide(func(d *contract.RefundResolution) { d.ID, d.Amount = "wrong-again", 999 })
		assert.Contains(t, refusal(t, contract.CodeBadResolution, err).Message, "amount 999 is not this refund's")
	}
	for range 2 {
		answer, err := decide(func(*contract.RefundResolution) {})
		require.NoError(t, err)
		assert.Equal(t, contract.RefundResolutionAnswer{ID: "settle", Outcome: "applied", State: "succeeded"}, answer)
	}
	_, err = decide(func(d *contract.RefundResolution) { d.ID = "late" })
	assert.Contains(t, refusal(t, contract.CodeBadResolution, err).Message, "possible now: nothing")
	_, err = decide(func(d *contract.RefundResolution) { d.Evidence, d.ChannelRef, d.Amount = "", "", 0 })
	assert.Len(t, refusal(t, contract.CodeBadResolution, err).Fields, 3, "every mistake at once")
	refund := s.told(id)
	assert.Equal(t, [2]string{"succeeded", "re_1"}, [2]string{string(refund.State), refund.ChannelRef})
	story := lines(t, refund.Story)
	assert.Contains(t, story[len(story)-1], "refund_person: ann decided: the money went back, reference re_1; it is on the statement "+
		"(evidence: line 7): the refund is now succeeded")

	t.Run("a refund whose run was terminated gets one by the decision", func(t *testing.T) {
		id = s.stuck("k2")
		require.NoError(t, s.temporal.TerminateWorkflow(s.ctx, contract.RefundWorkflowID("acme", id), "", "test"))
		var lost []string
		require.NoError(t, s.OpenRefundsWithoutRun(s.ctx, "acme", func(refund client.OpenRefund) error {
			lost = append(lost, refund.RefundID)
			return nil
		}))
		assert.Equal(t, []string{id}, lost)
		answer, err := decide(func(d *contract.RefundResolution) { d.Action, d.ChannelRef = contract.ActionRelease, "" })
		require.NoError(t, err)
		assert.Equal(t, contract.RefundFailed, answer.State)
	})
	t.Run("or by the same request", func(t *testing.T) {
		id = s.stuck("k3")
		require.NoError(t, s.temporal.TerminateWorkflow(s.ctx, contract.RefundWorkflowID("acme", id), "", "test"))
		again, err := s.RequestRefund(s.ctx, refundOf("o-1", 1000, "k3"))
		require.NoError(t, err)
		assert.False(t, again.Created)
		report, err := s.Audit(s.ctx, "acme")
		require.NoError(t, err)
		assert.Zero(t, report.Runs.RefundCount, "%+v", report.Runs)
	})
	s.sound()
}
