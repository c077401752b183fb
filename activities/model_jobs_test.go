package activities_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// The tables of the model that spin checks (activities/model) are made here, by calling the guards.

// modelJob is a job of the model: 1 attempt, and 1 more with each retry that a person grants.
type modelJob struct {
	*world
	key activities.JobKey
	// decisions counts those that were taken, so that each has an id of its own.
	decisions int
}

// row reads the job's row, the zero value where there is none.
func (j *modelJob) row() (row activities.JobRow) {
	if j.job(j.key) != nil {
		row = j.rowOf(j.key)
	}
	return row
}

// modelRow names the row of the model that a job stands in.
func modelRow(row activities.JobRow) string {
	left := "_used"
	if row.Attempts < 1+row.Granted {
		left = "_left"
	}
	switch {
	case row.State == "":
		return "none"
	case row.State == contract.StateRunning && row.CancelRequested:
		return "canceling" + left
	case row.State == contract.StateRunning && row.Refunded:
		return "refunded" + left
	case row.State == contract.StateRunning:
		return "running" + left
	case row.State == contract.StateDeadLetter && row.CancelRequested:
		return "dead_canceling"
	case row.Reclaimed:
		return "succeeded_late"
	default:
		return string(row.State)
	}
}

// modelRows are the model's rows, each with the ways to it, which must not make a difference to any guard.
var modelRows = []struct {
	name string
	ways [][]string
}{
	{"none", [][]string{{}}},
	{"running_left", [][]string{{"charge"}}},
	{"running_used", [][]string{{"charge", "record_ended"}}},
	{"refunded_left", [][]string{{"charge", "refund"}, {"charge", "refund_ended", "park", "retry"}}},
	{"refunded_used", [][]string{
		{"charge", "refund_ended"}, {"charge", "record_ended", "refund"},
		{"charge", "refund_ended", "park", "retry", "record_ended"},
	}},
	{"canceling_left", [][]string{{"charge", "refund_cancel"}, {"charge", "refund_ended", "park", "retry", "refund_cancel"}}},
	{"canceling_used", [][]string{
		{"charge", "refund_cancel_ended"}, {"charge", "refund_ended", "park", "retry", "refund_cancel_ended"},
	}},
	{"dead_letter", [][]string{
		{"charge", "refund_ended", "park"}, {"charge", "refund_ended", "park", "retry", "record_ended", "park"},
	}},
	{"dead_canceling", [][]string{{"charge", "refund_ended", "park", "refund_cancel"}, {"charge", "refund_cancel_ended", "park"}}},
	{"succeeded", [][]string{{"charge", "settle"}, {"charge", "record_ended", "deliver"}}},
	{"succeeded_late", [][]string{
		{"charge", "refund", "settle"}, {"charge", "close_failed", "settle"}, {"charge", "refund_ended", "park", "deliver"},
	}},
	{"failed", [][]string{{"charge", "close_failed"}, {"charge", "refund_ended", "park", "close_failed"}}},
	{"canceled", [][]string{{"charge", "close_canceled"}, {"charge", "refund_cancel_ended", "close_canceled"}}},
	{"written_off", [][]string{{"charge", "write_off"}, {"charge", "refund_ended", "park", "write_off"}}},
}

// modelTry is one way of calling a guard on a job that has finished the given number of attempts.
type modelTry func(j *modelJob, attempts int) (answered, error)

// modelGuard is a guard of the model with the calls that it stands for, which must all do the same. An old attempt is one that
// was counted before.
type modelGuard struct {
	name       string
	tries, old []modelTry
	// on says in which rows it can be called at all, nil: in each.
	on func(row string) bool
}

func hasAttemptLeft(row string) bool {
	return !strings.HasSuffix(row, "_used") && row != "dead_letter" && row != "dead_canceling"
}

func tryRefund(ended func(attempts int) activities.EndedAttempt, cancel bool) modelTry {
	return func(j *modelJob, attempts int) (answered, error) {
		return ofJob(j.jobs.RefundJob(j.t.Context(), activities.RefundRequest{
			JobKey: j.key, Reason: "refunded", Ended: ended(attempts), Cancel: cancel,
		}))
	}
}

func tryRecord(ended func(attempts int) activities.EndedAttempt) modelTry {
	return func(j *modelJob, attempts int) (answered, error) {
		return ofJob(j.jobs.RecordAttempt(j.t.Context(), activities.RecordRequest{JobKey: j.key, Ended: ended(attempts)}))
	}
}

func tryFail(ended func(attempts int) activities.EndedAttempt) modelTry {
	return func(j *modelJob, attempts int) (answered, error) {
		return ofJob(j.jobs.CloseJob(j.t.Context(), activities.CloseRequest{
			JobKey: j.key, State: contract.StateFailed, Reason: "no such scene", Ended: ended(attempts),
		}))
	}
}

func noneEnded(int) activities.EndedAttempt            { return activities.EndedAttempt{} }
func nextFailed(attempts int) activities.EndedAttempt  { return ended(attempts+1, true) }
func nextUnknown(attempts int) activities.EndedAttempt { return ended(attempts+1, false) }
func oldUnknown(attempts int) activities.EndedAttempt  { return ended(attempts, false) }

// tryResolve decides under a new id, or under one that is on record with this very decision.
func tryResolve(action contract.Action, again bool) modelTry {
	return func(j *modelJob, _ int) (answered, error) {
		j.decisions++
		d := resolution(fmt.Sprint("decision-", j.decisions), action)
		if action == contract.ActionRetry {
			d.Attempts = 1
		}
		if again {
			_, err := j.admin.Exec(j.t.Context(), `INSERT INTO reclaim.resolutions (tenant_id, subject_kind, subject_id, resolution_id,
				action, attempts, operator, reason, evidence, outcome, state) VALUES ($1, 'job', $2, $3, $4, $5, $6, $7, $8, 'applied', 'running')`,
				j.key.Tenant, j.key.JobID, d.ID, string(d.Action), d.Attempts, d.Operator, d.Reason, d.Evidence)
			require.NoError(j.t, err)
		}
		// Signals: their refusals too are kept.
		return ofResolve(j.jobs.ResolveJob(j.t.Context(), activities.ResolveRequest{JobKey: j.key, Resolution: d, RecordRefusal: true}))
	}
}

func tryOf(name string) modelTry {
	return func(j *modelJob, attempts int) (answered, error) {
		return callNamed(name).call(j.t.Context(), j.jobs, j.key, 40, attempts)
	}
}

var modelGuards = []modelGuard{
	{name: "charge", tries: []modelTry{tryOf("charge")}},
	{name: "charge_poor", on: func(row string) bool { return row == "none" }, tries: []modelTry{
		func(j *modelJob, _ int) (answered, error) {
			answer, err := j.jobs.ChargeJob(j.t.Context(), chargeOf(j.key, "poor", 40))
			return ofJob(answer.JobAnswer, err)
		},
	}},
	{name: "refund", tries: []modelTry{tryRefund(noneEnded, false)}, old: []modelTry{tryRefund(oldUnknown, false)}},
	{name: "refund_ended", on: hasAttemptLeft, tries: []modelTry{tryRefund(nextFailed, false), tryRefund(nextUnknown, false)}},
	{name: "refund_cancel", tries: []modelTry{tryRefund(noneEnded, true)}, old: []modelTry{tryRefund(oldUnknown, true)}},
	{name: "refund_cancel_ended", on: hasAttemptLeft, tries: []modelTry{tryRefund(nextFailed, true), tryRefund(nextUnknown, true)}},
	{name: "settle", tries: []modelTry{tryOf("settle")}},
	{name: "record_ended", on: hasAttemptLeft, tries: []modelTry{tryRecord(nextFailed), tryRecord(nextUnknown)}},
	{name: "record_old", old: []modelTry{tryRecord(oldUnknown)}},
	{name: "park", tries: []modelTry{func(j *modelJob, _ int) (answered, error) {
		return ofJob(j.jobs.ParkJob(j.t.Context(), activities.ParkRequest{JobKey: j.key, MaxAttempts: 1, Reason: "1 attempt used"}))
	}}},
	{name: "close_failed", tries: []modelTry{tryFail(nextFailed)}, old: []modelTry{tryFail(oldUnknown)}},
	{name: "close_canceled", tries: []modelTry{tryOf("close canceled")}},
	{name: "retry", tries: []modelTry{tryResolve(contract.ActionRetry, false)}},
	{name: "deliver", tries: []modelTry{tryResolve(contract.ActionDeliver, false)}},
	{name: "write_off", tries: []modelTry{tryResolve(contract.ActionWriteOff, false)}},
	{name: "retry_again", tries: []modelTry{tryResolve(contract.ActionRetry, true)}},
	{name: "deliver_again", tries: []modelTry{tryResolve(contract.ActionDeliver, true)}},
	{name: "write_off_again", tries: []modelTry{tryResolve(contract.ActionWriteOff, true)}},
}

// modelJobIn makes a job that stands in a row, by the given way.
func (w *world) modelJobIn(row string, way []string) *modelJob {
	w.t.Helper()
	j := &modelJob{world: w, key: w.newKey()}
	for _, step := range way {
		guard := modelGuards[slices.IndexFunc(modelGuards, func(g modelGuard) bool { return g.name == step })]
		_, err := guard.tries[0](j, j.row().Attempts)
		require.NoError(w.t, err, "%s on the way to %s", step, row)
	}
	require.Equal(w.t, row, modelRow(j.row()), "the way %s", way)
	return j
}

// modelLine is what a call does to a job, as a line of the model.
func (w *world) modelLine(row string, way []string, try modelTry) string {
	w.t.Helper()
	j := w.modelJobIn(row, way)
	before := w.entries(j.key)
	answer, err := try(j, j.row().Attempts)
	for cameTooLate(err) {
		answer, err = try(j, j.row().Attempts)
	}
	verdict, why := string(answer.verdict), answer.why
	if err != nil {
		requireErrorType(w.t, err, activities.ErrorNoJob, false)
		verdict, why = "refused", "no_job"
	}
	entry, known := map[string]string{
		"-": "no_entry", "charge -40": "charge_entry", "refund 40": "refund_entry", "reclaim -40": "reclaim_entry",
	}[added(before, w.entries(j.key))]
	require.True(w.t, known, "one entry of the cost at most: %s", added(before, w.entries(j.key)))
	return modelBranch(row, why, verdict, modelRow(j.row()), entry)
}

// modelBranch writes a line of a table in Promela.
func modelBranch(row, why string, does ...string) string {
	line := fmt.Sprintf("\t:: row == %-14s -> becomes(%s)", row, strings.Join(does, ", "))
	if why != "" {
		line += " /* " + why + " */"
	}
	return line + "\n"
}

func TestTheModelOfJobsHasTheGuardsOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	w.topUp(tenant, account, 1_000_000)
	w.topUp(tenant, "poor", 1)
	var table strings.Builder
	for _, guard := range modelGuards {
		fmt.Fprintf(&table, "\ninline %s_guard() {\n\tif\n", guard.name)
		for _, row := range modelRows {
			if guard.on != nil && !guard.on(row.name) {
				continue
			}
			lines := map[string]bool{}
			line := ""
			for _, way := range row.ways {
				tries := slices.Clone(guard.tries)
				if j := w.modelJobIn(row.name, way); j.row().Attempts > 0 {
					tries = append(tries, guard.old...)
				}
				for _, try := range tries {
					line = w.modelLine(row.name, way, try)
					lines[line] = true
				}
			}
			assert.LessOrEqual(t, len(lines), 1, "%s on %s does the same in each way: %v", guard.name, row.name, lines)
			table.WriteString(line)
		}
		table.WriteString("\t:: else -> assert(false) /* it cannot be */\n\tfi\n}\n")
	}
	w.assertModel("job_guards.pml", "row after it, entry", table.String())
	w.assertSound()
}

// assertModel compares a table of the model with the one that the guards make, or writes it where it is asked to.
func (w *world) assertModel(name, columns, table string) {
	w.t.Helper()
	table = "/* Made by `make model-tables` from what the guards do in Postgres; a test compares them. Do not edit.\n" +
		"   Each line is a row that a guard may find and what it then does: answer, " + columns + ". */\n" + table
	path := "model/" + name
	if os.Getenv("RECLAIM_RECORD_MODEL") != "" {
		require.NoError(w.t, os.WriteFile(path, []byte(table), 0o644))
	}
	committed, err := os.ReadFile(path)
	require.NoError(w.t, err)
	assert.Equal(w.t, string(committed), table, "the guards changed: `make model-tables` writes %s anew; then `make model`", path)
}
