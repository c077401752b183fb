package activities_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// sourceJob is a job whose refund leaves through its order.
type sourceJob struct {
	key    activities.JobKey
	source activities.SourceOrder
	refund contract.RefundKey
}

// sourced makes a job of 40 credits that is charged and whose refund leaves through the order.
func (w *world) sourced(orderID string) sourceJob {
	w.t.Helper()
	return w.sourcedOn(account, orderID)
}

func (w *world) sourcedOn(account, orderID string) sourceJob {
	w.t.Helper()
	key := w.newKey()
	source := activities.SourceOrder{OrderID: orderID, Account: account}
	request := chargeOf(key, account, 40)
	request.Source = source
	answer, err := w.jobs.ChargeJob(w.t.Context(), request)
	require.NoError(w.t, err)
	require.Equal(w.t, activities.Applied, answer.Verdict, answer.Why)
	return sourceJob{key, source, contract.RefundKey{Tenant: tenant, RefundID: contract.JobRefundNumber(tenant, key.JobID)}}
}

// sourceCalls are the guards that may send a job's refund to its source, or take it back.
var sourceCalls = map[string]func(w *world, jobs *activities.Jobs, j sourceJob) (activities.JobAnswer, error){
	"refund": func(w *world, jobs *activities.Jobs, j sourceJob) (activities.JobAnswer, error) {
		return jobs.RefundJob(w.t.Context(), activities.RefundRequest{JobKey: j.key, Reason: "promise passed", Source: j.source})
	},
	"close failed": func(w *world, jobs *activities.Jobs, j sourceJob) (activities.JobAnswer, error) {
		return jobs.CloseJob(w.t.Context(), activities.CloseRequest{JobKey: j.key, State: contract.StateFailed, Reason: "no such scene", Source: j.source})
	},
	"close canceled": func(w *world, jobs *activities.Jobs, j sourceJob) (activities.JobAnswer, error) {
		return jobs.CloseJob(w.t.Context(), activities.CloseRequest{JobKey: j.key, State: contract.StateCanceled, Reason: "canceled", Source: j.source})
	},
	"write off": func(w *world, jobs *activities.Jobs, j sourceJob) (activities.JobAnswer, error) {
		answer, err := jobs.ResolveJob(w.t.Context(), activities.ResolveRequest{
			JobKey: j.key, Resolution: resolution("d-write-off", contract.ActionWriteOff), Source: j.source,
		})
		return answer.JobAnswer, err
	},
	"deliver": func(w *world, jobs *activities.Jobs, j sourceJob) (activities.JobAnswer, error) {
		answer, err := jobs.ResolveJob(w.t.Context(), activities.ResolveRequest{
			JobKey: j.key, Resolution: resolution("d-deliver", contract.ActionDeliver), Source: j.source,
		})
		return answer.JobAnswer, err
	},
	"settle": func(w *world, jobs *activities.Jobs, j sourceJob) (activities.JobAnswer, error) {
		return jobs.SettleJob(w.t.Context(), activities.SettleRequest{JobKey: j.key, Attempt: 1, Reason: "delivered", Source: j.source})
	},
}

func (w *world) callSource(name string, j sourceJob) activities.JobAnswer {
	w.t.Helper()
	answer, err := sourceCalls[name](w, w.jobs, j)
	require.NoError(w.t, err)
	return answer
}

// refundingCalls are those of sourceCalls that give a running job's cost back.
var refundingCalls = []string{"refund", "close failed", "close canceled", "write off"}

func TestARefundToTheSourceIsAcceptedInTheTransactionOfTheRefund(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	for _, call := range refundingCalls {
		orderID := w.order(account, 1000, 100)
		before := w.balance(tenant, account)
		job := w.sourced(orderID)
		answer := w.callSource(call, job)
		assert.Equal(t, activities.Applied, answer.Verdict, call)
		assert.Equal(t, activities.SourceRefund{RefundID: job.refund.RefundID}, answer.Source, call)
		assert.Equal(t, []string{"charge -40", "refund 40", "payout -40"}, w.entries(job.key), call)
		assert.Equal(t, before-40, w.balance(tenant, account), call)
		assert.Equal(t, [4]int64{400, 0, 40, 0}, w.reserves(orderID), call)
		refund := w.refund(job.refund)
		assert.Equal(t, job.key.JobID, *refund.JobID)
		assert.Equal(t, "accepted", refund.State)
		assert.Contains(t, refund.Reason, "refund of job "+job.key.JobID+" to its source")
		assert.Contains(t, w.story(job.key), "source_refund", call)
		assert.Equal(t, []string{`{"tenant" : "acme", "refundId" : "` + job.refund.RefundID + `"}`},
			w.lines("SELECT payload FROM reclaim.outbox WHERE kind = 'start_refund' AND subject_id = $1", job.refund.RefundID))
		assert.Equal(t, []string{job.refund.RefundID},
			w.lines("SELECT subject_id FROM reclaim.operations WHERE kind = 'refund' AND actor = '' AND key = $1", contract.JobRefundKey(job.key.JobID)))

		story := w.story(job.key)
		again := w.callSource(call, job)
		assert.Equal(t, activities.Already, again.Verdict, call)
		assert.Equal(t, answer.Source, again.Source, "%s, once more", call)
		assert.Equal(t, story, w.story(job.key), "%s, once more", call)
		assert.Equal(t, [4]int64{400, 0, 40, 0}, w.reserves(orderID), "%s, once more", call)
	}
	w.assertRefundsSound()
}

// The operation of a job's refund is forgotten once its time has passed. Its number says for ever that it was accepted: a job
// may be reset or asked again months later.
func TestARefundToTheSourceIsKnownAgainAfterItsOperationIsPurged(t *testing.T) {
	t.Parallel()
	w, _, r, _ := newRefundWorld(t, 4)
	for _, call := range refundingCalls {
		for _, state := range refundStates {
			orderID := w.order(account, 1000, 100)
			job := w.sourced(orderID)
			first := w.callSource(call, job)
			require.Equal(t, activities.SourceRefund{RefundID: job.refund.RefundID}, first.Source)
			w.bring(r, job.refund, state)
			_, err := w.admin.Exec(t.Context(), `UPDATE reclaim.operations SET expires_at = clock_timestamp() - interval '1 minute'
				WHERE kind = 'refund'`)
			require.NoError(t, err)
			_, err = w.store.PurgeOperations(t.Context(), 100)
			require.NoError(t, err)
			require.Empty(t, w.lines("SELECT key FROM reclaim.operations WHERE kind = 'refund'"))

			where := fmt.Sprint(call, " of one that is ", state)
			entries, story, stands := w.entries(job.key), w.story(job.key), w.standsAs(job.refund)
			again := w.callSource(call, job)
			assert.Equal(t, activities.Already, again.Verdict, where)
			assert.Equal(t, first.Source, again.Source, where)
			// The statement itself knows it too, whatever else is asked under the job's key.
			for _, credits := range []int64{40, 1} {
				row, err := w.store.AcceptRefund(t.Context(), db.AcceptRefundParams{
					TenantID: tenant, RefundID: job.refund.RefundID, OrderID: orderID, JobID: &job.key.JobID,
					AccountID: &job.source.Account, Key: contract.JobRefundKey(job.key.JobID), Credits: &credits,
					Fingerprint: fmt.Sprint("f", credits), Reason: "once more", RetentionUs: 1, NotAfter: w.store.NotAfter(),
				})
				require.NoError(t, err, where)
				assert.Equal(t, []any{"already", job.refund.RefundID, string(state), int64(400), int64(40)},
					[]any{row.Answer, row.RefundID, row.State, row.Amount, row.Credits}, where)
			}
			assert.Equal(t, entries, w.entries(job.key), where)
			assert.Equal(t, story, w.story(job.key), where)
			assert.Equal(t, stands, w.standsAs(job.refund), where)
			assert.Empty(t, w.lines("SELECT key FROM reclaim.operations WHERE kind = 'refund'"), where)
			assert.Len(t, w.lines("SELECT kind FROM reclaim.outbox WHERE subject_id = $1", job.refund.RefundID), 1, where)
		}
	}
	// Without their operations they are not held against them.
	assert.Empty(t, w.auditRefunds(tenant))
	w.assertSound()
}

func TestARefusedRefundToTheSourceLeavesTheCredits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	for _, test := range []struct {
		name    string
		paid    int64
		credits int64
		prepare func(w *world, j *sourceJob)
		refusal string
	}{
		{"debt", 1000, 100, func(w *world, j *sourceJob) { w.adjust(tenant, j.source.Account, -160) }, "the account owes 60"},
		{"too little to take along", 1000, 100, func(w *world, j *sourceJob) { w.adjust(tenant, j.source.Account, -80) }, "the account has only 20 of them"},
		{"order of fewer credits", 1000, 39, func(*world, *sourceJob) {}, "has 1000 eur and 39 credits left to send back"},
		{"order that is refunded already", 1000, 100, func(w *world, j *sourceJob) { w.accepted(j.source.OrderID, 1000, 0) }, "has 0 eur and 100 credits left"},
		{"credits worth less than the smallest unit", 2, 100, func(*world, *sourceJob) {}, "left to send back"},
		{"order of another account", 1000, 100, func(_ *world, j *sourceJob) { j.source.Account = "team-8" }, "is another account's"},
		{"unknown order", 1000, 100, func(_ *world, j *sourceJob) { j.source.OrderID = "order-none" }, "there is no order order-none"},
	} {
		for _, call := range refundingCalls {
			account := fmt.Sprint("account-", w.keys.Add(1))
			if test.credits < 40 {
				w.topUp(tenant, account, 100-test.credits)
			}
			job := w.sourcedOn(account, w.order(account, test.paid, test.credits))
			test.prepare(w, &job)
			before := w.balance(tenant, account)
			answer := w.callSource(call, job)
			where := test.name + ": " + call
			assert.Equal(t, activities.Applied, answer.Verdict, where)
			assert.Empty(t, answer.Source.RefundID, where)
			assert.Contains(t, answer.Source.Refusal, "the credits stay on the account: ", where)
			assert.Contains(t, answer.Source.Refusal, test.refusal, where)
			assert.Equal(t, []string{"charge -40", "refund 40"}, w.entries(job.key), where)
			assert.Equal(t, before+40, w.balance(tenant, account), where)
			assert.Contains(t, w.story(job.key), "source_refused", where)
			story := w.story(job.key)
			assert.Equal(t, answer.Source, w.callSource(call, job).Source, "%s, once more", where)
			assert.Equal(t, story, w.story(job.key), "%s, once more, tells nothing", where)
		}
	}
	w.assertRefundsSound()
}

func TestARefundThatWasRefusedByADebtMayLeaveOnceItIsPaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	job := w.sourced(w.order(account, 1000, 100))
	w.adjust(tenant, account, -160)
	assert.NotEmpty(t, w.callSource("refund", job).Source.Refusal)
	w.topUp(tenant, account, 500)
	for range 2 {
		assert.Equal(t, activities.SourceRefund{RefundID: job.refund.RefundID}, w.callSource("refund", job).Source)
		assert.Equal(t, []string{"charge -40", "refund 40", "payout -40"}, w.entries(job.key))
	}
	w.assertRefundsSound()
}

func TestADecisionThatWasRefusedPaysNothingOutHoweverOftenItIsRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	job := w.sourced(w.order(account, 1000, 100))
	w.adjust(tenant, account, -160)
	assert.NotEmpty(t, w.callSource("refund", job).Source.Refusal)
	decide := func() activities.ResolveAnswer {
		answer, err := w.jobs.ResolveJob(t.Context(), activities.ResolveRequest{
			JobKey: job.key, Source: job.source, RecordRefusal: true,
			Resolution: contract.Resolution{ID: "r1", Action: contract.ActionRetry, Operator: "ann", Reason: "r", Attempts: 1},
		})
		require.NoError(t, err)
		return answer
	}
	require.Equal(t, activities.Refused, decide().Verdict, "a running job takes no retry")
	w.topUp(tenant, account, 500)
	for range 2 {
		answer := decide()
		assert.Equal(t, activities.Already, answer.Verdict)
		assert.Equal(t, contract.ResolutionRefused, answer.Outcome)
		assert.Zero(t, answer.Source)
		assert.Equal(t, []string{"charge -40", "refund 40"}, w.entries(job.key))
	}
	w.assertRefundsSound()
}

func TestAJobWithoutItsOrderIsNotCharged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	orderID := w.order(account, 1000, 100)
	w.topUp(tenant, "team-8", 100)
	for why, source := range map[string]activities.SourceOrder{
		activities.WhyUnknownOrder: {OrderID: "order-none", Account: account},
		activities.WhyOtherAccount: {OrderID: orderID, Account: "team-8"},
	} {
		request := chargeOf(w.newKey(), source.Account, 40)
		request.Source = source
		answer, err := w.jobs.ChargeJob(t.Context(), request)
		require.NoError(t, err)
		assert.Equal(t, activities.Refused, answer.Verdict)
		assert.Equal(t, why, answer.Why)
		assert.Nil(t, w.job(request.JobKey))
	}
	w.assertRefundsSound()
}

// Delivered after the refund was on its way: paid once, or the debt shows.
func TestC50_DeliveryAtEachStageOfTheRefundToTheSource(t *testing.T) {
	t.Parallel()
	w, _, r, _ := newRefundWorld(t, 4)
	for _, test := range []struct {
		stage contract.RefundState
		// credits is what the order bought: 40 are spent on the job, so that 40 leave a debt.
		credits  int64
		entries  string
		after    contract.RefundState
		reserves [4]int64
		balance  int64
	}{
		{contract.RefundAccepted, 100, "charge -40, refund 40, payout -40, reclaim -40, payout_return 40", contract.RefundCanceled, [4]int64{}, 60},
		{contract.RefundAccepted, 40, "charge -40, refund 40, payout -40, reclaim -40, payout_return 40", contract.RefundCanceled, [4]int64{}, 0},
		{contract.RefundUnknown, 100, "charge -40, refund 40, payout -40, reclaim -40", contract.RefundUnknown, [4]int64{400, 0, 40, 0}, 20},
		{contract.RefundUnknown, 40, "charge -40, refund 40, payout -40, reclaim -40", contract.RefundUnknown, [4]int64{1000, 0, 40, 0}, -40},
		{contract.RefundPending, 40, "charge -40, refund 40, payout -40, reclaim -40", contract.RefundPending, [4]int64{1000, 0, 40, 0}, -40},
		{contract.RefundSucceeded, 100, "charge -40, refund 40, payout -40, reclaim -40", contract.RefundSucceeded, [4]int64{0, 400, 0, 40}, 20},
		{contract.RefundSucceeded, 40, "charge -40, refund 40, payout -40, reclaim -40", contract.RefundSucceeded, [4]int64{0, 1000, 0, 40}, -40},
		{contract.RefundFailed, 40, "charge -40, refund 40, payout -40, payout_return 40, reclaim -40", contract.RefundFailed, [4]int64{}, 0},
		{contract.RefundReversed, 40, "charge -40, refund 40, payout -40, payout_return 40, reclaim -40", contract.RefundReversed, [4]int64{}, 0},
		{contract.RefundCanceled, 40, "charge -40, refund 40, payout -40, payout_return 40, reclaim -40", contract.RefundCanceled, [4]int64{}, 0},
	} {
		for _, call := range []string{"settle", "deliver"} {
			where := fmt.Sprint(call, " of one that is ", test.stage, ", ", test.credits)
			account := fmt.Sprint("account-", w.keys.Add(1))
			orderID := w.order(account, 1000, test.credits)
			job := w.sourcedOn(account, orderID)
			w.callSource("refund", job)
			w.bring(r, job.refund, test.stage)
			for range 2 {
				answer := w.callSource(call, job)
				assert.Equal(t, job.refund.RefundID, answer.Source.RefundID, where)
				assert.Equal(t, test.after == contract.RefundCanceled, answer.Source.Withdrawn, where)
				assert.Equal(t, contract.StateSucceeded, answer.Row.State, where)
				assert.True(t, answer.Row.Reclaimed, where)
				assert.Equal(t, test.entries, strings.Join(w.entries(job.key), ", "), where)
				assert.Equal(t, string(test.after), w.refund(job.refund).State, where)
				assert.Equal(t, test.reserves, w.reserves(orderID), where)
				assert.Equal(t, test.balance, w.balance(tenant, account), where)
			}
			// In debt nothing is charged; and where the refund ends without effect, its credits pay the debt.
			if test.balance < 0 {
				charge, err := w.jobs.ChargeJob(t.Context(), chargeOf(w.newKey(), account, 1))
				require.NoError(t, err)
				assert.Equal(t, activities.WhyDebt, charge.Why, where)
			}
			if test.after == contract.RefundUnknown || test.after == contract.RefundPending || test.after == contract.RefundSucceeded {
				assert.Equal(t, activities.Applied, w.apply(r, job.refund, activities.SourceNotice, w.says(job.refund, channel.OutcomeFailed)).Verdict)
				assert.Equal(t, test.balance+40, w.balance(tenant, account), "%s, which fails", where)
				assert.Equal(t, [4]int64{}, w.reserves(orderID))
			}
		}
	}
	job := w.sourced(w.order(account, 1000, 100))
	w.callSource("settle", job)
	assert.Equal(t, activities.WhyDelivered, w.callSource("refund", job).Why, "a delivered job's refund does not leave")
	assert.Equal(t, []string{"charge -40"}, w.entries(job.key))
	w.assertRefundsSound()
}

// A refund that leaves and the delivery that takes it back, at one instant, in every pairing.
func TestRefundAndDeliveryOfAJobAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 8)
	for _, call := range refundingCalls {
		for _, delivery := range []string{"settle", "deliver"} {
			orderID := w.order(account, 1000, 100)
			job := w.sourced(orderID)
			release := w.holdJob(job.key)
			var group sync.WaitGroup
			for _, name := range []string{call, delivery, call, delivery} {
				group.Go(func() {
					_, _, err := untilAnswered(func() (activities.JobAnswer, error) { return sourceCalls[name](w, w.jobs, job) })
					assert.NoError(t, err, "%s and %s", call, delivery)
				})
			}
			w.waitBlocked(4)
			release()
			group.Wait()
			row := w.job(job.key)
			assert.Contains(t, []string{"charge -40", "charge -40, refund 40, payout -40, reclaim -40, payout_return 40"},
				strings.Join(w.entries(job.key), ", "))
			assert.Equal(t, "succeeded", row.State)
			assert.Equal(t, [4]int64{}, w.reserves(orderID))
		}
	}
	w.assertRefundsSound()
}

func TestARefundToTheSourceWhoseReplyIsLostIsFoundAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	proxy, jobs := w.behind(4)
	commit := func(sql string) bool { return strings.EqualFold(sql, "commit") }
	for name, call := range sourceCalls {
		for _, refunded := range []bool{false, true} {
			orderID := w.order(account, 1000, 100)
			job := w.sourced(orderID)
			if refunded {
				w.callSource("refund", job)
			}
			lost := proxy.Lost()
			proxy.LoseReply(commit, 1)
			_, err := call(w, jobs, job)
			requireErrorType(t, err, "DatabaseUnavailable", true)
			require.Equal(t, lost+1, proxy.Lost(), name)
			entries, story, reserves := w.entries(job.key), w.story(job.key), w.reserves(orderID)
			answer, err := call(w, jobs, job)
			require.NoError(t, err)
			assert.Equal(t, activities.Already, answer.Verdict, name)
			assert.Equal(t, entries, w.entries(job.key), name)
			assert.Equal(t, story, w.story(job.key), name)
			assert.Equal(t, reserves, w.reserves(orderID), name)
		}
	}
	w.assertRefundsSound()
}

// An answer of the refund that is under way, and the job that it belongs to, ask for each other's rows.
func TestEvidenceAndTheJobAtOnceNeverDeadlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 16)
	r := w.through(newBank())
	orderID := w.order(account, 100_000, 100_000)
	for range 8 {
		jobs := make([]sourceJob, 4)
		for i := range jobs {
			jobs[i] = w.sourced(orderID)
			w.callSource("refund", jobs[i])
			w.beginSend(jobs[i].refund)
		}
		var group sync.WaitGroup
		start := make(chan struct{})
		for _, job := range jobs {
			evidence := w.says(job.refund, channel.OutcomeFailed)
			for _, name := range []string{"refund", "settle", "close failed"} {
				group.Go(func() {
					<-start
					_, err := sourceCalls[name](w, w.jobs, job)
					assert.NoError(t, err, name)
				})
			}
			group.Go(func() {
				<-start
				w.apply(r, job.refund, activities.SourceNotice, evidence)
			})
		}
		close(start)
		group.Wait()
	}
	w.assertRefundsSound()
}

// TestStormOfJobsWithASource does everything that can happen to jobs whose refunds leave through few orders, in 32
// goroutines at random.
func TestStormOfJobsWithASource(t *testing.T) {
	t.Parallel()
	const goroutines, jobsOfEach = 32, 12
	w := newWorld(t, goroutines)
	far := newBank()
	r := w.through(far)
	seed := seedOf(t)
	var jobs []sourceJob
	for i := range 4 {
		name := fmt.Sprint("team-", i/2)
		orderID := w.order(name, 1000, 100+400*int64(i%2))
		w.topUp(tenant, name, 600)
		for range jobsOfEach {
			jobs = append(jobs, w.sourcedOn(name, orderID))
		}
	}
	steps := 60
	if testing.Short() {
		steps = 15
	}
	var group sync.WaitGroup
	var told, failures counted
	for i := range uint64(goroutines) {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, i))
			for step := range steps {
				job := jobs[random.IntN(len(jobs))]
				what, types, err := w.sourceStep(r, job, random, fmt.Sprint(i, "-", step))
				failures.addAll(types)
				if !assert.NoError(t, err, what) {
					return
				}
				told.add(what, 1)
			}
		})
	}
	group.Wait()
	t.Logf("told %v, errors %v", told.by, failures.by)
	assertBusy(t, failures.by)
	for _, job := range jobs {
		row, entries := w.job(job.key), strings.Join(w.entries(job.key), ", ")
		if row.State == "succeeded" {
			assert.NotContains(t, entries, "charge -40, refund 40, payout -40, payout_return 40, payout")
			assert.Equal(t, row.IsRefunded, strings.Contains(entries, "reclaim -40"))
		}
	}
	w.assertRefundsSound()
}

// sourceStep makes one random call about a job or its refund.
func (w *world) sourceStep(
	r *activities.Refunds, job sourceJob, random *rand.Rand, id string,
) (what string, errorTypes map[string]int, err error) {
	ctx := w.t.Context()
	guard := func(name string) (string, map[string]int, error) {
		answer, types, err := untilAnswered(func() (activities.JobAnswer, error) { return sourceCalls[name](w, w.jobs, job) })
		return fmt.Sprint(name, " ", answer.Verdict), types, err
	}
	// Most jobs are refunded, few are settled early, so that refunds live long enough to see the rest.
	switch dice := random.IntN(20); {
	case dice < 6:
		return guard("refund")
	case dice < 7:
		return guard([]string{"settle", "deliver"}[random.IntN(2)])
	case dice < 8:
		return guard(refundingCalls[1+random.IntN(3)])
	case dice < 10:
		answer, err := w.store.BeginSend(ctx, sendParams(job.refund))
		return "send " + answer, nil, noRows(err)
	case dice < 17:
		outcome := outcomes[random.IntN(len(outcomes))]
		e := channel.Evidence{Outcome: outcome, Number: job.refund.RefundID, Reference: reference(job.refund.RefundID), Code: string(outcome)}
		if row, err := w.store.GetRefund(ctx, db.GetRefundParams{TenantID: tenant, RefundID: job.refund.RefundID}); err == nil {
			e.Amount, e.Currency = row.ReclaimRefund.Amount, row.ReclaimRefund.Currency
		}
		applied, types, err := untilAnswered(func() (activities.AppliedEvidence, error) {
			return r.ApplyEvidence(ctx, job.refund, activities.Observation{
				Source: channelSources[random.IntN(4)], Evidence: e, Reversible: true,
			})
		})
		return fmt.Sprint(outcome, " ", applied.Verdict), types, noRefund(err)
	case dice < 19:
		action := decisions[random.IntN(len(decisions))]
		d := decide("d-"+id, job.refund, action)
		if row, err := w.store.GetRefund(ctx, db.GetRefundParams{TenantID: tenant, RefundID: job.refund.RefundID}); err == nil && d.Amount > 0 {
			d.Amount = row.ReclaimRefund.Amount
		}
		answer, types, err := untilAnswered(func() (activities.ResolveRefundAnswer, error) {
			return r.ResolveRefund(ctx, activities.ResolveRefundRequest{RefundKey: job.refund, Resolution: d, RecordRefusal: true})
		})
		return fmt.Sprint(action, " ", answer.Verdict), types, noRefund(err)
	default:
		row, err := w.accept(w.ask(job.source.OrderID, 1+random.Int64N(5), random.Int64N(3)))
		return "ask " + row.Answer, nil, err
	}
}
