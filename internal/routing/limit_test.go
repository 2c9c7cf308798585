package routing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/report"
)

// accepted is the message of Accepted of a Gateway, or of one of its listeners.
func (r *replica) accepted(name, listener string) string {
	r.t.Helper()
	v := r.statuses[object.Key{Kind: object.Gateway, Namespace: "infra", Name: name}].Value.(*gatewayv1.GatewayStatus)
	list := v.Conditions
	for _, l := range v.Listeners {
		if string(l.Name) == listener {
			list = l.Conditions
		}
	}
	i := slices.IndexFunc(list, func(c metav1.Condition) bool { return c.Type == string(gatewayv1.GatewayConditionAccepted) })
	if i < 0 || list[i].Status != metav1.ConditionTrue {
		r.t.Fatalf("%s %s is not accepted: %v", name, listener, list)
	}
	return list[i].Message
}

// The text has a maximum of 16 ancestors in this list (PolicyStatus.ancestors).
func TestAPolicyOfMoreGatewaysThanItsStatusHoldsNamesTheOldest(t *testing.T) {
	r := newReplica(t)
	const gateways = report.MaxAncestors + 2
	changes := town(1)
	route := townRoute(0, 1)
	route.Spec.ParentRefs = nil
	for i := range gateways { // the first by name are the youngest
		gw := townGateway()
		gw.Name, gw.CreationTimestamp = fmt.Sprintf("g%02d", i), metav1.NewTime(time.Unix(int64(2000-i), 0))
		gw.Spec.Listeners = gw.Spec.Listeners[:1]
		gw.Spec.Listeners[0].Port = int32(1000 + i)
		route.Spec.ParentRefs = append(route.Spec.ParentRefs, gatewayv1.ParentReference{Namespace: ptr.To[gatewayv1.Namespace]("infra"), Name: gatewayv1.ObjectName(gw.Name)})
		changes = append(changes, change(gw, object.Gateway))
	}
	r.apply(append(changes, change(route, object.HTTPRoute), change(townPolicy(0), object.BackendTLSPolicy))...)

	expect := func(when string, more int, without ...string) {
		t.Helper()
		list := r.statuses[object.Key{Kind: object.BackendTLSPolicy, Namespace: "shop", Name: "tls"}].Value.(*gatewayv1.PolicyStatus).Ancestors
		if len(list) != report.MaxAncestors {
			t.Fatalf("%s: %d ancestors", when, len(list))
		}
		for _, a := range list {
			said := a.Conditions[0].Message
			if want := fmt.Sprintf("%d more Gateways", more); more > 0 != strings.Contains(said, want) {
				t.Errorf("%s: %s says %q, want %d more", when, a.AncestorRef.Name, said, more)
			}
			if slices.Contains(without, string(a.AncestorRef.Name)) {
				t.Errorf("%s: %s is in the list", when, a.AncestorRef.Name)
			}
		}
		for i := range gateways {
			name := fmt.Sprintf("g%02d", i)
			if r.statuses[object.Key{Kind: object.Gateway, Namespace: "infra", Name: name}].Value == nil {
				continue
			}
			if told := strings.Contains(r.accepted(name, ""), "BackendTLSPolicies shop/tls"); told != slices.Contains(without, name) {
				t.Errorf("%s: Gateway %s is told so: %v", when, name, told)
			}
		}
	}
	expect("two too many", 2, "g00", "g01")
	r.apply(object.Change{Key: object.Key{Kind: object.Gateway, Namespace: "infra", Name: "g17"}})
	expect("one too many", 1, "g00")
	r.apply(object.Change{Key: object.Key{Kind: object.Gateway, Namespace: "infra", Name: "g16"}})
	expect("as many as fit", 0)
}

func TestListenersSayWhenThereAreTooManyToKnowEachOther(t *testing.T) {
	r := newReplica(t)
	changes := town(0)
	gw := changes[1].Object.(*gatewayv1.Gateway)
	https := gw.Spec.Listeners[1]
	gw.Spec.Listeners = nil
	for i := range gateway.MaxMutual {
		l := *https.DeepCopy()
		l.Name, l.Hostname = gatewayv1.SectionName(fmt.Sprintf("l%d", i)), ptr.To(gatewayv1.Hostname(fmt.Sprintf("h%d.example.com", i)))
		gw.Spec.Listeners = append(gw.Spec.Listeners, l)
	}
	gw.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)}}
	r.apply(changes...)
	if said := r.accepted("web", "l7"); said != "the listener is valid" {
		t.Errorf("%d listeners: %s", gateway.MaxMutual, said)
	}
	set := &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "one-more", Generation: 1}}
	set.Spec.ParentRef.Name = "web"
	set.Spec.Listeners = []gatewayv1.ListenerEntry{gatewayv1.ListenerEntry(*https.DeepCopy())}
	r.apply(change(set, object.ListenerSet))
	if said := r.accepted("web", "l7"); !strings.Contains(said, "gets 404 where 421 is meant") {
		t.Errorf("one more: %s", said)
	}
	r.apply(object.Change{Key: object.Key{Kind: object.ListenerSet, Namespace: "infra", Name: "one-more"}})
	if said := r.accepted("web", "l7"); said != "the listener is valid" {
		t.Errorf("one less: %s", said)
	}
}
