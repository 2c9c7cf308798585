package routing

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/scope"
)

func gatewayStatus(t *testing.T, r *replica, k object.Key) *gatewayv1.GatewayStatus {
	t.Helper()
	v, ok := r.statuses[k].Value.(*gatewayv1.GatewayStatus)
	if !ok {
		t.Fatalf("%s has status %T", k, r.statuses[k].Value)
	}
	return v
}

func programmedReason(list []metav1.Condition) string {
	for _, c := range list {
		if c.Type == "Programmed" {
			return c.Reason
		}
	}
	return "nothing"
}

// A shared Gateway on Kubernetes is reached through a Service that somebody makes because it
// is wanted: it is bound where that maps its ports to, and not before.
func TestAGatewayBehindAServiceIsBoundWhereThatMapsItsPorts(t *testing.T) {
	config := testConfig()
	config.Fronts = true
	g, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, graph: g, worlds: map[scope.Scope]map[resource.Name]*resource.Resource{}, statuses: map[object.Key]Status{}}
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "coxswain", Generation: 1}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "config.aether.io/gateway-controller"}}
	gw := &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "coxswain",
			Infrastructure:   &gatewayv1.GatewayInfrastructure{Labels: map[gatewayv1.LabelKey]gatewayv1.LabelValue{"team": "a"}},
			Addresses:        []gatewayv1.GatewaySpecAddress{{Value: "192.0.2.1"}},
			Listeners: []gatewayv1.Listener{
				{Name: "web", Port: 80, Protocol: gatewayv1.HTTPProtocolType},
				{Name: "more", Port: 8080, Protocol: gatewayv1.HTTPProtocolType},
				{Name: "odd", Port: 99, Protocol: "example.com/odd"},
			},
		},
	}
	n := key.Name{Namespace: "shop", Name: "web"}
	d := r.apply(change(class, object.GatewayClass), change(gw, object.Gateway))
	want := d.Fronts[n]
	if want == nil || !slices.Equal(want.Ports, []uint32{80, 8080}) || want.Address != "192.0.2.1" || want.Labels["team"] != "a" || want.Type != corev1.ServiceTypeLoadBalancer {
		t.Fatalf("wanted in front: %+v", want)
	}
	status := gatewayStatus(t, r, n.Object(object.Gateway))
	if got := programmedReason(status.Conditions); got != "AddressNotUsable" {
		t.Errorf("Programmed is %s without the address that is asked for", got)
	}
	modest := gw.DeepCopy()
	modest.Spec.Addresses = nil
	r.apply(change(modest, object.Gateway))
	if got := programmedReason(gatewayStatus(t, r, n.Object(object.Gateway)).Conditions); got != "AddressNotAssigned" {
		t.Errorf("Programmed is %s without an address, where any will do", got)
	}
	r.apply(change(gw, object.Gateway))
	if got := programmedReason(status.Listeners[0].Conditions); got != "Pending" {
		t.Errorf("a listener's Programmed is %s without a Service", got)
	}
	if len(listeners(r)) > 0 {
		t.Errorf("listeners are bound without a Service: %v", listeners(r))
	}

	// Somebody else's Service of that name maps nothing.
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "aether-system", Name: front.SharedName(n, "coxswain"), Generation: 1},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeLoadBalancer,
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(12345)}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
	}
	r.apply(change(service, object.Service))
	if len(listeners(r)) > 0 {
		t.Errorf("a Service that is not ours maps ports: %v", listeners(r))
	}

	// Ours does, as far as it goes.
	ours := service.DeepCopy()
	ours.Labels, ours.Annotations = map[string]string{front.ManagedByLabel: front.FieldManager}, map[string]string{front.OfAnnotation: n.String()}
	if d := r.apply(change(ours, object.Service)); len(d.Fronts) > 0 {
		t.Errorf("what is wanted in front changed with what is there: %v", d.Fronts)
	}
	if got := listeners(r); !slices.Equal(got, []string{"shop/web/80"}) {
		t.Errorf("listeners %v, want that of port 80", got)
	}
	status = gatewayStatus(t, r, n.Object(object.Gateway))
	if len(status.Addresses) != 1 || status.Addresses[0].Value != "192.0.2.1" {
		t.Errorf("addresses %v", status.Addresses)
	}
	if got := r.statuses[n.Object(object.Gateway)].Live; len(got) != 1 || got[0].Port != 12345 {
		t.Errorf("what must be live is %+v, want port 12345", got)
	}
	if got := programmedReason(status.Listeners[1].Conditions); got != "Pending" {
		t.Errorf("the listener whose port is not mapped: Programmed is %s", got)
	}

	// Another address than was asked for is no use.
	other := ours.DeepCopy()
	other.Status.LoadBalancer.Ingress[0].IP = "192.0.2.2"
	r.apply(change(other, object.Service))
	if got := programmedReason(gatewayStatus(t, r, n.Object(object.Gateway)).Conditions); got != "AddressNotUsable" {
		t.Errorf("Programmed is %s with another address", got)
	}

	// What is gone is wanted no more.
	if d := r.apply(object.Change{Key: n.Object(object.Gateway)}); len(d.Fronts) != 1 || d.Fronts[n] != nil {
		t.Errorf("fronts %v, want an end", d.Fronts)
	}
}

// listeners is the names of the listeners of the shared pool.
func listeners(r *replica) []string {
	var out []string
	for n := range r.worlds[scope.SharedPool()] {
		if n.TypeURL == "type.googleapis.com/envoy.config.listener.v3.Listener" {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}
