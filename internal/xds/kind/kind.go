// Package kind knows the types of resources that Envoy subscribes to and how stock
// Envoy behaves with each: what it waits for, what it says when it refuses one, what
// has to be sent to it where nothing exists. It holds no state.
package kind

import (
	"bytes"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/resource"
)

// Kind is a type of resource that Envoy subscribes to.
type Kind uint8

// The kinds, in the order in which additions and changes are sent.
const (
	Clusters Kind = iota
	Endpoints
	Secrets
	Runtime
	Scopes
	Listeners
)

// Count is the number of kinds.
const Count = 6

// String is the kind as metrics and logs call it.
func (k Kind) String() string {
	return [...]string{"cluster", "endpoints", "secret", "runtime", "scope", "listener"}[k]
}

// TypeURL is the kind's type in the protocol.
func (k Kind) TypeURL() string {
	return [...]string{
		envoy.ClusterType, envoy.EndpointType, envoy.SecretType,
		envoy.RuntimeType, envoy.ScopedRouteType, envoy.ListenerType,
	}[k]
}

// Named kinds are subscribed to by name, the others by wildcard.
func (k Kind) Named() bool { return k == Endpoints || k == Secrets || k == Runtime }

// Of returns the kind of a type URL; false if Envoy is not served that type.
func Of(typeURL string) (Kind, bool) {
	for k := range Kind(Count) {
		if k.TypeURL() == typeURL {
			return k, true
		}
	}
	return 0, false
}

// EndpointsOf names the endpoints that Envoy waits for after it has been sent the
// cluster: empty if the cluster brings its own.
func EndpointsOf(cluster *resource.Resource) string {
	var c clusterv3.Cluster
	if proto.Unmarshal(cluster.Payload, &c) != nil || c.GetType() != clusterv3.Cluster_EDS {
		return ""
	}
	if n := c.GetEdsClusterConfig().GetServiceName(); n != "" {
		return n
	}
	return c.GetName()
}

// ScopesOf lists the subscriptions to scopes that a listener makes: the same bytes are
// the same subscription.
func ScopesOf(listener *resource.Resource) []string {
	var l listenerv3.Listener
	if proto.Unmarshal(listener.Payload, &l) != nil {
		return nil
	}
	var out []string
	for _, c := range append(l.GetFilterChains(), l.GetDefaultFilterChain()) {
		for _, f := range c.GetFilters() {
			var h hcmv3.HttpConnectionManager
			if !f.GetTypedConfig().MessageIs(&h) || proto.Unmarshal(f.GetTypedConfig().GetValue(), &h) != nil || h.GetScopedRoutes() == nil {
				continue
			}
			enc, err := proto.MarshalOptions{Deterministic: true}.Marshal(h.GetScopedRoutes())
			if err == nil {
				out = append(out, string(enc))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Ways is how listeners lead to a scope, and how they lead to scopes of the same table that
// is cut another way, both as Field; nil if none can lead to it. See Mentions.
func Ways(scope string) (here, otherwise []byte) {
	a, b := hcm.Lookup(scope)
	if a == "" {
		return nil, nil
	}
	return Field(a), Field(b)
}

// Field is a name as it is encoded where a message of any type refers to it: as a
// string, with its length before it.
func Field(name string) []byte { return protowire.AppendString(nil, name) }

// Mentions reports whether an encoded message has one of the fields, at any depth.
// The field nil is in every message.
func Mentions(payload []byte, fields [][]byte) bool {
	return slices.ContainsFunc(fields, func(f []byte) bool { return bytes.Contains(payload, f) })
}

// PortsOf lists the TCP ports that a listener asks for in this network namespace, sorted.
func PortsOf(listener *resource.Resource) []uint32 {
	var l listenerv3.Listener
	if proto.Unmarshal(listener.Payload, &l) != nil {
		return nil
	}
	addrs := []*corev3.Address{l.GetAddress()}
	for _, a := range l.GetAdditionalAddresses() {
		addrs = append(addrs, a.GetAddress())
	}
	var ports []uint32
	for _, a := range addrs {
		s := a.GetSocketAddress()
		if s.GetPortValue() != 0 && s.GetProtocol() == corev3.SocketAddress_TCP && s.GetNetworkNamespaceFilepath() == "" {
			ports = append(ports, s.GetPortValue())
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
