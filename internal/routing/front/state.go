package front

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/routing/key"
)

// State is what a Service in front of a Gateway says. The zero State is of one that is not
// there, or is not that Gateway's.
type State struct {
	There      bool
	Ports      map[uint32]uint32 // the internal port of each of the Gateway's
	Addresses  []string          // at which it is reached; empty: it is not known yet
	Superseded bool              // the other one counts
	Retired    bool              // and this one is published no more
	Parameters string            // by which the Gateway was served last
}

// Read reads the Service in front of a Gateway; nil: there is none of that name.
func Read(s *corev1.Service, gw key.Name) State {
	if s == nil || !Ours(s, gw) {
		return State{}
	}
	return State{
		There: true, Ports: Ports(s), Addresses: Addresses(s),
		Superseded: s.Annotations[SupersededAnnotation] != "", Retired: s.Annotations[RetiredAnnotation] != "",
		Parameters: s.Annotations[ParametersAnnotation],
	}
}

// Ours reports whether an object that has the name of one in front of a Gateway is what we made
// for it. Label and annotation say so each by itself, as somebody may have taken the other
// off, for which the Gateway is not to go away; it is put back. The label alone does not if the
// annotation names another Gateway.
func Ours(o metav1.Object, gw key.Name) bool {
	of, named := o.GetAnnotations()[OfAnnotation]
	if !named {
		return o.GetLabels()[ManagedByLabel] == FieldManager
	}
	return of == gw.String()
}

// Ports is the internal port of each of a Gateway's ports, as its Service has them.
func Ports(s *corev1.Service) map[uint32]uint32 {
	out := map[uint32]uint32{}
	for _, p := range s.Spec.Ports {
		if in := p.TargetPort.IntValue(); p.Port > 0 && in >= FirstPort && in <= LastPort {
			out[uint32(p.Port)] = uint32(in)
		}
	}
	return out
}

// Addresses is where a Service is reached: the addresses of its load balancer, IPs or host
// names, or its own in the cluster if it has none to wait for. Empty: it is not known yet.
func Addresses(s *corev1.Service) []string {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return slices.DeleteFunc(slices.Clone(s.Spec.ClusterIPs), func(ip string) bool { return ip == corev1.ClusterIPNone })
	}
	var out []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		switch {
		case in.IP != "":
			out = append(out, in.IP)
		case in.Hostname != "":
			out = append(out, in.Hostname)
		}
	}
	return out
}
