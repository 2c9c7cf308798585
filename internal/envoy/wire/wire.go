// Package wire holds the few pieces of Envoy configuration that every kind of resource
// is built from: extensions, sources, addresses, inline data. It knows no model.
package wire

import (
	"fmt"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// XDSCluster is the bootstrap's cluster of the local delta ADS server. No other may
	// have its name.
	XDSCluster = "aether-xds"

	// CollectorCluster is the OpenTelemetry Collector, and the secret of the authorities that
	// it is verified by. No Service's cluster and no object's secret is called so.
	CollectorCluster = "aether-otel"

	// MetricsCluster is the same collector in the bootstrap: Envoy's metrics cannot be sent to
	// a cluster that comes later.
	MetricsCluster = "aether-otel-metrics"

	// RuntimeLayer is the bootstrap's one runtime layer that is served over ADS.
	RuntimeLayer = "aether"

	// HTTPProtocolOptions is the key of a cluster's HTTP options.
	HTTPProtocolOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
)

// Message is a generated Envoy message with its generated rules.
type Message interface {
	proto.Message
	ValidateAll() error
}

// Pack wraps an extension's configuration.
func Pack(m Message) (*anypb.Any, error) {
	name := m.ProtoReflect().Descriptor().Name()
	if err := m.ValidateAll(); err != nil {
		return nil, fmt.Errorf("check %s: %w", name, err)
	}
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("encode %s: %w", name, err)
	}
	return a, nil
}

// ADS is the aggregated stream as a source. wait bounds how long Envoy holds back what
// depends on a resource that is not answered; 0 waits for ever. It is 0 where there is
// nothing right to serve without the answer (listeners, clusters, routes) and bounded
// where one unanswered resource would hold back others (endpoints, secrets,
// runtime).
func ADS(wait time.Duration) *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(wait),
	}
}

// SocketAddress is an IP and a port. "::" is one socket for both families.
func SocketAddress(ip string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       ip,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		Ipv4Compat:    ip == "::",
	}}}
}

// Pipe is a Unix socket; mode is for one that Envoy makes.
func Pipe(path string, mode uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path, Mode: mode}}}
}

// Bytes is inline data.
func Bytes(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

// Text is inline text.
func Text(s string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: s}}
}

// Regex matches by RE2.
func Regex(pattern string) *matcherv3.RegexMatcher { return &matcherv3.RegexMatcher{Regex: pattern} }

// String matches a whole value.
func String(value string, isRegex bool) *matcherv3.StringMatcher {
	if isRegex {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: Regex(value)}}
	}
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}}
}
