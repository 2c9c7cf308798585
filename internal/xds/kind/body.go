package kind

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// Mark returns the encoded scope with a harmless difference. Envoy refuses a response
// of scopes as a whole, but remembers those that it read before it came to the bad one
// as if it had put them to use; sent again, they would be skipped as unchanged.
// An encoded message that follows another one is merged into it.
func Mark(scope []byte, nonce string) []byte {
	m := &routev3.ScopedRouteConfiguration{RouteConfiguration: &routev3.RouteConfiguration{Metadata: &corev3.Metadata{
		FilterMetadata: map[string]*structpb.Struct{"aether.offer": {Fields: map[string]*structpb.Value{
			"nonce": structpb.NewStringValue(nonce),
		}}},
	}}}
	out, err := proto.MarshalOptions{}.MarshalAppend(slices.Clone(scope), m)
	if err != nil {
		return scope // cannot be: all strings are ASCII
	}
	return out
}

// Empty is what stands for a resource that does not exist where Envoy would wait for
// one; nil: it is told that there is none.
func Empty(k Kind, name string) *anypb.Any {
	var m proto.Message
	switch k {
	case Endpoints:
		m = &endpointv3.ClusterLoadAssignment{ClusterName: name}
	case Runtime:
		m = &runtimev3.Runtime{Name: name}
	case Clusters, Secrets, Scopes, Listeners:
		return nil
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil // a name that is not UTF-8: Envoy cannot have asked for it
	}
	return &anypb.Any{TypeUrl: k.TypeURL(), Value: value}
}
