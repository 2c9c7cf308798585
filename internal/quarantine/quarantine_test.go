package quarantine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/resource"
)

// bench is a graph and an Envoy in one: one shared resource, refused as long as it
// holds a bad version of an object.
type bench struct {
	name    resource.Name
	objects map[object.Key]*gatewayv1.HTTPRoute
	court   *quarantine.Court
	refusal int // answers given that were refusals
}

func route(i, version int) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("r%03d", i), Generation: int64(version)}}
}

func key(i int) object.Key {
	return object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: fmt.Sprintf("r%03d", i)}
}

// bad versions are the odd ones.
func bad(r *gatewayv1.HTTPRoute) bool { return r != nil && r.Generation%2 == 1 }

func newBench(n int) *bench {
	b := &bench{name: resource.Name{TypeURL: "t", Name: "shared"}, objects: map[object.Key]*gatewayv1.HTTPRoute{}, court: quarantine.New()}
	for i := range n {
		b.objects[key(i)] = route(i, 0)
	}
	return b
}

func (b *bench) resource() *resource.Resource {
	r := &resource.Resource{Name: b.name}
	for k := range b.objects {
		r.Origin = append(r.Origin, k)
	}
	slices.SortFunc(r.Origin, object.Key.Compare)
	return r
}

func (b *bench) change(versions map[int]int) {
	before := map[object.Key]object.Object{}
	for i, v := range versions {
		if old := b.objects[key(i)]; old != nil {
			before[key(i)] = old
		} else {
			before[key(i)] = nil
		}
		b.objects[key(i)] = route(i, v)
	}
	b.court.Changed(before, []*resource.Resource{b.resource()})
}

func (b *bench) answer(resource.Name) (quarantine.Answer, string) {
	held := b.court.Held()
	for k, o := range b.objects {
		h, isHeld := held[k]
		if isHeld {
			if h.Object == nil {
				continue
			}
			o = h.Object.(*gatewayv1.HTTPRoute)
		}
		if bad(o) {
			b.refusal++
			return quarantine.Refused, "bad " + k.Name
		}
	}
	return quarantine.Accepted, ""
}

func (b *bench) settle(t *testing.T) {
	t.Helper()
	for range 10_000 {
		a, _ := b.answer(b.name)
		if a == quarantine.Refused {
			b.court.Refused(b.resource())
		}
		if !b.court.Step(b.answer) && a == quarantine.Accepted {
			return
		}
	}
	t.Fatal("the court does not settle")
}

func (b *bench) heldNames() []string {
	var out []string
	for k := range b.court.Held() {
		out = append(out, k.Name)
	}
	slices.Sort(out)
	return out
}

func TestACulpritAmongUnchangedNeighboursIsHeldAtItsLastGoodVersion(t *testing.T) {
	b := newBench(5)
	b.change(map[int]int{3: 1})
	b.settle(t)
	if got := b.heldNames(); !slices.Equal(got, []string{"r003"}) {
		t.Fatalf("held %v, want r003", got)
	}
	h := b.court.Held()[key(3)]
	if h.Object.(*gatewayv1.HTTPRoute).Generation != 0 {
		t.Fatalf("held at generation %d, want 0", h.Object.(*gatewayv1.HTTPRoute).Generation)
	}
	if h.Detail != "bad r003" {
		t.Fatalf("detail %q", h.Detail)
	}
}

func TestAChangeToTheCulpritFreesIt(t *testing.T) {
	b := newBench(3)
	b.change(map[int]int{1: 1})
	b.settle(t)
	b.change(map[int]int{1: 2})
	b.settle(t)
	if got := b.heldNames(); len(got) != 0 {
		t.Fatalf("held %v, want nothing", got)
	}
}

func TestANewObjectThatIsRefusedIsLeftOut(t *testing.T) {
	b := newBench(2)
	b.change(map[int]int{7: 1, 8: 2})
	b.settle(t)
	h, ok := b.court.Held()[key(7)]
	if !ok || h.Object != nil || len(b.court.Held()) != 1 {
		t.Fatalf("held %v, want r007 left out", b.court.Held())
	}
}

// Proxies answer later than edits come: the version before the bad one need not have
// been answered for to be the one to fall back to.
func TestTheFallbackIsTheNewestVersionThatIsAccepted(t *testing.T) {
	cases := map[string]struct {
		edits []int
		want  int64
	}{
		"the one before, though nobody had answered for it": {[]int{2, 3}, 2},
		"an older one, if the one before is bad as well":    {[]int{1, 3}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(3)
			for _, version := range c.edits {
				b.change(map[int]int{1: version})
			}
			b.settle(t)
			h, ok := b.court.Held()[key(1)]
			if !ok || h.Object == nil || h.Object.(*gatewayv1.HTTPRoute).Generation != c.want {
				t.Fatalf("held %v, want r001 at %d", b.court.Held(), c.want)
			}
		})
	}
}

// A controller that has just started knows no earlier version: every route is a suspect.
func TestWithoutHistoryExactlyTheBadOnesAreFound(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 2 + random.IntN(100)
		b := newBench(n)
		var want []string
		for i := range n {
			if random.IntN(20) == 0 {
				b.objects[key(i)] = route(i, 1)
				want = append(want, key(i).Name)
			}
		}
		b.settle(t)
		if got := b.heldNames(); !slices.Equal(got, want) {
			t.Fatalf("seed %d: held %v, want %v", seed, got, want)
		}
	}
}

func TestRandomChangesEndWithExactlyTheBadOnesHeld(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		n := 2 + random.IntN(40)
		b := newBench(n)
		for range 20 {
			versions := map[int]int{}
			for range 1 + random.IntN(4) {
				versions[random.IntN(n+5)] = random.IntN(6)
			}
			b.change(versions)
			// Sometimes the next change comes while a search is under way.
			if random.IntN(2) == 0 {
				if a, _ := b.answer(b.name); a == quarantine.Refused {
					b.court.Refused(b.resource())
				}
				b.court.Step(b.answer)
				continue
			}
			b.settle(t)
		}
		b.settle(t)
		var want []string
		for k, o := range b.objects {
			if bad(o) {
				want = append(want, k.Name)
			}
		}
		slices.Sort(want)
		if got := b.heldNames(); !slices.Equal(got, want) {
			t.Fatalf("seed %d: held %v, want %v", seed, got, want)
		}
	}
}

// A proxy that refuses everything must not have its routes taken out and put back for ever.
func TestARefusalThatNoObjectCausesIsLookedIntoOnce(t *testing.T) {
	b := newBench(5)
	steps := 0
	refuse := func(resource.Name) (quarantine.Answer, string) { return quarantine.Refused, "whatever" }
	for range 1000 {
		b.court.Refused(b.resource())
		if b.court.Step(refuse) {
			steps++
		}
	}
	if steps > 10 || len(b.court.Held()) > 0 {
		t.Fatalf("%d steps, held %v; want an end and nothing held", steps, b.heldNames())
	}
	b.change(map[int]int{3: 1})
	b.settle(t)
	if got := b.heldNames(); !slices.Equal(got, []string{"r003"}) {
		t.Fatalf("after a change held %v, want r003", got)
	}
}
