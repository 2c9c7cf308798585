package backend

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/utils/ptr"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/routing/key"
)

// Endpoints is the addresses of one Service's port, gathered from its EndpointSlices.
type Endpoints struct {
	ready   []envoy.Address
	leaving []envoy.Address // terminating, and serving still
	slices  int             // that were added
	ported  int             // those that have the port
}

// Add takes in a slice's addresses at the Service's port of that name, and reports whether
// it had any. A slice's ports bear the names of the Service's, and the numbers of the
// pods'; each slice has its own.
func (e *Endpoints) Add(s *discoveryv1.EndpointSlice, port string) bool {
	e.slices++
	number := portNumber(s, port)
	if number < 1 || number > 65535 {
		return false
	}
	e.ported++
	found := false
	for i := range s.Endpoints {
		to := e.list(s.Endpoints[i].Conditions)
		if to == nil {
			continue
		}
		for _, a := range s.Endpoints[i].Addresses {
			// Names (addressType FQDN) are left out: what they resolve to is not the
			// cluster's to say. A slice made by hand may hold anything.
			ip, err := netip.ParseAddr(a)
			if ip = ip.Unmap(); err == nil && ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast() {
				*to = append(*to, podOf(envoy.Address{IP: ip.String(), Port: uint32(number)}, s, i))
				found = true
			}
		}
	}
	return found
}

// podOf adds the pod that the slice says of its endpoint i, if it can be one of its namespace: the
// API takes anything there, and who writes a slice has no say in what is counted for others.
func podOf(a envoy.Address, s *discoveryv1.EndpointSlice, i int) envoy.Address {
	ref := s.Endpoints[i].TargetRef
	if ref == nil || ref.Kind != "Pod" || cmp.Or(ref.Namespace, s.Namespace) != s.Namespace || len(validation.NameIsDNSSubdomain(ref.Name, false)) > 0 {
		return a
	}
	a.Pod, a.Namespace = ref.Name, s.Namespace
	return a
}

// list is where an endpoint of these conditions belongs; nil: nowhere. Not said is ready,
// serving and not terminating.
func (e *Endpoints) list(c discoveryv1.EndpointConditions) *[]envoy.Address {
	switch {
	case ptr.Deref(c.Ready, true):
		return &e.ready
	case ptr.Deref(c.Serving, true) && ptr.Deref(c.Terminating, false):
		return &e.leaving
	}
	return nil
}

// Addresses is those that requests go to, in order, each once: the ready ones. While
// there is none, those that serve though they terminate, as Kubernetes' own proxy does:
// between the last pod's end and the next one's start they are all there is.
func (e *Endpoints) Addresses() []envoy.Address {
	list := e.ready
	if len(list) == 0 {
		list = e.leaving
	}
	slices.SortFunc(list, func(a, b envoy.Address) int {
		return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
	})
	return slices.CompactFunc(list, func(a, b envoy.Address) bool { return a.IP == b.IP && a.Port == b.Port })
}

// Lack is why the Service's port has no address, as its author can mend it; empty if it
// has one.
func (e *Endpoints) Lack(service key.Name, port Port) string {
	switch {
	case len(e.ready)+len(e.leaving) > 0:
		return ""
	case e.slices == 0 && port.Selector:
		return fmt.Sprintf("no EndpointSlice in its namespace is labelled %s: %s, and none is made from its selector", discoveryv1.LabelServiceName, service.Name)
	case e.slices == 0:
		return fmt.Sprintf("no EndpointSlice in its namespace is labelled %s: %s", discoveryv1.LabelServiceName, service.Name)
	case e.ported == 0 && port.Name == "":
		return "no EndpointSlice of it has a TCP port without a name, as the Service's is"
	case e.ported == 0:
		return fmt.Sprintf("no EndpointSlice of it has a TCP port named %s, as the Service's is", port.Name)
	}
	return "none of the addresses in its EndpointSlices is ready"
}

func portNumber(s *discoveryv1.EndpointSlice, port string) int32 {
	for _, p := range s.Ports {
		if ptr.Deref(p.Name, "") == port && p.Port != nil && ptr.Deref(p.Protocol, corev1.ProtocolTCP) == corev1.ProtocolTCP {
			return *p.Port
		}
	}
	return 0
}
