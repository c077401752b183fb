// Package meter counts and measures, for Prometheus, what a worker does and what its database says. docs/metrics.md lists
// every metric.
package meter
