// Package policy reads BackendTLSPolicies: which Services are spoken to by TLS, and how.
// It is given objects and finds none itself. A policy that cannot be followed says so and
// keeps its targets: what it was to protect is never spoken to in plaintext instead.
package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/trust"
)

// Policy is a BackendTLSPolicy by itself: Services and other policies are not considered.
type Policy struct {
	Created int64 // Unix seconds
	Targets []Target
	Invalid condition.Problem  // why it cannot be followed; TLS and Trust are zero then
	Behind  condition.Problem  // why it could not be followed as its references are now; what they were is
	Refs    condition.Problem  // what is wrong with its caCertificateRefs
	TLS     envoy.UpstreamTLS  // but for a client certificate, which is a Gateway's
	Trust   *resource.Resource // the authorities it refers to; nil: TLS has a file of them
}

// Finder reads the ConfigMap or Secret of that name.
type Finder func(object.Kind, key.Name) trust.Bundle

// Read reads a policy. systemTrust is the path, beside proxies, of the system's
// authorities; empty if there is none.
func Read(o *gatewayv1.BackendTLSPolicy, systemTrust string, find Finder) Policy {
	n := key.Name{Namespace: o.Namespace, Name: o.Name}
	p := Policy{Created: o.CreationTimestamp.Unix()}
	for _, ref := range o.Spec.TargetRefs {
		if ref.Group == "" && ref.Kind == "Service" {
			p.Targets = append(p.Targets, Target{Service: key.Name{Namespace: n.Namespace, Name: string(ref.Name)}, Port: string(ptr.Deref(ref.SectionName, ""))})
		}
	}
	names, why := subjectNames(&o.Spec.Validation)
	tls := envoy.UpstreamTLS{ServerName: string(o.Spec.Validation.Hostname), Names: names}
	if len(o.Spec.Validation.CACertificateRefs) > 0 {
		p.readRefs(n, o.Spec.Validation.CACertificateRefs, find)
		if p.Trust != nil {
			tls.Trust = p.Trust.Name.Name
		}
	} else {
		p.Invalid = checkWellKnown(o.Spec.Validation.WellKnownCACertificates, systemTrust)
		tls.TrustFile = systemTrust
	}
	switch {
	case len(o.Spec.TargetRefs) > 1:
		// The specification advises against it: whether one is accepted and another one
		// conflicts could not be said.
		p.Invalid = condition.Problemf(gatewayv1.PolicyReasonInvalid, "more than one targetRef is not supported")
	case !p.Invalid.IsZero():
	case len(o.Spec.Options) > 0: // what would be asked for with them is not known
		p.Invalid = condition.Problemf(gatewayv1.PolicyReasonInvalid, "options are not supported")
	case why != "":
		p.Invalid = condition.Problemf(gatewayv1.PolicyReasonInvalid, "%s", why)
	default:
		if err := tls.Validate(); err != nil {
			p.Invalid = condition.Problemf(gatewayv1.PolicyReasonInvalid, "%v", err)
		}
	}
	if !p.Invalid.IsZero() {
		p.Trust = nil
		return p
	}
	p.TLS = tls
	return p
}

// Withhold is a policy of which nothing may be made for now. It keeps its targets.
func (p Policy) Withhold() Policy {
	p.TLS, p.Trust = envoy.UpstreamTLS{}, nil
	p.Invalid = condition.Problemf(gatewayv1.PolicyReasonInvalid, "proxies refuse what is made of it")
	return p
}

// subjectNames is what a certificate must bear one of. With subjectAltNames the hostname
// is not among them.
func subjectNames(v *gatewayv1.BackendTLSPolicyValidation) ([]envoy.SubjectName, string) {
	if len(v.SubjectAltNames) == 0 {
		return []envoy.SubjectName{{Value: string(v.Hostname)}}, ""
	}
	var list []envoy.SubjectName
	for _, s := range v.SubjectAltNames {
		switch s.Type {
		case gatewayv1.HostnameSubjectAltNameType:
			list = append(list, envoy.SubjectName{Value: string(s.Hostname)})
		case gatewayv1.URISubjectAltNameType:
			list = append(list, envoy.SubjectName{URI: true, Value: string(s.URI)})
		default:
			return nil, fmt.Sprintf("subjectAltNames: type %s is unknown", s.Type)
		}
	}
	return list, ""
}

func checkWellKnown(set *gatewayv1.WellKnownCACertificatesType, systemTrust string) condition.Problem {
	switch {
	case ptr.Deref(set, "") == "":
		return condition.Problemf(gatewayv1.PolicyReasonInvalid, "neither caCertificateRefs nor wellKnownCACertificates is given")
	case *set != gatewayv1.WellKnownCACertificatesSystem:
		return condition.Problemf(gatewayv1.PolicyReasonInvalid, "wellKnownCACertificates %s is not supported, want %s", *set, gatewayv1.WellKnownCACertificatesSystem)
	case systemTrust == "":
		return condition.Problemf(gatewayv1.PolicyReasonInvalid, "wellKnownCACertificates %s: the controller is not told where proxies have them", *set)
	}
	return condition.Problem{}
}

// readRefs makes one bundle of all references that are good. Those that are not are
// reported; a backend whose certificate needs one of them is not believed.
func (p *Policy) readRefs(n key.Name, refs []gatewayv1.LocalObjectReference, find Finder) {
	t := envoy.Trust{Name: n.String() + "/backend-ca", Origin: []object.Key{n.Object(object.BackendTLSPolicy)}}
	var bad []string
	good := false
	reject := func(reason gatewayv1.PolicyConditionReason, format string, args ...any) {
		bad = append(bad, fmt.Sprintf(format, args...))
		if p.Refs.Reason == "" {
			p.Refs.Reason = string(reason)
		}
	}
	for _, ref := range refs {
		kind := object.Kind(ref.Kind)
		if ref.Group != "" || kind != object.ConfigMap && kind != object.Secret {
			reject(gatewayv1.BackendTLSPolicyReasonInvalidKind, "caCertificateRef %s: %s of group %q is not supported, want ConfigMap or Secret", ref.Name, ref.Kind, ref.Group)
			continue
		}
		from := key.Name{Namespace: n.Namespace, Name: string(ref.Name)}
		b := find(kind, from)
		if b.Problem != "" {
			reject(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "caCertificateRef: %s %s: %s", kind, from, b.Problem)
		}
		good = good || b.Problem == ""
		if b.Authorities == nil {
			continue
		}
		t.Authorities = slices.Concat(t.Authorities, b.Authorities)
		t.Origin = append(t.Origin, from.Object(kind))
	}
	p.Refs.Message = strings.Join(bad, "; ")
	if !good {
		p.Behind = condition.Problemf(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, "%s", p.Refs.Message)
	}
	if t.Authorities == nil {
		p.Invalid = p.Behind
		return
	}
	r, err := t.Resource()
	if e, ok := errors.AsType[*envoy.InvalidError](err); ok { // all of them together are too much
		err = e.Err
	}
	if err != nil {
		p.Invalid = condition.Problemf(gatewayv1.PolicyReasonInvalid, "caCertificateRefs: %v", err)
		return
	}
	p.Trust = r
}
