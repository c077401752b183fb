package relay

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reclaimhq/reclaim/schema"
)

var (
	waitingRows = prometheus.NewDesc("reclaim_outbox_waiting", "Outbox rows that are not delivered yet.", nil, nil)
	oldestRow   = prometheus.NewDesc("reclaim_outbox_oldest_seconds", "Age of the outbox row that has waited longest.", nil, nil)
)

// backlog reads from the database, whenever metrics are collected, what waits in the outbox.
type backlog struct{ store *schema.Store }

// Describe names the metrics.
func (b backlog) Describe(to chan<- *prometheus.Desc) {
	to <- waitingRows
	to <- oldestRow
}

// Collect reads them. While Postgres does not answer they are missing, which is told beside the others.
func (b backlog) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	row, err := b.store.OutboxBacklog(ctx)
	if err != nil {
		err = schema.Classify("count what waits in the outbox", err)
		to <- prometheus.NewInvalidMetric(waitingRows, err)
		to <- prometheus.NewInvalidMetric(oldestRow, err)
		return
	}
	to <- prometheus.MustNewConstMetric(waitingRows, prometheus.GaugeValue, float64(row.Waiting))
	to <- prometheus.MustNewConstMetric(oldestRow, prometheus.GaugeValue, float64(row.OldestUs)/1e6)
}
