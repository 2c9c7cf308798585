package report

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/rule"
)

// RouteParent is the status of a route at one parent of ours: refused there for a
// reason, or attached with the rules that it has. Who has the hosts that do not reach it is
// not told: it may be somebody else's listener.
func RouteParent(controller string, generation int64, ref gatewayv1.ParentReference, at gateway.Attachment, rules rule.Set) gatewayv1.RouteParentStatus {
	rejected, attached := at.Rejected, "the route is attached"
	if len(at.Isolated) > 0 {
		attached += "; requests for these of its hosts go to a more specific listener of the port: " + few(at.Isolated)
	}
	list := condition.Of(generation,
		condition.Unless(rejected, gatewayv1.RouteConditionAccepted, gatewayv1.RouteReasonAccepted, attached),
		condition.Unless(rules.Refs, gatewayv1.RouteConditionResolvedRefs, gatewayv1.RouteReasonResolvedRefs, "every reference is resolved"),
	)
	if why := rules.Complaint(); rejected.IsZero() && !why.IsZero() {
		list = append(list, condition.Of(generation, condition.True(gatewayv1.RouteConditionPartiallyInvalid, why.Reason,
			"Dropped Rule "+why.Message+": requests that match it get 500"))...)
	}
	return gatewayv1.RouteParentStatus{
		ParentRef:      ref,
		ControllerName: gatewayv1.GatewayController(controller),
		Conditions:     list,
	}
}
