package activities

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Ledger proves the ledger's invariants.
type Ledger interface {
	// Prove calls broken for each place in the tenant's ledger where one does not hold, or for a bounded number of them for each
	// rule. With wholeEvery above 0 it proves what is new since the last sound audit of all tenants, and the tenant's whole ledger
	// where the last whole audit is older than that or where anything is suspect.
	Prove(ctx context.Context, tenant string, wholeEvery time.Duration, broken func(LedgerBreak) error) (ProvenLedger, error)
}

// ProvenLedger is what was looked at.
type ProvenLedger struct {
	// Entries is how many there were: the tenant's, or those of all tenants where only what is new was proven.
	Entries int64 `json:"entries"`
	// NewSince is when the audit was taken that this one built on; nil where it built on none.
	NewSince *time.Time `json:"newSince,omitempty"`
	// Doubt says why the tenant's whole ledger was proven though only what is new was asked for.
	Doubt string `json:"doubt,omitempty"`
}

// LedgerBreak is a place where an invariant does not hold. Rule is its name; Seq is 0 and the ids are empty where the break is
// not about one.
type LedgerBreak struct {
	Rule                              string
	Account, JobID, OrderID, RefundID string
	Seq                               int64
	Expected, Found                   string
}

// subject is what the break is about, the most particular first.
func (b LedgerBreak) subject() (kind, id string) {
	switch {
	case b.JobID != "":
		return "job", b.JobID
	case b.RefundID != "":
		return "refund", b.RefundID
	case b.OrderID != "":
		return "order", b.OrderID
	default:
		return "account", b.Account
	}
}

// ProveLedger proves the tenant's whole ledger and opens an issue for each invariant that a job, refund, order or account
// breaks. It answers how many entries it has looked at.
func (r *Reconciler) ProveLedger(ctx context.Context, key ReconciliationKey) (int64, error) {
	proven, err := r.proveLedger(ctx, key, 0)
	return proven.Entries, err
}

// NewEntriesRequest asks to prove what is new in the ledger.
type NewEntriesRequest struct {
	ReconciliationKey
	// WholeEveryUs is after how long all of it is proven again, in microseconds.
	WholeEveryUs int64 `json:"wholeEveryUs"`
}

// ProveNewEntries does what ProveLedger does, in a time that depends on what is new since the last sound audit of all tenants.
// Where something is suspect, it proves the tenant's whole ledger; another tenant's is left to that one's passes.
func (r *Reconciler) ProveNewEntries(ctx context.Context, q NewEntriesRequest) (ProvenLedger, error) {
	return r.proveLedger(ctx, q.ReconciliationKey, time.Duration(q.WholeEveryUs)*time.Microsecond)
}

func (r *Reconciler) proveLedger(ctx context.Context, key ReconciliationKey, wholeEvery time.Duration) (ProvenLedger, error) {
	if err := ownReconciliation(ctx, key.Tenant); err != nil {
		return ProvenLedger{}, err
	}
	// A proof is one long statement after another, which tell nothing of how far they are.
	stop := beat(ctx)
	defer stop()
	return r.ledger.Prove(ctx, key.Tenant, wholeEvery, func(b LedgerBreak) error {
		kind, id := b.subject()
		particular, where := "", ""
		if b.Seq > 0 {
			particular = b.Account + ":" + strconv.FormatInt(b.Seq, 10)
			where = fmt.Sprintf("entry %d of account %s: ", b.Seq, b.Account)
		}
		_, err := r.record(ctx, key, finding{
			kind: b.Rule, subjectKind: kind, subject: id, particular: particular,
			detail: fmt.Sprintf("%sexpected %s, found %s", where, b.Expected, b.Found), issue: issueOf(b.Rule, id, particular),
		})
		return err
	})
}
