package meter

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/reclaimhq/reclaim/activities"
	"github.com/reclaimhq/reclaim/workflows/contract"
)

// Guards counts what guarded writes answer.
type Guards struct {
	interceptor.WorkerInterceptorBase
	answers  *prometheus.CounterVec
	evidence *prometheus.CounterVec
	ended    *prometheus.CounterVec
	stayed   prometheus.Counter
}

// NewGuards returns Guards whose metrics go to the registry.
func NewGuards(registry prometheus.Registerer) (*Guards, error) {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	g := &Guards{
		answers: prometheus.NewCounterVec(counter("reclaim_guard_answers_total",
			"Answers of guarded writes; why is the reason of a refusal or the type of an error."), []string{"call", "verdict", "why"}),
		evidence: prometheus.NewCounterVec(counter("reclaim_refund_evidence_total",
			"What was observed of refunds, by source and by what it did; why is the kind of the issue that it opened."),
			[]string{"source", "verdict", "why"}),
		ended: prometheus.NewCounterVec(counter("reclaim_jobs_ended_total", "Jobs that came into a closed state."), []string{"state"}),
		stayed: prometheus.NewCounter(counter("reclaim_source_refunds_refused_total",
			"Refunds of jobs that could not leave through their order: the credits stayed on the account.")),
	}
	if err := register(registry, g.answers, g.evidence, g.ended, g.stayed); err != nil {
		return nil, err
	}
	// What has not happened yet is 0, so that its first time is seen as an increase.
	for _, call := range []string{"ChargeJob", "RefundJob", "SettleJob", "CloseJob", "ParkJob", "RecordAttempt", "ResolveJob", "ResolveRefund"} {
		for _, verdict := range []activities.Verdict{activities.Applied, activities.Already} {
			g.answers.WithLabelValues(call, string(verdict), "")
		}
	}
	for _, source := range []activities.Source{
		activities.SourceCreate, activities.SourceQuery, activities.SourceNotice, activities.SourcePerson,
	} {
		g.evidence.WithLabelValues(string(source), string(activities.Applied), "")
	}
	for _, state := range []contract.JobState{
		contract.StateSucceeded, contract.StateDeclined, contract.StateFailed, contract.StateCanceled, contract.StateWrittenOff,
	} {
		g.ended.WithLabelValues(string(state))
	}
	return g, nil
}

// Observed counts a piece of evidence that was applied.
func (g *Guards) Observed(source activities.Source, applied activities.AppliedEvidence) {
	g.evidence.WithLabelValues(string(source), string(applied.Verdict), applied.Why).Inc()
}

// InterceptActivity looks at what each activity answers.
func (g *Guards) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &watched{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, guards: g}
}

type watched struct {
	interceptor.ActivityInboundInterceptorBase
	guards *Guards
}

// ExecuteActivity runs the activity and counts its answer.
func (w *watched) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	answer, err := w.Next.ExecuteActivity(ctx, in)
	w.guards.count(activity.GetInfo(ctx).ActivityType.Name, answer, err)
	return answer, err
}

func (g *Guards) count(call string, answer any, err error) {
	job, verdict, why := activities.JobAnswer{}, activities.Verdict(""), ""
	switch a := answer.(type) {
	case activities.JobAnswer:
		job, verdict, why = a, a.Verdict, a.Why
	case activities.ChargeAnswer:
		job, verdict, why = a.JobAnswer, a.Verdict, a.Why
	case activities.ResolveAnswer:
		job, verdict, why = a.JobAnswer, a.Verdict, a.Why
	case activities.ResolveRefundAnswer:
		verdict, why = a.Verdict, a.Why
	case activities.Verdict:
		verdict = a
	default:
		return
	}
	if err != nil {
		g.answers.WithLabelValues(call, "error", typeOf(err)).Inc()
		return
	}
	g.answers.WithLabelValues(call, string(verdict), why).Inc()
	switch {
	case verdict == activities.Applied && !job.Row.State.Open() && job.Row.State != "":
		g.ended.WithLabelValues(string(job.Row.State)).Inc()
	case call == "ChargeJob" && verdict == activities.Refused && job.Row.State == "":
		g.ended.WithLabelValues(string(contract.StateDeclined)).Inc()
	}
	if verdict == activities.Applied && job.Source.Refusal != "" {
		g.stayed.Inc()
	}
}

// typeOf is an error's name in the tables of errors.
func typeOf(err error) string {
	if fault, ok := errors.AsType[*temporal.ApplicationError](err); ok && fault.Type() != "" {
		return fault.Type()
	}
	return "other"
}

func register(registry prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, collector := range collectors {
		if err := registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
}
