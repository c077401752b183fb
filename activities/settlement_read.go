package activities

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/activity"

	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// SettlementRequest asks to hold a stored settlement file against ours.
type SettlementRequest struct {
	ReconciliationKey
	File contract.SettlementKey `json:"file"`
}

// pageBytes is how much of a file's text is written in one statement, beside lines.
const pageBytes = 4 << 20

// ReadSettlement keeps every line of a stored file, with what was read from it, and answers how many there are. A file that was
// read to its end is not read again; one that an attempt left in between is gone on with. A file that cannot be read as the
// channel's at all is refused with error type BadInput before any of its lines is kept.
func (r *Reconciler) ReadSettlement(ctx context.Context, q SettlementRequest) (int64, error) {
	if err := ownReconciliation(ctx, q.Tenant); err != nil {
		return 0, err
	}
	far, err := r.channel(q.File.Channel, q.Tenant)
	if err != nil {
		return 0, err
	}
	file, err := r.settlementFile(ctx, q)
	if err != nil {
		return 0, err
	}
	key := db.FindSettlementReadingParams{TenantID: q.Tenant, FileNo: file.FileNo}
	kept, err := r.store.FindSettlementReading(ctx, key)
	if err != nil {
		return 0, retry(ctx, schema.Classify("look how far the settlement file was read", err))
	}
	if kept.IsWhole {
		return kept.Lines, nil
	}
	if kept.Lines == 0 {
		if err := r.readable(ctx, far, file); err != nil {
			return 0, err
		}
	}
	var page settlementPage
	text := r.textOf(ctx, file)
	for line, problem := range far.Settlement(text) {
		if err := settlementFault(ctx, text, line, problem); err != nil {
			return 0, err
		}
		if line.Line <= int(kept.LastLine) {
			activity.RecordHeartbeat(ctx)
			continue
		}
		page.add(line, problem)
		if len(page.Lines) >= lines || page.bytes >= pageBytes {
			if err := r.keepLines(ctx, file, &page); err != nil {
				return 0, err
			}
		}
	}
	if err := r.keepLines(ctx, file, &page); err != nil {
		return 0, err
	}
	if err := r.patiently(ctx, "note that the settlement file is read", nil, func(queries *db.Queries) error {
		return queries.EndSettlementReading(ctx, db.EndSettlementReadingParams{TenantID: q.Tenant, FileNo: file.FileNo})
	}); err != nil {
		return 0, err
	}
	kept, err = r.store.FindSettlementReading(ctx, key)
	if err != nil {
		return 0, retry(ctx, schema.Classify("count the lines of the settlement file", err))
	}
	return kept.Lines, nil
}

func (r *Reconciler) settlementFile(ctx context.Context, q SettlementRequest) (db.ReclaimSettlementFile, error) {
	file, err := r.store.GetSettlementFile(ctx, db.GetSettlementFileParams{
		TenantID: q.Tenant, Channel: q.File.Channel, FileHash: q.File.Hash,
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return file, refusedPart(fmt.Errorf("tenant %s has stored no settlement file %s of %s", q.Tenant, q.File.Hash, q.File.Channel))
	}
	if err != nil {
		return file, retry(ctx, schema.Classify("find the settlement file", err))
	}
	return file, nil
}

// readable reads the file once to its end, so that nothing is kept of one that cannot be.
func (r *Reconciler) readable(ctx context.Context, far channel.Channel, file db.ReclaimSettlementFile) error {
	text := r.textOf(ctx, file)
	for line, problem := range far.Settlement(text) {
		if err := settlementFault(ctx, text, line, problem); err != nil {
			return err
		}
	}
	return nil
}

// settlementFault is what keeps the whole file from being read. The heading is line 1, and 0 is no line.
func settlementFault(ctx context.Context, text *storedText, line channel.SettlementLine, problem error) error {
	switch {
	case text.err != nil:
		return retry(ctx, text.err)
	case problem != nil && line.Line < 2:
		return refusedPart(fmt.Errorf("the file %s is no settlement file that the channel's adapter can read: %w. "+
			"Nothing of it was taken in: export it again as docs/settlement.md says", text.file.Name, problem))
	}
	return nil
}

// storedText reads a stored file, chunk by chunk.
type storedText struct {
	ctx   context.Context
	store *schema.Store
	file  db.ReclaimSettlementFile
	next  int32
	read  int64
	rest  []byte
	// err is what kept a chunk from being read.
	err error
}

func (r *Reconciler) textOf(ctx context.Context, file db.ReclaimSettlementFile) *storedText {
	return &storedText{ctx: ctx, store: r.store, file: file}
}

func (t *storedText) Read(p []byte) (int, error) {
	if t.read == t.file.Bytes {
		return 0, io.EOF
	}
	if len(t.rest) == 0 {
		content, err := t.store.GetSettlementChunk(t.ctx, db.GetSettlementChunkParams{
			TenantID: t.file.TenantID, FileNo: t.file.FileNo, Chunk: t.next,
		})
		if err != nil {
			t.err = schema.Classify("read the stored settlement file", err)
			return 0, t.err
		}
		t.rest = content
		t.next++
		activity.RecordHeartbeat(t.ctx)
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	t.read += int64(n)
	return n, nil
}

// settlementPage are lines as the statement takes them.
type settlementPage struct {
	db.AddSettlementLinesParams
	bytes int
}

func (p *settlementPage) add(line channel.SettlementLine, problem error) {
	said := ""
	if problem != nil {
		said = contract.Clip(problem.Error(), contract.MaxReasonBytes)
	}
	at := line.ObservedAt
	if year := at.Year(); !at.IsZero() && (year < 1970 || year > 9999) {
		said, at = fmt.Sprintf("line %d: the time %d is none that a payment can have been made at", line.Line, at.Unix()), time.Time{}
	}
	p.Lines = append(p.Lines, int32(line.Line))
	p.Raws = append(p.Raws, []byte(line.Raw))
	p.Transactions = append(p.Transactions, transactionOf(line))
	p.Kinds = append(p.Kinds, contract.Clip(line.Kind, 100))
	p.Ordinary = append(p.Ordinary, line.Ordinary)
	p.Refs = append(p.Refs, contract.Clip(line.Reference, 200))
	p.Numbers = append(p.Numbers, contract.Clip(line.Number, 200))
	p.Payments = append(p.Payments, contract.Clip(line.Payment, 200))
	p.Aliases = append(p.Aliases, contract.Clip(line.PaymentAlias, 200))
	p.Amounts = append(p.Amounts, line.Amount)
	p.Currencies = append(p.Currencies, contract.Clip(line.Currency, 20))
	p.Grosses = append(p.Grosses, line.Gross)
	p.Fees = append(p.Fees, line.Fee)
	p.Nets = append(p.Nets, line.Net)
	p.SettledIn = append(p.SettledIn, contract.Clip(line.Settled, 20))
	p.Codes = append(p.Codes, contract.Clip(line.Code, 200))
	p.MadeAt = append(p.MadeAt, at)
	p.Problems = append(p.Problems, said)
	p.bytes += len(line.Raw)
}

// transactionOf names the movement of a line in every file.
func transactionOf(line channel.SettlementLine) string {
	if line.Transaction != "" {
		return contract.Clip(line.Transaction, 200)
	}
	// Where the file gives no id, a movement of a refund or payment is known by its time; of what cannot be told apart so, each
	// text is one.
	text := line.Raw
	if subject := line.Reference + line.Payment; subject != "" {
		text = subject + "|" + line.ObservedAt.UTC().Format(time.RFC3339Nano)
	}
	sum := sha256.Sum256([]byte(line.Kind + "|" + text))
	return contract.Clip(line.Kind, 100) + "#" + hex.EncodeToString(sum[:12])
}

func (r *Reconciler) keepLines(ctx context.Context, file db.ReclaimSettlementFile, page *settlementPage) error {
	if len(page.Lines) == 0 {
		return nil
	}
	page.TenantID, page.FileNo, page.Channel = file.TenantID, file.FileNo, file.Channel
	if err := r.store.AddSettlementLines(ctx, page.AddSettlementLinesParams); err != nil {
		return retry(ctx, schema.Classify("keep the lines of the settlement file", err))
	}
	activity.RecordHeartbeat(ctx)
	*page = settlementPage{}
	return nil
}
