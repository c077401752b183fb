// Package sealer hashes ledger entries into their tenant's chain soon after they were written, so that whoever changes them
// later is found out. It costs the writing of entries nothing, since it only reads them.
package sealer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
)

const (
	// batch bounds the entries that are sealed in one transaction, and page the accounts that are looked at together.
	batch, page = 1000, 1000
	// overlap is how much of what was looked at before is looked at again: an entry's time is that of its writing, and it is
	// seen once its transaction is over.
	overlap = time.Minute
	// sweep is how often all accounts are looked at, for entries whose transactions took longer.
	sweep = time.Hour
)

// Sealer seals the entries of all tenants. Several of them, in as many processes, do not disturb each other.
type Sealer struct {
	store  *schema.Store
	logger *zap.Logger
	// Until when what was written is known to be sealed, and when all accounts were last looked at.
	sealedTo, swept time.Time
}

// New returns a Sealer on the store.
func New(store *schema.Store, logger *zap.Logger) *Sealer {
	return &Sealer{store: store, logger: logger}
}

// Run seals what is new, again and again with the pause between, until ctx ends.
func (s *Sealer) Run(ctx context.Context, every time.Duration) {
	for {
		if _, err := s.Seal(ctx); err != nil && ctx.Err() == nil {
			s.logger.Warn("entries could not be sealed", zap.Error(err), zap.Duration("again", every))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// Seal seals what was written until now and tells how many entries that were. Entries of a tenant that another sealer has in
// hand are left to it.
func (s *Sealer) Seal(ctx context.Context) (sealed int, err error) {
	began := s.store.Now()
	all := began.Sub(s.swept) >= sweep
	complete := true
	after := db.RecentAccountsRow{}
	for {
		accounts, last, err := s.accounts(ctx, all, after)
		if err != nil {
			return sealed, err
		}
		for _, tenant := range accounts {
			n, mine, err := s.sealTenant(ctx, tenant.id, tenant.accounts)
			sealed += n
			if err != nil {
				return sealed, err
			}
			complete = complete && mine
		}
		if last == (db.RecentAccountsRow{}) {
			break
		}
		after = last
	}
	if complete {
		s.sealedTo = began
		if all {
			s.swept = began
		}
	}
	return sealed, nil
}

type tenant struct {
	id       string
	accounts []string
}

// accounts gives the next accounts to look at, and the last of them; none where there are no more.
func (s *Sealer) accounts(
	ctx context.Context, all bool, after db.RecentAccountsRow,
) (tenants []tenant, last db.RecentAccountsRow, err error) {
	found := 0
	add := func(row db.RecentAccountsRow, wanted bool) {
		if found++; found == page {
			last = row
		}
		if !wanted {
			return
		}
		if n := len(tenants); n == 0 || tenants[n-1].id != row.TenantID {
			tenants = append(tenants, tenant{id: row.TenantID})
		}
		of := &tenants[len(tenants)-1]
		of.accounts = append(of.accounts, row.AccountID)
	}
	err = s.prepared(ctx, func(q *db.Queries) error {
		if all {
			rows, err := q.AccountsAfter(ctx, db.AccountsAfterParams{
				AfterTenant: after.TenantID, AfterAccount: after.AccountID, AtMost: page,
			})
			for _, row := range rows {
				add(db.RecentAccountsRow{TenantID: row.TenantID, AccountID: row.AccountID}, row.IsUnsealed)
			}
			return err
		}
		rows, err := q.RecentAccounts(ctx, db.RecentAccountsParams{
			Since: s.sealedTo.Add(-overlap), AfterTenant: after.TenantID, AfterAccount: after.AccountID, AtMost: page,
		})
		for _, row := range rows {
			add(row, true)
		}
		return err
	})
	if err != nil {
		return nil, last, fmt.Errorf("look for accounts with entries to seal: %w", err)
	}
	return tenants, last, nil
}

// prepared runs queries in a transaction in which they are planned for their values.
func (s *Sealer) prepared(ctx context.Context, run func(*db.Queries) error) error {
	return pgx.BeginFunc(ctx, s.store.Pool, func(tx pgx.Tx) error {
		q := s.store.WithTx(tx)
		if err := q.PrepareSealing(ctx); err != nil {
			return err
		}
		return run(q)
	})
}

// sealTenant seals all entries of the accounts that there are. It is not mine where another sealer has the tenant.
func (s *Sealer) sealTenant(ctx context.Context, tenant string, accounts []string) (sealed int, mine bool, err error) {
	for {
		n := 0
		err := s.prepared(ctx, func(q *db.Queries) (err error) {
			if mine, err = q.LockSealing(ctx, tenant); err != nil || !mine {
				return err
			}
			n, err = sealBatch(ctx, q, tenant, accounts)
			return err
		})
		if err != nil {
			return sealed, mine, fmt.Errorf("seal entries of tenant %s: %w", tenant, err)
		}
		if sealed += n; n < batch {
			return sealed, mine, nil
		}
	}
}

// sealBatch appends to the tenant's chain, which nobody else does meanwhile. An account's entries are committed in their order,
// so that whichever are seen, none is missing before them.
func sealBatch(ctx context.Context, q *db.Queries, tenant string, accounts []string) (int, error) {
	entries, err := q.UnsealedEntries(ctx, db.UnsealedEntriesParams{TenantID: tenant, Accounts: accounts, AtMost: batch})
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	head, err := q.SealHead(ctx, tenant)
	if errors.Is(err, pgx.ErrNoRows) {
		head, err = db.SealHeadRow{Hash: schema.FirstSeal()}, nil
	}
	if err != nil {
		return 0, err
	}
	seals := make([]db.AppendSealsParams, len(entries))
	for i, entry := range entries {
		head.Position++
		head.Hash = schema.SealedEntry{
			TenantID: tenant, AccountID: entry.AccountID, Seq: entry.Seq, Type: entry.Type, Amount: entry.Amount,
			BalanceAfter: entry.BalanceAfter, JobID: entry.JobID, OrderID: entry.OrderID, RefundID: entry.RefundID,
			Reason: entry.Reason, CreatedMicroseconds: entry.CreatedUs,
		}.Seal(head.Hash)
		seals[i] = db.AppendSealsParams{
			TenantID: tenant, Position: head.Position, AccountID: entry.AccountID, Seq: entry.Seq, Hash: head.Hash,
		}
	}
	_, err = q.AppendSeals(ctx, seals)
	return len(seals), err
}
