package envoy

import (
	"fmt"
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/wire"
	"aether.io/aether/internal/resource"
)

// CollectorName is the name of the Collector's cluster, and that of the Trust by which it
// is verified.
const CollectorName = wire.CollectorCluster

const (
	collectorConnectTimeout = 2 * time.Second
	// What is not answered in this time is lost, and makes room. A collector that is gone
	// without a word is found by pings.
	collectorRequestTimeout = 10 * time.Second
	collectorPingInterval   = 10 * time.Second
	collectorPingTimeout    = 5 * time.Second
	// What a collector that takes connections and never answers can keep of each proxy: a
	// request is some ten kilobytes, and what is above the limit is dropped and counted.
	maxCollectorRequests = 64
)

// Validate tells whether Envoy will take the collector. Errors are *InvalidError.
func (c Collector) Validate() error { return within("collector", c.check()) }

func (c Collector) check() error {
	if _, err := netip.ParseAddr(c.Host); err != nil {
		if err := check.Host(c.Host); err != nil || c.Host == anyHost {
			return invalid("host", "%q is neither a name nor an address", c.Host)
		}
	}
	if err := check.Port(c.Port); err != nil {
		return within(fmt.Sprintf("port %d", c.Port), err)
	}
	if c.TLS != nil {
		return within("TLS", c.TLS.check())
	}
	return nil
}

func collectorProtocol() *upstreamv3.HttpProtocolOptions {
	return &upstreamv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{MaxStreamDuration: durationpb.New(collectorRequestTimeout)},
		UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
			ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
				ConnectionKeepalive: &corev3.KeepaliveSettings{Interval: durationpb.New(collectorPingInterval), Timeout: durationpb.New(collectorPingTimeout)},
			}},
		}},
	}
}

// Resource encodes the collector's cluster under CollectorName. It is looked up by name and
// nothing waits for that: what is exported before, or while there is none, is lost.
func (c Collector) Resource() (*resource.Resource, error) {
	m, err := c.Cluster(CollectorName)
	if err != nil {
		return nil, err
	}
	return encode(CollectorName, m, nil)
}

// Cluster is the collector's cluster, under a name that it is to have.
func (c Collector) Cluster(name string) (*clusterv3.Cluster, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	protocol, err := wire.Pack(collectorProtocol())
	if err != nil {
		return nil, err
	}
	m := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS},
		ConnectTimeout:       durationpb.New(collectorConnectTimeout),
		WaitForWarmOnInit:    wrapperspb.Bool(false),
		// Of a name with addresses of both families, that one that pods surely have.
		DnsLookupFamily: clusterv3.Cluster_V4_PREFERRED,
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: name,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: wire.SocketAddress(c.Host, c.Port)}},
			}}}},
		},
		// The only ones that know an error of gRPC, which has the status 200, from an answer.
		TrackClusterStats: &clusterv3.TrackClusterStats{PerEndpointStats: true},
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxPendingRequests: wrapperspb.UInt32(maxCollectorRequests),
			MaxRequests:        wrapperspb.UInt32(maxCollectorRequests),
			MaxRetries:         wrapperspb.UInt32(0),
		}}},
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveProbes: wrapperspb.UInt32(3), KeepaliveTime: wrapperspb.UInt32(60), KeepaliveInterval: wrapperspb.UInt32(10),
		}},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{wire.HTTPProtocolOptions: protocol},
	}
	if c.TLS != nil {
		if m.TransportSocket, err = c.TLS.transportSocket(HTTP2); err != nil {
			return nil, within("collector: TLS", err)
		}
	}
	return m, nil
}
