package gateway

import (
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
)

// Section is one listener of a Gateway, or of a ListenerSet that is attached to it, as its
// spec says it; "listener" alone is Envoy's here. Certificates are not in it: routes
// depend on sections and not on those.
type Section struct {
	Name     string
	Set      key.Name  // the ListenerSet that it is of; zero: the Gateway itself
	Created  int64     // of that object, Unix seconds
	Table    key.Table // its Gateway and port too
	Secure   bool
	Host     string            // lower case; hostname.Any if it names none
	Rejected condition.Problem // why it is not accepted
	Conflict bool              // Rejected is because of another section
	Overlap  []string          // accepted HTTPS sections of the port whose hostnames overlap
	Crowded  bool              // its port has more HTTPS sections than each can know the hosts of
	Kinds    []gatewayv1.RouteGroupKind
	BadKinds condition.Problem // kinds asked for that may not attach
	From     gatewayv1.FromNamespaces
	Selector *metav1.LabelSelector
}

// ID names the section among all of its Gateway, those of ListenerSets too: no two have
// the same, whatever their names.
func (s Section) ID() string {
	if s.Set == (key.Name{}) {
		return s.Name
	}
	return s.Set.String() + "/" + s.Name
}

// Parent is what the section is of.
func (s Section) Parent() key.Parent {
	if s.Set == (key.Name{}) {
		return key.Parent{Kind: object.Gateway, Name: s.Table.Gateway}
	}
	return key.Parent{Kind: object.ListenerSet, Name: s.Set}
}

// Accepted reports whether the section can be served as far as the Gateway decides it.
func (s Section) Accepted() bool { return s.Rejected.IsZero() }

// sections reads the listeners of a Gateway and of what is attached to it, in the order of
// precedence, and finds their conflicts.
func sections(gw *gatewayv1.Gateway, sets []*gatewayv1.ListenerSet, site Site) []Section {
	n := key.Name{Namespace: gw.Namespace, Name: gw.Name}
	list := make([]Section, 0, len(gw.Spec.Listeners))
	for i := range gw.Spec.Listeners {
		s := readSection(n, key.Name{}, &gw.Spec.Listeners[i], site)
		s.Created = gw.CreationTimestamp.Unix()
		list = append(list, s)
	}
	for _, set := range sets {
		for _, l := range set.Spec.Listeners {
			as := gatewayv1.Listener(l)
			s := readSection(n, key.Name{Namespace: set.Namespace, Name: set.Name}, &as, site)
			s.Created = set.CreationTimestamp.Unix()
			list = append(list, s)
		}
	}
	markConflicts(list)
	return list
}

func readSection(gw, set key.Name, l *gatewayv1.Listener, site Site) Section {
	port := key.Port{Gateway: gw, Port: uint32(l.Port)}
	s := Section{
		Name:   string(l.Name),
		Set:    set,
		Secure: l.Protocol == gatewayv1.HTTPSProtocolType,
		Host:   strings.ToLower(string(ptr.Deref(l.Hostname, ""))),
		From:   gatewayv1.NamespacesFromSame,
	}
	s.Table = key.NewTable(port, set, s.Name, s.Secure)
	if s.Host == "" {
		s.Host = hostname.Any
	}
	s.Rejected = s.reject(l, site)
	if a := l.AllowedRoutes; a != nil && a.Namespaces != nil && a.Namespaces.From != nil {
		s.From, s.Selector = *a.Namespaces.From, a.Namespaces.Selector
	}
	s.Kinds, s.BadKinds = supportedKinds(l)
	return s
}

// reject says what of a listener cannot be served. What would weaken security if it were
// ignored is in here.
func (s Section) reject(l *gatewayv1.Listener, site Site) condition.Problem {
	switch {
	case l.Protocol != gatewayv1.HTTPProtocolType && !s.Secure:
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedProtocol, "protocol %s is not supported", l.Protocol)
	case !site.Mapped && (site.plain(s.Table.Port.Port) == 0 || site.plain(s.Table.Port.Port) > math.MaxUint16):
		return condition.Problemf(gatewayv1.ListenerReasonPortUnavailable, "port %d would be bound as %d, which is no port", l.Port, site.plain(s.Table.Port.Port))
	case !hostname.Valid(s.Host):
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedValue, "%q is no hostname", s.Host)
	case badSelector(l) != nil:
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedValue, "allowedRoutes.namespaces.selector: %v", badSelector(l))
	case !s.Secure:
		return condition.Problem{}
	case l.TLS != nil && ptr.Deref(l.TLS.Mode, gatewayv1.TLSModeTerminate) != gatewayv1.TLSModeTerminate:
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedValue, "TLS mode %s is not supported for HTTPS", *l.TLS.Mode)
	case l.TLS != nil && len(l.TLS.Options) > 0:
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedValue, "TLS options are not supported")
	}
	return condition.Problem{}
}

// badSelector is what is wrong with the selector of namespaces, which the definitions do not
// look at.
func badSelector(l *gatewayv1.Listener) error {
	if l.AllowedRoutes == nil || l.AllowedRoutes.Namespaces == nil || ptr.Deref(l.AllowedRoutes.Namespaces.From, "") != gatewayv1.NamespacesFromSelector {
		return nil
	}
	_, err := metav1.LabelSelectorAsSelector(l.AllowedRoutes.Namespaces.Selector)
	return err
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
			bad = bad.And(condition.Problemf(gatewayv1.ListenerReasonInvalidRouteKinds, "routes of kind %s of group %q are not supported on a listener of protocol %s", k.Kind, ptr.Deref(k.Group, *route.Group), l.Protocol))
		case len(kinds) == 0:
			kinds = append(kinds, route)
		}
	}
	return kinds, bad
}
