package entry

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/grant"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

// computeGrant files a ReferenceGrant under its namespace. The API serves it in two
// versions of one shape, of which the older is the one that is stored.
func (e *Entries) computeGrant(c *sheet.Cell, n key.Name) struct{} {
	if o, there := Get[*gatewayv1.ReferenceGrant](e, c, n.Object(object.ReferenceGrant)); there {
		e.grants.Put(c, n.Namespace, n.Name, o)
	}
	if o, there := Get[*gatewayv1beta1.ReferenceGrant](e, c, n.Object(object.ReferenceGrant)); there {
		e.grants.Put(c, n.Namespace, n.Name, (*gatewayv1.ReferenceGrant)(o))
	}
	return struct{}{}
}

// Granted reports whether a Gateway API object of that kind in namespace from may refer
// to the core object to. Within a namespace it always may.
func (e *Entries) Granted(c *sheet.Cell, kind object.Kind, from string, toKind object.Kind, to key.Name) bool {
	if from == to.Namespace {
		return true
	}
	for _, g := range e.grants.All(c, to.Namespace) {
		if grant.Allows(g, kind, from, toKind, to) {
			return true
		}
	}
	return false
}
