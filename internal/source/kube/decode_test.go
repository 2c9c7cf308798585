package kube

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
)

// own is one of our objects as it comes.
func own(t *testing.T, namespace, version, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := "{metadata: {namespace: " + namespace + ", name: default, uid: u-" + namespace + ", resourceVersion: '" + version + "', generation: " + version + "}, spec: " + spec + "}"
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	for _, number := range []string{"generation"} { // as a client reads it
		if f, is := u.Object["metadata"].(map[string]any)[number].(float64); is {
			u.Object["metadata"].(map[string]any)[number] = int64(f)
		}
	}
	return u
}

// One object that cannot be read, as definitions that were weakened let it be, keeps no other
// from being read, and not the one that it was before from being in effect.
func TestEachOfOurObjectsIsReadByItself(t *testing.T) {
	for name, tt := range map[string]struct {
		kind      object.Kind
		good, bad string
		path      string
	}{
		"a MeshConfig with a text for a number":   {object.MeshConfig, "{proxy: {traceSampleRate: 0.5}}", "{proxy: {traceSampleRate: often}}", "spec.proxy.traceSampleRate"},
		"a MeshConfig with a list for an object":  {object.MeshConfig, "{}", "{proxy: []}", "spec.proxy"},
		"a MeshConfig with a value out of range":  {object.MeshConfig, "{}", "{proxy: {accessLogSuccessSampleRate: 101}}", "accessLogSuccessSampleRate"},
		"a MeshConfig whose spec is a text":       {object.MeshConfig, "{}", "none", "spec"},
		"parameters with a text for a number":     {object.GatewayParameters, "{drainSeconds: 5}", "{drainSeconds: long}", "spec.drainSeconds"},
		"parameters with a mode that is not one":  {object.GatewayParameters, "{mode: Shared}", "{mode: Both}", "spec.mode"},
		"parameters with a number out of range":   {object.GatewayParameters, "{}", "{clients: {trustedHops: -1}}", "spec.clients.trustedHops"},
		"parameters with an object for a list":    {object.GatewayParameters, "{}", "{clients: {proxyProtocol: {trustedCIDRs: {}}}}", "spec.clients.proxyProtocol.trustedCIDRs"},
		"parameters whose spec is a list of them": {object.GatewayParameters, "{}", "[{}]", "spec"},
	} {
		t.Run(name, func(t *testing.T) {
			r := read(t, tt.kind)
			if err := r.Replace([]any{own(t, "a", "1", tt.good), own(t, "b", "1", tt.bad), own(t, "c", "1", tt.good)}, "5"); err != nil {
				t.Fatal(err)
			}
			b := r.collect()
			if len(b.Changes) != 3 || b.Changes[0].Object == nil || b.Changes[1].Object != nil || b.Changes[2].Object == nil {
				t.Fatalf("changes %+v, want of a and c their objects and of b none", b.Changes)
			}
			if c := b.Changes[1]; !strings.Contains(c.Refused, tt.path) || c.Generation != 1 || c.UID != "u-b" {
				t.Errorf("b: %+v, want it refused for %s", c, tt.path)
			}
			if len(b.Problems) != 1 || !strings.Contains(b.Problems[0].Message, tt.path) || b.Problems[0].Object != string(tt.kind)+"/b/default" {
				t.Errorf("problems %+v", b.Problems)
			}

			if err := r.Update(own(t, "a", "6", tt.bad)); err != nil {
				t.Fatal(err)
			}
			c := r.changes(t)
			if len(c) != 1 || c[0].Object == nil || c[0].Object.GetGeneration() != 1 || c[0].Generation != 6 || !strings.Contains(c[0].Refused, tt.path) {
				t.Fatalf("a became bad: %+v, want what it was before", c)
			}
			if err := r.Update(own(t, "a", "7", tt.good)); err != nil {
				t.Fatal(err)
			}
			b = r.collect()
			if len(b.Changes) != 1 || b.Changes[0].Refused != "" || b.Changes[0].Object.GetGeneration() != 7 || len(b.Problems) != 1 {
				t.Fatalf("a is good again: %+v", b)
			}
		})
	}
}

// What a newer version may have written is read, without what is not known of it.
func TestWhatIsNotKnownOfOurObjectsIsLeftOut(t *testing.T) {
	r := read(t, object.MeshConfig)
	if err := r.Update(own(t, "a", "1", "{proxy: {accessLogsEnabled: false, traceSampleRate: 0, sampler: {kind: [1]}}, other: 7}")); err != nil {
		t.Fatal(err)
	}
	c := r.changes(t)
	if len(c) != 1 || c[0].Refused != "" {
		t.Fatalf("changes %+v", c)
	}
	m := c[0].Object.(*configv1.MeshConfig)
	if p := m.Spec.GetProxy(); p.AccessLogsEnabled == nil || p.TraceSampleRate == nil || p.TracingEnabled != nil || strings.Join(m.UnknownFields, " ") != "other proxy.sampler" {
		t.Errorf("read %v, unknown %v", m.Spec, m.UnknownFields)
	}
	r = read(t, object.GatewayParameters)
	if err := r.Update(own(t, "a", "1", "{mode: Dedicated, dedicated: {replicas: 3, newer: 1}, newer: {a: b}}")); err != nil {
		t.Fatal(err)
	}
	c = r.changes(t)
	if len(c) != 1 || c[0].Refused != "" || c[0].Object.GetUID() != types.UID("u-a") || c[0].Object.GetGeneration() != 1 {
		t.Fatalf("changes %+v", c)
	}
	if p := c[0].Object.(*configv1.GatewayParameters); p.Spec.Dedicated == nil || p.Spec.Dedicated.Replicas == nil || *p.Spec.Dedicated.Replicas != 3 {
		t.Errorf("read %+v", p.Spec)
	}
}
