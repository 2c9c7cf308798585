package envoy

import (
	"fmt"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/wire"
	"aether.io/aether/internal/resource"
)

const (
	// DefaultConnectTimeout is used for a Cluster whose ConnectTimeout is 0.
	DefaultConnectTimeout = 5 * time.Second

	// A cluster is shared by all of a proxy's routes, so Envoy's breakers, at 1024 by
	// default, would fail a busy but healthy Service. These only stop what would eat
	// the proxy itself.
	maxUpstreamConnections = 65536
	maxUpstreamRequests    = 65536
	maxUpstreamRetries     = 1024

	bufferLimit = 32 << 10 // bytes a connection buffers before it stops reading

	// endpointWait bounds what a cluster whose endpoints are not answered holds back:
	// the acceptance of the whole response it came in, and Envoy's start.
	endpointWait = 5 * time.Second
)

// Validate tells whether Envoy will take the cluster. Errors are *InvalidError.
func (c Cluster) Validate() error { return attribute(c.Origin, within("cluster "+c.Name, c.check())) }

func (c Cluster) check() error {
	if err := checkClusterName(c.Name); err != nil {
		return within("name", err)
	}
	if err := check.Duration(c.ConnectTimeout); err != nil {
		return within("connect timeout", err)
	}
	if c.Protocol > HTTP2 {
		return invalid("protocol", "%d is unknown", c.Protocol)
	}
	if c.TLS != nil {
		return within("TLS", c.TLS.check())
	}
	return nil
}

func checkClusterName(name string) error {
	if name == wire.XDSCluster || name == wire.CollectorCluster || name == wire.MetricsCluster {
		return fmt.Errorf("%q is reserved", name)
	}
	return check.Name(name)
}

// Resource encodes the cluster under its own name; its endpoints have the same name.
func (c Cluster) Resource() (*resource.Resource, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	timeout := c.ConnectTimeout
	if timeout == 0 {
		timeout = DefaultConnectTimeout
	}
	protocol, err := c.protocolOptions()
	if err != nil {
		return nil, err
	}
	m := &clusterv3.Cluster{
		Name:                 c.Name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{
			EdsConfig:   wire.ADS(endpointWait),
			ServiceName: c.Name,
		},
		ConnectTimeout:                durationpb.New(timeout),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(bufferLimit),
		LbPolicy:                      clusterv3.Cluster_LEAST_REQUEST,
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections:     wrapperspb.UInt32(maxUpstreamConnections),
			MaxPendingRequests: wrapperspb.UInt32(maxUpstreamRequests),
			MaxRequests:        wrapperspb.UInt32(maxUpstreamRequests),
			MaxRetries:         wrapperspb.UInt32(maxUpstreamRetries),
		}}},
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveProbes:   wrapperspb.UInt32(3),
			KeepaliveTime:     wrapperspb.UInt32(60),
			KeepaliveInterval: wrapperspb.UInt32(10),
		}},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{wire.HTTPProtocolOptions: protocol},
	}
	if c.TLS != nil {
		if m.TransportSocket, err = c.TLS.transportSocket(c.Protocol); err != nil {
			return nil, attribute(c.Origin, within("cluster "+c.Name+": TLS", err))
		}
	}
	return encode(c.Name, m, c.Origin)
}

// protocolOptions is how endpoints are spoken to, and which requests are sent again.
func (c Cluster) protocolOptions() (*anypb.Any, error) {
	retry, err := retryPolicy()
	if err != nil {
		return nil, err
	}
	explicit := &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{}
	switch c.Protocol {
	case HTTP1:
		explicit.ProtocolConfig = &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
			HttpProtocolOptions: &corev3.Http1ProtocolOptions{EnableTrailers: true},
		}
	case HTTP2:
		explicit.ProtocolConfig = &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
		}
	}
	return wire.Pack(&upstreamv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: explicit},
		RetryPolicy:             retry,
	})
}
