package analyze

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

// systemTrust is where proxies have the system's authorities by default.
const systemTrust = "/etc/ssl/certs/ca-certificates.crt"

// route runs the graph over the objects, and tells what it would say of them.
func (a *analysis) route() error {
	var asked []string
	for _, o := range a.objects {
		if gw, is := o.(*gatewayv1.Gateway); is {
			for _, at := range gw.Spec.Addresses {
				asked = append(asked, at.Value) // which of them an installation has is not known
			}
		}
	}
	slices.Sort(asked)
	graph, err := routing.New(routing.Config{
		ControllerName: a.c.ControllerName, ReleaseNamespace: a.c.ReleaseNamespace, Address: "0.0.0.0",
		PublishAddresses: append([]string{documentation}, asked...), PortOffset: a.c.PortOffset,
		Fronts: !a.c.Standalone, Pooled: a.c.Standalone, TrustFile: systemTrust, System: a.c.System,
		SharedMemory: routing.DefaultSharedMemory, // what an installation has is not known
	})
	if err != nil {
		return fmt.Errorf("make a routing graph: %w", err)
	}
	a.graph, a.statuses, a.tables = graph, map[object.Key]routing.Status{}, map[placed]*resource.Resource{}
	changes := make([]object.Change, 0, len(a.objects))
	for _, k := range slices.SortedFunc(maps.Keys(a.objects), object.Key.Compare) {
		changes = append(changes, object.Change{Key: k, Object: a.objects[k]})
	}
	wanted := a.apply(changes).Fronts
	if !a.c.Live && !a.c.Standalone {
		a.apply(a.fronts(wanted))
	}
	for _, k := range slices.SortedFunc(maps.Keys(a.statuses), object.Key.Compare) {
		a.translate(a.statuses[k])
	}
	return nil
}

// apply has the graph take changes in, and takes over what comes out.
func (a *analysis) apply(changes []object.Change) routing.Delta {
	d := a.graph.Apply(changes)
	for in, w := range d.Worlds {
		for _, r := range w.Changed {
			if r.TypeURL == envoy.ScopedRouteType {
				a.tables[placed{in, r.Name}] = r
			}
		}
		for _, n := range w.Removed {
			delete(a.tables, placed{in, n})
		}
	}
	for _, s := range d.Statuses {
		if s.Value == nil {
			delete(a.statuses, s.Key)
		} else {
			a.statuses[s.Key] = s
		}
	}
	return d
}

// fronts are the Services that a controller would make in front of Gateways, with addresses
// as they ask for them. The names of those that are in the way are left to the others.
func (a *analysis) fronts(wanted map[key.Name]*front.Front) []object.Change {
	var out []object.Change
	next := int32(front.FirstPort)
	for _, gw := range slices.SortedFunc(maps.Keys(wanted), key.Name.Compare) {
		f := wanted[gw]
		if f == nil || f.Keep {
			continue
		}
		at := object.Key{Kind: object.Service, Namespace: a.c.ReleaseNamespace, Name: front.SharedName(gw, f.Class)}
		if f.Dedicated {
			at.Namespace, at.Name = gw.Namespace, front.OwnName(gw, f.Class)
		}
		if _, taken := a.objects[at]; taken {
			continue
		}
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: at.Namespace, Name: at.Name,
				Labels:      map[string]string{front.ManagedByLabel: front.FieldManager},
				Annotations: map[string]string{front.OfAnnotation: gw.String(), front.ParametersAnnotation: f.Parameters},
			},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIPs: []string{documentation}},
		}
		if f.Address != "" {
			s.Spec.ClusterIPs = []string{f.Address}
		}
		for _, port := range f.Ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
				Name: fmt.Sprintf("p%d", port), Port: int32(port), Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(next),
			})
			next++
		}
		out = append(out, object.Change{Key: at, Object: s})
	}
	return out
}
