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

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/scope"
)

// tenant is a route of a namespace for one host, with as many regular expressions as it says.
func tenant(namespace string, i, patterns int) *gatewayv1.HTTPRoute {
	r := townRoute(i, 1)
	r.Namespace, r.CreationTimestamp = namespace, metav1.NewTime(time.Unix(int64(1000+i), 0))
	r.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("h%d.%s.example.com", i, namespace))}
	rule := &r.Spec.Rules[0]
	rule.Matches = nil
	for range patterns {
		rule.Matches = append(rule.Matches, gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{
			Type: ptr.To(gatewayv1.PathMatchRegularExpression), Value: ptr.To("/" + strings.Repeat("[a-z]", 200)),
		}})
	}
	return r
}

// leftOut is the routes for which there is no room, and served the hosts of a scope.
func leftOut(t *testing.T, r *replica) (out []string) {
	t.Helper()
	for k, s := range r.statuses {
		v, is := s.Value.(*gatewayv1.HTTPRouteStatus)
		if !is {
			continue
		}
		for _, c := range v.Parents[0].Conditions {
			if c.Reason != string(report.ReasonTooMuch) {
				continue
			}
			if c.Type != "Accepted" || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "i of the memory") || len(s.Live) > 0 {
				t.Errorf("%s: %+v, live: %v", k, c, s.Live)
			}
			out = append(out, k.Namespace+"/"+k.Name)
		}
	}
	slices.Sort(out)
	return out
}

// mentions reports whether anything that is served in a scope has the text in it.
func mentions(r *replica, in scope.Scope, text string) bool {
	for n, res := range r.worlds[in] {
		if n.TypeURL == envoy.ScopedRouteType && strings.Contains(string(res.Payload), text) {
			return true
		}
	}
	return false
}

func requireLeftOut(t *testing.T, r *replica, want ...string) {
	t.Helper()
	if got := leftOut(t, r); !slices.Equal(got, want) {
		t.Fatalf("left out: %v, want %v", got, want)
	}
}

func TestTheNewestRoutesOfANamespaceHaveNoRoomInSharedProxies(t *testing.T) {
	c := testConfig()
	c.SharedMemory = 1_000_000 // for three of the routes, of some 270 kB in two tables
	r := newReplicaOf(t, c)
	r.apply(town(0)...)
	for i := range 5 {
		r.apply(change(tenant("red", 4-i, 10), object.HTTPRoute)) // the newest first
	}
	r.apply(change(tenant("blue", 9, 10), object.HTTPRoute))
	requireLeftOut(t, r, "red/r3", "red/r4")
	for i, served := range []bool{true, true, true, false, false} {
		if host := fmt.Sprintf("h%d.red.example.com", i); mentions(r, scope.SharedPool(), host) != served {
			t.Errorf("%s: served: %t, want %t", host, !served, served)
		}
	}
	if s := r.statuses[change(townGateway(), object.Gateway).Key].Value.(*gatewayv1.GatewayStatus); s.Listeners[0].AttachedRoutes != 4 {
		t.Errorf("%d routes are attached, want 4", s.Listeners[0].AttachedRoutes)
	}

	r.apply(change(tenant("red", 0, 1), object.HTTPRoute)) // makes room
	requireLeftOut(t, r, "red/r4")
	r.apply(object.Change{Key: change(tenant("red", 1, 0), object.HTTPRoute).Key})
	requireLeftOut(t, r)
	r.apply(change(tenant("red", 0, 100), object.HTTPRoute)) // more than there is: nobody else's room
	requireLeftOut(t, r, "red/r0")
	if !mentions(r, scope.SharedPool(), "h9.blue.example.com") {
		t.Error("another namespace's route is not served")
	}
}

func TestManyGatewaysGiveNoMoreRoom(t *testing.T) {
	c := testConfig()
	c.SharedMemory = 500_000
	r := newReplicaOf(t, c)
	r.apply(town(0)...)
	for i := range 5 {
		gw := townGateway()
		gw.Namespace, gw.Name = "red", fmt.Sprintf("own-%d", i)
		gw.Spec.Listeners = gw.Spec.Listeners[:1]
		gw.Spec.Listeners[0].Port = gatewayv1.PortNumber(8000 + i)
		route := tenant("red", i, 10)
		route.Spec.ParentRefs[0].Namespace, route.Spec.ParentRefs[0].Name = nil, gatewayv1.ObjectName(gw.Name)
		r.apply(change(gw, object.Gateway), change(route, object.HTTPRoute))
	}
	if got := leftOut(t, r); len(got) == 0 || got[len(got)-1] != "red/r4" {
		t.Errorf("left out: %v, want the newest", got)
	}
}

func TestProxiesOfItsOwnHaveRoomForAll(t *testing.T) {
	c := testConfig()
	c.SharedMemory = 100_000
	r := newReplicaOf(t, c)
	r.apply(town(0)...)
	own := &configv1.GatewayParameters{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "own"}}
	own.Spec.Mode = ptr.To(configv1.GatewayModeDedicated)
	gw := townGateway()
	gw.Spec.Infrastructure = &gatewayv1.GatewayInfrastructure{ParametersRef: &gatewayv1.LocalParametersReference{
		Group: configv1.GroupName, Kind: configv1.KindGatewayParameters, Name: "own",
	}}
	route := change(tenant("red", 1, 10), object.HTTPRoute)
	r.apply(route)
	requireLeftOut(t, r, "red/r1")
	r.apply(change(own, object.GatewayParameters), change(gw, object.Gateway))
	requireLeftOut(t, r)
	in, err := scope.Gateway("infra", "web")
	if err != nil {
		t.Fatal(err)
	}
	if !mentions(r, in, "h1.red.example.com") {
		t.Error("the route is not served")
	}
}

func TestFiveThousandOrdinaryRoutesHaveRoom(t *testing.T) {
	r := newReplica(t)
	r.apply(town(5000)...)
	requireLeftOut(t, r)
}

// largeRoutes is what the definitions admit: 120 routes of 16 hosts with 128 regular expressions
// each, over a gigabyte in Envoy, with something done to each of their rules.
func largeRoutes(do func(*gatewayv1.HTTPRouteRule)) (changes []object.Change) {
	for i := range 120 {
		route := tenant("red", i, 0)
		route.Spec.Hostnames = nil
		for h := range 16 {
			route.Spec.Hostnames = append(route.Spec.Hostnames, gatewayv1.Hostname(fmt.Sprintf("h%d-%d.example.com", i, h)))
		}
		rule := route.Spec.Rules[0]
		do(&rule)
		route.Spec.Rules = nil
		for n := range 16 {
			rule.Matches = nil
			for m := range 8 {
				rule.Matches = append(rule.Matches, gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{
					Type: ptr.To(gatewayv1.PathMatchRegularExpression), Value: ptr.To(fmt.Sprintf("/%d/%d/[a-z]+/[0-9]+", n, m)),
				}})
			}
			route.Spec.Rules = append(route.Spec.Rules, rule)
		}
		changes = append(changes, change(route, object.HTTPRoute))
	}
	return changes
}

func TestRoutesThatDefinitionsAdmitCannotTakeAllMemory(t *testing.T) {
	r := newReplica(t)
	r.apply(town(0)...)
	r.apply(largeRoutes(func(*gatewayv1.HTTPRouteRule) {})...)
	out := leftOut(t, r)
	if len(out) < 60 || slices.Contains(out, "red/r0") || !slices.Contains(out, "red/r119") {
		t.Errorf("%d routes are left out, want most, and not the oldest", len(out))
	}
}

// TestRoutesOfUnsupportedRulesNeedRoomToo is of routes that are not accepted, but whose matches
// are answered all the same, with an error.
func TestRoutesOfUnsupportedRulesNeedRoomToo(t *testing.T) {
	r := newReplica(t)
	r.apply(town(0)...)
	routes := largeRoutes(func(rule *gatewayv1.HTTPRouteRule) { rule.Retry = &gatewayv1.HTTPRouteRetry{} })
	r.apply(routes...)
	served := 0
	for i, c := range routes {
		for _, cond := range r.statuses[c.Key].Value.(*gatewayv1.HTTPRouteStatus).Parents[0].Conditions {
			if cond.Type == "Accepted" && (cond.Status != metav1.ConditionFalse || cond.Reason != string(gatewayv1.RouteReasonUnsupportedValue)) {
				t.Errorf("route %d: %+v", i, cond)
			}
		}
		if mentions(r, scope.SharedPool(), fmt.Sprintf("h%d-0.example.com", i)) {
			served++
		}
	}
	if served == 0 || served > 60 || mentions(r, scope.SharedPool(), "h119-0.example.com") {
		t.Errorf("%d routes are served, want some, and not the newest", served)
	}
}
