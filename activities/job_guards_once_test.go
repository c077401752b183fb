package activities_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/reclaimhq/reclaim/activities"
)

// atOnce makes the calls in parallel, each repeated as Temporal does, behind a lock that is released when all of them
// wait for it: so each has its snapshot from before any of them has written.
func (w *world) atOnce(callers int, release func(), call func() (answered, error)) (answers []answered, errorTypes map[string]int) {
	w.t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	errorTypes = map[string]int{}
	for range callers {
		group.Go(func() {
			answer, types, err := untilAnswered(call)
			mu.Lock()
			defer mu.Unlock()
			assert.NoError(w.t, err)
			answers = append(answers, answer)
			for name, n := range types {
				errorTypes[name] += n
			}
		})
	}
	w.waitBlocked(callers)
	release()
	group.Wait()
	return answers, errorTypes
}

// assertOnceAtOnce checks that exactly one of the calls was applied, and that every other one found it done.
func assertOnceAtOnce(t *testing.T, answers []answered, where string) {
	t.Helper()
	applied := 0
	for _, answer := range answers {
		switch answer.verdict {
		case activities.Applied:
			applied++
			answer.verdict = activities.Already
		case activities.Already:
		default:
			t.Errorf("%s: one of the losers was told %s %s of a row that is %s", where, answer.verdict, answer.why, toldRow(answer.row))
			continue
		}
		assert.Equal(t, repeated(answers[0], false), answer, where)
	}
	assert.Equal(t, 1, applied, "%s: applied", where)
}

const callers = 16

func TestL1_SixteenAtOnceBehindTheRowsLockAreAppliedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, callers)
	w.topUp(tenant, account, 1_000_000)
	w.everyChange(func(where string, state jobState, guard guardCall, key activities.JobKey, before standing) {
		answers, errorTypes := w.atOnce(callers, w.holdJob(key), func() (answered, error) {
			return guard.call(t.Context(), w.jobs, key, 40, before.row.Attempts)
		})
		assertBusy(t, errorTypes)
		expected := expectedLine(state, guard)
		verdict := strings.TrimSpace(expected[25:47])
		assert.Equal(t, expected, guardLine(guard, verdict, before, w.standing(key)), where)
		switch {
		case verdict == string(activities.Applied):
			assertOnceAtOnce(t, answers, where)
		case guard.recordsRefusal:
			assertRefusedAtOnce(t, answers, where)
		default:
			for _, answer := range answers {
				assert.Equal(t, verdict, told(answer, nil), where)
			}
		}
	})
	w.assertSound()
}

// assertRefusedAtOnce checks that one call was refused and recorded it, and that every other one found the record.
func assertRefusedAtOnce(t *testing.T, answers []answered, where string) {
	t.Helper()
	refused := 0
	for _, answer := range answers {
		if answer.verdict == activities.Refused {
			refused++
		}
		assert.Equal(t, repeated(answers[0], true), repeated(answer, true), where)
	}
	assert.Equal(t, 1, refused, "%s: recorded", where)
}

func TestL10_ChargesOfOneJobBehindTheAccountsLockChargeOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		balance int64
		cost    int64
	}{
		{"credits for many", 1000, 40},
		{"credits for one only", 40, 40},
		{"costs nothing", 40, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, callers)
			w.topUp(tenant, account, test.balance)
			key := w.newKey()
			balances := map[int64]bool{}
			var mu sync.Mutex
			answers, errorTypes := w.atOnce(callers, w.holdAccount(tenant, account), func() (answered, error) {
				answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, account, test.cost))
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					balances[answer.Balance] = true
				}
				return ofJob(answer.JobAnswer, err)
			})
			assertOnceAtOnce(t, answers, "charge")
			assert.Equal(t, map[int64]bool{test.balance - test.cost: true}, balances)
			assert.Equal(t, test.balance-test.cost, w.balance(tenant, account))
			assertBusy(t, errorTypes)
			w.assertSound()
		})
	}
}
