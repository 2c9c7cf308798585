package routing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/scope"
)

// levels is what MeshConfigs there are, and what they mean by the contract, said another way
// than the code does: field by field, from the namespace's object up.
type levels struct {
	release string
	system  meshconfig.System
	objects map[string]*configv1.MeshConfig // by namespace
}

func level[T any](l levels, namespace string, field func(*configv1.ProxyConfig) *T, value T, from string) meshconfig.Value[T] {
	for _, ns := range []string{namespace, l.release} {
		if o := l.objects[ns]; o != nil && o.Spec.GetProxy() != nil {
			if set := field(o.Spec.Proxy); set != nil {
				return meshconfig.Value[T]{Value: *set, From: ns + "/default"}
			}
		}
	}
	return meshconfig.Value[T]{Value: value, From: from}
}

func (l levels) effective(ns string) *configv1.MeshConfigEffective {
	return meshconfig.Effective{
		AccessLogs:                 level(l, ns, func(p *configv1.ProxyConfig) *bool { return p.AccessLogsEnabled }, l.system.OTelEnabled && l.system.OTelLogs, "system"),
		AccessLogSuccessSampleRate: level(l, ns, func(p *configv1.ProxyConfig) *uint32 { return p.AccessLogSuccessSampleRate }, 100, "default"),
		Tracing:                    level(l, ns, func(p *configv1.ProxyConfig) *bool { return p.TracingEnabled }, l.system.OTelEnabled && l.system.TraceExport, "system"),
		TraceSampleRate:            level(l, ns, func(p *configv1.ProxyConfig) *float64 { return p.TraceSampleRate }, l.system.TraceSampleRate, "system"),
		EmitStatsPod:               level(l, ns, func(p *configv1.ProxyConfig) *bool { return p.EmitStatsPod }, false, "default"),
	}.Status()
}

// told is what the status of a namespace's object says, as far as objects decide it.
type told struct {
	generation int64
	effective  configv1.MeshConfigEffective
}

func (l levels) told() map[object.Key]told {
	out := map[object.Key]told{}
	for ns, o := range l.objects {
		out[object.Key{Kind: object.MeshConfig, Namespace: ns, Name: "default"}] = told{o.Generation, *l.effective(ns)}
	}
	return out
}

func anyProxyConfig(r *rand.Rand) *configv1.ProxyConfig {
	flag := func() *bool { return []*bool{nil, ptr.To(false), ptr.To(true)}[r.IntN(3)] }
	return &configv1.ProxyConfig{
		AccessLogsEnabled: flag(), TracingEnabled: flag(), EmitStatsPod: flag(),
		AccessLogSuccessSampleRate: []*uint32{nil, ptr.To[uint32](0), ptr.To(r.Uint32N(3))}[r.IntN(3)],
		TraceSampleRate:            []*float64{nil, ptr.To(0.0), ptr.To(0.5)}[r.IntN(3)],
	}
}

// A change of a MeshConfig, its creation and its deletion, reaches the status of exactly those
// objects of which it says something else, and proxies of nobody whom it does not concern.
func TestAMeshConfigReachesExactlyThoseWhomItConcerns(t *testing.T) {
	config := testConfig()
	config.System = meshconfig.System{OTelEnabled: true, OTelLogs: true, TraceSampleRate: 0.1}
	config.Fronts = false
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			g, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			shared, own := key.Name{Namespace: "shared", Name: "web"}, key.Name{Namespace: "own", Name: "web"}
			g.Apply([]object.Change{
				classOf("coxswain"),
				parametersOf("own", "own", configv1.GatewayParametersSpec{Mode: ptr.To(configv1.GatewayModeDedicated)}),
				gatewayOf(shared, "coxswain", "", 1),
				gatewayOf(own, "coxswain", "own", 2),
			})
			release := config.ReleaseNamespace
			reach := map[string][]scope.Scope{ // none of the others has a Gateway
				release:  {scope.SharedPool(), ownScope(t, own)},
				"shared": {scope.SharedPool()},
				"own":    {ownScope(t, own)},
			}
			at := map[scope.Scope]string{scope.SharedPool(): "shared", ownScope(t, own): "own"}
			l := levels{release: release, system: config.System, objects: map[string]*configv1.MeshConfig{}}
			for step := range 40 {
				ns := []string{release, "shared", "own", "none", "other"}[r.IntN(5)]
				before := l.told()
				logs := map[string]*configv1.MeshConfigEffective{"shared": l.effective("shared"), "own": l.effective("own")}
				c := object.Change{Key: object.Key{Kind: object.MeshConfig, Namespace: ns, Name: "default"}}
				if r.IntN(4) == 0 {
					delete(l.objects, ns)
				} else {
					o := &configv1.MeshConfig{
						ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default", Generation: int64(step + 1)},
						Spec:       &configv1.MeshConfigSpec{Proxy: anyProxyConfig(r)},
					}
					l.objects[ns], c.Object = o, o
				}
				d := g.Apply([]object.Change{c})

				want := map[object.Key]told{}
				now := l.told()
				for k, s := range now {
					if old, was := before[k]; !was || old != s {
						want[k] = s
					}
				}
				for k := range before {
					if _, still := now[k]; !still {
						want[k] = told{}
					}
				}
				got := map[object.Key]told{}
				for _, s := range d.Statuses {
					v, is := s.Value.(*configv1.MeshConfigStatus)
					switch {
					case s.Value == nil:
						got[s.Key] = told{}
					case is:
						got[s.Key] = told{v.ObservedGeneration, *v.Effective}
					default:
						t.Errorf("step %d, %s: the status of %s", step, ns, s.Key)
					}
				}
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(told{})); diff != "" {
					t.Fatalf("step %d, %s (-want +got):\n%s", step, ns, diff)
				}
				for s := range d.Worlds {
					if !slices.Contains(reach[ns], s) {
						t.Fatalf("step %d: %s reaches %s", step, ns, s)
					}
				}
				for s, of := range at {
					a, b := logs[of].Proxy, l.effective(of).Proxy
					_, changed := d.Worlds[s]
					if !changed && (a.AccessLogsEnabled.Value != b.AccessLogsEnabled.Value || a.AccessLogSuccessSampleRate.Value != b.AccessLogSuccessSampleRate.Value) {
						t.Fatalf("step %d: %s does not reach %s", step, ns, s)
					}
				}
			}
		})
	}
}
