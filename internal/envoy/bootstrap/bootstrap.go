// Package bootstrap makes the configuration with which an Envoy starts, from what is known
// at deploy time: who it is, where its proxy's delta ADS server is, and the limits of the
// process. Everything else comes over ADS.
package bootstrap

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	upstreamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/wire"
)

const (
	// DefaultMaxConnections is used for a Config whose MaxConnections is 0.
	DefaultMaxConnections = 50000

	// DefaultEvictStats is used for a Config whose EvictStats is 0.
	DefaultEvictStats = 5 * time.Minute

	statsFlush = 5 * time.Second // Envoy's own default

	maxSocketPath = 107   // sun_path less its final NUL (unix(7))
	adminMode     = 0o600 // whoever may open the admin socket may stop Envoy

	// A proxy that restarts is found again at once: it is on this machine.
	xdsRetryBase = 50 * time.Millisecond
	xdsRetryMax  = time.Second

	// runtimeWait bounds how long an unanswered runtime layer holds back Envoy's start:
	// traffic without access logs is better than none.
	runtimeWait = 5 * time.Second
)

// Config is what one Envoy has to know before it meets its proxy. All of it is
// known at deploy time.
type Config struct {
	NodeID         string // this Envoy, in its proxy's eyes; required
	Cluster        string // Envoy's own cluster name; required
	XDSSocket      string // absolute path of the proxy's delta ADS socket; required
	AdminSocket    string // absolute path of the admin socket Envoy makes, mode 0600; required
	MaxConnections uint64 // downstream connections of the whole process; 0: DefaultMaxConnections
	// EvictStats is after how long, up to twice that, series by pod go that nothing was added
	// to; a multiple of 5 s, or less than that. 0: DefaultEvictStats.
	EvictStats time.Duration
	// Collector is where Envoy sends its metrics; nil: nowhere. The authorities by which it is
	// verified are a file: a cluster of the bootstrap whose secret comes over ADS ends Envoy
	// 1.40 with a segmentation fault.
	Collector *envoy.Collector
}

func (c Config) check() error {
	if err := check.Name(c.NodeID); err != nil {
		return fmt.Errorf("bootstrap: node id %q: %w", c.NodeID, err)
	}
	if err := check.Name(c.Cluster); err != nil {
		return fmt.Errorf("bootstrap: cluster %q: %w", c.Cluster, err)
	}
	if err := checkSocket(c.XDSSocket); err != nil {
		return fmt.Errorf("bootstrap: xds socket %q: %w", c.XDSSocket, err)
	}
	if err := checkSocket(c.AdminSocket); err != nil {
		return fmt.Errorf("bootstrap: admin socket %q: %w", c.AdminSocket, err)
	}
	if c.AdminSocket == c.XDSSocket {
		return fmt.Errorf("bootstrap: admin socket %q: is the xds socket", c.AdminSocket)
	}
	if c.Collector != nil && c.Collector.TLS != nil && c.Collector.TLS.Trust != "" {
		return errors.New("bootstrap: collector: want its authorities in a file")
	}
	return nil
}

func checkSocket(path string) error {
	if !filepath.IsAbs(path) {
		return errors.New("want an absolute path")
	}
	if len(path) > maxSocketPath {
		return fmt.Errorf("want at most %d bytes, as a Unix socket's path may have", maxSocketPath)
	}
	return nil
}

// New makes Envoy's bootstrap as JSON. Equal configs give equal bytes.
func New(c Config) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	xds, err := xdsServer(c.XDSSocket)
	if err != nil {
		return nil, err
	}
	overload, err := c.overloadManager()
	if err != nil {
		return nil, err
	}
	evict := cmp.Or(c.EvictStats, DefaultEvictStats)
	m := &bootstrapv3.Bootstrap{
		Node:            &corev3.Node{Id: c.NodeID, Cluster: c.Cluster},
		Admin:           &bootstrapv3.Admin{Address: wire.Pipe(c.AdminSocket, adminMode), IgnoreGlobalConnLimit: true},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{xds}},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			AdsConfig: adsStream(),
			CdsConfig: wire.ADS(0),
			LdsConfig: wire.ADS(0),
		},
		LayeredRuntime:  layeredRuntime(),
		OverloadManager: overload,
		StatsConfig:     statsConfig(),
		// Looked at so often, and exported, if there is a collector.
		StatsFlushInterval: durationpb.New(min(statsFlush, evict)),
		StatsEviction:      &bootstrapv3.Bootstrap_StatsEvictionInterval{StatsEvictionInterval: durationpb.New(evict)},
	}
	if c.Collector != nil {
		to, err := c.Collector.Cluster(wire.MetricsCluster)
		if err != nil {
			return nil, fmt.Errorf("bootstrap: %w", err)
		}
		m.StaticResources.Clusters = append(m.StaticResources.Clusters, to)
		if m.StatsSinks, err = statsSinks(c.Cluster); err != nil {
			return nil, err
		}
	}
	if err := m.ValidateAll(); err != nil {
		return nil, fmt.Errorf("check bootstrap: %w", err)
	}
	return stableJSON(m)
}

// stableJSON undoes the white space that protojson varies from build to build.
func stableJSON(m *bootstrapv3.Bootstrap) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode bootstrap: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, fmt.Errorf("indent bootstrap: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func adsStream() *corev3.ApiConfigSource {
	return &corev3.ApiConfigSource{
		ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
		TransportApiVersion:       corev3.ApiVersion_V3,
		SetNodeOnFirstMessageOnly: true,
		GrpcServices: []*corev3.GrpcService{{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
				ClusterName: wire.XDSCluster,
				RetryPolicy: &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
					BaseInterval: durationpb.New(xdsRetryBase),
					MaxInterval:  durationpb.New(xdsRetryMax),
				}},
			},
		}}},
	}
}

func xdsServer(socket string) (*clusterv3.Cluster, error) {
	protocol, err := wire.Pack(&upstreamv3.HttpProtocolOptions{
		UpstreamProtocolOptions: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstreamv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					// A proxy that is stopped and not gone is noticed.
					Http2ProtocolOptions: &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
						Interval: durationpb.New(10 * time.Second),
						Timeout:  durationpb.New(5 * time.Second),
					}},
				},
			},
		},
	})
	return &clusterv3.Cluster{
		Name:                          wire.XDSCluster,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:                durationpb.New(time.Second),
		TypedExtensionProtocolOptions: map[string]*anypb.Any{wire.HTTPProtocolOptions: protocol},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{
			ClusterName: wire.XDSCluster,
			Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: wire.Pipe(socket, 0)}},
			}}}},
		},
	}, err
}

func layeredRuntime() *bootstrapv3.LayeredRuntime {
	return &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{
		{Name: "static", LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{
			Fields: map[string]*structpb.Value{
				"envoy.reloadable_features.strict_chunk_parsing": structpb.NewBoolValue(true),
				"re2.max_program_size.error_level":               structpb.NewNumberValue(check.EnvoyMaxRegexSize),
				// A worker sends spans when it has so many, or after so long.
				"tracing.opentelemetry.min_flush_spans":   structpb.NewNumberValue(100),
				"tracing.opentelemetry.flush_interval_ms": structpb.NewNumberValue(1000),
			},
		}}},
		{Name: wire.RuntimeLayer, LayerSpecifier: &bootstrapv3.RuntimeLayer_RtdsLayer_{RtdsLayer: &bootstrapv3.RuntimeLayer_RtdsLayer{
			Name:       wire.RuntimeLayer,
			RtdsConfig: wire.ADS(runtimeWait),
		}}},
	}}
}

// overloadManager refuses connections past the limit, so that a flood of them ends there
// and not at the process's file descriptors, which live connections need too.
func (c Config) overloadManager() (*overloadv3.OverloadManager, error) {
	limit := c.MaxConnections
	if limit == 0 {
		limit = DefaultMaxConnections
	}
	config, err := wire.Pack(&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: int64(min(limit, 1<<31))})
	return &overloadv3.OverloadManager{ResourceMonitors: []*overloadv3.ResourceMonitor{{
		Name:       "envoy.resource_monitors.global_downstream_max_connections",
		ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: config},
	}}}, err
}
