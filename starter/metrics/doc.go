// Package metrics counts, for Prometheus, what programs on both sides of Temporal have in common: the calls and tasks of the
// Temporal SDK, and what audits found. docs/metrics.md lists every metric.
package metrics
