package report

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
)

// parentNotProgrammed is a reason that the API names in the text of
// ListenerSetConditionProgrammed and has no constant for.
const parentNotProgrammed = "ParentNotProgrammed"

// Set is what is known of a ListenerSet that names a Gateway of ours.
type Set struct {
	Generation int64
	Held       bool              // nothing is made of it for now, which observation explains
	Allowed    bool              // by the Gateway
	Parent     condition.Problem // why the Gateway is not accepted
	Unusable   condition.Problem // why the Gateway can never be programmed
	Sections   []Section         // its own, in the order of the spec
}

// Accepted reports whether it counts as attached: some of its listeners can be served.
func (s Set) Accepted() bool {
	return s.Allowed && s.Parent.IsZero() && (s.Held || slices.ContainsFunc(s.Sections, s.good))
}

// good: one that cannot be served for want of a certificate is not, though it is valid.
func (s Set) good(l Section) bool { return l.Rejected.IsZero() && (l.Served || !s.Unusable.IsZero()) }

// Status is the ListenerSet's status. It says nothing of listeners that are not its own.
func (s Set) Status() *gatewayv1.ListenerSetStatus {
	value := &gatewayv1.ListenerSetStatus{Conditions: condition.Of(s.Generation, s.accepted(), s.programmed())}
	for _, l := range s.Sections {
		value.Listeners = append(value.Listeners, gatewayv1.ListenerEntryStatus(l.status(s.Generation, s.Held)))
	}
	return value
}

func (s Set) accepted() metav1.Condition {
	kind := gatewayv1.ListenerSetConditionAccepted
	invalid := gatewayv1.ListenerSetReasonListenersNotValid
	bad := named(s.Sections, func(l Section) bool { return !s.good(l) })
	switch {
	case !s.Allowed:
		return condition.False(kind, gatewayv1.ListenerSetReasonNotAllowed, "the Gateway's allowedListeners do not allow it")
	case !s.Parent.IsZero():
		return condition.False(kind, gatewayv1.ListenerSetReasonParentNotAccepted, "the Gateway is not accepted")
	case !s.Accepted():
		return condition.False(kind, invalid, "no listener is valid")
	case bad != "":
		return condition.True(kind, invalid, fmt.Sprintf("listeners that are not valid: %s; the others are accepted", bad))
	}
	return condition.True(kind, gatewayv1.ListenerSetReasonAccepted, "every listener is valid")
}

// programmed is Unknown if there is something to observe.
func (s Set) programmed() metav1.Condition {
	kind := gatewayv1.ListenerSetConditionProgrammed
	switch {
	case !s.Allowed:
		return condition.False(kind, gatewayv1.ListenerSetReasonNotAllowed, "the Gateway's allowedListeners do not allow it")
	case !s.Parent.IsZero(), !s.Unusable.IsZero():
		return condition.False(kind, parentNotProgrammed, "the Gateway is not programmed")
	case !s.Accepted():
		return condition.False(kind, gatewayv1.ListenerSetReasonListenersNotValid, "no listener can be programmed")
	}
	return condition.Unknown(kind, gatewayv1.ListenerSetReasonPending)
}
