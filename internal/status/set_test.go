package status_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/status"
)

func TestAListenerSetIsProgrammedWhenItsOwnListenersAreLive(t *testing.T) {
	play(t, func(t *testing.T, e *edge, engine *status.Engine) {
		s := routing.Status{
			Key: object.Key{Kind: object.ListenerSet, Namespace: "default", Name: "set"}, Generation: 1,
			Value: &gatewayv1.ListenerSetStatus{
				Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: 1}},
				Listeners:  []gatewayv1.ListenerEntryStatus{{Name: "a"}, {Name: "rejected"}},
			},
			Live: []routing.Requirement{{Scope: scope.SharedPool(), Section: "a", Port: 80}},
		}
		e.set(waiting)
		engine.Update([]routing.Status{s})
		pass(time.Minute)
		lull()
		read := func() (own, listener metav1.Condition, others int) {
			v := e.last(t).Status.(*gatewayv1.ListenerSetStatus)
			return programmed(t, v.Conditions), programmed(t, v.Listeners[0].Conditions), len(v.Listeners[1].Conditions)
		}
		if own, listener, _ := read(); own.Status != metav1.ConditionFalse || listener.Status != metav1.ConditionFalse {
			t.Errorf("while a proxy is behind: %v, %v", own, listener)
		}
		e.set(live)
		engine.Pulse()
		lull()
		own, listener, others := read()
		if own.Status != metav1.ConditionTrue || own.ObservedGeneration != 1 || listener.Status != metav1.ConditionTrue || others != 0 {
			t.Errorf("when all are live: %v, %v, %d of one that is not served", own, listener, others)
		}
		if own.LastTransitionTime.IsZero() || listener.LastTransitionTime.IsZero() {
			t.Error("a condition has no transition time")
		}
	})
}

// A Gateway of which nothing is served but what a ListenerSet brings is programmed when that
// is live, and stays so while a proxy is away.
func TestAGatewayIsProgrammedByTheListenersOfItsListenerSets(t *testing.T) {
	play(t, func(t *testing.T, e *edge, engine *status.Engine) {
		s := routing.Status{
			Key: object.Key{Kind: object.Gateway, Namespace: "default", Name: "gw"}, Generation: 1,
			Value: &gatewayv1.GatewayStatus{Listeners: []gatewayv1.ListenerStatus{{Name: "a"}}},
			Live:  []routing.Requirement{{Scope: scope.SharedPool(), Section: "shop/set/a", Port: 80}},
		}
		read := func() (own metav1.Condition, listener int) {
			v := e.last(t).Status.(*gatewayv1.GatewayStatus)
			return programmed(t, v.Conditions), len(v.Listeners[0].Conditions)
		}
		e.set(waiting)
		engine.Update([]routing.Status{s})
		pass(time.Minute)
		lull()
		if own, _ := read(); own.Status != metav1.ConditionFalse {
			t.Errorf("while a proxy is behind: %v", own)
		}
		e.set(live)
		engine.Pulse()
		lull()
		if own, listener := read(); own.Status != metav1.ConditionTrue || listener != 0 {
			t.Errorf("when all are live: %v, and %d conditions of a listener of its own", own, listener)
		}
		e.set(waiting)
		engine.Pulse()
		pass(time.Minute)
		lull()
		if own, _ := read(); own.Status != metav1.ConditionTrue {
			t.Errorf("while a proxy is behind again: %v", own)
		}
	})
}

// A Gateway that nothing has given an address is not programmed, though proxies run it.
func TestWhatIsFalseForAReasonOfItsOwnStaysSo(t *testing.T) {
	play(t, func(t *testing.T, e *edge, engine *status.Engine) {
		s := gatewayStatus("a")
		s.Value.(*gatewayv1.GatewayStatus).Conditions = []metav1.Condition{{
			Type: "Programmed", Status: metav1.ConditionFalse, Reason: "AddressNotAssigned", ObservedGeneration: 1,
		}}
		e.set(live)
		engine.Update([]routing.Status{s})
		pass(time.Minute)
		lull()
		v := e.last(t).Status.(*gatewayv1.GatewayStatus)
		if own := programmed(t, v.Conditions); own.Status != metav1.ConditionFalse || own.Reason != "AddressNotAssigned" {
			t.Errorf("the Gateway: %v", own)
		}
		if listener := programmed(t, v.Listeners[0].Conditions); listener.Status != metav1.ConditionTrue {
			t.Errorf("its listener: %v", listener)
		}
	})
}
