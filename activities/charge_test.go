package activities_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// chargeAll charges a new job of each cost in parallel and counts the answers.
func (w *world) chargeAll(account string, costs []int64) map[string]int {
	w.t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	answers := map[string]int{}
	for _, cost := range costs {
		key := w.newKey()
		group.Go(func() {
			answer, _, err := untilAnswered(func() (activities.ChargeAnswer, error) {
				return w.jobs.ChargeJob(w.t.Context(), chargeOf(key, account, cost))
			})
			mu.Lock()
			defer mu.Unlock()
			answers[told(answered{verdict: answer.Verdict, why: answer.Why}, err)]++
		})
	}
	group.Wait()
	return answers
}

func times(n int, cost int64) (costs []int64) {
	for range n {
		costs = append(costs, cost)
	}
	return costs
}

func TestParallelChargesNeverOverdraw(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 20)
	for _, test := range []struct {
		name    string
		balance int64
		costs   []int64
		applied int
		left    int64
	}{
		{"L26: 20 jobs of 10 on a balance of 10", 10, times(20, 10), 1, 0},
		{"L31: six of 1,000 on 5,000", 5000, times(6, 1000), 5, 0},
		{"L29: 400 of 1 on 400", 400, times(400, 1), 400, 0},
		{"L29: 300 of 1 on 200", 200, times(300, 1), 200, 0},
		{"one more than there is", 99, times(5, 100), 0, 99},
		{"all there is", contract.MaxCost, times(3, contract.MaxCost), 1, 0},
	} {
		account := fmt.Sprint("account-", w.keys.Add(1))
		w.topUp(tenant, account, test.balance)
		expected := map[string]int{}
		if test.applied > 0 {
			expected["applied"] = test.applied
		}
		if refused := len(test.costs) - test.applied; refused > 0 {
			expected["refused insufficient_credits"] = refused
		}
		assert.Equal(t, expected, w.chargeAll(account, test.costs), test.name)
		assert.Equal(t, test.left, w.balance(tenant, account), test.name)
	}
	w.assertSound()
}

func TestL29_ManyAccountsAndOneHotOneInParallel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 16)
	var group sync.WaitGroup
	for i := range 8 {
		// Every fourth goroutine works on the same account.
		account, expected := fmt.Sprint("account-", i), map[string]int{"applied": 30, "refused insufficient_credits": 10}
		if i%4 == 0 {
			account, expected = "hot", nil
		}
		w.topUp(tenant, account, 90)
		group.Go(func() {
			answers := w.chargeAll(account, times(40, 3))
			if expected != nil {
				assert.Equal(t, expected, answers, account)
				assert.Zero(t, w.balance(tenant, account), account)
			}
		})
	}
	group.Wait()
	assert.Zero(t, w.balance(tenant, "hot"))
	assert.Equal(t, []string{"60"}, w.lines(`SELECT count(*)::text FROM reclaim.ledger_entries
		WHERE account_id = 'hot' AND type = 'charge'`))
	w.assertSound()
}

// The balance that decides is the one under the lock, not the one that the statement first saw.
func TestL28_AChargeThatWaitedSpendsWhatIsLeft(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		others  int64
		told    string
		balance int64
	}{
		{"the one in front took it", 60, "refused insufficient_credits", 40},
		{"the one in front left enough", 20, "applied", 30},
		{"the one in front made a debt", -1, "refused debt", -1},
		{"the one in front topped up", 1, "applied", 100},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4)
			front, err := w.admin.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = front.Rollback(t.Context()) }()
			cost := int64(50)
			queries := db.New(front)
			switch test.others {
			case -1:
				w.topUp(tenant, account, 100)
				_, err = queries.AdjustAccount(t.Context(), db.AdjustAccountParams{
					TenantID: tenant, AccountID: account, Actor: "test", Key: "debt", Amount: -101, Fingerprint: "f",
					Reason: "chargeback", NotAfter: w.store.NotAfter(),
				})
			case 1:
				w.topUp(tenant, account, 10)
				_, err = queries.TopUpAccount(t.Context(), db.TopUpAccountParams{
					TenantID: tenant, AccountID: account, Actor: "test", Key: "more", Asset: "CREDIT", Amount: 140,
					Fingerprint: "f", Reason: "top-up", NotAfter: w.store.NotAfter(),
				})
			default:
				w.topUp(tenant, account, 100)
				_, err = queries.ChargeJob(t.Context(), db.ChargeJobParams{
					TenantID: tenant, JobID: "front", AccountID: account, Cost: test.others, Fingerprint: "f", Spec: "{}",
					Reason: "render", NotAfter: w.store.NotAfter(),
				})
			}
			require.NoError(t, err)
			answers := make(chan activities.ChargeAnswer, 1)
			go func() {
				answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(w.newKey(), account, cost))
				assert.NoError(t, err)
				answers <- answer
			}()
			w.waitBlocked(1)
			require.NoError(t, front.Commit(t.Context()))
			answer := <-answers
			assert.Equal(t, test.told, told(answered{verdict: answer.Verdict, why: answer.Why}, nil))
			assert.Equal(t, test.balance, answer.Balance)
			assert.Equal(t, test.balance, w.balance(tenant, account))
			w.assertSound()
		})
	}
}

func TestAChargeIsDeclinedOnTheAccountsStanding(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, "poor", 39)
	w.topUp(tenant, "empty", 5)
	w.adjust(tenant, "empty", -5)
	// A debt as it comes about: the refund was spent when the work succeeded late.
	w.topUp(tenant, "debtor", 40)
	late := w.charged("debtor", 40)
	_, err := w.jobs.RefundJob(t.Context(), activities.RefundRequest{JobKey: late, Reason: "promise passed"})
	require.NoError(t, err)
	w.charged("debtor", 39)
	_, err = w.jobs.SettleJob(t.Context(), activities.SettleRequest{JobKey: late, Attempt: 1, Reason: "delivered"})
	require.NoError(t, err)
	require.EqualValues(t, -39, w.balance(tenant, "debtor"))

	for _, test := range []struct {
		account string
		cost    int64
		why     string
		balance int64
	}{
		{"poor", 40, activities.WhyInsufficientCredits, 39},
		{"poor", contract.MaxCost, activities.WhyInsufficientCredits, 39},
		{"poor", 39, "", 0},
		{"empty", 1, activities.WhyInsufficientCredits, 0},
		{"empty", 0, "", 0},
		{"debtor", 1, activities.WhyDebt, -39},
		{"debtor", 0, activities.WhyDebt, -39},
		{"nobody", 1, activities.WhyUnknownAccount, 0},
		{"nobody", 0, activities.WhyUnknownAccount, 0},
	} {
		where := fmt.Sprint(test.account, " pays ", test.cost)
		key := w.newKey()
		answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, test.account, test.cost))
		require.NoError(t, err, where)
		assert.Equal(t, test.why, answer.Why, where)
		assert.Equal(t, test.balance, answer.Balance, where)
		if test.why == "" {
			assert.Equal(t, activities.Applied, answer.Verdict, where)
			continue
		}
		assert.Equal(t, activities.Refused, answer.Verdict, where)
		assert.Empty(t, answer.Row.State, where)
		assert.Nil(t, w.job(key), "%s: a declined job has no row", where)
		// L22: what was declined can be neither refunded nor reclaimed.
		_, err = w.jobs.SettleJob(t.Context(), activities.SettleRequest{JobKey: key, Attempt: 1, Reason: "late callback"})
		requireErrorType(t, err, activities.ErrorNoJob, false)
		_, err = w.jobs.RefundJob(t.Context(), activities.RefundRequest{JobKey: key, Reason: "promise passed"})
		requireErrorType(t, err, activities.ErrorNoJob, false)
		assert.Empty(t, w.entries(key), where)
	}
	// Paid back, the debtor may go on.
	w.topUp(tenant, "debtor", 39)
	w.charged("debtor", 0)
	w.assertSound()
}

func TestEveryGuardSaysThatThereIsNoSuchJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 40)
	for _, guard := range guardCalls {
		key := w.newKey()
		answer, err := guard.call(t.Context(), w.jobs, key, 40, 0)
		switch guard.statement {
		case "ChargeJob":
		case "RecordJobEvent":
			require.NoError(t, err)
			assert.Equal(t, activities.Refused, answer.verdict)
		default:
			requireErrorType(t, err, activities.ErrorNoJob, false)
		}
	}
	_, err := w.jobs.ReadJobSpec(t.Context(), w.newKey())
	requireErrorType(t, err, activities.ErrorNoJob, false)
	_, err = w.jobs.ReadJobOutput(t.Context(), w.newKey())
	requireErrorType(t, err, activities.ErrorNoJob, false)
	w.assertSound()
}

func TestL34_TheSameJobWithOtherParametersConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	w.topUp(tenant, "other", 100)
	key := w.charged(account, 5)
	row := w.rowOf(key)
	for name, change := range map[string]func(*activities.ChargeRequest){
		"cost":          func(r *activities.ChargeRequest) { r.Cost, r.Fingerprint = 9, "9" },
		"account":       func(r *activities.ChargeRequest) { r.Account, r.Fingerprint = "other", "other" },
		"no account":    func(r *activities.ChargeRequest) { r.Account, r.Fingerprint = "nobody", "nobody" },
		"work":          func(r *activities.ChargeRequest) { r.Fingerprint = "another work" },
		"beyond credit": func(r *activities.ChargeRequest) { r.Cost, r.Fingerprint = 1000, "1000" },
	} {
		request := chargeOf(key, account, 5)
		change(&request)
		answer, err := w.jobs.ChargeJob(t.Context(), request)
		require.NoError(t, err, name)
		assert.Equal(t, activities.WhyConflict, answer.Why, name)
		assert.Equal(t, row, sameRow(answer.Row), name)
	}
	same := chargeOf(key, account, 5)
	same.Spec, same.Reason, same.Ladder = `{"promise":"1h"}`, "another text", 7
	answer, err := w.jobs.ChargeJob(t.Context(), same)
	require.NoError(t, err)
	assert.Equal(t, activities.Already, answer.Verdict)
	assert.False(t, answer.SameSpec, "the stored spec governs")
	assert.Equal(t, 7, answer.Ladder)
	assert.EqualValues(t, 95, answer.Balance)
	spec, err := w.jobs.ReadJobSpec(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, "{}", spec)
	assert.EqualValues(t, 95, w.balance(tenant, account))
	assert.EqualValues(t, 100, w.balance(tenant, "other"))
	w.assertSound()
}

func TestL34_OfTwoDifferentChargesOfOneJobAtOnceOneConflicts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, secondAccount string }{{"on one account", account}, {"on two accounts", "other"}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 4)
			w.topUp(tenant, account, 10)
			w.topUp(tenant, "other", 10)
			key := w.newKey()
			release := w.holdAccount(tenant, account)
			if test.secondAccount != account {
				releaseFirst, releaseSecond := release, w.holdAccount(tenant, "other")
				release = func() { releaseFirst(); releaseSecond() }
			}
			answers := make(chan string, 2)
			for _, request := range []activities.ChargeRequest{chargeOf(key, account, 10), chargeOf(key, test.secondAccount, 9)} {
				go func() {
					answer, _, err := untilAnswered(func() (activities.ChargeAnswer, error) {
						return w.jobs.ChargeJob(t.Context(), request)
					})
					answers <- told(answered{verdict: answer.Verdict, why: answer.Why}, err)
				}()
			}
			w.waitBlocked(2)
			release()
			assert.ElementsMatch(t, []string{"applied", "refused conflict"}, []string{<-answers, <-answers})
			assert.Len(t, w.entries(key), 1)
			w.assertSound()
		})
	}
}

func TestL35_TwoTenantsWithTheSameIdsDoNotMeet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	ours, theirs := activities.JobKey{Tenant: "acme", JobID: "1"}, activities.JobKey{Tenant: "globex", JobID: "1"}
	for _, key := range []activities.JobKey{ours, theirs} {
		w.topUp(key.Tenant, account, 10)
		answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, account, 10))
		require.NoError(t, err)
		require.Equal(t, activities.Applied, answer.Verdict)
	}
	for _, guard := range []string{"refund, next failed", "record next failed", "park", "signal retry", "event", "settle"} {
		_, err := callNamed(guard).call(t.Context(), w.jobs, ours, 10, w.rowOf(ours).Attempts)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"charge -10", "refund 10", "reclaim -10"}, w.entries(ours))
	assert.Equal(t, []string{"charge -10"}, w.entries(theirs))
	assert.Empty(t, w.story(theirs))
	assert.Equal(t, "running 0/0/1", toldRow(w.rowOf(theirs)))
	// The other tenant decides under the same id.
	answer, err := callNamed("signal retry").call(t.Context(), w.jobs, theirs, 10, 0)
	require.NoError(t, err)
	assert.Equal(t, activities.WhyWrongState, answer.why)
	w.assertSound()
}

func TestL50_TheLargestAmountsAreExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, contract.MaxCost)
	key := w.charged(account, contract.MaxCost)
	w.topUp(tenant, account, contract.MaxCost)
	_, err := w.jobs.RefundJob(t.Context(), activities.RefundRequest{JobKey: key, Reason: "promise passed"})
	require.NoError(t, err)
	assert.Equal(t, 2*contract.MaxCost, w.balance(tenant, account))
	answer, err := w.jobs.SettleJob(t.Context(), activities.SettleRequest{JobKey: key, Attempt: 1, Reason: "delivered"})
	require.NoError(t, err)
	assert.Equal(t, contract.Money{Charged: contract.MaxCost, Refunded: contract.MaxCost, Reclaimed: contract.MaxCost}, answer.Row.Money())
	assert.Equal(t, contract.MaxCost, w.balance(tenant, account))
	w.assertSound()
}

func TestL47_ACostOutsideTheRangeMovesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, contract.MaxCost)
	for _, cost := range []int64{-1, -contract.MaxCost, contract.MaxCost + 1} {
		w.topUp(tenant, fmt.Sprint("rich", cost), contract.MaxCost)
		key := w.newKey()
		answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, account, cost))
		if cost > contract.MaxCost {
			assert.Equal(t, activities.WhyInsufficientCredits, answer.Why)
		} else {
			requireErrorType(t, err, string(schema.ErrorBroken), false)
		}
		assert.Nil(t, w.job(key))
	}
	assert.Equal(t, contract.MaxCost, w.balance(tenant, account))
	w.assertSound()
}

func TestL70_ChargesAndRefundsOverTwoAccountsInOppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 8)
	accounts := []string{"account-a", "account-b"}
	for _, account := range accounts {
		w.topUp(tenant, account, 100_000)
	}
	// Old jobs, refunded in opposite orders too.
	old := [2][]activities.JobKey{}
	const rounds = 126
	for i := range rounds {
		old[i%2] = append(old[i%2], w.charged(accounts[i%2], 3))
	}
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			first, second := accounts[i%2], accounts[1-i%2]
			for n := range rounds {
				a, b := w.newKey(), w.newKey()
				for _, request := range []activities.ChargeRequest{chargeOf(a, first, 2), chargeOf(b, second, 2)} {
					answer, err := w.jobs.ChargeJob(t.Context(), request)
					if !assert.NoError(t, err) || !assert.Equal(t, activities.Applied, answer.Verdict) {
						return
					}
				}
				refunds := []activities.JobKey{b, a}
				if n < rounds/2 {
					refunds = append(refunds, old[i%2][n], old[1-i%2][n])
				}
				for _, key := range refunds {
					_, err := w.jobs.RefundJob(t.Context(), activities.RefundRequest{JobKey: key, Reason: "failed"})
					if !assert.NoError(t, err) {
						return
					}
				}
			}
		})
	}
	group.Wait()
	for _, account := range accounts {
		assert.EqualValues(t, 100_000, w.balance(tenant, account))
	}
	w.assertSound()
}
