// Package reference says what the Gateway API makes of a request: given the objects and a
// request, which backends may answer it, or with which status it is answered. It is
// written from the comments of sigs.k8s.io/gateway-api/apis/v1 (v1.6.3), which it quotes,
// and shares nothing with what it judges: no index, no cache, every request looks at every
// object. Objects come in as an API server keeps them, with defaults.
//
// Where the text leaves a choice to implementations, ours is marked "Choice:". Filters are
// not modeled but for the redirect, and of a response only who answers.
package reference

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

// World is all objects that there are.
type World struct {
	controller gatewayv1.GatewayController
	classes    []*gatewayv1.GatewayClass
	gateways   []*gatewayv1.Gateway
	sets       []*gatewayv1.ListenerSet
	routes     []*gatewayv1.HTTPRoute
	grants     []*gatewayv1.ReferenceGrant
	namespaces []*corev1.Namespace
	services   []*corev1.Service
	slices     []*discoveryv1.EndpointSlice
	secrets    []*corev1.Secret
}

// New takes the objects in; kinds that do not decide about requests are ignored.
func New(controller string, objects ...object.Object) *World {
	w := &World{controller: gatewayv1.GatewayController(controller)}
	for _, o := range objects {
		switch o := o.(type) {
		case *gatewayv1.GatewayClass:
			w.classes = append(w.classes, o)
		case *gatewayv1.Gateway:
			w.gateways = append(w.gateways, o)
		case *gatewayv1.ListenerSet:
			w.sets = append(w.sets, o)
		case *gatewayv1.HTTPRoute:
			w.routes = append(w.routes, o)
		case *gatewayv1.ReferenceGrant:
			w.grants = append(w.grants, o)
		case *corev1.Namespace:
			w.namespaces = append(w.namespaces, o)
		case *corev1.Service:
			w.services = append(w.services, o)
		case *discoveryv1.EndpointSlice:
			w.slices = append(w.slices, o)
		case *corev1.Secret:
			w.secrets = append(w.secrets, o)
		}
	}
	return w
}

// granted reports whether an object of kind in namespace from may refer to the core
// object of kind to: "All cross-namespace references in Gateway API (with the exception of
// cross-namespace Gateway-route attachment) require a ReferenceGrant".
func (w *World) granted(kind, from, to, namespace, name string) bool {
	if from == namespace {
		return true
	}
	for _, g := range w.grants {
		if g.Namespace != namespace {
			continue
		}
		trusted, allowed := false, false
		for _, f := range g.Spec.From {
			trusted = trusted || f.Group == gatewayv1.GroupName && string(f.Kind) == kind && string(f.Namespace) == from
		}
		for _, t := range g.Spec.To {
			allowed = allowed || t.Group == "" && string(t.Kind) == to && (t.Name == nil || *t.Name == "" || string(*t.Name) == name)
		}
		if trusted && allowed {
			return true
		}
	}
	return false
}

// backend says what answers where a reference leads: "namespace/name:port", or the status
// that takes its place.
func (w *World) backend(route *gatewayv1.HTTPRoute, ref gatewayv1.BackendObjectReference) string {
	namespace := route.Namespace
	if ref.Namespace != nil {
		namespace = string(*ref.Namespace)
	}
	// "It refers to an unknown or unsupported kind of resource."
	if value(ref.Group, "") != "" || value(ref.Kind, "Service") != "Service" || ref.Port == nil {
		return "500"
	}
	// "It refers a resource in another namespace when the reference has not been
	// explicitly allowed by a ReferenceGrant."
	if !w.granted("HTTPRoute", route.Namespace, "Service", namespace, string(ref.Name)) {
		return "500"
	}
	for _, s := range w.services {
		if s.Namespace != namespace || s.Name != string(ref.Name) {
			continue
		}
		for _, p := range s.Spec.Ports {
			if p.Port == *ref.Port && cmp.Or(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
				// "When a HTTPBackendRef refers to a Service that has no ready endpoints,
				// implementations SHOULD return a 503 for requests to that backend instead."
				if !w.ready(s, p) {
					return "503"
				}
				return namespace + "/" + s.Name + ":" + itoa(p.Port)
			}
		}
	}
	// "It refers to a resource that does not exist."
	return "500"
}

func (w *World) ready(s *corev1.Service, p corev1.ServicePort) bool {
	for _, slice := range w.slices {
		if slice.Namespace != s.Namespace || slice.Labels[discoveryv1.LabelServiceName] != s.Name {
			continue
		}
		for _, port := range slice.Ports {
			if value(port.Name, "") != p.Name || port.Port == nil {
				continue
			}
			for _, e := range slice.Endpoints {
				// "A nil value should be interpreted as "true"."
				if value(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
					return true
				}
			}
		}
	}
	return false
}

// value is what p points to, or what is inferred if it points to nothing.
func value[T any](p *T, inferred T) T {
	if p == nil {
		return inferred
	}
	return *p
}

// covers reports whether a host name of a Listener or a Route matches a host:
// "Hostnames that are prefixed with a wildcard label (`*.`) are interpreted as a suffix
// match. That means that a match for `*.example.com` would match both `test.example.com`,
// and `foo.test.example.com`, but not `example.com`." No name at all matches every host.
func covers(name, host string) bool {
	if suffix, wild := strings.CutPrefix(name, "*"); wild {
		return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
	}
	return name == "" || name == host
}
