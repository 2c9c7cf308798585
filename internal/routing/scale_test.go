package routing

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/scope"
)

// town is a Gateway with an HTTP and an HTTPS listener and n hosts, each with a route, a
// Service and an EndpointSlice of its own.
func town(n int) []object.Change {
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "coxswain"}}
	class.Spec.ControllerName = gatewayv1.GatewayController(testConfig().ControllerName)
	changes := []object.Change{change(class, object.GatewayClass), change(townGateway(), object.Gateway), change(townSecret(0), object.Secret)}
	for i := range n {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("s%d", i)}}
		service.Spec.Ports = []corev1.ServicePort{{Port: 80}}
		changes = append(changes, change(service, object.Service), change(townSlice(i, "10.0.0.1"), object.EndpointSlice), change(townRoute(i, 1), object.HTTPRoute))
	}
	return changes
}

func townGateway() *gatewayv1.Gateway {
	gw := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "web"}}
	all := &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
	gw.Spec = gatewayv1.GatewaySpec{GatewayClassName: "coxswain", Listeners: []gatewayv1.Listener{
		{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType, AllowedRoutes: all},
		{
			Name: "https", Port: 443, Protocol: gatewayv1.HTTPSProtocolType, AllowedRoutes: all,
			TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "cert"}}},
		},
	}}
	return gw
}

func townSecret(which int) *corev1.Secret {
	p := pairs()[which]
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "cert"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: p.cert, corev1.TLSPrivateKeyKey: p.key},
	}
}

func townSlice(i int, ip string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("s%d", i), Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("s%d", i)}},
		Ports:      []discoveryv1.EndpointPort{{Port: ptr.To[int32](8080)}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{ip}}},
	}
}

func townPolicy(i int) *gatewayv1.BackendTLSPolicy {
	p := &gatewayv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "tls"}}
	p.Spec.TargetRefs = []gatewayv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{
		Kind: "Service", Name: gatewayv1.ObjectName(fmt.Sprintf("s%d", i)),
	}}}
	p.Spec.Validation.Hostname = "s.example.com"
	p.Spec.Validation.WellKnownCACertificates = ptr.To(gatewayv1.WellKnownCACertificatesSystem)
	return p
}

func townRoute(i, version int) *gatewayv1.HTTPRoute {
	r := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("r%d", i), Generation: int64(version)}}
	r.Spec.ParentRefs = []gatewayv1.ParentReference{{Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: "web"}}
	r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("h%d.example.com", i))}
	r.Spec.Rules = []gatewayv1.HTTPRouteRule{{
		Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Value: ptr.To(fmt.Sprintf("/v%d", version))}}},
		BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(fmt.Sprintf("s%d", i)), Port: ptr.To[int32](80)},
		}}},
	}}
	return r
}

// costs is how many units each kind of change computes in a town of n hosts.
func costs(t *testing.T, n int, route int) map[string]int {
	r := newReplica(t)
	r.apply(town(n)...)
	out := map[string]int{}
	measure := func(what string, c object.Change) {
		before := r.graph.units.Runs()
		d := r.apply(c)
		out[what] = r.graph.units.Runs() - before
		if len(d.Worlds) == 0 {
			t.Errorf("%s: nothing was handed out", what)
		}
	}
	measure("route edit", change(townRoute(route, 2), object.HTTPRoute))
	measure("endpoint change", change(townSlice(route, "10.0.0.2"), object.EndpointSlice))
	measure("certificate rotation", change(townSecret(1), object.Secret))
	measure("mesh configuration", change(&configv1.MeshConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "default"},
		Spec:       &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{AccessLogsEnabled: ptr.To(true)}},
	}, object.MeshConfig))
	measure("TLS to a backend", change(townPolicy(route), object.BackendTLSPolicy))
	measure("new host", change(townRoute(n, 1), object.HTTPRoute))
	measure("host removed", object.Change{Key: change(townRoute(n, 1), object.HTTPRoute).Key})
	return out
}

func TestTheCostOfAChangeDoesNotDependOnTheSizeOfTheWorld(t *testing.T) {
	single, middle, large := costs(t, 10, 3), costs(t, 300, 200), costs(t, 3000, 1234)
	for what, cost := range large {
		if middle[what] != cost {
			t.Errorf("%s: %d units with 300 routes, %d with 3,000", what, middle[what], cost)
		}
	}
	if single["route edit"] != large["route edit"] {
		t.Errorf("route edit: %d units with 10 routes in one scope, %d with 3,000", single["route edit"], large["route edit"])
	}
	t.Logf("one scope: %v; a scope a host: %v", single, large)
}

// TestCrossingTheThresholdCutsTheTable adds and removes hosts around the limit of one scope.
func TestCrossingTheThresholdCutsTheTable(t *testing.T) {
	r := newReplica(t)
	r.apply(town(200)...)
	count := func() (scopes int) {
		for n := range r.worlds[scope.SharedPool()] {
			if n.TypeURL == envoy.ScopedRouteType {
				scopes++
			}
		}
		return scopes
	}
	if n := count(); n != 2 {
		t.Fatalf("200 hosts in each of two tables: %d scopes, want one a table", n)
	}
	small := r.state()
	extra := change(townRoute(200, 1), object.HTTPRoute)
	r.apply(extra)
	if n := count(); n != 2*202 {
		t.Fatalf("201 hosts in each of two tables: %d scopes, want one a host and one a table", n)
	}
	big := newReplica(t)
	big.apply(append(town(200), extra)...)
	requireEqual(t, big.state(), r.state())
	r.apply(object.Change{Key: extra.Key})
	requireEqual(t, small, r.state())
}

func BenchmarkRouteEdit(b *testing.B) {
	for _, n := range []int{10, 1000, 3000} {
		b.Run(fmt.Sprintf("hosts=%d", n), func(b *testing.B) {
			g, err := New(testConfig())
			if err != nil {
				b.Fatal(err)
			}
			g.Apply(town(n))
			version := 1
			b.ReportAllocs()
			for b.Loop() {
				version++
				if d := g.Apply([]object.Change{change(townRoute(n/2, version), object.HTTPRoute)}); len(d.Worlds) == 0 {
					b.Fatal("nothing was handed out")
				}
			}
		})
	}
}
