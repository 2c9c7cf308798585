package report

import (
	"fmt"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
)

// MaxAncestors is what the list of a PolicyStatus holds.
const MaxAncestors = 16

// Policy is what is known of a BackendTLSPolicy.
type Policy struct {
	Generation int64
	Rejected   condition.Problem // why it is not accepted, Services and other policies considered
	Refs       condition.Problem // why its references are not good
	Warning    string            // what it does not reach though it is accepted
	Gateways   []key.Name        // of ours, by which its target is reached; at most MaxAncestors
	More       int               // such Gateways that are not among them
}

// Status is the same for every Gateway: none of them changes what the policy means.
func (p Policy) Status(controller string) *gatewayv1.PolicyStatus {
	message := "backends are spoken to by TLS as it says" + p.Warning
	if p.More > 0 {
		message += fmt.Sprintf("; %d more Gateways do not fit into this list", p.More)
	}
	value := &gatewayv1.PolicyStatus{}
	for _, gw := range p.Gateways {
		value.Ancestors = append(value.Ancestors, gatewayv1.PolicyAncestorStatus{
			AncestorRef: gatewayv1.ParentReference{
				Group:     ptr.To[gatewayv1.Group](gatewayv1.GroupName),
				Kind:      ptr.To[gatewayv1.Kind]("Gateway"),
				Namespace: ptr.To(gatewayv1.Namespace(gw.Namespace)),
				Name:      gatewayv1.ObjectName(gw.Name),
			},
			ControllerName: gatewayv1.GatewayController(controller),
			Conditions: condition.Of(p.Generation,
				condition.Unless(p.Rejected, gatewayv1.PolicyConditionAccepted, gatewayv1.PolicyReasonAccepted, message),
				condition.Unless(p.Refs, gatewayv1.BackendTLSPolicyConditionResolvedRefs, gatewayv1.BackendTLSPolicyReasonResolvedRefs, "every reference is resolved"),
			),
		})
	}
	return value
}
