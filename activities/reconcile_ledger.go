package activities

import (
	"context"
	"fmt"
	"strconv"
)

// Ledger proves the ledger's invariants.
type Ledger interface {
	// Prove calls broken for each place where one does not hold, or for a bounded number of them for each rule, and answers how
	// many entries there are.
	Prove(ctx context.Context, tenant string, broken func(LedgerBreak) error) (entries int64, err error)
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

// ProveLedger proves the tenant's ledger and opens an issue for each invariant that a job, refund, order or account breaks. It
// answers how many entries it has looked at.
func (r *Reconciler) ProveLedger(ctx context.Context, key ReconciliationKey) (int64, error) {
	if err := ownReconciliation(ctx, key.Tenant); err != nil {
		return 0, err
	}
	// A proof is one long statement after another, which tell nothing of how far they are.
	stop := beat(ctx)
	defer stop()
	return r.ledger.Prove(ctx, key.Tenant, func(b LedgerBreak) error {
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
