package unit

import (
	"slices"
	"strings"

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

// certificates resolves the certificateRefs of one section. Those that are good are
// served while there is one; the problem is the first of those that are not, and names all.
func (u *Units) certificates(c *sheet.Cell, of key.Parent, refs []gatewayv1.SecretObjectReference) ([]key.Name, condition.Problem) {
	invalid := gatewayv1.ListenerReasonInvalidCertificateRef
	if len(refs) == 0 {
		return nil, condition.Problemf(invalid, "no certificateRefs are given")
	}
	var list []key.Name
	var bad []condition.Problem
	for i := range refs {
		n := key.In(of.Namespace, refs[i].Namespace, refs[i].Name)
		switch why := u.certificate(c, of, n, &refs[i]); {
		case !why.IsZero():
			bad = append(bad, why)
		case !slices.Contains(list, n):
			list = append(list, n)
		}
	}
	if len(bad) == 0 {
		return list, condition.Problem{}
	}
	all := make([]string, 0, len(bad)+1)
	for _, why := range bad {
		all = append(all, why.Message)
	}
	if len(list) > 0 {
		all = append(all, "the other certificates are served")
	}
	return list, condition.Problem{Reason: bad[0].Reason, Message: strings.Join(all, "; ")}
}

// certificate resolves one certificateRef.
func (u *Units) certificate(c *sheet.Cell, of key.Parent, n key.Name, ref *gatewayv1.SecretObjectReference) condition.Problem {
	invalid := gatewayv1.ListenerReasonInvalidCertificateRef
	group, kind := ptr.Deref(ref.Group, ""), ptr.Deref(ref.Kind, "Secret")
	switch {
	case group != "" || kind != "Secret":
		return condition.Problemf(invalid, "certificateRef %s: %s of group %q is not supported, want Secret", n, kind, group)
	case !u.granted(c, of.Kind, of.Namespace, object.Secret, n):
		return condition.Problemf(gatewayv1.ListenerReasonRefNotPermitted, "certificateRef %s: no ReferenceGrant in namespace %s allows it", n, n.Namespace)
	}
	if s := u.secret.Get(c, n); s.Invalid != "" {
		return condition.Problemf(invalid, "certificateRef: Secret %s: %s", n, s.Invalid)
	}
	return condition.Problem{}
}
