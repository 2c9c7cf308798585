//go:build component

package envoy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/bootstrap"
	"aether.io/aether/internal/test/collector"
)

const telemetryTable = "shop/web/80"

// telemetry serves one table that exports to a collector, with nothing on.
func telemetry(t *testing.T, r *rig, collector envoy.Collector, more ...model) (port uint32) {
	t.Helper()
	port = freePort(t)
	r.serve(t, append([]model{envoy.Runtime{}, collector}, more...)...)
	r.serve(t, cluster("shop/cart/80", envoy.HTTP1, backend(t, "a", false))...)
	r.serve(t, scopes(telemetryTable, false, []envoy.VirtualHost{
		{Host: "a.example", Routes: []envoy.Route{{Name: "shop/cart/0/0", Path: prefix("/a"), Backends: to("shop/cart/80")}}},
	})...)
	r.serve(t, envoy.Listener{
		Name: telemetryTable, Address: "127.0.0.1", Port: port,
		Chains: []envoy.Chain{{Name: telemetryTable, Collector: true, Port: 80}},
	})
	r.awaitListener(t, port)
	return port
}

// runtime has Envoy take a layer and waits until it has: a limit of a listener that there is
// not tells one from the other.
func (r *rig) runtime(t *testing.T, layer envoy.Runtime) {
	t.Helper()
	r.layers++
	layer.Connections = map[string]uint32{"mark": r.layers}
	r.serve(t, layer)
	await(t, "the runtime layer", func() bool {
		var page struct {
			Entries map[string]struct {
				Final string `json:"final_value"`
			}
		}
		_ = json.Unmarshal([]byte(r.get("/runtime")), &page)
		return page.Entries["envoy.resource_limits.listener.mark.connection_limit"].Final == fmt.Sprint(r.layers)
	}, func() string { return r.get("/runtime") })
}

// layer is a runtime layer of the one table.
func layer(log bool, success uint32, traces float64) envoy.Runtime {
	return envoy.Runtime{
		AccessLogs: map[string]envoy.AccessLog{telemetryTable: {Enabled: log, SuccessSample: success}},
		Traces:     map[string]float64{telemetryTable: traces},
	}
}

// target is how a collector is exported to.
func target(c *collector.Collector) (envoy.Collector, []model) {
	to := envoy.Collector{Host: c.Host, Port: uint32(c.Port)}
	if c.CA == nil {
		return to, nil
	}
	to.TLS = envoy.CollectorTLS("localhost", "")
	return to, []model{envoy.Trust{Name: envoy.CollectorName, Authorities: c.CA}}
}

// fetch asks n times over connections that are kept, some at a time, and counts answers by status.
func fetch(t *testing.T, port uint32, n int, path string) map[int]int {
	t.Helper()
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	var mu sync.Mutex // guards got
	got := map[int]int{}
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for range n/4 + min(1, max(0, n%4-w)) {
				q, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), http.NoBody)
				q.Host = "a.example"
				status := 0
				if resp, err := client.Do(q); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					status = resp.StatusCode
				}
				mu.Lock()
				got[status]++
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return got
}

func TestACollectorReceivesLogsAndSpansByTheConventionsNames(t *testing.T) {
	c := collector.Start(t, collector.Config{TLS: true})
	r := newRig(t)
	to, trust := target(c)
	port := telemetry(t, r, to, trust...)
	r.runtime(t, layer(true, 100, 1))
	const parent = "00-11111111111111111111111111111111-2222222222222222-01"
	seen := ask(t, port, "GET /a/b?secret=1 HTTP/1.1", "Host: a.example", "User-Agent: test/1", "traceparent: "+parent).Seen
	var logs []collector.Log
	var spans []collector.Span
	await(t, "a record and a span", func() bool {
		logs, spans = c.Logs(t), c.Spans(t)
		return len(logs) == 1 && len(spans) == 1
	}, func() string {
		return fmt.Sprintf("%+v\n%+v\n%s", logs, spans, r.get("/stats?filter=aether-otel|open_?telemetry"))
	})

	want := collector.Attributes{
		"http.request.method": "GET", "http.response.status_code": "200", "http.request.body.size": "0",
		"url.scheme": "http", "url.path": "/a/b", "server.address": "a.example", "server.port": "80",
		"client.address": "127.0.0.1", "network.peer.address": "127.0.0.1", "user_agent.original": "test/1",
		"network.protocol.name": "http", "network.protocol.version": "1.1",
		"aether.table": telemetryTable, "aether.route": "shop/cart/0/0", "aether.request_id": seen.Header.Get("X-Request-Id"),
		"envoy.response_code_detail": "via_upstream", "envoy.upstream_cluster": "shop/cart/80",
	}
	resource := collector.Attributes{
		"service.name": "web", "service.namespace": "shop", "k8s.pod.name": "pod-1", "k8s.namespace.name": "gateways",
	}
	for what, of := range map[string]struct{ attributes, resource collector.Attributes }{
		"the record": {logs[0].Attributes, logs[0].Resource}, "the span": {spans[0].Attributes, spans[0].Resource},
	} {
		if diff := cmp.Diff(want, of.attributes, among(want)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		if diff := cmp.Diff(resource, of.resource, among(resource)); diff != "" {
			t.Errorf("resource of %s (-want +got):\n%s", what, diff)
		}
		if text := fmt.Sprint(of); strings.Contains(text, "secret") {
			t.Errorf("%s has the query: %s", what, text)
		}
	}
	if spans[0].Kind != collector.KindServer || spans[0].Name != "GET shop/cart/0/0" {
		t.Errorf("the span is %q of kind %d", spans[0].Name, spans[0].Kind)
	}
	if logs[0].TraceID != spans[0].TraceID || logs[0].SpanID != spans[0].SpanID {
		t.Errorf("the record is of %s %s, the span is %s %s", logs[0].TraceID, logs[0].SpanID, spans[0].TraceID, spans[0].SpanID)
	}
	if got, want := seen.Header.Get("Traceparent"), "00-"+spans[0].TraceID+"-"+spans[0].SpanID+"-01"; got != want {
		t.Errorf("the backend was told of trace %s, want %s", got, want)
	}
	for _, name := range []string{"X-Envoy-Force-Trace", "X-Aether-Traceparent", "X-Aether-Tracestate", "X-Aether-Scope", "Tracestate"} {
		if seen.Header.Get(name) != "" {
			t.Errorf("the backend got %s: %s", name, seen.Header.Get(name))
		}
	}
	t.Logf("record: %v\nspan: %v", logs[0].Attributes, spans[0].Attributes)
}

// Of a request that says it is gRPC Envoy tells the path once more, as it came.
func TestASpanOfGRPCHasNoQuery(t *testing.T) {
	c := collector.Start(t, collector.Config{})
	r := newRig(t)
	to, _ := target(c)
	port := telemetry(t, r, to)
	r.runtime(t, layer(false, 0, 1))
	ask(t, port, "GET /a/b?secret=1 HTTP/1.1", "Host: a.example", "Content-Type: application/grpc")
	var spans []collector.Span
	await(t, "a span", func() bool {
		spans = c.Spans(t)
		return len(spans) == 1
	}, func() string { return r.get("/stats?filter=opentelemetry") })
	if got := spans[0].Attributes["grpc.path"]; got != "/a/b" || strings.Contains(fmt.Sprint(spans), "secret") {
		t.Errorf("its path is %q in %+v", got, spans[0])
	}
}

// among compares only the attributes that are wanted.
func among(want collector.Attributes) cmp.Option {
	return cmp.FilterPath(func(p cmp.Path) bool {
		i, is := p.Last().(cmp.MapIndex)
		if !is {
			return false
		}
		_, wanted := want[i.Key().String()]
		return !wanted
	}, cmp.Ignore())
}

// A client's trace context is the backend's business as long as the request is not traced
// here, and never decides whether it is.
func TestAClientsTraceContextPassesAndDecidesNothing(t *testing.T) {
	c := collector.Start(t, collector.Config{})
	r := newRig(t)
	to, _ := target(c)
	port := telemetry(t, r, to)
	const parent = "00-11111111111111111111111111111111-2222222222222222-01"
	for range 20 {
		seen := ask(
			t, port, "GET /a HTTP/1.1", "Host: a.example", "traceparent: "+parent, "tracestate: a=b",
			"X-Client-Trace-Id: mine", "X-Envoy-Force-Trace: true", "X-Aether-Traceparent: forged",
		).Seen
		if got := seen.Header.Get("Traceparent"); got != parent {
			t.Fatalf("the backend got traceparent %q, want the client's", got)
		}
		if got := seen.Header.Get("Tracestate"); got != "a=b" {
			t.Fatalf("the backend got tracestate %q, want the client's", got)
		}
	}
	if seen := ask(t, port, "GET /a HTTP/1.1", "Host: a.example", "X-Aether-Traceparent: "+parent).Seen; seen.Header.Get("Traceparent") != "" {
		t.Errorf("the backend got a traceparent that the client did not send as one: %s", seen.Header.Get("Traceparent"))
	}
	// What is exported last proves that nothing was before it.
	r.runtime(t, layer(false, 100, 1))
	ask(t, port, "GET /a/last HTTP/1.1", "Host: a.example", "traceparent: "+strings.TrimSuffix(parent, "1")+"0")
	var spans []collector.Span
	await(t, "a span", func() bool {
		spans = c.Spans(t)
		return len(spans) > 0
	}, func() string { return r.get("/stats?filter=opentelemetry") })
	if len(spans) != 1 || spans[0].Attributes["url.path"] != "/a/last" {
		t.Errorf("traced: %+v", spans)
	}
}

// within says whether a count of n independent trials of share p is one that comes about
// more often than once in a hundred million runs (6 standard deviations).
func withinBounds(count, n int, p float64) bool {
	return math.Abs(float64(count)-float64(n)*p) <= 6*math.Sqrt(float64(n)*p*(1-p))
}

func TestSharesOfRequestsAreLoggedAndTracedAndAllFailuresLogged(t *testing.T) {
	c := collector.Start(t, collector.Config{})
	r := newRig(t)
	to, _ := target(c)
	port := telemetry(t, r, to)
	const n, failures = 2000, 100
	const log, trace = 30, 0.2
	r.runtime(t, layer(true, log, trace))
	if got := fetch(t, port, n, "/a/ok"); got[http.StatusOK] != n {
		t.Fatalf("answers: %v", got)
	}
	if got := fetch(t, port, failures, "/a/failed?status=503"); got[http.StatusServiceUnavailable] != failures {
		t.Fatalf("answers: %v", got)
	}
	// The last one comes after all others of its worker, so what is missing then is counted.
	r.runtime(t, layer(true, 100, 1))
	count := map[string]int{}
	await(t, "all failures, and the others' shares", func() bool {
		count = map[string]int{}
		for _, l := range c.Logs(t) {
			count["log "+l.Attributes["url.path"]]++
		}
		for _, s := range c.Spans(t) {
			count["span "+s.Attributes["url.path"]]++
		}
		return count["log /a/failed"] == failures && withinBounds(count["log /a/ok"], n, log/100.) &&
			withinBounds(count["span /a/ok"], n, trace) && withinBounds(count["span /a/failed"], failures, trace)
	}, func() string { return fmt.Sprint(count) + r.get("/stats?filter=open_?telemetry") })
	sent := r.stat(t, "tracing.opentelemetry.spans_sent")
	if spans := len(c.Spans(t)); spans != sent {
		t.Errorf("%d spans came, %d were sent", spans, sent)
	}
	t.Logf("of %d requests and %d failures: %v", n, failures, count)
}

// stat is the value of one of Envoy's counters or gauges.
func (r *rig) stat(t *testing.T, name string) int {
	t.Helper()
	var value int
	text := r.get("/stats?filter=^" + name + "$")
	if _, err := fmt.Sscanf(text, name+": %d", &value); err != nil {
		t.Fatalf("%s: %q: %v", name, text, err)
	}
	return value
}

func TestACollectorReceivesEnvoysMetrics(t *testing.T) {
	c := collector.Start(t, collector.Config{})
	to, trust := target(c)
	r := newRig(t, func(b *bootstrap.Config) { b.Collector, b.EvictStats = &to, time.Second })
	port := telemetry(t, r, to, trust...)
	if got := fetch(t, port, 40, "/a"); got[http.StatusOK] != 40 {
		t.Fatalf("answers: %v", got)
	}
	want := map[string]string{"service.name": "test", "k8s.pod.name": "pod-1", "k8s.namespace.name": "gateways"}
	var names []string
	await(t, "requests of the cluster, counted", func() bool {
		names = nil
		for _, m := range c.Metrics(t) {
			names = append(names, m.Name)
			if m.Name != "envoy.cluster.upstream_rq_total" || m.Sum == nil {
				continue
			}
			for _, p := range m.Sum.DataPoints {
				if p.Attributes["envoy.cluster_name"] == "shop/cart/80" && p.Int == "40" {
					if diff := cmp.Diff(collector.Attributes(want), m.Resource, among(want)); diff != "" {
						t.Errorf("the resource (-want +got):\n%s", diff)
					}
					return true
				}
			}
		}
		return false
	}, func() string { return fmt.Sprint(names) + r.get("/stats?filter=aether-otel") })
}
