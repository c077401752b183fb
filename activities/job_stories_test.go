package activities_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/schema"
	"github.com/reclaimhq/reclaim/schema/db"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// TestStoriesMoveTheRecordedCostOnce tells what systems that do this job got wrong, call by call.
func TestStoriesMoveTheRecordedCostOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1_000_000)
	for _, test := range []struct {
		name    string
		calls   []string
		entries string
		state   contract.JobState
	}{
		{"L2: failed is reported twice", []string{"refund, next failed", "refund, next failed", "close failed, next", "close failed, next"}, "charge -40, refund 40", contract.StateFailed},
		{"L4: what follows the refund is run again", []string{"refund", "record next failed", "refund", "refund", "record next failed"}, "charge -40, refund 40", contract.StateRunning},
		{"L5: three reports of a lost worker", []string{"refund, next unknown", "refund, next unknown", "refund, next unknown"}, "charge -40, refund 40", contract.StateRunning},
		{"L16: a stale park after a granted retry", []string{"refund, next failed", "record next failed", "park", "signal retry", "park"}, "charge -40, refund 40", contract.StateRunning},
		{"L20: success, late failure, cancel", []string{"settle", "refund, next failed", "close failed, next", "refund, cancel", "close canceled"}, "charge -40", contract.StateSucceeded},
		{"L20: failure, success, failure, success", []string{"refund, next failed", "settle", "refund, next failed", "settle", "close canceled"}, "charge -40, refund 40, reclaim -40", contract.StateSucceeded},
		{"L25: canceled after the delivery", []string{"settle", "refund, cancel", "close canceled", "resolve write_off"}, "charge -40", contract.StateSucceeded},
		{"L13: two reversals and a write-off", []string{"refund", "close canceled", "resolve write_off", "refund"}, "charge -40, refund 40", contract.StateCanceled},
		{"L17: a retry of a refunded job that succeeds is paid for", []string{"refund, next failed", "record next failed", "park", "signal retry", "settle"}, "charge -40, refund 40, reclaim -40", contract.StateSucceeded},
		{"delivered after it was written off", []string{"resolve write_off", "settle", "resolve deliver"}, "charge -40, refund 40, reclaim -40", contract.StateSucceeded},
	} {
		key := w.charged(account, 40)
		for _, call := range test.calls {
			_, err := callNamed(call).call(t.Context(), w.jobs, key, 40, w.rowOf(key).Attempts)
			require.NoError(t, err, "%s: %s", test.name, call)
		}
		assert.Equal(t, test.entries, strings.Join(w.entries(key), ", "), test.name)
		assert.Equal(t, test.state, w.rowOf(key).State, test.name)
	}
	w.assertSound()
}

func TestL53_RefundAndReclaimAreTheRecordedCost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	key := w.charged(account, 5)
	// The price went up; a resubmission with it is a conflict and changes nothing.
	answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, account, 9))
	require.NoError(t, err)
	require.Equal(t, activities.WhyConflict, answer.Why)
	require.EqualValues(t, 5, answer.Row.Cost)
	for _, call := range []string{"refund", "settle"} {
		_, err := callNamed(call).call(t.Context(), w.jobs, key, 9, 0)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"charge -5", "refund 5", "reclaim -5"}, w.entries(key))
	w.assertSound()
}

// L11: a callback that comes before its job's charge is committed is told that there is no such job, and once the charge
// is there it is taken.
func TestL11_ACallbackBeforeTheChargeIsCommittedIsTakenAfterIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	key := w.newKey()
	charge, err := w.admin.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = charge.Rollback(t.Context()) }()
	row, err := db.New(charge).ChargeJob(t.Context(), db.ChargeJobParams{
		TenantID: tenant, JobID: key.JobID, AccountID: account, Cost: 40, Fingerprint: "f", Spec: "{}", Reason: "render",
		NotAfter: w.store.NotAfter(),
	})
	require.NoError(t, err)
	require.Equal(t, "applied", row.Answer)
	settle := activities.SettleRequest{JobKey: key, Attempt: 1, Reason: "callback"}
	_, err = w.jobs.SettleJob(t.Context(), settle)
	requireErrorType(t, err, activities.ErrorNoJob, false)
	require.NoError(t, charge.Commit(t.Context()))
	for _, verdict := range []activities.Verdict{activities.Applied, activities.Already} {
		answer, err := w.jobs.SettleJob(t.Context(), settle)
		require.NoError(t, err)
		assert.Equal(t, verdict, answer.Verdict)
	}
	assert.Equal(t, []string{"charge -40"}, w.entries(key))
	w.assertSound()
}

func TestL77_TextsOfEveryKindAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1000)
	for name, text := range map[string]struct{ given, kept string }{
		"emoji":           {"🎬 done 👩‍👩‍👧", "🎬 done 👩‍👩‍👧"},
		"quotes":          {`it's "so" \ $1 %s -- ; DROP`, `it's "so" \ $1 %s -- ; DROP`},
		"controls":        {"a\x01\tb\r\nc", "a\x01\tb\r\nc"},
		"NUL":             {"a\x00b", "a\uFFFDb"},
		"no UTF-8":        {"a\xffb\xc3", "a\uFFFDb\uFFFD"},
		"right to left":   {"\u202eשלום", "\u202eשלום"},
		"formula":         {`=HYPERLINK("x")`, `=HYPERLINK("x")`},
		"long":            {strings.Repeat("x", 5000), strings.Repeat("x", 1997) + "…"},
		"long, many-byte": {strings.Repeat("é", 1500), strings.Repeat("é", 998) + "…"},
		"longest":         {strings.Repeat("x", 2000), strings.Repeat("x", 2000)},
	} {
		key := w.newKey()
		request := chargeOf(key, account, 1)
		request.Reason = text.given
		_, err := w.jobs.ChargeJob(t.Context(), request)
		require.NoError(t, err, name)
		answer, err := w.jobs.RefundJob(t.Context(), activities.RefundRequest{
			JobKey: key, Reason: text.given, Ended: activities.EndedAttempt{Attempt: 1, Failed: true, Error: text.given},
		})
		require.NoError(t, err, name)
		assert.Less(t, len([]rune(answer.Row.Reason)), 201, name)
		_, err = w.jobs.RecordJobEvent(t.Context(), activities.EventRequest{
			JobKey: key, Kind: activities.EventOutcomeRecorded, Detail: text.given,
		})
		require.NoError(t, err, name)
		row := w.job(key)
		assert.Equal(t, text.kept, row.Reason, name)
		assert.Equal(t, text.kept, row.LastError, name)
		assert.Equal(t, []string{text.kept, text.kept}, w.lines(
			`SELECT reason FROM reclaim.ledger_entries WHERE job_id = $1 ORDER BY seq`, key.JobID), name)
		assert.Equal(t, []string{text.kept, text.kept}, w.lines(
			`SELECT detail FROM reclaim.job_events WHERE job_id = $1 ORDER BY event_id`, key.JobID), name)
		_, err = w.jobs.ParkJob(t.Context(), activities.ParkRequest{JobKey: key, MaxAttempts: 1, Reason: text.given})
		require.NoError(t, err, name)
		_, err = w.jobs.CloseJob(t.Context(), activities.CloseRequest{JobKey: key, State: contract.StateFailed, Reason: text.given})
		require.NoError(t, err, name)
		assert.Equal(t, text.kept, w.job(key).Reason, name)
	}
	// An id that the contract would refuse is refused by the row too, and moves nothing.
	for _, id := range []string{"🎬", "a b", "", strings.Repeat("x", 101), "a\x00b", "é"} {
		_, err := w.jobs.ChargeJob(t.Context(), chargeOf(activities.JobKey{Tenant: tenant, JobID: id}, account, 1))
		requireErrorType(t, err, string(schema.ErrorBroken), false)
	}
	longest := activities.JobKey{Tenant: tenant, JobID: "aZ09._:-" + strings.Repeat("x", 92)}
	answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(longest, account, 1))
	require.NoError(t, err)
	assert.Equal(t, activities.Applied, answer.Verdict)
	w.assertSound()
}

func TestOutputAndSpecComeBackToTheLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	for name, output := range map[string]*string{
		"none":       nil,
		"null":       new("null"),
		"spaces":     new(`{ "b": 1.0, "a": "\u0000é🎬\ud800" , "b": 2 }`),
		"the limit":  new(`"` + strings.Repeat("x", contract.MaxOutputBytes-2) + `"`),
		"not JSON":   new("plain"),
		"over limit": new(strings.Repeat("x", contract.MaxOutputBytes+1)),
	} {
		key := w.newKey()
		request := chargeOf(key, account, 1)
		request.Spec = `{ "cost": 1.50, "b": "é\u0000" }`
		_, err := w.jobs.ChargeJob(t.Context(), request)
		require.NoError(t, err)
		spec, err := w.jobs.ReadJobSpec(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, request.Spec, spec)
		_, err = w.jobs.SettleJob(t.Context(), activities.SettleRequest{JobKey: key, Attempt: 1, Output: output, Reason: "delivered " + name})
		if name == "over limit" {
			requireErrorType(t, err, string(schema.ErrorBroken), false)
			continue
		}
		require.NoError(t, err, name)
		stored, err := w.jobs.ReadJobOutput(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, "delivered "+name, stored.Reason)
		if output == nil {
			assert.Nil(t, stored.Output)
		} else {
			assert.Equal(t, *output, string(stored.Output), name)
		}
	}
	w.assertSound()
}

// The answers travel in a local activity's marker, which is to stay small.
func TestAnswersAreSmallWhateverTheJobHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	key := w.charged(account, 1)
	_, err := w.jobs.RefundJob(t.Context(), activities.RefundRequest{
		JobKey: key, Reason: strings.Repeat("ж", 1000), Ended: activities.EndedAttempt{Attempt: 1, Error: strings.Repeat("x", 2000)},
	})
	require.NoError(t, err)
	answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, account, 1))
	require.NoError(t, err)
	encoded, err := json.Marshal(answer)
	require.NoError(t, err)
	assert.Less(t, len(encoded), 1024)
}

func TestRefusedDecisionsSayWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1000)
	for _, test := range []struct {
		state, call, refusal string
	}{
		{"running", "resolve retry", "retry is not possible while the job is running: possible now: deliver, write_off"},
		{"failed", "resolve write_off", "write_off is not possible while the job is failed: possible now: deliver"},
		{"succeeded", "resolve deliver", "deliver is not possible while the job is succeeded: possible now: nothing"},
		{"running", "update invalid", "action must be one of three"},
		{"retry granted", "resolve, id of signal", `the resolution id "d-4" stands for another decision: use a new id`},
	} {
		key := w.make(stateNamed(test.state), 40)
		decision := map[string]contract.Resolution{
			"resolve retry": resolution("n", contract.ActionRetry), "resolve write_off": resolution("n", contract.ActionWriteOff),
			"resolve deliver": resolution("n", contract.ActionDeliver), "update invalid": resolution("n", "burn"),
			"resolve, id of signal": resolution("d-4", contract.ActionDeliver),
		}[test.call]
		request := activities.ResolveRequest{JobKey: key, Resolution: decision}
		if test.call == "update invalid" {
			request.Invalid = test.refusal
			answer, err := w.jobs.ResolveJob(t.Context(), request)
			require.NoError(t, err)
			assert.Equal(t, test.refusal, answer.Refusal, test.state)
			assert.Equal(t, contract.ResolutionRefused, answer.Outcome)
		}
	}
	// A signal's refusal is kept in words.
	key := w.charged(account, 1)
	for id, invalid := range map[string]string{"s-1": "", "s-2": "attempts goes with retry only"} {
		_, err := w.jobs.ResolveJob(t.Context(), activities.ResolveRequest{
			JobKey: key, Resolution: resolution(id, contract.ActionRetry), Invalid: invalid, RecordRefusal: true,
		})
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"retry is not possible while the job is running", "attempts goes with retry only"},
		w.lines("SELECT refusal FROM reclaim.resolutions WHERE subject_id = $1 ORDER BY resolution_id", key.JobID))
	w.assertSound()
}

func TestPeoplesWordsAreInTheEntry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1000)
	writtenOff := w.charged(account, 40)
	_, err := callNamed("resolve write_off").call(t.Context(), w.jobs, writtenOff, 40, 0)
	require.NoError(t, err)
	assert.Equal(t, []string{"render", "written off by ann: customer called"},
		w.lines("SELECT reason FROM reclaim.ledger_entries WHERE job_id = $1 ORDER BY seq", writtenOff.JobID))
	delivered := w.make(stateNamed("dead_letter"), 40)
	_, err = callNamed("resolve deliver").call(t.Context(), w.jobs, delivered, 40, 2)
	require.NoError(t, err)
	assert.Equal(t, "delivered, says ann: customer called (evidence: file 8841 is in the customer's bucket)", w.job(delivered).Reason)
}

func TestTheAgeOfAJobIsByPostgresClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	key := w.charged(account, 1)
	_, err := w.admin.Exec(t.Context(), "UPDATE reclaim.jobs SET created_at = clock_timestamp() - interval '1 hour' WHERE job_id = $1", key.JobID)
	require.NoError(t, err)
	answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, account, 1))
	require.NoError(t, err)
	assert.InDelta(t, 3600, answer.Row.Age.Seconds(), 20)
}

func TestAMissingTableIsAnOperatorsToMendAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 100)
	rename := func(from, to string) {
		_, err := w.admin.Exec(t.Context(), fmt.Sprintf("ALTER TABLE reclaim.%s RENAME TO %s", from, to))
		require.NoError(t, err)
	}
	rename("ledger_entries", "elsewhere")
	key := w.newKey()
	_, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, account, 1))
	requireErrorType(t, err, string(schema.ErrorMisconfigured), true)
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	assert.Positive(t, failure.NextRetryDelay())
	rename("elsewhere", "ledger_entries")
	answer, err := w.jobs.ChargeJob(t.Context(), chargeOf(key, account, 1))
	require.NoError(t, err)
	assert.Equal(t, activities.Applied, answer.Verdict)
	w.assertSound()
}
