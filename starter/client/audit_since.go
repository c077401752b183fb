package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
)

const (
	// auditOverlap is how much before the checkpoint's instant operations and refund events are looked at again: their time is
	// that of their writing, and they are seen once their transaction is over.
	auditOverlap = 10 * time.Minute
	// auditPages is how many pages before the ledger's end at the checkpoint are searched for entries that were written again:
	// these go to where there is room, mostly the last pages.
	auditPages = 16
	// newAtMost is the share of new entries, one in so many, above which all of them are proven: that reads them faster.
	newAtMost = 4
)

// AuditCheckpoint tells what an audit built on, and whether the next one may build on it.
type AuditCheckpoint struct {
	// Since is when the audit was taken that this one built on; nil where it built on none.
	Since *time.Time `json:"since,omitempty"`
	// Doubt says why the whole ledger was proven though only what is new was asked for.
	Doubt string `json:"doubt,omitempty"`
	// Written is whether the next audit may build on this one. Problem says why not where this one is sound.
	Written bool   `json:"written"`
	Problem string `json:"problem,omitempty"`
}

// coveredChecks are the rules about what a checkpoint covers, which only an audit that was to build on it can tell.
var coveredChecks = []AuditCheck{
	{Name: "checkpoint_account", Rule: "an account goes on from where it stood at the checkpoint"},
	{Name: "checkpoint_entry", Rule: "the entry that was an account's newest at the checkpoint is as it was"},
	{Name: "checkpoint_rewritten", Rule: "no entry that was there at the checkpoint was written after it"},
}

// AuditSinceCheckpoint proves, over all tenants, what is new since the last sound audit and what that touches, in a time that
// depends on how much is new. It proves the whole ledger where there is no such audit, where the last whole one is older than
// wholeEvery (0: however old), where more than a quarter of the entries are new, and where anything is suspect: the report then
// says why, and names what the checkpoint covers and is no longer as it was.
// Errors: Unavailable (Postgres did not answer).
func (c *Client) AuditSinceCheckpoint(ctx context.Context, wholeEvery time.Duration) (AuditReport, error) {
	report, err := c.audit(ctx, "", func(r *AuditReport, ctx context.Context, q *db.Queries) error {
		checkpoint, err := r.proveNew(ctx, q, wholeEvery)
		switch {
		case err != nil || r.Sound:
			return err
		case checkpoint == nil:
			return r.prove(ctx, q)
		default:
			return r.proveCovered(ctx, q, *checkpoint)
		}
	})
	if err == nil {
		report.Runs = c.auditRuns(ctx, "")
	}
	return report, err
}

// proveNew proves what is new since the checkpoint. Where that cannot be done, or something is suspect, the report is not sound
// and says why; the checkpoint is nil where there is none that what is there could be compared with.
func (r *AuditReport) proveNew(ctx context.Context, q *db.Queries, wholeEvery time.Duration) (*db.AuditCheckpointRow, error) {
	checkpoint, err := q.AuditCheckpoint(ctx)
	if errors.Is(err, pgx.ErrNoRows) {
		r.Checkpoint.Doubt = "there is no checkpoint yet"
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	switch {
	case checkpoint.LedgerFile != r.place.LedgerFile || checkpoint.NextXid > r.place.NextXid:
		r.Checkpoint.Doubt = "the table of entries was written anew since the checkpoint"
		return nil, nil
	case wholeEvery > 0 && r.TakenAt.Sub(checkpoint.WholeAt) >= wholeEvery:
		r.Checkpoint.Doubt = "the last whole audit was " + checkpoint.WholeAt.UTC().Format(time.RFC3339)
		return &checkpoint, nil
	case checkpoint.LedgerEdits != r.place.LedgerEdits:
		r.Checkpoint.Doubt = "entries were changed or deleted since the checkpoint"
		return &checkpoint, nil
	}
	growth, err := q.AuditGrowth(ctx)
	if err != nil {
		return nil, fmt.Errorf("count what is new: %w", err)
	}
	if growth.NewEntries > growth.Entries/newAtMost {
		r.Checkpoint.Doubt = fmt.Sprintf("%d of %d entries are new", growth.NewEntries, growth.Entries)
		return &checkpoint, nil
	}
	since, err := q.AuditSince(ctx, checkpoint.TakenAt.Add(-auditOverlap))
	if err != nil {
		return nil, fmt.Errorf("prove what is new: %w", err)
	}
	rewritten, err := q.CountRewritten(ctx, db.CountRewrittenParams{
		NextXid: checkpoint.NextXid, FromPage: max(0, checkpoint.LedgerPages-auditPages),
	})
	if err != nil {
		return nil, fmt.Errorf("search for entries that were written again: %w", err)
	}
	if since.Suspects+rewritten > 0 {
		r.Checkpoint.Doubt = "what is new does not fit to what was there"
		return &checkpoint, nil
	}
	r.Accounts, r.Entries, r.Jobs, r.Operations = since.Accounts, since.Entries, since.Jobs, since.Operations
	r.Orders, r.Refunds = since.Orders, since.Refunds
	r.Sound, r.Checks = true, slices.Concat(auditChecks, coveredChecks)
	taken := checkpoint.TakenAt.UTC()
	r.Checkpoint.Since, r.wholeAt = &taken, checkpoint.WholeAt
	return &checkpoint, nil
}

// proveCovered proves the whole ledger, and that what the checkpoint covers is as it was.
func (r *AuditReport) proveCovered(ctx context.Context, q *db.Queries, checkpoint db.AuditCheckpointRow) error {
	if err := r.prove(ctx, q); err != nil {
		return err
	}
	rows, err := q.AuditCovered(ctx, db.AuditCoveredParams{NextXid: checkpoint.NextXid, BreakLimit: AuditLimit})
	if err != nil {
		return fmt.Errorf("compare with the checkpoint: %w", err)
	}
	total := map[string]int64{}
	for _, row := range rows {
		total[row.CheckName] = row.Total
		r.Breaks = append(r.Breaks, AuditBreak{
			Check: row.CheckName, Tenant: row.TenantID, Account: row.AccountID, Seq: row.Seq, JobID: row.JobID,
			Expected: row.Expected, Found: row.Found,
		})
	}
	for _, check := range coveredChecks {
		check.Broken = total[check.Name]
		r.Checks = append(r.Checks, check)
	}
	r.Sound = r.Sound && len(rows) == 0
	return nil
}

// writeCheckpoint notes where each account stands in the snapshot that was found sound.
func (r *AuditReport) writeCheckpoint(ctx context.Context, q *db.Queries) error {
	if err := q.WriteAuditPositions(ctx); err != nil {
		return err
	}
	return q.WriteAuditCheckpoint(ctx, db.WriteAuditCheckpointParams{
		TakenAt: r.TakenAt, WholeAt: r.wholeAt, LedgerFile: r.place.LedgerFile, LedgerPages: r.place.LedgerPages,
		LedgerEdits: r.place.LedgerEdits, NextXid: r.place.NextXid,
	})
}
