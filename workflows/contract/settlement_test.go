package contract_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestASettlementIsComparedAlone(t *testing.T) {
	key := &contract.SettlementKey{Channel: "sim", Hash: strings.Repeat("0a", 32)}
	alone := contract.ReconcileRequest{Tenant: "acme", Settlement: key}.WithDefaults()
	require.NoError(t, alone.Check())
	assert.Equal(t, []contract.ReconcilePart{contract.ReconcileSettlement}, alone.Parts)
	named := []contract.ReconcilePart{contract.ReconcileLedger}
	assert.Equal(t, []contract.ReconcilePart{contract.ReconcileLedger, contract.ReconcileSettlement},
		contract.ReconcileRequest{Tenant: "acme", Settlement: key, Parts: named}.WithDefaults().Parts)
	assert.Len(t, named, 1)
	assert.NotContains(t, contract.ReconcileRequest{Tenant: "acme"}.WithDefaults().Parts, contract.ReconcileSettlement)
	for raw, problem := range map[string]string{
		`{"tenant":"acme","parts":["settlement"]}`:                                    "settlement is missing",
		`{"tenant":"acme","settlement":{"channel":"sim","hash":"abc"}}`:               "settlement.hash must be the SHA-256",
		`{"tenant":"acme","settlement":{"channel":"","hash":"` + key.Hash + `"}}`:     "settlement.channel",
		`{"tenant":"acme","settlement":{"channel":"sim","file":"` + key.Hash + `"}}`:  "file",
		`{"tenant":"acme","settlement":{"channel":"sim","hash":"` + key.Hash + `A"}}`: "settlement.hash",
	} {
		_, err := contract.ParseReconcile([]byte(raw))
		require.Error(t, err, raw)
		assert.Equal(t, contract.CodeBadInput, contract.CodeOf(err))
		assert.Contains(t, err.Error(), problem)
	}
	require.NoError(t, contract.CheckSettlementSize(contract.MaxSettlementBytes))
	require.Error(t, contract.CheckSettlementSize(contract.MaxSettlementBytes+1))
	require.Error(t, contract.CheckSettlementSize(0))
}
