package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Account is an account as it stands. Balance is in the asset's smallest unit; a negative one is a debt.
type Account struct {
	Tenant    string    `json:"tenant"`
	Account   string    `json:"account"`
	Asset     string    `json:"asset"`
	Balance   int64     `json:"balance"`
	Entries   int64     `json:"entries"`
	CreatedAt time.Time `json:"createdAt"`
}

// Account reads an account. Errors: NotFound, Unavailable.
func (c *Client) Account(ctx context.Context, tenant, account string) (Account, error) {
	if err := together(contract.CheckID("tenant", tenant), contract.CheckID("account", account)); err != nil {
		return Account{}, err
	}
	row, err := c.store.GetAccount(ctx, db.GetAccountParams{TenantID: tenant, AccountID: account})
	if errors.Is(err, pgx.ErrNoRows) {
		return Account{}, noAccount(tenant, account)
	}
	if err != nil {
		return Account{}, unavailable("read account "+account, err)
	}
	return Account{row.TenantID, row.AccountID, row.Asset, row.Balance, row.Seq, row.CreatedAt.UTC()}, nil
}

func noAccount(tenant, account string) error {
	return contract.NewError(contract.CodeNotFound, contract.RetryNever,
		fmt.Sprintf("tenant %s has no account %s: a top-up creates it", tenant, account), nil)
}

// Entry is one ledger entry, in the words of the ledger.
type Entry struct {
	Seq          int64     `json:"seq"`
	Type         string    `json:"type"`
	Amount       int64     `json:"amount"`
	BalanceAfter int64     `json:"balanceAfter"`
	JobID        string    `json:"jobId,omitempty"`
	OrderID      string    `json:"orderId,omitempty"`
	RefundID     string    `json:"refundId,omitempty"`
	Reason       string    `json:"reason"`
	CreatedAt    time.Time `json:"createdAt"`
}

// Entries calls each for every entry of the account after the one numbered after, oldest first, page by page. An error of
// each ends it and is returned as it is. Errors: BadInput, Unavailable; an unknown account has no entries.
func (c *Client) Entries(ctx context.Context, tenant, account string, after int64, each func(Entry) error) error {
	if err := together(contract.CheckID("tenant", tenant), contract.CheckID("account", account)); err != nil {
		return err
	}
	page := db.ListEntriesParams{TenantID: tenant, AccountID: account, AfterSeq: after, PageSize: 1000}
	for {
		rows, err := c.store.ListEntries(ctx, page)
		if err != nil {
			return unavailable("read the entries of account "+account, err)
		}
		for _, row := range rows {
			page.AfterSeq = row.Seq
			if err := each(entryOf(row)); err != nil {
				return err
			}
		}
		if len(rows) < int(page.PageSize) {
			return nil
		}
	}
}

func entryOf(row db.ReclaimLedgerEntry) Entry {
	return Entry{
		Seq: row.Seq, Type: row.Type, Amount: row.Amount, BalanceAfter: row.BalanceAfter, Reason: row.Reason,
		JobID: text(row.JobID), OrderID: text(row.OrderID), RefundID: text(row.RefundID),
		CreatedAt: row.CreatedAt.UTC(),
	}
}

func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

// Movement is a top-up or an adjustment that a caller asks for, named by its operation key: tenant, actor and key stand
// for one movement for ever.
type Movement struct {
	Tenant  string
	Actor   string
	Account string
	// Key is the caller's idempotency key, 1 to 200 bytes.
	Key string
	// Amount is in the asset's smallest unit: above 0 for a top-up, not 0 for an adjustment; at most contract.MaxCost.
	Amount int64
	// Asset is what the account holds; empty means CREDIT. Adjustments leave it out.
	Asset string
	// Reason is one line for the reader of a statement. An adjustment needs it, and Operator with it.
	Reason   string
	Operator string
}

// Moved is the ledger entry that a movement made. Already is true where it had been made before.
type Moved struct {
	Already      bool  `json:"already"`
	Seq          int64 `json:"seq"`
	BalanceAfter int64 `json:"balanceAfter"`
}

// TopUp adds credits to an account, which it creates if need be. Repeating it under the same key is safe. Errors:
// BadInput (a rule is broken, the account holds another asset, or it would hold more than contract.MaxCost), Conflict
// (the key stands for another top-up), Unavailable.
func (c *Client) TopUp(ctx context.Context, m Movement) (Moved, error) {
	if m.Asset == "" {
		m.Asset = "CREDIT"
	}
	if m.Reason == "" {
		m.Reason = "top-up"
	}
	if err := together(
		checkMovement(m, 1),
		contract.CheckID("asset", m.Asset), contract.CheckText("reason", m.Reason, contract.MaxReasonBytes),
	); err != nil {
		return Moved{}, err
	}
	tried := "top up account " + m.Account
	return c.move(ctx, tried, m, func(ctx context.Context, notAfter time.Time) (movedRow, error) {
		row, err := c.store.TopUpAccount(ctx, db.TopUpAccountParams{
			TenantID: m.Tenant, AccountID: m.Account, Actor: m.Actor, Key: m.Key, Asset: m.Asset, Amount: m.Amount,
			Fingerprint: contract.Fingerprint("account", m.Account, "amount", strconv.FormatInt(m.Amount, 10), "asset", m.Asset),
			Reason:      m.Reason, NotAfter: notAfter,
		})
		return movedRow(row), err
	})
}

// Adjust corrects a balance by a person's decision. Errors as for TopUp, and NotFound for an unknown account.
func (c *Client) Adjust(ctx context.Context, m Movement) (Moved, error) {
	// The entry's reason names the operator too.
	const longestReason = contract.MaxReasonBytes - 300
	if err := together(
		checkMovement(m, -contract.MaxCost),
		contract.CheckText("operator", m.Operator, 200), contract.CheckText("reason", m.Reason, longestReason),
	); err != nil {
		return Moved{}, err
	}
	tried := "adjust account " + m.Account
	return c.move(ctx, tried, m, func(ctx context.Context, notAfter time.Time) (movedRow, error) {
		row, err := c.store.AdjustAccount(ctx, db.AdjustAccountParams{
			TenantID: m.Tenant, AccountID: m.Account, Actor: m.Actor, Key: m.Key, Amount: m.Amount,
			Fingerprint: contract.Fingerprint("account", m.Account, "amount", strconv.FormatInt(m.Amount, 10)),
			Reason:      fmt.Sprintf("%s (%s)", m.Reason, m.Operator), NotAfter: notAfter,
		})
		return movedRow(row), err
	})
}

func checkMovement(m Movement, least int64) error {
	return together(
		contract.CheckOwner(m.Tenant), contract.CheckID("account", m.Account),
		contract.CheckText("actor", m.Actor, 200), contract.CheckText("key", m.Key, 200),
		checkAmount(m.Amount, least),
	)
}

func checkAmount(amount, least int64) error {
	if amount != 0 && amount >= least && amount <= contract.MaxCost {
		return nil
	}
	not0 := ""
	if least < 0 {
		not0 = " and not 0"
	}
	rule := fmt.Sprintf("must be a whole number of the smallest unit from %d to %d%s, not %d", least, contract.MaxCost, not0, amount)
	return contract.BadField("amount", rule)
}

// movedRow is the row that both movements answer.
type movedRow db.TopUpAccountRow

type moveStatement func(ctx context.Context, notAfter time.Time) (movedRow, error)

// move makes a movement.
func (c *Client) move(ctx context.Context, tried string, m Movement, statement moveStatement) (Moved, error) {
	row, err := persist(ctx, tried, func(ctx context.Context) (movedRow, error) {
		row, err := statement(ctx, c.store.NotAfter())
		if err == nil && row.Answer == tooLate {
			err = c.tooLate(ctx, tried)
		}
		return row, err
	})
	if err != nil {
		return Moved{}, err
	}
	return movedAnswer(tried, m, row)
}

func movedAnswer(tried string, m Movement, row movedRow) (Moved, error) {
	bad := func(code contract.Code, format string, args ...any) (Moved, error) {
		return Moved{}, contract.NewError(code, contract.RetryNewKey, tried+": "+fmt.Sprintf(format, args...), nil)
	}
	switch row.Answer {
	case "applied", "already":
		return Moved{Already: row.Answer == "already", Seq: row.Seq, BalanceAfter: row.BalanceAfter}, nil
	case "conflict":
		return bad(contract.CodeConflict, "the key %q stands for another movement: use a new key", m.Key)
	case "unknown_account":
		return Moved{}, noAccount(m.Tenant, m.Account)
	case "other_asset":
		return bad(contract.CodeBadInput, "the account holds %s, not %s", row.Asset, m.Asset)
	case "overflow":
		return bad(contract.CodeBadInput, "the balance is %d and must stay within ±%d", row.BalanceAfter, contract.MaxCost)
	default:
		return Moved{}, unknownAnswer(tried, row.Answer)
	}
}
