package xds

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/watermark"
)

// world is the controller's side: the set of resources, and the updates between two
// states of it.
type world struct {
	t    testing.TB
	res  map[resource.Name]*resource.Resource
	sent map[resource.Name]*resource.Resource
	mark uint64
}

func newWorld(t testing.TB) *world {
	return &world{t: t, res: map[resource.Name]*resource.Resource{}, sent: map[resource.Name]*resource.Resource{}}
}

func (w *world) put(name string, m proto.Message) resource.Name {
	w.t.Helper()
	r, err := resource.New(name, m)
	if err != nil {
		w.t.Fatal(err)
	}
	w.res[r.Name] = r
	return r.Name
}

func (w *world) drop(n resource.Name) { delete(w.res, n) }

// update is what leads from the last update to now.
func (w *world) update(full bool) resource.Update {
	u := resource.Update{Full: full}
	var set resource.Set
	for n, r := range w.res {
		set.Add(n, r.Hash)
		if old := w.sent[n]; full || old == nil || old.Hash != r.Hash {
			u.Changed = append(u.Changed, r)
		}
	}
	for n := range w.sent {
		if w.res[n] == nil && !full {
			u.Removed = append(u.Removed, n)
		}
	}
	w.mark++
	u.Version, u.Mark = set.Version(), watermark.Mark{Epoch: 1, Positions: map[string]uint64{"Service": w.mark}}
	slices.SortFunc(u.Changed, func(a, b *resource.Resource) int { return a.Compare(b.Name) })
	slices.SortFunc(u.Removed, resource.Name.Compare)
	w.sent = maps.Clone(w.res)
	return u
}

func adsSource() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion: corev3.ApiVersion_V3, InitialFetchTimeout: durationpb.New(15 * time.Second),
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

func address(port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

func (w *world) cluster(name string, edit ...func(*clusterv3.Cluster)) resource.Name {
	c := &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: adsSource()}, ConnectTimeout: durationpb.New(time.Second),
	}
	for _, f := range edit {
		f(c)
	}
	return w.put(name, c)
}

func connectTimeout(d time.Duration) func(*clusterv3.Cluster) {
	return func(c *clusterv3.Cluster) { c.ConnectTimeout = durationpb.New(d) }
}

func (w *world) endpoints(cluster string, ports ...int) resource.Name {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: cluster}
	for _, p := range ports {
		m.Endpoints = append(m.Endpoints, &endpointv3.LocalityLbEndpoints{LbEndpoints: []*endpointv3.LbEndpoint{{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address(p)}},
		}}})
	}
	return w.put(cluster, m)
}

func (w *world) badEndpoints(cluster string) resource.Name {
	a := address(1)
	a.GetSocketAddress().Address = "not-an-ip"
	return w.put(cluster, &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: a}}}},
	}}})
}

func scopeOf(host string, routes ...*routev3.Route) *routev3.ScopedRouteConfiguration {
	return &routev3.ScopedRouteConfiguration{
		Name: host,
		Key: &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
			Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: host},
		}}},
		RouteConfiguration: &routev3.RouteConfiguration{
			Name: host, VirtualHosts: []*routev3.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: routes}},
		},
	}
}

func routeTo(cluster string) *routev3.Route {
	return &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
	}
}

func (w *world) scope(host, cluster string) resource.Name {
	return w.put(host, scopeOf(host, routeTo(cluster)))
}

func (w *world) badScope(host string) resource.Name {
	return w.put(host, scopeOf(host, &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{
			Regex: "(",
		}}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}},
	}))
}

func (w *world) listener(name string, port int, edit ...func(*hcmv3.HttpConnectionManager)) resource.Name {
	w.t.Helper()
	hcm := &hcmv3.HttpConnectionManager{
		StatPrefix: "in",
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{{
			Name: "envoy.http.early_header_mutation.header_mutation",
			TypedConfig: w.any(&earlyv3.HeaderMutation{Mutations: []*mutationv3.HeaderMutation{{Action: &mutationv3.HeaderMutation_Append{
				Append: &corev3.HeaderValueOption{
					Header:       &corev3.HeaderValue{Key: "x-aether-scope", Value: "%REQ(:AUTHORITY)%"},
					AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
				},
			}}}}),
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: w.any(&routerv3.Router{})},
		}},
		RouteSpecifier: &hcmv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &hcmv3.ScopedRoutes{
			Name: "scopes", RdsConfigSource: adsSource(),
			ScopeKeyBuilder: &hcmv3.ScopedRoutes_ScopeKeyBuilder{Fragments: []*hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder{{
				Type: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_{
					HeaderValueExtractor: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor{
						Name: "x-aether-scope", ElementSeparator: ":",
						ExtractType: &hcmv3.ScopedRoutes_ScopeKeyBuilder_FragmentBuilder_HeaderValueExtractor_Index{Index: 0},
					},
				},
			}}},
			ConfigSpecifier: &hcmv3.ScopedRoutes_ScopedRds{ScopedRds: &hcmv3.ScopedRds{ScopedRdsConfigSource: adsSource()}},
		}},
	}
	for _, f := range edit {
		f(hcm)
	}
	return w.put(name, &listenerv3.Listener{Name: name, Address: address(port), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: w.any(hcm)}}},
	}}})
}

func (w *world) any(m proto.Message) *anypb.Any {
	w.t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// service is a cluster with endpoints on the port, and a scope that leads to it.
func (w *world) service(n int, port int) string {
	c := fmt.Sprintf("ns/svc%d/80", n)
	w.cluster(c)
	w.endpoints(c, port)
	w.scope(host(n), c)
	return c
}

func host(n int) string { return fmt.Sprintf("h%d.test", n) }

func (w *world) trustBundle() resource.Name {
	return w.put("roots", &discoveryv1.TrustBundle{RootsDer: [][]byte{{1}}})
}

func scopeName(host string) resource.Name {
	return resource.Name{TypeURL: envoy.ScopedRouteType, Name: host}
}
