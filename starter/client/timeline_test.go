package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func (l *ledger) story(id string) []string {
	l.t.Helper()
	moments, err := l.Timeline(l.ctx, "acme", id)
	require.NoError(l.t, err)
	var lines []string
	var last time.Time
	for _, m := range moments {
		assert.Equal(l.t, time.UTC, m.At.Location())
		assert.False(l.t, m.At.Before(last), "in order of time")
		last = m.At
		text := m.Kind
		if m.BalanceAfter != nil {
			text += fmt.Sprintf(" %+d → %d", m.Amount, *m.BalanceAfter)
		}
		lines = append(lines, text+": "+m.Text)
	}
	return lines
}

func TestTimelineTellsTheWholeStory(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 100, "order-1")
	l.charge("team-7", "late", 40)
	l.refund("late", 1, "GPU fault")
	l.charge("team-7", "between", 5)
	l.settle("late")
	assert.Equal(t, []string{
		"charge -40 → 60: account team-7 charged: job late started",
		"attempt_failed: attempt 1 failed: GPU fault",
		"refund +40 → 100: refunded: the promise passed",
		"delivered: the work succeeded after the refund: attempt 1 succeeded",
		"reclaim -40 → 55: the refund was reclaimed: attempt 1 succeeded",
	}, l.story("late"))
}

func TestTimelineOfAJobWithoutCostSaysSo(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 100, "order-1")
	l.charge("team-7", "free", 0)
	l.cancel("free")
	assert.Equal(t, []string{
		"charge: account team-7 charged 0 credits: no ledger entry",
		"refund: refunded 0 credits: no ledger entry",
		"closed: closed as canceled",
	}, l.story("free"))
}

func TestTimelineOfADeadLetter(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 100, "order-1")
	l.charge("team-7", "dead", 30)
	l.refund("dead", 1, "GPU fault")
	l.park("dead")
	story := l.story("dead")
	require.Len(t, story, 4)
	assert.Equal(t, "dead_letter: dead letter: 1 of 1 attempts failed", story[3])
}

func TestNobodySeesAnotherTenantsJob(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 100, "order-1")
	l.charge("team-7", "run", 30)
	_, err := l.Timeline(l.ctx, "globex", "run")
	refusal(t, contract.CodeNotFound, err)
	_, err = l.Timeline(l.ctx, "acme", "../run")
	refusal(t, contract.CodeBadInput, err)
	_, err = l.Account(l.ctx, "globex", "team-7")
	refusal(t, contract.CodeNotFound, err)
}

// What the rows know is told while Temporal is away.
func TestRowsAnswerWithoutTemporal(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	l.topUp("acme", "team-7", 100, "order-1")
	l.charge("team-7", "run", 30)
	l.charge("team-7", "done", 20)
	l.settle("done")

	status, err := l.Status(l.ctx, "acme", "run")
	require.NoError(t, err)
	assert.Contains(t, status.WaitsFor, "its run, which does not answer now (")
	status.WaitsFor = ""
	assert.Equal(t, contract.JobStatus{
		State: contract.StateRunning, Money: contract.Money{Charged: 30},
		Actions: []contract.Action{contract.ActionDeliver, contract.ActionWriteOff},
	}, status)

	status, err = l.Status(l.ctx, "acme", "done")
	require.NoError(t, err)
	assert.Equal(t, "nothing", status.WaitsFor)

	result, err := l.AwaitJob(l.ctx, "acme", "done")
	require.NoError(t, err)
	assert.JSONEq(t, `{"frames":3}`, string(result.Output))
	assert.Equal(t, int64(20), result.Net)

	verdict, err := l.StartJob(l.ctx, l.job("team-7", "done", 20))
	require.NoError(t, err)
	assert.Equal(t, contract.VerdictAlready, verdict.Verdict)
	_, err = l.StartJob(l.ctx, l.job("team-7", "done", 21))
	refusal(t, contract.CodeConflict, err)
	_, err = l.StartJob(l.ctx, l.job("team-7", "run", 31))
	refusal(t, contract.CodeConflict, err)

	require.NoError(t, l.ReportOutcome(l.ctx, "acme", "done", contract.Outcome{State: contract.OutcomeSucceeded}))
	refusal(t, contract.CodeBadInput, l.Cancel(l.ctx, "acme", "done"))
	_, err = l.Resolve(l.ctx, "acme", "done", contract.Resolution{
		ID: "r1", Action: contract.ActionWriteOff, Operator: "ann", Reason: "why",
	})
	refusal(t, contract.CodeBadResolution, err)

	_, err = l.Status(l.ctx, "acme", "unknown")
	refusal(t, contract.CodeUnavailable, err)
	refusal(t, contract.CodeUnavailable, l.OpenJobsWithoutRun(l.ctx, "acme", func(client.OpenJob) error { return nil }))
}
