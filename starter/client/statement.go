package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// StatementQuery asks for an account's statement, or for a part of its entries.
type StatementQuery struct {
	Tenant, Account string
	// Period is what the statement covers; the zero value is everything up to now, in UTC.
	Period Period
	// After leaves out the entries up to this seq, which the caller has already. Opening and closing stay the period's.
	After int64
	// Limit ends the entries early, after so many; 0 means no limit.
	Limit int64
}

// Statement is what happened to an account in a period: Opening plus the amounts of all its entries is Closing.
type Statement struct {
	// Account is the account as it stood at the period's end: its Balance is Closing, and its Entries ClosingSeq.
	Account Account
	Period  Period
	// Opening is the balance before the period's first entry, Closing the one after its last, and OpeningSeq and ClosingSeq
	// are the seq of the entries that left them, 0 before the account's first. The period's entries are those in between,
	// the last included.
	OpeningSeq, Opening int64
	ClosingSeq, Closing int64

	client *Client
	query  StatementQuery
}

// Statement finds where a period begins and ends in an account's entries, and with which balances. It reads no entries yet:
// the Statement's methods do, as often as they are called.
//
// Every entry is in exactly one of two adjacent periods, even where the clock that dated the entries once stepped back.
// Entries that are made meanwhile change nothing: an open end means the newest entry of now. A period that has ended is
// answered the same for ever, unless Postgres' clock is put back over its end; an entry that was under way at the end
// itself may still be committed in the seconds after it (schema.MoneyAttempt).
//
// Errors: BadInput, NotFound, Forbidden, Unavailable.
func (c *Client) Statement(ctx context.Context, query StatementQuery) (*Statement, error) {
	if err := together(
		contract.CheckID("tenant", query.Tenant), contract.CheckID("account", query.Account), query.Period.check(),
		notNegative("after", query.After), notNegative("limit", query.Limit),
	); err != nil {
		return nil, err
	}
	row, err := c.store.OpenStatement(ctx, db.OpenStatementParams{
		TenantID: query.Tenant, AccountID: query.Account, FromAt: givenEdge(query.Period.From), ToAt: givenEdge(query.Period.To),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, noAccount(query.Tenant, query.Account)
	}
	if err != nil {
		return nil, unavailable("read account "+query.Account, err)
	}
	return &Statement{
		Account: Account{row.TenantID, row.AccountID, row.Asset, row.Closing, row.ClosingSeq, row.CreatedAt.UTC()},
		Period:  query.Period, OpeningSeq: row.OpeningSeq, Opening: row.Opening, ClosingSeq: row.ClosingSeq, Closing: row.Closing,
		client: c, query: query,
	}, nil
}

func notNegative(field string, n int64) error {
	if n < 0 {
		return contract.BadField(field, fmt.Sprintf("must be 0 or more, not %d", n))
	}
	return nil
}

// givenEdge is an end of a period as the query takes it: no value where it is open.
func givenEdge(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = wholeMicros(at)
	return &at
}

// Entries calls each for every entry of the period that the query asked for, oldest first, with its instant in the period's
// time zone, and holds only a page of them at a time. next is where the limit ended it early: the After of the query that
// goes on from there. It is 0 where the period's end was reached.
//
// Whatever it calls each for follows the entry before without a gap, in seq and in balance. Where the ledger does not, it
// ends with an error, as it does where Postgres cannot be read (Unavailable; a page that fails for the moment is read
// again), or with what each returned.
func (s *Statement) Entries(ctx context.Context, each func(Entry) error) (next int64, err error) {
	const page = 1000
	last := s.ClosingSeq
	at := min(max(s.OpeningSeq, s.query.After), last)
	limited := s.query.Limit > 0 && s.query.Limit < last-at
	if limited {
		last = at + s.query.Limit
	}
	known, balance := at == s.OpeningSeq, s.Opening
	for at < last {
		rows, err := s.page(ctx, at, min(last-at, page))
		if err != nil {
			return 0, err
		}
		if len(rows) == 0 {
			return 0, s.broken("entry %d is missing", at+1)
		}
		for _, row := range rows {
			if row.Seq != at+1 {
				return 0, s.broken("entry %d is missing", at+1)
			}
			if known && row.BalanceAfter != balance+row.Amount {
				return 0, s.broken("entry %d moves %d from %d and leaves %d", row.Seq, row.Amount, balance, row.BalanceAfter)
			}
			at, known, balance = row.Seq, true, row.BalanceAfter
			if err := each(s.entry(row)); err != nil {
				return 0, err
			}
		}
	}
	if limited {
		return at, nil
	}
	return 0, nil
}

// page reads entries that the statement is known to have. They never change, so that reading them again is safe.
func (s *Statement) page(ctx context.Context, after, size int64) ([]db.ReclaimLedgerEntry, error) {
	return persist(ctx, "read the entries of account "+s.query.Account, func(ctx context.Context) ([]db.ReclaimLedgerEntry, error) {
		return s.client.store.ListEntries(ctx, db.ListEntriesParams{
			TenantID: s.query.Tenant, AccountID: s.query.Account, AfterSeq: after, PageSize: int32(size),
		})
	})
}

func (s *Statement) entry(row db.ReclaimLedgerEntry) Entry {
	entry := entryOf(row)
	entry.CreatedAt = entry.CreatedAt.In(s.Period.zone())
	return entry
}

func (s *Statement) broken(format string, args ...any) error {
	return contract.NewError(contract.CodeUnavailable, contract.RetryNever, fmt.Sprintf(
		"the ledger of account %s is broken: %s; audit says more", s.query.Account, fmt.Sprintf(format, args...)), nil)
}
