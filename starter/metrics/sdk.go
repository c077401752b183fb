package metrics

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
)

// other stands for every name that is not known.
const other = "other"

// seconds are the buckets of the SDK's timers: a local activity takes milliseconds, a poll a minute, a job hours.
var seconds = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600}

// SDK returns what a Temporal client, and the workers on it, count and measure by: the metrics that Temporal documents, as
// temporal_… on the registry, counters ending in _total and timers in _seconds. Known are the types of workflows and
// activities that are told apart. Whoever may start a run can make up others, without end: those are counted together, as
// "other".
func SDK(registry prometheus.Registerer, known ...string) (client.MetricsHandler, error) {
	reader, err := exporter.New(exporter.WithRegisterer(registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("register the metrics of the Temporal SDK: %w", err)
	}
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithView(sdkmetric.NewView(
		sdkmetric.Instrument{Kind: sdkmetric.InstrumentKindHistogram},
		sdkmetric.Stream{Aggregation: sdkmetric.AggregationExplicitBucketHistogram{Boundaries: seconds}},
	)))
	return &bounded{known: known, to: opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{
		Meter: provider.Meter("temporal-sdk-go"), UseMonotonicCounters: true,
		// An instrument that cannot be made counts nothing; it must not end the process.
		OnError: func(error) {},
	})}, nil
}

// bounded is a handler under which the names of types come from a list. What it has made for tags and names it makes once: the
// SDK asks for the same few with every call and task, and finding them anew took a tenth of a worker's processor time.
type bounded struct {
	known []string
	to    client.MetricsHandler

	under                    sync.Map
	counters, gauges, timers sync.Map
}

// WithTags adds tags, with the types that are not known taken together.
func (b *bounded) WithTags(tags map[string]string) client.MetricsHandler {
	for _, tag := range []string{"workflow_type", "activity_type"} {
		if name, ok := tags[tag]; ok && name != "none" && name != "" && !slices.Contains(b.known, name) {
			tags = maps.Clone(tags)
			tags[tag] = other
		}
	}
	var key strings.Builder
	for _, tag := range slices.Sorted(maps.Keys(tags)) {
		key.WriteString(tag)
		key.WriteByte(0)
		key.WriteString(tags[tag])
		key.WriteByte(0)
	}
	return made(&b.under, key.String(), func(string) client.MetricsHandler {
		return &bounded{known: b.known, to: b.to.WithTags(tags)}
	})
}

// Counter returns the counter of that name.
func (b *bounded) Counter(name string) client.MetricsCounter {
	return made(&b.counters, name, b.to.Counter)
}

// Gauge returns the gauge of that name.
func (b *bounded) Gauge(name string) client.MetricsGauge { return made(&b.gauges, name, b.to.Gauge) }

// Timer returns the timer of that name.
func (b *bounded) Timer(name string) client.MetricsTimer { return made(&b.timers, name, b.to.Timer) }

// made returns what was made under the key, and makes it the first time.
func made[T any](kept *sync.Map, key string, make func(string) T) T {
	if known, ok := kept.Load(key); ok {
		return known.(T)
	}
	known, _ := kept.LoadOrStore(key, make(key))
	return known.(T)
}
