//go:build component

package envoy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/footprint"
	"aether.io/aether/internal/envoy/route"
)

// allocated is the bytes that Envoy has allocated, once it is done with freeing and
// allocating: the same, but for a thousandth, for a while.
func (r *rig) allocated(t *testing.T) int64 {
	t.Helper()
	var last int64
	same := 0
	await(t, "memory that stands still", func() bool {
		var page struct{ Allocated string }
		if err := json.Unmarshal([]byte(r.get("/memory")), &page); err != nil {
			return false
		}
		n, err := strconv.ParseInt(page.Allocated, 10, 64)
		if err != nil {
			return false
		}
		if same++; n-last > n/1000 || last-n > n/1000 {
			same = 0
		}
		last = n
		return same == 100
	}, func() string { return r.get("/memory") })
	return last
}

// TestAFootprintIsWhatEnvoyTakes keeps the estimate, by which routes are left out, to what
// Envoy really takes: hardly less, and not a multiple more.
func TestAFootprintIsWhatEnvoyTakes(t *testing.T) {
	const table, routes = "ns/gw/80", 1000
	regex := func(pattern string) func(*envoy.Route) {
		return func(x *envoy.Route) { x.Path = envoy.PathMatch{Kind: envoy.PathRegex, Value: pattern} }
	}
	wild := &route.CORS{Methods: []string{"GET"}}
	for i := range 16 {
		wild.Origins = append(wild.Origins, fmt.Sprintf("https://*.a%d.example:444", i))
	}
	for name, change := range map[string]func(*envoy.Route){
		"a prefix":                    func(*envoy.Route) {},
		"a short regular expression":  regex("/shop/[0-9]+"),
		"a long text":                 regex("/" + strings.Repeat("a", 900)),
		"repetition":                  regex("/[a-z]{500}"),
		"dots and stars":              regex("/" + strings.Repeat("a.*", 20)),
		"alternatives":                regex("/(" + strings.Repeat("abc|", 50) + "d)"),
		"groups":                      regex("/" + strings.Repeat("(a)", 50)),
		"conditions on headers":       func(x *envoy.Route) { x.Headers = headers(16, "v", false) },
		"regular expressions of them": func(x *envoy.Route) { x.Headers = headers(16, "v[0-9]+", true) },
		"many backends": func(x *envoy.Route) {
			for i := range 15 {
				x.Backends = append(x.Backends, envoy.WeightedBackend{Cluster: fmt.Sprintf("ns/c%d/80", i), Weight: 1})
			}
		},
		"a long header":           func(x *envoy.Route) { x.Request.Set = []route.Header{{Name: "x", Value: strings.Repeat("a", 4000)}} },
		"origins with a wildcard": func(x *envoy.Route) { x.CORS = wild },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			port := freePort(t)
			host := envoy.VirtualHost{Host: "a.example"}
			var estimate int64
			for i := range routes {
				x := envoy.Route{Name: fmt.Sprintf("tenant/route-%d/0/0", i), Path: prefix(fmt.Sprintf("/p%d", i)), Backends: to("ns/b/80")}
				change(&x)
				host.Routes = append(host.Routes, x)
				estimate += x.Footprint()
			}
			took := r.grows(t, table, port, host)
			if ratio := float64(estimate) / float64(took); ratio < 0.8 || ratio > 3 {
				t.Errorf("%d routes take %d bytes each, the estimate is %d: %.2f of it", routes, took/routes, estimate/routes, ratio)
			}
		})
	}
	t.Run("hosts with a scope each", func(t *testing.T) {
		r := newRig(t)
		port := freePort(t)
		var hosts []envoy.VirtualHost
		for i := range routes {
			hosts = append(hosts, envoy.VirtualHost{Host: fmt.Sprintf("h%d.example", i)})
		}
		took := r.grows(t, table, port, hosts...)
		if ratio := float64(footprint.Host*routes) / float64(took); ratio < 0.8 || ratio > 3 {
			t.Errorf("a host takes %d bytes, the estimate is %d", took/routes, footprint.Host)
		}
	})
	t.Run("clusters", func(t *testing.T) {
		r := newRig(t)
		requireClusters(t, r, routes, footprint.Cluster, func(i int) []model { return cluster(fmt.Sprintf("ns/b%d/80", i), envoy.HTTP1) })
	})
}

// TestEachClusterHasItsCertificates: one bundle is in Envoy as often as there are clusters of it.
func TestEachClusterHasItsCertificates(t *testing.T) {
	for name, c := range map[string]struct {
		clusters    int64
		authorities int
	}{
		"one":  {400, 1},
		"many": {40, 1400},
	} {
		t.Run(name, func(t *testing.T) {
			trust := envoy.Trust{Name: "ns/p/backend-ca", Authorities: authorities(t, c.authorities)}
			r := newRig(t)
			r.serve(t, trust)
			requireClusters(t, r, c.clusters, footprint.Cluster+footprint.TLS+footprint.Authorities(len(trust.Authorities)), func(i int) []model {
				return secured(i, envoy.UpstreamTLS{Trust: trust.Name})
			})
		})
	}
	t.Run("the system's", func(t *testing.T) {
		pem := authorities(t, 390)
		file := filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(file, pem, 0o600); err != nil {
			t.Fatal(err)
		}
		if len(pem) < footprint.SystemAuthorities*8/10 || len(pem) > footprint.SystemAuthorities {
			t.Fatalf("the file has %d bytes", len(pem))
		}
		requireClusters(t, newRig(t), 100, footprint.Cluster+footprint.TLS+footprint.Authorities(footprint.SystemAuthorities), func(i int) []model {
			return secured(i, envoy.UpstreamTLS{TrustFile: file})
		})
	})
	t.Run("a long chain of its own", func(t *testing.T) {
		by := newAuthority(t, "authority", nil)
		shown := by.secret(t, "ns/shown", ecKey(), "a.example")
		shown.Chain = append(shown.Chain, authorities(t, 1400)...)
		r := newRig(t)
		r.serve(t, envoy.Trust{Name: "ns/p/backend-ca", Authorities: by.CertPEM()}, shown)
		estimate := footprint.Cluster + footprint.TLS + footprint.Authorities(len(by.CertPEM())) + footprint.Chain(len(shown.Chain))
		requireClusters(t, r, 40, estimate, func(i int) []model {
			return secured(i, envoy.UpstreamTLS{Trust: "ns/p/backend-ca", Certificate: shown.Name})
		})
	})
}

func authorities(t *testing.T, n int) (pem []byte) {
	t.Helper()
	for i := range n {
		pem = append(pem, newAuthority(t, fmt.Sprintf("authority %d", i), nil).CertPEM()...)
	}
	return pem
}

func secured(i int, tls envoy.UpstreamTLS) []model {
	tls.ServerName, tls.Names = "a.example", []envoy.SubjectName{{Value: "a.example"}}
	name := fmt.Sprintf("ns/b%d/80", i)
	return []model{envoy.Endpoints{Cluster: name}, envoy.Cluster{Name: name, ConnectTimeout: time.Second, TLS: &tls}}
}

// requireClusters is that Envoy takes for each of n clusters what the estimate says.
func requireClusters(t *testing.T, r *rig, n, estimate int64, each func(int) []model) {
	t.Helper()
	r.serve(t, envoy.Runtime{})
	await(t, "Envoy", func() bool { return strings.Contains(r.get("/ready"), "LIVE") }, func() string { return r.get("/ready") })
	before := r.allocated(t)
	for i := range n {
		r.serve(t, each(int(i))...)
	}
	await(t, "the clusters", func() bool { return strings.Contains(r.get("/clusters"), fmt.Sprintf("ns/b%d/80::", n-1)) }, func() string { return "" })
	took := (r.allocated(t) - before) / n
	if estimate < took*8/10 || estimate > took*3 {
		t.Errorf("a cluster takes %d bytes, the estimate is %d", took, estimate)
	}
}

func headers(n int, value string, regex bool) []envoy.HeaderMatch {
	var list []envoy.HeaderMatch
	for i := range n {
		list = append(list, envoy.HeaderMatch{Name: fmt.Sprintf("x-h%d", i), Value: value, Regex: regex})
	}
	return list
}

// grows is by how many bytes Envoy grows for hosts of a table, each with a scope of its own.
func (r *rig) grows(t *testing.T, table string, port uint32, hosts ...envoy.VirtualHost) int64 {
	t.Helper()
	r.serve(t, envoy.Runtime{}, envoy.Scope{Table: table, Host: "*", PerHost: true}, envoy.Listener{
		Name: table, Address: "127.0.0.1", Port: port, Chains: []envoy.Chain{{Name: table, PerHost: true}},
	})
	r.awaitListener(t, port)
	before := r.allocated(t)
	last := envoy.VirtualHost{Host: "last.example", Routes: []envoy.Route{{Name: "ns/last/0/0"}}}
	r.serve(t, scopes(table, true, append(hosts, last))[:len(hosts)+1]...)
	await(t, "the last host", func() bool { return status(port, last.Host) == 500 }, func() string { return r.get("/stats?filter=scoped_rds") })
	return r.allocated(t) - before
}
