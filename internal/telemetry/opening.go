package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// Openings has the beginning of each stream be a span: from the call to the first message that
// the server sends, or to the end if that is before. A span of a stream as a whole would be told
// of after hours, when nobody asks any more.
func (t *Telemetry) Openings(kind trace.SpanKind) stats.Handler {
	return openings{t.Tracer("google.golang.org/grpc"), kind}
}

type openings struct {
	tracer trace.Tracer
	kind   trace.SpanKind
}

// TagRPC implements stats.Handler.
func (o openings) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if o.kind == trace.SpanKindServer {
		in, _ := metadata.FromIncomingContext(ctx)
		ctx = propagator.Extract(ctx, carrier(in))
	}
	method := strings.TrimPrefix(info.FullMethodName, "/")
	ctx, span := o.tracer.Start(ctx, "open "+method, trace.WithSpanKind(o.kind),
		trace.WithAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method)))
	ctx = context.WithValue(ctx, openingKey{}, span)
	if o.kind == trace.SpanKindServer {
		return ctx
	}
	out, _ := metadata.FromOutgoingContext(ctx)
	out = out.Copy() // nil becomes empty
	propagator.Inject(ctx, carrier(out))
	return metadata.NewOutgoingContext(ctx, out)
}

type openingKey struct{}

// HandleRPC implements stats.Handler.
func (o openings) HandleRPC(ctx context.Context, s stats.RPCStats) {
	span, is := ctx.Value(openingKey{}).(trace.Span)
	if !is {
		return
	}
	switch s := s.(type) {
	case *stats.InPayload:
		if o.kind == trace.SpanKindClient {
			span.End() // what comes later changes nothing any more
		}
	case *stats.OutPayload:
		if o.kind == trace.SpanKindServer {
			span.End()
		}
	case *stats.End:
		if s.Error != nil {
			st := status.Convert(s.Error)
			span.SetStatus(codes.Error, st.Message())
			span.SetAttributes(semconv.RPCResponseStatusCode(st.Code().String()))
		}
		span.End()
	}
}

// TagConn implements stats.Handler.
func (openings) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (openings) HandleConn(context.Context, stats.ConnStats) {}

// carrier is headers as a propagator writes and reads them.
type carrier metadata.MD

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if all := metadata.MD(c).Get(key); len(all) > 0 {
		return all[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
