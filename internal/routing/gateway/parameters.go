package gateway

import (
	"k8s.io/utils/ptr"

	configv1 "aether.io/aether/api/config/v1"
)

// Parameters is the part of GatewayParameters that routing acts on, before defaults.
type Parameters struct {
	mode        *configv1.GatewayMode
	routeScopes *configv1.RouteScopes
	trustedHops *int32
}

// ReadParameters takes that part out of an object.
func ReadParameters(o *configv1.GatewayParameters) Parameters {
	p := Parameters{mode: o.Spec.Mode, routeScopes: o.Spec.RouteScopes}
	if o.Spec.Clients != nil {
		p.trustedHops = o.Spec.Clients.TrustedHops
	}
	return p
}

// Or fills what p leaves unset from those of the class.
func (p Parameters) Or(class Parameters) Parameters {
	return Parameters{
		mode:        or(p.mode, class.mode),
		routeScopes: or(p.routeScopes, class.routeScopes),
		trustedHops: or(p.trustedHops, class.trustedHops),
	}
}

func or[T any](p, q *T) *T {
	if p != nil {
		return p
	}
	return q
}

func (p Parameters) dedicated() bool {
	return ptr.Deref(p.mode, configv1.GatewayModeShared) == configv1.GatewayModeDedicated
}

func (p Parameters) set(g *Gateway) {
	g.RouteScopes = ptr.Deref(p.routeScopes, configv1.RouteScopesAuto)
	g.TrustedHops = uint32(max(ptr.Deref(p.trustedHops, 0), 0))
}
