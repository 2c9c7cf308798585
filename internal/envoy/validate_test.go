package envoy_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
)

func hostWith(routes ...envoy.Route) envoy.Scope {
	return envoy.Scope{
		Table: "ns/gw/80", Host: "*",
		VirtualHosts: []envoy.VirtualHost{{Host: "a.example", Routes: routes}},
	}
}

func chainOf(c ...envoy.Chain) envoy.Listener {
	return envoy.Listener{Name: "ns/gw/80", Address: "0.0.0.0", Port: 80, Chains: c}
}

func TestWhatEnvoyWouldRefuseIsRefusedInModelTerms(t *testing.T) {
	route := envoy.Route{Name: "default/web/0/1"}
	with := func(change func(*envoy.Route)) envoy.Scope {
		r := route
		change(&r)
		return hostWith(r)
	}
	ok := envoy.Chain{Name: "ns/gw/80"}
	tests := map[string]struct {
		model model
		want  string // the beginning of the error
	}{
		"a path regex that does not parse": {
			with(func(r *envoy.Route) { r.Path = envoy.PathMatch{Kind: envoy.PathRegex, Value: "("} }),
			`scope ns/gw/80|*: route default/web/0/1: path: regex "(": `,
		},
		"a path that is not absolute": {
			with(func(r *envoy.Route) { r.Path = envoy.PathMatch{Value: "x"} }), `scope ns/gw/80|*: route default/web/0/1: path: "x": `,
		},
		"a path with a query": {
			with(func(r *envoy.Route) { r.Path = envoy.PathMatch{Kind: envoy.PathExact, Value: "/x?y"} }), `scope ns/gw/80|*: route default/web/0/1: path: `,
		},
		"an unknown kind of path": {
			with(func(r *envoy.Route) { r.Path = envoy.PathMatch{Kind: 9, Value: "/"} }), `scope ns/gw/80|*: route default/web/0/1: path: kind 9`,
		},
		"a header regex that does not parse": {
			with(func(r *envoy.Route) { r.Headers = []envoy.HeaderMatch{{Name: "x", Value: "[", Regex: true}} }),
			`scope ns/gw/80|*: route default/web/0/1: header "x": regex "[": `,
		},
		"a header name with a space": {
			with(func(r *envoy.Route) { r.Headers = []envoy.HeaderMatch{{Name: "x y"}} }), `scope ns/gw/80|*: route default/web/0/1: header "x y": `,
		},
		"a header name in upper case": {
			with(func(r *envoy.Route) { r.Headers = []envoy.HeaderMatch{{Name: "X"}} }), `scope ns/gw/80|*: route default/web/0/1: header "X": `,
		},
		"a match on the scope header": {
			with(func(r *envoy.Route) { r.Headers = []envoy.HeaderMatch{{Name: "x-aether-scope"}} }), `scope ns/gw/80|*: route default/web/0/1: header "x-aether-scope": `,
		},
		"a header value with a line break": {
			with(func(r *envoy.Route) { r.Headers = []envoy.HeaderMatch{{Name: "x", Value: "a\nb"}} }), `scope ns/gw/80|*: route default/web/0/1: header "x": `,
		},
		"a method with a space": {
			with(func(r *envoy.Route) { r.Method = "GET /" }), `scope ns/gw/80|*: route default/web/0/1: method: `,
		},
		"a query parameter without a name": {
			with(func(r *envoy.Route) { r.Query = []envoy.QueryMatch{{}} }), `scope ns/gw/80|*: route default/web/0/1: query parameter "": `,
		},
		"weights past 32 bits": {
			with(func(r *envoy.Route) {
				r.Backends = []envoy.WeightedBackend{{Cluster: "a/b/1", Weight: math.MaxUint32}, {Cluster: "a/c/1", Weight: 1}}
			}), `scope ns/gw/80|*: route default/web/0/1: backends: `,
		},
		"a backend with a reserved name": {
			with(func(r *envoy.Route) { r.Backends = []envoy.WeightedBackend{{Cluster: "aether-xds", Weight: 1}} }),
			`scope ns/gw/80|*: route default/web/0/1: backend "aether-xds": `,
		},
		"a route without a name": {hostWith(envoy.Route{}), `scope ns/gw/80|*: route : name: `},
		"two routes of one name": {hostWith(route, route), `scope ns/gw/80|*: host a.example: route default/web/0/1 `},
		"two virtual hosts of one name": {
			envoy.Scope{Table: "t", Host: "*", VirtualHosts: []envoy.VirtualHost{{Host: "a.example"}, {Host: "a.example"}}}, `scope t|*: virtual hosts: a.example `,
		},
		"a host in upper case":           {envoy.Scope{Table: "t", Host: "*", VirtualHosts: []envoy.VirtualHost{{Host: "A.example"}}}, `scope t|*: host "A.example": `},
		"a host with a port":             {envoy.Scope{Table: "t", Host: "*", VirtualHosts: []envoy.VirtualHost{{Host: "a.example:80"}}}, `scope t|*: host "a.example:80": `},
		"a table with a format command":  {envoy.Scope{Table: "%REQ(X)%", Host: "*"}, `scope %REQ(X)%|*: table: `},
		"a table with a key's separator": {envoy.Scope{Table: "a|b", Host: "*"}, `scope a|b|*: table: `},
		"an exact scope in single mode":  {envoy.Scope{Table: "t", Host: "a.example"}, `scope t|a.example: host: `},
		"a wildcard with its own scope":  {envoy.Scope{Table: "t", Host: "*.a.example", PerHost: true}, `scope t|*.a.example: host: `},
		"a scope with another host's routes": {
			envoy.Scope{Table: "t", Host: "a.example", PerHost: true, VirtualHosts: []envoy.VirtualHost{{Host: "b.example"}}}, `scope t|a.example: virtual hosts: `,
		},
		"a listener without chains":      {chainOf(), `listener ns/gw/80: chains: `},
		"a listener at no IP":            {envoy.Listener{Name: "l", Address: "localhost", Port: 80, Chains: []envoy.Chain{ok}}, `listener l: address: `},
		"a listener at port 0":           {envoy.Listener{Name: "l", Address: "::", Chains: []envoy.Chain{ok}}, `listener l: port 0: `},
		"a port past 65535":              {envoy.Listener{Name: "l", Address: "::", Port: 65536, Chains: []envoy.Chain{ok}}, `listener l: port 65536: `},
		"two chains of one name":         {chainOf(ok, ok), `listener ns/gw/80: chain ns/gw/80: `},
		"two plain chains":               {chainOf(ok, envoy.Chain{Name: "other"}), `listener ns/gw/80: chains: `},
		"a server name on a plain chain": {chainOf(envoy.Chain{Name: "c", SNI: []string{"a.example"}}), `listener ns/gw/80: chain c: server names: `},
		"a star as a server name":        {chainOf(envoy.Chain{Name: "c", SNI: []string{"*"}, Secrets: []string{"s"}}), `listener ns/gw/80: chain c: server names: `},
		"one server name on two chains": {
			chainOf(envoy.Chain{Name: "c", SNI: []string{"a.example"}, Secrets: []string{"s"}}, envoy.Chain{Name: "d", SNI: []string{"a.example"}, Secrets: []string{"s"}}),
			`listener ns/gw/80: chains: two are reached by `,
		},
		"a cluster without a name":         {envoy.Cluster{}, `cluster : name: `},
		"a cluster with the proxy's name":  {envoy.Cluster{Name: "aether-xds"}, `cluster aether-xds: name: `},
		"a negative timeout":               {envoy.Cluster{Name: "c", ConnectTimeout: -1}, `cluster c: connect timeout: `},
		"a timeout of years":               {envoy.Cluster{Name: "c", ConnectTimeout: 9000 * time.Hour}, `cluster c: connect timeout: `},
		"an unknown protocol":              {envoy.Cluster{Name: "c", Protocol: 7}, `cluster c: protocol: `},
		"an endpoint that is no IP":        {envoy.Endpoints{Cluster: "c", Addresses: []envoy.Address{{IP: "pod-1", Port: 80}}}, `endpoints c: address pod-1: `},
		"an endpoint with a zone":          {envoy.Endpoints{Cluster: "c", Addresses: []envoy.Address{{IP: "fe80::1%eth0", Port: 80}}}, `endpoints c: address fe80::1%eth0: `},
		"an endpoint everywhere":           {envoy.Endpoints{Cluster: "c", Addresses: []envoy.Address{{IP: "0.0.0.0", Port: 80}}}, `endpoints c: address 0.0.0.0: `},
		"an endpoint at port 0":            {envoy.Endpoints{Cluster: "c", Addresses: []envoy.Address{{IP: "::1"}}}, `endpoints c: address ::1 port 0: `},
		"a sample past 100":                {envoy.Runtime{AccessLogs: map[string]envoy.AccessLog{"t": {SuccessSample: 101}}}, `runtime: access log t: success sample: `},
		"a secret without a certificate":   {envoy.Secret{Name: "ns/s"}, `secret ns/s: certificate and key: `},
		"a secret without a name":          {envoy.Secret{}, `secret : name: `},
		"a runtime table with a line feed": {envoy.Runtime{AccessLogs: map[string]envoy.AccessLog{"a\nb": {}}}, "runtime: access log a\nb: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tt.model.Resource()
			if err == nil {
				t.Fatal("was accepted")
			}
			if _, ok := errors.AsType[*envoy.InvalidError](err); !ok {
				t.Errorf("%T is not an InvalidError", err)
			}
			if !strings.HasPrefix(err.Error(), tt.want) || len(err.Error()) <= len(tt.want) {
				t.Errorf("got  %s\nwant %s…", err, tt.want)
			}
		})
	}
}

func TestAnErrorNamesTheObjectsAndTheRouteAtFault(t *testing.T) {
	s := hostWith(envoy.Route{Name: "ns/good/0/0"}, envoy.Route{Name: "ns/bad/0/0", Path: envoy.PathMatch{Kind: envoy.PathRegex, Value: "("}})
	s.Origin = []object.Key{{Kind: object.HTTPRoute, Namespace: "ns", Name: "bad"}, {Kind: object.HTTPRoute, Namespace: "ns", Name: "good"}}
	_, err := s.Resource()
	e, ok := errors.AsType[*envoy.InvalidError](err)
	if !ok {
		t.Fatalf("got %v, want an InvalidError", err)
	}
	if e.Route != "ns/bad/0/0" || len(e.Origin) != 2 {
		t.Errorf("got route %q and origin %v", e.Route, e.Origin)
	}
	if err := (envoy.Route{Name: "ns/bad/0/0", Path: envoy.PathMatch{Kind: envoy.PathRegex, Value: "("}}).Validate(); err == nil {
		t.Error("the route alone was accepted")
	}
	if err := (envoy.Route{Name: "ns/good/0/0"}).Validate(); err != nil {
		t.Errorf("a good route alone: %v", err)
	}
}
