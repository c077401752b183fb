package client_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	temporalclient "go.temporal.io/sdk/client"

	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/schema/schematest"
	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// starts is a Temporal that notes which workflows are started.
type starts struct {
	temporalclient.Client
	mu    sync.Mutex
	made  []temporalclient.StartWorkflowOptions
	args  []any
	ended []string
}

func (s *starts) ExecuteWorkflow(
	_ context.Context, options temporalclient.StartWorkflowOptions, workflow any, args ...any,
) (temporalclient.WorkflowRun, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, options)
	s.args = append(s.args, append([]any{workflow}, args...)...)
	return nil, nil
}

func (s *starts) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made, s.args = nil, nil
}

// DescribeWorkflow says that every workflow runs that was started, unless it was ended.
func (s *starts) DescribeWorkflow(_ context.Context, id, _ string) (*temporalclient.WorkflowExecutionDescription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status, started := enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, false
	for _, options := range s.made {
		started = started || options.ID == id
	}
	if !started {
		return nil, serviceerror.NewNotFound("no such workflow")
	}
	if slices.Contains(s.ended, id) {
		status = enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED
	}
	return &temporalclient.WorkflowExecutionDescription{
		WorkflowExecutionMetadata: temporalclient.WorkflowExecutionMetadata{Status: status},
	}, nil
}

// shop is a ledger with orders, on a Temporal that takes every start.
type shop struct {
	*ledger
	starts *starts
	// temporal is the real one, where there is one.
	temporal temporalclient.Client
}

func newShop(t *testing.T) *shop {
	t.Helper()
	base := schematest.New(t)
	return openShop(t, base, base.AppURL)
}

func openShop(t *testing.T, base *schematest.Database, url string) *shop {
	t.Helper()
	s := &shop{ledger: openLedger(t, base, url), starts: &starts{}}
	s.Client = client.New(s.starts, s.store, "")
	return s
}

func orderOf(id string, paid, credits int64) contract.Order {
	return contract.Order{
		Tenant: "acme", OrderID: id, Account: "team-7", Channel: "stripe-main", Payment: "pi_" + id, Currency: "eur", Paid: paid,
		Credits: credits, Actor: "api:shop", Key: "order " + id,
	}
}

func (s *shop) order(id string, paid, credits int64) {
	s.t.Helper()
	added, err := s.AddOrder(s.ctx, orderOf(id, paid, credits))
	require.NoError(s.t, err)
	require.False(s.t, added.Already)
}

func refundOf(order string, amount int64, key string) contract.RefundRequest {
	return contract.RefundRequest{
		Tenant: "acme", Actor: "api:shop", Key: key, OrderID: order, Amount: amount, Reason: "not as described",
	}
}

// back asks for a refund that must be accepted.
func (s *shop) back(order string, amount int64, key string) client.RequestedRefund {
	s.t.Helper()
	refund, err := s.RequestRefund(s.ctx, refundOf(order, amount, key))
	require.NoError(s.t, err)
	require.True(s.t, refund.Created)
	return refund
}

// send begins to send a refund.
func (l *ledger) send(refundID string) {
	l.t.Helper()
	answer, err := l.store.BeginSend(l.ctx, db.BeginSendParams{
		TenantID: "acme", RefundID: refundID, ResendWithinUs: time.Hour.Microseconds(), FirstLookUs: 1e6, GiveUpUs: 3600e6,
	})
	require.NoError(l.t, err)
	require.Equal(l.t, "applied", answer)
}

// reference is the channel's for the refund: re_1 for the first that it is asked of, and so on.
func (l *ledger) reference(refundID string) string {
	if !slices.Contains(l.referenced, refundID) {
		l.referenced = append(l.referenced, refundID)
	}
	return fmt.Sprint("re_", slices.Index(l.referenced, refundID)+1)
}

// hears applies what is observed of a refund.
func (l *ledger) hears(refundID, source, outcome, code string) db.ApplyEvidenceRow {
	l.t.Helper()
	refund, err := l.store.GetRefund(l.ctx, db.GetRefundParams{TenantID: "acme", RefundID: refundID})
	require.NoError(l.t, err)
	evidence := db.ApplyEvidenceParams{
		TenantID: "acme", RefundID: refundID, Source: source, Outcome: outcome, Code: code, Reversible: true, NextLookUs: 60e6,
	}
	if outcome == "pending" || outcome == "succeeded" {
		evidence.ChannelRef = l.reference(refundID)
		evidence.Amount, evidence.Currency = refund.ReclaimRefund.Amount, refund.ReclaimRefund.Currency
	}
	row, err := l.store.ApplyEvidence(l.ctx, evidence)
	require.NoError(l.t, err)
	return row
}

func (s *shop) count(sql string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.store.Pool.QueryRow(s.ctx, sql).Scan(&n))
	return n
}

func TestC1TwoRefundsAtOnceOfMoreThanTheOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	var accepted, capacity int
	var mu sync.Mutex
	var group sync.WaitGroup
	start := make(chan struct{})
	for n := range 2 {
		group.Go(func() {
			<-start
			_, err := s.RequestRefund(s.ctx, refundOf("o-1", 6000, fmt.Sprint("key ", n)))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				accepted++
				return
			}
			capacity++
			refused := refusal(t, contract.CodeCapacityExceeded, err)
			assert.Equal(t, contract.RetryNewKey, refused.Retry)
			assert.Contains(t, refused.Message, "4000 eur that are left of 10000")
		})
	}
	close(start)
	group.Wait()
	assert.Equal(t, [2]int{1, 1}, [2]int{accepted, capacity})
	order, err := s.Order(s.ctx, "acme", "o-1")
	require.NoError(t, err)
	assert.Equal(t, [3]int64{6000, 0, 4000}, [3]int64{order.Reserved, order.Refunded, order.Left})
	assert.Equal(t, [3]int64{60, 0, 40}, [3]int64{order.ReservedCredits, order.RefundedCredits, order.LeftCredits})
	assert.Len(t, order.Refunds, 1)
	s.sound()
}

func TestC2NoAmountGetsPastTheCapacity(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	for _, amount := range []int64{0, -1, math.MinInt64, math.MaxInt64, contract.MaxCost + 1} {
		_, err := s.RequestRefund(s.ctx, refundOf("o-1", amount, "k"))
		assert.Equal(t, "amount", refusal(t, contract.CodeBadInput, err).Fields[0].Field)
	}
	for _, credits := range []int64{-1, math.MaxInt64} {
		request := refundOf("o-1", 1, "k")
		request.Credits = &credits
		_, err := s.RequestRefund(s.ctx, request)
		assert.Equal(t, "credits", refusal(t, contract.CodeBadInput, err).Fields[0].Field)
	}
	request := refundOf("o-1", 1, "k")
	request.Credits = new(contract.MaxCost)
	_, err := s.RequestRefund(s.ctx, request)
	refused := refusal(t, contract.CodeCapacityExceeded, err)
	assert.Equal(t, "credits", refused.Fields[0].Field)
	assert.Contains(t, refused.Message, "100 credits that are left of 100")

	// The credits that these stand for have 106 bits, and what they sum to wraps.
	dear := orderOf("dear", 1, contract.MaxCost)
	dear.Account = "rich"
	_, err = s.AddOrder(s.ctx, dear)
	require.NoError(t, err)
	_, err = s.RequestRefund(s.ctx, refundOf("dear", contract.MaxCost, "k"))
	refusal(t, contract.CodeCapacityExceeded, err)
	most := orderOf("most", contract.MaxCost, contract.MaxCost)
	most.Account = "richer"
	_, err = s.AddOrder(s.ctx, most)
	require.NoError(t, err)
	s.back("most", contract.MaxCost-1, "k1")
	for _, amount := range []int64{2, contract.MaxCost - 1, contract.MaxCost} {
		_, err = s.RequestRefund(s.ctx, refundOf("most", amount, "k2"))
		assert.Contains(t, refusal(t, contract.CodeCapacityExceeded, err).Message, "the 1 eur that are left")
	}
	s.back("most", 1, "k2")
	_, err = s.RequestRefund(s.ctx, refundOf("most", 1, "k3"))
	assert.Contains(t, refusal(t, contract.CodeCapacityExceeded, err).Message, "the 0 eur that are left")
	assert.Equal(t, 2, s.count("SELECT count(*) FROM reclaim.refunds"))
	s.sound()
}

func TestC4WhatIsLeftCountsEachRefundOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 421_604, 421_604)
	done := s.back("o-1", 100_000, "k1")
	s.send(done.RefundID)
	s.hears(done.RefundID, "create", "succeeded", "")
	pending := s.back("o-1", 317_500, "k2")
	s.send(pending.RefundID)
	s.hears(pending.RefundID, "create", "pending", "")
	order, err := s.Order(s.ctx, "acme", "o-1")
	require.NoError(t, err)
	assert.Equal(t, [4]int64{421_604, 317_500, 100_000, 4104}, [4]int64{order.Paid, order.Reserved, order.Refunded, order.Left})
	assert.Equal(t, int64(4104), order.LeftCredits)
	_, err = s.RequestRefund(s.ctx, refundOf("o-1", 4105, "k3"))
	assert.Contains(t, refusal(t, contract.CodeCapacityExceeded, err).Message, "the 4104 eur that are left")

	// What ends without effect can be asked for again.
	failed := s.back("o-1", 4104, "k3")
	s.send(failed.RefundID)
	s.hears(failed.RefundID, "create", "failed", "card_closed")
	s.back("o-1", 4104, "k4")
	order, err = s.Order(s.ctx, "acme", "o-1")
	require.NoError(t, err)
	assert.Equal(t, int64(0), order.Left)
	states := []contract.RefundState{}
	for _, refund := range order.Refunds {
		states = append(states, refund.State)
	}
	assert.Equal(t, []contract.RefundState{"succeeded", "pending", "failed", "accepted"}, states)
	s.sound()
}

func TestC5NoMoreGoesBackThanWasCaptured(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 70, 100)
	_, err := s.RequestRefund(s.ctx, refundOf("o-1", 80, "k1"))
	assert.Contains(t, refusal(t, contract.CodeCapacityExceeded, err).Message, "80 is more than the 70 eur that are left of 70")
	assert.Equal(t, int64(100), s.back("o-1", 70, "k1").Credits)
	s.sound()
}

func TestC35AKeyIsUniqueWithinTenantAndActorOnly(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	seen := map[string]bool{}
	for _, tenant := range []string{"acme", "globex"} {
		order := orderOf("o-1", 10_000, 100)
		order.Tenant = tenant
		_, err := s.AddOrder(s.ctx, order)
		require.NoError(t, err)
		for _, actor := range []string{"api:shop", "api:admin"} {
			request := refundOf("o-1", 1000, "key-1")
			request.Tenant, request.Actor = tenant, actor
			refund, err := s.RequestRefund(s.ctx, request)
			require.NoError(t, err)
			assert.True(t, refund.Created)
			seen[refund.RefundID] = true
			found, err := s.FindRefund(s.ctx, tenant, actor, "key-1")
			require.NoError(t, err)
			assert.Equal(t, [3]string{refund.RefundID, tenant, actor}, [3]string{found.RefundID, found.Tenant, found.RequestedBy})
		}
	}
	assert.Len(t, seen, 4)

	mine := contract.RefundNumber("acme", "api:shop", "key-1")
	_, err := s.Refund(s.ctx, "globex", mine)
	refusal(t, contract.CodeNotFound, err)
	_, err = s.ResolveRefund(s.ctx, "globex", mine, contract.RefundResolution{
		ID: "1", Action: contract.ActionCancel, Operator: "ann", Reason: "why",
	})
	refusal(t, contract.CodeNotFound, err)
	_, err = s.Order(s.ctx, "initech", "o-1")
	refusal(t, contract.CodeNotFound, err)
	_, err = s.RequestRefund(s.ctx, contract.RefundRequest{
		Tenant: "initech", Actor: "api:shop", Key: "key-1", OrderID: "o-1", Amount: 1, Reason: "r",
	})
	refusal(t, contract.CodeNotFound, err)
	for _, other := range [][2]string{{"globex", "nobody"}, {"initech", "api:shop"}} {
		_, err = s.FindRefund(s.ctx, other[0], other[1], "key-1")
		assert.Equal(t, contract.RetryNever, refusal(t, contract.CodeNotFound, err).Retry)
	}
	s.sound()
}

func TestC37TheSameRequestIsKnownAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	request := refundOf("o-1", 1000, "k")
	request.Reason = "cafe\u0301"
	first, err := s.RequestRefund(s.ctx, request)
	require.NoError(t, err)
	assert.True(t, first.Created)
	first.Created = false
	for _, currency := range []string{"", "eur", "EUR", "eUr"} {
		again := request
		again.Currency = currency
		same, err := s.RequestRefund(s.ctx, again)
		require.NoError(t, err, "currency %q", currency)
		assert.Equal(t, first, same)
	}
	for what, change := range map[string]func(*contract.RefundRequest){
		"amount":           func(r *contract.RefundRequest) { r.Amount++ },
		"too much":         func(r *contract.RefundRequest) { r.Amount = contract.MaxCost },
		"order":            func(r *contract.RefundRequest) { r.OrderID = "o-2" },
		"currency":         func(r *contract.RefundRequest) { r.Currency = "usd" },
		"credits named":    func(r *contract.RefundRequest) { r.Credits = new(first.Credits) },
		"credits zero":     func(r *contract.RefundRequest) { r.Credits = new(int64) },
		"reason":           func(r *contract.RefundRequest) { r.Reason = "another" },
		"reason, composed": func(r *contract.RefundRequest) { r.Reason = "caf\u00e9" },
	} {
		other := request
		change(&other)
		_, err := s.RequestRefund(s.ctx, other)
		refused := refusal(t, contract.CodeConflict, err)
		assert.Equal(t, contract.RetryNewKey, refused.Retry, what)
		assert.Contains(t, refused.Message, first.RefundID, what)
	}
	// A repeat is answered with the state of now, and after the end with the result.
	s.send(first.RefundID)
	s.hears(first.RefundID, "create", "succeeded", "")
	first.State = contract.RefundSucceeded
	same, err := s.RequestRefund(s.ctx, request)
	require.NoError(t, err)
	assert.Equal(t, first, same)
	assert.Equal(t, 1, s.count("SELECT count(*) FROM reclaim.refunds"))
	s.sound()
}

func TestAnEndedRefundIsAnsweredAsItEnded(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	for end, bring := range map[contract.RefundState]func(id string){
		contract.RefundSucceeded: func(id string) { s.hears(id, "create", "succeeded", "") },
		contract.RefundFailed:    func(id string) { s.hears(id, "create", "failed", "closed") },
		contract.RefundReversed: func(id string) {
			s.hears(id, "create", "succeeded", "")
			s.hears(id, "notice", "failed", "returned")
		},
		contract.RefundCanceled: nil,
	} {
		key := string(end)
		first := s.back("o-1", 1000, key)
		if bring == nil {
			_, err := s.store.CancelRefund(s.ctx, db.CancelRefundParams{TenantID: "acme", RefundID: first.RefundID, Reason: "r"})
			require.NoError(t, err)
		} else {
			s.send(first.RefundID)
			bring(first.RefundID)
		}
		first.State, first.Created = end, false
		for _, purged := range []bool{false, true} {
			same, err := s.RequestRefund(s.ctx, refundOf("o-1", 1000, key))
			_, otherErr := s.RequestRefund(s.ctx, refundOf("o-1", 1001, key))
			if purged {
				assert.Equal(t, contract.RetryNever, refusal(t, contract.CodeExpired, err).Retry)
				assert.Contains(t, refusal(t, contract.CodeExpired, otherErr).Message, first.RefundID)
				continue
			}
			require.NoError(t, err)
			assert.Equal(t, first, same)
			assert.Equal(t, contract.RetryNewKey, refusal(t, contract.CodeConflict, otherErr).Retry)
			s.tamper("UPDATE reclaim.operations SET expires_at = now() - interval '1 minute' WHERE kind = 'refund'")
			_, err = s.store.PurgeOperations(s.ctx, 100)
			require.NoError(t, err)
		}
		s.starts.reset()
	}
	assert.Equal(t, 4, s.count("SELECT count(*) FROM reclaim.refunds"))
	s.sound()
}

func TestC49ThreeThirdsAreTheWhole(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, order := range []struct {
		id            string
		paid, credits int64
		amounts, left []int64
	}{
		{"even", 100, 100, []int64{33, 33, 34}, []int64{33, 33, 34}},
		{"few", 100, 10, []int64{33, 33, 34}, []int64{4, 3, 3}},
		{"many", 100, 1000, []int64{33, 33, 34}, []int64{330, 330, 340}},
		{"one", 100, 1, []int64{1, 33, 66}, []int64{1, 0, 0}},
	} {
		s.order(order.id, order.paid, order.credits)
		var credits []int64
		for n, amount := range order.amounts {
			credits = append(credits, s.back(order.id, amount, fmt.Sprint(order.id, n)).Credits)
		}
		assert.Equal(t, order.left, credits, order.id)
		row, err := s.Order(s.ctx, "acme", order.id)
		require.NoError(t, err)
		assert.Equal(t, [4]int64{order.paid, order.credits, 0, 0},
			[4]int64{row.Reserved, row.ReservedCredits, row.Left, row.LeftCredits}, order.id)
	}

	// Asked for in credits, as a job's refund is, money rounds down and the last takes the rest.
	s.order("thirds", 100, 3)
	var amounts []int64
	for n := range 3 {
		var row db.AcceptRefundRow
		s.applies(func() (answer string, err error) {
			row, err = s.store.AcceptRefund(s.ctx, db.AcceptRefundParams{
				TenantID: "acme", RefundID: fmt.Sprint("rf_", n), OrderID: "thirds", Actor: "x", Key: fmt.Sprint("thirds ", n),
				Fingerprint: "f", Credits: new(int64(1)), Reason: "r", RetentionUs: 1e12, NotAfter: s.store.NotAfter(),
			})
			return row.Answer, err
		})
		amounts = append(amounts, row.Amount)
	}
	assert.Equal(t, []int64{33, 33, 34}, amounts)
	s.sound()
}

func TestARefundIsAcceptedWhole(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	refund := s.back("o-1", 2550, "k")
	assert.Equal(t, client.RequestedRefund{
		RefundID: contract.RefundNumber("acme", "api:shop", "k"), State: "accepted", Amount: 2550, Currency: "eur", Credits: 26,
		Created: true,
	}, refund)
	account, err := s.Account(s.ctx, "acme", "team-7")
	require.NoError(t, err)
	assert.Equal(t, int64(74), account.Balance)
	entries := s.entries("acme", "team-7")
	require.Len(t, entries, 2)
	assert.Equal(t, [3]string{"payout", "o-1", refund.RefundID}, [3]string{entries[1].Type, entries[1].OrderID, entries[1].RefundID})
	assert.Equal(t, int64(-26), entries[1].Amount)
	assert.Equal(t, 1, s.count("SELECT count(*) FROM reclaim.outbox WHERE kind = 'start_refund' AND delivered_at IS NULL"))
	assert.Equal(t, 1, s.count(`SELECT count(*) FROM reclaim.operations WHERE kind = 'refund'
		AND expires_at - created_at BETWEEN interval '30 days' - interval '1 minute' AND interval '30 days'`))

	require.Len(t, s.starts.made, 1)
	options := s.starts.made[0]
	assert.Equal(t, "refund/acme/"+refund.RefundID, options.ID)
	assert.Equal(t, contract.TaskQueue, options.TaskQueue)
	assert.Equal(t, "2550 eur (smallest unit) · acme/team-7", options.StaticSummary)
	attributes := map[string]any{}
	for key, value := range options.TypedSearchAttributes.GetUntypedValues() {
		attributes[key.GetName()] = value
	}
	assert.Equal(t, map[string]any{
		contract.AttributeTenant: "acme", contract.AttributeAccount: "team-7", contract.AttributeOrder: "o-1",
		contract.AttributeRefund: refund.RefundID,
	}, attributes)
	assert.Equal(t, []any{contract.ChannelRefundWorkflow, contract.RefundKey{Tenant: "acme", RefundID: refund.RefundID}},
		s.starts.args)

	// An open refund gets a run again where it lost its own; a final one needs none.
	_, err = s.RequestRefund(s.ctx, refundOf("o-1", 2550, "k"))
	require.NoError(t, err)
	assert.Len(t, s.starts.made, 2)
	s.send(refund.RefundID)
	s.hears(refund.RefundID, "create", "failed", "closed")
	_, err = s.RequestRefund(s.ctx, refundOf("o-1", 2550, "k"))
	require.NoError(t, err)
	assert.Len(t, s.starts.made, 2)
	s.sound()
}

func TestAuditListsOpenRefundsWithoutARun(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	s.order("o-2", 10_000, 100)
	lost := s.back("o-1", 500, "lost")
	s.back("o-1", 500, "running")
	final := s.back("o-1", 500, "final")
	s.send(final.RefundID)
	s.hears(final.RefundID, "create", "succeeded", "")
	for _, refund := range []client.RequestedRefund{lost, final} {
		s.starts.ended = append(s.starts.ended, contract.RefundWorkflowID("acme", refund.RefundID))
	}
	// One whose run has not begun yet.
	s.applies(func() (string, error) {
		row, err := s.store.AcceptRefund(s.ctx, db.AcceptRefundParams{
			TenantID: "acme", RefundID: "zz", OrderID: "o-2", Actor: "x", Key: "zz", Fingerprint: "f", Amount: new(int64(1)),
			Reason: "r", RetentionUs: 1e12, NotAfter: s.store.NotAfter(),
		})
		return row.Answer, err
	})
	report, err := s.Audit(s.ctx, "acme")
	require.NoError(t, err)
	assert.True(t, report.Sound)
	assert.True(t, report.Runs.Checked, report.Runs.Problem)
	assert.Equal(t, [2]int64{0, 2}, [2]int64{report.Runs.Count, report.Runs.RefundCount})
	require.Len(t, report.Runs.OpenRefunds, 2)
	for i, want := range [][2]string{{lost.RefundID, "o-1"}, {"zz", "o-2"}} {
		found := report.Runs.OpenRefunds[i]
		assert.Equal(t, want, [2]string{found.RefundID, found.OrderID})
		assert.Equal(t, contract.RefundAccepted, found.State)
		assert.False(t, found.Since.IsZero())
	}
	report, err = s.Audit(s.ctx, "globex")
	require.NoError(t, err)
	assert.Zero(t, report.Runs.RefundCount)
}

func TestGoodwillTakesNoCredits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	request := refundOf("o-1", 10_000, "k")
	request.Credits = new(int64)
	refund, err := s.RequestRefund(s.ctx, request)
	require.NoError(t, err)
	assert.Zero(t, refund.Credits)
	assert.Len(t, s.entries("acme", "team-7"), 1, "no payout")
	s.send(refund.RefundID)
	s.hears(refund.RefundID, "create", "failed", "closed")
	assert.Len(t, s.entries("acme", "team-7"), 1, "and none that comes back")
	s.sound()
}

func TestC35TheSameKeyTwiceAtOnceIsOneRefund(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	s.order("o-2", 10_000, 100)
	const callers = 12
	var group sync.WaitGroup
	var mu sync.Mutex
	var created, already, conflict int
	start := make(chan struct{})
	for n := range callers {
		group.Go(func() {
			<-start
			// Every third asks under the same key for another order, whose lock is another.
			order := "o-1"
			if n%3 == 0 {
				order = "o-2"
			}
			refund, err := s.RequestRefund(s.ctx, refundOf(order, 500, "k"))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				conflict++
				assert.Equal(t, contract.CodeConflict, contract.CodeOf(err), "%v", err)
			case refund.Created:
				created++
			default:
				already++
			}
		})
	}
	close(start)
	group.Wait()
	assert.Equal(t, 1, created)
	assert.Equal(t, callers, created+already+conflict)
	assert.Contains(t, []int{callers / 3, callers * 2 / 3}, conflict)
	assert.Equal(t, 1, s.count("SELECT count(*) FROM reclaim.refunds"))
	assert.Equal(t, 1, s.count("SELECT count(*) FROM reclaim.ledger_entries WHERE type = 'payout'"))
	s.sound()
}

func TestAKeyThatWasPurgedMakesNoSecondRefund(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	refund := s.back("o-1", 500, "k")
	s.tamper("UPDATE reclaim.operations SET expires_at = now() - interval '1 minute' WHERE kind = 'refund'")
	same, err := s.RequestRefund(s.ctx, refundOf("o-1", 500, "k"))
	require.NoError(t, err, "it is forgotten when it is purged, not before")
	assert.False(t, same.Created)
	purged, err := s.store.PurgeOperations(s.ctx, 100)
	require.NoError(t, err)
	assert.EqualValues(t, 1, purged, "an order's key is kept")
	for _, amount := range []int64{500, 501} {
		_, err = s.RequestRefund(s.ctx, refundOf("o-1", amount, "k"))
		refused := refusal(t, contract.CodeExpired, err)
		assert.Equal(t, contract.RetryNever, refused.Retry)
		assert.Contains(t, refused.Message, refund.RefundID)
	}
	_, err = s.RequestRefund(s.ctx, refundOf("no-order", 500, "k"))
	refusal(t, contract.CodeExpired, err)
	_, err = s.FindRefund(s.ctx, "acme", "api:shop", "k")
	assert.Contains(t, refusal(t, contract.CodeExpired, err).Message, refund.RefundID)
	_, err = s.Refund(s.ctx, "acme", refund.RefundID)
	require.NoError(t, err)
	assert.Equal(t, 1, s.count("SELECT count(*) FROM reclaim.refunds"))
	s.sound()
}

func TestWhatCannotBeRefundedSaysWhy(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	_, err := s.RequestRefund(s.ctx, refundOf("o-2", 1, "k"))
	assert.Contains(t, refusal(t, contract.CodeNotFound, err).Message, "o-2")
	request := refundOf("o-1", 1, "k")
	request.Currency = "USD"
	_, err = s.RequestRefund(s.ctx, request)
	refused := refusal(t, contract.CodeBadInput, err)
	assert.Equal(t, contract.RetryNewKey, refused.Retry)
	assert.Equal(t, []contract.FieldError{{Field: "currency", Rule: "is usd, but the order was paid in eur"}}, refused.Fields)
	_, err = s.RequestRefund(s.ctx, contract.RefundRequest{})
	var fields []string
	for _, field := range refusal(t, contract.CodeBadInput, err).Fields {
		fields = append(fields, field.Field)
	}
	assert.Equal(t, []string{"tenant", "orderId", "actor", "key", "amount", "reason"}, fields, "every mistake at once")

	s.adjust("acme", "team-7", -95, "t-1")
	_, err = s.RequestRefund(s.ctx, refundOf("o-1", 1000, "k"))
	refused = refusal(t, contract.CodeInsufficientCredits, err)
	assert.Equal(t, contract.RetrySameKey, refused.Retry)
	assert.Contains(t, refused.Message, "the account holds 5: 10 credits would leave account team-7")
	s.adjust("acme", "team-7", -6, "t-2")
	_, err = s.RequestRefund(s.ctx, refundOf("o-1", 1000, "k"))
	assert.Contains(t, refusal(t, contract.CodeInsufficientCredits, err).Message, "in debt (balance -1)")
	// C58: nothing is started, now or later, for what was not accepted.
	assert.Empty(t, s.starts.made)
	assert.Zero(t, s.count("SELECT count(*) FROM reclaim.outbox"))
	// The refusals left the key unused.
	s.topUp("acme", "team-7", 11, "t-3")
	assert.Equal(t, int64(10), s.back("o-1", 1000, "k").Credits)
	s.sound()
}

// C58: a run is started after the commit, never for a transaction that may yet be undone.
func TestC58_NothingIsStartedBeforeItsCommit(t *testing.T) {
	t.Parallel()
	base := schematest.New(t)
	proxy := schematest.NewLossyProxy(t, base.Address)
	s := openShop(t, base, proxy.URL(base.AppURL))
	s.order("o-1", 10_000, 100)
	type reply struct {
		client.RequestedRefund
		err error
	}
	ask := func(ctx context.Context, key string) chan reply {
		replies := make(chan reply, 1)
		go func() {
			refund, err := s.RequestRefund(ctx, refundOf("o-1", 500, key))
			replies <- reply{refund, err}
		}()
		return replies
	}
	committing := make(chan struct{}, 1)
	release := proxy.Hold(func(sql string) bool {
		if sql == "commit" {
			select {
			case committing <- struct{}{}:
			default:
			}
		}
		return sql == "commit"
	})
	held := ask(s.ctx, "held")
	<-committing
	assert.Empty(t, s.starts.made, "it may yet be undone")
	release()
	require.NoError(t, (<-held).err)
	assert.Len(t, s.starts.made, 1)

	// The accepting statement is made again and again, and its transaction is never committed.
	s.starts.reset()
	proxy.LoseReply(schematest.Containing("INSERT INTO reclaim.refunds"), math.MaxInt)
	ctx, cancel := context.WithCancel(s.ctx)
	undone := ask(ctx, "undone")
	assert.Eventually(t, func() bool { return proxy.Lost() > 1 }, 5*time.Minute, 10*time.Millisecond)
	cancel()
	refusal(t, contract.CodeUnavailable, (<-undone).err)
	assert.Empty(t, s.starts.made)
	assert.Equal(t, 1, s.count("SELECT count(*) FROM reclaim.outbox"))
	assert.Equal(t, 1, s.count("SELECT count(*) FROM reclaim.refunds"))
	s.sound()
}

// C34: an asker that dies before its commit leaves nothing in progress, and one that dies after it leaves the refund.
func TestC34_ALostCommitOfARefundIsFoundOut(t *testing.T) {
	t.Parallel()
	base := schematest.New(t)
	proxy := schematest.NewLossyProxy(t, base.Address)
	s := openShop(t, base, proxy.URL(base.AppURL))
	s.order("o-1", 10_000, 100)
	proxy.LoseReply(func(sql string) bool { return sql == "commit" }, 2)
	refund, err := s.RequestRefund(s.ctx, refundOf("o-1", 500, "k"))
	require.NoError(t, err)
	assert.Equal(t, 2, proxy.Lost())
	assert.Equal(t, client.RequestedRefund{
		RefundID: contract.RefundNumber("acme", "api:shop", "k"), State: "accepted", Amount: 500, Currency: "eur", Credits: 5,
	}, refund, "what the first commit stored")
	assert.Equal(t, 1, s.count("SELECT count(*) FROM reclaim.refunds"))
	proxy.LoseReply(schematest.Containing("INSERT INTO reclaim.refunds"), 1)
	assert.Equal(t, int64(5), s.back("o-1", 500, "k2").Credits)
	s.sound()
}

// silence is a Temporal that does not answer in the time that it is given. patience is how long that was for a start.
type silence struct {
	temporalclient.Client
	patience time.Duration
}

func (s *silence) ExecuteWorkflow(
	ctx context.Context, _ temporalclient.StartWorkflowOptions, _ any, _ ...any,
) (temporalclient.WorkflowRun, error) {
	if deadline, ok := ctx.Deadline(); ok {
		s.patience = time.Until(deadline)
	}
	return nil, context.DeadlineExceeded
}

func TestARefundIsAcceptedWhileTemporalIsAway(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("o-1", 10_000, 100)
	l := openLedger(t, s.base, s.base.AppURL)
	// A Temporal that does not answer is waited for a moment only, though the caller would wait for minutes.
	mute := &silence{}
	_, err := client.New(mute, s.store, "").RequestRefund(l.ctx, refundOf("o-1", 500, "k"))
	require.NoError(t, err)
	assert.Positive(t, mute.patience, "it was asked")
	assert.Less(t, mute.patience, 10*time.Second)
	// One that is away does not keep the refund from being accepted either.
	refund, err := l.RequestRefund(l.ctx, refundOf("o-1", 500, "k2"))
	require.NoError(t, err)
	assert.True(t, refund.Created)
	assert.Equal(t, 2, s.count("SELECT count(*) FROM reclaim.outbox WHERE delivered_at IS NULL"))
	report, err := l.Audit(l.ctx, "acme")
	require.NoError(t, err)
	assert.True(t, report.Sound)
	assert.False(t, report.Runs.Checked)
	refusal(t, contract.CodeUnavailable, l.OpenRefundsWithoutRun(l.ctx, "acme", func(client.OpenRefund) error { return nil }))
}

func TestAddOrder(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	order := orderOf("o-1", 10_000, 100)
	order.Currency = "EUR"
	added, err := s.AddOrder(s.ctx, order)
	require.NoError(t, err)
	assert.Equal(t, client.AddedOrder{OrderID: "o-1", Balance: 100}, added)
	for _, key := range []string{order.Key, "another key"} {
		again := order
		again.Key, again.Currency = key, "eur"
		same, err := s.AddOrder(s.ctx, again)
		require.NoError(t, err)
		assert.Equal(t, client.AddedOrder{Already: true, OrderID: "o-1", Balance: 100}, same)
	}
	entries := s.entries("acme", "team-7")
	require.Len(t, entries, 1)
	assert.Equal(t, [3]string{"topup", "o-1", "order o-1: 10000 eur paid through stripe-main"},
		[3]string{entries[0].Type, entries[0].OrderID, entries[0].Reason})

	for _, test := range []struct {
		change func(*contract.Order)
		says   string
	}{
		{func(o *contract.Order) { o.OrderID, o.Payment = "o-2", "pi_2" }, `the key "order o-1" stands for another order`},
		{func(o *contract.Order) { o.Paid++ }, `the key "order o-1" stands for another order`},
		{func(o *contract.Order) { o.Key = "k"; o.Paid++ }, "the order is there with other parameters"},
		{func(o *contract.Order) { o.Key = "k"; o.Account = "team-8" }, "the order is there with other parameters"},
		{func(o *contract.Order) { o.Key = "k"; o.Payment = "pi_2" }, "the order is there with other parameters"},
		{func(o *contract.Order) { o.Key = "k"; o.OrderID = "o-2" }, "the payment pi_o-1 of channel stripe-main bought order o-1"},
	} {
		other := order
		test.change(&other)
		_, err := s.AddOrder(s.ctx, other)
		assert.Contains(t, refusal(t, contract.CodeConflict, err).Message, test.says)
	}
	for _, key := range []string{"k", order.Key} {
		other := order
		other.Key, other.Asset = key, "TOKEN"
		_, err = s.AddOrder(s.ctx, other)
		assert.Contains(t, []contract.Code{contract.CodeBadInput, contract.CodeConflict}, contract.CodeOf(err))
	}
	token := orderOf("o-3", 1, 1)
	token.Asset = "TOKEN"
	_, err = s.AddOrder(s.ctx, token)
	assert.Contains(t, refusal(t, contract.CodeBadInput, err).Message, "asset is TOKEN, but the account holds CREDIT")
	_, err = s.AddOrder(s.ctx, orderOf("o-3", 1, contract.MaxCost))
	assert.Contains(t, refusal(t, contract.CodeBadInput, err).Message, "credits would take the balance of 100 beyond")
	_, err = s.AddOrder(s.ctx, contract.Order{})
	var fields []string
	for _, field := range refusal(t, contract.CodeBadInput, err).Fields {
		fields = append(fields, field.Field)
	}
	slices.Sort(fields)
	assert.Equal(t, []string{
		"account", "actor", "channel", "credits", "currency", "key", "orderId", "paid", "payment", "tenant",
	}, fields)
	assert.Len(t, s.entries("acme", "team-7"), 1)
	_, err = s.Order(s.ctx, "acme", "o-3")
	refusal(t, contract.CodeNotFound, err)
	s.sound()
}

func TestC62APaymentBuysOneOrderHoweverOftenItIsReported(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var group sync.WaitGroup
	var mu sync.Mutex
	var applied int
	codes := map[contract.Code]int{}
	for n := range 12 {
		group.Go(func() {
			order := orderOf(fmt.Sprint("o-", n%2), 10_000, 100)
			order.Payment, order.Key = "pi_1", fmt.Sprint("key ", n)
			added, err := s.AddOrder(s.ctx, order)
			mu.Lock()
			defer mu.Unlock()
			codes[contract.CodeOf(err)]++
			if err == nil && !added.Already {
				applied++
			}
		})
	}
	group.Wait()
	assert.Equal(t, 1, applied)
	assert.Equal(t, map[contract.Code]int{"": 6, contract.CodeConflict: 6}, codes)
	assert.Len(t, s.entries("acme", "team-7"), 1)
	s.sound()
}

// C62: the customer paid twice for one purchase; what goes back of the one payment leaves the other's order alone.
func TestC62_ARefundOfOneOfTwoPaymentsLeavesTheOtherAlone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.order("bought", 10_000, 100)
	s.order("bought-again", 10_000, 100)
	before, err := s.Order(s.ctx, "acme", "bought")
	require.NoError(t, err)
	twice := s.back("bought-again", 10_000, "k").RefundID
	s.send(twice)
	s.hears(twice, "create", "succeeded", "")
	after, err := s.Order(s.ctx, "acme", "bought")
	require.NoError(t, err)
	assert.Equal(t, before, after)
	account, err := s.Account(s.ctx, "acme", "team-7")
	require.NoError(t, err)
	assert.Equal(t, int64(100), account.Balance)
	other, err := s.Order(s.ctx, "acme", "bought-again")
	require.NoError(t, err)
	assert.Equal(t, [2]int64{0, 0}, [2]int64{other.Left, other.LeftCredits})
	s.sound()
}

func TestALostReplyOfAnOrderIsFoundOut(t *testing.T) {
	t.Parallel()
	base := schematest.New(t)
	proxy := schematest.NewLossyProxy(t, base.Address)
	s := openShop(t, base, proxy.URL(base.AppURL))
	proxy.LoseReply(schematest.Containing("INSERT INTO reclaim.orders"), 2)
	added, err := s.AddOrder(s.ctx, orderOf("o-1", 10_000, 100))
	require.NoError(t, err)
	assert.Equal(t, client.AddedOrder{Already: true, OrderID: "o-1", Balance: 100}, added)
	s.sound()
}
