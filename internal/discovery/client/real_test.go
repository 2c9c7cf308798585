package client_test

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/discovery/bootstrap"
	"aether.io/aether/internal/discovery/client"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/discovery/server"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	aetherid "aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
	"aether.io/aether/internal/test/controller"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
)

const release = "aether-system"

// real is the real controller side: CA, bootstrap, world and stream server, in one process.
type real struct {
	t      *testing.T
	td     spiffeid.TrustDomain
	id     spiffeid.ID
	ca     *ca.Authority
	world  *world.World
	token  string // path
	bundle string
	dir    string
}

func newReal(t *testing.T) *real {
	t.Helper()
	r := &real{
		t: t, td: spiffeid.RequireTrustDomainFromString("cluster.local"),
		id:  spiffeid.RequireFromString("spiffe://cluster.local/ns/" + release + "/sa/aether-controller"),
		dir: t.TempDir(), world: world.New(world.Config{}),
	}
	r.token, r.bundle = filepath.Join(r.dir, "token"), filepath.Join(r.dir, "ca.crt")
	var err error
	r.ca, err = ca.New(ca.Config{
		Store: ca.FileStore{Dir: filepath.Join(r.dir, "ca")}, Publisher: ca.BundleFile{Path: r.bundle}, TrustDomain: r.td,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.run(r.ca.Run)
	controller.Wait(t, "a CA", r.ca.Ready())
	return r
}

// run runs a part until the returned function, or the end of the test, stops it.
func (r *real) run(part func(context.Context) error) (stop func()) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := controller.Wait(r.t, "end of a part", done); err != nil {
			r.t.Errorf("ended with %v", err)
		}
	}
	r.t.Cleanup(stop)
	return stop
}

func (r *real) listen(addr string) net.Listener {
	r.t.Helper()
	lis, err := new(net.ListenConfig).Listen(r.t.Context(), "tcp", addr)
	if err != nil {
		r.t.Fatal(err)
	}
	return lis
}

// bootstrap serves Bootstrap for one token of the shared proxy's pod.
func (r *real) bootstrap(pod string) (endpoint string) {
	r.t.Helper()
	token := attest.NewToken()
	tokens := filepath.Join(r.dir, "tokens.json")
	err := attest.WriteTokenFile(tokens, []attest.Entry{{Token: token, Identity: svid.Workload{
		Namespace: release, ServiceAccount: "coxswain-shared-proxy", Pod: aetherid.Pod{Name: pod, UID: pod + "-uid"},
	}}})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.token, []byte(token.Reveal()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	s, err := bootstrap.New(bootstrap.Config{
		Attester: attest.NewTokenFile(tokens), Allow: bootstrap.AllowList{ReleaseNamespace: release}, CA: r.ca, TrustDomain: r.td,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	lis := r.listen("127.0.0.1:0")
	r.run(func(ctx context.Context) error { return s.Serve(ctx, lis, r.ca.ServerTLS(r.id)) })
	return "https://" + lis.Addr().String()
}

// streams serves Stream at an address.
func (r *real) streams(addr string, change ...func(*server.Config)) (at string, s *server.Server, stop func()) {
	r.t.Helper()
	cfg := server.Config{
		TrustDomain: r.td, Authorizer: server.Rule{TrustDomain: r.td, ReleaseNamespace: release},
		Subscribe: func(ctx context.Context, s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (server.Subscription, error) {
			return r.world.Subscribe(ctx, s, p, have, superseded)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	lis := r.listen(addr)
	stop = r.run(func(ctx context.Context) error { return s.Serve(ctx, lis, r.mutual()) })
	return lis.Addr().String(), s, stop
}

func (r *real) mutual() *tls.Config { return r.ca.MutualTLS(r.id) }

// publish makes the shared pool's world differ.
func (r *real) publish(position uint64, removed []resource.Name, changed ...*resource.Resource) {
	r.world.Publish(map[scope.Scope]resource.Delta{scope.SharedPool(): {Changed: changed, Removed: removed}},
		watermark.Mark{Positions: map[string]uint64{"files": position}})
}

// until waits for the proxy to be seen by the world as it should be.
func (r *real) until(what string, is func(fleet.Proxy) bool) {
	r.t.Helper()
	events, stop := r.world.Observe()
	defer stop()
	late := time.After(controller.Patience)
	for {
		all := r.world.Proxies()
		if len(all) == 1 && is(all[0]) {
			return
		}
		select {
		case <-events:
		case <-late:
			r.t.Fatalf("never %s; proxies: %+v", what, all)
		}
	}
}

// The client against the real other side: the whole channel but for the machine's borders.
func TestAgainstTheRealController(t *testing.T) {
	r := newReal(t)
	trust := own(t, "trust", &discoveryv1.TrustBundle{RootsDer: r.ca.Roots().DER()})
	a, b, c := res(t, "a", "1"), res(t, "b", "1"), res(t, "c", "1")
	r.publish(1, nil, trust, a, b)
	r.world.SetSynced()
	addr, s, stop := r.streams("127.0.0.1:0")

	source, err := identity.New(identity.Config{
		Endpoint: r.bootstrap("proxy-0"), TokenPath: r.token, BundlePath: r.bundle, TrustDomain: r.td, ServerID: r.id,
	})
	if err != nil {
		t.Fatal(err)
	}
	e := newEnvoy()
	states := make(chan health.State, 1024)
	proxy, err := client.New(client.Config{
		Endpoint: "https://" + addr, Identity: source, Applier: e, Scope: scope.SharedPool(), NodeID: "proxy-0",
		OnState: func(s health.State) { states <- s },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.run(source.Run)
	r.run(proxy.Run)

	r.until("current", func(p fleet.Proxy) bool { return p.Connected && p.Current && p.ID == "proxy-0" })
	r.until("reported", func(p fleet.Proxy) bool {
		return p.Status.SVIDSerial == source.Current().Serial() && len(p.Status.MountedRoots) == 1 && len(p.Status.PushedRoots) == 1
	})
	if u := <-e.applied; u.Version != version(trust, a, b) {
		t.Errorf("applied %+v", u)
	}

	t.Run("a renewal resends nothing", func(t *testing.T) {
		before := source.Current().Serial()
		if n := s.Renew("test"); n != 1 {
			t.Errorf("asked %d clients", n)
		}
		r.until("renewed", func(p fleet.Proxy) bool { return p.Connected && p.Current && p.Status.SVIDSerial != before })
		for range len(e.applied) {
			if u := <-e.applied; len(u.Changed) != 0 {
				t.Errorf("resent %v", u.Changed)
			}
		}
	})
	t.Run("a refusal is known, and survives a restart of the controller", func(t *testing.T) {
		bad := res(t, "b", "bad")
		e.turn(func(e *envoy) { e.says.Refused = []resource.Refusal{{Name: bad.Name, Hash: bad.Hash, Detail: "no"}} })
		r.publish(2, nil, bad)
		refused := func(p fleet.Proxy) bool { return p.Connected && len(p.Refused) == 1 && p.Refused[0].Detail == "no" }
		r.until("refused", refused)

		stop()
		r.until("disconnected", func(p fleet.Proxy) bool { return !p.Connected })
		r.publish(3, []resource.Name{a.Name}, c)
		_, s, stop = r.streams(addr)
		r.until("current again but for the refusal", func(p fleet.Proxy) bool { return refused(p) && p.Version == version(trust, bad, c) })
		e.turn(func(e *envoy) { e.says.Refused = nil })
		r.publish(4, nil, b)
		r.until("mended", func(p fleet.Proxy) bool { return p.Current && len(p.Refused) == 0 && p.Version == version(trust, b, c) })
	})
	t.Run("a controller that knows nothing of it asks what is held", func(t *testing.T) {
		stop()
		for range len(e.applied) { // what came until now
			<-e.applied
		}
		old := r.world
		r.world = world.New(world.Config{})
		r.publish(5, nil, old.Resources(scope.SharedPool())...)
		r.publish(6, nil, a)
		r.world.SetSynced()
		_, s, stop = r.streams(addr)
		r.until("current", func(p fleet.Proxy) bool { return p.Current && p.Version == version(trust, a, b, c) })
		if u := <-e.applied; u.Full || len(u.Changed) != 1 || u.Changed[0].Name != a.Name {
			t.Errorf("sent %+v", u)
		}
	})
	t.Run("an aged connection is left without a gap", func(t *testing.T) {
		stop()
		for range len(states) {
			<-states
		}
		addrs := make(chan string, 1024)
		_, s, stop = r.streams(addr, func(c *server.Config) {
			c.MaxConnectionAge, c.GoodbyeGrace = 500*time.Millisecond, 10*time.Second
			inner := c.Subscribe
			c.Subscribe = func(ctx context.Context, s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (server.Subscription, error) {
				addrs <- p.Addr
				return inner(ctx, s, p, have, superseded)
			}
		})
		first := controller.Wait(t, "a stream", addrs)
		r.until("current", func(p fleet.Proxy) bool { return p.Connected && p.Current })
		for range len(states) {
			<-states
		}
		if second := controller.Wait(t, "another stream", addrs); second == first {
			t.Errorf("both streams on %s", first)
		}
		r.until("current", func(p fleet.Proxy) bool { return p.Connected && p.Current })
		for range len(states) {
			if s := <-states; s.State != health.Ready {
				t.Errorf("was %+v meanwhile", s)
			}
		}
	})
	if held := e.Held(); !slices.ContainsFunc(held.Resources, func(r *resource.Resource) bool { return r.Name == trust.Name }) {
		t.Errorf("held is %+v", held)
	}
}
