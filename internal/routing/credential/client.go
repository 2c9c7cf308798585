package credential

import (
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

// Clients is how those of a port's HTTPS sections are verified. The zero value asks for
// no certificate.
type Clients struct {
	Wanted   bool
	Optional bool               // also those are served whose certificate does not verify
	Trust    *resource.Resource // nil: nobody can be verified, and nobody is served
	Name     string             // of Trust
	Refs     condition.Problem  // the first reference that is not good
	Rejected condition.Problem  // none is
}

// computeClients: authorities that are not good are left out, which refuses more clients
// and never serves one that should not be.
func (m *Credentials) computeClients(c *sheet.Cell, k key.Port) Clients {
	v := m.validation(c, k)
	if v == nil {
		return Clients{}
	}
	out := Clients{Wanted: true, Optional: v.Mode == gatewayv1.AllowInsecureFallback, Name: k.String() + "/clients"}
	model := envoy.Trust{Name: out.Name, Origin: []object.Key{k.Gateway.Object(object.Gateway)}}
	var bad []string
	for _, ref := range v.CACertificateRefs {
		n := key.In(k.Gateway.Namespace, ref.Namespace, ref.Name)
		pem, why := m.authorities(c, k.Gateway.Namespace, n, &ref)
		if !why.IsZero() {
			bad = append(bad, why.Message)
			if out.Refs.IsZero() {
				out.Refs = why
			}
		}
		if pem == nil {
			continue
		}
		model.Authorities = append(model.Authorities, pem...)
		model.Origin = append(model.Origin, n.Object(object.ConfigMap))
	}
	out.Refs.Message = strings.Join(bad, "; ")
	slices.SortFunc(model.Origin, object.Key.Compare)
	model.Origin = slices.Compact(model.Origin)
	var err error
	if len(model.Authorities) > 0 {
		out.Trust, err = model.Resource()
	}
	if err != nil || out.Trust == nil {
		out.Trust, out.Rejected = nil, condition.Problemf(gatewayv1.ListenerReasonNoValidCACertificate, "no caCertificateRef is good, so no client can be verified")
	}
	return out
}

// authorities resolves one caCertificateRef: what it is good for, if anything, and what is
// wrong.
func (m *Credentials) authorities(c *sheet.Cell, from string, n key.Name, ref *gatewayv1.ObjectReference) ([]byte, condition.Problem) {
	switch {
	case ref.Group != "" || ref.Kind != "ConfigMap":
		return nil, condition.Problemf(gatewayv1.ListenerReasonInvalidCACertificateKind, "caCertificateRef %s: %s of group %q is not supported, want ConfigMap", n, ref.Kind, ref.Group)
	case !m.entries.Granted(c, object.Gateway, from, object.ConfigMap, n):
		return nil, condition.Problemf(gatewayv1.ListenerReasonRefNotPermitted, "caCertificateRef %s: no ReferenceGrant in namespace %s allows it", n, n.Namespace)
	}
	b := m.bundle.Get(c, n.Object(object.ConfigMap))
	var why condition.Problem
	if b.Problem != "" {
		why = condition.Problemf(gatewayv1.ListenerReasonInvalidCACertificateRef, "caCertificateRef: ConfigMap %s: %s", n, b.Problem)
	}
	return b.Authorities, why
}
