package envoy

import (
	"aether.io/aether/internal/envoy/wire"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
)

// The types of the resources that this package makes, as they go over the wire.
const (
	ClusterType     = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	EndpointType    = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	ListenerType    = "type.googleapis.com/envoy.config.listener.v3.Listener"
	RuntimeType     = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
	ScopedRouteType = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
	SecretType      = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// encode checks m against Envoy's own rules and makes it a resource. Messages inside
// an Any are not reached from here: wire.Pack has checked those.
func encode(name string, m wire.Message, origin []object.Key) (*resource.Resource, error) {
	if err := m.ValidateAll(); err != nil {
		kind := string(m.ProtoReflect().Descriptor().Name())
		return nil, &InvalidError{Origin: origin, Field: kind + " " + name, Err: err}
	}
	return resource.New(name, m, origin...)
}
