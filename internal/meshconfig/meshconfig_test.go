package meshconfig_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
)

// anySpec makes a valid spec in which each field is unset, zero or something else.
func anySpec(r *rand.Rand) *configv1.MeshConfigSpec {
	spec := &configv1.MeshConfigSpec{}
	if r.IntN(8) == 0 {
		return spec
	}
	p := &configv1.ProxyConfig{}
	spec.Proxy = p
	flag := func() *bool {
		return []*bool{nil, proto.Bool(false), proto.Bool(true)}[r.IntN(3)]
	}
	p.AccessLogsEnabled, p.TracingEnabled, p.EmitStatsPod = flag(), flag(), flag()
	p.AccessLogSuccessSampleRate = []*uint32{nil, proto.Uint32(0), proto.Uint32(r.Uint32N(101))}[r.IntN(3)]
	p.TraceSampleRate = []*float64{nil, proto.Float64(0), proto.Float64(r.Float64()), proto.Float64(1e-9)}[r.IntN(4)]
	return spec
}

func TestParseReadsWhatFormatWrote(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		spec := anySpec(r)
		data, err := meshconfig.Format(spec)
		if err != nil {
			t.Fatal(err)
		}
		again, unknown, err := meshconfig.Parse(data)
		if err != nil || len(unknown) > 0 {
			t.Fatalf("%s: unknown %q, %v", data, unknown, err)
		}
		if diff := cmp.Diff(spec, again, protocmp.Transform()); diff != "" {
			t.Fatalf("%s (-written +read):\n%s", data, diff)
		}
		if twice, err := meshconfig.Format(again); err != nil || !bytes.Equal(twice, data) {
			t.Fatalf("written again: %s, %v; was %s", twice, err, data)
		}
	}
}

func TestMergeIsAssociativeAndChangesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		a, b, c := anySpec(r), anySpec(r), anySpec(r)
		kept := []proto.Message{proto.CloneOf(a), proto.CloneOf(b), proto.CloneOf(c)}
		left := meshconfig.Merge(meshconfig.Merge(a, b), c)
		right := meshconfig.Merge(a, meshconfig.Merge(b, c))
		if diff := cmp.Diff(left, right, protocmp.Transform()); diff != "" {
			t.Fatalf("(ab)c and a(bc) differ:\n%s", diff)
		}
		if diff := cmp.Diff(a, meshconfig.Merge(meshconfig.Merge(nil, a), nil), protocmp.Transform()); diff != "" {
			t.Fatalf("merging with nothing changed a spec:\n%s", diff)
		}
		if diff := cmp.Diff(kept, []proto.Message{a, b, c}, protocmp.Transform()); diff != "" {
			t.Fatalf("Merge changed an argument:\n%s", diff)
		}
	}
}

// What is in effect is the merge of the levels: two ways to say it must agree.
func TestResolveAgreesWithMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	object := func(namespace string) *configv1.MeshConfig {
		c := &configv1.MeshConfig{Spec: anySpec(r)}
		c.Namespace, c.Name = namespace, "default"
		return c
	}
	sys := meshconfig.System{TraceSampleRate: 0.1}
	for range 500 {
		release, ns := object("aether-system"), object("shop")
		merged := &configv1.MeshConfig{Spec: meshconfig.Merge(release.Spec, ns.Spec)}
		one, two := meshconfig.Resolve(sys, release, ns), meshconfig.Resolve(sys, merged, nil)
		if one.AccessLogs.Value != two.AccessLogs.Value || one.AccessLogSuccessSampleRate.Value != two.AccessLogSuccessSampleRate.Value ||
			one.Tracing.Value != two.Tracing.Value || one.TraceSampleRate.Value != two.TraceSampleRate.Value ||
			one.EmitStatsPod.Value != two.EmitStatsPod.Value {
			t.Fatalf("levels %+v, merge %+v", one, two)
		}
	}
}

func TestResolveNamesTheOrigin(t *testing.T) {
	release := load(t, "aether-system", "{proxy: {accessLogsEnabled: true, traceSampleRate: 0}}")
	shop := load(t, "shop", "{proxy: {accessLogsEnabled: false, accessLogSuccessSampleRate: 10}}")
	sys := meshconfig.System{OTelEnabled: true, OTelLogs: true, TraceSampleRate: 0.1, TraceExport: true}
	defaults := meshconfig.Effective{
		AccessLogs:                 meshconfig.Value[bool]{Value: true, From: "system"},
		AccessLogSuccessSampleRate: meshconfig.Value[uint32]{Value: 100, From: "default"},
		Tracing:                    meshconfig.Value[bool]{Value: true, From: "system"},
		TraceSampleRate:            meshconfig.Value[float64]{Value: 0.1, From: "system"},
		EmitStatsPod:               meshconfig.Value[bool]{Value: false, From: "default"},
	}
	both := defaults
	both.AccessLogs = meshconfig.Value[bool]{Value: false, From: "shop/default"}
	both.AccessLogSuccessSampleRate = meshconfig.Value[uint32]{Value: 10, From: "shop/default"}
	both.TraceSampleRate = meshconfig.Value[float64]{Value: 0, From: "aether-system/default"}
	logsOff := defaults
	logsOff.AccessLogs.Value = false
	allOff := logsOff
	allOff.Tracing.Value = false
	for name, tc := range map[string]struct {
		sys         meshconfig.System
		release, ns *configv1.MeshConfig
		want        meshconfig.Effective
	}{
		"no object inherits everything":              {sys, nil, nil, defaults},
		"an object without a spec sets nothing":      {sys, load(t, "aether-system", ""), load(t, "shop", "{}"), defaults},
		"an explicit zero or false counts":           {sys, release, shop, both},
		"access logs need both of their settings":    {meshconfig.System{OTelEnabled: true, TraceSampleRate: 0.1, TraceExport: true}, nil, nil, logsOff},
		"export does nothing without otel.enabled":   {meshconfig.System{OTelLogs: true, TraceSampleRate: 0.1, TraceExport: true}, nil, nil, allOff},
		"the release namespace may be the namespace": {sys, shop, shop, meshconfig.Resolve(sys, nil, shop)},
	} {
		t.Run(name, func(t *testing.T) {
			got := meshconfig.Resolve(tc.sys, tc.release, tc.ns)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	want := configv1.EffectiveUint32{Value: 10, From: "shop/default"}
	if got := both.Status().Proxy.AccessLogSuccessSampleRate; got != want {
		t.Errorf("status: got %+v, want %+v", got, want)
	}
}

func load(t *testing.T, namespace, spec string) *configv1.MeshConfig {
	t.Helper()
	manifest := "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: " + namespace + "}\n"
	if spec != "" {
		manifest += "spec: " + spec + "\n"
	}
	c, err := meshconfig.Load([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLoadRefuses(t *testing.T) {
	const head = "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default}\n"
	for name, tc := range map[string]struct{ in, want string }{
		"an empty file":                   {"", "no content"},
		"only comments":                   {"# nothing\n---\n", "no content"},
		"another kind":                    {"apiVersion: v1\nkind: Service\nmetadata: {name: default}", `want config.aether.io/v1 MeshConfig, got "v1" "Service"`},
		"another name":                    {"apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: mine}", `metadata.name: want "default", got "mine"`},
		"two documents":                   {head + "---\n" + head, "more than one document"},
		"a key written twice":             {head + "spec: {proxy: {emitStatsPod: true, emitStatsPod: false}}", "already set"},
		"a field under two names":         {head + "spec: {proxy: {emitStatsPod: true, emit_stats_pod: false}}", "duplicate field"},
		"a rate out of range":             {head + "spec: {proxy: {traceSampleRate: 1.5}}", "spec.proxy.traceSampleRate: must be"},
		"a rate that is no rate":          {head + "spec: {proxy: {traceSampleRate: NaN}}", `spec.proxy.traceSampleRate: want a number, got "NaN"`},
		"a number in quotes":              {head + `spec: {proxy: {traceSampleRate: "0.5"}}`, `spec.proxy.traceSampleRate: want a number, got "0.5"`},
		"a whole number in quotes":        {head + `spec: {proxy: {accessLogSuccessSampleRate: "10"}}`, `spec.proxy.accessLogSuccessSampleRate: want a whole number`},
		"a percentage over 100":           {head + "spec: {proxy: {accessLogSuccessSampleRate: 101}}", "spec.proxy.accessLogSuccessSampleRate: must be less than or equal to 100, got 101"},
		"a fraction of a percent":         {head + "spec: {proxy: {accessLogSuccessSampleRate: 0.5}}", "spec.proxy.accessLogSuccessSampleRate: want a whole number"},
		"a known field of the wrong type": {head + "spec: {proxy: {tracingEnabled: maybe}}", `spec.proxy.tracingEnabled: want true or false, got "maybe"`},
		"a spec that is a list":           {head + "spec: []", "spec: want an object, got []"},
		"what is no YAML":                 {"\t:", "read MeshConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := meshconfig.Load([]byte(tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, %v; want an error with %q", c, err, tc.want)
			}
		})
	}
}

func TestInvalidListsEveryField(t *testing.T) {
	for name, in := range map[string]string{
		"out of range": "proxy: {traceSampleRate: -1, accessLogSuccessSampleRate: 1000}",
		"ill-typed":    "proxy: {traceSampleRate: a, accessLogSuccessSampleRate: b}",
		"one of each":  "proxy: {traceSampleRate: 7, accessLogSuccessSampleRate: b}",
		"by old names": "proxy: {trace_sample_rate: [], access_log_success_sample_rate: 101}",
	} {
		_, _, err := meshconfig.Parse([]byte(in))
		bad, ok := errors.AsType[*meshconfig.Invalid](err)
		if !ok {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		var paths []string
		for _, f := range bad.Fields {
			paths = append(paths, strings.NewReplacer("trace_sample_rate", "traceSampleRate").Replace(f.Path))
		}
		if want := []string{"proxy.accessLogSuccessSampleRate", "proxy.traceSampleRate"}; !slices.Equal(paths, want) {
			t.Errorf("%s: got %q, want %q", name, paths, want)
		}
	}
}

func TestJudgeSaysEverythingThatIsWrong(t *testing.T) {
	const head = `{"apiVersion": "config.aether.io/v1", "kind": "MeshConfig", "metadata": {"name": `
	for name, tc := range map[string]struct {
		in   string
		want []string
	}{
		"nothing": {head + `"default"}, "spec": {"new": 1}}`, nil},
		"no spec": {head + `"default"}}`, nil},
		"the name too": {head + `"mine"}, "spec": {"proxy": {"traceSampleRate": 2, "tracingEnabled": 1}}}`, []string{
			`metadata.name: want "default", got "mine"`,
			"spec.proxy.traceSampleRate: must be greater than or equal to 0 and less than or equal to 1, got 2",
			"spec.proxy.tracingEnabled: want true or false, got 1",
		}},
		"the spec itself": {head + `"default"}, "spec": 7}`, []string{"spec: want an object, got 7"}},
		"a part of it":    {head + `"default"}, "spec": {"proxy": "on"}}`, []string{`spec.proxy: want an object, got "on"`}},
		"a field twice":   {head + `"default"}, "spec": {"proxy": {"emitStatsPod": true, "emit_stats_pod": true}}}`, []string{`spec: (line 1:34): duplicate field "emit_stats_pod"`}},
	} {
		t.Run(name, func(t *testing.T) {
			c, wrong, err := meshconfig.Judge([]byte(tc.in))
			if err != nil || (c == nil) != (len(tc.want) > 0) {
				t.Errorf("got %v, %v", c, err)
			}
			if diff := cmp.Diff(tc.want, wrong); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, in := range []string{"", "{", "7", "null", `{"kind": "MeshConfig"}`, `{"apiVersion": "config.aether.io/v2", "kind": "MeshConfig"}`, head + `7}}`} {
		if c, wrong, err := meshconfig.Judge([]byte(in)); err == nil {
			t.Errorf("%s: got %v, %v, want an error", in, c, wrong)
		}
	}
}

func TestUnknownFieldsAreReadAndNamed(t *testing.T) {
	spec, unknown, err := meshconfig.Parse([]byte("proxy: {accessLogEnabled: true, emitStatsPod: true}\nmesh: {mtls: STRICT}"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"mesh", "proxy.accessLogEnabled"}; !slices.Equal(unknown, want) {
		t.Errorf("got %q, want %q", unknown, want)
	}
	if !spec.GetProxy().GetEmitStatsPod() {
		t.Error("the known field beside them was lost")
	}
}

func TestSuggest(t *testing.T) {
	for unknown, want := range map[string]string{
		"proxy.accessLogEnabled":   "proxy.accessLogsEnabled",
		"proxy.AccessLogsEnabled":  "proxy.accessLogsEnabled",
		"proxy.accesslogsenable":   "proxy.accessLogsEnabled",
		"accessLogsEnabled":        "proxy.accessLogsEnabled",
		"telemetry.emitStatsPod":   "proxy.emitStatsPod",
		"proxy.tracesSampleRate":   "proxy.traceSampleRate",
		"proxi":                    "proxy",
		"mesh":                     "",
		"proxy.retries":            "",
		strings.Repeat("é", 10000): "",
	} {
		got, ok := meshconfig.Suggest(unknown)
		if got != want || ok != (want != "") {
			t.Errorf("%.40s: got %q, want %q", unknown, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"{}", "", "proxy: {accessLogsEnabled: true}", `{"proxy":{"traceSampleRate":"NaN"}}`, "proxy:\n  accessLogSuccessSampleRate: 1e2\n",
		"a: &a [*a]", "---\n---\n", "proxy: {emitStatsPod: null}", `{"proxy":{"trace_sample_rate":1}}`, "\xff", "[]", "7",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, unknown, err := meshconfig.Parse(data)
		if err != nil {
			return
		}
		if bad := meshconfig.Validate(spec); len(bad) > 0 {
			t.Fatalf("Parse let pass %v", bad)
		}
		for _, path := range unknown {
			meshconfig.Suggest(path)
		}
		out, err := meshconfig.Format(spec)
		if err != nil {
			t.Fatal(err)
		}
		again, left, err := meshconfig.Parse(out)
		if err != nil || len(left) > 0 || !proto.Equal(spec, again) {
			t.Fatalf("%q became %q: %v", data, out, err)
		}
	})
}
