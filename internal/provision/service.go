// Package provision makes what a shared Gateway needs beside configuration: a Service in
// front of the shared pool, which maps the Gateway's ports to internal ones that no other
// Gateway has. The Services are also the record of what was allocated, so there is nothing
// else to keep: what was handed out is what the API server has.
package provision

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

// maxLabelValue is how long the value of a label may be.
const maxLabelValue = 63

// Plan is what is to be done.
type Plan struct {
	Apply  []*coreac.ServiceApplyConfiguration // that do not exist or are not as wanted
	Delete []string                            // names of ours that are nobody's any more
	Lacks  map[key.Name]string                 // why a Gateway cannot have what it needs
}

// Services decides which Services there are to be in the release namespace, where selector
// finds the shared proxies. existing is every Service of that namespace: those that are not
// ours are left alone, and a Gateway whose name one of them has goes without.
func Services(namespace string, selector map[string]string, wanted []front.Front, existing []*corev1.Service) Plan {
	p := Plan{Lacks: map[key.Name]string{}}
	there := map[string]*corev1.Service{}
	for _, s := range existing {
		there[s.Name] = s
	}
	wanted = slices.SortedFunc(slices.Values(wanted), func(a, b front.Front) int { return a.Gateway.Compare(b.Gateway) })
	ports := allocated(wanted, there)
	used := map[string]bool{}
	for _, gw := range wanted {
		name := front.Name(gw.Gateway, gw.Class)
		now := there[name]
		if now != nil && !front.Ours(now, gw.Gateway) {
			p.Lacks[gw.Gateway] = fmt.Sprintf("Service %s/%s exists and is not this Gateway's", namespace, name)
			continue
		}
		used[name] = true
		mapped, ok := ports.of(gw)
		if !ok {
			p.Lacks[gw.Gateway] = fmt.Sprintf("every internal port from %d to %d is taken", front.FirstPort, front.LastPort)
			continue
		}
		if len(mapped) == 0 { // a Service must have a port
			if now != nil {
				p.Delete = append(p.Delete, name)
			}
			continue
		}
		next := service(gw, namespace, name, selector, mapped)
		if now == nil || !has(now, next) {
			p.Apply = append(p.Apply, next)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if s := there[name]; s.Labels[front.ManagedByLabel] == front.FieldManager && s.Annotations[front.OfAnnotation] != "" && !used[name] {
			p.Delete = append(p.Delete, name)
		}
	}
	return p
}

// allocation is which internal ports are whose.
type allocation struct {
	kept  map[key.Name]map[uint32]uint32 // of each Gateway: by its own port
	taken map[uint32]bool
	next  uint32
}

// allocated reads the allocation out of the Services. Should two have one internal port,
// the older keeps it.
func allocated(wanted []front.Front, there map[string]*corev1.Service) *allocation {
	a := &allocation{kept: map[key.Name]map[uint32]uint32{}, taken: map[uint32]bool{}, next: front.FirstPort}
	type owner struct {
		gw  key.Name
		own map[uint32]bool
		s   *corev1.Service
	}
	var owners []owner
	for _, gw := range wanted {
		if s := there[front.Name(gw.Gateway, gw.Class)]; s != nil && front.Ours(s, gw.Gateway) {
			own := map[uint32]bool{}
			for _, p := range gw.Ports {
				own[p] = true
			}
			owners = append(owners, owner{gw.Gateway, own, s})
		}
	}
	slices.SortFunc(owners, func(x, y owner) int {
		return cmp.Or(x.s.CreationTimestamp.Compare(y.s.CreationTimestamp.Time), x.gw.Compare(y.gw))
	})
	for _, o := range owners {
		a.kept[o.gw] = map[uint32]uint32{}
		ports := front.Ports(o.s)
		for _, p := range slices.Sorted(maps.Keys(ports)) {
			if o.own[p] && !a.taken[ports[p]] {
				a.taken[ports[p]] = true
				a.kept[o.gw][p] = ports[p]
			}
		}
	}
	return a
}

// of is a Gateway's ports with their internal ones, which are allocated if need be; false
// if there are none left.
func (a *allocation) of(gw front.Front) (map[uint32]uint32, bool) {
	out := map[uint32]uint32{}
	for _, p := range slices.Compact(slices.Sorted(slices.Values(gw.Ports))) {
		if kept, has := a.kept[gw.Gateway][p]; has {
			out[p] = kept
			continue
		}
		for a.next <= front.LastPort && a.taken[a.next] {
			a.next++
		}
		if a.next > front.LastPort {
			return nil, false
		}
		a.taken[a.next] = true
		out[p] = a.next
	}
	return out, true
}

// service is the Service as it is to be.
func service(gw front.Front, namespace, name string, selector map[string]string, mapped map[uint32]uint32) *coreac.ServiceApplyConfiguration {
	labels := maps.Clone(gw.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[front.ManagedByLabel] = front.FieldManager
	labels[gatewayv1.GatewayNameLabelKey] = label(gw.Gateway.Name)
	labels[gatewayv1.GatewayClassNameLabelKey] = label(gw.Class)
	annotations := maps.Clone(gw.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[front.OfAnnotation] = gw.Gateway.String()
	spec := coreac.ServiceSpec().WithType(gw.Type).WithSelector(selector)
	for _, p := range slices.Sorted(maps.Keys(mapped)) {
		spec.WithPorts(coreac.ServicePort().WithName(fmt.Sprintf("p%d", p)).WithProtocol(corev1.ProtocolTCP).
			WithPort(int32(p)).WithTargetPort(intstr.FromInt32(int32(mapped[p]))))
	}
	if gw.Type == corev1.ServiceTypeLoadBalancer {
		spec.WithAllocateLoadBalancerNodePorts(false)
		if gw.LoadBalancerClass != "" {
			spec.WithLoadBalancerClass(gw.LoadBalancerClass)
		}
		if gw.ExternalTrafficPolicy != "" {
			spec.WithExternalTrafficPolicy(gw.ExternalTrafficPolicy)
		}
		if gw.Address != "" {
			spec.WithLoadBalancerIP(gw.Address)
		}
	}
	return coreac.Service(name, namespace).WithLabels(labels).WithAnnotations(annotations).WithSpec(spec)
}

// label is a name as a label's value, which is shorter than an object's name may be.
func label(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	return front.Cut(name, name, maxLabelValue)
}

// has reports whether a Service has everything that is wanted of it. What it has beside
// that is others' or the API server's.
func has(now *corev1.Service, want *coreac.ServiceApplyConfiguration) bool {
	spec := want.Spec
	switch {
	case !includes(now.Labels, want.Labels), !includes(now.Annotations, want.Annotations), !maps.Equal(now.Spec.Selector, spec.Selector),
		now.Spec.Type != *spec.Type, len(now.Spec.Ports) != len(spec.Ports):
		return false
	case spec.LoadBalancerClass != nil && (now.Spec.LoadBalancerClass == nil || *now.Spec.LoadBalancerClass != *spec.LoadBalancerClass),
		spec.ExternalTrafficPolicy != nil && now.Spec.ExternalTrafficPolicy != *spec.ExternalTrafficPolicy,
		spec.LoadBalancerIP != nil && now.Spec.LoadBalancerIP != *spec.LoadBalancerIP:
		return false
	}
	for i := range spec.Ports {
		is, want := now.Spec.Ports[i], spec.Ports[i]
		if is.Name != *want.Name || is.Port != *want.Port || is.TargetPort != *want.TargetPort {
			return false
		}
	}
	return true
}

func includes(all, some map[string]string) bool {
	for k, v := range some {
		if all[k] != v {
			return false
		}
	}
	return true
}
