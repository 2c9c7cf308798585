package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/backend"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

// computePort stands between a Service and what uses it, which only the port concerns.
func (t *Clusters) computePort(c *sheet.Cell, k key.Service) backend.Port {
	o, _ := entry.Get[*corev1.Service](t.entries, c, k.Service.Object(object.Service))
	return backend.ReadPort(k, o)
}

// computeBackend adds how the port is spoken to. How the policy says so in detail
// concerns the cluster, not routes.
func (t *Clusters) computeBackend(c *sheet.Cell, k key.Service) backend.Port {
	port := t.port.Get(c, k)
	by := t.policyOf(c, k.Service, port.Name)
	var invalid condition.Problem
	if by != (key.Name{}) {
		invalid = t.policy.Get(c, by).Invalid
	}
	return port.By(k, by, invalid)
}

// Resolve finds what a backendRef of a route in that namespace means. Whether
// that can be a backend is not looked at.
func (t *Clusters) Resolve(c *sheet.Cell, namespace string, ref *gatewayv1.BackendRef) (key.Service, condition.Problem) {
	n := key.In(namespace, ref.Namespace, ref.Name)
	group, kind := ptr.Deref(ref.Group, ""), ptr.Deref(ref.Kind, "Service")
	switch {
	case group != "" || kind != "Service":
		return key.Service{}, condition.Problemf(gatewayv1.RouteReasonInvalidKind, "backendRef %s: %s of group %q is not supported, want Service", n, kind, group)
	case !t.entries.Granted(c, object.HTTPRoute, namespace, object.Service, n):
		return key.Service{}, condition.Problemf(gatewayv1.RouteReasonRefNotPermitted, "backendRef %s: no ReferenceGrant in namespace %s allows it", n, n.Namespace)
	case ref.Port == nil:
		return key.Service{}, condition.Problemf(gatewayv1.RouteReasonBackendNotFound, "backendRef %s: a Service needs a port", n)
	}
	return key.Service{Service: n, Port: uint32(*ref.Port)}, condition.Problem{}
}
