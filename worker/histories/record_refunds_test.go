package histories

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/activities/channel/stripe"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// refundStories are what is recorded of channel refunds: how the channel treats each, and what a person sends meanwhile.
var refundStories = map[string]struct {
	script  simulator.Script
	channel string
	end     contract.RefundState
	decide  []contract.RefundResolution
	notice  *contract.ChannelNotice
}{
	"refund_confirmed_by_looking": {end: contract.RefundSucceeded, script: simulator.Script{
		Life: []simulator.Step{{Status: "pending"}, {After: time.Second, Status: "succeeded"}},
	}},
	"refund_answer_lost": {end: contract.RefundSucceeded, script: simulator.Script{
		Create: []simulator.Fault{{Kind: simulator.FaultHTML, Applied: true}},
	}},
	"refund_failed": {end: contract.RefundFailed, script: simulator.Script{
		Life: []simulator.Step{{Status: "pending"}, {After: time.Second, Status: "failed"}},
	}},
	"refund_told_by_notice": {end: contract.RefundSucceeded,
		script: simulator.Script{Life: []simulator.Step{{Status: "pending"}, {After: time.Hour, Status: "succeeded"}}},
		notice: &contract.ChannelNotice{ID: "evt_1", Outcome: contract.NoticeSucceeded, Amount: 500, Currency: "eur"},
	},
	"refund_settled_by_a_person": {end: contract.RefundSucceeded,
		script: simulator.Script{
			Create: []simulator.Fault{{Kind: simulator.FaultHTML, Applied: true}},
			Lookup: []simulator.Fault{{Kind: simulator.FaultError, Times: -1}},
		},
		decide: []contract.RefundResolution{
			{ID: "r-1", Action: contract.ActionExtend, Reason: "the channel has an incident"},
			{ID: "r-2", Action: contract.ActionSettle, Reason: "seen there", Evidence: "dashboard", ChannelRef: "re_1", Amount: 500},
		},
	},
	"refund_withdrawn": {end: contract.RefundCanceled, channel: "not-configured",
		decide: []contract.RefundResolution{{ID: "r-1", Action: contract.ActionCancel, Reason: "asked for by mistake"}},
	},
}

func TestRecordRefunds(t *testing.T) {
	server := start(t)
	far, err := simulator.Start(simulator.Options{})
	require.NoError(t, err)
	defer func() { _ = far.Close() }()
	adapter, err := stripe.New(stripe.Options{
		APIKey: "sk_test_simulator", WebhookSecrets: []string{"whsec_simulator"}, BaseURL: far.URL(),
	})
	require.NoError(t, err)
	pace := adapter.Capabilities()
	pace.FirstQuery, pace.Poll, pace.GiveUp = 500*time.Millisecond, []time.Duration{500 * time.Millisecond}, 2*time.Second
	pace.MinSpacing, pace.SearchLag = 100*time.Millisecond, 100*time.Millisecond
	server.decide(t, channel.NewSet(map[string]channel.Member{"simulated": {Channel: channel.Declare(adapter, pace)}}))
	for name, story := range refundStories {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			payment := "pi_" + name
			require.NoError(t, far.AddPayment(simulator.Payment{Intent: payment, Amount: 1000, Currency: "eur"}))
			number := contract.RefundNumber(tenant, "recorder", name)
			far.Script(number, story.script)
			order := contract.Order{
				Tenant: tenant, OrderID: name, Account: account, Channel: "simulated", Payment: payment, Currency: "eur",
				Paid: 1000, Credits: 100, Actor: "recorder", Key: name,
			}
			if story.channel != "" {
				order.Channel = story.channel
			}
			_, err := server.client.AddOrder(ctx, order)
			require.NoError(t, err)
			_, err = server.client.RequestRefund(ctx, contract.RefundRequest{
				Tenant: tenant, Actor: "recorder", Key: name, OrderID: name, Amount: 500, Reason: "recorded",
			})
			require.NoError(t, err)
			workflowID := contract.RefundWorkflowID(tenant, number)
			for _, decision := range story.decide {
				until(t, server.client, number, func(r client.Refund) bool { return r.NeedsReview })
				decision.Operator = "ann"
				_, err := server.client.ResolveRefund(ctx, tenant, number, decision)
				require.NoError(t, err)
			}
			if story.notice != nil {
				until(t, server.client, number, func(r client.Refund) bool { return r.State == contract.RefundPending })
				require.NoError(t, server.temporal.SignalWorkflow(ctx, workflowID, "", contract.ChannelNoticeSignal, story.notice))
			}
			var result contract.RefundResult
			require.NoError(t, server.temporal.GetWorkflow(ctx, workflowID, "").Get(ctx, &result))
			require.Equal(t, story.end, result.State)
			save(t, server.temporal, workflowID, name)
		})
	}
}

func until(t *testing.T, reclaim *client.Client, number string, holds func(client.Refund) bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		refund, err := reclaim.Refund(t.Context(), tenant, number)
		return err == nil && holds(refund)
	}, 2*time.Minute, 20*time.Millisecond, fmt.Sprintf("refund %s", number))
}
