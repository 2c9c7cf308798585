package telemetry

import (
	"context"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The exporters of the SDK, with what became of each export told to us and not to the SDK: it
// would hand each failure to a handler of the whole process, without saying when that is over.

// attempt makes one export: it ends with its context, and when the process waits for it no more.
// The SDK would otherwise go on with all that waits, after it was shut down.
type attempt struct {
	over <-chan struct{}
	tell func(error)
}

func (a attempt) make(ctx context.Context, export func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the export
		select {
		case <-a.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	a.tell(export(ctx))
}

type spans struct {
	sdktrace.SpanExporter
	attempt
}

// ExportSpans implements sdktrace.SpanExporter.
func (e spans) ExportSpans(ctx context.Context, list []sdktrace.ReadOnlySpan) error {
	e.make(ctx, func(ctx context.Context) error { return e.SpanExporter.ExportSpans(ctx, list) })
	return nil
}

type records struct {
	sdklog.Exporter
	attempt
}

// Export implements sdklog.Exporter.
func (e records) Export(ctx context.Context, list []sdklog.Record) error {
	e.make(ctx, func(ctx context.Context) error { return e.Exporter.Export(ctx, list) })
	return nil
}

type points struct {
	sdkmetric.Exporter
	attempt
}

// Export implements sdkmetric.Exporter.
func (e points) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	e.make(ctx, func(ctx context.Context) error { return e.Exporter.Export(ctx, all) })
	return nil
}
