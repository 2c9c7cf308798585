package gateway

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/podtemplate"
)

// Parameters is GatewayParameters before defaults.
type Parameters struct {
	spec   configv1.GatewayParametersSpec
	drains bool // it says how long connections have to end
}

// ReadParameters takes them out of an object.
func ReadParameters(o *configv1.GatewayParameters) Parameters {
	return Parameters{spec: o.Spec, drains: o.Spec.DrainSeconds != nil}
}

// Or fills what p leaves unset from those of the class, and then by defaults.
func (p Parameters) Or(class Parameters) Parameters {
	return Parameters{*configv1.EffectiveGatewayParameters(&class.spec, &p.spec), p.drains || class.drains}
}

// record is the part by which a Gateway is served: all that need be known of them while
// what is in front of it is left as it is.
func (p Parameters) record() string {
	text, err := json.Marshal(configv1.GatewayParametersSpec{Mode: p.spec.Mode, RouteScopes: p.spec.RouteScopes, Clients: p.spec.Clients})
	if err != nil { // it has nothing in it that cannot be encoded
		return ""
	}
	return string(text)
}

// recall is the parameters by which the Gateway was served last, if that is on record: that
// of the Service that counts.
func (s Site) recall() (p Parameters, known bool) {
	list := []front.State{s.Shared, s.Own}
	if s.Shared.Superseded {
		slices.Reverse(list)
	}
	for _, state := range list {
		if state.Parameters == "" {
			continue
		}
		if err := json.Unmarshal([]byte(state.Parameters), &p.spec); err == nil {
			return p, true
		}
		p = Parameters{}
	}
	return p, false
}

// Known reports whether it is on record by what parameters the Gateway was served last: then it
// was ours.
func (s Site) Known() bool {
	_, known := s.recall()
	return known
}

// Clients is what a Gateway expects of its clients, and how far it believes them.
type Clients struct {
	TrustedHops uint32
	Proxied     envoy.Proxied
	Connections uint32 // that a listener holds at a time; 0: no limit
	MinTLS13    bool
}

func (p Parameters) set(g *Gateway) (dedicated bool) {
	e := configv1.EffectiveGatewayParameters(nil, &p.spec)
	g.RouteScopes = *e.RouteScopes
	g.Clients = Clients{
		TrustedHops: uint32(max(*e.Clients.TrustedHops, 0)),
		Connections: uint32(max(*e.Clients.ConnectionLimit, 0)),
		MinTLS13:    *e.Clients.TLS.MinVersion == configv1.TLS13,
	}
	switch *e.Clients.ProxyProtocol.Mode {
	case configv1.ProxyProtocolAccept:
		g.Clients.Proxied.Mode = envoy.ProxyAccept
	case configv1.ProxyProtocolRequire:
		g.Clients.Proxied.Mode = envoy.ProxyRequire
	case configv1.ProxyProtocolOff:
		return *e.Mode == configv1.GatewayModeDedicated
	}
	for _, cidr := range e.Clients.ProxyProtocol.TrustedCIDRs {
		g.Clients.Proxied.Trusted = append(g.Clients.Proxied.Trusted, string(cidr))
	}
	return *e.Mode == configv1.GatewayModeDedicated
}

// front is what is wanted in front of a Gateway, whatever is there.
func (p Parameters) front(gw *gatewayv1.Gateway, g Gateway) front.Front {
	e := configv1.EffectiveGatewayParameters(nil, &p.spec)
	out := front.Front{
		Gateway: key.Name{Namespace: gw.Namespace, Name: gw.Name}, Class: string(gw.Spec.GatewayClassName), UID: gw.UID,
		Dedicated: *e.Mode == configv1.GatewayModeDedicated, Parameters: p.record(),
		Type: corev1.ServiceType(*e.Service.Type), ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicy(*e.Service.ExternalTrafficPolicy),
		LoadBalancerClass: *e.Service.LoadBalancerClass, Labels: map[string]string{}, Annotations: map[string]string{},
		ServiceAnnotations: maps.Clone(e.Service.Annotations),
	}
	if in := gw.Spec.Infrastructure; in != nil {
		for k, v := range in.Labels {
			out.Labels[string(k)] = string(v)
		}
		for k, v := range in.Annotations {
			out.Annotations[string(k)] = string(v)
		}
	}
	for _, a := range gw.Spec.Addresses {
		if a.Value != "" && out.Address == "" {
			out.Address = a.Value
		}
	}
	for _, s := range g.Sections {
		if s.Accepted() {
			out.Ports = append(out.Ports, s.Table.Port.Port)
		}
	}
	slices.Sort(out.Ports)
	out.Ports = slices.Compact(out.Ports)
	if out.Dedicated {
		out.Proxies = proxies(e)
	}
	return out
}

// proxies is how a Gateway's own are run.
func proxies(e *configv1.GatewayParametersSpec) front.Proxies {
	pod, dropped := podtemplate.Allow(*e.Dedicated.PodTemplate)
	return front.Proxies{
		Replicas: e.Dedicated.Replicas, Autoscaling: e.Dedicated.Autoscaling, Pod: pod,
		DrainSeconds: max(*e.DrainSeconds, 0), Dropped: dropped,
	}
}
