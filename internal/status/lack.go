package status

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
)

// Lack says which Gateways do not have what they need beside configuration, and why: all
// there are.
func (e *Engine) Lack(lacks map[object.Key]condition.Problem) {
	e.mu.Lock()
	for _, m := range []map[object.Key]condition.Problem{e.lacks, lacks} {
		for k := range m {
			if e.lacks[k] != lacks[k] && e.entries[k] != nil {
				e.dirty[k] = true
			}
		}
	}
	e.lacks = maps.Clone(lacks)
	e.mu.Unlock()
	e.poke()
}

// without says in a Gateway's status what it lacks: that is why it is not programmed, unless
// there is a reason in itself. One that is programmed even so goes on, and says it too.
func without(status any, lack condition.Problem) {
	gw, is := status.(*gatewayv1.GatewayStatus)
	if !is || lack.IsZero() {
		return
	}
	for i := range gw.Conditions {
		c := &gw.Conditions[i]
		switch {
		case c.Type != string(gatewayv1.GatewayConditionProgrammed):
		case c.Status == metav1.ConditionTrue:
			c.Message += "; but " + lack.Message
		case c.Status == metav1.ConditionUnknown, c.Reason == string(gatewayv1.GatewayReasonPending), c.Reason == string(gatewayv1.GatewayReasonAddressNotAssigned):
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, lack.Reason, lack.Message
		}
	}
}
