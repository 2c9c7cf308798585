package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/object"
)

// Other controllers are the pods that are ready behind the discovery Service, but for oneself.
func TestOtherReplicasAreThoseThatProxiesCanReach(t *testing.T) {
	r := &replicas{namespace: "aether-system", self: "me", in: map[object.Key]bool{}}
	change := func(namespace, service string, endpoints ...discoveryv1.Endpoint) bool {
		k := object.Key{Kind: object.EndpointSlice, Namespace: namespace, Name: "s"}
		return r.observe([]object.Change{{Key: k, Object: &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: service}}, Endpoints: endpoints,
		}}})
	}
	pod := func(name string, ready bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}
	}
	want := func(when string, changed, others, wantChanged, wantOthers bool) {
		t.Helper()
		if changed != wantChanged || others != wantOthers {
			t.Errorf("%s: changed %t, others %t", when, changed, others)
		}
	}
	want("oneself", change("aether-system", discoveryService, pod("me", true)), r.others(), false, false)
	want("one that is not ready", change("aether-system", discoveryService, pod("me", true), pod("you", false)), r.others(), false, false)
	want("another Service", change("aether-system", "web", pod("you", true)), r.others(), false, false)
	want("another namespace", change("shop", discoveryService, pod("you", true)), r.others(), false, false)
	changed := change("aether-system", discoveryService, pod("me", true), pod("you", true))
	want("it is ready", changed, r.others(), true, true)
	changed = change("aether-system", discoveryService, pod("you", true), pod("they", true))
	want("a third, and oneself is not", changed, r.others(), false, true)
	changed = r.observe([]object.Change{{Key: object.Key{Kind: object.EndpointSlice, Namespace: "aether-system", Name: "s"}}})
	want("all are gone", changed, r.others(), true, false)
}
