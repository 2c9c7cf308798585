package gateway

import (
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
)

// Section is one listener of a Gateway as its spec says it; "listener" alone is Envoy's
// here. Certificates are not in it: routes depend on sections and not on those.
type Section struct {
	Name     string
	Table    key.Table // its Gateway and port too
	Bound    uint32    // the port that is bound
	Secure   bool
	Host     string            // lower case; hostname.Any if it names none
	Rejected condition.Problem // why it is not accepted
	Conflict bool              // Rejected is because of another section
	Overlap  []string          // accepted HTTPS sections of the port whose hostnames overlap
	Kinds    []gatewayv1.RouteGroupKind
	BadKinds condition.Problem // kinds asked for that may not attach
	From     gatewayv1.FromNamespaces
	Selector *metav1.LabelSelector
}

// Accepted reports whether the section can be served as far as the Gateway decides it.
func (s Section) Accepted() bool { return s.Rejected.IsZero() }

// sections reads a Gateway's listeners and finds their conflicts.
func sections(gw *gatewayv1.Gateway, portOffset uint32) []Section {
	list := make([]Section, 0, len(gw.Spec.Listeners))
	for i := range gw.Spec.Listeners {
		list = append(list, readSection(gw, &gw.Spec.Listeners[i], portOffset))
	}
	markConflicts(list)
	return list
}

func readSection(gw *gatewayv1.Gateway, l *gatewayv1.Listener, portOffset uint32) Section {
	port := key.Port{Gateway: key.Name{Namespace: gw.Namespace, Name: gw.Name}, Port: uint32(l.Port)}
	s := Section{
		Name:   string(l.Name),
		Bound:  port.Port + portOffset,
		Secure: l.Protocol == gatewayv1.HTTPSProtocolType,
		Host:   strings.ToLower(string(ptr.Deref(l.Hostname, ""))),
		From:   gatewayv1.NamespacesFromSame,
	}
	s.Table = key.NewTable(port, s.Name, s.Secure)
	if s.Host == "" {
		s.Host = hostname.Any
	}
	s.Rejected = s.reject(l)
	if a := l.AllowedRoutes; a != nil && a.Namespaces != nil && a.Namespaces.From != nil {
		s.From, s.Selector = *a.Namespaces.From, a.Namespaces.Selector
	}
	s.Kinds, s.BadKinds = supportedKinds(l)
	return s
}

// reject says what of a listener cannot be served. What would weaken security if it were
// ignored is in here.
func (s Section) reject(l *gatewayv1.Listener) condition.Problem {
	switch {
	case l.Protocol != gatewayv1.HTTPProtocolType && !s.Secure:
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedProtocol, "protocol %s is not supported", l.Protocol)
	case s.Bound == 0 || s.Bound > math.MaxUint16:
		return condition.Problemf(gatewayv1.ListenerReasonPortUnavailable, "port %d would be bound as %d, which is no port", l.Port, s.Bound)
	case !hostname.Valid(s.Host):
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedValue, "%q is no hostname", s.Host)
	case !s.Secure:
		return condition.Problem{}
	case l.TLS != nil && ptr.Deref(l.TLS.Mode, gatewayv1.TLSModeTerminate) != gatewayv1.TLSModeTerminate:
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedValue, "TLS mode %s is not supported for HTTPS", *l.TLS.Mode)
	case l.TLS != nil && len(l.TLS.Options) > 0:
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedValue, "TLS options are not supported")
	}
	return condition.Problem{}
}

// supportedKinds is the route kinds that may attach, and what of those asked for may not.
func supportedKinds(l *gatewayv1.Listener) ([]gatewayv1.RouteGroupKind, condition.Problem) {
	kinds := []gatewayv1.RouteGroupKind{} // never nil: the field is written even if empty
	if l.Protocol != gatewayv1.HTTPProtocolType && l.Protocol != gatewayv1.HTTPSProtocolType {
		return kinds, condition.Problem{}
	}
	route := gatewayv1.RouteGroupKind{Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: "HTTPRoute"}
	if l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 {
		return append(kinds, route), condition.Problem{}
	}
	var bad condition.Problem
	for _, k := range l.AllowedRoutes.Kinds {
		switch {
		case k.Kind != route.Kind || ptr.Deref(k.Group, *route.Group) != *route.Group:
			bad = condition.Problemf(gatewayv1.ListenerReasonInvalidRouteKinds, "routes of kind %s of group %q are not supported on a listener of protocol %s", k.Kind, ptr.Deref(k.Group, *route.Group), l.Protocol)
		case len(kinds) == 0:
			kinds = append(kinds, route)
		}
	}
	return kinds, bad
}

// markConflicts rejects every section that is not distinct from another one on its port:
// none of them wins. Sections that are already rejected conflict with nothing.
func markConflicts(list []Section) {
	rejected := make([]condition.Problem, len(list))
	for i, s := range list {
		var protocol, host []string
		for j, o := range list {
			if i == j || s.Bound != o.Bound || !s.Accepted() || !o.Accepted() {
				continue
			}
			switch _, meet := hostname.Intersect(s.Host, o.Host); {
			case s.Secure != o.Secure:
				protocol = append(protocol, o.Name)
			case s.Host == o.Host:
				host = append(host, o.Name)
			case s.Secure && meet:
				list[i].Overlap = append(list[i].Overlap, o.Name)
			}
		}
		switch {
		case len(protocol) > 0:
			rejected[i] = condition.Problemf(gatewayv1.ListenerReasonProtocolConflict, "the same port and another protocol as listener %s", strings.Join(protocol, ", "))
		case len(host) > 0:
			rejected[i] = condition.Problemf(gatewayv1.ListenerReasonHostnameConflict, "the same port, protocol and hostname as listener %s", strings.Join(host, ", "))
		}
	}
	for i, p := range rejected {
		if !p.IsZero() {
			list[i].Rejected, list[i].Conflict, list[i].Overlap = p, true, nil
		}
	}
}
