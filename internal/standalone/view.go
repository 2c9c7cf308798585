package standalone

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/inspect"
)

// Gateway is a Gateway as a person wants it on one line.
type Gateway struct {
	Namespace, Name string
	Status          gatewayv1.GatewayStatus
	raw             json.RawMessage
}

// Gateways picks the Gateways out of docs.
func Gateways(docs []inspect.StatusDocument) []Gateway {
	var out []Gateway
	for _, d := range docs {
		if d.Kind != "Gateway" {
			continue
		}
		g := Gateway{Namespace: d.Namespace, Name: d.Name, raw: d.Status}
		if json.Unmarshal(d.Status, &g.Status) == nil {
			out = append(out, g)
		}
	}
	return out
}

// pending reports whether it is still to be seen if the Gateway works.
func (g Gateway) pending() bool {
	for _, c := range g.Status.Conditions {
		if c.Type == string(gatewayv1.GatewayConditionProgrammed) {
			return c.Reason == string(gatewayv1.GatewayReasonPending)
		}
	}
	return true
}

// String is the Gateway's address and conditions on one line.
func (g Gateway) String() string {
	var addresses []string
	for _, a := range g.Status.Addresses {
		addresses = append(addresses, a.Value)
	}
	s := fmt.Sprintf("Gateway/%s/%s  addresses %s  %s", g.Namespace, g.Name, or(strings.Join(addresses, ","), "none"), Conditions(g.Status.Conditions))
	for _, l := range g.Status.Listeners {
		s += fmt.Sprintf("  %s(%d routes)", l.Name, l.AttachedRoutes)
		for _, c := range l.Conditions {
			if c.Type == string(gatewayv1.ListenerConditionProgrammed) && c.Status != metav1.ConditionTrue {
				s += " not programmed: " + c.Reason
			}
		}
	}
	return s
}

// Conditions is a list of conditions on one line; what is not as it should be says why.
func Conditions(list []metav1.Condition) string {
	var part []string
	for _, c := range list {
		s := c.Type + "=" + string(c.Status)
		if c.Status != metav1.ConditionTrue {
			s += "(" + c.Reason + ")"
		}
		part = append(part, s)
	}
	return strings.Join(part, " ")
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
