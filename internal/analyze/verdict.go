package analyze

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/routing/report"
)

// translate tells what a status says that is not as it should be.
func (a *analysis) translate(s routing.Status) {
	k := s.Key
	switch v := s.Value.(type) {
	case *gatewayv1.GatewayClassStatus:
		for _, c := range v.Conditions {
			a.condition(k, "spec.parametersRef", c)
		}
	case *gatewayv1.GatewayStatus:
		a.gateway(k, v)
	case *gatewayv1.ListenerSetStatus:
		listeners := make([]gatewayv1.ListenerStatus, 0, len(v.Listeners))
		for _, l := range v.Listeners {
			listeners = append(listeners, gatewayv1.ListenerStatus(l))
		}
		if a.listeners(k, listeners) {
			return // which is why it is not accepted
		}
		for _, c := range v.Conditions {
			if c.Type != string(gatewayv1.ListenerSetConditionProgrammed) || isTrue(v.Conditions, string(gatewayv1.ListenerSetConditionAccepted)) {
				a.condition(k, "spec.parentRef", c)
			}
		}
	case *gatewayv1.HTTPRouteStatus:
		a.parents(k, v)
	case *gatewayv1.PolicyStatus:
		if len(v.Ancestors) > 0 { // each says the same
			a.policy(k, v.Ancestors[0].Conditions)
		}
	} // what a MeshConfig's says was found when it was read
}

// gateway leaves to listeners what they say better.
func (a *analysis) gateway(k object.Key, v *gatewayv1.GatewayStatus) {
	bad := a.listeners(k, v.Listeners)
	for _, c := range v.Conditions {
		derived := c.Reason == string(gatewayv1.GatewayReasonListenersNotValid) || c.Reason == string(gatewayv1.GatewayReasonListenersNotResolved) ||
			c.Type == string(gatewayv1.GatewayConditionProgrammed) && c.Reason == string(gatewayv1.GatewayReasonInvalid) && (bad || !isTrue(v.Conditions, "Accepted"))
		switch path := "spec"; {
		case derived && bad:
		case derived && c.Type == string(gatewayv1.GatewayConditionProgrammed):
		case c.Reason == string(gatewayv1.GatewayReasonInvalidParameters):
			a.condition(k, a.pathOf(k, "parametersRef", "spec.gatewayClassName"), c)
		case c.Type == string(gatewayv1.GatewayConditionResolvedRefs):
			a.condition(k, "spec.tls.backend.clientCertificateRef", c)
		case c.Type == string(gatewayv1.GatewayConditionInsecureFrontendValidationMode):
			a.condition(k, "spec.tls.frontend", c)
		case strings.HasPrefix(c.Reason, "Address") || c.Reason == string(gatewayv1.GatewayReasonUnsupportedAddress):
			if gw, is := a.objects[k].(*gatewayv1.Gateway); is && len(gw.Spec.Addresses) > 0 {
				path = "spec.addresses"
			}
			a.condition(k, path, c)
		case c.Type == string(gatewayv1.GatewayConditionAccepted) && c.Status == metav1.ConditionTrue:
			if _, notes, has := strings.Cut(c.Message, "; "); has && c.Reason == string(gatewayv1.GatewayReasonAccepted) {
				a.say(k, code.GatewayIdle, "spec", "%s", notes)
			}
		default:
			a.condition(k, path, c)
		}
	}
}

func isTrue(list []metav1.Condition, kind string) bool {
	for _, c := range list {
		if c.Type == kind {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// pathOf is the path of the object's reference whose field is so called, or another one.
func (a *analysis) pathOf(k object.Key, field, other string) string {
	for _, r := range a.refs {
		if r.From == k && strings.HasSuffix(r.Path, field) {
			return r.Path
		}
	}
	return other
}

// listeners tells what is wrong with those of one object, and reports whether anything is.
func (a *analysis) listeners(k object.Key, list []gatewayv1.ListenerStatus) (bad bool) {
	for i, l := range list {
		path := fmt.Sprintf("spec.listeners[%d]", i)
		conflict := false
		for _, c := range l.Conditions {
			conflict = conflict || c.Type == string(gatewayv1.ListenerConditionConflicted) && c.Status == metav1.ConditionTrue
		}
		for _, c := range l.Conditions {
			kind := gatewayv1.ListenerConditionType(c.Type)
			if kind == gatewayv1.ListenerConditionProgrammed || kind == gatewayv1.ListenerConditionAccepted && conflict { // follows from another one
				continue
			}
			at := path
			switch kind {
			case gatewayv1.ListenerConditionResolvedRefs:
				at = a.mentioned(k, path, c.Message, path+".tls")
			case gatewayv1.ListenerConditionOverlappingTLSConfig:
				at += ".hostname"
			default:
			}
			if a.condition(k, at, c) && kind != gatewayv1.ListenerConditionOverlappingTLSConfig {
				bad = true
			}
		}
	}
	return bad
}

// mentioned is the path, below one, of the first reference of an object that a message names;
// else that of any of the object's that it names, else another one.
func (a *analysis) mentioned(k object.Key, below, message, other string) string {
	any := ""
	for _, r := range a.refs {
		if r.From != k || !strings.Contains(message, r.To.Namespace+"/"+r.To.Name) {
			continue
		}
		if strings.HasPrefix(r.Path, below+".") {
			return r.Path
		}
		any = r.Path
	}
	if any != "" {
		return any
	}
	return other
}

// parents tells what is wrong with a route at each of its parents, and once what is with it
// whoever they are.
func (a *analysis) parents(k object.Key, v *gatewayv1.HTTPRouteStatus) {
	route, is := a.objects[k].(*gatewayv1.HTTPRoute)
	if !is {
		return
	}
	told := map[string]bool{} // conditions that are the same for every parent
	for i := range v.Parents {
		p := &v.Parents[i]
		at := "spec.parentRefs"
		for n := range route.Spec.ParentRefs {
			if equality.Semantic.DeepEqual(route.Spec.ParentRefs[n], p.ParentRef) {
				at = fmt.Sprintf("spec.parentRefs[%d]", n)
			}
		}
		for _, c := range p.Conditions {
			a.ofRoute(k, route, p, at, c, told)
		}
	}
}

// ofRoute tells one condition of a route at a parent.
func (a *analysis) ofRoute(k object.Key, route *gatewayv1.HTTPRoute, p *gatewayv1.RouteParentStatus, at string, c metav1.Condition, told map[string]bool) {
	kind := gatewayv1.RouteConditionType(c.Type)
	ofParent := kind == gatewayv1.RouteConditionAccepted && c.Reason != string(gatewayv1.RouteReasonUnsupportedValue) && c.Reason != string(gatewayv1.RouteReasonIncompatibleFilters)
	if !ofParent {
		if told[c.Type] {
			return
		}
		told[c.Type] = true
	}
	switch {
	case ofParent && c.Status == metav1.ConditionTrue:
		if _, notes, has := strings.Cut(c.Message, "; "); has {
			a.say(k, code.Isolated, at, "%s", notes)
		}
	case ofParent:
		if c.Reason == string(gatewayv1.RouteReasonNotAllowedByListeners) && a.labelsUnknown(k, p) {
			a.sayAs(k, "AET2002", code.Info, at, "%s, unless its labels are what a listener selects: the namespace is not among what is analyzed", c.Message)
			return
		}
		a.condition(k, at, c)
	case c.Reason == string(report.ReasonNoWeight): // which is found for each rule by itself
	case !good(c) && (kind == gatewayv1.RouteConditionResolvedRefs || kind == report.RouteEndpoints):
		if !a.ofBackends(k, route, c.Type) {
			a.condition(k, "spec.rules", c)
		}
	case !good(c):
		if !a.ofRules(k, route) {
			a.condition(k, "spec.rules", c)
		}
	}
}

// labelsUnknown reports whether a listener of the parent would look at labels of the route's
// namespace, which are not given.
func (a *analysis) labelsUnknown(k object.Key, p *gatewayv1.RouteParentStatus) bool {
	if a.c.Complete || a.written[object.Key{Kind: object.Namespace, Name: k.Namespace}] != nil {
		return false
	}
	of := object.Key{Kind: object.Gateway, Namespace: string(ptr.Deref(p.ParentRef.Namespace, gatewayv1.Namespace(k.Namespace))), Name: string(p.ParentRef.Name)}
	gw, is := a.objects[of].(*gatewayv1.Gateway)
	if !is {
		return false
	}
	for _, l := range gw.Spec.Listeners {
		if r := l.AllowedRoutes; r != nil && r.Namespaces != nil && ptr.Deref(r.Namespaces.From, "") == gatewayv1.NamespacesFromSelector {
			return true
		}
	}
	return false
}

func (a *analysis) policy(k object.Key, list []metav1.Condition) {
	for _, c := range list {
		path := "spec.validation"
		if c.Reason == string(gatewayv1.PolicyReasonTargetNotFound) || c.Reason == string(gatewayv1.PolicyReasonConflicted) {
			path = "spec.targetRefs"
		}
		if c.Type == string(gatewayv1.PolicyConditionAccepted) && c.Reason == string(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate) {
			continue // ResolvedRefs says which
		}
		a.condition(k, a.mentioned(k, path, c.Message, path), c)
	}
}

// condition tells a condition if it is not as it should be, and reports whether it is not.
func (a *analysis) condition(k object.Key, path string, c metav1.Condition) bool {
	if good(c) {
		return false
	}
	as, known := code.Of(a.codes, code.Condition{Kind: k.Kind, Type: c.Type, Reason: c.Reason})
	if !known {
		a.say(k, code.Uncoded, path, "%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message)
		return true
	}
	a.say(k, as.ID, path, "%s", c.Message)
	return true
}

// good reports whether a condition is as it should be, or is not for objects to decide.
func good(c metav1.Condition) bool {
	if c.Status == metav1.ConditionUnknown {
		return true
	}
	switch c.Type {
	case string(gatewayv1.ListenerConditionConflicted), string(gatewayv1.ListenerConditionOverlappingTLSConfig),
		string(gatewayv1.RouteConditionPartiallyInvalid), string(gatewayv1.GatewayConditionInsecureFrontendValidationMode):
		return c.Status == metav1.ConditionFalse
	case string(gatewayv1.GatewayConditionAccepted):
		return c.Status == metav1.ConditionTrue // its reason may be that of listeners, which say so
	}
	return c.Status == metav1.ConditionTrue
}
