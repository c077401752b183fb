package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reclaimhq/reclaim/starter/client"
)

// Audit shows what the latest audit found. Until one has come to its end there is nothing to show.
type Audit struct {
	registry prometheus.Registerer
	breaks   *prometheus.GaugeVec
	lost     *prometheus.GaugeVec
	ended    prometheus.Gauge
	whole    prometheus.Gauge
	took     prometheus.Gauge
}

// NewAudit returns an Audit whose metrics go to the registry.
func NewAudit(registry prometheus.Registerer) *Audit {
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	return &Audit{
		registry: registry,
		breaks: prometheus.NewGaugeVec(gauge("reclaim_audit_breaks",
			"What broke each rule of the ledger when it was last audited."), []string{"check"}),
		lost: prometheus.NewGaugeVec(gauge("reclaim_audit_without_run",
			"Open jobs and refunds that had no run when the ledger was last audited."), []string{"kind"}),
		ended: prometheus.NewGauge(gauge("reclaim_audit_last_success_timestamp_seconds",
			"When the snapshot was taken of the last audit that came to its end, whatever it found.")),
		whole: prometheus.NewGauge(gauge("reclaim_audit_last_whole_timestamp_seconds",
			"When the snapshot was taken of the last audit that proved the whole ledger.")),
		took: prometheus.NewGauge(gauge("reclaim_audit_duration_seconds", "How long the last audit took.")),
	}
}

// Show replaces what is shown by what this audit found. What it could not look at is missing.
func (a *Audit) Show(report client.AuditReport, took time.Duration) error {
	for _, collector := range []prometheus.Collector{a.breaks, a.lost, a.ended, a.took} {
		if err := a.register(collector); err != nil {
			return err
		}
	}
	if report.Whole {
		if err := a.register(a.whole); err != nil {
			return err
		}
		a.whole.Set(float64(report.TakenAt.UnixMilli()) / 1000)
	}
	a.breaks.Reset()
	for _, check := range report.Checks {
		a.breaks.WithLabelValues(check.Name).Set(float64(check.Broken))
	}
	a.lost.Reset()
	if report.Runs.Checked {
		a.lost.WithLabelValues("job").Set(float64(report.Runs.Count))
		a.lost.WithLabelValues("refund").Set(float64(report.Runs.RefundCount))
	}
	a.ended.Set(float64(report.TakenAt.UnixMilli()) / 1000)
	a.took.Set(took.Seconds())
	return nil
}

// register adds a metric when there is something to show: a time of 0 would be an audit in 1970.
func (a *Audit) register(collector prometheus.Collector) error {
	if err := a.registry.Register(collector); err != nil {
		if _, registered := err.(prometheus.AlreadyRegisteredError); !registered { //nolint:errorlint // it is never wrapped
			return fmt.Errorf("register the audit's metrics: %w", err)
		}
	}
	return nil
}
