package routing

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// TestWhatIsWithdrawnFromAListenerSetIsGone: a namespace loses the label by which its
// ListenerSet was allowed, and with that everything that the set brought: its host, its
// port, its certificate, the attachment of its routes.
func TestWhatIsWithdrawnFromAListenerSetIsGone(t *testing.T) {
	r := newReplica(t)
	for _, c := range readManifests(t, "testdata/listener-sets.in.yaml") {
		r.apply(c)
	}
	key := func(kind object.Kind, name string) object.Key {
		return object.Key{Kind: kind, Namespace: "red", Name: name}
	}
	world := func(kind, name string) bool {
		return r.worlds[scope.SharedPool()][resource.Name{TypeURL: kind, Name: name}] != nil
	}
	before := r.state()
	label := func(team string) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "red", Labels: map[string]string{"team": team}, Generation: 1}}
		r.apply(object.Change{Key: object.Key{Kind: object.Namespace, Name: "red"}, Object: ns})
	}
	if !world(envoy.SecretType, "red/cert") || !world(envoy.ListenerType, "infra/web/443") {
		t.Fatal("the set's certificate is not there at first")
	}
	label("blue")
	if world(envoy.SecretType, "red/cert") {
		t.Error("the private key stays")
	}
	set := r.statuses[key(object.ListenerSet, "older")].Value.(*gatewayv1.ListenerSetStatus)
	if c := set.Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != string(gatewayv1.ListenerSetReasonNotAllowed) {
		t.Errorf("the set's Accepted is %s %s", c.Status, c.Reason)
	}
	if len(set.Listeners) > 0 {
		t.Errorf("its listeners have statuses: %v", set.Listeners)
	}
	route := r.statuses[key(object.HTTPRoute, "to-the-set")]
	if c := route.Value.(*gatewayv1.HTTPRouteStatus).Parents[0].Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != string(gatewayv1.RouteReasonNoMatchingParent) || len(route.Live) > 0 {
		t.Errorf("the route's Accepted is %s %s, live: %v", c.Status, c.Reason, route.Live)
	}
	// What lost to it takes its place: the younger set has the host now.
	younger := r.statuses[object.Key{Kind: object.ListenerSet, Namespace: "red-too", Name: "younger"}].Value.(*gatewayv1.ListenerSetStatus)
	if c := younger.Listeners[0].Conditions[0]; c.Status != metav1.ConditionTrue {
		t.Errorf("the younger set's listener is not accepted: %s %s", c.Reason, c.Message)
	}
	label("red")
	requireEqual(t, before, r.state())
	r.apply(object.Change{Key: object.Key{Kind: object.Gateway, Namespace: "infra", Name: "web"}})
	for k, s := range r.statuses {
		if k.Kind == object.ListenerSet || k.Kind == object.HTTPRoute {
			t.Errorf("%s has a status without a Gateway: %v", k, s.Value)
		}
	}
}
