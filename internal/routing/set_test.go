package routing

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

// suburb is a ListenerSet with one listener, a route that attaches to it, and a policy of
// the route's Service.
func suburb(i int) []object.Change {
	name := fmt.Sprintf("set%d", i)
	set := &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 1}}
	set.Spec.ParentRef = gatewayv1.ParentGatewayReference{Name: "web", Namespace: ptr.To[gatewayv1.Namespace]("infra")}
	set.Spec.Listeners = []gatewayv1.ListenerEntry{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType, Hostname: ptr.To(gatewayv1.Hostname(name + ".example.net"))}}
	r := townRoute(i, 1)
	r.Name, r.Spec.Hostnames = name, nil
	r.Spec.ParentRefs = []gatewayv1.ParentReference{{Kind: ptr.To[gatewayv1.Kind]("ListenerSet"), Name: gatewayv1.ObjectName(name)}}
	p := townPolicy(i)
	p.Name = name
	return []object.Change{change(set, object.ListenerSet), change(r, object.HTTPRoute), change(p, object.BackendTLSPolicy)}
}

// A ListenerSet that comes is looked at by what binds the port and by the status of those
// that share it, which is two units for each. The routes of the others, and all that
// comes of them, are left alone.
func TestAListenerSetDoesNotReachTheRoutesOfOthers(t *testing.T) {
	cost := func(n int) (set, route int) {
		r := newReplica(t)
		changes := town(1)
		changes[1].Object.(*gatewayv1.Gateway).Spec.AllowedListeners = &gatewayv1.AllowedListeners{
			Namespaces: &gatewayv1.ListenerNamespaces{From: ptr.To(gatewayv1.NamespacesFromAll)},
		}
		for i := range n {
			changes = append(changes, suburb(i)...)
		}
		r.apply(changes...)
		measure := func(c object.Change) int {
			before := r.graph.units.Runs()
			if d := r.apply(c); len(d.Worlds) == 0 {
				t.Errorf("%s: nothing was handed out", c.Key)
			}
			return r.graph.units.Runs() - before
		}
		next := suburb(n)
		return measure(next[0]), measure(next[1])
	}
	fewSet, fewRoute := cost(10)
	manySet, manyRoute := cost(60)
	if each := float64(manySet-fewSet) / 50; each > 2 {
		t.Errorf("a ListenerSet computes %d units beside 10 others and %d beside 60: %.1f for each other", fewSet, manySet, each)
	}
	if fewRoute != manyRoute {
		t.Errorf("a route computes %d units beside 10 ListenerSets and %d beside 60", fewRoute, manyRoute)
	}
}
