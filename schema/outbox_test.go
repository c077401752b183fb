package schema_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
)

// leave puts so many due rows of one kind and tenant into the outbox.
func leave(t *testing.T, store *schema.Store, kind, tenant string, rows int) {
	t.Helper()
	_, err := store.Pool.Exec(t.Context(), `INSERT INTO reclaim.outbox (kind, tenant_id, subject_id, payload)
		SELECT $1, $2, $2 || n, '{}' FROM generate_series(1, $3::integer) AS n`, kind, tenant, rows)
	require.NoError(t, err)
}

// take claims rows for longer than the test lasts.
func take(t *testing.T, store *schema.Store, atMost int32) []db.ReclaimOutbox {
	t.Helper()
	rows, err := store.ClaimOutbox(t.Context(), db.ClaimOutboxParams{AtMost: atMost, LeaseUs: patience.Microseconds()})
	assert.NoError(t, err)
	assert.LessOrEqual(t, len(rows), int(atMost))
	return rows
}

func subjects(rows []db.ReclaimOutbox) (all []string) {
	for _, row := range rows {
		all = append(all, row.SubjectID)
	}
	return all
}

func TestNoTenantWaitsForAnothersOutbox(t *testing.T) {
	t.Parallel()
	const backlog = 2000
	store := openStore(t, schematest.New(t).AppURL, schema.Options{})
	leave(t, store, "start_job", "busy", backlog)
	leave(t, store, "start_job", "late", 1)
	leave(t, store, "start_refund", "zealous", 1)
	// A refund goes before every job, and a tenant's only job before another's second.
	assert.Equal(t, []string{"zealous1"}, subjects(take(t, store, 1)))
	leave(t, store, "start_refund", "zealous", 1)
	first := take(t, store, 32)
	assert.Len(t, first, 32)
	assert.Subset(t, subjects(first), []string{"zealous1", "late1", "busy1"})
	assert.NotContains(t, subjects(first), "busy32")

	// Two that take at the same time get every other row between them, each once.
	var mu sync.Mutex
	var both sync.WaitGroup
	taken := map[int64]int{}
	for range 2 {
		both.Go(func() {
			for {
				rows := take(t, store, 32)
				if len(rows) == 0 {
					return
				}
				mu.Lock()
				for _, row := range rows {
					taken[row.ID]++
				}
				mu.Unlock()
			}
		})
	}
	both.Wait()
	assert.Len(t, taken, backlog-30)
	for id, times := range taken {
		assert.Equal(t, 1, times, "row %d", id)
	}
	assert.Empty(t, take(t, store, 32))
}

// However many tenants wait, a claim is full, and each has its turn.
func TestMoreTenantsThanAreTakenAtOnceAllHaveTheirTurn(t *testing.T) {
	t.Parallel()
	const tenants = 100
	store := openStore(t, schematest.New(t).AppURL, schema.Options{})
	for n := range tenants {
		leave(t, store, "start_job", fmt.Sprintf("t%d-", n), 2)
	}
	taken := map[string]int{}
	for want := 2 * tenants; want > 0; want -= 32 {
		rows := take(t, store, 32)
		assert.Len(t, rows, min(32, want))
		for _, row := range rows {
			taken[row.TenantID]++
		}
	}
	assert.Len(t, taken, tenants)
	for tenant, times := range taken {
		assert.Equal(t, 2, times, tenant)
	}
}
