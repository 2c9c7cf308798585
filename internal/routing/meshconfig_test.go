package routing_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
)

func meshConfig(namespace string, generation int64, rate *uint32) *configv1.MeshConfig {
	return &configv1.MeshConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default", Generation: generation, UID: "u"},
		Spec:       &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{AccessLogSuccessSampleRate: rate}},
	}
}

// A MeshConfig that is not admitted as it is now has a status that says so, of the generation
// that is refused; what was in effect of it stays.
func TestAMeshConfigThatIsRefusedHasAStatus(t *testing.T) {
	g, err := routing.New(routing.Config{ControllerName: "example.com/c", ReleaseNamespace: "aether-system", Address: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	k := object.Key{Kind: object.MeshConfig, Namespace: "shop", Name: "default"}
	one := func(c object.Change) (routing.Status, *configv1.MeshConfigStatus) {
		t.Helper()
		c.Key = k
		d := g.Apply([]object.Change{c})
		if len(d.Statuses) != 1 || d.Statuses[0].Key != k {
			t.Fatalf("statuses %+v, want one", d.Statuses)
		}
		value, _ := d.Statuses[0].Value.(*configv1.MeshConfigStatus)
		return d.Statuses[0], value
	}
	s, v := one(object.Change{Refused: "spec.proxy.traceSampleRate: no", Generation: 1, UID: "u"})
	if s.Generation != 1 || s.UID != "u" || v.ObservedGeneration != 1 || v.Effective.Proxy.AccessLogSuccessSampleRate.From != "default" {
		t.Errorf("never good: %+v %+v", s, v)
	}
	if !strings.Contains(s.Refused, "inherit") || !strings.Contains(s.Refused, "spec.proxy.traceSampleRate: no") {
		t.Errorf("never good: %q", s.Refused)
	}
	good := meshConfig("shop", 2, ptr.To[uint32](7))
	s, v = one(object.Change{Object: good})
	if s.Refused != "" || s.Generation != 2 || v.ObservedGeneration != 2 || v.Effective.Proxy.AccessLogSuccessSampleRate.From != "shop/default" {
		t.Errorf("good: %+v %+v", s, v)
	}
	s, v = one(object.Change{Object: good, Refused: "spec: no", Generation: 3, UID: "u"})
	if s.Generation != 3 || v.ObservedGeneration != 3 || v.Effective.Proxy.AccessLogSuccessSampleRate.Value != 7 || !strings.Contains(s.Refused, "generation 2 stays in effect") {
		t.Errorf("bad again: %+v %+v", s, v)
	}
	if s, _ = one(object.Change{}); s.Value != nil {
		t.Errorf("gone: %+v", s)
	}
}
