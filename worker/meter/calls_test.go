package meter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/activities/channel"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

func TestGuardsAreCountedByWhatTheyAnswer(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	guards, err := NewGuards(registry)
	require.NoError(t, err)
	job := func(verdict activities.Verdict, why string, state contract.JobState) activities.JobAnswer {
		return activities.JobAnswer{Verdict: verdict, Why: why, Row: activities.JobRow{State: state}}
	}
	guards.count("ChargeJob", activities.ChargeAnswer{JobAnswer: job(activities.Applied, "", contract.StateRunning)}, nil)
	guards.count("ChargeJob", activities.ChargeAnswer{JobAnswer: job(activities.Refused, activities.WhyDebt, "")}, nil)
	guards.count("ChargeJob", activities.ChargeAnswer{JobAnswer: job(activities.Refused, activities.WhyConflict, contract.StateFailed)}, nil)
	guards.count("ChargeJob", activities.ChargeAnswer{}, temporal.NewApplicationError("away", "DatabaseUnavailable"))
	guards.count("SettleJob", job(activities.Applied, "", contract.StateSucceeded), nil)
	guards.count("SettleJob", job(activities.Already, "", contract.StateSucceeded), nil)
	guards.count("SettleJob", activities.JobAnswer{}, errors.New("canceled"))
	guards.count("ParkJob", job(activities.Applied, "", contract.StateDeadLetter), nil)
	guards.count("ResolveJob", activities.ResolveAnswer{JobAnswer: job(activities.Applied, "", contract.StateWrittenOff)}, nil)
	guards.count("ResolveRefund", activities.ResolveRefundAnswer{Verdict: activities.Refused, Why: activities.WhySecondPerson}, nil)
	stayed := job(activities.Applied, "", contract.StateRunning)
	stayed.Source.Refusal = "the account owes 3"
	guards.count("RefundJob", stayed, nil)
	guards.count("FollowRefund", activities.FollowAnswer{}, errors.New("not due"))
	guards.Observed(activities.SourceNotice, activities.AppliedEvidence{Verdict: activities.Refused, Why: "evidence_mismatch"})
	text := page(t, registry)
	has(t, text,
		`reclaim_guard_answers_total{call="ChargeJob",verdict="applied",why=""} 1`,
		`reclaim_guard_answers_total{call="ChargeJob",verdict="refused",why="debt"} 1`,
		`reclaim_guard_answers_total{call="ChargeJob",verdict="error",why="DatabaseUnavailable"} 1`,
		`reclaim_guard_answers_total{call="SettleJob",verdict="already",why=""} 1`,
		`reclaim_guard_answers_total{call="SettleJob",verdict="error",why="other"} 1`,
		`reclaim_guard_answers_total{call="ResolveRefund",verdict="refused",why="second_person"} 1`,
		`reclaim_jobs_ended_total{state="succeeded"} 1`, `reclaim_jobs_ended_total{state="declined"} 1`,
		`reclaim_jobs_ended_total{state="written_off"} 1`, `reclaim_jobs_ended_total{state="failed"} 0`,
		`reclaim_source_refunds_refused_total 1`,
		`reclaim_refund_evidence_total{source="notice",verdict="refused",why="evidence_mismatch"} 1`,
	)
	assert.NotContains(t, text, "FollowRefund", "it is no guard")
	assert.NotContains(t, text, `state="dead_letter"`, "it is open")
}

// scripted is a channel that answers as the test says.
type scripted struct {
	channel.Channel
	evidence channel.Evidence
	err      error
}

func (s *scripted) Submit(context.Context, channel.Refund) (channel.Evidence, error) {
	return s.evidence, s.err
}
func (s *scripted) Query(context.Context, channel.Refund) (channel.Evidence, error) {
	return s.evidence, s.err
}
func (s *scripted) List(context.Context, string) ([]channel.Evidence, error) { return nil, s.err }

func TestChannelCallsAreCountedByWhatTheChannelSaid(t *testing.T) {
	t.Parallel()
	registry, far := prometheus.NewRegistry(), &scripted{}
	channels, err := NewChannels(channel.NewSet(map[string]channel.Member{"sim": {Channel: far, Tenants: []string{"acme"}}}), registry)
	require.NoError(t, err)
	_, err = channels.Get("sim", "globex")
	require.ErrorIs(t, err, channel.ErrNotForTenant)
	_, err = channels.Named("other")
	require.ErrorIs(t, err, channel.ErrUnknownChannel)
	got, err := channels.Get("sim", "acme")
	require.NoError(t, err)
	far.evidence.Outcome = channel.OutcomePending
	evidence, err := got.Submit(t.Context(), channel.Refund{})
	require.NoError(t, err)
	assert.Equal(t, far.evidence, evidence)
	far.evidence.Outcome, far.err = "", &channel.Unusable{Field: "amount", Rule: "is too small"}
	_, err = got.Submit(t.Context(), channel.Refund{})
	require.ErrorIs(t, err, far.err)
	far.evidence.Outcome, far.err = channel.OutcomeUnknown, nil
	_, err = got.Query(t.Context(), channel.Refund{})
	require.NoError(t, err)
	far.err = errors.New("no")
	_, err = got.List(t.Context(), "pi_1")
	require.ErrorIs(t, err, far.err)
	line := `reclaim_channel_call_seconds_count{channel="sim",operation="%s",outcome="%s"} %d`
	has(t, page(t, registry), fmt.Sprintf(line, "submit", "pending", 1), fmt.Sprintf(line, "submit", "unusable", 1),
		fmt.Sprintf(line, "query", "unknown", 1), fmt.Sprintf(line, "list", "error", 1), fmt.Sprintf(line, "query", "failed", 0))
}

type taker func() (activities.TakenNotice, error)

func (f taker) TakeNotice(context.Context, string, http.Header, []byte, time.Time) (activities.TakenNotice, error) {
	return f()
}

func TestNoticesAreCountedByWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	channels, err := NewChannels(channel.NewSet(nil), registry)
	require.NoError(t, err)
	ours := contract.RefundKey{Tenant: "acme", RefundID: "rf_1"}
	for _, test := range []struct {
		taken activities.TakenNotice
		err   error
		line  string
	}{
		{activities.TakenNotice{Refund: ours, Applied: activities.AppliedEvidence{Verdict: activities.Already}}, nil, `channel="sim",outcome="already"`},
		{activities.TakenNotice{IssueID: "i"}, nil, `channel="sim",outcome="unknown_refund"`},
		{activities.TakenNotice{}, nil, `channel="sim",outcome="ignored"`},
		{activities.TakenNotice{}, &channel.NoticeError{Code: channel.NoticeStale}, `channel="sim",outcome="stale_signature"`},
		{activities.TakenNotice{}, errors.New("Postgres is away"), `channel="sim",outcome="error"`},
		{activities.TakenNotice{}, fmt.Errorf("sim: %w", channel.ErrUnknownChannel), `channel="",outcome="unknown_channel"`},
	} {
		counted := channels.Notices(taker(func() (activities.TakenNotice, error) { return test.taken, test.err }))
		taken, err := counted.TakeNotice(t.Context(), "sim", nil, nil, time.Now())
		assert.Equal(t, test.taken, taken)
		assert.Equal(t, test.err, err)
		has(t, page(t, registry), "reclaim_channel_notices_total{"+test.line+"} 1")
	}
}
