package runs

import (
	"context"
	"time"

	"github.com/reclaimhq/reclaim/activities"
	starter "github.com/reclaimhq/reclaim/starter/client"
)

// Ledger proves the ledger for reconciliations, as audit does.
type Ledger struct{ *starter.Client }

var _ activities.Ledger = Ledger{}

// Prove hands on what an audit finds broken in the tenant's ledger.
func (l Ledger) Prove(
	ctx context.Context, tenant string, wholeEvery time.Duration, broken func(activities.LedgerBreak) error,
) (activities.ProvenLedger, error) {
	report, err := l.ProveLedger(ctx, tenant, wholeEvery)
	proven := activities.ProvenLedger{Entries: report.Entries, NewSince: report.Checkpoint.Since, Doubt: report.Checkpoint.Doubt}
	if err != nil {
		return proven, err
	}
	for _, b := range report.Breaks {
		if err := broken(activities.LedgerBreak{
			Rule: b.Check, Account: b.Account, JobID: b.JobID, OrderID: b.OrderID, RefundID: b.RefundID, Seq: b.Seq,
			Expected: b.Expected, Found: b.Found,
		}); err != nil {
			return proven, err
		}
	}
	return proven, nil
}
