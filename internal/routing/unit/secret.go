package unit

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/certificate"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

func (u *Units) computeSecret(c *sheet.Cell, n key.Name) certificate.Certificate {
	o, _ := get[*corev1.Secret](u, c, n.Object(object.Secret))
	return certificate.Read(n, o)
}

// shipSecret puts a certificate into a world in which some listener uses it.
func (u *Units) shipSecret(c *sheet.Cell, k key.Placed[key.Name]) none {
	u.put(c, k.Scope, u.secret.Get(c, k.Of).Resource)
	return none{}
}

// certificates resolves the certificateRefs of one section. All of them must be good:
// with a part of them some hosts would be answered with the wrong certificate.
func (u *Units) certificates(c *sheet.Cell, gateway key.Name, refs []gatewayv1.SecretObjectReference) ([]key.Name, condition.Problem) {
	invalid := gatewayv1.ListenerReasonInvalidCertificateRef
	if len(refs) == 0 {
		return nil, condition.Problemf(invalid, "no certificateRefs are given")
	}
	var list []key.Name
	for _, ref := range refs {
		n := key.In(gateway.Namespace, ref.Namespace, ref.Name)
		group, kind := ptr.Deref(ref.Group, ""), ptr.Deref(ref.Kind, "Secret")
		switch {
		case group != "" || kind != "Secret":
			return nil, condition.Problemf(invalid, "certificateRef %s: %s of group %q is not supported, want Secret", n, kind, group)
		case !u.granted(c, object.Gateway, gateway.Namespace, object.Secret, n):
			return nil, condition.Problemf(gatewayv1.ListenerReasonRefNotPermitted, "certificateRef %s: no ReferenceGrant in namespace %s allows it", n, n.Namespace)
		}
		if s := u.secret.Get(c, n); s.Invalid != "" {
			return nil, condition.Problemf(invalid, "certificateRef: Secret %s: %s", n, s.Invalid)
		}
		list = append(list, n)
	}
	return list, condition.Problem{}
}
