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

// listener is one of a Gateway's, its own or a ListenerSet's.
type listener struct {
	gatewayv1.Listener
	kind, namespace, object string // where it is written
	created                 int64
}

func (l listener) host() string { return string(value(l.Hostname, "")) }

// is reports whether two are one.
func (l listener) is(o listener) bool {
	return l.kind == o.kind && l.namespace == o.namespace && l.object == o.object && l.Name == o.Name
}

// listeners are those that are served on a port.
//
// Choice: a port is one Gateway's, that which has it by the oldest object: "Implementations
// MAY merge separate Gateways onto a single set of Addresses if all Listeners across all
// Gateways are compatible", and those of two are not where they share a port. A ListenerSet
// adds nothing to its Gateway before both are there.
func (w *World) listeners(port int32) []listener {
	var first []listener
	var since int64
	for _, g := range slices.SortedFunc(slices.Values(w.gateways), func(a, b *gatewayv1.Gateway) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	}) {
		served := w.merged(g, port)
		if !w.ours(g) || len(served) == 0 {
			continue
		}
		if age := max(slices.Min(ages(served)), g.CreationTimestamp.Unix()); first == nil || age < since {
			first, since = served, age
		}
	}
	return slices.DeleteFunc(first, func(l listener) bool { return !w.resolved(l) })
}

func ages(list []listener) (out []int64) {
	for _, l := range list {
		out = append(out, l.created)
	}
	return out
}

// merged are the listeners of a port that have no conflict: "Implementations MUST treat the
// parent Gateway as having the merged list of all listeners from itself and attached
// ListenerSets using the following precedence: 1. "parent" Gateway 2. ListenerSet ordered by
// creation time (oldest first) 3. ListenerSet ordered alphabetically by "{namespace}/{name}"."
// And, of GEP-1713: "the first Listener in the precedence list MUST be accepted".
func (w *World) merged(g *gatewayv1.Gateway, port int32) (served []listener) {
	var own []listener
	for _, l := range g.Spec.Listeners {
		own = append(own, listener{Listener: l, kind: "Gateway", namespace: g.Namespace, object: g.Name, created: g.CreationTimestamp.Unix()})
	}
	served = distinct(nil, own, port)
	sets := slices.SortedFunc(slices.Values(w.sets), func(a, b *gatewayv1.ListenerSet) int {
		x, y := a.CreationTimestamp, b.CreationTimestamp
		return cmp.Or(x.Compare(y.Time), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	for _, s := range sets {
		if !w.belongs(s, g) {
			continue
		}
		var own []listener
		for _, l := range s.Spec.Listeners {
			own = append(own, listener{Listener: gatewayv1.Listener(l), kind: "ListenerSet", namespace: s.Namespace, object: s.Name, created: s.CreationTimestamp.Unix()})
		}
		served = distinct(served, own, port)
	}
	return served
}

// belongs reports whether a ListenerSet is attached to a Gateway: "The ListenerSet is
// selected by the Gateway's AllowedListeners field. The ListenerSet has a valid ParentRef
// selecting the Gateway.".
func (w *World) belongs(s *gatewayv1.ListenerSet, g *gatewayv1.Gateway) bool {
	p := s.Spec.ParentRef
	if value(p.Group, gatewayv1.GroupName) != gatewayv1.GroupName || value(p.Kind, "Gateway") != "Gateway" ||
		string(value(p.Namespace, gatewayv1.Namespace(s.Namespace))) != g.Namespace || string(p.Name) != g.Name {
		return false
	}
	// "The default value is to allow no ListenerSets."
	namespaces := value(value(g.Spec.AllowedListeners, gatewayv1.AllowedListeners{}).Namespaces, gatewayv1.ListenerNamespaces{})
	return w.selects(value(namespaces.From, gatewayv1.NamespacesFromNone), namespaces.Selector, g.Namespace, s.Namespace)
}

// distinct adds, to the listeners that are before them, those of one object that have no conflict.
func distinct(before, own []listener, port int32) []listener {
	all := slices.DeleteFunc(slices.Clone(own), func(l listener) bool {
		// "If an implementation does not support TCP Protocol Listeners, then the previous
		// rule does not apply, and the TCP Listeners SHOULD NOT be accepted."
		return l.Port != port || l.Protocol != gatewayv1.HTTPProtocolType && l.Protocol != gatewayv1.HTTPSProtocolType
	})
	// Choice: HTTP and HTTPS do not share a port ("ProtocolConflict").
	conflict := func(a, b listener) bool {
		return !a.is(b) && (a.Protocol != b.Protocol || a.host() == b.host())
	}
	taken := func(by []listener) func(listener) bool {
		return func(l listener) bool {
			return slices.ContainsFunc(by, func(o listener) bool { return conflict(l, o) })
		}
	}
	// Choice: what loses to an object before conflicts with nothing of its own.
	all = slices.DeleteFunc(all, taken(before))
	// "The implementation MUST NOT pick one conflicting Listener as the winner. ALL
	// indistinct Listeners must not be accepted for processing."
	own = slices.DeleteFunc(slices.Clone(all), taken(all))
	return append(slices.Clone(before), own...)
}

func (w *World) ours(g *gatewayv1.Gateway) bool {
	for _, c := range w.classes {
		if c.Name == string(g.Spec.GatewayClassName) {
			return c.Spec.ControllerName == w.controller
		}
	}
	return false
}

// resolved reports whether a listener has a certificate that it refers to: "A
// ListenerSet can reference secrets/backends in its own namespace without a
// ReferenceGrant", and "ReferenceGrants applied to a Gateway are not inherited by child
// ListenerSets". What is in it is not looked at.
func (w *World) resolved(l listener) bool {
	if l.Protocol != gatewayv1.HTTPSProtocolType {
		return true
	}
	for _, ref := range value(l.TLS, gatewayv1.ListenerTLSConfig{}).CertificateRefs {
		namespace := string(value(ref.Namespace, gatewayv1.Namespace(l.namespace)))
		found := false
		for _, s := range w.secrets {
			found = found || s.Namespace == namespace && s.Name == string(ref.Name) && s.Type == corev1.SecretTypeTLS
		}
		if found && value(ref.Group, "") == "" && value(ref.Kind, "Secret") == "Secret" &&
			w.granted(l.kind, l.namespace, "Secret", namespace, string(ref.Name)) {
			return true
		}
	}
	return false
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
		if value(p.Group, gatewayv1.GroupName) != gatewayv1.GroupName || string(value(p.Kind, "Gateway")) != l.kind ||
			string(value(p.Namespace, gatewayv1.Namespace(route.Namespace))) != l.namespace || string(p.Name) != l.object {
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
	return w.selects(value(namespaces.From, gatewayv1.NamespacesFromSame), namespaces.Selector, l.namespace, route.Namespace)
}

// selects reports whether what is in a namespace may attach to what is in namespace own.
func (w *World) selects(from gatewayv1.FromNamespaces, selector *metav1.LabelSelector, own, namespace string) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == own
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return false
		}
		for _, ns := range w.namespaces {
			if ns.Name == namespace {
				return s.Matches(labels.Set(ns.Labels))
			}
		}
	default:
	}
	return false
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
