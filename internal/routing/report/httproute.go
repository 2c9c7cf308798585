package report

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/rule"
)

// The condition of a route's parent that tells of Services to which requests are sent and
// which have no endpoint, and of rules that send requests to none. It is only there, and then
// False, while there are such: the references are resolved (the specification has ResolvedRefs
// True), and yet nobody answers.
const (
	RouteEndpoints    gatewayv1.RouteConditionType   = "config.aether.io/Endpoints"
	ReasonNoEndpoints gatewayv1.RouteConditionReason = "NoEndpoints"
	ReasonNoWeight    gatewayv1.RouteConditionReason = "NoWeight"
)

// ReasonTooMuch is why a route is not accepted that takes more of the shared proxies than is
// left for its namespace.
const ReasonTooMuch gatewayv1.RouteConditionReason = "TooMuchForSharedProxies"

// Route is what is known of a route at one parent of ours.
type Route struct {
	Generation int64
	gateway.Attachment
	Rules   rule.Set
	Lacking []condition.Problem // Services without an endpoint that requests are sent to, rules that send none
}

// Parent is the status of a route at one parent of ours: refused there for a
// reason, or attached with the rules that it has. Who has the hosts that do not reach it is
// not told: it may be somebody else's listener.
func (r Route) Parent(controller string, ref gatewayv1.ParentReference) gatewayv1.RouteParentStatus {
	attached := "the route is attached"
	if len(r.Isolated) > 0 {
		attached += "; requests for these of its hosts go to a more specific listener of the port: " + few(r.Isolated)
	}
	list := []metav1.Condition{
		condition.Unless(r.Rejected, gatewayv1.RouteConditionAccepted, gatewayv1.RouteReasonAccepted, attached),
		condition.Unless(r.Rules.Refs, gatewayv1.RouteConditionResolvedRefs, gatewayv1.RouteReasonResolvedRefs, "every reference is resolved"),
	}
	if why := r.Rules.Complaint(); r.Rejected.IsZero() && !why.IsZero() {
		list = append(list, condition.True(gatewayv1.RouteConditionPartiallyInvalid, why.Reason,
			"Dropped Rule "+why.Message))
	}
	if why := condition.Several(r.Lacking); r.Rejected.IsZero() && !why.IsZero() {
		list = append(list, condition.False(RouteEndpoints, why.Reason, why.Message))
	}
	return gatewayv1.RouteParentStatus{
		ParentRef:      ref,
		ControllerName: gatewayv1.GatewayController(controller),
		Conditions:     condition.Of(r.Generation, list...),
	}
}
