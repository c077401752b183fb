package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// SettlementFile is a channel's settlement file that is to be stored.
type SettlementFile struct {
	Tenant  string
	Channel string
	// Name is what the file is called, for people.
	Name  string
	Actor string
	// Content is read twice, from its beginning.
	Content io.ReadSeeker
}

// StoredSettlement is a file that is stored.
type StoredSettlement struct {
	Key contract.SettlementKey `json:"key"`
	// Verdict is applied where the file was stored now and already where its content was there.
	Verdict  string    `json:"verdict"`
	Name     string    `json:"name"`
	Bytes    int64     `json:"bytes"`
	Actor    string    `json:"actor"`
	StoredAt time.Time `json:"storedAt"`
}

// StoreSettlement keeps a settlement file as it is, once for each content. It is taken in by a pass that Reconcile makes with its
// Key. Errors: BadInput (it is empty, or over 256 MB), Unavailable; what it stored is then nothing, and a repeat is safe.
func (c *Client) StoreSettlement(ctx context.Context, file SettlementFile) (StoredSettlement, error) {
	if err := together(contract.CheckID("tenant", file.Tenant), contract.CheckID("channel", file.Channel),
		contract.CheckText("actor", file.Actor, 200)); err != nil {
		return StoredSettlement{}, err
	}
	hash := sha256.New()
	// One more than is stored tells that there is too much.
	bytes, err := io.Copy(hash, io.LimitReader(file.Content, contract.MaxSettlementBytes+1))
	if err != nil {
		return StoredSettlement{}, unreadSettlement(err)
	}
	if err := contract.CheckSettlementSize(bytes); err != nil {
		return StoredSettlement{}, err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	tried := "store the settlement file " + file.Name
	row := db.AddSettlementFileParams{
		TenantID: file.Tenant, Channel: file.Channel, FileHash: sum, Name: contract.Clip(file.Name, 200), Bytes: bytes,
		Actor: contract.Clip(file.Actor, 200),
	}
	stored, err := c.storedSettlement(ctx, row)
	if err == nil {
		return settlementOf(stored, "already"), nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return StoredSettlement{}, unavailable(tried, err)
	}
	verdict := "applied"
	err = pgx.BeginFunc(ctx, c.store.Pool, func(tx pgx.Tx) error {
		queries := c.store.WithTx(tx)
		stored, err = queries.AddSettlementFile(ctx, row)
		if errors.Is(err, pgx.ErrNoRows) {
			verdict = "already"
			return nil
		}
		if err != nil {
			return err
		}
		return storeChunks(ctx, queries, stored, file.Content)
	})
	if err == nil && verdict == "already" {
		// Somebody else stored it meanwhile.
		stored, err = c.storedSettlement(ctx, row)
	}
	if err != nil {
		return StoredSettlement{}, unavailable(tried, err)
	}
	return settlementOf(stored, verdict), nil
}

func (c *Client) storedSettlement(ctx context.Context, row db.AddSettlementFileParams) (db.ReclaimSettlementFile, error) {
	return c.store.GetSettlementFile(ctx, db.GetSettlementFileParams{
		TenantID: row.TenantID, Channel: row.Channel, FileHash: row.FileHash,
	})
}

// storeChunks stores the content, which must be what was hashed.
func storeChunks(ctx context.Context, queries *db.Queries, file db.ReclaimSettlementFile, content io.ReadSeeker) error {
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return unreadSettlement(err)
	}
	hash := sha256.New()
	from := io.TeeReader(io.LimitReader(content, file.Bytes), hash)
	buffer := make([]byte, contract.SettlementChunkBytes)
	for chunk := int32(0); ; chunk++ {
		n, err := io.ReadFull(from, buffer)
		if n > 0 {
			if err := queries.AddSettlementChunk(ctx, db.AddSettlementChunkParams{
				TenantID: file.TenantID, FileNo: file.FileNo, Chunk: chunk, Content: buffer[:n],
			}); err != nil {
				return fmt.Errorf("chunk %d: %w", chunk, err)
			}
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			if hex.EncodeToString(hash.Sum(nil)) != file.FileHash {
				return contract.BadField("settlement", "changed while it was read: give it again when it is whole")
			}
			return nil
		case err != nil:
			return unreadSettlement(err)
		}
	}
}

func unreadSettlement(err error) error {
	return contract.BadField("settlement", "cannot be read: "+err.Error())
}

func settlementOf(row db.ReclaimSettlementFile, verdict string) StoredSettlement {
	return StoredSettlement{
		Key: contract.SettlementKey{Channel: row.Channel, Hash: row.FileHash}, Verdict: verdict, Name: row.Name, Bytes: row.Bytes,
		Actor: row.Actor, StoredAt: row.StoredAt.UTC(),
	}
}
