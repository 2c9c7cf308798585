package policy

import (
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
)

// Target is what a policy is attached to.
type Target struct {
	Service key.Name
	Port    string // its name; empty: every port that no policy names
}

// Attachment is what a target is in its Service.
type Attachment struct {
	Missing bool              // there is no such Service, or no such port
	Invalid condition.Problem // why nothing can be attached to it
	Warning string            // what of it a policy does not reach
}

// Attach looks for the target in its Service; nil is one that does not exist. A policy
// reaches TCP ports only (GEP-1897).
func (t Target) Attach(s *corev1.Service) Attachment {
	missing, invalid := gatewayv1.PolicyReasonTargetNotFound, gatewayv1.PolicyReasonInvalid
	if s == nil {
		return Attachment{Missing: true, Invalid: condition.Problemf(missing, "Service %s does not exist", t.Service)}
	}
	there, tcp := 0, 0
	for _, p := range s.Spec.Ports {
		if t.Port != "" && p.Name != t.Port {
			continue
		}
		there++
		if p.Protocol == "" || p.Protocol == corev1.ProtocolTCP {
			tcp++
		}
	}
	switch {
	case there == 0 && t.Port != "":
		return Attachment{Missing: true, Invalid: condition.Problemf(missing, "Service %s has no port named %s", t.Service, t.Port)}
	case there > 0 && tcp == 0:
		return Attachment{Invalid: condition.Problemf(invalid, "Service %s: TLS needs a TCP port", t.Service)}
	case tcp < there:
		return Attachment{Warning: "; it has no effect on ports that are not TCP"}
	}
	return Attachment{}
}
