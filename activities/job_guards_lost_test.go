package activities_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestL5_ALostReplyIsFoundAgainWithTheStoredRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1_000_000)
	proxy, jobs := w.behind(4)
	w.everyChange(func(where string, state jobState, guard guardCall, key activities.JobKey, before standing) {
		commits := statement(guard.statement)
		if guard.statement == "RecordJobEvent" {
			commits = func(sql string) bool { return strings.EqualFold(sql, "commit") }
		}
		lost := proxy.Lost()
		proxy.LoseReply(commits, 1)
		_, err := guard.call(t.Context(), jobs, key, 40, before.row.Attempts)
		requireErrorType(t, err, string(schema.ErrorUnavailable), true)
		require.Equal(t, lost+1, proxy.Lost(), where)
		after := w.standing(key)
		assert.NotEqual(t, before, after, "%s took effect", where)

		answer, err := guard.call(t.Context(), jobs, key, 40, before.row.Attempts)
		require.NoError(t, err, where)
		assert.Equal(t, activities.Already, answer.verdict, "%s: the first call did it", where)
		if answer.row.State != "" {
			assert.Equal(t, after.row, answer.row, where)
		}
		assert.Equal(t, after, w.standing(key), where)
	})
	w.assertSound()
}

func TestL5_ALostReplyToTheFirstChargeIsFoundAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 40)
	proxy, jobs := w.behind(4)
	proxy.LoseReply(statement("ChargeJob"), 2)
	key := w.newKey()
	answer, errorTypes, err := untilAnswered(func() (activities.ChargeAnswer, error) {
		return jobs.ChargeJob(t.Context(), chargeOf(key, account, 40))
	})
	require.NoError(t, err)
	assert.Equal(t, map[string]int{string(schema.ErrorUnavailable): 2}, errorTypes)
	assert.Equal(t, activities.Already, answer.Verdict, "the balance is used up, by this very charge")
	assert.Equal(t, w.rowOf(key), sameRow(answer.Row))
	assert.True(t, answer.SameSpec)
	assert.Zero(t, answer.Balance)
	assert.Equal(t, []string{"charge -40"}, w.entries(key))
	w.assertSound()
}

// delayed are the money statements, each on a state in which it would be applied if it came in time.
var delayed = []struct{ guard, state string }{
	{"refund", "running"}, {"refund, next failed", "running, 1 unknown"}, {"refund, cancel", "running"},
	{"settle", "running"}, {"settle", "refunded"}, {"settle", "dead_letter"}, {"settle", "written_off"},
	{"close failed, next", "running"}, {"close canceled", "dead_letter"},
	{"resolve retry", "dead_letter"}, {"resolve deliver", "refunded"}, {"resolve write_off", "running"},
	{"signal retry", "dead_letter"}, {"signal invalid", "running"},
}

// found are money statements on a state in which their work is done: however late, they find it.
var found = []struct{ guard, state string }{
	{"charge", "running"}, {"refund", "refunded"}, {"refund, cancel", "succeeded late"}, {"settle", "succeeded"},
	{"close failed, next", "failed"}, {"close canceled", "canceled"}, {"resolve write_off", "written_off"},
	{"signal retry", "retry granted"},
}

func TestL4_ALateRepeatFindsWhatWasDoneInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	shift := w.shiftableClock()
	w.topUp(tenant, account, 1_000_000)
	jobs := activities.NewJobs(openStore(t, w.database.AppURL, 4))
	for _, test := range found {
		where := test.guard + " on " + test.state
		key := w.make(stateNamed(test.state), 40)
		attempts := w.rowOf(key).Attempts
		_, err := jobs.ReadJobSpec(t.Context(), key)
		require.NoError(t, err)
		shift("1 hour")
		before := w.standing(key)
		answer, err := callNamed(test.guard).call(t.Context(), jobs, key, 40, attempts)
		require.NoError(t, err, where)
		assert.Equal(t, activities.Already, answer.verdict, where)
		assert.Equal(t, before, w.standing(key), where)
		shift("0")
	}
	w.assertSound()
}

func TestAStatementDelayedPastItsInstantDoesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1_000_000)
	proxy, jobs := w.behind(int32(len(delayed)) + 2)
	type call struct {
		where string
		guard guardCall
		key   activities.JobKey
		row   activities.JobRow
		err   chan error
	}
	var calls []call
	for _, test := range delayed {
		key := w.make(stateNamed(test.state), 40)
		calls = append(calls, call{test.guard + " on " + test.state, callNamed(test.guard), key, w.rowOf(key), make(chan error, 1)})
	}
	// Open the connections first: only the statements are held.
	_, err := jobs.ReadJobSpec(t.Context(), calls[0].key)
	require.NoError(t, err)
	release := proxy.Hold(func(sql string) bool {
		for _, c := range calls {
			if statement(c.guard.statement)(sql) {
				return true
			}
		}
		return false
	})
	for _, c := range calls {
		go func() {
			_, err := c.guard.call(t.Context(), jobs, c.key, 40, c.row.Attempts)
			c.err <- err
		}()
	}
	w.wait("every statement is held", func() bool { return proxy.Held() == len(calls) })
	w.waitClock(schema.NotAfterWindow)
	release()
	for _, c := range calls {
		requireErrorType(t, <-c.err, string(schema.ErrorTooLate), true)
		assert.Equal(t, c.row, w.rowOf(c.key), c.where)
		answer, err := c.guard.call(t.Context(), jobs, c.key, 40, c.row.Attempts)
		require.NoError(t, err, c.where)
		if c.guard.name != "signal invalid" {
			assert.Equal(t, activities.Applied, answer.verdict, "%s, in time", c.where)
		}
	}
	w.assertSound()
}

// waitClock waits until Postgres' clock has gone on by more than the span.
func (w *world) waitClock(span time.Duration) {
	w.t.Helper()
	from, err := w.store.DatabaseClock(w.t.Context())
	require.NoError(w.t, err)
	w.wait("the clock goes on by "+span.String(), func() bool {
		now, err := w.store.DatabaseClock(w.t.Context())
		require.NoError(w.t, err)
		return now.Sub(from) > span
	})
}

func TestADelayedChargeCannotChargeAJobThatWasDeclinedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 10)
	proxy, slow := w.behind(4)
	key := w.newKey()
	release := proxy.Hold(statement("ChargeJob"))
	late := make(chan error, 1)
	go func() {
		_, err := slow.ChargeJob(t.Context(), chargeOf(key, account, 40))
		late <- err
	}()
	w.wait("the charge is held", func() bool { return proxy.Held() == 1 })
	w.waitClock(schema.NotAfterWindow)
	declined, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, account, 40))
	require.NoError(t, err)
	assert.Equal(t, activities.WhyInsufficientCredits, declined.Why)
	w.topUp(tenant, account, 100)
	release()
	requireErrorType(t, <-late, string(schema.ErrorTooLate), true)
	assert.Nil(t, w.job(key))
	assert.EqualValues(t, 110, w.balance(tenant, account))
	w.assertSound()
}

// The instant is judged when the lock is held, not when the statement arrives.
func TestL14_AStatementThatWaitedForItsLockPastItsInstantDoesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	key, newKey := w.charged(account, 40), w.newKey()
	// The statements go by their own instant here: on a busy machine Postgres' limit might end them before it is judged.
	slow, err := schema.Open(t.Context(), w.database.AppURL, schema.Options{MaxConns: 4, StatementTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(slow.Close)
	for _, test := range []struct {
		name    string
		release func()
		call    func(notAfter time.Time) (string, error)
	}{
		{"refund", w.holdJob(key), func(notAfter time.Time) (string, error) {
			row, err := slow.RefundJob(t.Context(), db.RefundJobParams{
				TenantID: key.Tenant, JobID: key.JobID, Reason: "promise passed", NotAfter: notAfter,
			})
			return row.Answer, err
		}},
		{"charge", w.holdAccount(tenant, account), func(notAfter time.Time) (string, error) {
			row, err := slow.ChargeJob(t.Context(), db.ChargeJobParams{
				TenantID: newKey.Tenant, JobID: newKey.JobID, AccountID: account, Cost: 40, Fingerprint: "f", Spec: "{}",
				Reason: "render", NotAfter: notAfter,
			})
			return row.Answer, err
		}},
	} {
		notAfter := w.store.Now().Add(500 * time.Millisecond)
		answers := make(chan string, 1)
		go func() {
			answer, err := test.call(notAfter)
			assert.NoError(t, err)
			answers <- answer
		}()
		w.waitBlocked(1)
		w.waitClock(600 * time.Millisecond)
		test.release()
		assert.Equal(t, "too_late", <-answers, test.name)
	}
	assert.Equal(t, []string{"charge -40"}, w.entries(key))
	assert.Nil(t, w.job(newKey))
	w.assertSound()
}

// A statement of which the lock is never given up ends at Postgres' side before its caller gives up, having done nothing.
func TestL14_AStatementThatCannotHaveItsLockEndsBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	key := w.charged(account, 40)
	release := w.holdJob(key)
	_, err := w.jobs.RefundJob(t.Context(), activities.RefundRequest{JobKey: key, Reason: "promise passed"})
	requireErrorType(t, err, string(schema.ErrorBusy), true)
	require.ErrorContains(t, err, "statement timeout", "Postgres ended it, after the time that every connection is set to")
	assert.Less(t, schema.StatementTimeout, schema.MoneyAttempt)
	release()
	answer, err := w.jobs.RefundJob(t.Context(), activities.RefundRequest{JobKey: key, Reason: "promise passed"})
	require.NoError(t, err)
	assert.Equal(t, activities.Applied, answer.Verdict)
	w.assertSound()
}

// Two decisions with different ids, or a settlement and a decision, behind one lock: the first wins and the other is told
// of the row that the first left.
func TestL13_TheLoserOfTwoDifferentMovementsIsToldTheTrueRow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1000)
	deadLetter := stateNamed("dead_letter")
	retryAs := func(id string) guardCall {
		return resolveCall("retry as "+id, activities.ResolveRequest{Resolution: resolution(id, contract.ActionRetry)})
	}
	for _, test := range []struct {
		state         jobState
		first, second guardCall
		verdict       activities.Verdict
		why, row      string
		entries       string
	}{
		{deadLetter, retryAs("a"), retryAs("b"), activities.Refused, activities.WhyWrongState, "running refunded 2/2/3", "charge -40, refund 40"},
		{deadLetter, callNamed("settle"), retryAs("b"), activities.Refused, activities.WhyWrongState, "succeeded refunded reclaimed 3/0/3", "charge -40, refund 40, reclaim -40"},
		{deadLetter, callNamed("resolve write_off"), callNamed("settle"), activities.Applied, "", "succeeded refunded reclaimed 3/0/3", "charge -40, refund 40, reclaim -40"},
		{stateNamed("running"), callNamed("settle"), callNamed("refund"), activities.Refused, activities.WhyDelivered, "succeeded 1/0/1", "charge -40"},
		{stateNamed("running"), callNamed("refund"), callNamed("settle"), activities.Applied, "", "succeeded refunded reclaimed 1/0/1", "charge -40, refund 40, reclaim -40"},
		{stateNamed("running"), callNamed("settle"), callNamed("close canceled"), activities.Refused, activities.WhyClosed, "succeeded 1/0/1", "charge -40"},
		{stateNamed("running"), callNamed("close canceled"), callNamed("refund"), activities.Already, "", "canceled refunded 0/0/1", "charge -40, refund 40"},
		{stateNamed("running"), callNamed("resolve write_off"), callNamed("close failed, next"), activities.Refused, activities.WhyClosed, "written_off refunded 0/0/1", "charge -40, refund 40"},
		{stateNamed("refunded, 2 failed"), callNamed("park"), callNamed("record next failed"), activities.Refused, activities.WhyNotRunning, "dead_letter refunded 2/0/3", "charge -40, refund 40"},
		{stateNamed("running, 1 failed"), callNamed("refund, next failed"), callNamed("park"), activities.Applied, "", "dead_letter refunded 2/0/3", "charge -40, refund 40"},
		{stateNamed("retry granted"), callNamed("settle"), callNamed("park"), activities.Refused, activities.WhyNotRunning, "succeeded refunded reclaimed 3/2/3", "charge -40, refund 40, reclaim -40"},
	} {
		where := test.first.name + ", then " + test.second.name + " on " + test.state.name
		key := w.make(test.state, 40)
		attempts := w.rowOf(key).Attempts
		release := w.holdJob(key)
		done := make(chan struct{})
		go func() {
			defer close(done)
			answer, err := test.first.call(t.Context(), w.jobs, key, 40, attempts)
			assert.NoError(t, err, where)
			assert.Equal(t, activities.Applied, answer.verdict, where)
		}()
		w.waitBlocked(1)
		answers := make(chan answered, 1)
		go func() {
			answer, err := test.second.call(t.Context(), w.jobs, key, 40, attempts)
			assert.NoError(t, err, where)
			answers <- answer
		}()
		w.waitBlocked(2)
		release()
		<-done
		answer := <-answers
		assert.Equal(t, test.verdict, answer.verdict, where)
		assert.Equal(t, test.why, answer.why, where)
		assert.Equal(t, test.row, toldRow(answer.row), where)
		assert.Equal(t, test.entries, strings.Join(w.entries(key), ", "), where)
	}
	w.assertSound()
}

// shiftableClock makes clock_timestamp() of new sessions return Postgres' clock shifted by what shift sets.
func (w *world) shiftableClock() (shift func(by string)) {
	w.t.Helper()
	for _, sql := range []string{
		"CREATE SCHEMA fake", "GRANT USAGE ON SCHEMA fake TO reclaim_app",
		"CREATE TABLE fake.shift AS SELECT interval '0' AS by", "GRANT SELECT ON fake.shift TO reclaim_app",
		`CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
			AS 'SELECT pg_catalog.clock_timestamp() + by FROM fake.shift'`,
		"ALTER DATABASE " + w.database.Name + " SET search_path = fake, pg_catalog",
	} {
		_, err := w.admin.Exec(w.t.Context(), sql)
		require.NoError(w.t, err)
	}
	return func(by string) {
		w.t.Helper()
		_, err := w.admin.Exec(w.t.Context(), "UPDATE fake.shift SET by = $1", by)
		require.NoError(w.t, err)
	}
}

// Any two calls, the second one waiting for the first, do and answer what they do and answer one after the other.
func TestL13_TwoCallsInLineForTheLockAreAsTwoInARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1_000_000)
	names := []string{
		"refund, next failed", "refund, cancel", "settle", "record next failed", "park",
		"close failed, next", "close canceled", "resolve retry", "resolve deliver", "resolve write_off",
	}
	for _, state := range []jobState{stateNamed("running, 1 failed"), stateNamed("dead_letter")} {
		for _, first := range names {
			if regexp.MustCompile(` refused | already `).MatchString(expectedLine(state, callNamed(first))) {
				continue // it leaves nothing for the second one to see
			}
			for _, second := range names {
				where := first + ", then " + second + " on " + state.name
				inARow, inLine := w.make(state, 40), w.make(state, 40)
				attempts := w.rowOf(inARow).Attempts
				_, err := callNamed(first).call(t.Context(), w.jobs, inARow, 40, attempts)
				require.NoError(t, err, where)
				expected, err := callNamed(second).call(t.Context(), w.jobs, inARow, 40, attempts)
				require.NoError(t, err, where)

				release := w.holdJob(inLine)
				done := make(chan error, 1)
				go func() {
					_, err := callNamed(first).call(t.Context(), w.jobs, inLine, 40, attempts)
					done <- err
				}()
				w.waitBlocked(1)
				answers := make(chan answered, 1)
				go func() {
					answer, _, err := untilAnswered(func() (answered, error) {
						return callNamed(second).call(t.Context(), w.jobs, inLine, 40, attempts)
					})
					assert.NoError(t, err, where)
					answers <- answer
				}()
				w.waitBlocked(2)
				release()
				require.NoError(t, <-done, where)
				answer := <-answers
				assert.Equal(t, told(expected, nil), told(answer, nil), where)
				assert.Equal(t, toldRow(expected.row), toldRow(answer.row), where)
				assert.Equal(t, toldRow(w.rowOf(inARow)), toldRow(w.rowOf(inLine)), where)
				assert.Equal(t, w.entries(inARow), w.entries(inLine), where)
				assert.Equal(t, w.story(inARow), w.story(inLine), where)
			}
		}
	}
	w.assertSound()
}

// A failover to a server whose clock is far ahead costs each statement one more try, and none is lost.
func TestAJumpOfPostgresClockCostsOneTry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	shift := w.shiftableClock()
	jobs := activities.NewJobs(openStore(t, w.database.AppURL, 4))
	w.topUp(tenant, account, 1000)
	for _, by := range []string{"0", "1 hour", "-1 hour"} {
		shift(by)
		key := w.newKey()
		_, errorTypes, err := untilAnswered(func() (activities.ChargeAnswer, error) {
			return jobs.ChargeJob(t.Context(), chargeOf(key, account, 40))
		})
		require.NoError(t, err, by)
		tries := map[string]int{}
		if by == "1 hour" {
			tries[string(schema.ErrorTooLate)] = 1
		}
		assert.Equal(t, tries, errorTypes, by)
		assert.Equal(t, []string{"charge -40"}, w.entries(key), by)
	}
	w.assertSound()
}

// The guard is the victim of a real deadlock with a transaction that takes the account before the job, as none of ours
// does: it is told to try again, and then refunds.
func TestL32_AGuardInADeadlockIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	key := w.charged(account, 40)
	other, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = other.Rollback(context.Background()) }()
	for _, sql := range []string{"SET LOCAL deadlock_timeout = '1h'", "SELECT FROM reclaim.accounts FOR UPDATE"} {
		_, err := other.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	refund := func() (activities.JobAnswer, error) {
		return w.jobs.RefundJob(t.Context(), activities.RefundRequest{JobKey: key, Reason: "promise passed"})
	}
	first := make(chan error, 1)
	go func() {
		_, err := refund()
		first <- err
	}()
	w.waitBlocked(1)
	_, err = other.Exec(t.Context(), "SELECT FROM reclaim.jobs FOR UPDATE")
	require.NoError(t, err, "the guard gave way")
	requireErrorType(t, <-first, string(schema.ErrorBusy), true)
	require.NoError(t, other.Rollback(t.Context()))
	answer, err := refund()
	require.NoError(t, err)
	assert.Equal(t, activities.Applied, answer.Verdict)
	assert.Empty(t, w.audit())
	w.wait("the deadlock is counted", func() bool { return w.deadlocks() == 1 })
}
