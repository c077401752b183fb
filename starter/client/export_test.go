package client

import (
	"context"

	"github.com/reclaimhq/reclaim/schema/db"
)

// ProvesBySums tells whether the proofs of an audit alone find the ledger sound, so that nothing has to be named.
func (c *Client) ProvesBySums(ctx context.Context) (sound bool, err error) {
	err = c.snapshot(ctx, "prove the ledger", func(q *db.Queries) (err error) {
		sound, err = new(AuditReport).proofs(ctx, q)
		return err
	})
	return sound, err
}
