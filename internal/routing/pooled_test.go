package routing

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/scope"
)

// newPooled is a replica where one proxy serves every Gateway.
func newPooled(t *testing.T) *replica {
	t.Helper()
	config := testConfig()
	config.Pooled = true
	return newConfigured(t, config)
}

func (r *replica) listener() *resource.Resource {
	for n, res := range r.worlds[scope.SharedPool()] {
		if n.TypeURL == "type.googleapis.com/envoy.config.listener.v3.Listener" {
			return res
		}
	}
	return nil
}

// wantAccepted checks the condition of that Gateway.
func (r *replica) wantAccepted(n key.Name, status, reason, message string) {
	r.t.Helper()
	for _, c := range gatewayStatus(r.t, r, n.Object(object.Gateway)).Conditions {
		if c.Type == "Accepted" && (string(c.Status) != status || c.Reason != reason || !strings.Contains(c.Message, message)) {
			r.t.Errorf("Accepted is %+v, want %s %s %q", c, status, reason, message)
		}
	}
}

func TestWhereThereIsOneProxyItServesDedicatedGatewaysAndSaysSo(t *testing.T) {
	r := newPooled(t)
	r.apply(classOf("coxswain"), routeTo(web), gatewayOf(web, "coxswain", "p", 1),
		parametersOf("shop", "p", configv1.GatewayParametersSpec{Mode: ptr.To(configv1.GatewayModeDedicated)}))
	if r.listener() == nil || len(r.worlds[ownScope(t, web)]) > 0 {
		t.Errorf("it is not served by the shared proxies, or by its own: %v", r.worlds)
	}
	r.wantAccepted(web, "True", "Accepted", "mode Dedicated of its parameters has no effect")
}

func TestWithoutServicesAGatewayIsServedAsItWasWhenItsParametersGo(t *testing.T) {
	strict := configv1.GatewayParametersSpec{Clients: &configv1.ClientPolicy{
		TLS:           &configv1.ClientTLS{MinVersion: ptr.To(configv1.TLS13)},
		ProxyProtocol: &configv1.ProxyProtocol{Mode: ptr.To(configv1.ProxyProtocolRequire)},
	}}
	class, route, p, gw := classOf("coxswain"), routeTo(web), parametersOf("shop", "p", strict), gatewayOf(web, "coxswain", "p", 1)
	r := newPooled(t)
	f := r.apply(class, route, p, gw).Fronts[web]
	before := r.listener()
	if f == nil || f.Keep || before == nil {
		t.Fatalf("wanted %+v, listener %v", f, before)
	}
	kept, err := front.Keep(web, "coxswain", f.Parameters)
	if err != nil {
		t.Fatal(err)
	}
	asBefore := func(who string, r *replica) {
		t.Helper()
		if now := r.listener(); now == nil || now.Hash != before.Hash {
			t.Errorf("%s: the listener is %v, want %v", who, now, before)
		}
	}
	if r.apply(kept); len(r.worlds) > 1 {
		t.Errorf("what is on record made something: %v", r.worlds)
	}
	asBefore("on record", r)

	gone := object.Change{Key: p.Key}
	if f := r.apply(gone).Fronts[web]; f == nil || !f.Keep {
		t.Errorf("what is on record would be replaced: %+v", f)
	}
	asBefore("without its parameters", r)
	r.wantAccepted(web, "False", "InvalidParameters", "GatewayParameters shop/p does not exist; it is served as it was last")

	late := newPooled(t)
	late.apply(kept, class, route, gw)
	asBefore("of a process that starts then", late)

	fresh := newPooled(t)
	fresh.apply(class, route, gw)
	if fresh.listener() != nil {
		t.Error("a Gateway that was never served is served by defaults")
	}
	fresh.wantAccepted(web, "False", "InvalidParameters", "GatewayParameters shop/p does not exist")

	r.apply(object.Change{Key: class.Key})
	asBefore("without its class", r)
	other := gatewayOf(web, "another", "p", 1)
	if r.apply(other); r.listener() != nil {
		t.Error("with another class, which nobody has, it is served on")
	}
	r.apply(gw, class, p)
	asBefore("mended", r)
	r.wantAccepted(web, "True", "Accepted", "every listener is valid")
}
