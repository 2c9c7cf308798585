//go:build component

package xds

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/probe"
)

// backend answers every request with the name.
func backend(t *testing.T, name string) int {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	t.Cleanup(s.Close)
	return s.Listener.Addr().(*net.TCPAddr).Port
}

// table replaces the scopes and the listener by those of the hosts, each of which is
// served by the cluster of its value.
func (r *rig) table(perHost bool, hosts map[string]string) {
	r.t.Helper()
	put := func(m interface {
		Resource() (*resource.Resource, error)
	},
	) {
		r.t.Helper()
		res, err := m.Resource()
		if err != nil {
			r.t.Fatal(err)
		}
		r.res[res.Name] = res
	}
	for n := range r.res {
		if n.TypeURL == envoy.ScopedRouteType {
			r.drop(n)
		}
	}
	star := envoy.Scope{Table: crossed, Host: "*", PerHost: perHost}
	for host, cluster := range hosts {
		v := envoy.VirtualHost{Host: host, Routes: []envoy.Route{{
			Name: "ns/" + host, Path: envoy.PathMatch{Kind: envoy.PathPrefix, Value: "/"},
			Backends: []envoy.WeightedBackend{{Cluster: cluster, Weight: 1}},
		}}}
		if perHost && !strings.HasPrefix(host, "*") {
			put(envoy.Scope{Table: crossed, Host: host, PerHost: true, VirtualHosts: []envoy.VirtualHost{v}})
			continue
		}
		star.VirtualHosts = append(star.VirtualHosts, v)
	}
	put(star)
	put(envoy.Listener{
		Name: crossed, Address: "127.0.0.1", Port: uint32(r.port),
		Chains: []envoy.Chain{{Name: crossed, PerHost: perHost}},
	})
}

// scopes counts the scopes that Envoy has.
func (r *rig) scopes(admin *http.Client) int {
	var dump struct {
		Configs []struct {
			Dynamic []struct {
				Scopes []any `json:"scoped_route_configs"`
			} `json:"dynamic_scoped_route_configs"`
		} `json:"configs"`
	}
	if probe.Ask(r.t.Context(), admin, "/config_dump", &dump) != nil {
		return -1
	}
	n := 0
	for _, c := range dump.Configs {
		for _, d := range c.Dynamic {
			n += len(d.Scopes)
		}
	}
	return n
}

func TestATableThatIsCutAnotherWayAnswersConnectionsThatItHasAsBefore(t *testing.T) {
	r := newRig(t, "--drain-time-s", "2")
	few := map[string]string{"f.ft.com": "ns/exact/80", "*.ft.com": "ns/wild/80", "*": "ns/any/80"}
	for _, name := range []string{"exact", "wild", "any"} {
		r.cluster("ns/" + name + "/80")
		r.endpoints("ns/"+name+"/80", backend(t, name))
	}
	many := maps.Clone(few)
	for i := range 300 {
		many[fmt.Sprintf("h%d.ft.com", i)] = "ns/exact/80"
	}
	r.table(false, few)
	r.clean(r.apply(true))

	admin := probe.Admin(r.dir + "/admin.sock")
	defer admin.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	var answers atomic.Int64
	for i := range 6 {
		clients.Go(func() { r.constantly(ctx, i%2 == 1, &answers) })
	}
	more := func() {
		from := answers.Load()
		r.await("answers", func() bool { return answers.Load() > from+200 })
	}
	more()
	for range 2 {
		r.table(true, many)
		r.clean(r.apply(false))
		r.await("the scope of all hosts to go", func() bool { return r.scopes(admin) == 302 })
		more()
		r.table(false, few)
		r.clean(r.apply(false))
		r.await("the scopes of hosts to go", func() bool { return r.scopes(admin) == 1 })
		more()
	}
}

// await polls until ok.
func (r *rig) await(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			r.t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}

// constantly asks for hosts on one connection, as long as Envoy keeps it, then on the
// next. One that breaks has outlived the drain time: there is no answer to be wrong.
func (r *rig) constantly(ctx context.Context, h2 bool, answers *atomic.Int64) {
	tr := &http.Transport{MaxConnsPerHost: 1, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetUnencryptedHTTP2(h2)
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: 20 * time.Second}
	want := map[string]string{"f.ft.com": "exact", "F.ft.com:80": "exact", "x.ft.com": "wild", "other.test": "any"}
	for ctx.Err() == nil {
		for host, name := range want {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", r.port), http.NoBody)
			if err != nil {
				r.t.Error(err)
				return
			}
			req.Host = host
			resp, err := client.Do(req)
			if err != nil {
				continue
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil {
				continue
			}
			if string(body) != name || resp.StatusCode != http.StatusOK {
				r.t.Errorf("%s (%s): %d by %q, want %q", host, resp.Proto, resp.StatusCode, body, name)
			}
			answers.Add(1)
		}
	}
}
