package analyze

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

// One condition is about all backends, or all rules, of a route, and has one reason. Which is to
// blame for what is found by asking the graph of each by itself.

// ofBackends tells what a condition is for each of a route's backends by itself, and reports
// whether that found what is wrong.
func (a *analysis) ofBackends(k object.Key, route *gatewayv1.HTTPRoute, kind string) (found bool) {
	for _, b := range backends(route) {
		rule := gatewayv1.HTTPRouteRule{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: b.Ref}}}}
		for _, c := range a.alone(k, route, rule, kind) {
			found = a.condition(k, b.Path, c) || found
		}
	}
	return found
}

// ofRules tells which rules cannot be served and why.
func (a *analysis) ofRules(k object.Key, route *gatewayv1.HTTPRoute) (found bool) {
	for i := range route.Spec.Rules {
		for _, c := range a.alone(k, route, route.Spec.Rules[i], string(gatewayv1.RouteConditionAccepted)) {
			// Alone it is rule 0, whatever it is among the others.
			_, why, has := strings.Cut(c.Message, " (")
			if end := strings.LastIndex(why, "): "); has && end >= 0 {
				c.Message = why[end+len("): "):] + ": " + why[:end]
			}
			found = a.condition(k, fmt.Sprintf("spec.rules[%d]", i), c) || found
		}
	}
	return found
}

// alone is the first condition of that type of a route that had no other rule, if it is not as
// it should be.
func (a *analysis) alone(k object.Key, route *gatewayv1.HTTPRoute, rule gatewayv1.HTTPRouteRule, kind string) []metav1.Condition {
	other := route.DeepCopy()
	other.Spec.Rules = []gatewayv1.HTTPRouteRule{rule}
	a.apply([]object.Change{{Key: k, Object: other}})
	defer a.apply([]object.Change{{Key: k, Object: route}}) // as it was
	v, is := a.statuses[k].Value.(*gatewayv1.HTTPRouteStatus)
	if !is {
		return nil
	}
	for _, p := range v.Parents {
		for _, c := range p.Conditions {
			if c.Type == kind && !good(c) {
				return []metav1.Condition{c}
			}
		}
	}
	return nil
}
