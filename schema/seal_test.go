package schema_test

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
)

func sealed() schema.SealedEntry {
	job := "job"
	return schema.SealedEntry{
		TenantID: "acme", AccountID: "team", Seq: 2, Type: "charge", Amount: "-40", BalanceAfter: "60", JobID: &job,
		Reason: "render", CreatedMicroseconds: "1767225600000001",
	}
}

// The format is a contract with every seal that was ever written: this is the hash of these very bytes.
func TestASealIsTheHashOfTheseBytes(t *testing.T) {
	t.Parallel()
	text := make([]byte, sha256.Size)
	for _, column := range []string{"acme", "team", "2", "charge", "-40", "60", "job", "NULL", "NULL", "render", "1767225600000001"} {
		if column == "NULL" {
			text = append(text, 255, 255, 255, 255, 255, 255, 255, 255)
			continue
		}
		text = append(append(text, 0, 0, 0, 0, 0, 0, 0, byte(len(column))), column...)
	}
	want := sha256.Sum256(text)
	assert.Equal(t, hex.EncodeToString(want[:]), hex.EncodeToString(sealed().Seal(schema.FirstSeal())))
}

func TestEveryColumnChangesTheSeal(t *testing.T) {
	t.Parallel()
	empty, other := "", "x"
	seen := map[string]string{}
	for name, change := range map[string]func(*schema.SealedEntry){
		"nothing":     func(*schema.SealedEntry) {},
		"tenant":      func(e *schema.SealedEntry) { e.TenantID = "acm" },
		"account":     func(e *schema.SealedEntry) { e.AccountID = "eteam" },
		"both":        func(e *schema.SealedEntry) { e.TenantID, e.AccountID = "acm", "eteam" },
		"seq":         func(e *schema.SealedEntry) { e.Seq = 3 },
		"type":        func(e *schema.SealedEntry) { e.Type = "reclaim" },
		"amount":      func(e *schema.SealedEntry) { e.Amount = "-41" },
		"balance":     func(e *schema.SealedEntry) { e.BalanceAfter = "59" },
		"job":         func(e *schema.SealedEntry) { e.JobID = &other },
		"no job":      func(e *schema.SealedEntry) { e.JobID = nil },
		"order":       func(e *schema.SealedEntry) { e.OrderID = &other },
		"empty order": func(e *schema.SealedEntry) { e.OrderID = &empty },
		"refund":      func(e *schema.SealedEntry) { e.RefundID = &other },
		"reason":      func(e *schema.SealedEntry) { e.Reason = "other" },
		"instant":     func(e *schema.SealedEntry) { e.CreatedMicroseconds = "1767225600000002" },
	} {
		entry := sealed()
		change(&entry)
		hash := hex.EncodeToString(entry.Seal(schema.FirstSeal()))
		assert.Empty(t, seen[hash], name)
		seen[hash] = name
	}
	first := sealed().Seal(schema.FirstSeal())
	assert.NotEqual(t, first, sealed().Seal(first), "the seal before is in it")
}

// A column that is added to the ledger must be sealed too, in a format that is told from this one.
func TestEveryColumnOfTheLedgerIsSealed(t *testing.T) {
	t.Parallel()
	_, admin := filled(t)
	columns := lines(t, admin, `SELECT column_name::text FROM information_schema.columns
		WHERE table_schema = 'reclaim' AND table_name = 'ledger_entries' ORDER BY ordinal_position`)
	require.Equal(t, []string{
		"tenant_id", "account_id", "seq", "type", "amount", "balance_after", "job_id", "order_id", "refund_id", "reason", "created_at",
	}, columns)
}
