package routing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// kinds counts the resources of a delta of the shared pool by type.
func kinds(d Delta) map[string]int {
	n := map[string]int{}
	for _, r := range d.Worlds[scope.SharedPool()].Changed {
		n[r.Name.TypeURL]++
	}
	for _, r := range d.Worlds[scope.SharedPool()].Removed {
		n["removed "+r.TypeURL]++
	}
	return n
}

func TestARateCostsOneLayerAndAnAuthorityOneSecretHoweverManyRoutes(t *testing.T) {
	r := newReplica(t)
	config := testConfig()
	config.Collector = Collector{Host: "collector", Port: 4317, TLS: true, ServerName: "collector", Authorities: "ca", TrustFile: config.TrustFile}
	var err error
	if r.graph, err = New(config); err != nil {
		t.Fatal(err)
	}
	r.apply(append(town(300), change(townGateway(), object.Gateway))...)
	pool := r.worlds[scope.SharedPool()]
	if pool[resource.Name{TypeURL: envoy.ClusterType, Name: envoy.CollectorName}] == nil {
		t.Fatal("there is no cluster of the collector")
	}
	if pool[resource.Name{TypeURL: envoy.SecretType, Name: envoy.CollectorName}] != nil {
		t.Fatal("there are authorities, and no ConfigMap")
	}
	only := func(what string, d Delta, kind string) {
		t.Helper()
		if n := kinds(d); len(n) != 1 || n[kind] != 1 {
			t.Errorf("%s changes %v, want one %s", what, n, kind)
		}
	}
	rate := 0.5
	on := true
	only("a rate", r.apply(change(&configv1.MeshConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "aether-system", Name: "default"},
		Spec:       &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{TracingEnabled: &on, TraceSampleRate: &rate}},
	}, object.MeshConfig)), envoy.RuntimeType)
	authorities := func(pem []byte) Delta {
		return r.apply(change(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "aether-system", Name: "ca"}, Data: map[string]string{"ca.crt": string(pem)},
		}, object.ConfigMap))
	}
	p := pairs()
	only("an authority", authorities(p[0].cert), envoy.SecretType)
	only("another one", authorities(p[1].cert), envoy.SecretType)
	only("a bad one", authorities([]byte("none")), "removed "+envoy.SecretType)
}

func TestACollectorThatCannotBeIsRefused(t *testing.T) {
	for name, c := range map[string]Collector{
		"no port":                    {Host: "collector"},
		"no name":                    {Host: "a_b c", Port: 1},
		"TLS to an address":          {Host: "10.0.0.1", Port: 1, TLS: true, ServerName: "10.0.0.1", TrustFile: "/ca"},
		"TLS that would believe all": {Host: "c", Port: 1, TLS: true, ServerName: "c"},
		"authorities without TLS":    {Host: "c", Port: 1, Authorities: "ca"},
	} {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			config.Collector = c
			if _, err := New(config); err == nil {
				t.Error("it was taken")
			}
		})
	}
}
