package metrics_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/starter/metrics"
)

func gather(t *testing.T, registry *prometheus.Registry) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := registry.Gather()
	require.NoError(t, err)
	named := map[string]*dto.MetricFamily{}
	for _, family := range all {
		named[family.GetName()] = family
	}
	return named
}

func TestNamesAreThoseThatTemporalDocumentsAndTypesAreBounded(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	handler, err := metrics.SDK(registry, "MeteredJob")
	require.NoError(t, err)
	tagged := func(workflow string) map[string]string {
		return map[string]string{"workflow_type": workflow, "namespace": "default"}
	}
	handler.WithTags(tagged("MeteredJob")).Counter("temporal_workflow_task_execution_failed").Inc(2)
	handler.WithTags(tagged("none")).Gauge("temporal_num_pollers").Update(3)
	for n := range 5000 {
		tags := tagged(fmt.Sprint("MadeUp", n))
		handler.WithTags(tags).WithTags(map[string]string{"operation": "x"}).Timer("temporal_request_latency").Record(2 * time.Second)
		require.Equal(t, fmt.Sprint("MadeUp", n), tags["workflow_type"], "the caller's tags are left alone")
	}
	all := gather(t, registry)
	failed := all["temporal_workflow_task_execution_failed_total"]
	require.NotNil(t, failed)
	assert.Equal(t, dto.MetricType_COUNTER, failed.GetType())
	assert.EqualValues(t, 2, failed.GetMetric()[0].GetCounter().GetValue())
	assert.EqualValues(t, 3, all["temporal_num_pollers"].GetMetric()[0].GetGauge().GetValue())
	latency := all["temporal_request_latency_seconds"].GetMetric()
	require.Len(t, latency, 1)
	assert.EqualValues(t, 5000, latency[0].GetHistogram().GetSampleCount())
	for _, label := range latency[0].GetLabel() {
		if label.GetName() == "workflow_type" {
			assert.Equal(t, "other", label.GetValue())
		}
	}
	for _, bucket := range latency[0].GetHistogram().GetBucket() {
		if bucket.GetUpperBound() == 1 {
			assert.Zero(t, bucket.GetCumulativeCount(), "2 s are more than 1 s")
		}
	}
}

func TestAnAuditIsShownOnceThereIsOne(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	audit := metrics.NewAudit(registry)
	assert.Empty(t, gather(t, registry), "before the first there is nothing")
	at := time.Date(2026, 5, 3, 12, 0, 0, 0, time.UTC)
	report := client.AuditReport{
		TakenAt: at, Checks: []client.AuditCheck{{Name: "entry_seq", Broken: 2}, {Name: "account_sum"}},
		Runs: client.AuditRuns{Checked: true, Count: 1},
	}
	require.NoError(t, audit.Show(report, 1500*time.Millisecond))
	file := filepath.Join(t.TempDir(), "audit.prom")
	require.NoError(t, prometheus.WriteToTextfile(file, registry))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, line := range []string{
		`reclaim_audit_breaks{check="entry_seq"} 2`, `reclaim_audit_breaks{check="account_sum"} 0`, `reclaim_audit_duration_seconds 1.5`,
		`reclaim_audit_without_run{kind="job"} 1`, `reclaim_audit_without_run{kind="refund"} 0`,
		fmt.Sprintf("reclaim_audit_last_success_timestamp_seconds %.9ge+09", float64(at.Unix())/1e9),
	} {
		assert.Contains(t, string(text), line+"\n")
	}
	report.Checks[0].Broken, report.Runs = 0, client.AuditRuns{Problem: "Temporal is away"}
	require.NoError(t, audit.Show(report, time.Second))
	all := gather(t, registry)
	for _, metric := range all["reclaim_audit_breaks"].GetMetric() {
		assert.Zero(t, metric.GetGauge().GetValue())
	}
	assert.Nil(t, all["reclaim_audit_without_run"], "what was not looked at is not shown")
}
