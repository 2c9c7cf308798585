// Package hcm makes the HTTP connection manager of one route table: how requests find
// their scope, the defaults of an edge proxy, the access log. It knows no route: those
// come in the scopes whose keys it builds.
package hcm

import (
	"fmt"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/wire"
)

const (
	// scopesName is the one scoped route table that all listeners share: with equal
	// scoped_routes everywhere, Envoy subscribes and keeps the scopes once.
	scopesName = "aether"

	// ScopeHeader carries the scope key from the early header mutation to the route
	// look-up. A client's own is overwritten, and every scope keeps it from going upstream.
	ScopeHeader = "x-aether-scope"

	// ClientAddressHeader is what Envoy tells every backend beside X-Forwarded-For, and
	// which every scope keeps from going upstream too.
	ClientAddressHeader = "x-envoy-external-address"

	// MissFilter is the miss path's name, by which every scope turns it off.
	MissFilter = "aether.miss"

	// CORSFilter is the filter that marks responses for origins, as routes configure it.
	CORSFilter = "envoy.filters.http.cors"

	// AnyHost is the host in the key of the scope that holds all hosts of a table.
	AnyHost = "*"

	// OtherHosts is the host in the key of the scope that the miss path ends in. No host is
	// called so. It is not AnyHost: connections of a table that was cut the other way until
	// now go on to look there while they are drained, and would find all hosts or none
	// but these.
	OtherHosts = "*others"

	// authority is the host as a request says it, in the header mutation's language.
	authority = "%REQ(:AUTHORITY)%"

	streamIdleTimeout     = 5 * time.Minute  // a stream on which nothing moves, upgraded ones too
	connectionIdleTimeout = time.Hour        // a connection without a stream
	requestHeadersTimeout = 10 * time.Second // from a request's first byte to the end of its headers

	maxHeaderKilobytes = 60 // all headers of a request together; more is answered with 431
	maxHeaders         = 100

	maxConcurrentStreams    = 100
	initialStreamWindow     = 64 << 10
	initialConnectionWindow = 1 << 20
)

// missPath runs for a request that found no route: its host is in other letter case, ends
// in a dot, or has no scope of its own. The look-up is repeated for the host as scopes are
// named, in lower case and without the dot, then for the table's other hosts. handle:metadata()
// is what looks the route up again; routeName() alone would tell the old one. Every route has
// a name, so an empty one means none. The table comes from the header, whose first part no
// client can set.
const missPath = `function envoy_on_request(handle)
  local headers = handle:headers()
  local prefix, host = string.match(headers:get("` + ScopeHeader + `") or "", "^([^|]*)|([^:]*)")
  if prefix == nil then
    return
  end
  local plain = string.match(string.lower(host), "^(.-)%.?$")
  if plain ~= host then
    headers:replace("` + ScopeHeader + `", prefix .. "|" .. plain)
    handle:clearRouteCache()
    handle:metadata()
    if handle:streamInfo():routeName() ~= "" then
      return
    end
  end
  headers:replace("` + ScopeHeader + `", prefix .. "|` + OtherHosts + `")
  handle:clearRouteCache()
end
`

// Config is one route table.
type Config struct {
	Table       string // required; letters, digits and "-._/"
	PerHost     bool   // one scope a host with the miss path, which ends in <table>|*others; else all hosts in <table>|*
	AccessLog   string // path of the JSON lines access log; empty: no logger installed
	Collector   bool   // access logs and traces go to the collector, whose cluster is wire.CollectorCluster
	TrustedHops uint32 // proxies in front whose X-Forwarded-* headers are believed
	Port        uint32 // the port as clients know it; 0: not told
	Direct      bool   // the client's address is the peer's, whatever a PROXY header said
}

// ScopeKey is the key of the scope of a table's host, and by convention its name.
func ScopeKey(table, host string) string { return table + "|" + host }

// Lookup is what chains write to ScopeHeader whose requests can find the scope of that key,
// and what those of the same table write that is cut the other way. Both are empty if no
// request can find it.
func Lookup(key string) (here, otherwise string) {
	table, host, ok := strings.Cut(key, "|")
	if !ok || strings.Contains(key, keyEnd) {
		return "", ""
	}
	single, perHost := ScopeKey(table, AnyHost), ScopeKey(table, authority)
	if host == AnyHost {
		return single, perHost
	}
	return perHost, single
}

// Filter is the connection manager as a network filter.
func (c Config) Filter() (*listenerv3.Filter, error) {
	manager, err := c.connectionManager()
	if err != nil {
		return nil, fmt.Errorf("connection manager of %s: %w", c.Table, err)
	}
	config, err := wire.Pack(manager)
	if err != nil {
		return nil, err
	}
	return &listenerv3.Filter{
		Name:       "envoy.filters.network.http_connection_manager",
		ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: config},
	}, nil
}

// connectionManager serves the route table. Its defaults are those of Envoy's
// guide to edge proxies; where they differ from it, the reason stands beside them.
func (c Config) connectionManager() (*hcmv3.HttpConnectionManager, error) {
	mutation, err := c.earlyMutation()
	if err != nil {
		return nil, err
	}
	filters, err := c.httpFilters()
	if err != nil {
		return nil, err
	}
	logs, err := c.accessLogs()
	if err != nil {
		return nil, err
	}
	tracing, err := c.tracing()
	if err != nil {
		return nil, err
	}
	return &hcmv3.HttpConnectionManager{
		CodecType:                     hcmv3.HttpConnectionManager_AUTO,
		StatPrefix:                    statPrefix(c.Table),
		RouteSpecifier:                &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: scopedRoutes()},
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{mutation},
		HttpFilters:                   filters,
		AccessLog:                     logs,
		Tracing:                       tracing,

		UseRemoteAddress:             wrapperspb.Bool(true),
		SkipXffAppend:                true,              // earlyMutation has appended the peer,
		XffNumTrustedHops:            c.TrustedHops + 1, // which counts as one hop
		InternalAddressConfig:        nobodyInternal(),
		NormalizePath:                wrapperspb.Bool(true),
		MergeSlashes:                 false,
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
		ServerHeaderTransformation:   hcmv3.HttpConnectionManager_PASS_THROUGH,

		StreamIdleTimeout:     durationpb.New(streamIdleTimeout),
		RequestHeadersTimeout: durationpb.New(requestHeadersTimeout),
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout: durationpb.New(connectionIdleTimeout),
			// Dropped and not refused, as other ingress proxies do: many backends read
			// x_a as x-a, which the proxy's own header rules would not see.
			HeadersWithUnderscoresAction: corev3.HttpProtocolOptions_DROP_HEADER,
			MaxHeadersCount:              wrapperspb.UInt32(maxHeaders),
		},
		MaxRequestHeadersKb: wrapperspb.UInt32(maxHeaderKilobytes),
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{
			AcceptHttp_10: true, EnableTrailers: true, IgnoreHttp_11Upgrade: otherUpgrades(),
		},
		Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
			MaxConcurrentStreams:        wrapperspb.UInt32(maxConcurrentStreams),
			InitialStreamWindowSize:     wrapperspb.UInt32(initialStreamWindow),
			InitialConnectionWindowSize: wrapperspb.UInt32(initialConnectionWindow),
			AllowConnect:                true, // WebSocket over HTTP/2; CONNECT itself has no route
		},
		UpgradeConfigs:   []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: websocket}},
		LocalReplyConfig: localReplies(),
	}, nil
}

// nobodyInternal has Envoy take no client for one of its own, of whom it would tell backends
// so: one with a private address is no more to be trusted than another. An empty list would
// stand for all private addresses, so it has one that no connection comes from.
func nobodyInternal() *hcmv3.HttpConnectionManager_InternalAddressConfig {
	return &hcmv3.HttpConnectionManager_InternalAddressConfig{CidrRanges: []*corev3.CidrRange{
		{AddressPrefix: "255.255.255.255", PrefixLen: wrapperspb.UInt32(32)},
	}}
}

// httpFilters lists the filters, each always enabled and neutral for a route that says
// nothing to it. One that is disabled here and enabled by routes would be bypassed: the
// miss path finds the route after Envoy has chosen the request's filters.
func (c Config) httpFilters() ([]*hcmv3.HttpFilter, error) {
	var filters []*hcmv3.HttpFilter
	add := func(name string, m wire.Message) error {
		config, err := wire.Pack(m)
		filters = append(filters, &hcmv3.HttpFilter{
			Name:       name,
			ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: config},
		})
		return err
	}
	if err := add(guardFilter, guard()); err != nil {
		return nil, err
	}
	if c.PerHost {
		if err := add(MissFilter, &luav3.Lua{DefaultSourceCode: wire.Text(missPath)}); err != nil {
			return nil, err
		}
	}
	if err := add(trailerFilter, c.trailers()); err != nil {
		return nil, err
	}
	if c.Collector {
		sample, err := c.sample()
		if err != nil {
			return nil, err
		}
		if err := add(sampleFilter, sample); err != nil {
			return nil, err
		}
	}
	if err := add(CORSFilter, &corsv3.Cors{}); err != nil {
		return nil, err
	}
	if err := add("envoy.filters.http.router", &routerv3.Router{SuppressEnvoyHeaders: true}); err != nil {
		return nil, err
	}
	return filters, nil
}

// scopedRoutes is the same for every chain and both modes. What follows a ":" is cut from
// the key: the port, or all but the "[" of an IPv6 literal, which then takes the miss
// path to OtherHosts. No table and no host has a ":".
func scopedRoutes() *hcmv3.ScopedRoutes {
	extractor := &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor{
		Name:             ScopeHeader,
		ElementSeparator: ":",
		ExtractType:      &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{Index: 0},
	}
	return &hcmv3.ScopedRoutes{
		Name: scopesName,
		ScopeKeyBuilder: &hcmv3.ScopedRoutes_ScopeKeyBuilder{
			Fragments: []*hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder{{
				Type: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{HeaderValueExtractor: extractor},
			}},
		},
		RdsConfigSource: wire.ADS(0), // required, never used: routes are inline
		ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: wire.ADS(0)}},
	}
}
