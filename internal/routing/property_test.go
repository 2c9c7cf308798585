package routing

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/key"
)

var seeds = flag.Uint64("seeds", 40, "random sequences of changes to try")

// TestAnySequenceOfChangesEndsInWhatAFreshGraphGives is the invariant that everything
// else rests on: the way in which objects came does not matter, and deltas add up.
func TestAnySequenceOfChangesEndsInWhatAFreshGraphGives(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
			all, refused, held := map[object.Key]object.Object{}, map[object.Key]string{}, map[object.Key]object.Object{}
			config := testConfig()
			if seed%2 == 1 {
				config.SharedMemory = 150_000 // in which not every route has room
			}
			r := newReplicaOf(t, config)
			r.apply()
			for step := range 60 {
				if g.IntN(12) == 0 {
					held = g.hold(all)
					r.take(r.graph.Hold(held))
				}
				var batch []object.Change
				for range 1 + g.IntN(4) {
					c := g.change()
					batch = append(batch, c)
					delete(held, c.Key)
					if all[c.Key] = c.Object; c.Object == nil {
						delete(all, c.Key)
					}
					if refused[c.Key] = c.Refused; c.Refused == "" {
						delete(refused, c.Key)
					}
				}
				r.apply(batch...)
				if step%20 == 19 {
					requireFresh(t, g, newReplicaOf(t, config), r, all, refused, held)
				}
			}
		})
	}
}

// hold picks objects to be compiled from an older version, or as if absent.
func (g *generator) hold(all map[object.Key]object.Object) map[object.Key]object.Object {
	held := map[object.Key]object.Object{}
	for _, k := range key.Sorted(all, object.Key.Compare) {
		switch g.IntN(8) {
		case 0:
			held[k] = nil
		case 1:
			held[k] = g.object(k)
		}
	}
	return held
}

// requireFresh compares r with a graph of nothing, fresh, that gets the final objects at once, in another
// order; refused is why something else is written of some of them, and of some that are not.
func requireFresh(t *testing.T, g *generator, fresh, r *replica, all map[object.Key]object.Object, refused map[object.Key]string, held map[object.Key]object.Object) {
	t.Helper()
	final := map[object.Key]object.Change{}
	for k, why := range refused {
		final[k] = object.Change{Key: k, Refused: why}
	}
	for k, o := range all {
		final[k] = object.Change{Key: k, Object: copyOf(o), Refused: refused[k]}
	}
	var changes []object.Change
	for _, k := range shuffled(g, key.Sorted(final, object.Key.Compare)) {
		changes = append(changes, final[k])
	}
	fresh.apply(changes...)
	fresh.take(fresh.graph.Hold(held))
	requireEqual(t, fresh.state(), r.state())
	// Equal objects again are no news.
	if len(held) == 0 {
		if d := r.graph.Apply(changes); len(d.Worlds) > 0 || len(d.Statuses) > 0 {
			t.Fatalf("handed out though nothing changed: %v", d)
		}
	}
}

func TestHoldKeepsWhatIsGivenUntilTheObjectChanges(t *testing.T) {
	r := newReplica(t)
	g := &generator{Rand: rand.New(rand.NewPCG(7, 7))}
	for range 200 {
		r.apply(g.change())
	}
	before := r.state()
	all := map[object.Key]object.Object{}
	for k := range r.graph.newest {
		all[k] = nil
	}
	r.take(r.graph.Hold(all))
	if cmp.Equal(before, r.state(), same) {
		t.Fatal("holding every object as absent changed nothing")
	}
	r.take(r.graph.Hold(nil))
	requireEqual(t, before, r.state())
}

func requireEqual(t *testing.T, want, got any) {
	t.Helper()
	if !cmp.Equal(want, got, same) { // a diff is only made of what differs
		t.Fatalf("want (-), got (+):\n%s", cmp.Diff(want, got, same))
	}
}
