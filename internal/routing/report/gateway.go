package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/key"
)

// Gateway is what is known of a Gateway of ours.
type Gateway struct {
	gateway.Gateway
	Held     bool              // nothing is made of it for now, which observation explains
	Client   condition.Problem // why it cannot show backends the certificate that it is to show
	Sections []Section         // its own, in the order of the spec
	Sets     int               // the ListenerSets that are attached
	Unlisted []key.Name        // BackendTLSPolicies that apply to it and have no room to say so
	Served   bool              // something of it can be programmed; whether it is must be observed
}

// Section is what is known of one of its listeners.
type Section struct {
	gateway.Section
	Rejected condition.Problem // why it is not accepted, other Gateways and proxies considered
	Refs     condition.Problem // why its references are not good
	Unmapped bool              // what is in front of its Gateway has no port for it yet
	Attached int
	Served   bool // it can be programmed; whether it is must be observed
}

// Status is the Gateway's status.
func (g Gateway) Status() *gatewayv1.GatewayStatus {
	value := &gatewayv1.GatewayStatus{Addresses: addresses(g.Addresses), AttachedListenerSets: new(int32(g.Sets))}
	for _, s := range g.Sections {
		value.Listeners = append(value.Listeners, s.status(g.Generation, g.Held))
	}
	list := []metav1.Condition{g.accepted(), g.programmed(), g.resolved()}
	if g.Insecure() {
		list = append(list, condition.True(gatewayv1.GatewayConditionInsecureFrontendValidationMode, gatewayv1.GatewayReasonConfigurationChanged,
			"clients are served whether their certificate verifies or not"))
	}
	value.Conditions = condition.Of(g.Generation, list...)
	return value
}

// maxAddresses is what the list of a GatewayStatus holds.
const maxAddresses = 16

func addresses(published []string) []gatewayv1.GatewayStatusAddress {
	var list []gatewayv1.GatewayStatusAddress
	for _, a := range published[:min(len(published), maxAddresses)] {
		kind := gatewayv1.HostnameAddressType
		if _, err := netip.ParseAddr(a); err == nil {
			kind = gatewayv1.IPAddressType
		}
		list = append(list, gatewayv1.GatewayStatusAddress{Type: &kind, Value: a})
	}
	return list
}

// accepted: a Gateway with some valid listeners is accepted for those, and says which
// are not. Those of ListenerSets count, for they are the Gateway's.
func (g Gateway) accepted() metav1.Condition {
	notes := slices.Clone(g.Idle)
	if len(g.Unlisted) > 0 {
		notes = append(notes, fmt.Sprintf("%s apply to it, and their status has no room for another Gateway", policies(g.Unlisted)))
	}
	kind, invalid := gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayReasonListenersNotValid
	good := named(g.Sections, func(s Section) bool { return s.Rejected.IsZero() })
	bad := named(g.Sections, func(s Section) bool { return !s.Rejected.IsZero() })
	listeners := fmt.Sprintf("listeners that are not valid: %s; accepted: %s", cmp.Or(bad, "none"), cmp.Or(good, "none"))
	switch {
	case !g.Rejected.IsZero() && g.Rejected.Reason != string(invalid):
		return condition.False(kind, g.Rejected.Reason, g.standing(g.Rejected.Message))
	case bad == "":
		return condition.True(kind, gatewayv1.GatewayReasonAccepted, noting("every listener is valid", notes))
	case good == "" && g.Sets == 0:
		return condition.False(kind, invalid, listeners)
	case good == "":
		listeners += fmt.Sprintf("; accepted ListenerSets: %d", g.Sets)
	}
	return condition.True(kind, invalid, noting(listeners, notes))
}

// standing adds to why it is not as it should be that it is served even so.
func (g Gateway) standing(message string) string {
	if !g.Stands {
		return message
	}
	return message + "; it is served as it was last"
}

// maxNamed is the number of objects or hosts that a message names.
const maxNamed = 8

func few(list []string) string {
	if left := len(list) - maxNamed; left > 0 {
		list = append(slices.Clone(list[:maxNamed]), fmt.Sprintf("%d more", left))
	}
	return strings.Join(list, ", ")
}

func policies(list []key.Name) string {
	names := make([]string, 0, len(list))
	for _, n := range list {
		names = append(names, n.String())
	}
	return "BackendTLSPolicies " + few(names)
}

// noting adds to a message what else there is to know.
func noting(message string, notes []string) string {
	return strings.Join(slices.Concat([]string{message}, notes), "; ")
}

// programmed is Unknown if there is something to observe.
func (g Gateway) programmed() metav1.Condition {
	kind := gatewayv1.GatewayConditionProgrammed
	switch {
	case !g.Rejected.IsZero():
		return condition.False(kind, gatewayv1.GatewayReasonInvalid, g.standing("the Gateway is not accepted"))
	case !g.Unusable.IsZero():
		return condition.False(kind, g.Unusable.Reason, g.Unusable.Message)
	case !g.Unreachable.IsZero():
		return condition.False(kind, g.Unreachable.Reason, g.Unreachable.Message)
	case !g.Held && !g.Served:
		return condition.False(kind, gatewayv1.GatewayReasonInvalid, "no listener can be programmed")
	}
	return condition.Unknown(kind, gatewayv1.GatewayReasonPending)
}

func (g Gateway) resolved() metav1.Condition {
	kind := gatewayv1.GatewayConditionResolvedRefs
	if !g.Client.IsZero() { // has no listener's condition to stand in
		return condition.False(kind, g.Client.Reason, g.Client.Message)
	}
	if bad := named(g.Sections, func(s Section) bool { return !s.Refs.IsZero() }); bad != "" {
		return condition.False(kind, gatewayv1.GatewayReasonListenersNotResolved, "listeners with references that are not good: "+bad)
	}
	return condition.True(kind, gatewayv1.GatewayReasonResolvedRefs, "every reference is resolved")
}

// named is the names of the sections for which is says true.
func named(sections []Section, is func(Section) bool) string {
	var list []string
	for _, s := range sections {
		if is(s) {
			list = append(list, s.Name)
		}
	}
	return strings.Join(list, ", ")
}

func (s Section) status(generation int64, held bool) gatewayv1.ListenerStatus {
	valid := "the listener is valid"
	if s.Crowded {
		valid += fmt.Sprintf("; there are more than %d HTTPS listeners on its port, so a request on its connections for a host of another one gets 404 where 421 is meant", gateway.MaxMutual)
	}
	list := []metav1.Condition{
		condition.Unless(s.Rejected, gatewayv1.ListenerConditionAccepted, gatewayv1.ListenerReasonAccepted, valid),
		s.programmed(held),
		condition.Unless(s.Refs, gatewayv1.ListenerConditionResolvedRefs, gatewayv1.ListenerReasonResolvedRefs, "every reference is resolved"),
	}
	if s.Conflict {
		list = append(list, condition.True(gatewayv1.ListenerConditionConflicted, s.Rejected.Reason, s.Rejected.Message))
	} else {
		list = append(list, condition.False(gatewayv1.ListenerConditionConflicted, gatewayv1.ListenerReasonNoConflicts, "no other listener is like this one"))
	}
	if len(s.Overlap) > 0 {
		list = append(list, condition.True(gatewayv1.ListenerConditionOverlappingTLSConfig, gatewayv1.ListenerReasonOverlappingHostnames, "hostnames overlap with those of "+strings.Join(s.Overlap, ", ")))
	}
	return gatewayv1.ListenerStatus{
		Name:           gatewayv1.SectionName(s.Name),
		SupportedKinds: s.Kinds,
		AttachedRoutes: int32(s.Attached),
		Conditions:     condition.Of(generation, list...),
	}
}

func (s Section) programmed(held bool) metav1.Condition {
	kind := gatewayv1.ListenerConditionProgrammed
	switch {
	case s.Rejected.Reason == string(gatewayv1.ListenerReasonPortUnavailable), s.Conflict && s.Parent().Kind == object.ListenerSet:
		return condition.False(kind, s.Rejected.Reason, s.Rejected.Message)
	case s.Unmapped:
		return condition.False(kind, gatewayv1.ListenerReasonPending, "what is in front of its Gateway has no port for it yet")
	case !s.Served && !held:
		return condition.False(kind, gatewayv1.ListenerReasonInvalid, "the listener or its Gateway is not valid")
	}
	return condition.Unknown(kind, gatewayv1.ListenerReasonPending)
}
