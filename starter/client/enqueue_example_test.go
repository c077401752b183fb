package client_test

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// A shop sells a rendering and starts its job in one transaction: both happen, or neither. The login in SHOP_DATABASE_URL has
// the role reclaim_enqueue and no other of Reclaim's.
func ExampleClient_EnqueueJob() {
	ctx := context.Background()
	db, err := pgx.Connect(ctx, os.Getenv("SHOP_DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = db.Close(ctx) }()
	reclaim := client.New(nil, nil, "") // jobs are enqueued by the transaction's own connection

	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO sales (id) VALUES ($1)", "8841"); err != nil {
			return err
		}
		return reclaim.EnqueueJob(ctx, tx, contract.Job{
			Tenant: "acme", JobID: "render-8841", Account: "team-7", Cost: 40, Actor: "shop",
			Work: contract.Work{
				Activity: "RenderVideo", TaskQueue: "gpu", Input: json.RawMessage(`{"clip":"c-17"}`),
				Timeout: contract.Duration(10 * time.Minute),
			},
			Promise: contract.Duration(30 * time.Second),
		})
	})
	if err != nil {
		log.Panic(err) // nothing was sold, and no job is started
	}
}

// The example needs a database, which a test has.
func TestTheExampleEnqueuesItsJob(t *testing.T) {
	p := newProduct(t)
	t.Setenv("SHOP_DATABASE_URL", p.productURL())
	ExampleClient_EnqueueJob()
	assert.Equal(t, []string{"sale 8841", "start_job acme/render-8841"}, p.rows())
	assert.Panics(t, ExampleClient_EnqueueJob, "the sale is known by now")
	assert.Equal(t, []string{"sale 8841", "start_job acme/render-8841"}, p.rows(), "and its job is not enqueued again")
}
