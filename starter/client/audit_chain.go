package client

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// sealPage is how many seals are read at once: what bounds the memory of a verification.
const sealPage = 5000

// AuditChain tells about the chains of sealed entries, one for each tenant.
type AuditChain struct {
	Heads []ChainHead `json:"heads"`
}

// ChainHead is the end of a tenant's chain, to be kept elsewhere: whatever comes later, a chain that once had this head still
// has it.
type ChainHead struct {
	Tenant string `json:"tenant"`
	// Sealed is how many entries the chain has up to here, and Head the last one's hash in hexadecimal digits. Where the chain
	// is broken they are those of the last good one.
	Sealed int64  `json:"sealed"`
	Head   string `json:"head"`
	// Unsealed is how many entries of the tenant are not sealed yet.
	Unsealed int64 `json:"unsealed"`
}

// chainChecks are the rules about sealed entries.
var chainChecks = []AuditCheck{
	{Name: "seal_position", Rule: "the seals of a tenant are numbered from 1 without a gap"},
	{Name: "seal_entry", Rule: "each sealed entry is there"},
	{Name: "seal_hash", Rule: "each sealed entry is as it was sealed, on the seal before"},
	{Name: "seal_missing", Rule: "each entry before an account's last sealed one is sealed"},
	{Name: "seal_head", Rule: "each head that is expected is in a chain"},
}

// VerifyChain reads the chains of sealed entries from their beginning, those of a tenant or of all, and adds to the report what
// it finds: the first entry of each chain that is not as it was sealed, and which of the expected heads, in hexadecimal digits,
// are in no chain.
// Errors: BadInput (an expected head is no hash), Unavailable (Postgres did not answer).
func (c *Client) VerifyChain(ctx context.Context, report *AuditReport, expected []string) error {
	wanted := map[string]bool{}
	for _, head := range expected {
		hash, err := hex.DecodeString(head)
		if err != nil || len(hash) != len(schema.FirstSeal()) {
			return contract.NewError(contract.CodeBadInput, contract.RetryNever, fmt.Sprintf(
				"verify the chain: expectHead must be the 64 hexadecimal digits of a head that an audit showed, not %q", head), nil)
		}
		wanted[string(hash)] = true
	}
	chain, total := &AuditChain{Heads: []ChainHead{}}, map[string]int64{}
	broken := func(b AuditBreak) {
		total[b.Check]++
		report.Breaks = append(report.Breaks, b)
	}
	err := c.snapshot(ctx, "verify the chain", func(q *db.Queries) error {
		if _, err := q.PrepareAudit(ctx); err != nil {
			return fmt.Errorf("prepare the verification: %w", err)
		}
		tenants := []string{report.Tenant}
		if report.Tenant == "" {
			var err error
			if tenants, err = q.SealedTenants(ctx); err != nil {
				return fmt.Errorf("list the chains: %w", err)
			}
		}
		for _, tenant := range tenants {
			head, err := follow(ctx, q, tenant, wanted, broken)
			if err != nil {
				return err
			}
			chain.Heads = append(chain.Heads, head)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, head := range slices.Sorted(maps.Keys(wanted)) {
		broken(AuditBreak{
			Check: "seal_head", Tenant: report.Tenant, Expected: "a chain with the head " + hex.EncodeToString([]byte(head)),
			Found: "none, up to where the chains are whole",
		})
	}
	for _, check := range chainChecks {
		check.Broken = total[check.Name]
		report.Checks = append(report.Checks, check)
		report.Sound = report.Sound && check.Broken == 0
	}
	report.Chain = chain
	return nil
}

// follow reads a chain to its end, or to its first break, and takes the heads that it meets out of wanted.
func follow(
	ctx context.Context, q *db.Queries, tenant string, wanted map[string]bool, broken func(AuditBreak),
) (ChainHead, error) {
	head := ChainHead{Tenant: tenant}
	previous := schema.FirstSeal()
	whole := true
	for more := true; more && whole; {
		rows, err := q.SealedEntries(ctx, db.SealedEntriesParams{TenantID: tenant, AfterPosition: head.Sealed, AtMost: sealPage})
		if err != nil {
			return head, fmt.Errorf("read the chain of %s: %w", tenant, err)
		}
		more = len(rows) == sealPage
		for _, row := range rows {
			b := AuditBreak{Tenant: tenant, Account: row.AccountID, Seq: row.Seq}
			hash := schema.SealedEntry{
				TenantID: tenant, AccountID: row.AccountID, Seq: row.Seq, Type: row.Type, Amount: row.Amount,
				BalanceAfter: row.BalanceAfter, JobID: row.JobID, OrderID: row.OrderID, RefundID: row.RefundID, Reason: row.Reason,
				CreatedMicroseconds: row.CreatedUs,
			}.Seal(previous)
			switch {
			case row.Position != head.Sealed+1:
				b.Check, b.Expected = "seal_position", fmt.Sprintf("seal %d", head.Sealed+1)
				b.Found = fmt.Sprintf("seal %d next, of this entry", row.Position)
			case !row.IsThere:
				b.Check, b.Expected, b.Found = "seal_entry", fmt.Sprintf("the entry of seal %d", row.Position), "no entry"
			case !bytes.Equal(hash, row.Hash):
				b.Check, b.Expected = "seal_hash", fmt.Sprintf("seal %d, %x", row.Position, row.Hash)
				b.Found = fmt.Sprintf("%x: the entry was changed, or the seals before it were", hash)
			}
			if whole = b.Check == ""; !whole {
				broken(b)
				break
			}
			previous, head.Sealed = hash, row.Position
			delete(wanted, string(hash))
		}
	}
	head.Head = hex.EncodeToString(previous)
	skipped, err := q.UnsealedBelow(ctx, db.UnsealedBelowParams{TenantID: tenant, AtMost: 1})
	if err != nil {
		return head, fmt.Errorf("search for entries of %s that were put in: %w", tenant, err)
	}
	for _, entry := range skipped {
		broken(AuditBreak{
			Check: "seal_missing", Tenant: tenant, Account: entry.AccountID, Seq: entry.Seq,
			Expected: "a seal, since later entries of the account have one", Found: "none",
		})
	}
	if head.Unsealed, err = q.CountUnsealed(ctx, tenant); err != nil {
		return head, fmt.Errorf("count the entries of %s that are not sealed: %w", tenant, err)
	}
	return head, nil
}
