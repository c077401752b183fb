package activities_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// answered is what any guard answers, in one shape.
type answered struct {
	verdict activities.Verdict
	why     string
	row     activities.JobRow
	// decided is the outcome and state that ResolveJob tells.
	decided string
}

func ofJob(answer activities.JobAnswer, err error) (answered, error) {
	return answered{verdict: answer.Verdict, why: answer.Why, row: sameRow(answer.Row)}, err
}

func ofResolve(answer activities.ResolveAnswer, err error) (answered, error) {
	all, err := ofJob(answer.JobAnswer, err)
	all.decided = answer.Outcome + " " + string(answer.State)
	return all, err
}

// guardCall is one call of a guard on a job that has finished the given number of attempts.
type guardCall struct {
	name string
	// statement is schema's name for what the call runs.
	statement string
	// recordsRefusal: a refusal is kept, and so found again.
	recordsRefusal bool
	call           func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, cost int64, attempts int) (answered, error)
}

func ended(attempt int, failed bool) activities.EndedAttempt {
	return activities.EndedAttempt{Attempt: attempt, Failed: failed, Error: "out of memory"}
}

func resolveCall(name string, request activities.ResolveRequest) guardCall {
	return guardCall{name, "ResolveJob", request.RecordRefusal, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, _ int) (answered, error) {
		of := request
		of.JobKey = key
		return ofResolve(jobs.ResolveJob(ctx, of))
	}}
}

// guardCalls are all guards, each in the ways that the workflow calls it. "next" is the attempt that follows the finished
// ones, "last" the last finished one.
var guardCalls = []guardCall{
	{"charge", "ChargeJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, cost int64, _ int) (answered, error) {
		answer, err := jobs.ChargeJob(ctx, chargeOf(key, account, cost))
		return ofJob(answer.JobAnswer, err)
	}},
	{"charge of another cost", "ChargeJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, cost int64, _ int) (answered, error) {
		answer, err := jobs.ChargeJob(ctx, chargeOf(key, account, cost+1))
		return ofJob(answer.JobAnswer, err)
	}},
	{"refund", "RefundJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, _ int) (answered, error) {
		return ofJob(jobs.RefundJob(ctx, activities.RefundRequest{JobKey: key, Reason: "promise passed"}))
	}},
	{"refund, next failed", "RefundJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, attempts int) (answered, error) {
		return ofJob(jobs.RefundJob(ctx, activities.RefundRequest{JobKey: key, Reason: "failed", Ended: ended(attempts+1, true)}))
	}},
	{"refund, next unknown", "RefundJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, attempts int) (answered, error) {
		return ofJob(jobs.RefundJob(ctx, activities.RefundRequest{JobKey: key, Reason: "late", Ended: ended(attempts+1, false)}))
	}},
	{"refund, cancel", "RefundJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, _ int) (answered, error) {
		return ofJob(jobs.RefundJob(ctx, activities.RefundRequest{JobKey: key, Reason: "canceled", Cancel: true}))
	}},
	{"settle", "SettleJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, attempts int) (answered, error) {
		output := `{"file":"8841"}`
		return ofJob(jobs.SettleJob(ctx, activities.SettleRequest{JobKey: key, Attempt: attempts + 1, Output: &output, Reason: "delivered"}))
	}},
	{"record next failed", "RecordAttempt", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, attempts int) (answered, error) {
		return ofJob(jobs.RecordAttempt(ctx, activities.RecordRequest{JobKey: key, Ended: ended(attempts+1, true)}))
	}},
	{"record next unknown", "RecordAttempt", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, attempts int) (answered, error) {
		return ofJob(jobs.RecordAttempt(ctx, activities.RecordRequest{JobKey: key, Ended: ended(attempts+1, false)}))
	}},
	{"record last failed", "RecordAttempt", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, attempts int) (answered, error) {
		return ofJob(jobs.RecordAttempt(ctx, activities.RecordRequest{JobKey: key, Ended: ended(max(attempts, 1), true)}))
	}},
	{"park", "ParkJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, _ int) (answered, error) {
		return ofJob(jobs.ParkJob(ctx, activities.ParkRequest{JobKey: key, MaxAttempts: 2, Reason: "2 attempts used"}))
	}},
	{"close failed, next", "CloseJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, attempts int) (answered, error) {
		return ofJob(jobs.CloseJob(ctx, activities.CloseRequest{
			JobKey: key, State: contract.StateFailed, Reason: "no such scene", Ended: ended(attempts+1, true),
		}))
	}},
	{"close canceled", "CloseJob", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, _ int) (answered, error) {
		return ofJob(jobs.CloseJob(ctx, activities.CloseRequest{JobKey: key, State: contract.StateCanceled, Reason: "canceled"}))
	}},
	resolveCall("resolve retry", activities.ResolveRequest{Resolution: resolution("d-1", contract.ActionRetry)}),
	resolveCall("resolve deliver", activities.ResolveRequest{Resolution: resolution("d-2", contract.ActionDeliver)}),
	resolveCall("resolve write_off", activities.ResolveRequest{Resolution: resolution("d-3", contract.ActionWriteOff)}),
	resolveCall("signal retry", activities.ResolveRequest{Resolution: resolution("d-4", contract.ActionRetry), RecordRefusal: true}),
	resolveCall("signal invalid", activities.ResolveRequest{
		Resolution: resolution("d-5", "burn"), Invalid: "action must be one of three", RecordRefusal: true,
	}),
	resolveCall("update invalid", activities.ResolveRequest{Resolution: resolution("d-6", "burn"), Invalid: "action must be one of three"}),
	resolveCall("resolve, id of signal", activities.ResolveRequest{Resolution: resolution("d-4", contract.ActionDeliver)}),
	{"event", "RecordJobEvent", false, func(ctx context.Context, jobs *activities.Jobs, key activities.JobKey, _ int64, _ int) (answered, error) {
		verdict, err := jobs.RecordJobEvent(ctx, activities.EventRequest{
			JobKey: key, Kind: activities.EventOutcomeRecorded, Attempt: 9, Detail: "late report",
		})
		return answered{verdict: verdict}, err
	}},
}

// jobState is a job that stands somewhere, made by the guards themselves.
type jobState struct {
	name string
	// steps names the guardCalls that lead there, after the charge.
	steps []string
}

// jobStates are the states a job can be in. Each job has 2 attempts.
var jobStates = []jobState{
	{"running", nil},
	{"running, 1 unknown", []string{"record next unknown"}},
	{"running, 1 failed", []string{"record next failed"}},
	{"refunded", []string{"refund"}},
	{"refunded, 2 failed", []string{"refund, next failed", "record next failed"}},
	{"cancel asked", []string{"refund, cancel"}},
	{"dead_letter", []string{"refund, next failed", "record next failed", "park"}},
	{"retry granted", []string{"refund, next failed", "record next failed", "park", "signal retry"}},
	{"succeeded", []string{"settle"}},
	{"succeeded late", []string{"refund", "settle"}},
	{"failed", []string{"close failed, next"}},
	{"canceled", []string{"refund, cancel", "close canceled"}},
	{"written_off", []string{"resolve write_off"}},
}

func callNamed(name string) guardCall {
	for _, call := range guardCalls {
		if call.name == name {
			return call
		}
	}
	panic("no such call: " + name)
}

func stateNamed(name string) jobState {
	for _, state := range jobStates {
		if state.name == name {
			return state
		}
	}
	panic("no such state: " + name)
}

// make brings a new job into the state.
func (w *world) make(state jobState, cost int64) (key activities.JobKey) {
	w.t.Helper()
	key = w.charged(account, cost)
	attempts := 0
	for _, step := range state.steps {
		answer, err := callNamed(step).call(w.t.Context(), w.jobs, key, cost, attempts)
		for cameTooLate(err) {
			answer, err = callNamed(step).call(w.t.Context(), w.jobs, key, cost, attempts)
		}
		require.NoError(w.t, err, "%s on the way to %s", step, state.name)
		attempts = answer.row.Attempts
	}
	return key
}

// told describes an answer for the table.
func told(answer answered, err error) string {
	if err != nil {
		failure, ok := errors.AsType[*temporal.ApplicationError](err)
		if !ok {
			return "error " + err.Error()
		}
		return "error " + failure.Type()
	}
	text := string(answer.verdict)
	if answer.why != "" {
		text += " " + answer.why
	}
	return text
}

// toldRow describes a row for the table: its state and flags, and attempts/granted/attempt of the key.
func toldRow(row activities.JobRow) string {
	if row.State == "" {
		return "-"
	}
	flags := ""
	for _, flag := range []struct {
		set  bool
		name string
	}{{row.Refunded, "refunded"}, {row.Reclaimed, "reclaimed"}, {row.CancelRequested, "cancel"}} {
		if flag.set {
			flags += " " + flag.name
		}
	}
	return fmt.Sprintf("%s%s %d/%d/%d", row.State, flags, row.Attempts, row.Granted, row.KeyAttempt)
}

// added lists what is in after and was not in before.
func added(before, after []string) string {
	var news []string
	for _, line := range after {
		if i := slices.Index(before, line); i >= 0 {
			before = slices.Delete(slices.Clone(before), i, i+1)
		} else {
			news = append(news, line)
		}
	}
	if len(news) == 0 {
		return "-"
	}
	return strings.Join(news, ", ")
}

// rowOf reads a job's row as a guard would answer it.
func (w *world) rowOf(key activities.JobKey) activities.JobRow {
	w.t.Helper()
	row := w.job(key)
	return activities.JobRow{
		State: contract.JobState(row.State), Cost: row.Cost, Refunded: row.IsRefunded, Reclaimed: row.IsReclaimed,
		Attempts: int(row.Attempts), Granted: int(row.Granted), KeyAttempt: int(row.KeyAttempt),
		CancelRequested: row.CancelRequested, Reason: row.Reason, CreatedAt: row.CreatedAt.UTC(),
	}
}

// standing is what is known of a job, to be compared with later.
type standing struct {
	row            activities.JobRow
	entries, story []string
}

func (w *world) standing(key activities.JobKey) standing {
	w.t.Helper()
	return standing{w.rowOf(key), w.entries(key), w.story(key)}
}

// guardLine describes for the table what a call answered and changed.
func guardLine(guard guardCall, told string, before, after standing) string {
	row := "="
	if toldRow(after.row) != toldRow(before.row) {
		row = toldRow(after.row)
	}
	return strings.TrimRight(fmt.Sprintf("  %-22s %-22s %-42s %-12s %s", guard.name, told, row,
		added(before.entries, after.entries), added(before.story, after.story)), " ")
}

// expectedLine finds a call's line in the table.
func expectedLine(state jobState, guard guardCall) string {
	_, of, _ := strings.Cut(guardTable, "\n"+state.name+": ")
	_, of, _ = strings.Cut(of, "\n  "+fmt.Sprintf("%-22s ", guard.name))
	line, _, _ := strings.Cut(of, "\n")
	return fmt.Sprintf("  %-22s ", guard.name) + line
}

// everyChange visits each call that changes something, by the table, on a fresh job: once for each kind of change, however
// many states see it.
func (w *world) everyChange(visit func(where string, state jobState, guard guardCall, key activities.JobKey, before standing)) {
	w.t.Helper()
	unchanged, numbers := regexp.MustCompile(` = +- +-$`), regexp.MustCompile(`[0-9]+`)
	visited := map[string]bool{}
	for _, state := range jobStates {
		for _, guard := range guardCalls {
			line := expectedLine(state, guard)
			change := numbers.ReplaceAllString(line, "")
			if unchanged.MatchString(line) || visited[change] {
				continue
			}
			visited[change] = true
			key := w.make(state, 40)
			visit(guard.name+" on "+state.name, state, guard, key, w.standing(key))
		}
	}
	require.Greater(w.t, len(visited), 40)
}

// tableOf calls every guard on a fresh job in every state and describes what came of it.
func (w *world) tableOf(cost int64) string {
	w.t.Helper()
	var table strings.Builder
	table.WriteString("\n")
	for _, state := range jobStates {
		for i, guard := range guardCalls {
			key := w.make(state, cost)
			before := w.standing(key)
			if i == 0 {
				fmt.Fprintf(&table, "%s: %s\n", state.name, toldRow(before.row))
			}
			answer, err := guard.call(w.t.Context(), w.jobs, key, cost, before.row.Attempts)
			after := w.standing(key)
			where := guard.name + " on " + state.name
			if answer.row.State != "" {
				assert.Equal(w.t, after.row, answer.row, "%s answers the row that stands", where)
			}
			table.WriteString(guardLine(guard, told(answer, err), before, after) + "\n")
		}
	}
	return table.String()
}

// repeated is what a call answers when it is made again.
func repeated(first answered, recordsRefusal bool) answered {
	if first.verdict == activities.Applied || recordsRefusal {
		first.verdict, first.why = activities.Already, ""
	}
	return first
}

func TestL2_EveryGuardInEveryStateOnceAndOnceMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1_000_000)
	assert.Equal(t, guardTable, w.tableOf(40))
	w.everyChange(func(where string, _ jobState, guard guardCall, key activities.JobKey, before standing) {
		first, err := guard.call(t.Context(), w.jobs, key, 40, before.row.Attempts)
		require.NoError(t, err, where)
		after := w.standing(key)
		again, err := guard.call(t.Context(), w.jobs, key, 40, before.row.Attempts)
		require.NoError(t, err, where)
		assert.Equal(t, repeated(first, guard.recordsRefusal), again, "%s, for the second time", where)
		assert.Equal(t, after, w.standing(key), "%s changes nothing the second time", where)
	})
	w.assertSound()
}

func TestAJobThatCostsNothingTakesEveryStateAndMovesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1)
	moves := regexp.MustCompile(`(refund 40|reclaim -40)( *)`)
	free := moves.ReplaceAllStringFunc(guardTable, func(cell string) string { return fmt.Sprintf("%-*s", len(cell), "-") })
	require.NotEqual(t, guardTable, free)
	assert.Equal(t, free, w.tableOf(0))
	assert.EqualValues(t, 1, w.balance(tenant, account))
	w.assertSound()
}
