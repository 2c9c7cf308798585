package world_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
)

// client is a correct proxy: it holds what it was sent, and its Envoy refuses every
// content that is bad.
type client struct {
	t    testing.TB
	w    *world.World
	id   string
	s    *world.Subscription
	hold *snapshot.Holding
	last *snapshot.Snapshot // not answered yet
	done *snapshot.Snapshot // answered last, on this stream

	touched map[resource.Name]bool // published since the last snapshot that arrived
	listed  bool                   // the next snapshot is against the inventory
}

func bad(r *resource.Resource) bool { return r.Hash[0]%4 == 0 }

func (c *client) refused() []resource.Refusal {
	var out []resource.Refusal
	for r := range c.hold.All() {
		if bad(r) {
			out = append(out, resource.Refusal{Name: r.Name, Hash: r.Hash, Detail: "bad"})
		}
	}
	return out
}

func (c *client) connect(forget bool) {
	c.t.Helper()
	if forget {
		c.hold = &snapshot.Holding{}
	}
	old := c.s
	c.s = subscribe(c.t, c.w, c.id, snapshot.Have{Version: c.hold.Version(), Refused: c.refused()})
	c.last, c.done, c.listed = nil, nil, false
	if old != nil {
		old.Close()
	}
}

func (c *client) disconnect() {
	c.s.Close()
	c.s = nil
}

func (c *client) receive() (more bool) {
	c.t.Helper()
	snap, wait, err := c.s.Next()
	switch {
	case errors.Is(err, snapshot.ErrUnknownVersion):
		var refs []snapshot.Ref
		for r := range c.hold.All() {
			refs = append(refs, snapshot.Ref{Name: r.Name, Hash: r.Hash})
		}
		if err := c.s.Inventory(refs); err != nil {
			c.t.Fatal(err)
		}
		c.listed = true
		return true
	case err != nil:
		c.t.Fatal(err)
	case wait != nil:
		return false
	}
	for _, r := range snap.Changed {
		old := c.hold.Get(r.Name)
		if snap.Full || old == nil || old.Hash != r.Hash {
			continue
		}
		if bad(r) || c.listed || !c.touched[r.Name] {
			c.t.Errorf("%s: %s is sent again unchanged; refused: %t, published since: %t", c.id, r.Name, bad(r), c.touched[r.Name])
		}
	}
	c.touched, c.listed = map[resource.Name]bool{}, false
	if _, err := c.hold.Apply(snap.Update); err != nil {
		c.t.Fatalf("%s: %v", c.id, err)
	}
	c.last = &snap
	return true
}

func (c *client) answer(of *snapshot.Snapshot, rng *rand.Rand) {
	c.t.Helper()
	o := resource.Outcome{Refused: c.refused()}
	if rng != nil {
		for r := range c.hold.All() {
			if !bad(r) && rng.IntN(10) == 0 {
				o.Pending = append(o.Pending, r.Name)
			}
		}
	}
	for i := range o.Refused {
		o.Refused[i].Hash = resource.Hash{} // the message has none
	}
	ack(c.t, c.s, *of, o)
	if of == c.last {
		c.last, c.done = nil, of
	}
}

func (c *client) step(rng *rand.Rand) {
	c.t.Helper()
	if c.s == nil {
		c.connect(rng.IntN(5) == 0)
		return
	}
	switch n := rng.IntN(12); {
	case n == 0:
		c.disconnect()
	case n == 1:
		c.connect(rng.IntN(5) == 0)
	case c.last != nil:
		c.answer(c.last, rng)
	case c.done != nil && n == 2:
		c.answer(c.done, rng)
	default:
		c.receive()
	}
}

// settle lets the client catch up and checks that it is where the world is.
func (c *client) settle() {
	c.t.Helper()
	if c.s == nil {
		c.connect(false)
	}
	for c.receive() || c.last != nil {
		if c.last != nil {
			c.answer(c.last, nil)
		}
	}
	if c.done != nil {
		c.answer(c.done, nil)
	}
	if diff := cmp.Diff(c.w.Resources(pool), slices.Collect(c.hold.All())); diff != "" {
		c.t.Fatalf("%s (-world +held):\n%s", c.id, diff)
	}
}

// TestDeltasAddUpToTheWorld: whatever is published, answered, cut off and resumed,
// every proxy ends up with exactly the world, versions agree on the way, and the
// verdict of each resource is what the proxies' Envoys say.
func TestDeltasAddUpToTheWorld(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := synced(world.Config{Tombstones: rng.IntN(20), Versions: 1 + rng.IntN(10)}, nil)
		var clients []*client
		for i := range 3 {
			clients = append(clients, &client{t: t, w: w, id: fmt.Sprint("p", i), hold: &snapshot.Holding{}, touched: map[resource.Name]bool{}})
		}
		model := map[resource.Name]*resource.Resource{}
		for range 400 {
			if rng.IntN(3) > 0 {
				clients[rng.IntN(len(clients))].step(rng)
				continue
			}
			var d resource.Delta
			for range 1 + rng.IntN(4) {
				name := fmt.Sprint("r", rng.IntN(25))
				if slices.ContainsFunc(d.Changed, func(r *resource.Resource) bool { return r.Name.Name == name }) {
					continue
				}
				r := res(t, name, fmt.Sprint(rng.IntN(4)))
				if rng.IntN(3) == 0 && !slices.Contains(d.Removed, r.Name) {
					d.Removed = append(d.Removed, r.Name)
					delete(model, r.Name)
				} else if !slices.Contains(d.Removed, r.Name) {
					d.Changed = append(d.Changed, r)
					model[r.Name] = r
				}
			}
			for _, c := range clients {
				for _, r := range d.Changed {
					c.touched[r.Name] = true
				}
				for _, n := range d.Removed {
					c.touched[n] = true
				}
			}
			w.Publish(map[scope.Scope]resource.Delta{pool: d}, watermark.Mark{})
		}
		if got, want := w.Version(pool), worldVersion(model); got != want {
			t.Fatalf("seed %d: version %s, want %s", seed, got, want)
		}
		for _, c := range clients {
			c.settle()
		}
		for n, r := range model {
			v := w.Verdict(pool, []resource.Name{n}, 0)
			want := fleet.Verdict{Total: len(clients), Live: len(clients), At: v.At}
			if bad(r) {
				want.Live = 0
				for _, c := range clients {
					want.Refused = append(want.Refused, fleet.Refused{Proxy: c.id, Refusal: resource.Refusal{Name: n, Hash: r.Hash, Detail: "bad"}})
				}
			}
			if diff := cmp.Diff(want, v); diff != "" {
				t.Fatalf("seed %d: verdict of %s (-want +got):\n%s", seed, n, diff)
			}
		}
		for _, c := range clients {
			c.disconnect()
		}
	}
}

func worldVersion(m map[resource.Name]*resource.Resource) string {
	var s resource.Set
	for n, r := range m {
		s.Add(n, r.Hash)
	}
	return s.Version()
}
