// Package telemetry exports what one of our processes says of itself, its metrics, spans and
// log records, to an OpenTelemetry Collector: OTLP over gRPC, over one connection. Metrics are
// those of the Prometheus registry, so that each has one place; log records are those of the
// process's slog.Logger, which writes them where it always does as well; spans are of calls
// between processes and of work that a Tracer is asked for.
//
// A collector that is away, slow, or not one costs telemetry and nothing else: what waits for
// it is bounded, each export has a deadline, and what does not fit is dropped. That an export
// fails is logged when it begins and when it ends, and is never exported itself.
package telemetry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promotel "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
)

// The bounds of what waits for a collector: some megabytes at most, as a record has a few
// short attributes.
const (
	maxSpans      = 2048 // that wait; newer ones are dropped
	maxRecords    = 2048 // that wait; they push out older ones
	maxBatch      = 512  // of either in one request, which a collector takes up to 4 MiB of
	maxAttributes = 32   // of one
	maxValue      = 2048 // bytes of one value
	// defaultTimeout is for one export with all its attempts, after which what it was to send is lost.
	defaultTimeout = 10 * time.Second
	// defaultInterval is between two exports of metrics, spansAndRecords between those of the others.
	defaultInterval = 10 * time.Second
	spansAndRecords = 2 * time.Second
)

// Config is what a Telemetry is made from.
type Config struct {
	Service   string // required: the program's name
	Namespace string // of the release, which tells several in a cluster apart; empty: not said
	Version   string // of the program

	Endpoint   string // of the collector, host:port; empty: nothing is exported, whatever else is set
	TLS        bool   // else what is exported can be read and changed on the way
	ServerName string // with TLS: the name that the collector's certificate must have; empty: the endpoint's host
	// Trust says that the collector's authorities are told by TrustTo later; else they are the system's.
	Trust bool

	Metrics    prometheus.Gatherer // nil: none
	Logs       bool                // whether LogHandler exports
	Traces     bool
	SampleRate float64       // of traces that begin here, 0..1
	Interval   time.Duration // between exports of metrics; 0: 10 s
	Timeout    time.Duration // of one export with all its attempts; 0: 10 s

	Log        *slog.Logger          // of what befalls exports: it must not be one that exports; nil: none
	Registerer prometheus.Registerer // nil: no metrics of exports
}

// Telemetry is one process's. Its methods are safe for concurrent use.
type Telemetry struct {
	c       Config
	conn    *grpc.ClientConn // nil: nothing is exported
	trust   *trust
	metrics *metrics
	random  string // this process, where nothing else names it
	tracer  trace.TracerProvider
	logs    *sdklog.LoggerProvider // nil: none
	stops   []func(context.Context) error
	over    chan struct{} // closed when nothing is waited for any more
	closing sync.Once     // closes it
}

// New makes what exports, and starts what gathers: Shutdown ends it. Nothing is connected before
// there is something to send, and nothing waits for that.
func New(c Config) (*Telemetry, error) {
	if c.Service == "" {
		return nil, errors.New("telemetry: the name of the service is required")
	}
	if c.SampleRate < 0 || c.SampleRate > 1 {
		return nil, fmt.Errorf("telemetry: the sample rate %g is not in 0..1", c.SampleRate)
	}
	if c.Interval <= 0 {
		c.Interval = defaultInterval
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	t := &Telemetry{c: c, trust: &trust{}, random: rand.Text(), over: make(chan struct{}), tracer: noop.NewTracerProvider()}
	if c.Endpoint == "" || c.Metrics == nil && !c.Logs && !c.Traces {
		return t, nil
	}
	var err error
	if t.metrics, err = newMetrics(c.Registerer); err != nil {
		return nil, err
	}
	if t.conn, err = t.dial(); err != nil {
		return nil, fmt.Errorf("telemetry: endpoint %s: %w", c.Endpoint, err)
	}
	t.catch()
	for _, make := range []func(context.Context) error{t.exportTraces, t.exportLogs, t.exportMetrics} {
		if err := make(context.Background()); err != nil {
			return nil, errors.Join(fmt.Errorf("telemetry: %w", err), t.Shutdown(context.Background()))
		}
	}
	return t, nil
}

func (t *Telemetry) exportTraces(ctx context.Context) error {
	if !t.c.Traces {
		return nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithGRPCConn(t.conn), otlptracegrpc.WithTimeout(t.c.Timeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig(t.retry())))
	if err != nil {
		return err
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeCountLimit, limits.AttributeValueLengthLimit, limits.EventCountLimit, limits.LinkCountLimit = maxAttributes, maxValue, 8, 8
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(t.resource()), sdktrace.WithRawSpanLimits(limits), sdktrace.WithSampler(sampler(t.c.SampleRate)),
		sdktrace.WithBatcher(spans{exporter, attempt{t.over, t.outcome(signalTraces)}}, sdktrace.WithMaxQueueSize(maxSpans), sdktrace.WithMaxExportBatchSize(maxBatch),
			sdktrace.WithBatchTimeout(spansAndRecords), sdktrace.WithExportTimeout(t.c.Timeout)),
	)
	t.tracer = provider
	t.stops = append(t.stops, provider.Shutdown)
	return nil
}

func (t *Telemetry) exportLogs(ctx context.Context) error {
	if !t.c.Logs {
		return nil
	}
	exporter, err := otlploggrpc.New(ctx, otlploggrpc.WithGRPCConn(t.conn), otlploggrpc.WithTimeout(t.c.Timeout),
		otlploggrpc.WithRetry(otlploggrpc.RetryConfig(t.retry())))
	if err != nil {
		return err
	}
	t.logs = sdklog.NewLoggerProvider(
		sdklog.WithResource(t.resource()), sdklog.WithAttributeCountLimit(maxAttributes), sdklog.WithAttributeValueLengthLimit(maxValue),
		sdklog.WithProcessor(sdklog.NewBatchProcessor(records{exporter, attempt{t.over, t.outcome(signalLogs)}}, sdklog.WithMaxQueueSize(maxRecords),
			sdklog.WithExportMaxBatchSize(maxBatch), sdklog.WithExportInterval(spansAndRecords), sdklog.WithExportTimeout(t.c.Timeout))),
	)
	t.stops = append(t.stops, t.logs.Shutdown)
	return nil
}

func (t *Telemetry) exportMetrics(ctx context.Context) error {
	if t.c.Metrics == nil {
		return nil
	}
	exporter, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithGRPCConn(t.conn), otlpmetricgrpc.WithTimeout(t.c.Timeout),
		otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig(t.retry())))
	if err != nil {
		return err
	}
	provider := sdkmetric.NewMeterProvider(
		sdkmetric.WithResource(t.resource()),
		sdkmetric.WithReader(sdkmetric.NewPeriodicReader(points{exporter, attempt{t.over, t.outcome(signalMetrics)}}, sdkmetric.WithInterval(t.c.Interval),
			sdkmetric.WithTimeout(t.c.Timeout), sdkmetric.WithProducer(promotel.NewMetricProducer(promotel.WithGatherer(t.c.Metrics))))),
	)
	t.stops = append(t.stops, provider.Shutdown)
	return nil
}

// Shutdown sends what waits, until ctx is done at the latest; what is left then is lost. Nothing is
// exported afterwards, and what is handed in is dropped.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	if t.conn == nil {
		return nil
	}
	t.metrics.ending.Store(true)
	errs := make([]error, len(t.stops)+1)
	var all sync.WaitGroup
	for i, stop := range t.stops { // together: the connection is one, and so is the deadline
		all.Go(func() { errs[i] = stop(ctx) })
	}
	all.Wait()
	t.closing.Do(func() { close(t.over) })
	errs[len(t.stops)] = t.conn.Close()
	return errors.Join(errs...)
}
