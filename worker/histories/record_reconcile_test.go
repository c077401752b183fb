package histories

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/activities/channel/stripe"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// TestRecordReconciliations records a pass of every part, in which a refund is found at the channel that nobody asked for, and
// one over a settlement file.
func TestRecordReconciliations(t *testing.T) {
	server := start(t)
	far, err := simulator.Start(simulator.Options{})
	require.NoError(t, err)
	defer func() { _ = far.Close() }()
	adapter, err := stripe.New(stripe.Options{APIKey: "sk_test_simulator", BaseURL: far.URL()})
	require.NoError(t, err)
	pace := adapter.Capabilities()
	pace.FirstQuery, pace.Poll = 500*time.Millisecond, []time.Duration{500 * time.Millisecond}
	server.decide(t, channel.NewSet(map[string]channel.Member{"simulated": {Channel: channel.Declare(adapter, pace)}}))
	ctx := t.Context()
	require.NoError(t, far.AddPayment(simulator.Payment{Intent: "pi_order", Amount: 1000, Currency: "eur"}))
	_, err = server.client.AddOrder(ctx, contract.Order{
		Tenant: tenant, OrderID: "order", Account: account, Channel: "simulated", Payment: "pi_order", Currency: "eur",
		Paid: 1000, Credits: 100, Actor: "recorder", Key: "order",
	})
	require.NoError(t, err)
	_, err = server.client.RequestRefund(ctx, contract.RefundRequest{
		Tenant: tenant, Actor: "recorder", Key: "refund", OrderID: "order", Amount: 500, Reason: "recorded",
	})
	require.NoError(t, err)
	until(t, server.client, contract.RefundNumber(tenant, "recorder", "refund"), func(r client.Refund) bool {
		return r.State == contract.RefundSucceeded
	})
	result, err := server.client.Reconcile(ctx, contract.ReconcileRequest{Tenant: tenant})
	require.NoError(t, err)
	require.True(t, result.Finished, "%+v", result)
	save(t, server.temporal, contract.ReconcileWorkflowID(tenant), "reconciliation")
	// The second of these goes on from the checkpoint that the first has made.
	for range 2 {
		result, err = server.client.Reconcile(ctx, contract.ReconcileRequest{
			Tenant: tenant, Parts: []contract.ReconcilePart{contract.ReconcileLedger}, WholeEvery: contract.ReconcileWholeEvery,
		})
		require.NoError(t, err)
	}
	require.NotNil(t, result.Compared[0].NewSince, "%+v", result)
	save(t, server.temporal, contract.ReconcileWorkflowID(tenant), "reconciliation_of_what_is_new")
	stored, err := server.client.StoreSettlement(ctx, client.SettlementFile{
		Tenant: tenant, Channel: "simulated", Name: "recorded.csv", Actor: "recorder", Content: bytes.NewReader(far.Settlement()),
	})
	require.NoError(t, err)
	result, err = server.client.Reconcile(ctx, contract.ReconcileRequest{Tenant: tenant, Settlement: &stored.Key})
	require.NoError(t, err)
	require.True(t, result.Finished, "%+v", result)
	save(t, server.temporal, contract.ReconcileWorkflowID(tenant), "reconciliation_of_a_settlement")
}
