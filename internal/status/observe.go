package status

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/routing"
)

// The conditions that only observation decides. Routes have no such condition in the
// Gateway API, so theirs carries our domain.
const (
	RouteProgrammed = "config.aether.io/Programmed"
	MeshApplied     = "Applied"

	ReasonRefused     = "RefusedByProxy"
	ReasonUnavailable = "PortUnavailable"
	ReasonProgressing = "Progressing"
	ReasonApplied     = "Applied"
	ReasonRejected    = "Rejected"
	ReasonPartlySeen  = "PartlySeen"
)

// cannotBind is in what Envoy says of a listener whose port it cannot have, whether it is
// taken, is only for root, or is at an address that the machine does not have:
// "cannot bind '127.0.0.1:80': Permission denied".
const cannotBind = "cannot bind"

// openness is what is still to be learned about a status.
type openness uint8

const (
	settled  openness = iota // live, or never will be: nothing to wait for
	awaited                  // proxies have not answered yet
	troubled                 // refused or not bound: said at once, looked at again on each pulse
)

// outcome is one requirement as observed.
type outcome struct {
	open    openness
	status  metav1.ConditionStatus
	reason  string
	message string
}

// seen is what was observed for one status.
type seen struct {
	verdicts []fleet.Verdict // one of each requirement
	count    count           // instead, of a status that counts proxies
}

// observe returns a copy of wanted's value in which the observed conditions are filled
// in. held says that the object is quarantined, and why; empty if it is not. before is what was
// written last: what was live stays so until a proxy says otherwise, because a proxy
// that is away keeps serving what it had.
func observe(wanted routing.Status, of seen, held string, before *Document) (any, openness) {
	open, verdicts := settled, of.verdicts
	note := func(o outcome) outcome { open = max(open, o.open); return o }
	switch v := wanted.Value.(type) {
	case *gatewayv1.GatewayStatus:
		next := v.DeepCopy()
		listeners := map[string]*[]metav1.Condition{}
		for i := range next.Listeners {
			listeners[string(next.Listeners[i].Name)] = &next.Listeners[i].Conditions
		}
		observeListeners(&next.Conditions, listeners, wanted, verdicts, before, note)
		return next, open
	case *gatewayv1.ListenerSetStatus:
		next := v.DeepCopy()
		listeners := map[string]*[]metav1.Condition{}
		for i := range next.Listeners {
			listeners[string(next.Listeners[i].Name)] = &next.Listeners[i].Conditions
		}
		observeListeners(&next.Conditions, listeners, wanted, verdicts, before, note)
		return next, open
	case *gatewayv1.HTTPRouteStatus:
		next := v.DeepCopy()
		for i, r := range wanted.Live {
			if r.Parent >= len(next.Parents) {
				continue
			}
			parent := &next.Parents[r.Parent]
			o := note(judge(verdicts[i], held, wasTrue(before, wanted.Generation, routePath(r.Parent), RouteProgrammed)))
			setCondition(&parent.Conditions, RouteProgrammed, o, wanted.Generation)
		}
		for i := range next.Parents { // one that is left out altogether requires nothing, and says so
			if held != "" {
				setCondition(&next.Parents[i].Conditions, RouteProgrammed, note(judge(fleet.Verdict{}, held, false)), wanted.Generation)
			}
		}
		return next, open
	case *configv1.MeshConfigStatus:
		next := v.DeepCopy()
		setCondition(&next.Conditions, MeshApplied, note(of.count.outcome(held)), wanted.Generation)
		next.Proxies = of.count.status()
		return next, open
	case *gatewayv1.GatewayClassStatus:
		return v.DeepCopy(), settled
	case *gatewayv1.PolicyStatus:
		return v.DeepCopy(), settled
	}
	return wanted.Value, settled
}

// observeListeners fills in Programmed of the listeners that can be programmed, and of
// the Gateway or ListenerSet that they are of: true if each of those is.
func observeListeners(own *[]metav1.Condition, listeners map[string]*[]metav1.Condition, wanted routing.Status, verdicts []fleet.Verdict, before *Document, note func(outcome) outcome) {
	programmed := string(gatewayv1.GatewayConditionProgrammed)
	whole := outcome{status: metav1.ConditionTrue, reason: string(gatewayv1.GatewayReasonProgrammed), message: "every valid listener is live in every proxy that counts"}
	for i, r := range wanted.Live {
		list, path := listeners[r.Section], listenerPath(r.Section)
		if list == nil { // another object's, which only the whole depends on
			path = ""
		}
		o := note(judge(verdicts[i], "", wasTrue(before, wanted.Generation, path, programmed)))
		if list != nil {
			setCondition(list, programmed, o, wanted.Generation)
		}
		if o.status != metav1.ConditionTrue && whole.status == metav1.ConditionTrue {
			whole = o
			whole.message = fmt.Sprintf("listener %s: %s", r.Section, o.message)
			if o.reason != string(gatewayv1.GatewayReasonPending) {
				whole.reason = string(gatewayv1.GatewayReasonInvalid)
			}
		}
	}
	// What is false for a reason of its own, as without an address, no proxy makes true.
	decided := meta.IsStatusConditionFalse(*own, programmed)
	if len(wanted.Live) > 0 && !decided {
		setCondition(own, programmed, whole, wanted.Generation)
	}
}

// judge turns one verdict into a condition.
func judge(v fleet.Verdict, held string, wasLive bool) outcome {
	switch {
	case held != "":
		return outcome{troubled, metav1.ConditionFalse, ReasonRefused, held}
	case len(v.Refused) > 0:
		reason := ReasonRefused
		if strings.Contains(v.Refused[0].Detail, cannotBind) {
			reason = ReasonUnavailable
		}
		return outcome{troubled, metav1.ConditionFalse, reason, refusals(v.Refused)}
	case len(v.Unbound) > 0:
		// Ports are reported after answers: that one is not bound is believed after patience.
		return outcome{awaited, metav1.ConditionFalse, ReasonUnavailable, "the port is not bound in " + names(v.Unbound)}
	case v.IsLive(), wasLive:
		// Who is behind is not said: what is settled is not looked at again when they no longer are.
		return outcome{settled, metav1.ConditionTrue, string(gatewayv1.GatewayReasonProgrammed), "live in every proxy that counts"}
	case v.Total == 0:
		return outcome{awaited, metav1.ConditionFalse, string(gatewayv1.GatewayReasonPending), "no proxy is connected and up to date yet" + behind(v)}
	default:
		return outcome{awaited, metav1.ConditionFalse, string(gatewayv1.GatewayReasonPending), fmt.Sprintf("live in %d of %d proxies", v.Live, v.Total) + behind(v)}
	}
}

func refusals(refused []fleet.Refused) string {
	var b strings.Builder
	for i, r := range refused {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s refused %s: %s", r.Proxy, r.Name, r.Detail)
	}
	return b.String()
}

func behind(v fleet.Verdict) string {
	if len(v.Laggards) == 0 {
		return ""
	}
	return "; behind: " + names(v.Laggards)
}

func names(laggards []fleet.Laggard) string {
	var part []string
	for _, l := range laggards {
		part = append(part, fmt.Sprintf("%s (%s)", l.Proxy, l.Reason))
	}
	return strings.Join(part, ", ")
}

// wasTrue reports whether the condition stood at True for this generation already.
func wasTrue(before *Document, generation int64, path, condition string) bool {
	if before == nil || before.Generation != generation {
		return false
	}
	for _, c := range conditions(before.Status)[path] {
		if c.Type == condition {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

func setCondition(list *[]metav1.Condition, kind string, o outcome, generation int64) {
	put(list, metav1.Condition{Type: kind, Status: o.status, Reason: o.reason, Message: o.message, ObservedGeneration: generation})
}

// put sets a condition in the place of the one of its type.
func put(list *[]metav1.Condition, c metav1.Condition) {
	for i := range *list {
		if (*list)[i].Type == c.Type {
			(*list)[i] = c
			return
		}
	}
	*list = append(*list, c)
}

func listenerPath(section string) string { return "listeners/" + section }

// ancestorPath names an entry by what makes it one: which Gateway it is about.
func ancestorPath(a gatewayv1.ParentReference) string {
	return fmt.Sprintf("ancestors/%s/%s", ptr.Deref(a.Namespace, ""), a.Name)
}

func routePath(parent int) string { return fmt.Sprintf("parents/%d", parent) }

// ownConditions is a status's conditions of the object as a whole; nil if it has none.
func ownConditions(status any) *[]metav1.Condition {
	switch v := status.(type) {
	case *gatewayv1.GatewayClassStatus:
		return &v.Conditions
	case *gatewayv1.GatewayStatus:
		return &v.Conditions
	case *gatewayv1.ListenerSetStatus:
		return &v.Conditions
	case *configv1.MeshConfigStatus:
		return &v.Conditions
	}
	return nil
}

// conditions lists a status's conditions by where they stand in it. The slices are
// the status's own, so that a caller can change them in place.
func conditions(status any) map[string][]metav1.Condition {
	out := map[string][]metav1.Condition{}
	switch v := status.(type) {
	case *gatewayv1.GatewayClassStatus:
		out[""] = v.Conditions
	case *gatewayv1.GatewayStatus:
		out[""] = v.Conditions
		for i := range v.Listeners {
			out[listenerPath(string(v.Listeners[i].Name))] = v.Listeners[i].Conditions
		}
	case *gatewayv1.ListenerSetStatus:
		out[""] = v.Conditions
		for i := range v.Listeners {
			out[listenerPath(string(v.Listeners[i].Name))] = v.Listeners[i].Conditions
		}
	case *gatewayv1.HTTPRouteStatus:
		for i := range v.Parents {
			out[routePath(i)] = v.Parents[i].Conditions
		}
	case *gatewayv1.PolicyStatus:
		for i := range v.Ancestors {
			out[ancestorPath(v.Ancestors[i].AncestorRef)] = v.Ancestors[i].Conditions
		}
	case *configv1.MeshConfigStatus:
		out[""] = v.Conditions
	}
	return out
}
