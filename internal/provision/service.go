package provision

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/provision/pod"
	"aether.io/aether/internal/routing/front"
)

// service is the Service as it is to be.
func service(s slot, shared map[string]string, mapped map[uint32]uint32, stamps map[string]string) *coreac.ServiceApplyConfiguration {
	labels := maps.Clone(s.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[front.ManagedByLabel] = front.FieldManager
	labels[gatewayv1.GatewayNameLabelKey] = front.Label(s.Gateway.Name)
	labels[gatewayv1.GatewayClassNameLabelKey] = front.Label(s.Class)
	annotations := map[string]string{}
	for _, m := range []map[string]string{s.ServiceAnnotations, s.Annotations, stamps} {
		maps.Copy(annotations, m)
	}
	for _, ours := range []string{front.SupersededAnnotation, front.RetiredAnnotation} {
		if _, is := stamps[ours]; !is { // nobody else says so
			delete(annotations, ours)
		}
	}
	annotations[front.OfAnnotation] = s.Gateway.String()
	annotations[front.ParametersAnnotation] = s.Parameters
	selector := shared
	if s.own {
		selector = pod.Selector(s.Gateway, s.Class)
	}
	spec := coreac.ServiceSpec().WithType(s.Type).WithSelector(selector)
	for _, p := range slices.Sorted(maps.Keys(mapped)) {
		spec.WithPorts(coreac.ServicePort().WithName(fmt.Sprintf("p%d", p)).WithProtocol(corev1.ProtocolTCP).
			WithPort(int32(p)).WithTargetPort(intstr.FromInt32(int32(mapped[p]))))
	}
	if s.Type == corev1.ServiceTypeLoadBalancer {
		spec.WithAllocateLoadBalancerNodePorts(false)
		if s.LoadBalancerClass != "" {
			spec.WithLoadBalancerClass(s.LoadBalancerClass)
		}
		if s.ExternalTrafficPolicy != "" {
			spec.WithExternalTrafficPolicy(s.ExternalTrafficPolicy)
		}
		if s.Address != "" {
			spec.WithLoadBalancerIP(s.Address)
		}
	}
	out := coreac.Service(s.at.Name, s.at.Namespace).WithLabels(labels).WithAnnotations(annotations).WithSpec(spec)
	if s.own {
		out.WithOwnerReferences(metaac.OwnerReference().WithAPIVersion(gatewayv1.GroupVersion.String()).WithKind("Gateway").
			WithName(s.Gateway.Name).WithUID(s.UID).WithController(true))
	}
	return out
}

// has reports whether a Service has everything that is wanted of it. What it has beside
// that is others' or the API server's.
func has(now *corev1.Service, want *coreac.ServiceApplyConfiguration) bool {
	spec := want.Spec
	switch {
	case !includes(now.Labels, want.Labels), !includes(now.Annotations, want.Annotations), !maps.Equal(now.Spec.Selector, spec.Selector),
		now.Spec.Type != *spec.Type, len(now.Spec.Ports) != len(spec.Ports), !owned(now, want):
		return false
	case spec.LoadBalancerClass != nil && (now.Spec.LoadBalancerClass == nil || *now.Spec.LoadBalancerClass != *spec.LoadBalancerClass),
		spec.ExternalTrafficPolicy != nil && now.Spec.ExternalTrafficPolicy != *spec.ExternalTrafficPolicy,
		spec.LoadBalancerIP != nil && now.Spec.LoadBalancerIP != *spec.LoadBalancerIP:
		return false
	}
	for _, ours := range []string{front.SupersededAnnotation, front.RetiredAnnotation} {
		if now.Annotations[ours] != want.Annotations[ours] {
			return false
		}
	}
	for i := range spec.Ports {
		is, want := now.Spec.Ports[i], spec.Ports[i]
		if is.Protocol != *want.Protocol || is.Name != *want.Name || is.Port != *want.Port || is.TargetPort != *want.TargetPort {
			return false
		}
	}
	return true
}

// operation is one of a JSON patch, RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// withoutOthersPorts is the patch that takes off a Service the ports that are not wanted, none of
// which leads anywhere but to our proxies; nil: there are none. It is refused if the Service is not
// as it was read: which port is which is a matter of their order.
func withoutOthersPorts(now *corev1.Service, want *coreac.ServiceApplyConfiguration) []operation {
	var off []operation
	for i, is := range slices.Backward(now.Spec.Ports) { // so that those before keep their place
		wanted := slices.ContainsFunc(want.Spec.Ports, func(p coreac.ServicePortApplyConfiguration) bool {
			return *p.Port == is.Port && *p.Protocol == is.Protocol
		})
		if !wanted {
			off = append(off, operation{Op: "remove", Path: fmt.Sprintf("/spec/ports/%d", i)})
		}
	}
	if off == nil {
		return nil
	}
	return append([]operation{{Op: "test", Path: "/metadata/resourceVersion", Value: now.ResourceVersion}}, off...)
}

// owned reports whether a Service has the owner that it is to have.
func owned(now *corev1.Service, want *coreac.ServiceApplyConfiguration) bool {
	for _, w := range want.OwnerReferences {
		if !slices.ContainsFunc(now.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == *w.UID }) {
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
