package contract_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestAPassIsMadeOfEverythingUnlessItIsSaid(t *testing.T) {
	request, err := contract.ParseReconcile([]byte(`{"tenant":"acme"}`))
	require.NoError(t, err)
	assert.Equal(t, contract.ReconcileRequest{
		Tenant: "acme", Parts: contract.ReconcileParts(), Window: contract.ReconcileWindow, Grace: contract.ReconcileGrace,
	}, request)

	request, err = contract.ParseReconcile([]byte(
		`{"tenant":"acme","parts":["ledger"],"since":"2026-05-01T00:00:00Z","window":"1h","grace":"1m","wholeEvery":"24h"}`))
	require.NoError(t, err)
	assert.Equal(t, contract.ReconcileRequest{
		Tenant: "acme", Parts: []contract.ReconcilePart{contract.ReconcileLedger}, Since: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC),
		Window: contract.Duration(time.Hour), Grace: contract.Duration(time.Minute), WholeEvery: contract.ReconcileWholeEvery,
	}, request)
}

func TestAPassIsRefusedByField(t *testing.T) {
	for field, raw := range map[string]string{
		"tenant":     `{}`,
		"parts":      `{"tenant":"acme","parts":["stars"]}`,
		"settlement": `{"tenant":"acme","parts":["settlement"]}`,
		"window":     `{"tenant":"acme","window":"-1s"}`,
		"grace":      `{"tenant":"acme","grace":"90000h"}`,
		"wholeEvery": `{"tenant":"acme","wholeEvery":"-1s"}`,
		"since":      `{"tenant":"acme","since":"2026-05-02T00:00:00Z","until":"2026-05-02T00:00:00Z"}`,
		"often":      `{"tenant":"acme","often":true}`,
	} {
		_, err := contract.ParseReconcile([]byte(raw))
		require.Equal(t, contract.CodeBadInput, contract.CodeOf(err), "%s: %v", field, err)
		assert.Contains(t, err.Error(), field)
	}
}

func FuzzParseReconcile(f *testing.F) {
	f.Add([]byte(`{"tenant":"acme","parts":["ledger","runs"],"window":"1h","grace":"1m","wholeEvery":"24h"}`))
	f.Add([]byte(`{"tenant":"acme","since":"2026-05-01T00:00:00Z","until":"9999-12-31T23:59:59.999999999+14:00"}`))
	f.Add([]byte(`{"tenant":"acme","settlement":{"tenant":"acme","channel":"stripe","hash":"00"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		request, err := contract.ParseReconcile(raw)
		if err != nil {
			canBeShown(t, err)
			return
		}
		if !contract.ValidID(request.Tenant) || len(request.Parts) == 0 || request.Window <= 0 || request.Grace <= 0 ||
			request.WholeEvery < 0 {
			t.Fatalf("a broken rule went through: %+v", request)
		}
		encoded, err := json.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := contract.ParseReconcile(encoded); err != nil && len(encoded) <= contract.MaxInputBytes {
			t.Fatalf("it cannot be sent again: %v", err)
		}
	})
}
