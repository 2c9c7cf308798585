//go:build cluster

package kube_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/status"
	"aether.io/aether/internal/status/kube"
	"aether.io/aether/test/cluster/apiserver"
	"aether.io/aether/test/cluster/build"
)

const (
	ours  = "config.aether.io/gateway-controller"
	other = "example.com/controller"
	route = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: default}
spec: {parentRefs: [{name: web}, {name: foreign}]}
`
)

func shop() object.Key {
	return object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "shop"}
}

// rig is an API server with a route and a sink.
type rig struct {
	*testing.T
	server *apiserver.Server
	client rest.Interface
	sink   *kube.Sink
}

func newRig(t *testing.T) rig {
	t.Helper()
	server := apiserver.Start(t)
	root, err := build.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		input string
		args  []string
	}{
		{"", []string{"apply", "--server-side", "-f", root + "/internal/crd/gateway-api", "-f", root + "/charts/crds/templates"}},
		{"", []string{"wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinition", "--all"}},
		{route, []string{"create", "-f", "-"}},
	} {
		if _, err := server.Kubectl(t.Context(), step.input, step.args...); err != nil {
			t.Fatal(err)
		}
	}
	scheme := runtime.NewScheme()
	if err := gatewayv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	c := rest.CopyConfig(server.Config)
	c.APIPath, c.GroupVersion = "/apis", (*schema.GroupVersion)(&gatewayv1.GroupVersion)
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := kube.New(kube.Config{Client: server.Config, ControllerName: ours, FieldManager: manager})
	if err != nil {
		t.Fatal(err)
	}
	return rig{t, server, client, sink}
}

func (r rig) route() *gatewayv1.HTTPRoute {
	r.Helper()
	var out gatewayv1.HTTPRoute
	if err := r.client.Get().Namespace("default").Resource("httproutes").Name("shop").Do(r.Context()).Into(&out); err != nil {
		r.Fatal(err)
	}
	return &out
}

// foreign writes an entry of another controller, whatever else is there.
func (r rig) foreign(message string) {
	r.Helper()
	for {
		now := r.route()
		entries := []gatewayv1.RouteParentStatus{entry(other, "foreign", message)}
		for _, e := range now.Status.Parents {
			if e.ControllerName != other {
				entries = append(entries, e)
			}
		}
		now.Status.Parents = entries
		err := r.client.Put().Namespace("default").Resource("httproutes").Name("shop").SubResource("status").Body(now).Do(r.Context()).Error()
		if err == nil {
			return
		}
	}
}

func entry(controller, parent, message string) gatewayv1.RouteParentStatus {
	return gatewayv1.RouteParentStatus{
		ControllerName: gatewayv1.GatewayController(controller), ParentRef: gatewayv1.ParentReference{Name: gatewayv1.ObjectName(parent)},
		Conditions: []metav1.Condition{{
			Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", Message: message,
			LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)), ObservedGeneration: 1,
		}},
	}
}

func document(message string) status.Document {
	return status.Document{Key: shop(), Generation: 1, Status: &gatewayv1.HTTPRouteStatus{
		RouteStatus: gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{entry(ours, "web", message)}},
	}}
}

func (r rig) messages() map[string]string {
	r.Helper()
	out := map[string]string{}
	for _, e := range r.route().Status.Parents {
		out[string(e.ControllerName)] = e.Conditions[0].Message
	}
	return out
}

func TestOnlyOurEntriesAreWritten(t *testing.T) {
	r := newRig(t)
	r.foreign("theirs")
	if wrote, err := r.sink.Write(t.Context(), document("good")); err != nil || !wrote {
		t.Fatalf("written %t, %v", wrote, err)
	}
	if got := r.messages(); got[ours] != "good" || got[other] != "theirs" {
		t.Fatalf("entries %v", got)
	}

	// The same again is not written, also by a process that does not know since when it is so.
	before := r.route()
	later := document("good")
	later.Status.(*gatewayv1.HTTPRouteStatus).Parents[0].Conditions[0].LastTransitionTime = metav1.NewTime(time.Now().Add(time.Hour))
	if wrote, err := r.sink.Write(t.Context(), later); err != nil || wrote {
		t.Fatalf("written %t, %v", wrote, err)
	}
	if after := r.route(); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the same was written again: version %s became %s", before.ResourceVersion, after.ResourceVersion)
	}
	if !r.sink.HasOurs(before) || !r.sink.Shows(before, later) || r.sink.Shows(before, document("other")) {
		t.Errorf("ours %t, shows it %t, shows something else %t", r.sink.HasOurs(before), r.sink.Shows(before, later), r.sink.Shows(before, document("other")))
	}

	// What is ours of a route goes, theirs stays.
	if err := r.sink.Remove(t.Context(), shop(), before.UID); err != nil {
		t.Fatal(err)
	}
	if got := r.messages(); len(got) != 1 || got[other] != "theirs" || r.sink.HasOurs(r.route()) {
		t.Errorf("entries %v, want theirs", got)
	}
}

// What is said of a route is not said of one that took its name, nor of what it was before
// where it has been said of what it is now.
func TestAStatusIsOfOneObjectAndOneGeneration(t *testing.T) {
	r := newRig(t)
	old := r.route()
	d := document("old")
	d.UID = old.UID
	if _, err := r.server.Kubectl(t.Context(), "", "delete", "httproute", "shop"); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"write": last(r.sink.Write(t.Context(), d)), "remove": r.sink.Remove(t.Context(), shop(), old.UID)} {
		if err != nil {
			t.Errorf("%s of an object that is gone: %v", name, err)
		}
	}
	if _, err := r.server.Kubectl(t.Context(), route, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if wrote, err := r.sink.Write(t.Context(), d); err != nil || wrote {
		t.Errorf("written %t (%v) to the route that took its name", wrote, err)
	}
	d.UID = r.route().UID
	if wrote, err := r.sink.Write(t.Context(), d); err != nil || !wrote {
		t.Errorf("written %t (%v) to the route itself", wrote, err)
	}
	if err := r.sink.Remove(t.Context(), shop(), old.UID); err != nil || r.messages()[ours] != "old" {
		t.Errorf("what is said of the new route went with the old one: %v, %v", r.messages(), err)
	}

	if _, err := r.server.Kubectl(t.Context(), "", "patch", "httproute", "shop", "--type=merge", "-p", `{"spec":{"hostnames":["a.example.com"]}}`); err != nil {
		t.Fatal(err)
	}
	newest := document("newest")
	newest.UID, newest.Generation = d.UID, 2
	newest.Status.(*gatewayv1.HTTPRouteStatus).Parents[0].Conditions[0].ObservedGeneration = 2
	for _, of := range []status.Document{newest, d} { // the second comes late
		if _, err := r.sink.Write(t.Context(), of); err != nil {
			t.Fatal(err)
		}
	}
	if got := r.messages()[ours]; got != "newest" {
		t.Errorf("the status says %q of an older generation", got)
	}
}

func last(_ bool, err error) error { return err }

// Two controllers write the same list, which the API does not merge: neither may lose what
// the other wrote.
func TestTwoWritersOfOneListLoseNothing(t *testing.T) {
	r := newRig(t)
	const rounds = 30
	var both sync.WaitGroup
	both.Go(func() {
		for i := range rounds {
			r.foreign(fmt.Sprint(i))
		}
	})
	both.Go(func() {
		for i := range rounds {
			for { // whoever uses a sink tries again what failed
				_, err := r.sink.Write(t.Context(), document(fmt.Sprint(i)))
				if err == nil {
					break
				}
				if !apierrors.IsConflict(err) {
					t.Error(err)
					return
				}
			}
		}
	})
	both.Wait()
	last := fmt.Sprint(rounds - 1)
	if got := r.messages(); got[ours] != last || got[other] != last {
		t.Errorf("entries %v, want %s of both", got, last)
	}
}

// A Gateway that has gone over to another controller keeps what that one has said of it, and
// nothing of what we had. What is left is nothing of ours, so it is not written again.
func TestAGatewayThatIsOursNoMoreKeepsOnlyWhatOthersWrote(t *testing.T) {
	r := newRig(t)
	const gateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: default}
spec: {gatewayClassName: ours, listeners: [{name: http, port: 80, protocol: HTTP}, {name: other, port: 81, protocol: HTTP}]}
`
	if _, err := r.server.Kubectl(t.Context(), gateway, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	web := object.Key{Kind: object.Gateway, Namespace: "default", Name: "web"}
	get := func() *gatewayv1.Gateway {
		t.Helper()
		var out gatewayv1.Gateway
		if err := r.client.Get().Namespace("default").Resource("gateways").Name("web").Do(t.Context()).Into(&out); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	condition := func(kind, reason string, generation int64) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second))}
	}
	listener := func(name gatewayv1.SectionName, generation int64) gatewayv1.ListenerStatus {
		return gatewayv1.ListenerStatus{Name: name, SupportedKinds: []gatewayv1.RouteGroupKind{}, Conditions: []metav1.Condition{condition("Accepted", "Accepted", generation)}}
	}
	address := gatewayv1.GatewayStatusAddress{Value: "192.0.2.1"}
	said := &gatewayv1.GatewayStatus{
		Addresses:  []gatewayv1.GatewayStatusAddress{address},
		Conditions: []metav1.Condition{condition("Accepted", "Accepted", 1), condition("Programmed", "Programmed", 1)},
		Listeners:  []gatewayv1.ListenerStatus{listener("http", 1), listener("other", 1)},
	}
	uid := get().UID
	if r.sink.HasOurs(get()) {
		t.Error("of a new Gateway something is ours")
	}
	if wrote, err := r.sink.Write(t.Context(), status.Document{Key: web, UID: uid, Generation: 1, Status: said}); err != nil || !wrote {
		t.Fatalf("written %t, %v", wrote, err)
	}
	if !r.sink.HasOurs(get()) {
		t.Fatal("of what we wrote nothing is ours")
	}

	// The other has described one condition and one listener so far.
	moved := get()
	moved.Spec.GatewayClassName = "theirs"
	put := func(subresource ...string) {
		t.Helper()
		if err := r.client.Put().Namespace("default").Resource("gateways").Name("web").SubResource(subresource...).Body(moved).Do(t.Context()).Into(moved); err != nil {
			t.Fatal(err)
		}
	}
	put()
	moved.Status.Conditions[0].ObservedGeneration, moved.Status.Listeners[0].Conditions[0].ObservedGeneration = 2, 2
	put("status")
	if err := r.sink.Remove(t.Context(), web, uid); err != nil {
		t.Fatal(err)
	}
	now := get()
	if len(now.Status.Conditions) != 1 || now.Status.Conditions[0].Type != "Accepted" || len(now.Status.Listeners) != 1 || now.Status.Listeners[0].Name != "http" || len(now.Status.Addresses) != 0 {
		t.Errorf("left is %+v", now.Status)
	}
	if r.sink.HasOurs(now) {
		t.Errorf("something is still ours: %+v", now.ManagedFields)
	}

	// Nobody else describes the next: the API server says again that a controller is waited for.
	if wrote, err := r.sink.Write(t.Context(), status.Document{Key: web, UID: uid, Generation: 2, Status: said}); err != nil || !wrote {
		t.Fatalf("written %t, %v", wrote, err)
	}
	if _, err := r.server.Kubectl(t.Context(), "", "delete", "gateway", "web"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.server.Kubectl(t.Context(), gateway, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	uid = get().UID
	if wrote, err := r.sink.Write(t.Context(), status.Document{Key: web, UID: uid, Generation: 1, Status: said}); err != nil || !wrote {
		t.Fatalf("written %t, %v", wrote, err)
	}
	if err := r.sink.Remove(t.Context(), web, uid); err != nil {
		t.Fatal(err)
	}
	now = get()
	if len(now.Status.Conditions) != 2 || now.Status.Conditions[0].Reason != "Pending" || now.Status.Listeners != nil || now.Status.Addresses != nil || r.sink.HasOurs(now) {
		t.Errorf("left is %+v, ours %t", now.Status, r.sink.HasOurs(now))
	}
}
