//go:build component

package envoy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
)

func prefix(p string) envoy.PathMatch { return envoy.PathMatch{Kind: envoy.PathPrefix, Value: p} }

func to(cluster string) []envoy.WeightedBackend {
	return []envoy.WeightedBackend{{Cluster: cluster, Weight: 1}}
}

// world is the virtual hosts that both modes must serve alike.
func world() []envoy.VirtualHost {
	return []envoy.VirtualHost{
		{Host: "a.example", Routes: []envoy.Route{
			{Name: "ns/a/0/0", Path: envoy.PathMatch{Kind: envoy.PathExact, Value: "/exact"}, Backends: to("ns/b/80")},
			{Name: "ns/a/1/0", Path: envoy.PathMatch{Kind: envoy.PathRegex, Value: "/re/[0-9]+"}, Backends: to("ns/b/80")},
			{Name: "ns/a/2/0", Path: prefix("/foo"), Headers: []envoy.HeaderMatch{{Name: "x-v", Value: "2"}}, Backends: to("ns/b/80")},
			{Name: "ns/a/3/0", Path: prefix("/foo"), Headers: []envoy.HeaderMatch{{Name: "x-v", Value: "v[3-9]", Regex: true}}, Backends: to("ns/b/80")},
			{Name: "ns/a/4/0", Path: prefix("/foo"), Method: "POST", Backends: to("ns/b/80")},
			{Name: "ns/a/5/0", Path: prefix("/foo"), Query: []envoy.QueryMatch{{Name: "q", Value: "1"}}, Backends: to("ns/b/80")},
			{Name: "ns/a/6/0", Path: prefix("/foo/"), Backends: to("ns/a/80")},
		}},
		{Host: "b.wild.example", Routes: []envoy.Route{
			{Name: "ns/bw/0/0", Path: envoy.PathMatch{Kind: envoy.PathExact, Value: "/only"}, Backends: to("ns/b/80")},
		}},
		{Host: "*.wild.example", Routes: []envoy.Route{{Name: "ns/w/0/0", Backends: to("ns/a/80")}}},
		{Host: "h2.example", Routes: []envoy.Route{{Name: "ns/h2/0/0", Backends: to("ns/h2/80")}}},
		{Host: "half.example", Routes: []envoy.Route{{Name: "ns/half/0/0", Backends: []envoy.WeightedBackend{
			{Cluster: "ns/a/80", Weight: 1}, {Cluster: "", Weight: 1}, {Cluster: "ns/b/80", Weight: 0},
		}}}},
		{Host: "mixed.example", Routes: []envoy.Route{{Name: "ns/mixed/0/0", Backends: []envoy.WeightedBackend{
			{Cluster: "ns/a/80", Weight: 1}, {Cluster: "", Weight: 1}, {Cluster: "ns/missing/80", Weight: 1}, {Cluster: "ns/empty/80", Weight: 1},
		}}}},
		{Host: "broken.example", Routes: []envoy.Route{{Name: "ns/broken/0/0", Backends: []envoy.WeightedBackend{
			{Cluster: "ns/missing/80", Weight: 3}, {Cluster: "", Weight: 1},
		}}}},
		{Host: "split.example", Routes: []envoy.Route{{Name: "ns/split/0/0", Backends: []envoy.WeightedBackend{
			{Cluster: "ns/a/80", Weight: 3}, {Cluster: "ns/b/80", Weight: 1},
		}}}},
		{Host: "zero.example", Routes: []envoy.Route{{Name: "ns/zero/0/0", Backends: []envoy.WeightedBackend{{Cluster: "ns/a/80"}}}}},
		{Host: "none.example", Routes: []envoy.Route{{Name: "ns/none/0/0"}}},
		{Host: "bad.example", Routes: []envoy.Route{{Name: "ns/bad/0/0", Backends: to("")}}},
		{Host: "missing.example", Routes: []envoy.Route{{Name: "ns/missing/0/0", Backends: to("ns/missing/80")}}},
		{Host: "empty.example", Routes: []envoy.Route{{Name: "ns/empty/0/0", Backends: to("ns/empty/80")}}},
	}
}

// scopes puts virtual hosts into a table's scopes.
func scopes(table string, perHost bool, hosts []envoy.VirtualHost) []model {
	star := envoy.Scope{Table: table, Host: "*", PerHost: perHost}
	var out []model
	for _, v := range hosts {
		if perHost && !strings.HasPrefix(v.Host, "*") {
			out = append(out, envoy.Scope{Table: table, Host: v.Host, PerHost: true, VirtualHosts: []envoy.VirtualHost{v}})
			continue
		}
		star.VirtualHosts = append(star.VirtualHosts, v)
	}
	return append(out, star)
}

func cluster(name string, p envoy.Protocol, addresses ...envoy.Address) []model {
	return []model{
		envoy.Endpoints{Cluster: name, Addresses: addresses},
		envoy.Cluster{Name: name, Protocol: p, ConnectTimeout: time.Second},
	}
}

// tables are the ports of one Envoy that serve the same virtual hosts in both modes,
// without and with a catch-all.
type tables struct{ single, perHost, singleAny, perHostAny uint32 }

func serveWorld(t *testing.T, r *rig) tables {
	t.Helper()
	var models []model
	models = append(models, cluster("ns/a/80", envoy.HTTP1, backend(t, "a", false))...)
	models = append(models, cluster("ns/b/80", envoy.HTTP1, backend(t, "b", false))...)
	models = append(models, cluster("ns/h2/80", envoy.HTTP2, backend(t, "h2", true))...)
	models = append(models, cluster("ns/empty/80", envoy.HTTP1)...)
	withAny := append(world(), envoy.VirtualHost{Host: "*", Routes: []envoy.Route{{Name: "ns/any/0/0", Backends: to("ns/b/80")}}})

	p := tables{single: freePort(t), perHost: freePort(t), singleAny: freePort(t), perHostAny: freePort(t)}
	var listeners []model
	for _, x := range []struct {
		port    uint32
		perHost bool
		hosts   []envoy.VirtualHost
	}{{p.single, false, world()}, {p.perHost, true, world()}, {p.singleAny, false, withAny}, {p.perHostAny, true, withAny}} {
		table := fmt.Sprintf("ns/gw.v1/%d", x.port)
		models = append(models, scopes(table, x.perHost, x.hosts)...)
		listeners = append(listeners, envoy.Listener{
			Name: table, Address: "127.0.0.1", Port: x.port,
			Chains: []envoy.Chain{{Name: table, PerHost: x.perHost}},
		})
	}
	models = append(models, envoy.Runtime{})
	r.serve(t, append(models, listeners...)...)
	for _, port := range []uint32{p.single, p.perHost, p.singleAny, p.perHostAny} {
		r.awaitListener(t, port)
	}
	return p
}

type routingCase struct {
	line    string // default "GET /foo HTTP/1.1"
	host    string
	headers []string
	status  int
	backend string
	// what a table with a catch-all answers, where that differs
	anyStatus  int
	anyBackend string
}

func routingCases() map[string]routingCase {
	return map[string]routingCase{
		"an exact host":                               {host: "a.example", status: 200, backend: "a"},
		"an exact host with a port":                   {host: "a.example:8080", status: 200, backend: "a"},
		"an exact host in other case":                 {host: "A.Example", status: 200, backend: "a"},
		"an exact host in other case with a port":     {host: "A.EXAMPLE:80", status: 200, backend: "a"},
		"an exact host with a trailing dot":           {host: "a.example.", status: 200, backend: "a"},
		"a trailing dot and a port":                   {host: "a.example.:80", status: 200, backend: "a"},
		"a trailing dot in other case":                {host: "A.example.", status: 200, backend: "a"},
		"a wildcard":                                  {host: "x.wild.example", status: 200, backend: "a"},
		"a wildcard of two labels":                    {host: "x.y.wild.example", status: 200, backend: "a"},
		"a wildcard with a port":                      {host: "x.wild.example:81", status: 200, backend: "a"},
		"a wildcard in other case with a port":        {host: "X.Wild.Example:81", status: 200, backend: "a"},
		"the bare domain of a wildcard":               {host: "wild.example", status: 404, anyStatus: 200, anyBackend: "b"},
		"an unknown host":                             {host: "nope.example", status: 404, anyStatus: 200, anyBackend: "b"},
		"an IPv4 address":                             {host: "127.0.0.1:80", status: 404, anyStatus: 200, anyBackend: "b"},
		"an IPv6 literal":                             {host: "[::1]", status: 404, anyStatus: 200, anyBackend: "b"},
		"an IPv6 literal with a port":                 {host: "[::1]:18080", status: 404, anyStatus: 200, anyBackend: "b"},
		"a host with two ports":                       {host: "a.example:1:2", status: 404, anyStatus: 200, anyBackend: "b"},
		"a star as a host":                            {host: "*", status: 404, anyStatus: 200, anyBackend: "b"},
		"a host that is a scope key":                  {host: "ns/gw.v1/80|a.example", status: 400},
		"a bar and a host":                            {host: "x|a.example", status: 400},
		"a host before a bar":                         {host: "a.example|x", status: 400},
		"an exact host does not fall to a wildcard":   {host: "b.wild.example", status: 404},
		"nor in other case":                           {host: "B.wild.example", status: 404},
		"an exact host below a wildcard":              {line: "GET /only HTTP/1.1", host: "b.wild.example", status: 200, backend: "b"},
		"a prefix and a slash":                        {line: "GET /foo/ HTTP/1.1", host: "a.example", status: 200, backend: "a"},
		"a prefix and a segment":                      {line: "GET /foo/bar HTTP/1.1", host: "a.example", status: 200, backend: "a"},
		"a prefix and a query":                        {line: "GET /foo?x=y HTTP/1.1", host: "a.example", status: 200, backend: "a"},
		"a prefix inside a segment":                   {line: "GET /foobar HTTP/1.1", host: "a.example", status: 404},
		"a prefix after dot segments":                 {line: "GET /bar/../foo HTTP/1.1", host: "a.example", status: 200, backend: "a"},
		"a prefix after escaped dot segments":         {line: "GET /bar/%2e%2e/foo HTTP/1.1", host: "a.example", status: 200, backend: "a"},
		"two slashes are not one":                     {line: "GET //foo HTTP/1.1", host: "a.example", status: 404},
		"an escaped slash ends no segment":            {line: "GET /foo%2Fbar HTTP/1.1", host: "a.example", status: 404},
		"a path in other case":                        {line: "GET /FOO HTTP/1.1", host: "a.example", status: 404},
		"an exact path":                               {line: "GET /exact HTTP/1.1", host: "a.example", status: 200, backend: "b"},
		"an exact path and a query":                   {line: "GET /exact?x HTTP/1.1", host: "a.example", status: 200, backend: "b"},
		"an exact path and a slash":                   {line: "GET /exact/ HTTP/1.1", host: "a.example", status: 404},
		"a regex":                                     {line: "GET /re/12 HTTP/1.1", host: "a.example", status: 200, backend: "b"},
		"a regex that matches a part":                 {line: "GET /re/12/x HTTP/1.1", host: "a.example", status: 404},
		"a header":                                    {host: "a.example", headers: []string{"X-V: 2"}, status: 200, backend: "b"},
		"another value of the header":                 {host: "a.example", headers: []string{"X-V: 22"}, status: 200, backend: "a"},
		"a header regex":                              {host: "a.example", headers: []string{"X-V: v4"}, status: 200, backend: "b"},
		"a header regex that matches a part":          {host: "a.example", headers: []string{"X-V: v44"}, status: 200, backend: "a"},
		"a method":                                    {line: "POST /foo HTTP/1.1", host: "a.example", headers: []string{"Content-Length: 0"}, status: 200, backend: "b"},
		"a query parameter":                           {line: "GET /foo?q=1 HTTP/1.1", host: "a.example", status: 200, backend: "b"},
		"another value of the query parameter":        {line: "GET /foo?q=2 HTTP/1.1", host: "a.example", status: 200, backend: "a"},
		"an absolute URI":                             {line: "GET http://a.example/foo HTTP/1.1", host: "other", status: 200, backend: "a"},
		"HTTP/1.0":                                    {line: "GET /foo HTTP/1.0", host: "a.example", status: 200, backend: "a"},
		"OPTIONS * of an exact host":                  {line: "OPTIONS * HTTP/1.1", host: "a.example", status: 404},
		"CONNECT":                                     {line: "CONNECT a.example:80 HTTP/1.1", host: "a.example:80", status: 404},
		"an HTTP/2 backend":                           {host: "h2.example", status: 200, backend: "h2"},
		"weights that add up to nothing":              {host: "zero.example", status: 500},
		"no backends":                                 {host: "none.example", status: 500},
		"only an invalid backend":                     {host: "bad.example", status: 500},
		"a cluster that is missing":                   {host: "missing.example", status: 503},
		"a cluster without endpoints":                 {host: "empty.example", status: 503},
		"a client's own scope header is not followed": {host: "nope.example", headers: []string{"X-Aether-Scope: ns/gw.v1/1|a.example"}, status: 404, anyStatus: 200, anyBackend: "b"},
	}
}

func TestRequestsFindTheirRouteInBothModes(t *testing.T) {
	r := newRig(t)
	p := serveWorld(t, r)
	for name, c := range routingCases() {
		t.Run(name, func(t *testing.T) {
			line := c.line
			if line == "" {
				line = "GET /foo HTTP/1.1"
			}
			request := append([]string{line, "Host: " + c.host}, c.headers...)
			anyStatus, anyBackend := c.anyStatus, c.anyBackend
			if anyStatus == 0 {
				anyStatus, anyBackend = c.status, c.backend
			}
			for _, mode := range []struct {
				name    string
				port    uint32
				status  int
				backend string
			}{
				{"single", p.single, c.status, c.backend},
				{"per host", p.perHost, c.status, c.backend},
				{"single with a catch-all", p.singleAny, anyStatus, anyBackend},
				{"per host with a catch-all", p.perHostAny, anyStatus, anyBackend},
			} {
				got := ask(t, mode.port, request...)
				if got.Status != mode.status || got.Seen.Backend != mode.backend {
					t.Errorf("%s: got %d from %q, want %d from %q", mode.name, got.Status, got.Seen.Backend, mode.status, mode.backend)
				}
			}
		})
	}
	t.Run("a share is answered by each backend", func(t *testing.T) {
		for _, port := range []uint32{p.single, p.perHost} {
			count := map[string]int{}
			for range 200 {
				count[ask(t, port, "GET / HTTP/1.1", "Host: split.example").Seen.Backend]++
			}
			if count["a"] < 110 || count["b"] < 20 || count["a"]+count["b"] != 200 {
				t.Errorf("got %v, want about three of four from a, the rest from b", count)
			}
		}
	})
	t.Run("the share of an invalid backend is answered with 500, that of a missing cluster with 503", func(t *testing.T) {
		for host, want := range map[string]map[int][2]int{
			"half.example":   {200: {140, 260}, 500: {140, 260}},
			"mixed.example":  {200: {60, 140}, 500: {60, 140}, 503: {140, 260}},
			"broken.example": {500: {60, 140}, 503: {260, 340}},
		} {
			for _, port := range []uint32{p.single, p.perHost} {
				count := map[int]int{}
				for range 400 {
					count[ask(t, port, "GET / HTTP/1.1", "Host: "+host).Status]++
				}
				for status, within := range want {
					if n := count[status]; n < within[0] || n > within[1] {
						t.Errorf("%s: %d of 400 answers were %d, want %d to %d: %v", host, n, status, within[0], within[1], count)
					}
					delete(count, status)
				}
				if len(count) > 0 {
					t.Errorf("%s: %v too", host, count)
				}
			}
		}
	})
	t.Run("what has no endpoint to go to is answered at once", func(t *testing.T) {
		if tried := r.get("/stats?filter=ns/empty/80.upstream_rq_retry$"); !strings.HasSuffix(strings.TrimSpace(tried), ": 0") {
			t.Errorf("Envoy counts %q", tried)
		}
	})
	t.Run("what goes upstream has nothing of ours", func(t *testing.T) {
		for _, port := range []uint32{p.single, p.perHost} {
			for _, host := range []string{"a.example", "A.example", "x.wild.example"} {
				a := ask(t, port, "GET /foo HTTP/1.1", "Host: "+host,
					"X-Aether-Scope: evil", "x-aether-scope: more", "X-Envoy-Upstream-Rq-Timeout-Ms: 1", "X_Forwarded_For: 1.2.3.4")
				if a.Status != 200 || a.Seen.Host != host {
					t.Fatalf("%s: got %d, backend saw host %q", host, a.Status, a.Seen.Host)
				}
				for name := range a.Seen.Header {
					if !slices.Contains([]string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Request-Id"}, name) {
						t.Errorf("%s: backend saw header %s: %q", host, name, a.Seen.Header[name])
					}
				}
				for name := range a.Header {
					if strings.HasPrefix(name, "X-Envoy") || name == "Server" {
						t.Errorf("%s: client saw header %s: %q", host, name, a.Header[name])
					}
				}
			}
		}
	})
}
