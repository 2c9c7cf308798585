// Package grant reads ReferenceGrants: who may refer to what in their namespace.
package grant

import (
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/key"
)

// Allows reports whether g, which is in the namespace of to, lets a Gateway API object of
// kind from in namespace own refer to the core object to.
func Allows(g *gatewayv1.ReferenceGrant, from object.Kind, own string, kind object.Kind, to key.Name) bool {
	return allowsFrom(g, from, own) && allowsTo(g, kind, to.Name)
}

func allowsFrom(g *gatewayv1.ReferenceGrant, kind object.Kind, namespace string) bool {
	for _, f := range g.Spec.From {
		if f.Group == gatewayv1.GroupName && string(f.Kind) == string(kind) && string(f.Namespace) == namespace {
			return true
		}
	}
	return false
}

// allowsTo: no name, or an empty one, is every object of the kind.
func allowsTo(g *gatewayv1.ReferenceGrant, kind object.Kind, name string) bool {
	for _, t := range g.Spec.To {
		named := string(ptr.Deref(t.Name, ""))
		if t.Group == "" && string(t.Kind) == string(kind) && (named == "" || named == name) {
			return true
		}
	}
	return false
}
