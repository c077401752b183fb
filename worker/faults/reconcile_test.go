package faults_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/activities/channel/simulator"
	reclaim "github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// reconcile makes a pass and returns what it found, as "effect kind subject", in order.
func (s *stage) reconcile(parts ...contract.ReconcilePart) []string {
	s.t.Helper()
	return s.reconcileAs(contract.ReconcileRequest{Tenant: s.tenant, Parts: parts, Grace: contract.Duration(time.Millisecond)})
}

func (s *stage) reconcileAs(request contract.ReconcileRequest) []string {
	s.t.Helper()
	result, err := s.client.Reconcile(s.ctx(), request)
	require.NoError(s.t, err)
	require.True(s.t, result.Finished, "%+v", result.Compared)
	found := []string{}
	var counted int64
	for _, kind := range result.Found {
		counted += kind.Findings
	}
	_, err = s.client.Findings(s.ctx(), s.tenant, result.ReconciliationID, func(f reclaim.Finding) error {
		require.NotEmpty(s.t, f.Detail)
		found = append(found, fmt.Sprintf("%s %s %s", f.Effect, f.Kind, f.SubjectID))
		return nil
	})
	require.NoError(s.t, err)
	require.EqualValues(s.t, counted, len(found))
	slices.Sort(found)
	return found
}

func TestAReconciliationTakesUpWhatHasNoRun(t *testing.T) {
	s := newRefundStage(t, silent)
	s.startCharged(s.job("running"))
	s.next("running")
	s.startCharged(s.job("dead", attempts(1)))
	s.next("dead").fail(errBusy)
	s.reaches("dead", contract.StateDeadLetter)
	s.startCharged(s.job("well"))
	well := s.next("well")
	refund := s.refund(6000, life(step(0, "pending"), step(time.Hour, "succeeded")))
	s.refundReaches(refund, contract.RefundPending)
	s.terminate("running")
	s.terminate("dead")
	require.NoError(t, s.temporal.TerminateWorkflow(s.ctx(), contract.RefundWorkflowID(s.tenant, refund), "", "test"))

	assert.Equal(t, []string{
		"repaired job_without_run dead", "repaired job_without_run running", "repaired refund_without_run " + refund,
	}, s.reconcile(contract.ReconcileRuns))
	assert.Empty(t, s.reconcile(contract.ReconcileRuns), "a second pass finds nothing new")

	s.next("running").deliver("done")
	s.assertDelivered(s.runEnds("running"))
	assert.True(t, slices.ContainsFunc(s.events("running"), func(event string) bool { return strings.HasPrefix(event, "taken_up: ") }),
		"%q", s.events("running"))
	s.resolve("dead", decision("r1", contract.ActionWriteOff))
	s.assertRefunded(s.runEnds("dead"), contract.StateWrittenOff)
	s.simulator.Advance(time.Hour)
	_, err := s.decide(refund, contract.RefundResolution{ID: "d1", Action: contract.ActionExtend})
	require.NoError(t, err)
	s.refundEndsAs(refund, contract.RefundSucceeded)
	well.deliver("done")
	s.assertDelivered(s.await("well"))
}

func TestAReconciliationEndsRunsOfFinalRows(t *testing.T) {
	s := newStage(t)
	// A queue of the test's own, whose worker goes away: its run cannot notice that its row is final.
	shared := s.queue
	s.queue = "reclaim-" + s.tenant
	s.client = s.asker(s.queue)
	stop := s.startWorker(t, s.store, s.queue)
	s.startCharged(s.job("j1", attempts(1)))
	s.next("j1").fail(errBusy)
	s.reaches("j1", contract.StateDeadLetter)
	s.startCharged(s.job("working"))
	working := s.next("working")
	stop()
	jobs := activities.NewJobs(s.store)
	for _, id := range []string{"j1", "working"} {
		_, err := jobs.CloseJob(s.ctx(), activities.CloseRequest{
			JobKey: activities.JobKey{Tenant: s.tenant, JobID: id}, State: contract.StateCanceled, Reason: "a test",
		})
		require.NoError(t, err)
	}
	own := s.queue
	s.client = s.asker(shared)
	var found []string
	eventually(t, "visibility lists the run", func() bool {
		found = s.reconcile(contract.ReconcileRuns)
		return len(found) > 0
	})
	assert.Equal(t, []string{"repaired run_of_final_job j1"}, found)
	running, err := s.client.HasRun(s.ctx(), contract.JobWorkflowID(s.tenant, "j1"))
	require.NoError(t, err)
	assert.False(t, running)
	eventually(t, "visibility forgets the run", func() bool { return len(s.reconcile(contract.ReconcileRuns)) == 0 })
	assert.Equal(t, "charge refund", s.story("j1"))

	// Work that has not ended may yet deliver, and its end is heard even if no worker is there when it comes.
	working.deliver("done")
	eventually(t, "the work's end waits for a worker", func() bool {
		described, err := s.temporal.DescribeWorkflow(s.ctx(), contract.JobWorkflowID(s.tenant, "working"), "")
		return err == nil && described.RawResponse.GetPendingWorkflowTask() != nil
	})
	assert.Empty(t, s.reconcile(contract.ReconcileRuns))
	s.startWorker(t, s.store, own)
	s.assertReclaimed(s.runEnds("working"))
}

// falsified is a channel whose word is changed on its way here.
type falsified struct {
	channel.Channel
	// line changes what is listed of a refund; false leaves it out.
	line func(*channel.Evidence) bool
	// more are lines that are listed beside them.
	more []channel.Evidence
}

func (f *falsified) RefundsMade(ctx context.Context, period channel.Period, after string) (channel.Listing, error) {
	listing, err := f.Channel.RefundsMade(ctx, period, after)
	var lines []channel.Evidence
	for _, e := range listing.Lines {
		if f.line(&e) {
			lines = append(lines, e)
		}
	}
	listing.Lines = append(lines, f.more...)
	return listing, err
}

func (f *falsified) Query(ctx context.Context, refund channel.Refund) (channel.Evidence, error) {
	e, err := f.Channel.Query(ctx, refund)
	if err == nil && !f.line(&e) {
		return channel.Evidence{Outcome: channel.OutcomeNotFound, Code: "resource_missing"}, nil
	}
	return e, err
}

func TestAReconciliationHoldsRefundsAgainstTheChannelsList(t *testing.T) {
	s := newRefundStage(t, silent)
	ends := func(outcome string) string {
		id := s.refund(100, life(step(0, outcome)))
		s.refundReaches(id, contract.RefundState(outcome))
		return id
	}
	well := ends("succeeded")
	amount, money, payment, twice, unknown, lost := ends("succeeded"), ends("succeeded"), ends("succeeded"), ends("succeeded"),
		ends("succeeded"), ends("succeeded")
	confirmed := s.refund(100, life(step(0, "pending"), step(time.Hour, "succeeded")))
	s.refundReaches(confirmed, contract.RefundPending)
	reversed := s.refund(100, life(step(0, "succeeded"), step(time.Hour, "failed")))
	s.refundReaches(reversed, contract.RefundSucceeded)
	returned := s.refund(100, life(step(0, "failed"), step(time.Hour, "succeeded")))
	s.refundReaches(returned, contract.RefundFailed)
	s.simulator.Advance(time.Hour)
	s.madeElsewhere("pi_"+order, 70)

	far, err := s.channels.Named(s.channel)
	require.NoError(t, err)
	wrong := &falsified{Channel: far}
	wrong.line = func(e *channel.Evidence) bool {
		switch e.Number {
		case amount:
			e.Amount++
		case money:
			e.Currency = "eur"
		case payment:
			e.Payment, e.PaymentAlias = "pi_other", ""
		case unknown:
			e.Outcome, e.Code = channel.OutcomeUnknown, "on_the_moon"
		case lost:
			return false
		case twice:
			wrong.more = []channel.Evidence{*e}
			wrong.more[0].Reference = "re_second"
		}
		return true
	}
	s.channels.add(s.channel, wrong)

	want := []string{
		"opened refund_amount_differs " + amount, "opened refund_currency_differs " + money, "opened refund_late_reversal " + reversed,
		"opened refund_made_twice " + twice, "opened refund_missing_here " + order, "opened refund_missing_there " + lost,
		"opened refund_payment_differs " + payment, "opened refund_status_differs " + returned,
		"opened refund_status_unknown " + unknown, "repaired refund_status_differs " + confirmed,
	}
	slices.Sort(want)
	// The simulator is an hour ahead.
	period := contract.ReconcileRequest{
		Tenant: s.tenant, Parts: []contract.ReconcilePart{contract.ReconcileRefunds}, Until: time.Now().Add(2 * time.Hour),
	}
	assert.Equal(t, want, s.reconcileAs(period))
	assert.Equal(t, contract.RefundSucceeded, s.refundState(confirmed))
	assert.Equal(t, contract.RefundReversed, s.refundState(reversed))
	assert.Equal(t, contract.RefundSucceeded, s.refundState(well))
	s.refundEndsAs(confirmed, contract.RefundSucceeded)
	opened := s.issues()
	slices.Sort(opened)
	assert.Equal(t, []string{
		"reference_lost", "refund_amount_differs", "refund_currency_differs", "refund_made_twice", "refund_payment_differs",
		"refund_reversed", "refund_status_unknown", "success_after_failure", "unknown_refund",
	}, opened)

	again := s.reconcileAs(period)
	assert.True(t, slices.ContainsFunc(again, func(line string) bool { return strings.HasPrefix(line, "known ") }))
	assert.False(t, slices.ContainsFunc(again, func(line string) bool {
		return !strings.HasPrefix(line, "known ") && !strings.HasPrefix(line, "noted ")
	}), "a second pass finds nothing new: %q", again)
	assert.Len(t, s.issues(), len(opened))
	s.refunds = slices.DeleteFunc(s.refunds, func(id string) bool { return id == returned }) // its money is out, as its issue says
}

// madeElsewhere refunds a part of a payment at the channel itself, as somebody does in its dashboard.
func (s *refundStage) madeElsewhere(payment string, amount int64) {
	s.t.Helper()
	form := url.Values{"payment_intent": {payment}, "amount": {fmt.Sprint(amount)}}
	request, err := http.NewRequestWithContext(s.ctx(), http.MethodPost, s.simulator.URL()+"/v1/refunds", strings.NewReader(form.Encode()))
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "Bearer "+channelKey)
	request.Header.Set("Idempotency-Key", "dashboard-"+payment)
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	require.NoError(s.t, response.Body.Close())
	require.Equal(s.t, http.StatusOK, response.StatusCode)
}

func TestAReconciliationHoldsOrdersAgainstTheChannelsPayments(t *testing.T) {
	s := newRefundStage(t, silent)
	require.NoError(t, s.simulator.AddPayment(simulator.Payment{Intent: "pi_nobodys", Amount: 500, Currency: currency}))
	for id, paid := range map[string]int64{"absent": 0, "short": 900, "foreign": 1000} {
		if paid > 0 {
			p := simulator.Payment{Intent: payment(id), Amount: paid, Currency: currency}
			if id == "foreign" {
				p.Currency = "eur"
			}
			require.NoError(t, s.simulator.AddPayment(p))
		}
		_, err := s.client.AddOrder(s.ctx(), contract.Order{
			Tenant: s.tenant, OrderID: id, Account: account, Channel: s.channel, Payment: payment(id), Currency: currency, Paid: 1000,
			Credits: 10, Actor: "test", Key: id,
		})
		require.NoError(t, err)
	}
	// The stage's own order has the payment by its intent.
	_, err := s.client.AddOrder(s.ctx(), contract.Order{
		Tenant: s.tenant, OrderID: "twice", Account: account, Channel: s.channel, Payment: "ch_" + strings.TrimPrefix(payment(order), "pi_"), Currency: currency,
		Paid: paid, Credits: 10, Actor: "test", Key: "twice",
	})
	require.NoError(t, err)
	parts := contract.ReconcilePayments
	assert.Equal(t, []string{
		"opened payment_amount_differs short", "opened payment_currency_differs foreign", "opened payment_missing_there absent",
		"opened payment_ordered_twice twice",
	}, s.reconcile(parts))
	assert.Equal(t, []string{
		"known payment_amount_differs short", "known payment_currency_differs foreign", "known payment_missing_there absent",
		"known payment_ordered_twice twice",
	}, s.reconcile(parts))
	assert.Equal(t, 1, value[int](s.stage, `SELECT count(*) FROM reclaim.issues
		WHERE tenant_id = 'unassigned' AND kind = 'payment_missing_here' AND subject_id = $1`, s.channel))
}

func TestAReconciliationOpensAnIssueForEachBrokenRule(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("j1"))
	s.next("j1").deliver("done")
	s.await("j1")
	assert.Empty(t, s.reconcile(contract.ReconcileLedger))
	s.tamper(`UPDATE reclaim.accounts SET balance = balance + 7 WHERE tenant_id = $1`)
	found := s.reconcile(contract.ReconcileLedger)
	assert.Equal(t, []string{"opened account_balance " + account, "opened account_sum " + account}, found)
	assert.Equal(t, []string{"known account_balance " + account, "known account_sum " + account}, s.reconcile(contract.ReconcileLedger))
	s.tamper(`UPDATE reclaim.accounts SET balance = balance - 7 WHERE tenant_id = $1`)
	assert.Empty(t, s.reconcile(contract.ReconcileLedger))

	s.tamper(`UPDATE reclaim.jobs SET is_refunded = true, refunded_at = now(), is_reclaimed = true, reclaimed_at = now()
		WHERE tenant_id = $1`)
	assert.Equal(t, []string{"opened job_entries j1"}, s.reconcile(contract.ReconcileLedger), "a flag is wrong")
	assert.Equal(t, []string{"known job_entries j1"}, s.reconcile(contract.ReconcileLedger))
	s.tamper(`UPDATE reclaim.jobs SET is_refunded = false, refunded_at = NULL, is_reclaimed = false, reclaimed_at = NULL
		WHERE tenant_id = $1`)

	charge := value[string](s, `SELECT to_jsonb(e)::text FROM reclaim.ledger_entries AS e WHERE tenant_id = $1 AND type = 'charge'`, s.tenant)
	s.tamper(`DELETE FROM reclaim.ledger_entries WHERE tenant_id = $1 AND type = 'charge'`)
	assert.Equal(t, []string{
		"known account_balance " + account, "known account_sum " + account, "known job_entries j1",
		"opened account_seq " + account, "opened job_net j1",
	}, s.reconcile(contract.ReconcileLedger), "an entry is missing")
	s.tamper(`INSERT INTO reclaim.ledger_entries SELECT (jsonb_populate_record(NULL::reclaim.ledger_entries, $2::jsonb)).*
		WHERE $1 <> ''`, charge)
	assert.Empty(t, s.reconcile(contract.ReconcileLedger))
}

// What is proven is the ledger of all tenants then, and each tenant's passes open what is broken in its own.
func TestAReconciliationOfWhatIsNewLeavesOtherTenantsTheirOwn(t *testing.T) {
	damaged := newStage(t)
	other := damaged.stage(t, "")
	whatIsNew := func(s *stage) []string {
		return s.reconcileAs(contract.ReconcileRequest{
			Tenant: s.tenant, Parts: []contract.ReconcilePart{contract.ReconcileLedger}, WholeEvery: contract.ReconcileWholeEvery,
		})
	}
	damaged.topUp(account, 5)
	damaged.tamper(`UPDATE reclaim.accounts SET balance = balance + 7 WHERE tenant_id = $1`)
	assert.Equal(t, []string{"opened account_balance " + account, "opened account_sum " + account}, whatIsNew(damaged))
	assert.Empty(t, whatIsNew(other))
	assert.Equal(t, []string{"known account_balance " + account, "known account_sum " + account}, whatIsNew(damaged))
	damaged.tamper(`UPDATE reclaim.accounts SET balance = balance - 7 WHERE tenant_id = $1`)
	assert.Empty(t, whatIsNew(damaged))
}

// tamper changes the tenant's rows past every guard and trigger.
func (s *stage) tamper(statement string, args ...any) {
	s.t.Helper()
	require.NoError(s.t, pgx.BeginFunc(s.ctx(), s.direct, func(tx pgx.Tx) error {
		if _, err := tx.Exec(s.ctx(), "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		tag, err := tx.Exec(s.ctx(), statement, append([]any{s.tenant}, args...)...)
		if err == nil && tag.RowsAffected() == 0 {
			return errors.New("there is nothing to change")
		}
		return err
	}))
}

func TestReconciliationsAreMadeOnSchedule(t *testing.T) {
	s := newStage(t)
	s.startCharged(s.job("open"))
	s.next("open")
	s.terminate("open")
	request := contract.ReconcileRequest{
		Tenant: s.tenant, Parts: []contract.ReconcilePart{contract.ReconcileRuns}, Grace: contract.Duration(time.Millisecond),
	}
	for _, wrong := range []struct {
		rule   string
		every  time.Duration
		change func(*contract.ReconcileRequest)
	}{
		{"every must be at least 1m", 59 * time.Second, func(*contract.ReconcileRequest) {}},
		{"since and until have no place in a schedule", time.Hour, func(r *contract.ReconcileRequest) { r.Since = time.Now().Add(-time.Hour) }},
		{"settlement has no place in a schedule", time.Hour, func(r *contract.ReconcileRequest) {
			r.Parts, r.Settlement = nil, &contract.SettlementKey{Channel: "sim", Hash: strings.Repeat("a", 64)}
		}},
	} {
		bad := request
		wrong.change(&bad)
		err := s.client.ScheduleReconcile(s.ctx(), wrong.every, bad)
		require.ErrorContains(t, err, wrong.rule)
		assert.Equal(t, contract.CodeBadInput, contract.AsError(err).Code)
	}
	schedule := s.temporal.ScheduleClient().GetHandle(s.ctx(), contract.ReconcileWorkflowID(s.tenant))
	_, err := schedule.Describe(s.ctx())
	require.Error(t, err, "what is refused schedules nothing")

	require.NoError(t, s.client.ScheduleReconcile(s.ctx(), time.Hour, contract.ReconcileRequest{Tenant: s.tenant}))
	request.WholeEvery = contract.Duration(48 * time.Hour)
	require.NoError(t, s.client.ScheduleReconcile(s.ctx(), 2*time.Hour, request))
	described, err := schedule.Describe(s.ctx())
	require.NoError(t, err)
	require.Len(t, described.Schedule.Spec.Intervals, 1, "the second replaces the first")
	assert.Equal(t, 2*time.Hour, described.Schedule.Spec.Intervals[0].Every)

	require.NoError(t, schedule.Trigger(s.ctx(), client.ScheduleTriggerOptions{}))
	var runID string
	eventually(t, "the schedule starts a pass", func() bool {
		described, err := schedule.Describe(s.ctx())
		if err != nil || len(described.Info.RecentActions) == 0 {
			return false
		}
		runID = described.Info.RecentActions[0].StartWorkflowResult.WorkflowID
		return true
	})
	var result contract.ReconcileResult
	pass := s.temporal.GetWorkflow(s.ctx(), runID, "")
	require.NoError(t, pass.Get(s.ctx(), &result))
	assert.True(t, result.Finished)
	require.Len(t, result.Compared, 1, "the schedule's own parts and no others")
	assert.Equal(t, contract.ReconcileRuns, result.Compared[0].Part)
	var asked contract.ReconcileRequest
	history := s.temporal.GetWorkflowHistory(s.ctx(), runID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	begun, err := history.Next()
	require.NoError(t, err)
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(begun.GetWorkflowExecutionStartedEventAttributes().GetInput(), &asked))
	assert.Equal(t, request.WholeEvery, asked.WholeEvery)
	s.next("open").deliver("done")
	s.assertDelivered(s.runEnds("open"))

	require.NoError(t, s.client.UnscheduleReconcile(s.ctx(), s.tenant))
	assert.Equal(t, contract.CodeNotFound, contract.AsError(s.client.UnscheduleReconcile(s.ctx(), s.tenant)).Code)
}
