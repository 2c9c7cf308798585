package envoy_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
)

var update = flag.Bool("update", false, "rewrite the goldens and delete those no test has")

// model is anything that becomes a resource.
type model interface {
	Resource() (*resource.Resource, error)
}

func goldens() map[string]model {
	origin := []object.Key{{Kind: object.Gateway, Namespace: "shop", Name: "web"}}
	return map[string]model{
		"listener-http": envoy.Listener{
			Name: "shop/web/80", Address: "::", Port: 10080, Origin: origin,
			Chains: []envoy.Chain{{Name: "shop/web/80", AccessLog: "/dev/stdout"}},
		},
		"listener-http-per-host": envoy.Listener{
			Name: "shop/web/80", Address: "0.0.0.0", Port: 10080, Origin: origin,
			Chains: []envoy.Chain{{Name: "shop/web/80", PerHost: true, TrustedHops: 1}},
		},
		"listener-https": envoy.Listener{
			Name: "shop/web/443", Address: "0.0.0.0", Port: 10443, Origin: origin,
			Chains: []envoy.Chain{
				{Name: "shop/web/any", Secrets: []string{"shop/any"}},
				{Name: "shop/web/https", SNI: []string{"shop.example", "*.shop.example"}, Secrets: []string{"shop/ecdsa", "shop/rsa"}},
			},
		},
		"listener-guarded": envoy.Listener{
			Name: "shop/web/443", Address: "0.0.0.0", Port: 10443, Origin: origin,
			Proxied: envoy.Proxied{Mode: envoy.ProxyAccept, Trusted: []string{"10.0.0.0/8", "fd00::1/64"}},
			Chains: []envoy.Chain{
				{Name: "shop/web/any", Port: 443, Secrets: []string{"shop/any"}, MinTLS13: true, Clients: envoy.ClientCertificates{Trust: "shop/web/443/clients"}},
				{Name: "shop/web/https", Port: 443, SNI: []string{"shop.example"}, Secrets: []string{"shop/any"}, Clients: envoy.ClientCertificates{Trust: "shop/web/443/clients", Optional: true}},
			},
		},
		"scope-misdirected": envoy.Scope{
			Table: "shop/web/https", Host: "*", PerHost: true, Origin: origin,
			VirtualHosts: []envoy.VirtualHost{{Host: "shop.example"}}, Elsewhere: []string{"*.other.example", "other.example"},
		},
		"scope-single": envoy.Scope{
			Table: "shop/web/80", Host: "*", Origin: origin,
			VirtualHosts: []envoy.VirtualHost{
				{Host: "shop.example", Routes: []envoy.Route{
					{
						Name:     "shop/cart/0/0",
						Path:     envoy.PathMatch{Kind: envoy.PathExact, Value: "/cart"},
						Headers:  []envoy.HeaderMatch{{Name: "x-tier", Value: "gold"}, {Name: "x-build", Value: "v[0-9]+", Regex: true}},
						Method:   "GET",
						Query:    []envoy.QueryMatch{{Name: "beta", Value: "1"}},
						Backends: []envoy.WeightedBackend{{Cluster: "shop/cart/80", Weight: 9}, {Cluster: "shop/cart-next/80", Weight: 1}},
					},
					{
						Name:     "shop/cart/1/0",
						Path:     envoy.PathMatch{Value: "/cart/"},
						Backends: []envoy.WeightedBackend{{Cluster: "shop/cart/80", Weight: 1}, {Weight: 3}},
					},
				}},
				{Host: "*.shop.example", Routes: []envoy.Route{
					{Name: "shop/any/0/0", Backends: []envoy.WeightedBackend{{Cluster: "shop/any/80", Weight: 1}}},
				}},
				{Host: "*", Routes: []envoy.Route{{Name: "shop/none/0/0", Path: envoy.PathMatch{Kind: envoy.PathRegex, Value: "/x.*"}}}},
			},
		},
		"scope-per-host": envoy.Scope{
			Table: "shop/web/80", Host: "shop.example", PerHost: true, Origin: origin,
			VirtualHosts: []envoy.VirtualHost{{Host: "shop.example"}},
		},
		"cluster-http1": envoy.Cluster{Name: "shop/cart/80"},
		"cluster-http2": envoy.Cluster{Name: "shop/cart/81", Protocol: envoy.HTTP2, ConnectTimeout: 1500 * time.Millisecond},
		"cluster-tls": envoy.Cluster{Name: "shop/cart/443@infra/web", TLS: &envoy.UpstreamTLS{
			ServerName: "cart.shop.example", Trust: "shop/cart/backend-ca", Certificate: "infra/client",
			Names: []envoy.SubjectName{{Value: "cart.shop.example"}, {Value: "*.pod.example"}, {URI: true, Value: "spiffe://shop.example/cart"}},
		}},
		"cluster-tls-http2-system": envoy.Cluster{Name: "shop/cart/443", Protocol: envoy.HTTP2, TLS: &envoy.UpstreamTLS{
			ServerName: "cart.shop.example", Names: []envoy.SubjectName{{Value: "cart.shop.example"}}, TrustFile: "/etc/ssl/certs/ca-certificates.crt",
		}},
		"listener-collector": envoy.Listener{
			Name: "shop/web/80", Address: "0.0.0.0", Port: 10080, Origin: origin,
			Chains: []envoy.Chain{{Name: "shop/web/80", Port: 80, AccessLog: "/dev/stdout", Collector: true}},
		},
		"collector":     envoy.Collector{Host: "collector.otel.svc", Port: 4317},
		"collector-tls": envoy.Collector{Host: "10.0.0.1", Port: 4317, TLS: envoy.CollectorTLS("collector.otel.svc", "")},
		"endpoints-of-pods": envoy.Endpoints{Cluster: "shop/cart/80", Addresses: []envoy.Address{
			{IP: "10.0.0.1", Port: 8080, Pod: "cart-1", Namespace: "shop"}, {IP: "10.0.0.2", Port: 8080},
		}},
		"endpoints":            envoy.Endpoints{Cluster: "shop/cart/80", Addresses: []envoy.Address{{IP: "fd00::1", Port: 8080}, {IP: "10.0.0.1", Port: 8080}}},
		"endpoints-of-nothing": envoy.Endpoints{Cluster: "shop/cart/80"},
		"runtime": envoy.Runtime{
			AccessLogs: map[string]envoy.AccessLog{
				"shop/web/80": {Enabled: true, SuccessSample: 10}, "shop/web/https": {SuccessSample: 100},
			}, Traces: map[string]float64{"shop/web/80": 0.05, "shop/web/https": 0}, PodStats: map[string]bool{"shop/web/80": true, "shop/web/https": false},
			Connections: map[string]uint32{"shop/web/80": 1000},
		},
	}
}

func TestModelsBecomeTheseResources(t *testing.T) {
	known := map[string]bool{}
	for name, m := range goldens() {
		t.Run(name, func(t *testing.T) {
			r, err := m.Resource()
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := r.Any().UnmarshalNew()
			if err != nil {
				t.Fatal(err)
			}
			raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(decoded)
			if err != nil {
				t.Fatal(err)
			}
			body, err := yaml.JSONToYAML(raw)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".out.yaml", append([]byte("# "+r.Name.String()+"\n"), body...))
		})
		known[name+".out.yaml"] = true
	}
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch {
		case f.IsDir() || known[f.Name()]:
		case *update:
			if err := os.Remove(filepath.Join("testdata", f.Name())); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("testdata/%s belongs to no test: run with -update", f.Name())
		}
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("differs from %s (-want +got, -update rewrites it):\n%s", path, diff)
	}
}

func TestEqualModelsGiveEqualBytes(t *testing.T) {
	for name := range goldens() {
		first, err := goldens()[name].Resource()
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			again, err := goldens()[name].Resource()
			if err != nil {
				t.Fatal(err)
			}
			if again.Hash != first.Hash {
				t.Fatalf("%s: two encodings differ", name)
			}
		}
	}
}

func TestTheOrderOfEndpointsChangesNothing(t *testing.T) {
	a, b := envoy.Address{IP: "10.0.0.1", Port: 80}, envoy.Address{IP: "10.0.0.2", Port: 80}
	first, err := envoy.Endpoints{Cluster: "ns/a/80", Addresses: []envoy.Address{a, b}}.Resource()
	if err != nil {
		t.Fatal(err)
	}
	second, err := envoy.Endpoints{Cluster: "ns/a/80", Addresses: []envoy.Address{b, a, b}}.Resource()
	if err != nil {
		t.Fatal(err)
	}
	if first.Hash != second.Hash {
		t.Error("order or a duplicate changed the resource")
	}
}

func TestResourcesHaveTheTypesThatAreExported(t *testing.T) {
	want := map[string]string{
		"listener-http": envoy.ListenerType, "scope-single": envoy.ScopedRouteType, "cluster-http1": envoy.ClusterType,
		"endpoints": envoy.EndpointType, "runtime": envoy.RuntimeType,
	}
	for name, typ := range want {
		r, err := goldens()[name].Resource()
		if err != nil {
			t.Fatal(err)
		}
		if r.TypeURL != typ {
			t.Errorf("%s has type %s, want %s", name, r.TypeURL, typ)
		}
	}
}
