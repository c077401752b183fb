package bench

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
)

// DepthReport compares the charge on an account with a short history with that on one with a long one.
type DepthReport struct {
	ShortEntries int64 `json:"shortEntries"`
	LongEntries  int64 `json:"longEntries"`
	// Times of one charge, one after another; Ratio is the summed times of the long history's by the short one's.
	ShortMillis Quantiles `json:"shortMs"`
	LongMillis  Quantiles `json:"longMs"`
	Ratio       float64   `json:"ratio"`
}

// Depth charges two accounts by turns, one with a thousand entries and one with a million. The store must have no
// statement timeout: it makes the entries first.
func Depth(ctx context.Context, store *schema.Store) (DepthReport, error) {
	const short, long, charges = 1_000, 1_000_000, 1_000
	session := strings.ToLower(rand.Text()[:10])
	sides := []struct {
		account string
		entries int64
		times   []time.Duration
		sum     time.Duration
	}{{account: session + "-short", entries: short}, {account: session + "-long", entries: long}}
	for _, side := range sides {
		if err := store.FillAccount(ctx, db.FillAccountParams{
			TenantID: Tenant, AccountID: side.account, Entries: side.entries,
		}); err != nil {
			return DepthReport{}, fmt.Errorf("make an account of %d entries: %w", side.entries, err)
		}
	}
	for number := range charges {
		for i := range sides {
			// The first of each turn changes, so that neither account always follows the other.
			side := &sides[(i+number)%2]
			began := time.Now()
			row, err := store.ChargeJob(ctx, db.ChargeJobParams{
				TenantID: Tenant, JobID: fmt.Sprintf("%s-%d", side.account, number), AccountID: side.account, Cost: 1,
				Fingerprint: "bench", Spec: "{}", Reason: "bench", NotAfter: store.NotAfter(),
			})
			if err != nil || row.Answer != "applied" {
				return DepthReport{}, fmt.Errorf("charge %d answered %q: %w", number, row.Answer, schema.Classify("charge", err))
			}
			spent := time.Since(began)
			side.times, side.sum = append(side.times, spent), side.sum+spent
		}
	}
	// A charged job without a run would be reported by every later audit.
	for number := range charges {
		for _, side := range sides {
			if _, err := store.SettleJob(ctx, db.SettleJobParams{
				TenantID: Tenant, JobID: fmt.Sprintf("%s-%d", side.account, number), Attempt: 1, Reason: "bench",
				NotAfter: store.NotAfter(),
			}); err != nil {
				return DepthReport{}, schema.Classify("settle", err)
			}
		}
	}
	return DepthReport{
		ShortEntries: short, LongEntries: long, ShortMillis: quantiles(sides[0].times), LongMillis: quantiles(sides[1].times),
		Ratio: sides[1].sum.Seconds() / sides[0].sum.Seconds(),
	}, nil
}
