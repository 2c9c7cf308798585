package quarantine_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/resource"
)

// bench is a graph and an Envoy in one: one shared resource, and while the court wants
// one a copy of it, refused as long as it holds a bad version of an object.
type bench struct {
	t       *testing.T
	name    resource.Name
	objects map[object.Key]*gatewayv1.HTTPRoute
	court   *quarantine.Court
	running map[object.Key]*gatewayv1.HTTPRoute // what Envoy runs of the original
	tries   int                                 // contents of the copy that were answered for
}

// route tells its version by a host name, and again by its generation, for reading.
func route(i, version int) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("r%03d", i), Generation: int64(version)},
		Spec:       gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("v%d.example", version))}},
	}
}

func key(i int) object.Key {
	return object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: fmt.Sprintf("r%03d", i)}
}

// bad versions are the odd ones.
func bad(r *gatewayv1.HTTPRoute) bool { return r != nil && r.Generation%2 == 1 }

// gone is the version of an object that is deleted.
const gone = -1

func newBench(t *testing.T, n int) *bench {
	t.Helper()
	b := &bench{t: t, name: resource.Name{TypeURL: "t", Name: "shared"}, objects: map[object.Key]*gatewayv1.HTTPRoute{}}
	for i := range n {
		b.objects[key(i)] = route(i, 0)
	}
	b.court = quarantine.New(b.newest)
	b.running = b.content(nil)
	return b
}

func (b *bench) newest(k object.Key) object.Object {
	if o := b.objects[k]; o != nil {
		return o
	}
	return nil
}

// held is what the graph holds: what is convicted.
func (b *bench) held() map[object.Key]object.Object {
	out := map[object.Key]object.Object{}
	for k, v := range b.court.Convicted() {
		out[k] = v.Instead
	}
	return out
}

// content is what the resource is made of when these are held.
func (b *bench) content(held map[object.Key]object.Object) map[object.Key]*gatewayv1.HTTPRoute {
	out := maps.Clone(b.objects)
	for k, o := range held {
		if _, exists := b.objects[k]; !exists {
			continue
		}
		if o == nil {
			delete(out, k)
		} else {
			out[k] = o.(*gatewayv1.HTTPRoute)
		}
	}
	return out
}

func made(name resource.Name, content map[object.Key]*gatewayv1.HTTPRoute) *resource.Resource {
	r := &resource.Resource{Name: name, Origin: slices.SortedFunc(maps.Keys(content), object.Key.Compare)}
	text := ""
	for _, k := range r.Origin {
		text += fmt.Sprintf("%s=%d ", k, content[k].Generation)
	}
	r.Hash = sha256.Sum256([]byte(text))
	return r
}

func (b *bench) original() *resource.Resource { return made(b.name, b.content(b.held())) }

func (b *bench) change(versions map[int]int) {
	edits := map[object.Key]quarantine.Edit{}
	for i, v := range versions {
		e := quarantine.Edit{Before: b.newest(key(i))}
		if v == gone {
			delete(b.objects, key(i))
			delete(b.running, key(i))
		} else {
			b.objects[key(i)] = route(i, v)
			e.After = b.objects[key(i)]
		}
		edits[key(i)] = e
	}
	before := b.court.Changed(edits)
	b.court.Rebuilt([]*resource.Resource{b.original()}, before)
	b.requireInnocence()
}

func (b *bench) answer(content map[object.Key]*gatewayv1.HTTPRoute) (quarantine.Answer, string) {
	for _, k := range slices.SortedFunc(maps.Keys(content), object.Key.Compare) {
		if bad(content[k]) {
			return quarantine.Refused, "bad " + k.Name
		}
	}
	return quarantine.Accepted, ""
}

func (b *bench) ofOriginal(resource.Name) (quarantine.Answer, string) {
	content := b.content(b.held())
	a, detail := b.answer(content)
	if a == quarantine.Accepted {
		b.running = content
	}
	return a, detail
}

func (b *bench) ofCopy(resource.Name) (quarantine.Answer, string) {
	_, held, ok := b.court.Trial()
	if !ok {
		b.t.Fatal("asked about a copy though nothing is tried")
	}
	b.tries++
	return b.answer(b.content(held))
}

// requireInnocence is what the search must never break: no working route is taken away.
func (b *bench) requireInnocence() {
	b.t.Helper()
	for k, v := range b.court.Convicted() {
		instead, _ := v.Instead.(*gatewayv1.HTTPRoute)
		switch {
		case b.objects[k] == nil: // it is remembered and may come
		case !bad(b.objects[k]):
			b.t.Fatalf("%s is good and held", k)
		case bad(instead):
			b.t.Fatalf("%s is held at a version that is refused too", k)
		case instead == nil && b.running[k] != nil:
			b.t.Fatalf("%s is left out though Envoy runs an earlier version of it", k)
		}
	}
}

func (b *bench) step() bool {
	b.t.Helper()
	if a, _ := b.ofOriginal(b.name); a == quarantine.Refused {
		b.court.Refused(b.original())
	}
	more := b.court.Step(b.ofOriginal, b.ofCopy)
	b.requireInnocence()
	return more
}

func (b *bench) settle() {
	b.t.Helper()
	for range 10_000 {
		if !b.step() {
			if a, _ := b.ofOriginal(b.name); a != quarantine.Accepted {
				b.t.Fatal("the court has settled and the resource is refused")
			}
			return
		}
	}
	b.t.Fatal("the court does not settle")
}

func (b *bench) convicted() []string {
	out := []string{}
	for k := range b.court.Convicted() {
		out = append(out, k.Name)
	}
	slices.Sort(out)
	return out
}

// guilty is who ought to be convicted.
func (b *bench) guilty() []string {
	out := []string{}
	for k, o := range b.objects {
		if bad(o) {
			out = append(out, k.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (b *bench) requireJustice(context string) {
	b.t.Helper()
	if got, want := b.convicted(), b.guilty(); !slices.Equal(got, want) {
		b.t.Fatalf("%s: convicted %v, want %v", context, got, want)
	}
}

// requireInstead wants i convicted and held at a version; gone: left out.
func (b *bench) requireInstead(i int, version int64) {
	b.t.Helper()
	v, ok := b.court.Convicted()[key(i)]
	if !ok {
		b.t.Fatalf("%s is not convicted; convicted %v", key(i), b.convicted())
	}
	got := int64(gone)
	if instead, ok := v.Instead.(*gatewayv1.HTTPRoute); ok {
		got = instead.Generation
	}
	if got != version {
		b.t.Fatalf("%s is held at version %d, want %d", key(i), got, version)
	}
}

func TestACulpritAmongUnchangedNeighboursIsHeldAtItsLastGoodVersion(t *testing.T) {
	b := newBench(t, 5)
	b.change(map[int]int{3: 1})
	b.settle()
	b.requireJustice("after the edit")
	b.requireInstead(3, 0)
	if v := b.court.Convicted()[key(3)]; v.Detail != "bad r003" || v.Resource != b.name {
		t.Fatalf("convicted for %s: %q", v.Resource, v.Detail)
	}
}

func TestAChangeToTheCulpritFreesIt(t *testing.T) {
	b := newBench(t, 3)
	b.change(map[int]int{1: 1})
	b.settle()
	b.change(map[int]int{1: 2})
	b.settle()
	b.requireJustice("after it was mended")
}

// What runs is the version that it is held at, not the refused one that the edit replaces.
func TestACulpritThatIsEditedForTheWorseStaysWhereItWas(t *testing.T) {
	b := newBench(t, 3)
	for _, version := range []int{1, 3, 5} {
		b.change(map[int]int{1: version})
		b.settle()
		b.requireInstead(1, 0)
	}
}

func TestAConvictionStandsWhileTheContentIsTheSame(t *testing.T) {
	b := newBench(t, 3)
	b.change(map[int]int{1: 1})
	b.settle()
	tries := b.tries
	relabeled := route(1, 1)
	relabeled.Labels, relabeled.Generation = map[string]string{"team": "red"}, 7
	before := b.newest(key(1))
	b.objects[key(1)] = relabeled
	b.court.Rebuilt([]*resource.Resource{b.original()}, b.court.Changed(map[object.Key]quarantine.Edit{key(1): {Before: before, After: relabeled}}))
	b.settle()
	b.requireInstead(1, 0)
	if b.tries != tries {
		t.Errorf("it was tried again, %d times, though only its labels have changed", b.tries-tries)
	}
}

func TestANewObjectThatIsRefusedIsLeftOut(t *testing.T) {
	b := newBench(t, 2)
	b.change(map[int]int{7: 1, 8: 2})
	b.settle()
	b.requireJustice("after they came")
	b.requireInstead(7, gone)
}

func TestAnObjectThatIsDeletedIsConvictedNoMore(t *testing.T) {
	b := newBench(t, 3)
	b.change(map[int]int{1: 1})
	b.settle()
	b.change(map[int]int{1: gone})
	b.settle()
	b.requireJustice("after it was deleted")
}

// Proxies answer later than edits come: the version before the bad one need not have
// been answered for to be the one to fall back to.
func TestALongHistoryOfBadEditsEndsAtTheVersionBeforeThem(t *testing.T) {
	b := newBench(t, 3)
	for i := range 40 {
		b.change(map[int]int{1: 1 + 2*i})
	}
	b.settle()
	b.requireInstead(1, 0)
}

// The first version that a new controller sees is likely the one that runs, if not all are.
func TestAfterARestartTheFirstVersionIsNotForgotten(t *testing.T) {
	b := newBench(t, 0)
	b.change(map[int]int{0: 2, 1: 2, 2: 2})
	for i := range 40 {
		b.change(map[int]int{1: 1 + 2*i})
	}
	b.settle()
	b.requireJustice("after the edits")
	b.requireInstead(1, 2)
}

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
			b := newBench(t, 3)
			for _, version := range c.edits {
				b.change(map[int]int{1: version})
			}
			b.settle()
			b.requireInstead(1, c.want)
		})
	}
}

// A controller that has just started knows no earlier version: every route is a suspect.
func TestWithoutHistoryExactlyTheBadOnesAreFound(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 2 + random.IntN(100)
		b := newBench(t, n)
		b.running = nil // as far as a new process can know
		for i := range n {
			if random.IntN(20) == 0 {
				b.objects[key(i)] = route(i, 1)
			}
		}
		b.settle()
		b.requireJustice(fmt.Sprintf("seed %d", seed))
	}
}

// One that changed and one that did not are both bad, as when Envoy is replaced by
// another version: what is known of the first is not lost in the search for the second.
func TestASearchThatHasToBeWidenedForgetsNoVersion(t *testing.T) {
	b := newBench(t, 6)
	b.change(map[int]int{1: 1})
	b.objects[key(4)] = route(4, 1)
	b.running = map[object.Key]*gatewayv1.HTTPRoute{}
	b.settle()
	b.requireJustice("after both were found")
	b.requireInstead(1, 0)
	b.requireInstead(4, gone)
}

func TestRandomChangesEndWithExactlyTheBadOnesConvicted(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		n := 2 + random.IntN(40)
		b := newBench(t, n)
		for range 20 {
			versions := map[int]int{}
			for range 1 + random.IntN(4) {
				versions[random.IntN(n+5)] = random.IntN(7) + gone
			}
			b.change(versions)
			// Sometimes the next change comes while a search is under way.
			if random.IntN(2) == 0 {
				for range random.IntN(8) {
					b.step()
				}
				continue
			}
			b.settle()
			b.requireJustice(fmt.Sprintf("seed %d", seed))
		}
		b.settle()
		b.requireJustice(fmt.Sprintf("seed %d, at the end", seed))
	}
}

func TestWhatWasFoundInnocentIsNotTriedAgainWhenTheSearchBeginsAnew(t *testing.T) {
	edit := map[int]int{}
	for i := range 32 {
		edit[i] = 2
	}
	edit[31] = 3
	b := newBench(t, 40)
	b.change(edit)
	for range 3 { // it begins, all are held, the first 16 are released
		b.step()
	}
	b.change(map[int]int{35: 2})
	b.step()
	if _, held, _ := b.court.Trial(); len(held) != 17 {
		t.Errorf("%d are suspected, want the other 16 and the one that has changed since", len(held))
	}
	b.settle()
	b.requireJustice("in the end")
}

// A proxy that refuses everything must not have a search run for ever.
func TestARefusalThatNoObjectCausesIsLookedIntoOnce(t *testing.T) {
	b := newBench(t, 5)
	steps := 0
	refuse := func(resource.Name) (quarantine.Answer, string) { return quarantine.Refused, "whatever" }
	for range 1000 {
		b.court.Refused(b.original())
		if b.court.Step(refuse, refuse) {
			steps++
		}
	}
	if steps > 10 || len(b.convicted()) > 0 || b.court.Searches(b.name) {
		t.Fatalf("%d steps, convicted %v; want an end and nobody", steps, b.convicted())
	}
	b.change(map[int]int{3: 1})
	b.settle()
	b.requireJustice("after a change")
}

// Envoys that refuse the resource and no copy of it have nothing to be found.
func TestASearchThatConvictsNobodyIsNotRepeated(t *testing.T) {
	b := newBench(t, 5)
	steps := 0
	refuse := func(resource.Name) (quarantine.Answer, string) { return quarantine.Refused, "whatever" }
	accept := func(resource.Name) (quarantine.Answer, string) { return quarantine.Accepted, "" }
	for range 1000 {
		b.court.Refused(b.original())
		if b.court.Step(refuse, accept) {
			steps++
		}
	}
	if steps > 10 || len(b.convicted()) > 0 {
		t.Fatalf("%d steps, convicted %v; want an end and nobody", steps, b.convicted())
	}
}

func TestASearchEndsWhenAProxyRunsTheResource(t *testing.T) {
	for name, says := range map[string]quarantine.Answer{"all do": quarantine.Accepted, "one does": quarantine.Disputed} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 5)
			b.change(map[int]int{3: 1})
			if !b.step() || !b.court.Searches(b.name) {
				t.Fatal("no search has begun")
			}
			now := func(resource.Name) (quarantine.Answer, string) { return says, "" }
			if !b.court.Step(now, b.ofCopy) {
				t.Error("the end of the search is not told")
			}
			if _, _, ok := b.court.Trial(); ok || b.court.Searches(b.name) || len(b.convicted()) > 0 {
				t.Errorf("still searching; convicted %v", b.convicted())
			}
		})
	}
}

func TestASearchEndsWhenTheResourceIsGoneOrSharedNoMore(t *testing.T) {
	b := newBench(t, 2)
	b.change(map[int]int{1: 1})
	b.step()
	b.change(map[int]int{0: gone})
	if _, _, ok := b.court.Trial(); ok {
		t.Error("a resource of one route is on trial")
	}
	b.court.Refused(b.original())
	if b.court.Step(func(resource.Name) (quarantine.Answer, string) { return quarantine.Refused, "" }, b.ofCopy) {
		t.Error("a search in a resource of one route has begun")
	}

	b = newBench(t, 3)
	b.change(map[int]int{1: 1})
	b.step()
	nowhere := func(resource.Name) (quarantine.Answer, string) { return quarantine.Accepted, "" }
	if !b.court.Step(nowhere, b.ofCopy) || b.court.Searches(b.name) {
		t.Error("the search goes on in a resource that is gone")
	}
}

func TestWhatWasConvictedBeforeARestartStandsForThatContentOnly(t *testing.T) {
	of := func(instead object.Object) map[object.Key]quarantine.Conviction {
		return map[object.Key]quarantine.Conviction{key(1): {Content: quarantine.ContentOf(route(1, 1)), Instead: instead, Detail: "bad r001"}}
	}
	cases := map[string]struct {
		now   map[int]int
		want  []string
		tried bool
	}{
		"it is as it was": {map[int]int{0: 0, 1: 1, 2: 0}, []string{"r001"}, false},
		"it was mended":   {map[int]int{0: 0, 1: 2, 2: 0}, []string{}, false},
		"it was deleted":  {map[int]int{0: 0, 2: 0}, []string{}, false},
		// It is found again, and what it was held at is not forgotten.
		"it is bad in another way": {map[int]int{0: 0, 1: 3, 2: 0}, []string{"r001"}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 0)
			b.court.Recall(of(route(1, 0)))
			b.change(c.now)
			b.court.Forget()
			b.settle()
			if got := b.convicted(); !slices.Equal(got, c.want) {
				t.Errorf("convicted %v, want %v", got, c.want)
			}
			if len(c.want) > 0 {
				b.requireInstead(1, 0)
			}
			if tried := b.tries > 0; tried != c.tried {
				t.Errorf("a search was made: %t, want %t", tried, c.tried)
			}
		})
	}
}
