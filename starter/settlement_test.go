package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestASettlementFileIsStoredBeforeTheReconciliation(t *testing.T) {
	t.Parallel()
	c := newTerminal(t)
	path := filepath.Join(t.TempDir(), "july.csv")
	require.NoError(t, os.WriteFile(path, []byte("type,source\n"), 0o600))
	for _, args := range [][]string{{"--settlement", path}, {"--channel", "sim"}} {
		got := c.run(append([]string{"reconcile"}, args...)...)
		assert.Equal(t, statusUsage, got.status)
		assert.Contains(t, got.stderr, "give --settlement FILE and --channel NAME together")
	}
	c.refused("BadInput", "reconcile", "--part", "settlement")
	assert.Contains(t, c.refused("BadInput", "reconcile", "--since", "may")["message"], "since must be an RFC 3339 instant")
	assert.Contains(t, c.refused("BadInput", "reconcile", "--until", "may")["message"], "until must be an RFC 3339 instant")
	assert.Contains(t, c.refused("BadInput", "reconcile", "--since", "2026-07-02", "--until", "2026-07-01")["message"], "since must be before until")
	take := func(file string) []string {
		return []string{"reconcile", "--settlement", file, "--channel", "sim", "--timeout", "5s"}
	}
	c.refused("BadInput", take(path+".none")...)
	c.refused("BadInput", take(t.TempDir())...)
	c.refused("BadInput", take("-")...) // nothing comes
	large := filepath.Join(t.TempDir(), "large.csv")
	require.NoError(t, os.WriteFile(large, nil, 0o600))
	require.NoError(t, os.Truncate(large, contract.MaxSettlementBytes+1))
	assert.Contains(t, c.refused("BadInput", take(large)...)["message"], "over 256 MB")

	// Temporal is away: the file is there for the next try.
	c.refused("Unavailable", take(path)...)
	c.stdin = "type,source\nmore\n"
	c.refused("Unavailable", take("-")...)
	c.env["RECLAIM_ACTOR"] = ""
	assert.Equal(t, statusUsage, c.run(take(path)...).status)
}

func TestTheTableOfASettlement(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	at := time.Date(2026, 7, 31, 10, 0, 0, 0, time.UTC)
	reconciliationTable(w, reconciliation{
		Tenant: "acme", ReconciliationID: "r1",
		Settlement: &client.StoredSettlement{
			Key: contract.SettlementKey{Channel: "sim", Hash: strings.Repeat("a", 64)}, Verdict: "already", Name: "july.csv", Bytes: 812,
			Actor: "ann", StoredAt: at,
		},
		Result: &contract.ReconcileResult{Since: at, Until: at, Compared: []contract.ReconcileCompared{{
			Part: contract.ReconcileSettlement, Channel: "sim", Ours: 3, Theirs: 9, Settlement: &contract.SettlementReport{
				Lines: 9, Matched: 2, Superseded: 1, OtherTenants: 4, Unassigned: 1, MoreTotals: 7,
				Totals: []contract.SettlementTotal{
					{Kind: "refund", Currency: "eur", Lines: 1, Gross: "-10", Fee: "2", Net: "-10", Difference: "-2"},
				},
				Refunds: []contract.SettlementRefunds{{Currency: "eur", Theirs: "10", Ours: "0", Difference: "10", Explained: "10"}},
			},
		}}},
	})
	require.NoError(t, w.Flush())
	for _, line := range []string{
		"july.csv of sim, 812 bytes, already stored at 2026-07-31T10:00:00Z by ann", "3 here, 9 there",
		"9, 2 matched, 1 superseded by later files, 4 of other tenants, 1 of no tenant",
		"refund: 1 line, gross -10, fees 2, net -10 eur, which do not add up by -2", "… 7 more kinds",
		"10 there, 0 here, difference 10 eur, of which findings explain 10",
	} {
		assert.Contains(t, text.String(), line)
	}
}
