package meshconfig_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
)

func TestWhatHasNoEffectIsFound(t *testing.T) {
	const (
		nowhere = "there is no collector to send traces to (otel.endpoint)"
		logs    = "proxy.accessLogSuccessSampleRate"
		rate    = "proxy.traceSampleRate"
		tracing = "proxy.tracingEnabled"
	)
	type list = []meshconfig.Idle
	off := meshconfig.System{}
	exporting := meshconfig.System{OTelEnabled: true, OTelLogs: true, OTelEndpoint: "collector:4317", TraceExport: true}
	collector := meshconfig.System{OTelEndpoint: "collector:4317"}
	for name, tc := range map[string]struct {
		sys              meshconfig.System
		release, ns      string
		forRelease, want list
	}{
		"nothing is set":                               {sys: off, release: "{}", ns: "{}"},
		"everything is in effect":                      {sys: exporting, release: "{}", ns: "{proxy: {accessLogsEnabled: true, accessLogSuccessSampleRate: 5, tracingEnabled: true, traceSampleRate: 0.5, emitStatsPod: true}}"},
		"by what is inherited":                         {sys: exporting, release: "{}", ns: "{proxy: {accessLogSuccessSampleRate: 5, traceSampleRate: 0.5}}"},
		"what is off is on purpose":                    {sys: off, release: "{}", ns: "{proxy: {accessLogsEnabled: false, tracingEnabled: false, emitStatsPod: false}}"},
		"a rate of a log that is off by system config": {sys: off, release: "{}", ns: "{proxy: {accessLogSuccessSampleRate: 0}}", want: list{{logs, "access logs are off, by system config"}}},
		"by the object itself": {
			sys: exporting, release: "{}", ns: "{proxy: {accessLogsEnabled: false, accessLogSuccessSampleRate: 5, tracingEnabled: false, traceSampleRate: 1}}",
			want: list{{logs, "access logs are off, by MeshConfig shop/default"}, {rate, "tracing is off, by MeshConfig shop/default"}},
		},
		"by what the release's object says": {
			sys: exporting, release: "{proxy: {tracingEnabled: false, accessLogsEnabled: false}}", ns: "{proxy: {accessLogSuccessSampleRate: 5, traceSampleRate: 0}}",
			want: list{{logs, "access logs are off, by MeshConfig aether-system/default"}, {rate, "tracing is off, by MeshConfig aether-system/default"}},
		},
		"the namespace makes use of what the release's object sets": {
			sys: collector, release: "{proxy: {traceSampleRate: 0.5}}", ns: "{proxy: {tracingEnabled: true}}",
			forRelease: list{{rate, "tracing is off, by system config"}},
		},
		"tracing of nothing, by the object itself": {
			sys: collector, release: "{}", ns: "{proxy: {tracingEnabled: true, traceSampleRate: 0}}", want: list{{tracing, "the trace rate is 0, by MeshConfig shop/default"}},
		},
		"tracing of nothing, by system config":           {sys: collector, release: "{}", ns: "{proxy: {tracingEnabled: true}}", want: list{{tracing, "the trace rate is 0, by system config"}}},
		"traces that go nowhere":                         {sys: off, release: "{}", ns: "{proxy: {tracingEnabled: true, traceSampleRate: 0.5}}", want: list{{rate, nowhere}, {tracing, nowhere}}},
		"no traces of the system's, without a collector": {sys: meshconfig.System{OTelEnabled: true, TraceExport: true}, release: "{}", ns: "{proxy: {traceSampleRate: 0.5}}", want: list{{rate, nowhere}}},
	} {
		t.Run(name, func(t *testing.T) {
			release, ns := load(t, "aether-system", tc.release), load(t, "shop", tc.ns)
			if diff := cmp.Diff(tc.want, meshconfig.NoEffect(tc.sys, ns.Spec, meshconfig.Resolve(tc.sys, release, ns))); diff != "" {
				t.Errorf("namespace (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.forRelease, meshconfig.NoEffect(tc.sys, release.Spec, meshconfig.Resolve(tc.sys, release, nil))); diff != "" {
				t.Errorf("release namespace (-want +got):\n%s", diff)
			}
		})
	}
}

// Taking away what has no effect changes nothing that anybody could see: neither what is
// logged nor what is traced.
func TestWhatHasNoEffectCanBeLeftOut(t *testing.T) {
	type seen struct {
		logs, traces bool
		success      uint32
		rate         float64
		pods         bool
	}
	look := func(sys meshconfig.System, e meshconfig.Effective) seen {
		s := seen{logs: e.AccessLogs.Value, traces: e.Tracing.Value && e.TraceSampleRate.Value > 0 && sys.OTelEndpoint != "", pods: e.EmitStatsPod.Value}
		if s.logs {
			s.success = e.AccessLogSuccessSampleRate.Value
		}
		if s.traces {
			s.rate = e.TraceSampleRate.Value
		}
		return s
	}
	r := rand.New(rand.NewPCG(7, 8))
	object := func(namespace string) *configv1.MeshConfig {
		c := &configv1.MeshConfig{Spec: anySpec(r)}
		c.Namespace, c.Name = namespace, "default"
		return c
	}
	found := 0
	for range 5000 {
		sys := meshconfig.System{OTelEnabled: r.IntN(2) == 0, OTelLogs: r.IntN(2) == 0, TraceExport: r.IntN(2) == 0, TraceSampleRate: 0.1}
		if r.IntN(2) == 0 {
			sys.OTelEndpoint = "collector:4317"
		}
		release, ns := object("aether-system"), object("shop")
		before := meshconfig.Resolve(sys, release, ns)
		idle := meshconfig.NoEffect(sys, ns.Spec, before)
		if !slices.IsSortedFunc(idle, func(a, b meshconfig.Idle) int { return strings.Compare(a.Path, b.Path) }) {
			t.Fatalf("not sorted: %v", idle)
		}
		found += len(idle)
		for _, i := range idle {
			switch i.Path {
			case "proxy.accessLogSuccessSampleRate":
				ns.Spec.Proxy.AccessLogSuccessSampleRate = nil
			case "proxy.traceSampleRate":
				ns.Spec.Proxy.TraceSampleRate = nil
			case "proxy.tracingEnabled":
				ns.Spec.Proxy.TracingEnabled = nil
			default:
				t.Fatalf("%s cannot be left out here", i.Path)
			}
		}
		if diff := cmp.Diff(look(sys, before), look(sys, meshconfig.Resolve(sys, release, ns)), cmp.AllowUnexported(seen{})); diff != "" {
			t.Fatalf("without %v (-with +without):\n%s", idle, diff)
		}
	}
	if found == 0 {
		t.Error("nothing was found to leave out")
	}
}
