// Package backend reads Services and EndpointSlices as what routes send requests to.
// It is given objects and finds none itself.
package backend

import (
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
)

// ReasonInvalidTLS is the reason of ResolvedRefs of a route to a Service whose
// BackendTLSPolicy is not valid: it is not spoken to at all, least of all in plaintext.
const ReasonInvalidTLS gatewayv1.RouteConditionReason = "InvalidBackendTLSPolicy"

// Port is one port of one Service, as far as routes and clusters need it.
type Port struct {
	Invalid  condition.Problem // it cannot be a backend; the rest is zero then
	Name     string
	Protocol envoy.Protocol
	Selector bool     // endpoints are expected to be made from the Service's selector
	Secure   bool     // it takes only TLS: without a Policy it is no backend
	Policy   key.Name // the BackendTLSPolicy by which it is spoken to; zero: none, in plaintext
}

// ReadPort finds the port in its Service; nil is a Service that does not exist. Whether
// there is a Policy is not known here.
func ReadPort(k key.Service, s *corev1.Service) Port {
	switch {
	case s == nil:
		return Port{Invalid: condition.Problemf(gatewayv1.RouteReasonBackendNotFound, "Service %s does not exist", k.Service)}
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		// Whoever may write a Service could have the proxy connect to anything that it
		// reaches (CVE-2021-25740): the specification advises against it.
		return Port{Invalid: condition.Problemf(gatewayv1.RouteReasonInvalidKind, "Service %s is of type ExternalName, which is not supported", k.Service)}
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Port != int32(k.Port) || p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			continue
		}
		speaks, known := readProtocol(p)
		if !known {
			return Port{Invalid: condition.Problemf(gatewayv1.RouteReasonUnsupportedProtocol, "Service %s port %d: appProtocol %s is not supported", k.Service, k.Port, *p.AppProtocol)}
		}
		return Port{Name: p.Name, Selector: len(s.Spec.Selector) > 0, Protocol: speaks.protocol, Secure: speaks.secure}
	}
	return Port{Invalid: condition.Problemf(gatewayv1.RouteReasonBackendNotFound, "Service %s has no TCP port %d", k.Service, k.Port)}
}

// By is the port as it is spoken to by the policy of that name, which is zero if there is
// none; invalid says what is wrong with the policy.
func (p Port) By(k key.Service, policy key.Name, invalid condition.Problem) Port {
	switch {
	case !p.Invalid.IsZero():
		return p
	case policy == key.Name{} && p.Secure:
		return Port{Invalid: condition.Problemf(gatewayv1.RouteReasonUnsupportedProtocol, "Service %s port %d: its appProtocol is spoken over TLS, for which it needs a BackendTLSPolicy", k.Service, k.Port)}
	case !invalid.IsZero():
		return Port{Invalid: condition.Problemf(ReasonInvalidTLS, "Service %s port %d: BackendTLSPolicy %s: %s", k.Service, k.Port, policy, invalid.Message)}
	}
	p.Policy = policy
	return p
}
