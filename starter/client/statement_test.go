package client_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestAStatementEndsWithTheBalanceOfItsBeginning(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 10, "order-1")
	l.topUp("acme", "team-7", 20, "order-2")
	statement, err := l.Statement(l.ctx, client.StatementQuery{Tenant: "acme", Account: "team-7"})
	require.NoError(t, err)
	l.topUp("acme", "team-7", 40, "order-3")
	var seen []int64
	next, err := statement.Entries(l.ctx, func(e client.Entry) error {
		seen = append(seen, e.BalanceAfter)
		return nil
	})
	require.NoError(t, err)
	assert.Zero(t, next)
	assert.Equal(t, []int64{10, 30}, seen)
	assert.Equal(t, int64(30), statement.Closing)
	assert.Equal(t, int64(30), statement.Account.Balance)
	_, err = l.Statement(l.ctx, client.StatementQuery{Tenant: "acme", Account: "nobody"})
	refusal(t, contract.CodeNotFound, err)
}
