package credential

import (
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

// Identity is what a Gateway shows to backends that are spoken to by TLS. The zero
// Identity shows nothing.
type Identity struct {
	Secret  key.Name          // zero: nothing can be shown
	Problem condition.Problem // why, or why what is shown is not the newest
}

// Wanted reports whether the Gateway asks for a certificate to be shown.
func (i Identity) Wanted() bool { return i.Shown() || !i.Problem.IsZero() }

// Shown reports whether there is one.
func (i Identity) Shown() bool { return i.Secret != key.Name{} }

// computeIdentity resolves a Gateway's clientCertificateRef.
func (m *Credentials) computeIdentity(c *sheet.Cell, n key.Name) Identity {
	o, _ := entry.Get[*gatewayv1.Gateway](m.entries, c, n.Object(object.Gateway))
	if o == nil || o.Spec.TLS == nil || o.Spec.TLS.Backend == nil || o.Spec.TLS.Backend.ClientCertificateRef == nil {
		return Identity{}
	}
	ref := o.Spec.TLS.Backend.ClientCertificateRef
	to := key.In(n.Namespace, ref.Namespace, ref.Name)
	invalid := gatewayv1.GatewayReasonInvalidClientCertificateRef
	switch group, kind := ptr.Deref(ref.Group, ""), ptr.Deref(ref.Kind, "Secret"); {
	case group != "" || kind != "Secret":
		return Identity{Problem: condition.Problemf(invalid, "clientCertificateRef %s: %s of group %q is not supported, want Secret", to, kind, group)}
	case !m.entries.Granted(c, object.Gateway, n.Namespace, object.Secret, to):
		return Identity{Problem: condition.Problemf(gatewayv1.GatewayReasonRefNotPermitted, "clientCertificateRef %s: no ReferenceGrant in namespace %s allows it", to, to.Namespace)}
	}
	var out Identity
	s := m.secret.Get(c, to)
	if s.Problem != "" {
		out.Problem = condition.Problemf(invalid, "clientCertificateRef: Secret %s: %s", to, s.Problem)
	}
	if s.Resource != nil {
		out.Secret = to
	}
	return out
}
