package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/reclaimhq/reclaim/starter/client"
	"github.com/reclaimhq/reclaim/starter/metrics"
)

// auditSoon is when at the latest a worker makes its first audit: not at once, since a worker that is started again and again
// would do nothing else.
const auditSoon = time.Minute

// auditAlways audits all tenants regularly until ctx ends, what is new mostly and all of it once in a while, and shows what was
// found.
func auditAlways(ctx context.Context, ledger *client.Client, every, whole time.Duration, shown *metrics.Audit, logger *zap.Logger) {
	for pause := min(every, auditSoon); ; pause = every {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		began := time.Now()
		report, err := ledger.AuditSinceCheckpoint(ctx, whole)
		if err == nil {
			err = shown.Show(report, time.Since(began))
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			logger.Warn("the ledger could not be audited", zap.Error(err), zap.Duration("again", every))
		case report.Checkpoint.Problem != "":
			logger.Warn("the next audit has to prove the whole ledger again", zap.String("why", report.Checkpoint.Problem))
		case !report.Sound:
			logger.Error("the audit found a break: see `starter audit --all-tenants`", zap.Any("first", report.Breaks[0]))
		}
	}
}
