package xds

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/delta"
	"aether.io/aether/internal/xds/kind"
)

// looped is a loop with an Envoy and a looker that answer at once.
type looped struct {
	*world
	srv *Server

	mu   sync.Mutex
	gone map[string]time.Duration // scopes that were removed, by when
}

// startLoop runs a loop within a bubble; drains is how long Envoy says that it drains.
func startLoop(t *testing.T, drains time.Duration) *looped {
	t.Helper()
	srv, err := New(Config{Socket: "unused"})
	if err != nil {
		t.Fatal(err)
	}
	x := &looped{world: newWorld(t), srv: srv, gone: map[string]time.Duration{}}
	l := newLoop(srv, delta.New("e"), nil)
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		parts.Wait()
	})
	st := &stream{outbox: make(chan *discoveryv3.DeltaDiscoveryResponse, outboxSize), over: make(chan struct{})}
	parts.Go(func() { l.run(ctx) })
	parts.Go(func() { // until ctx is done
		for {
			select {
			case <-ctx.Done():
				return
			case q := <-l.questions:
				v := sight{asked: q, bound: q.ports, drain: -1}
				if q.drain && q.alive {
					v.drain = drains
				}
				l.sights <- v
			}
		}
	})
	srv.opened <- st
	for _, k := range []kind.Kind{kind.Clusters, kind.Listeners, kind.Scopes} {
		srv.inbox <- fromEnvoy{st, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.TypeURL()}}
	}
	start := time.Now()
	parts.Go(func() { // until ctx is done
		for {
			select {
			case <-ctx.Done():
				return
			case r := <-st.outbox:
				x.note(r, time.Since(start))
				srv.inbox <- fromEnvoy{st, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}}
			}
		}
	})
	return x
}

func (x *looped) note(r *discoveryv3.DeltaDiscoveryResponse, at time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range r.GetRemovedResources() {
		x.gone[n] = at
	}
}

func (x *looped) removed(scope string) (time.Duration, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at, ok := x.gone[scope]
	return at, ok
}

// cut makes a table of hosts, and applies what has changed.
func (x *looped) cut(perHost bool, hosts ...string) {
	x.t.Helper()
	for n := range x.res {
		if n.TypeURL == envoy.ScopedRouteType {
			x.drop(n)
		}
	}
	star := envoy.Scope{Table: crossed, Host: "*", PerHost: perHost}
	put := func(m interface {
		Resource() (*resource.Resource, error)
	},
	) {
		r, err := m.Resource()
		if err != nil {
			x.t.Fatal(err)
		}
		x.res[r.Name] = r
	}
	for _, h := range hosts {
		v := envoy.VirtualHost{Host: h}
		if perHost {
			put(envoy.Scope{Table: crossed, Host: h, PerHost: true, VirtualHosts: []envoy.VirtualHost{v}})
		} else {
			star.VirtualHosts = append(star.VirtualHosts, v)
		}
	}
	put(star)
	put(envoy.Listener{Name: crossed, Address: "127.0.0.1", Port: 80, Chains: []envoy.Chain{{Name: crossed, PerHost: perHost}}})
	if _, err := x.srv.Apply(x.t.Context(), x.update(false)); err != nil {
		x.t.Fatal(err)
	}
}

const crossed = "ns/gw/80"

func TestKeptScopesAreRemovedWhenConnectionsHaveDrainedAndHoldNothingBack(t *testing.T) {
	for name, tt := range map[string]struct{ says, want time.Duration }{
		"as long as Envoy says":               {30 * time.Second, 30 * time.Second},
		"the usual time if it says nothing":   {-1, usualDrain},
		"a moment if it says that it is none": {0, drainLeast},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := startLoop(t, tt.says)
				x.cut(false, "a.test")
				before := time.Now()
				x.cut(true, "a.test", "b.test")
				if took := time.Since(before); took > 0 {
					t.Errorf("applied after %s, want at once", took)
				}
				if o := x.srv.Observed(); len(o.Pending) > 0 {
					t.Errorf("pending: %v", o.Pending)
				}
				time.Sleep(tt.want - time.Nanosecond)
				if at, ok := x.removed(crossed + "|*"); ok {
					t.Fatalf("removed after %s", at)
				}
				time.Sleep(2 * time.Nanosecond)
				synctest.Wait()
				if _, ok := x.removed(crossed + "|*"); !ok {
					t.Error("not removed")
				}
			})
		})
	}
}

func TestWhatIsKeptWhileOthersAreWaitsForAWholeDrainTime(t *testing.T) {
	const drains = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		x := startLoop(t, drains)
		x.cut(false, "a.test")
		x.cut(true, "a.test", "b.test")
		time.Sleep(drains / 2)
		x.cut(false, "a.test")
		time.Sleep(drains)
		synctest.Wait()
		var gone []string
		for _, n := range []string{"|*", "|*others", "|a.test", "|b.test"} {
			if _, ok := x.removed(crossed + n); ok {
				gone = append(gone, n)
			}
		}
		if len(gone) > 0 {
			t.Fatalf("removed when half of the time was over for them: %q", gone)
		}
		time.Sleep(drains)
		synctest.Wait()
		for _, n := range []string{"|*others", "|a.test", "|b.test"} {
			if _, ok := x.removed(crossed + n); !ok {
				gone = append(gone, n)
			}
		}
		if len(gone) > 0 {
			t.Errorf("not removed: %q", gone)
		}
		if _, ok := x.removed(crossed + "|*"); ok {
			t.Error("what is wanted was removed")
		}
	})
}
