package telemetry

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// sink takes what is exported. The tests with a real Collector are in test/telemetry.
type sink struct {
	addr   string
	server *grpc.Server

	mu      sync.Mutex // guards what follows
	spans   []*tracev1.ResourceSpans
	logs    []*logsv1.ResourceLogs
	metrics []*metricsv1.ResourceMetrics
}

// newSink listens at addr, by TLS with a certificate if there is one.
func newSink(t *testing.T, addr string, cert *tls.Certificate) *sink {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	var options []grpc.ServerOption
	if cert != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS13})))
	}
	s := &sink{addr: l.Addr().String(), server: grpc.NewServer(options...)}
	coltrace.RegisterTraceServiceServer(s.server, &traces{s: s})
	collogs.RegisterLogsServiceServer(s.server, &logs{s: s})
	colmetrics.RegisterMetricsServiceServer(s.server, &measures{s: s})
	done := make(chan struct{})
	go func() { // ends with the server
		defer close(done)
		_ = s.server.Serve(l)
	}()
	t.Cleanup(func() { s.server.Stop(); <-done })
	return s
}

type traces struct {
	coltrace.UnimplementedTraceServiceServer
	s *sink
}

func (h *traces) Export(_ context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.spans = append(h.s.spans, r.GetResourceSpans()...)
	return &coltrace.ExportTraceServiceResponse{}, nil
}

type logs struct {
	collogs.UnimplementedLogsServiceServer
	s *sink
}

func (h *logs) Export(_ context.Context, r *collogs.ExportLogsServiceRequest) (*collogs.ExportLogsServiceResponse, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.logs = append(h.s.logs, r.GetResourceLogs()...)
	return &collogs.ExportLogsServiceResponse{}, nil
}

type measures struct {
	colmetrics.UnimplementedMetricsServiceServer
	s *sink
}

func (h *measures) Export(_ context.Context, r *colmetrics.ExportMetricsServiceRequest) (*colmetrics.ExportMetricsServiceResponse, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.metrics = append(h.s.metrics, r.GetResourceMetrics()...)
	return &colmetrics.ExportMetricsServiceResponse{}, nil
}

func (s *sink) spanNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.spans {
		for _, in := range r.GetScopeSpans() {
			for _, one := range in.GetSpans() {
				out = append(out, one.GetName())
			}
		}
	}
	return out
}

func (s *sink) records() []*logsv1.LogRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*logsv1.LogRecord
	for _, r := range s.logs {
		for _, in := range r.GetScopeLogs() {
			out = append(out, in.GetLogRecords()...)
		}
	}
	return out
}

func (s *sink) metricNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, r := range s.metrics {
		for _, in := range r.GetScopeMetrics() {
			for _, one := range in.GetMetrics() {
				out = append(out, one.GetName())
			}
		}
	}
	return out
}

// lines is a log's output.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// until waits for something, and says what was there when it did not come.
func until(t *testing.T, what string, is func() bool, dump func() any) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-deadline.C:
			t.Fatalf("waited for %s: %v", what, dump())
		case <-look.C:
		}
	}
}
