package provision_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"aether.io/aether/internal/provision"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

func dedicated(gw front.Front) front.Front {
	gw.Dedicated, gw.UID = true, "uid"
	return gw
}

// balance gives a Service an address and proxies.
func (c *cluster) balance(n key.Name) {
	c.services[n].Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	c.ready[n] = true
}

// state is what a Service says of a change, in a word; empty: it is not there.
func (c *cluster) state(n key.Name) string {
	s := c.services[n]
	switch {
	case s == nil:
		return ""
	case s.Annotations[front.RetiredAnnotation] != "":
		return "retired"
	case s.Annotations[front.SupersededAnnotation] != "":
		return "superseded"
	}
	return "counts"
}

func TestAChangeOfProxiesTakesItsTime(t *testing.T) {
	c := newCluster()
	shared := gateway("shop", "web", 80, 443)
	own := dedicated(shared)
	c.reconcile(shared)
	c.balance(at(shared))
	want := func(what string, wanted front.Front, states [2]string, again time.Duration) {
		t.Helper()
		p := c.reconcile(wanted)
		if got := [2]string{c.state(at(shared)), c.state(ownAt(own))}; got != states {
			t.Fatalf("%s: the shared and the own Service are %q, want %q", what, got, states)
		}
		var in time.Duration
		if !p.Again.IsZero() {
			in = p.Again.Sub(c.now)
		}
		if in != again {
			t.Fatalf("%s: to be looked at again in %s, want %s", what, in, again)
		}
		if stays := p.Stay[own.Gateway]; stays != (states[1] != "" && !wanted.Dedicated) {
			t.Fatalf("%s: its own proxies are left as they are: %v", what, stays)
		}
	}
	want("wanted", own, [2]string{"counts", "counts"}, 0)
	c.services[ownAt(own)].Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.2"}}
	want("an address and no proxy", own, [2]string{"counts", "counts"}, 0)
	c.ready[ownAt(own)] = true
	want("ready", own, [2]string{"superseded", "counts"}, overlap)
	c.now = c.now.Add(overlap - time.Second)
	c.ready[ownAt(own)] = false // what has begun is not taken back
	want("a second before", own, [2]string{"superseded", "counts"}, time.Second)
	c.now = c.now.Add(time.Second)
	want("after the overlap", own, [2]string{"retired", "counts"}, linger)
	c.now = c.now.Add(linger)
	want("at the end", own, [2]string{"", "counts"}, 0)

	// And back, with a change of mind.
	c.ready[ownAt(own)] = true
	want("shared again", shared, [2]string{"counts", "counts"}, 0)
	c.balance(at(shared))
	want("the shared one is ready", shared, [2]string{"counts", "superseded"}, overlap)
	c.now = c.now.Add(time.Minute)
	want("a change of mind", own, [2]string{"superseded", "counts"}, overlap)
	want("another", shared, [2]string{"counts", "superseded"}, overlap)
	c.now = c.now.Add(overlap)
	want("after the overlap", shared, [2]string{"counts", "retired"}, linger)
	c.now = c.now.Add(linger)
	want("at the end", shared, [2]string{"counts", ""}, 0)
}

func TestWhatCannotBeReadIsLeftAsItIs(t *testing.T) {
	c := newCluster()
	a, b := gateway("shop", "web", 80), dedicated(gateway("shop", "own", 80))
	c.reconcile(a, b)
	before := c.ports(a)
	keep := func(f front.Front) front.Front { return front.Front{Gateway: f.Gateway, Class: f.Class, Keep: true} }
	other := gateway("blog", "web", 80)
	p := c.reconcile(keep(a), keep(b), other)
	if len(p.Delete) > 0 || len(p.Apply) != 1 || !p.Stay[b.Gateway] {
		t.Errorf("plan %+v", p)
	}
	if got := c.ports(other)[80]; got == before[80] {
		t.Errorf("another Gateway got the internal port %d of one that is left as it is", got)
	}
	if c.services[ownAt(b)] == nil || !maps.Equal(c.ports(a), before) {
		t.Errorf("Services %v", slices.Collect(maps.Keys(c.services)))
	}
	// A name that another has a right to is given up.
	twin := gateway("sho", "p-web", 80)
	twin.Gateway = key.Name{Namespace: "shop-web", Name: "x"}
	clash := front.Front{Gateway: key.Name{Namespace: "shop", Name: "web-x"}, Class: "coxswain", Keep: true}
	c.reconcile(gateway("shop", "web-x", 80))
	if p := c.reconcile(clash, twin); len(p.Delete) != 1 || p.Lacks[twin.Gateway].IsZero() {
		t.Errorf("plan %+v", p)
	}
	if c.reconcile(clash, twin); c.services[at(twin)] == nil || !front.Ours(c.services[at(twin)], twin.Gateway) {
		t.Error("the one with the right to the name does not have it")
	}
}

func TestNothingLeadsToProxiesThatCannotBeHad(t *testing.T) {
	c := newCluster()
	gw := dedicated(gateway("shop", "web", 80))
	p := provision.Services(provision.Input{
		Namespace: namespace, Selector: selector(), Wanted: []front.Front{gw}, Ready: func(key.Name) bool { return false },
		Refused: map[key.Name]bool{gw.Gateway: true}, Now: c.now, Overlap: overlap, Linger: linger,
	})
	if len(p.Apply) != 0 {
		t.Errorf("applies %v", *p.Apply[0].Name)
	}
}

// Whatever Gateways want, and whenever: one that has had a ready Service always has one that
// leads to its proxies, and nothing is left when all are gone.
func TestAGatewayIsAlwaysReachedThroughRandomChanges(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 3))
		c := newCluster()
		wanted, reached := map[string]front.Front{}, map[string]bool{}
		for step := range 60 {
			id := fmt.Sprint("g", random.IntN(3))
			gw := gateway("ns", id, 80)
			switch random.IntN(6) {
			case 0:
				delete(wanted, id)
				delete(reached, id)
			case 1:
				wanted[id] = gw
			case 2:
				wanted[id] = dedicated(gw)
			case 3:
				if f, is := wanted[id]; is {
					f.Keep = true
					wanted[id] = f
				}
			case 4:
				c.now = c.now.Add(time.Duration(random.IntN(400)) * time.Second)
			default:
				for n := range c.services {
					if random.IntN(2) == 0 {
						c.balance(n)
					}
				}
			}
			c.reconcile(slices.Collect(maps.Values(wanted))...)
			for id, f := range wanted {
				reachable := false
				for _, n := range []key.Name{at(f), ownAt(f)} {
					reachable = reachable || c.services[n] != nil && c.ready[n] && c.state(n) != "retired"
				}
				if reached[id] && !reachable {
					t.Fatalf("seed %d step %d: Gateway %s is reached no more: shared %q, own %q", seed, step, id, c.state(at(f)), c.state(ownAt(f)))
				}
				reached[id] = reached[id] || reachable
			}
			for n := range c.ready {
				if c.services[n] == nil {
					delete(c.ready, n)
				}
			}
		}
		if c.reconcile(); len(c.services) != 0 {
			t.Fatalf("seed %d: %d Services are left without a Gateway", seed, len(c.services))
		}
	}
}
