package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/big"

	"github.com/reclaimhq/reclaim/schema/db"
)

// proofs counts what there is, and tells whether all of it is sound. Each table is read once, in any order: what its rows
// say of others is compared by sums of hashes under a secret that nobody knows before.
func (r *AuditReport) proofs(ctx context.Context, q *db.Queries) (sound bool, err error) {
	var secret [8]byte
	_, _ = rand.Read(secret[:]) // it never fails
	what := db.ProveEntriesParams{OnlyTenant: r.Tenant, Secret: int64(binary.BigEndian.Uint64(secret[:]))}
	entries, err := q.ProveEntries(ctx, what)
	if err != nil {
		return false, fmt.Errorf("prove the entries: %w", err)
	}
	accounts, err := q.ProveAccounts(ctx, db.ProveAccountsParams(what))
	if err != nil {
		return false, fmt.Errorf("prove the accounts: %w", err)
	}
	jobs, err := q.ProveJobs(ctx, db.ProveJobsParams(what))
	if err != nil {
		return false, fmt.Errorf("prove the jobs: %w", err)
	}
	operations, err := q.ProveOperations(ctx, db.ProveOperationsParams(what))
	if err != nil {
		return false, fmt.Errorf("prove the operations: %w", err)
	}
	orders, err := q.ProveOrders(ctx, db.ProveOrdersParams(what))
	if err != nil {
		return false, fmt.Errorf("prove the orders: %w", err)
	}
	refunds, err := q.ProveRefunds(ctx, db.ProveRefundsParams{OnlyTenant: what.OnlyTenant, Secret: what.Secret})
	if err != nil {
		return false, fmt.Errorf("prove the refunds: %w", err)
	}
	events, err := q.ProveRefundEvents(ctx, db.ProveRefundEventsParams(what))
	if err != nil {
		return false, fmt.Errorf("prove the events of refunds: %w", err)
	}
	r.Accounts, r.Entries, r.Jobs, r.Operations = accounts.Accounts, entries.Entries, jobs.Jobs, operations.Operations
	r.Orders, r.Refunds = orders.Orders, refunds.Refunds
	sound = entries.Unfit+jobs.Unfit+operations.Unfit+orders.Unfit+refunds.Unfit+events.Unfit+refunds.SharedReferences == 0
	for _, sums := range []struct{ left, right []string }{
		{[]string{entries.Arrives, accounts.Arrives}, []string{entries.Begins, accounts.Begins}},
		{[]string{entries.Moved}, []string{jobs.Moved, refunds.Moved}},
		{[]string{entries.Operated}, []string{operations.Operated}},
		{[]string{entries.Bought}, []string{orders.Bought}},
		{[]string{orders.Reserved}, []string{refunds.Reserved}},
		{[]string{orders.ReservedCredits}, []string{refunds.ReservedCredits}},
		{[]string{orders.Refunded}, []string{refunds.Refunded}},
		{[]string{orders.RefundedCredits}, []string{refunds.RefundedCredits}},
		{[]string{events.Arrives, refunds.Arrives}, []string{events.Begins, refunds.Begins}},
	} {
		left, err := sum(sums.left)
		if err != nil {
			return false, err
		}
		right, err := sum(sums.right)
		if err != nil {
			return false, err
		}
		sound = sound && left.Cmp(right) == 0
	}
	return sound, nil
}

// sum adds whole numbers of any length, as Postgres writes them.
func sum(texts []string) (*big.Int, error) {
	total := new(big.Int)
	for _, text := range texts {
		number, ok := new(big.Int).SetString(text, 10)
		if !ok {
			return nil, fmt.Errorf("the database answered the sum %q, which is no whole number", text)
		}
		total.Add(total, number)
	}
	return total, nil
}
