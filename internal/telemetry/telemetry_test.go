package telemetry

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/trace"

	"aether.io/aether/internal/test/controller"
)

// everything exports all there is to an endpoint.
func everything(endpoint string, to io.Writer) (Config, *prometheus.Registry) {
	r := prometheus.NewRegistry()
	return Config{
		Service: "aether-test", Namespace: "aether-system", Version: "1.2.3", Endpoint: endpoint, Metrics: r, Registerer: r,
		Logs: true, Traces: true, SampleRate: 1, Interval: 50 * time.Millisecond, Timeout: 300 * time.Millisecond, Log: slog.New(slog.NewTextHandler(to, nil)),
	}, r
}

func start(t *testing.T, c Config) *Telemetry {
	t.Helper()
	tel, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = tel.Shutdown(ctx) // where nobody listens what is left is lost
	})
	return tel
}

func TestEverythingArrivesWithItsResource(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=pod-1,k8s.namespace.name=ns-1,service.name=not-this")
	s := newSink(t, "127.0.0.1:0", nil)
	c, _ := everything(s.addr, io.Discard)
	tel := start(t, c)
	beside := &lines{}
	log := slog.New(tel.LogHandler(slog.NewTextHandler(beside, nil), slog.LevelInfo))
	ctx, span := tel.Tracer("test").Start(t.Context(), "work")
	log.DebugContext(ctx, "for developers")
	log.WarnContext(ctx, "look at this", "error", errors.New("it is broken"))
	span.End()
	until(t, "spans, records and metrics", func() bool {
		return len(s.spanNames()) > 0 && len(s.records()) > 0 && slices.Contains(s.metricNames(), "aether_otlp_exports_total")
	}, func() any { return []any{s.spanNames(), s.records(), s.metricNames()} })

	if got := s.records(); len(got) != 1 || got[0].GetSeverityText() != "WARN" || got[0].GetBody().GetStringValue() != "look at this" ||
		string(got[0].GetTraceId()) != string(ids(span)) || !strings.Contains(got[0].String(), "it is broken") {
		t.Errorf("records: %v, want one warning of trace %x with its error", got, ids(span))
	}
	if !strings.Contains(beside.String(), "look at this") {
		t.Errorf("where it always logs there is %q", beside.String())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	got := map[string]string{}
	for _, a := range s.spans[0].GetResource().GetAttributes() {
		got[a.GetKey()] = a.GetValue().GetStringValue()
	}
	for k, want := range map[string]string{
		"service.name": "aether-test", "service.namespace": "aether-system", "service.version": "1.2.3", "service.instance.id": "ns-1.pod-1.aether-test",
		"k8s.pod.name": "pod-1", "k8s.namespace.name": "ns-1",
	} {
		if got[k] != want {
			t.Errorf("%s is %q, want %q", k, got[k], want)
		}
	}
}

func ids(s trace.Span) []byte { id := s.SpanContext().TraceID(); return id[:] }

func TestNothingIsExportedThatNobodyAskedFor(t *testing.T) {
	s := newSink(t, "127.0.0.1:0", nil)
	c, _ := everything(s.addr, io.Discard)
	c.Traces, c.Metrics = false, nil
	tel := start(t, c)
	_, span := tel.Tracer("test").Start(t.Context(), "work")
	span.End()
	if span.IsRecording() || span.SpanContext().IsValid() {
		t.Error("a span is kept though no traces are exported")
	}
	slog.New(tel.LogHandler(slog.DiscardHandler, slog.LevelInfo)).Info("hello")
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.records()) != 1 || len(s.spanNames()) != 0 || len(s.metricNames()) != 0 {
		t.Errorf("records %v, spans %v, metrics %v: want one record", s.records(), s.spanNames(), s.metricNames())
	}
	off, err := New(Config{Service: "x", Metrics: prometheus.NewRegistry(), Logs: true, Traces: true})
	if err != nil || off.conn != nil {
		t.Errorf("without an endpoint: %v, connection %v", err, off.conn)
	}
}

func TestAnAbsentCollectorIsToldOfOnceAndComesBack(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	told := &lines{}
	c, r := everything(addr, told)
	c.Traces, c.Logs = false, false
	start(t, c)
	until(t, "two failed exports", func() bool { return value(t, r, "aether_otlp_exports_total", "failed") >= 2 }, func() any { return told.String() })
	if n := strings.Count(told.String(), "telemetry cannot be exported"); n != 1 {
		t.Errorf("told %d times:\n%s", n, told)
	}
	s := newSink(t, addr, nil)
	until(t, "metrics", func() bool { return slices.Contains(s.metricNames(), "aether_otlp_failing") }, func() any { return told.String() })
	until(t, "the good news", func() bool { return strings.Contains(told.String(), "telemetry is exported again") }, func() any { return told.String() })
}

func TestACollectorThatHangsHoldsNobodyUp(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // accepts by the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, _ := everything(l.Addr().String(), io.Discard)
	tel := start(t, c)
	log := slog.New(tel.LogHandler(slog.DiscardHandler, slog.LevelInfo))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 * maxRecords {
			_, span := tel.Tracer("test").Start(t.Context(), "work")
			log.Info("one of many", "text", strings.Repeat("x", 4*maxValue))
			span.End()
		}
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("logging waits for the collector")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); _ = tel.Shutdown(ctx) }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the end waits for the collector")
	}
}

func TestACollectorThatCannotBeVerifiedGetsNothing(t *testing.T) {
	ca, other := controller.NewCA(t), controller.NewCA(t)
	cert := ca.Server(t, controller.ServerID)
	s := newSink(t, "127.0.0.1:0", cert)
	told := &lines{}
	c, r := everything(s.addr, told)
	c.TLS, c.Trust, c.ServerName = true, true, "collector.example"
	c.Traces, c.Logs = false, false
	tel := start(t, c)
	for name, a := range map[string]Authorities{
		"before it is known whom to believe": nil,
		"of a stranger":                      func() (*x509.CertPool, error) { return pool(other), nil },
		"without the name":                   func() (*x509.CertPool, error) { return pool(ca), nil },
	} {
		if a != nil {
			tel.TrustTo(a)
		}
		before := value(t, r, "aether_otlp_exports_total", "failed")
		until(t, "a failed export "+name, func() bool { return value(t, r, "aether_otlp_exports_total", "failed") > before }, func() any { return told.String() })
		if got := s.metricNames(); len(got) > 0 {
			t.Errorf("%s it got %v", name, got)
		}
	}
}

func pool(ca *controller.CA) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.Root)
	return p
}

// value adds up a metric, of one result.
func value(t *testing.T, r *prometheus.Registry, name, result string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "result" && l.GetValue() == result }) {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestPeersHaveABoundedNumberOfTracesContinued(t *testing.T) {
	s := newSink(t, "127.0.0.1:0", nil)
	c, _ := everything(s.addr, io.Discard)
	c.Logs, c.Metrics, c.SampleRate = false, nil, 0
	tel := start(t, c)
	remote := func() context.Context {
		return trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	sampled := 0
	const asked = 20 * continuedAtOnce
	for range asked {
		_, span := tel.Tracer("test").Start(remote(), "asked for")
		if span.SpanContext().IsSampled() {
			sampled++
		}
		span.End()
	}
	if sampled < continuedAtOnce || sampled == asked {
		t.Errorf("%d of %d are sampled, want at least %d and not all", sampled, asked, continuedAtOnce)
	}
	if _, span := tel.Tracer("test").Start(t.Context(), "ours"); span.SpanContext().IsSampled() {
		t.Error("a trace that begins here is sampled at a rate of 0")
	}
}
