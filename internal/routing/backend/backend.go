// Package backend reads Services and EndpointSlices as what routes send requests to.
// It is given objects and finds none itself.
package backend

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
)

// Port is one port of one Service, as far as routes and clusters need it.
type Port struct {
	Invalid  condition.Problem // it cannot be a backend; the rest is zero then
	Name     string
	Protocol envoy.Protocol
}

// ReadPort finds the port in its Service; nil is a Service that does not exist.
func ReadPort(k key.Service, s *corev1.Service) Port {
	switch {
	case s == nil:
		return Port{Invalid: condition.Problemf(gatewayv1.RouteReasonBackendNotFound, "Service %s does not exist", k.Service)}
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return Port{Invalid: condition.Problemf(gatewayv1.RouteReasonInvalidKind, "Service %s is of type ExternalName, which is not supported", k.Service)}
	}
	for _, p := range s.Spec.Ports {
		if p.Port != int32(k.Port) || p.Protocol != "" && p.Protocol != corev1.ProtocolTCP {
			continue
		}
		switch ptr.Deref(p.AppProtocol, "") {
		case "", "http", "kubernetes.io/ws": // WebSocket is an upgrade of HTTP/1.1
			return Port{Name: p.Name, Protocol: envoy.HTTP1}
		case "kubernetes.io/h2c":
			return Port{Name: p.Name, Protocol: envoy.HTTP2}
		}
		return Port{Invalid: condition.Problemf(gatewayv1.RouteReasonUnsupportedProtocol, "Service %s port %d: appProtocol %s is not supported", k.Service, k.Port, *p.AppProtocol)}
	}
	return Port{Invalid: condition.Problemf(gatewayv1.RouteReasonBackendNotFound, "Service %s has no TCP port %d", k.Service, k.Port)}
}

// Endpoints is the ready addresses of a slice at the Service's port of that name, in no
// order. A slice's ports bear the names of the Service's, and the numbers of the pods'.
func Endpoints(s *discoveryv1.EndpointSlice, port string) []envoy.Address {
	number := portNumber(s, port)
	if number < 1 || number > 65535 {
		return nil
	}
	var list []envoy.Address
	for _, e := range s.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		for _, a := range e.Addresses {
			// Not every AddressType is an IP, and a slice made by hand may hold anything.
			ip, err := netip.ParseAddr(a)
			if ip = ip.Unmap(); err == nil && ip.Zone() == "" && !ip.IsUnspecified() {
				list = append(list, envoy.Address{IP: ip.String(), Port: uint32(number)})
			}
		}
	}
	return list
}

func portNumber(s *discoveryv1.EndpointSlice, port string) int32 {
	for _, p := range s.Ports {
		if ptr.Deref(p.Name, "") == port && p.Port != nil && (p.Protocol == nil || *p.Protocol == corev1.ProtocolTCP) {
			return *p.Port
		}
	}
	return 0
}

// Sorted is addresses in order, each once.
func Sorted(list []envoy.Address) []envoy.Address {
	slices.SortFunc(list, func(a, b envoy.Address) int {
		return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(list)
}
