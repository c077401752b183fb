package faults_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// settlementFile gets the channel's settlement file, as an operator does.
func (s *refundStage) settlementFile() []byte {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.ctx(), http.MethodGet, s.simulator.URL()+"/simulator/settlement", nil)
	require.NoError(s.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(s.t, http.StatusOK, response.StatusCode)
	content, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return content
}

func (s *refundStage) storeSettlement(content []byte) reclaim.StoredSettlement {
	s.t.Helper()
	stored, err := s.client.StoreSettlement(s.ctx(), reclaim.SettlementFile{
		Tenant: s.tenant, Channel: s.channel, Name: "settlement.csv", Actor: "test", Content: bytes.NewReader(content),
	})
	require.NoError(s.t, err)
	return stored
}

func TestASettlementFileIsHeldAgainstRefundsAndOrders(t *testing.T) {
	s := newRefundStage(t, silent)
	well := s.refund(100, life(step(0, "succeeded")))
	s.refundReaches(well, contract.RefundSucceeded)
	confirmed := s.refund(200, life(step(0, "pending"), step(time.Hour, "succeeded")))
	s.refundReaches(confirmed, contract.RefundPending)
	reversed := s.refund(300, life(step(0, "succeeded"), step(time.Hour, "failed")))
	s.refundReaches(reversed, contract.RefundSucceeded)
	s.simulator.Advance(2 * time.Hour)
	s.madeElsewhere(payment(order), 70)

	content := s.settlementFile()
	rows := bytes.SplitAfter(content, []byte("\n"))
	twice := slices.IndexFunc(rows, func(row []byte) bool { return bytes.Contains(row, []byte(well)) })
	require.Positive(t, twice)
	content = append(content, rows[twice]...)
	stored := s.storeSettlement(content)
	assert.Equal(t, "applied", stored.Verdict)
	request := contract.ReconcileRequest{Tenant: s.tenant, Settlement: &stored.Key}
	want := []string{
		"opened settlement_duplicate " + well, "opened settlement_late_reversal " + reversed, "opened settlement_missing_here " + order,
		"repaired settlement_status_differs " + confirmed,
	}
	slices.Sort(want)
	assert.Equal(t, want, s.reconcileAs(request))
	s.refundEndsAs(confirmed, contract.RefundSucceeded)
	assert.Equal(t, contract.RefundReversed, s.refundState(reversed))
	assert.Equal(t, []string{"refund_reversed", "settlement_duplicate", "unknown_refund"}, sorted(s.issues()))

	assert.Equal(t, "already", s.storeSettlement(content).Verdict)
	assert.Equal(t, []string{"known settlement_duplicate " + well, "known settlement_missing_here " + order},
		s.reconcileAs(request), "a second pass finds nothing new")
	result, err := s.client.Reconcile(s.ctx(), request)
	require.NoError(t, err)
	require.Len(t, result.Compared, 1, "only the settlement is compared")
	report := result.Compared[0].Settlement
	require.NotNil(t, report)
	assert.Equal(t, []int64{7, 5}, []int64{report.Lines, report.Matched})
	assert.Equal(t, []contract.SettlementRefunds{{Currency: currency, Theirs: "370", Ours: "300", Difference: "70", Explained: "70"}},
		report.Refunds)
	assert.Contains(t, report.Totals, contract.SettlementTotal{
		Kind: "payment", Currency: currency, Lines: 1, Gross: fmt.Sprint(paid), Fee: "0", Net: fmt.Sprint(paid), Difference: "0",
	})

	// A file that is none is refused, and keeps the other parts from nothing.
	stored = s.storeSettlement([]byte("no,settlement\n1,2\n"))
	result, err = s.client.Reconcile(s.ctx(), contract.ReconcileRequest{
		Tenant: s.tenant, Settlement: &stored.Key, Parts: []contract.ReconcilePart{contract.ReconcileLedger},
	})
	require.NoError(t, err)
	require.Len(t, result.Compared, 2)
	assert.Empty(t, result.Compared[0].Problem)
	assert.Contains(t, result.Compared[1].Problem, "the column reporting_category or type is missing")
	assert.Nil(t, result.Compared[1].Settlement)
	assert.False(t, result.Finished)
	assert.Zero(t, value[int](s.stage, `SELECT count(*) FROM reclaim.settlement_lines JOIN reclaim.settlement_files
		USING (tenant_id, file_no) WHERE tenant_id = $1 AND file_hash = $2`, s.tenant, stored.Key.Hash))
}

func TestASettlementOfAnUnknownChannelEndsAtOnceAndSaysSo(t *testing.T) {
	s := newRefundStage(t, silent)
	stored, err := s.client.StoreSettlement(s.ctx(), reclaim.SettlementFile{
		Tenant: s.tenant, Channel: "nobody", Name: "settlement.csv", Actor: "test", Content: bytes.NewReader(s.settlementFile()),
	})
	require.NoError(t, err)
	result, err := s.client.Reconcile(s.ctx(), contract.ReconcileRequest{Tenant: s.tenant, Settlement: &stored.Key})
	require.NoError(t, err)
	assert.False(t, result.Finished)
	problem := `channel "nobody": this worker has no such channel; the worker has these for tenant ` + s.tenant + ": " + s.channel
	require.Len(t, result.Compared, 1)
	assert.Contains(t, result.Compared[0].Problem, problem)
	pass, err := s.client.Findings(s.ctx(), s.tenant, "", func(reclaim.Finding) error { return nil })
	require.NoError(t, err)
	require.Len(t, pass.Unfinished, 1, "it is known afterwards too")
	assert.Contains(t, pass.Unfinished[0], "settlement nobody: "+problem)
}

func sorted(words []string) []string {
	slices.Sort(words)
	return words
}

func TestAWorkerKilledWhileItReadsASettlementIsGoneOnFor(t *testing.T) {
	s := refundKillStage(t, silent)
	first := s.startChild("", s.environment()...)
	refund := s.refund(100, life(step(0, "succeeded")))
	s.refundReaches(refund, contract.RefundSucceeded)
	content := s.settlementFile()
	const payouts = 20_000
	for i := range payouts {
		content = fmt.Appendf(content, "txn_po_%d,payout,po_%d,-1.00,0.00,-1.00,usd,%s,STRIPE PAYOUT,,\n", i, i, time.Now().UTC().Format(time.DateTime))
	}
	stored := s.storeSettlement(content)
	ended := make(chan error, 1)
	var result contract.ReconcileResult
	go func() {
		var err error
		result, err = s.client.Reconcile(s.ctx(), contract.ReconcileRequest{Tenant: s.tenant, Settlement: &stored.Key})
		ended <- err
	}()
	lines := func() int {
		return value[int](s.stage, "SELECT count(*) FROM reclaim.settlement_lines WHERE tenant_id = $1", s.tenant)
	}
	eventually(t, "some pages are kept", func() bool { return lines() > 0 })
	first.kill()
	kept := lines()
	require.Less(t, kept, payouts, "it was killed in between")
	pages := value[[]string](s.stage, `SELECT array_agg(line || ' ' || xmin ORDER BY line) FROM reclaim.settlement_lines
		WHERE tenant_id = $1`, s.tenant)
	s.startChild("", s.environment()...)
	require.NoError(t, <-ended)
	require.True(t, result.Finished, "%+v", result.Compared)
	assert.Equal(t, []int64{payouts + 2, 2}, []int64{result.Compared[0].Settlement.Lines, result.Compared[0].Settlement.Matched})
	assert.Equal(t, pages, value[[]string](s.stage, `SELECT array_agg(line || ' ' || xmin ORDER BY line) FROM reclaim.settlement_lines
		WHERE tenant_id = $1 AND line <= (SELECT max(split_part(page, ' ', 1)::int) FROM unnest($2::text[]) AS page)`, s.tenant, pages),
		"what was kept was not written again")
	assert.Empty(t, result.Found)
	s.refundEndsAs(refund, contract.RefundSucceeded)
}
