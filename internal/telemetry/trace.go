package telemetry

import (
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/stats"
)

// propagator carries which trace a call is of, and nothing else: baggage would be whatever a
// peer likes.
var propagator = propagation.TraceContext{}

// Tracer makes spans in the name of a part of the process; they are exported if traces are.
func (t *Telemetry) Tracer(part string) trace.Tracer { return t.tracer.Tracer(part) }

// Calls has each call that a server answers, or a client makes, be a span.
func (t *Telemetry) Calls(kind trace.SpanKind) stats.Handler {
	options := []otelgrpc.Option{
		otelgrpc.WithTracerProvider(t.tracer), otelgrpc.WithPropagators(propagator), otelgrpc.WithMeterProvider(metricnoop.NewMeterProvider()),
	}
	if kind == trace.SpanKindServer {
		return otelgrpc.NewServerHandler(options...)
	}
	return otelgrpc.NewClientHandler(options...)
}

// HTTP has each request to a handler be a span of a name.
func (t *Telemetry) HTTP(name string) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return otelhttp.NewHandler(h, name, otelhttp.WithTracerProvider(t.tracer), otelhttp.WithPropagators(propagator),
			otelhttp.WithMeterProvider(metricnoop.NewMeterProvider()),
			otelhttp.WithSpanNameFormatter(func(operation string, _ *http.Request) string { return operation }))
	}
}

// The most traces that peers may have continued here, a second and at once. Who calls may not be
// known by then, and is not to fill the queue.
const (
	continuedPerSecond = 100
	continuedAtOnce    = 200
)

// sampler has a trace that begins here be sampled at a rate, and the rest of a trace be as it is
// where it began, within bounds.
func sampler(r float64) sdktrace.Sampler {
	return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(r),
		sdktrace.WithRemoteParentSampled(bounded{rate.NewLimiter(continuedPerSecond, continuedAtOnce)}))
}

// bounded samples within a limit.
type bounded struct{ limit *rate.Limiter }

// ShouldSample implements sdktrace.Sampler.
func (b bounded) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if !b.limit.Allow() {
		return sdktrace.NeverSample().ShouldSample(p)
	}
	return sdktrace.AlwaysSample().ShouldSample(p)
}

// Description implements sdktrace.Sampler.
func (b bounded) Description() string { return "Bounded" }
