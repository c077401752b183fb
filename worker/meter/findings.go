package meter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/reclaimhq/reclaim/workflows/contract"
)

// NewFindings returns what counts the findings of reconciliations.
func NewFindings(registry prometheus.Registerer) (found func(kind string, effect contract.FindingEffect), err error) {
	count := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "reclaim_reconcile_findings_total", Help: "What reconciliations found otherwise than it should be, and what they did about it.",
	}, []string{"kind", "effect"})
	// What has not happened yet is 0, so that its first time is seen as an increase.
	count.WithLabelValues(contract.FindingJobWithoutRun, string(contract.FindingRepaired))
	count.WithLabelValues(contract.FindingMissingHere, string(contract.FindingOpened))
	return func(kind string, effect contract.FindingEffect) {
		count.WithLabelValues(kind, string(effect)).Inc()
	}, register(registry, count)
}
