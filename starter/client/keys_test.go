package client_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestAJobThatIsReadWithItsKeyIsTheKeysTenantsAndWhole(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "a", 100, "k")
	for _, id := range []string{"running", "refunded", "late", "delivered", "dead", "canceled"} {
		l.charge("a", id, 7)
	}
	l.refund("refunded", 1, "no memory")
	l.refund("late", 0, "")
	l.settle("late")
	l.settle("delivered")
	l.refund("dead", 1, "no memory")
	l.park("dead")
	l.cancel("canceled")
	// Another tenant has a job of the same id, and one that is its alone.
	l.topUp("globex", "b", 100, "k")
	for _, id := range []string{"running", "theirs"} {
		l.applies(func() (string, error) {
			row, err := l.store.ChargeJob(l.ctx, db.ChargeJobParams{
				TenantID: "globex", JobID: id, AccountID: "b", Cost: 9, Fingerprint: "x", Spec: "{}", Reason: "test",
				NotAfter: l.store.NotAfter(),
			})
			return row.Answer, err
		})
	}
	keys := map[string]client.CreatedKey{}
	for _, tenant := range []string{"acme", "globex"} {
		key, err := l.CreateKey(l.ctx, tenant, "shop", []contract.Scope{contract.ScopeJobsRead})
		require.NoError(t, err)
		keys[tenant] = key
	}
	// All at once, so that one query looks for many.
	var asking sync.WaitGroup
	for range 5 {
		for tenant, ids := range map[string][]string{
			"acme": {"running", "refunded", "late", "delivered", "dead", "canceled"}, "globex": {"running", "theirs"},
		} {
			for _, id := range ids {
				asking.Go(func() {
					key, read, err := l.AuthenticateForJob(l.ctx, keys[tenant].Secret, id)
					if !assert.NoError(t, err) {
						return
					}
					assert.Equal(t, tenant, key.Tenant)
					got, err := read(l.ctx)
					assert.NoError(t, err)
					want, err := l.Job(l.ctx, tenant, id)
					assert.NoError(t, err)
					assert.Equal(t, want, got)
					assert.Equal(t, tenant, got.Tenant)
				})
			}
		}
	}
	asking.Wait()

	_, read, err := l.AuthenticateForJob(l.ctx, keys["acme"].Secret, "theirs")
	require.NoError(t, err)
	_, err = read(l.ctx)
	// Without a row, its run is asked for, and there is no Temporal.
	refusal(t, contract.CodeUnavailable, err)
	_, read, err = l.AuthenticateForJob(l.ctx, keys["acme"].Secret, "not an id")
	require.NoError(t, err)
	_, err = read(l.ctx)
	refusal(t, contract.CodeBadInput, err)

	_, err = l.RevokeKey(l.ctx, "acme", keys["acme"].KeyID)
	require.NoError(t, err)
	for _, id := range []string{"running", "none", ""} {
		_, _, err = l.AuthenticateForJob(l.ctx, keys["acme"].Secret, id)
		refusal(t, contract.CodeUnauthorized, err)
	}
}
