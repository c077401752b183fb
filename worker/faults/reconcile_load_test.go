package faults_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

const (
	// reconciledEnv is how many refunds are reconciled.
	reconciledEnv = "RECLAIM_RECONCILED"
	// perPayment is how many of them are of one payment.
	perPayment = 100
	// strayEvery is how often one of them is another here than there.
	strayEvery = 1000
	// reconciledWithin and reconciledMegabytes are what 100,000 may take, of the worker that makes the pass.
	reconciledWithin    = time.Minute
	reconciledMegabytes = 200
)

// It is played alone, since it measures.
func TestManyRefundsAreReconciled(t *testing.T) {
	needsFaults(t)
	refunds, err := strconv.Atoi(cmp.Or(os.Getenv(reconciledEnv), "5000"))
	require.NoError(t, err)
	s := sharedWorld(t).apart(t).stage(t, "").withChannel(silent)
	s.patience = 10 * time.Minute
	// Nothing here paid for them.
	defer s.tamper(`DELETE FROM reclaim.orders WHERE tenant_id = $1 AND order_id LIKE 'many%'`)
	defer s.tamper(`DELETE FROM reclaim.refunds WHERE tenant_id = $1 AND order_id LIKE 'many%'`)
	strays := s.ledgerOfRefunds(refunds)
	worker := s.startChild("", s.environment()...)
	began := time.Now()
	found := s.reconcile(contract.ReconcileRefunds)
	took := time.Since(began)
	_, most, measured := worker.memory()
	t.Logf("%d refunds of %d payments, %d of them with another amount, in %s; the worker's peak %d MB", refunds, refunds/perPayment, strays,
		took.Round(100*time.Millisecond), most)
	assert.Len(t, found, strays)
	for _, line := range found {
		assert.True(t, strings.HasPrefix(line, "opened refund_amount_differs "), line)
	}
	assert.Less(t, took, reconciledWithin)
	if measured {
		assert.Less(t, most, reconciledMegabytes, "megabytes")
	}
}

// ledgerOfRefunds has the channel make refunds, and writes them here as if they had been asked for and confirmed; every so many
// with another amount. The tenant's ledger knows nothing of them.
func (s *refundStage) ledgerOfRefunds(refunds int) (strays int) {
	s.t.Helper()
	type made struct{ number, reference, order string }
	all := make([]made, refunds)
	var makers sync.WaitGroup
	for n := range refunds / perPayment {
		require.NoError(s.t, s.simulator.AddPayment(simulator.Payment{
			Intent: payment(fmt.Sprintf("many%d", n)), Amount: perPayment * loadAmount, Currency: currency,
		}))
	}
	for first := range 4 {
		makers.Go(func() {
			for n := first; n < refunds; n += 4 {
				one := made{number: fmt.Sprintf("rf_many_%d", n), order: fmt.Sprintf("many%d", n/perPayment)}
				form := url.Values{
					"payment_intent": {payment(one.order)}, "amount": {strconv.Itoa(loadAmount)},
					"metadata[reclaim_refund]": {one.number}, "metadata[reclaim_payment]": {payment(one.order)},
				}
				request := httptest.NewRequest(http.MethodPost, "/v1/refunds", strings.NewReader(form.Encode()))
				request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				request.Header.Set("Authorization", "Bearer "+channelKey)
				request.Header.Set("Idempotency-Key", one.number)
				answer := httptest.NewRecorder()
				s.simulator.ServeHTTP(answer, request)
				var refund struct{ ID string }
				if !assert.NoError(s.t, json.Unmarshal(answer.Body.Bytes(), &refund)) || !assert.NotEmpty(s.t, refund.ID, "%s", answer.Body) {
					return
				}
				one.reference = refund.ID
				all[n] = one
			}
		})
	}
	makers.Wait()
	require.False(s.t, s.t.Failed())
	_, err := s.direct.Exec(s.ctx(), `INSERT INTO reclaim.orders (tenant_id, order_id, account_id, channel, channel_payment_id,
		currency, paid, credits, refunded) SELECT $1, 'many' || n, $2, $3, 'pi_many' || n, $4, $5, 1, $5
		FROM generate_series(0, $6::integer - 1) AS n`,
		s.tenant, account, s.channel, currency, perPayment*loadAmount, refunds/perPayment)
	require.NoError(s.t, err)
	now, row := time.Now(), 0
	_, err = s.direct.CopyFrom(s.ctx(), pgx.Identifier{"reclaim", "refunds"}, []string{
		"tenant_id", "refund_id", "order_id", "amount", "currency", "credits", "state", "channel_ref", "requested_by", "reason",
		"send_count", "first_sent_at", "succeeded_at", "ended_by",
	}, pgx.CopyFromFunc(func() ([]any, error) {
		if row == len(all) {
			return nil, nil
		}
		one, amount := all[row], loadAmount
		if row%strayEvery == 0 {
			amount, strays = amount-1, strays+1
		}
		row++
		return []any{
			s.tenant, one.number, one.order, amount, currency, 0, "succeeded", one.reference, "test", "a test", 1, now, now, "create",
		}, nil
	}))
	require.NoError(s.t, err)
	// Nobody waits here for the autovacuum, which counts what is written in a minute.
	_, err = s.direct.Exec(s.ctx(), `ANALYZE reclaim.orders, reclaim.refunds`)
	require.NoError(s.t, err)
	return strays
}
