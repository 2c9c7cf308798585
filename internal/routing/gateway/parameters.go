package gateway

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

// Parameters is the part of GatewayParameters that routing acts on, before defaults.
type Parameters struct {
	spec   configv1.GatewayParametersSpec
	drains bool // it says how long connections have to end
}

// ReadParameters takes that part out of an object.
func ReadParameters(o *configv1.GatewayParameters) Parameters {
	return Parameters{
		spec:   configv1.GatewayParametersSpec{Mode: o.Spec.Mode, RouteScopes: o.Spec.RouteScopes, Clients: o.Spec.Clients, Service: o.Spec.Service},
		drains: o.Spec.DrainSeconds != nil,
	}
}

// Or fills what p leaves unset from those of the class, and then by defaults.
func (p Parameters) Or(class Parameters) Parameters {
	return Parameters{*configv1.EffectiveGatewayParameters(&class.spec, &p.spec), p.drains || class.drains}
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

// front is what is wanted in front of a shared Gateway. What its own spec says of
// annotations wins over its parameters.
func (p Parameters) front(gw *gatewayv1.Gateway, g Gateway) front.Front {
	e := configv1.EffectiveGatewayParameters(nil, &p.spec).Service
	out := front.Front{
		Gateway: key.Name{Namespace: gw.Namespace, Name: gw.Name}, Class: string(gw.Spec.GatewayClassName),
		Type: corev1.ServiceType(*e.Type), ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicy(*e.ExternalTrafficPolicy),
		LoadBalancerClass: *e.LoadBalancerClass, Labels: map[string]string{}, Annotations: map[string]string{},
	}
	maps.Copy(out.Annotations, e.Annotations)
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
	return out
}
