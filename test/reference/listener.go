package reference

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// listener is one of a Gateway's.
type listener struct {
	gatewayv1.Listener
	gateway *gatewayv1.Gateway
}

func (l listener) host() string { return string(value(l.Hostname, "")) }

// listeners are those that are served on a port.
//
// Choice: a port is one Gateway's, that of the oldest: "Implementations MAY merge separate
// Gateways onto a single set of Addresses if all Listeners across all Gateways are
// compatible", and those of two are not where they share a port.
func (w *World) listeners(port int32) []listener {
	for _, g := range slices.SortedFunc(slices.Values(w.gateways), older) {
		if served := distinct(g, port); w.ours(g) && len(served) > 0 {
			return slices.DeleteFunc(served, func(l listener) bool { return !w.resolved(l) })
		}
	}
	return nil
}

func older(a, b *gatewayv1.Gateway) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// distinct are the listeners of a port that have no conflict.
func distinct(g *gatewayv1.Gateway, port int32) (served []listener) {
	var all []listener
	for _, l := range g.Spec.Listeners {
		if l.Port == port {
			all = append(all, listener{Listener: l, gateway: g})
		}
	}
	for i, l := range all {
		if l.Protocol != gatewayv1.HTTPProtocolType && l.Protocol != gatewayv1.HTTPSProtocolType {
			continue
		}
		conflict := false
		for j, other := range all {
			// "If an implementation does not support TCP Protocol Listeners, then the previous
			// rule does not apply, and the TCP Listeners SHOULD NOT be accepted."
			if i == j || other.Protocol != gatewayv1.HTTPProtocolType && other.Protocol != gatewayv1.HTTPSProtocolType {
				continue
			}
			// "The implementation MUST NOT pick one conflicting Listener as the winner. ALL
			// indistinct Listeners must not be accepted for processing."
			// Choice: HTTP and HTTPS do not share a port ("ProtocolConflict").
			if other.Protocol != l.Protocol || other.host() == l.host() {
				conflict = true
			}
		}
		if !conflict {
			served = append(served, l)
		}
	}
	return served
}

func (w *World) ours(g *gatewayv1.Gateway) bool {
	for _, c := range w.classes {
		if c.Name == string(g.Spec.GatewayClassName) {
			return c.Spec.ControllerName == w.controller
		}
	}
	return false
}

// resolved reports whether a listener has the certificates that it refers to. What is in
// them is not looked at.
func (w *World) resolved(l listener) bool {
	if l.Protocol != gatewayv1.HTTPSProtocolType {
		return true
	}
	if l.TLS == nil || len(l.TLS.CertificateRefs) == 0 {
		return false
	}
	for _, ref := range l.TLS.CertificateRefs {
		namespace := string(value(ref.Namespace, gatewayv1.Namespace(l.gateway.Namespace)))
		found := false
		for _, s := range w.secrets {
			found = found || s.Namespace == namespace && s.Name == string(ref.Name) && s.Type == corev1.SecretTypeTLS
		}
		if value(ref.Group, "") != "" || value(ref.Kind, "Secret") != "Secret" || !found ||
			!w.granted("Gateway", l.gateway.Namespace, "Secret", namespace, string(ref.Name)) {
			return false
		}
	}
	return true
}

// choose finds the listener of a host, or of a TLS server name: "inbound request hostnames
// MUST match from the most specific to least specific Hostname values to choose the correct
// Listener and its associated set of Routes. Exact matches MUST be processed before wildcard
// matches, and wildcard matches MUST be processed before fallback (empty Hostname value)
// matches." "The precise definition here is that the higher the number of dots in the
// hostname to the right of the wildcard character, the higher the precedence".
func choose(all []listener, host string) (best listener, found bool) {
	rank := func(name string) int {
		switch {
		case name == "":
			return 0
		case strings.HasPrefix(name, "*"):
			return strings.Count(name, ".")
		default:
			return 1000
		}
	}
	for _, l := range all {
		if covers(l.host(), host) && (!found || rank(l.host()) > rank(best.host())) {
			best, found = l, true
		}
	}
	return best, found
}

// attached reports whether some parentRef of the route attaches it to the listener. Host
// names are not looked at here: whether they match the request decides in the end.
func (w *World) attached(route *gatewayv1.HTTPRoute, l listener) bool {
	if !w.allows(l, route) {
		return false
	}
	for _, p := range route.Spec.ParentRefs {
		if value(p.Group, gatewayv1.GroupName) != gatewayv1.GroupName || value(p.Kind, "Gateway") != "Gateway" ||
			string(value(p.Namespace, gatewayv1.Namespace(route.Namespace))) != l.gateway.Namespace || string(p.Name) != l.gateway.Name {
			continue
		}
		// "When both Port and SectionName are specified, the name and port of the selected
		// listener must match both specified values."
		if section := value(p.SectionName, ""); section != "" && section != l.Name {
			continue
		}
		if p.Port != nil && *p.Port != l.Port {
			continue
		}
		return true
	}
	return false
}

// allows is the listener's AllowedRoutes.
func (w *World) allows(l listener, route *gatewayv1.HTTPRoute) bool {
	allowed := value(l.AllowedRoutes, gatewayv1.AllowedRoutes{})
	// "When unspecified or empty, the kinds of Routes selected are determined using the
	// Listener protocol."
	kind := len(allowed.Kinds) == 0
	for _, k := range allowed.Kinds {
		kind = kind || value(k.Group, gatewayv1.GroupName) == gatewayv1.GroupName && k.Kind == "HTTPRoute"
	}
	if !kind {
		return false
	}
	namespaces := value(allowed.Namespaces, gatewayv1.RouteNamespaces{})
	switch value(namespaces.From, gatewayv1.NamespacesFromSame) {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return route.Namespace == l.gateway.Namespace
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(namespaces.Selector)
		if err != nil {
			return false
		}
		for _, ns := range w.namespaces {
			if ns.Name == route.Namespace {
				return selector.Matches(labels.Set(ns.Labels))
			}
		}
	default:
	}
	return false
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
