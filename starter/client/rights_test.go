package client_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	temporalclient "go.temporal.io/sdk/client"

	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// A login is the caller until there are keys: one without the right is told so, before anything is made or answered again.
func TestACallerWithoutTheRightIsForbiddenAlsoForReplays(t *testing.T) {
	t.Parallel()
	base := schematest.New(t)
	s := openShop(t, base, base.AppURL)
	s.order("o-1", 10_000, 100)
	s.back("o-1", 1000, "k")

	admin, err := pgx.Connect(s.ctx, base.SuperuserURL)
	require.NoError(t, err)
	stranger := strings.ToLower(base.Name) + "_stranger"
	_, err = admin.Exec(s.ctx, "CREATE ROLE "+stranger+" LOGIN PASSWORD 'secret'")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(s.ctx, "DROP ROLE "+stranger)
		assert.NoError(t, err)
		assert.NoError(t, admin.Close(s.ctx))
	})
	login, err := url.Parse(base.AppURL)
	require.NoError(t, err)
	login.User = url.UserPassword(stranger, "secret")
	store, err := schema.Open(s.ctx, login.String(), schema.Options{})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	theirs := client.New(s.starts, store, "")
	for what, ask := range map[string]func() error{
		"a new refund": func() error { _, err := theirs.RequestRefund(s.ctx, refundOf("o-1", 1000, "k2")); return err },
		"a replay":     func() error { _, err := theirs.RequestRefund(s.ctx, refundOf("o-1", 1000, "k")); return err },
		"another body": func() error { _, err := theirs.RequestRefund(s.ctx, refundOf("o-1", 2000, "k")); return err },
		"a look-up":    func() error { _, err := theirs.FindRefund(s.ctx, "acme", "api:shop", "k"); return err },
		"an order":     func() error { _, err := theirs.AddOrder(s.ctx, orderOf("o-2", 100, 1)); return err },
		"its replay":   func() error { _, err := theirs.AddOrder(s.ctx, orderOf("o-1", 10_000, 100)); return err },
		"a statement":  func() error { _, err := theirs.Account(s.ctx, "acme", "team-7"); return err },
	} {
		err := refusal(t, contract.CodeForbidden, ask())
		assert.Equal(t, contract.RetryNever, err.Retry, what)
		assert.Contains(t, err.Message, stranger, what)
		assert.NotContains(t, err.Message, "secret", what)
	}
	order, err := s.Order(s.ctx, "acme", "o-1")
	require.NoError(t, err)
	assert.Len(t, order.Refunds, 1)

	_, err = admin.Exec(s.ctx, "GRANT reclaim_app TO "+stranger)
	require.NoError(t, err)
	again, err := theirs.RequestRefund(s.ctx, refundOf("o-1", 1000, "k"))
	require.NoError(t, err)
	assert.False(t, again.Created)
	_, err = admin.Exec(s.ctx, "REVOKE reclaim_app FROM "+stranger)
	require.NoError(t, err)
}

// answers is a Temporal that answers updates one after another, the last for ever: an error, or nil for a decision applied.
type answers struct {
	temporalclient.Client
	mu    sync.Mutex
	queue []error
	asked []any
}

func (a *answers) NewWithStartWorkflowOperation(
	temporalclient.StartWorkflowOptions, any, ...any,
) temporalclient.WithStartWorkflowOperation {
	return nil
}

func (a *answers) UpdateWithStartWorkflow(
	_ context.Context, o temporalclient.UpdateWithStartWorkflowOptions,
) (temporalclient.WorkflowUpdateHandle, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, o.UpdateOptions.Args...)
	err := a.queue[0]
	if len(a.queue) > 1 {
		a.queue = a.queue[1:]
	}
	return applied{}, err
}

type applied struct {
	temporalclient.WorkflowUpdateHandle
}

func (applied) Get(_ context.Context, value any) error {
	*value.(*contract.RefundResolutionAnswer) = contract.RefundResolutionAnswer{ID: "d-1", Outcome: contract.ResolutionApplied}
	return nil
}

func TestADecisionIsSentAgainWhileItsRunClosesUnderIt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	id := s.back("o-1", 1000, "k").RefundID
	decision := contract.RefundResolution{ID: "d-1", Action: contract.ActionCancel, Operator: "ann", Reason: "asked twice"}
	far := &answers{queue: []error{serviceerror.NewUnavailable("UnhandledCommand"), serviceerror.NewWorkflowNotReady("closing"), nil}}
	answer, err := client.New(far, s.store, "").ResolveRefund(s.ctx, "acme", id, decision)
	require.NoError(t, err)
	assert.Equal(t, contract.ResolutionApplied, answer.Outcome)
	assert.Equal(t, []any{decision, decision, decision}, far.asked, "under the same id")

	far = &answers{queue: []error{serviceerror.NewUnavailable("away")}}
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	_, err = client.New(far, s.store, "").ResolveRefund(ctx, "acme", id, decision)
	assert.Equal(t, contract.RetrySameKey, refusal(t, contract.CodeUnavailable, err).Retry)
	assert.Greater(t, len(far.asked), 1)

	far = &answers{queue: []error{serviceerror.NewPermissionDenied("not with this key", "")}}
	_, err = client.New(far, s.store, "").ResolveRefund(s.ctx, "acme", id, decision)
	assert.Equal(t, contract.RetryNever, refusal(t, contract.CodeForbidden, err).Retry)
	assert.Len(t, far.asked, 1, "repeating does not mend it")
}
