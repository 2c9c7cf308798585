package envoy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/envoy/wire"
	"aether.io/aether/internal/resource"
)

// Validate tells whether Envoy will take the endpoints. Errors are *InvalidError.
func (e Endpoints) Validate() error {
	return attribute(e.Origin, within("endpoints "+e.Cluster, e.check()))
}

func (e Endpoints) check() error {
	if err := checkClusterName(e.Cluster); err != nil {
		return within("cluster", err)
	}
	for _, a := range e.Addresses {
		if err := check.IP(a.IP); err != nil {
			return within("address "+a.IP, err)
		}
		if netip.MustParseAddr(a.IP).IsUnspecified() {
			return invalid("address "+a.IP, "no endpoint can have it")
		}
		if err := check.Port(a.Port); err != nil {
			return within(fmt.Sprintf("address %s port %d", a.IP, a.Port), err)
		}
	}
	return nil
}

// Resource encodes the endpoints under their cluster's name. No addresses is a valid
// answer: the cluster then answers 503.
func (e Endpoints) Resource() (*resource.Resource, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	m := &endpointv3.ClusterLoadAssignment{ClusterName: e.Cluster}
	if len(e.Addresses) > 0 {
		group := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{}}
		// Sorted here whatever order they come in: equal sets must give equal bytes.
		for _, a := range e.each() {
			group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: wire.SocketAddress(a.IP, a.Port)}},
				Metadata:       a.metadata(),
			})
		}
		m.Endpoints = append(m.Endpoints, group)
	}
	return encode(e.Cluster, m, e.Origin)
}

// each is the addresses in order, each once: two slices may say different pods of one for as
// long as it passes from the one to the other.
func (e Endpoints) each() []Address {
	sorted := slices.SortedFunc(slices.Values(e.Addresses), Address.compare)
	return slices.CompactFunc(sorted, func(a, b Address) bool { return a.IP == b.IP && a.Port == b.Port })
}

func (a Address) compare(o Address) int {
	return cmp.Or(cmp.Compare(a.IP, o.IP), cmp.Compare(a.Port, o.Port), cmp.Compare(a.Namespace, o.Namespace), cmp.Compare(a.Pod, o.Pod))
}

// metadata names the pod for what counts by it.
func (a Address) metadata() *corev3.Metadata {
	if a.Pod == "" {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{hcm.EndpointMetadata: {Fields: map[string]*structpb.Value{
		hcm.EndpointPod:          structpb.NewStringValue(a.Pod),
		hcm.EndpointPodNamespace: structpb.NewStringValue(a.Namespace),
	}}}}
}
