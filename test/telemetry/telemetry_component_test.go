//go:build component

package telemetry_test

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"aether.io/aether/internal/test/collector"
)

const (
	bootstrap = "coxswain.discovery.v1.Discovery/Bootstrap"
	opening   = "open coxswain.discovery.v1.Discovery/Stream"
)

// is reports whether something is of one of our programs, as its resource says.
func is(r collector.Attributes, program string) bool {
	return r["service.name"] == program && r["service.namespace"] == "aether-system" && r["service.version"] != "" && r["service.instance.id"] != ""
}

// metricsLack says which metrics of each program have not arrived.
func metricsLack(t *testing.T, c *collector.Collector) string {
	t.Helper()
	all := c.Metrics(t)
	var out []string
	for program, name := range map[string]string{"aether-controller": "coxswain_discovery_connected_clients", "aether-proxy": "coxswain_discovery_client_state"} {
		if !slices.ContainsFunc(all, func(m collector.Metric) bool { return m.Name == name && is(m.Resource, program) }) {
			out = append(out, name+" of "+program)
		}
	}
	return strings.Join(out, ", ")
}

// joined returns the trace in which a call of the proxy is the parent of one of the controller; empty: there is none.
func joined(t *testing.T, c *collector.Collector, name string) string {
	t.Helper()
	all := c.Spans(t)
	for _, call := range all {
		if call.Name != name || call.Kind != collector.KindClient || !is(call.Resource, "aether-proxy") {
			continue
		}
		for _, answer := range all {
			if answer.Name == name && answer.Kind == collector.KindServer && is(answer.Resource, "aether-controller") &&
				answer.TraceID == call.TraceID && answer.ParentID == call.SpanID {
				return call.TraceID
			}
		}
	}
	return ""
}

func spanNames(t *testing.T, c *collector.Collector) string {
	t.Helper()
	var out []string
	for _, s := range c.Spans(t) {
		out = append(out, s.Resource["service.name"]+" "+s.Name)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), "; ")
}

func TestControllerAndProxyExportWhatTheySayOfThemselves(t *testing.T) {
	c := collector.Start(t, collector.Config{})
	start(t, endpoint(c), map[string]string{"web.yaml": gateway})
	await(t, "metrics of both", func() string { return metricsLack(t, c) })
	for _, name := range []string{bootstrap, opening} {
		await(t, "a trace across both: "+name, func() string {
			if joined(t, c, name) == "" {
				return "there are " + spanNames(t, c)
			}
			return ""
		})
	}
	await(t, "spans of work", func() string {
		names := spanNames(t, c)
		for _, want := range []string{"aether-controller push", "aether-controller apply changes"} {
			if !strings.Contains(names, want) {
				return "no " + want + " among " + names
			}
		}
		return ""
	})
	trace := joined(t, c, bootstrap)
	await(t, "the record of an SVID, with its trace", func() string {
		for _, l := range c.Logs(t) {
			if is(l.Resource, "aether-controller") && string(l.Body["stringValue"]) == `"SVID issued"` && l.Severity == "INFO" && l.TraceID == trace && l.SpanID != "" {
				return ""
			}
		}
		return fmt.Sprintf("none of trace %s among %v", trace, c.Logs(t))
	})
	await(t, "a record of the proxy", func() string {
		for _, l := range c.Logs(t) {
			if is(l.Resource, "aether-proxy") && string(l.Body["stringValue"]) == `"stream established"` {
				return ""
			}
		}
		return "there is none"
	})
	for _, r := range c.Received(t) {
		if strings.Contains(fmt.Sprint(r), "PRIVATE KEY") {
			t.Error("a private key was exported")
		}
	}
}

func TestTheCollectorIsVerifiedByWhatTheControllerFollows(t *testing.T) {
	c := collector.Start(t, collector.Config{TLS: true})
	in := start(t, endpoint(c), map[string]string{"web.yaml": gateway}, "--otlp-tls", "--otlp-ca-config-map=collector-ca")
	if got := c.Received(t); len(got) > 0 {
		t.Errorf("without authorities it got %v", got)
	}
	ca := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: collector-ca, namespace: aether-system}\ndata:\n  ca.crt: |\n" + indent(string(c.CA)) + "\n"
	if _, err := in.Write("ca.yaml", ca); err != nil {
		t.Fatal(err)
	}
	await(t, "metrics of both over TLS", func() string { return metricsLack(t, c) })
	await(t, "spans of before, or of now", func() string {
		if len(c.Spans(t)) == 0 {
			return "none"
		}
		return ""
	})
}

func TestACollectorThatHangsCostsNothingAndOneThatComesBackGetsWhatThereIs(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	number := l.Addr().(*net.TCPAddr).Port
	in := start(t, l.Addr().String(), map[string]string{"web.yaml": gateway})
	pids := map[string]int{}
	for _, name := range []string{"controller", "proxy"} {
		if pids[name], err = in.PID(name); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "what both say of a collector that hangs", func() string {
		for name := range pids {
			text, err := os.ReadFile(in.State.Log(name))
			if err != nil || !strings.Contains(string(text), "telemetry cannot be exported") {
				return fmt.Sprintf("%s says nothing of it (%v)", name, err)
			}
		}
		return ""
	})
	_ = l.Close()
	c := collector.Start(t, collector.Config{Port: uint16(number)})
	await(t, "metrics of both", func() string { return metricsLack(t, c) })
	for name, pid := range pids {
		if now, err := in.PID(name); err != nil || now != pid {
			t.Errorf("%s was %d and is %d (%v)", name, pid, now, err)
		}
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text, _ := os.ReadFile(in.State.Log(name))
		for _, signal := range []string{"traces", "logs", "metrics"} {
			if n := strings.Count(string(text), `"telemetry cannot be exported and is dropped","component":"`+name+`","signal":"`+signal+`"`); n > 1 {
				t.Errorf("%s tells %d times that %s cannot be exported", name, n, signal)
			}
		}
		if kib := resident(t, pid); kib > 200<<10 {
			t.Errorf("%s has %d KiB", name, kib)
		}
	}
}

// resident is the memory of a process, KiB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
