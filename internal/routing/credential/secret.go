package credential

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/certificate"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

func (m *Credentials) computeSecret(c *sheet.Cell, n key.Name) certificate.Certificate {
	k := n.Object(object.Secret)
	o, _ := entry.Get[*corev1.Secret](m.entries, c, k)
	return certificate.Read(n, o).Behind(m.entries.Refused(c, k))
}

// Certificates resolves the certificateRefs of one section. Those that are good are
// served while there is one; the problem is the first of what is not as it is written, and
// names all.
func (m *Credentials) Certificates(c *sheet.Cell, of key.Parent, refs []gatewayv1.SecretObjectReference) ([]key.Name, condition.Problem) {
	invalid := gatewayv1.ListenerReasonInvalidCertificateRef
	if len(refs) == 0 {
		return nil, condition.Problemf(invalid, "no certificateRefs are given")
	}
	var list []key.Name
	var bad []condition.Problem
	missing := false
	for i := range refs {
		n := key.In(of.Namespace, refs[i].Namespace, refs[i].Name)
		there, why := m.certificate(c, of, n, &refs[i])
		if !why.IsZero() {
			bad = append(bad, why)
		}
		switch {
		case !there:
			missing = true
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
	if len(list) > 0 && missing {
		all = append(all, "the other certificates are served")
	}
	return list, condition.Problem{Reason: bad[0].Reason, Message: strings.Join(all, "; ")}
}

// certificate resolves one certificateRef: whether there is something to serve, and what
// is wrong.
func (m *Credentials) certificate(c *sheet.Cell, of key.Parent, n key.Name, ref *gatewayv1.SecretObjectReference) (there bool, why condition.Problem) {
	invalid := gatewayv1.ListenerReasonInvalidCertificateRef
	group, kind := ptr.Deref(ref.Group, ""), ptr.Deref(ref.Kind, "Secret")
	switch {
	case group != "" || kind != "Secret":
		return false, condition.Problemf(invalid, "certificateRef %s: %s of group %q is not supported, want Secret", n, kind, group)
	case !m.entries.Granted(c, of.Kind, of.Namespace, object.Secret, n):
		return false, condition.Problemf(gatewayv1.ListenerReasonRefNotPermitted, "certificateRef %s: no ReferenceGrant in namespace %s allows it", n, n.Namespace)
	}
	s := m.secret.Get(c, n)
	if s.Problem != "" {
		why = condition.Problemf(invalid, "certificateRef: Secret %s: %s", n, s.Problem)
	}
	return s.Resource != nil, why
}
