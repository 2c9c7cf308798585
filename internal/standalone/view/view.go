// Package view is what an instance has to say of objects, as a person reads it on a terminal:
// their statuses a line each, and what in them is not as it should be. It asks nobody and
// writes nowhere: status documents go in, text comes out.
package view

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/inspect"
)

// Gateway is a Gateway as a person wants it on one line.
type Gateway struct {
	Namespace, Name string
	Status          gatewayv1.GatewayStatus
	Raw             json.RawMessage // the status as it came
}

// Gateways picks the Gateways out of docs.
func Gateways(docs []inspect.StatusDocument) []Gateway {
	var out []Gateway
	for _, d := range docs {
		if d.Kind != "Gateway" {
			continue
		}
		g := Gateway{Namespace: d.Namespace, Name: d.Name, Raw: d.Status}
		if json.Unmarshal(d.Status, &g.Status) == nil {
			out = append(out, g)
		}
	}
	return out
}

// Pending reports whether it is still to be seen if the Gateway works.
func (g Gateway) Pending() bool {
	for _, c := range g.Status.Conditions {
		if c.Type == string(gatewayv1.GatewayConditionProgrammed) {
			return c.Reason == string(gatewayv1.GatewayReasonPending)
		}
	}
	return true
}

// PortUnavailable reports whether a listener could not bind its port.
func (g Gateway) PortUnavailable() bool {
	return slices.ContainsFunc(g.Status.Listeners, func(l gatewayv1.ListenerStatus) bool {
		return slices.ContainsFunc(l.Conditions, func(c metav1.Condition) bool {
			return c.Type == string(gatewayv1.ListenerConditionProgrammed) && c.Reason == string(gatewayv1.ListenerReasonPortUnavailable)
		})
	})
}

// String is the Gateway's address and conditions on one line.
func (g Gateway) String() string {
	var addresses, listeners []string
	for _, a := range g.Status.Addresses {
		addresses = append(addresses, a.Value)
	}
	for _, l := range g.Status.Listeners {
		listeners = append(listeners, string(l.Name)+" ("+Plural(int(l.AttachedRoutes), "route")+")")
	}
	return strings.Join([]string{
		"Gateway/" + g.Namespace + "/" + g.Name,
		"addresses " + cmp.Or(strings.Join(addresses, ","), "none"),
		Conditions(g.Status.Conditions),
		"listeners " + cmp.Or(strings.Join(listeners, ", "), "none"),
	}, "  ")
}

// wanted is the status that a condition should have. Most should be True.
func wanted(kind string) metav1.ConditionStatus {
	switch kind {
	case string(gatewayv1.ListenerConditionConflicted), string(gatewayv1.ListenerConditionOverlappingTLSConfig),
		string(gatewayv1.RouteConditionPartiallyInvalid), configv1.MeshConfigUnknownFields:
		return metav1.ConditionFalse
	}
	return metav1.ConditionTrue
}

// Conditions is a list of conditions on one line. What is not as it should be says why;
// of what should be False, nothing is said when it is.
func Conditions(list []metav1.Condition) string {
	var part []string
	for _, c := range list {
		s := c.Type + "=" + string(c.Status)
		if c.Status != wanted(c.Type) {
			s += "(" + c.Reason + ")"
		} else if c.Status == metav1.ConditionFalse {
			continue
		}
		part = append(part, s)
	}
	return strings.Join(part, " ")
}

// Conditioned is one holder of conditions in a status: the object itself, or a part of it.
type Conditioned struct {
	Part       string // "listener http", "parent web/http"; empty: the object itself
	Conditions []metav1.Condition
}

// Parts lists what of a status has conditions, the object itself first.
func Parts(d inspect.StatusDocument) ([]Conditioned, error) {
	type ref struct{ Name, SectionName string }
	var s struct {
		Conditions []metav1.Condition
		Listeners  []struct {
			Name       string
			Conditions []metav1.Condition
		}
		Parents []struct {
			ParentRef  ref
			Conditions []metav1.Condition
		}
		Ancestors []struct {
			AncestorRef ref
			Conditions  []metav1.Condition
		}
	}
	if err := json.Unmarshal(d.Status, &s); err != nil {
		return nil, err
	}
	name := func(r ref) string { return strings.TrimSuffix(r.Name+"/"+r.SectionName, "/") }
	var out []Conditioned
	if len(s.Conditions) > 0 {
		out = append(out, Conditioned{Conditions: s.Conditions})
	}
	for _, l := range s.Listeners {
		out = append(out, Conditioned{"listener " + l.Name, l.Conditions})
	}
	for _, p := range s.Parents {
		out = append(out, Conditioned{"parent " + name(p.ParentRef), p.Conditions})
	}
	for _, a := range s.Ancestors {
		out = append(out, Conditioned{"for " + name(a.AncestorRef), a.Conditions})
	}
	return out, nil
}

// UnknownFields is what an object's status says of fields that have no effect. It is for where no
// file is named for them.
func UnknownFields(d inspect.StatusDocument) []string {
	parts, err := Parts(d)
	if err != nil {
		return nil // Trouble has said so
	}
	var out []string
	for _, p := range parts {
		for _, c := range p.Conditions {
			if c.Type == configv1.MeshConfigUnknownFields && c.Status == metav1.ConditionTrue {
				out = append(out, c.Type+": "+c.Message)
			}
		}
	}
	return out
}

// Trouble is what in an object's status is not as it should be, a sentence each. What
// only follows from something more telling is left out, but for that a listener is not served
// for it; and so is what another condition has said, and unknown fields: the file that has
// them is named among the problems, as is once a collector that telemetry does not arrive at.
func Trouble(d inspect.StatusDocument) []string {
	parts, err := Parts(d)
	if err != nil {
		return []string{"its status cannot be read: " + err.Error()}
	}
	bad := func(p Conditioned) []metav1.Condition {
		return slices.DeleteFunc(slices.Clone(p.Conditions), func(c metav1.Condition) bool {
			return c.Status == wanted(c.Type) || c.Type == configv1.MeshConfigUnknownFields || c.Type == configv1.MeshConfigTelemetryDelivered
		})
	}
	inListeners := map[string]bool{} // types of conditions that a listener tells better than its Gateway
	for _, p := range parts {
		if strings.HasPrefix(p.Part, "listener ") {
			for _, c := range bad(p) {
				inListeners[c.Type] = true
			}
		}
	}
	var out []string
	for _, p := range parts {
		list := bad(p)
		part := p.Part
		follows := func(c metav1.Condition) bool {
			return c.Type == string(gatewayv1.ListenerConditionProgrammed) && c.Reason == string(gatewayv1.ListenerReasonInvalid) && len(list) > 1
		}
		if strings.HasPrefix(part, "listener ") && slices.ContainsFunc(list, follows) {
			part += " is not served"
		}
		said := map[string]bool{}
		for _, c := range list {
			if follows(c) || p.Part == "" && inListeners[c.Type] || said[c.Reason+" "+c.Message] {
				continue
			}
			said[c.Reason+" "+c.Message] = true
			s := c.Type + "=" + string(c.Status) + " " + c.Reason + ": " + c.Message
			if part != "" {
				s = part + ": " + s
			}
			out = append(out, s)
		}
	}
	return out
}

// ObjectName is how an object is called everywhere: Kind/namespace/name.
func ObjectName(d inspect.StatusDocument) string {
	if d.Namespace == "" {
		return d.Kind + "/" + d.Name
	}
	return d.Kind + "/" + d.Namespace + "/" + d.Name
}

// WhyIdle is what an object that exists and has no status has to be told.
func WhyIdle(object string) string {
	if strings.HasPrefix(object, "Gateway/") {
		return "has no effect: its gatewayClassName names no GatewayClass that is ours"
	}
	if strings.HasPrefix(object, "ListenerSet/") {
		return "has no effect: its parentRef names no Gateway that is served"
	}
	return "has no effect: none of its parentRefs names a Gateway that is served"
}
