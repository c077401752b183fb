package runs

import (
	"context"

	"github.com/reclaimhq/reclaim/activities"
	starter "github.com/reclaimhq/reclaim/starter/client"
)

// Ledger proves the ledger for reconciliations, as audit does.
type Ledger struct{ *starter.Client }

var _ activities.Ledger = Ledger{}

// Prove hands on what an audit of the tenant finds broken.
func (l Ledger) Prove(ctx context.Context, tenant string, broken func(activities.LedgerBreak) error) (int64, error) {
	report, err := l.Audit(ctx, tenant)
	if err != nil {
		return 0, err
	}
	for _, b := range report.Breaks {
		if err := broken(activities.LedgerBreak{
			Rule: b.Check, Account: b.Account, JobID: b.JobID, OrderID: b.OrderID, RefundID: b.RefundID, Seq: b.Seq,
			Expected: b.Expected, Found: b.Found,
		}); err != nil {
			return report.Entries, err
		}
	}
	return report.Entries, nil
}
