package routing

import (
	"slices"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

func TestNewRefusesWhatItCannotServe(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"no controller name":   func(c *Config) { c.ControllerName = "" },
		"no release namespace": func(c *Config) { c.ReleaseNamespace = "" },
		"no address":           func(c *Config) { c.Address = "" },
		"a host name to bind":  func(c *Config) { c.Address = "localhost" },
		"an address of a zone": func(c *Config) { c.Address = "fe80::1%eth0" },
	} {
		t.Run(name, func(t *testing.T) {
			c := testConfig()
			spoil(&c)
			if _, err := New(c); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestTheSharedPoolHasAWorldWithoutObjects(t *testing.T) {
	r := newReplica(t)
	d := r.apply()
	if w := d.Worlds[scope.SharedPool()]; len(d.Worlds) != 1 || len(w.Changed) != 1 || w.Changed[0].TypeURL != envoy.RuntimeType {
		t.Errorf("handed out %v, want the shared pool's runtime layer", d.Worlds)
	}
	if d := r.apply(); len(d.Worlds) > 0 || len(d.Statuses) > 0 {
		t.Errorf("handed out again: %v", d)
	}
}

// routeOf is the one route of the shared pool's HTTP table.
func (r *replica) routeOf(t *testing.T) string {
	t.Helper()
	d := r.worlds[scope.SharedPool()][resource.Name{TypeURL: envoy.ScopedRouteType, Name: "infra/web/80|*"}]
	if d == nil {
		t.Fatal("the table has no scope")
	}
	hosts := describeResource(d).(map[string]any)
	if routes, _ := hosts["h0.example.com"].([]any); len(routes) == 1 {
		return routes[0].(string)
	}
	return ""
}

func TestHoldKeepsAnOlderRouteInEffect(t *testing.T) {
	r := newReplica(t)
	r.apply(town(1)...)
	key := object.Key{Kind: object.HTTPRoute, Namespace: "shop", Name: "r0"}
	one, two := "shop/r0/0/0: prefix /v1 -> shop/s0/80", "shop/r0/0/0: prefix /v2 -> shop/s0/80"
	expect := func(when, want string, generation, observed int64) {
		t.Helper()
		if got := r.routeOf(t); got != want {
			t.Errorf("%s: serves %q, want %q", when, got, want)
		}
		s := r.statuses[key]
		if s.Generation != generation {
			t.Errorf("%s: status of generation %d, want %d", when, s.Generation, generation)
		}
		for _, c := range s.Value.(*gatewayv1.HTTPRouteStatus).Parents[0].Conditions {
			if c.ObservedGeneration != observed {
				t.Errorf("%s: %s observed generation %d, want %d", when, c.Type, c.ObservedGeneration, observed)
			}
		}
	}
	r.apply(change(townRoute(0, 2), object.HTTPRoute))
	expect("before", two, 2, 2)
	r.take(r.graph.Hold(map[object.Key]object.Object{key: townRoute(0, 1)}))
	expect("held to the older", one, 2, 1)
	r.take(r.graph.Hold(map[object.Key]object.Object{key: nil}))
	expect("held as absent", "", 2, 2)
	if len(r.statuses[key].Live) > 0 {
		t.Error("held as absent: something must be live")
	}
	r.apply(change(townRoute(0, 2), object.HTTPRoute))
	expect("after a change", two, 2, 2)
	r.apply(object.Change{Key: key})
	if d := r.graph.Hold(map[object.Key]object.Object{key: townRoute(0, 1)}); len(d.Worlds) > 0 || len(d.Statuses) > 0 {
		t.Errorf("holding what does not exist handed out %v", d)
	}
}

// TestAKeyLeavesTheWorldWithItsPermission: a private key is in a world only while a
// listener there may use it.
func TestAKeyLeavesTheWorldWithItsPermission(t *testing.T) {
	r := newReplica(t)
	var grant object.Change
	for _, c := range readManifests(t, "testdata/certificates.in.yaml") {
		if c.Key.Kind == object.ReferenceGrant {
			grant = c
		}
		r.apply(c)
	}
	secret := resource.Name{TypeURL: envoy.SecretType, Name: "vault/cert"}
	holds := func() bool { return r.worlds[scope.SharedPool()][secret] != nil }
	if !holds() {
		t.Fatal("the certificate is not there though it is granted")
	}
	if d := r.apply(object.Change{Key: grant.Key}); holds() || !slices.Contains(d.Worlds[scope.SharedPool()].Removed, secret) {
		t.Error("the certificate is there though its grant is gone")
	}
	r.apply(grant)
	if !holds() {
		t.Error("the certificate did not come back with its grant")
	}
	r.apply(object.Change{Key: object.Key{Kind: object.Gateway, Namespace: "infra", Name: "web"}})
	for n := range r.worlds[scope.SharedPool()] {
		if n.TypeURL == envoy.SecretType {
			t.Errorf("%s is there though no Gateway is", n)
		}
	}
}
