package routing

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
)

// Whatever is tried, the deltas before and after add up as if it were not, and what is
// tried has the content that the scope would have.
func TestTryingLeavesNoTraceAndTellsWhatHoldingWouldGive(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 3))}
			all, held := map[object.Key]object.Object{}, map[object.Key]object.Object{}
			tried := newReplica(t)
			tried.apply()
			for range 30 {
				if g.IntN(6) == 0 {
					held = g.hold(all)
				}
				var batch []object.Change
				for range 1 + g.IntN(6) {
					c := g.change()
					batch = append(batch, c)
					delete(held, c.Key)
					if all[c.Key] = c.Object; c.Object == nil {
						delete(all, c.Key)
					}
				}
				tried.take(tried.graph.Update(batch, held))
				tryAll(t, g, tried, all)
			}
			if d := tried.graph.Hold(held); len(d.Worlds) > 0 || len(d.Statuses) > 0 {
				t.Errorf("trying has left a difference: %v", d)
			}
			fresh := newReplica(t)
			fresh.take(fresh.graph.Update(changesTo(all), held))
			requireEqual(t, fresh.state(), tried.state())
		})
	}
}

// tryAll tries other holds on every scope, and compares with a graph that has these holds.
func tryAll(t *testing.T, g *generator, r *replica, all map[object.Key]object.Object) {
	t.Helper()
	other := g.hold(all)
	would := newReplica(t)
	would.take(would.graph.Update(changesTo(all), other))
	for s, w := range r.worlds {
		for n := range w {
			if n.TypeURL != envoy.ScopedRouteType {
				continue
			}
			got := r.graph.Try(s, n, other)
			there := would.worlds[s][n]
			if there == nil {
				if got != nil {
					t.Fatalf("%s: tried %s where none would be", n, got.Name)
				}
				continue
			}
			want, err := envoy.Trial(there)
			if err != nil {
				t.Fatal(err)
			}
			if !cmp.Equal(want, got, same) {
				t.Fatalf("%s: tried another content than it would have", n)
			}
		}
	}
}

func changesTo(all map[object.Key]object.Object) []object.Change {
	var out []object.Change
	for k, o := range all {
		out = append(out, object.Change{Key: k, Object: o})
	}
	return out
}

func TestOnlyScopesAreTried(t *testing.T) {
	r := newReplica(t)
	g := &generator{Rand: rand.New(rand.NewPCG(7, 7))}
	for range 200 {
		r.apply(g.change())
	}
	for s, w := range r.worlds {
		for n := range w {
			if n.TypeURL != envoy.ScopedRouteType && r.graph.Try(s, n, nil) != nil {
				t.Errorf("%s was tried", n)
			}
		}
	}
}
