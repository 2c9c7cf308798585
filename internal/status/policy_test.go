package status_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/status"
)

// policyStatus is of a policy that is accepted at these Gateways.
func policyStatus(generation int64, accepted metav1.ConditionStatus, gateways ...string) routing.Status {
	v := &gatewayv1.PolicyStatus{}
	for _, gw := range gateways {
		v.Ancestors = append(v.Ancestors, gatewayv1.PolicyAncestorStatus{
			AncestorRef: gatewayv1.ParentReference{Namespace: new(gatewayv1.Namespace("infra")), Name: gatewayv1.ObjectName(gw)},
			Conditions:  []metav1.Condition{{Type: "Accepted", Status: accepted, Reason: "Any", ObservedGeneration: generation}},
		})
	}
	return routing.Status{Key: object.Key{Kind: object.BackendTLSPolicy, Namespace: "shop", Name: "tls"}, Generation: generation, Value: v}
}

func TestEachAncestorOfAPolicyKeepsItsTransitionTime(t *testing.T) {
	play(t, func(t *testing.T, e *edge, engine *status.Engine) {
		write := func(s routing.Status) map[string]time.Time {
			t.Helper()
			untouched := s.Value.(*gatewayv1.PolicyStatus).DeepCopy()
			pass(time.Minute)
			engine.Update([]routing.Status{s})
			lull()
			for i, a := range s.Value.(*gatewayv1.PolicyStatus).Ancestors {
				if a.Conditions[0] != untouched.Ancestors[i].Conditions[0] {
					t.Fatal("the graph's own value was written to")
				}
			}
			at := map[string]time.Time{}
			for _, a := range e.last(t).Status.(*gatewayv1.PolicyStatus).Ancestors {
				at[string(a.AncestorRef.Name)] = a.Conditions[0].LastTransitionTime.Time
			}
			return at
		}
		first := write(policyStatus(1, metav1.ConditionTrue, "b"))
		second := write(policyStatus(2, metav1.ConditionTrue, "a", "b"))
		if second["b"] != first["b"] || !second["a"].After(first["b"]) {
			t.Errorf("times %v, then %v: b's must stay though it moved in the list, a's is new", first, second)
		}
		third := write(policyStatus(2, metav1.ConditionFalse, "b"))
		if !third["b"].After(second["b"]) {
			t.Errorf("times %v, then %v: b's must be new", second, third)
		}
		written := len(e.written)
		write(policyStatus(2, metav1.ConditionFalse, "b"))
		if len(e.written) != written {
			t.Error("written though nothing changed")
		}
	})
}
