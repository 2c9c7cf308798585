package pipeline_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

func TestABatchReachesWorldStatusAndRecord(t *testing.T) {
	r := newRig(t)
	if r.world.Synced() {
		t.Fatal("synced before anything was read")
	}
	r.apply(map[int]int64{1: 1, 2: 1})
	if got := r.current(); !slices.Equal(got, []string{"r1=1", "r2=1"}) {
		t.Errorf("the world has %v", got)
	}
	if !r.world.Synced() || len(r.statuses.updates) != 2 || r.recorder.batches != 1 {
		t.Errorf("synced %t, %d updates, %d records", r.world.Synced(), len(r.statuses.updates), r.recorder.batches)
	}
}

func TestARefusedChangeIsHeldAndItsNeighborIsNot(t *testing.T) {
	r := newRig(t)
	r.apply(map[int]int64{1: 1, 2: 1, 3: 1})
	r.proxy("r2=2")
	r.apply(map[int]int64{2: 2, 3: 2})
	r.until("r2 is held at its earlier version and r3 is not", func() bool {
		return slices.Equal(r.current(), []string{"r1=1", "r2=1", "r3=2"}) && r.statuses.quarantined()[route(2)] == "an earlier version, which Envoy accepts, stays in effect; it refused this one: shared has no r2=2"
	})
	r.until("no copy is left", func() bool { return r.resource("shared:trial") == nil })
	r.apply(map[int]int64{2: 3})
	if got := r.current(); !slices.Equal(got, []string{"r1=1", "r2=3", "r3=2"}) {
		t.Fatalf("after a change the world has %v", got)
	}
	if len(r.statuses.quarantined()) != 0 {
		t.Fatalf("still held: %v", r.statuses.quarantined())
	}
}

// A proxy that is broken, hostile or of another version refuses what all others run.
func TestWhatOneProxyRunsIsNotTakenAwayBecauseAnotherRefusesIt(t *testing.T) {
	r := newRig(t)
	r.apply(map[int]int64{1: 1, 2: 1})
	good := refuser("good", "r2=2")
	r.connect(good)
	r.until("it runs", func() bool { return r.settled("good") })
	r.connect(refuser("hostile", "r1=1", "r2=1", "r2=2", "r3=1"))
	r.until("it is refused", func() bool { return r.verdict().Refusing == 1 })
	if got := r.current(); !slices.Equal(got, []string{"r1=1", "r2=1"}) {
		t.Errorf("the world has %v", got)
	}
	if got := r.statuses.quarantined(); len(got) > 0 {
		t.Errorf("held for what one of two says: %v", got)
	}

	// What both refuse is still found, and its neighbor goes live in the good one.
	r.apply(map[int]int64{2: 2, 3: 1})
	r.until("r2 is held and r3 is not", func() bool {
		return slices.Equal(r.current(), []string{"r1=1", "r2=1", "r3=1"}) && r.statuses.quarantined()[route(2)] != "" && r.settled("good")
	})
	if lost := good.losses(); len(lost) > 0 {
		t.Errorf("taken away meanwhile: %v", lost)
	}
}

// all is routes 0 to n-1 at one version.
func all(n int, v int64) map[int]int64 {
	out := map[int]int64{}
	for i := range n {
		out[i] = v
	}
	return out
}

func TestWithoutHistoryTheSearchTakesNothingAwayThatWorks(t *testing.T) {
	r := newRig(t)
	r.apply(all(20, 1))
	e := r.proxy("r7=2")
	r.until("all run", func() bool { return len(e.runs()) == 20 && r.settled("proxy") })
	r.restart(map[int]int64{7: 2}, e)
	r.until("r7 is left out", func() bool {
		return r.statuses.quarantined()[route(7)] != "" && r.settled("proxy") && len(e.runs()) == 19
	})
	if lost := e.losses(); !slices.Equal(lost, []string{"own of r7", "r7"}) && !slices.Equal(lost, []string{"r7", "own of r7"}) {
		t.Errorf("taken away: %v, want r7 alone, of which no earlier version is known", lost)
	}
	if e.tried == 0 {
		t.Error("nothing was tried in a copy")
	}
	if got, want := r.statuses.quarantined()[route(7)], "it is left out, because no earlier version that Envoy accepts is known; it refused this one: shared has no r7=2"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestAConvictionOutlivesTheController(t *testing.T) {
	r := newRig(t)
	r.apply(all(20, 1))
	e := r.proxy("r7=2", "r7=3")
	r.apply(map[int]int64{7: 2})
	r.until("r7 is held, and that is saved", func() bool {
		return r.statuses.quarantined()[route(7)] != "" && r.settled("proxy") && r.store.has(route(7))
	})
	tried := e.tried
	for range 2 {
		r.restart(nil, e)
		if !strings.HasSuffix(r.statuses.quarantined()[route(7)], "this one: shared has no r7=2") || r.recorder.quarantined[route(7)] == "" {
			t.Errorf("held at once: %v, recorded %v, want r7", r.statuses.quarantined(), r.recorder.quarantined)
		}
		r.until("the proxy has taken all", func() bool { return r.settled("proxy") })
		if !slices.Contains(e.runs(), "r7=1") {
			t.Errorf("it runs %v, want r7 at 1", e.runs())
		}
	}
	if e.tried != tried {
		t.Errorf("%d copies were tried for what was known", e.tried-tried)
	}

	// Edited for the worse while no controller ran, it still has what Envoy runs to fall back to.
	r.restart(map[int]int64{7: 3}, e)
	r.until("r7 is found again", func() bool {
		return strings.HasSuffix(r.statuses.quarantined()[route(7)], "this one: shared has no r7=3") && r.settled("proxy")
	})
	if lost := e.losses(); len(lost) > 0 || !slices.Contains(e.runs(), "r7=1") {
		t.Errorf("taken away: %v; it runs %v, want r7 at 1", lost, e.runs())
	}

	r.restart(map[int]int64{7: 4}, e)
	r.until("what was mended runs, and is saved", func() bool { return slices.Contains(e.runs(), "r7=4") && !r.store.has(route(7)) })
}

func TestAStoreThatFailsStopsNothing(t *testing.T) {
	r := newRig(t)
	r.store.fail(errors.New("disk full"))
	r.restart(all(3, 1))
	r.proxy("r2=2")
	r.apply(map[int]int64{2: 2})
	r.until("r2 is held", func() bool { return r.statuses.quarantined()[route(2)] != "" && r.settled("proxy") })
	if r.unread == nil {
		t.Error("that the store could not be read is not told")
	}
	r.store.fail(nil)
	r.until("it is saved once it can be", func() bool { return r.store.has(route(2)) })
}

func TestANewProxyInTheMiddleOfASearchIsHarmless(t *testing.T) {
	r := newRig(t)
	r.apply(all(40, 1))
	old := refuser("old", "r3=2", "r30=2")
	r.connect(old)
	r.until("all run", func() bool { return r.settled("old") })
	r.apply(map[int]int64{3: 2, 30: 2, 20: 2})
	for i := range 5 {
		r.connect(refuser(fmt.Sprintf("new%d", i), "r3=2", "r30=2"))
	}
	r.until("both are held and the rest runs everywhere", func() bool {
		for i := range 5 {
			if !r.settled(fmt.Sprintf("new%d", i)) {
				return false
			}
		}
		return len(r.statuses.quarantined()) == 2 && r.settled("old") && slices.Contains(old.runs(), "r20=2")
	})
	if lost := old.losses(); len(lost) > 0 {
		t.Errorf("taken away: %v", lost)
	}
}

// What a batch changes beside the resource on trial does not wait, and what it changes in
// it begins the search anew.
func TestABatchInTheMiddleOfASearchGetsThroughAtOnce(t *testing.T) {
	r := newRig(t)
	r.apply(all(10, 1))
	gw := object.Key{Kind: object.Gateway, Namespace: "apps", Name: "own"}
	own := must(scope.Gateway("apps", "own"))
	e := refuser("proxy", "r3=2")
	r.connect(e)
	r.until("all run", func() bool { return r.settled("proxy") })
	e.hold()
	r.apply(map[int]int64{3: 2})
	e.answer(r) // the original: the search begins
	r.until("a copy is published", func() bool { return r.resource("shared:trial") != nil })

	r.p.Apply(pipeline.Batch{Synced: true, Mark: r.mark(), Changes: []object.Change{{Key: gw, Object: &gatewayv1.Gateway{}}}})
	if len(r.world.Resources(own)) != 1 {
		t.Error("the batch has to wait")
	}
	if r.resource("shared:trial") == nil {
		t.Error("a batch that does not concern it has ended the search")
	}
	r.apply(map[int]int64{5: 2})
	if r.resource("shared:trial") != nil {
		t.Error("what is tried is a copy of what there is no more")
	}
	if got := r.current(); !slices.Contains(got, "r5=2") || len(got) != 10 {
		t.Errorf("the world has %v", got)
	}
	e.release()
	r.until("r3 is held and r5 runs", func() bool {
		return slices.Contains(e.runs(), "r5=2") && slices.Contains(e.runs(), "r3=1") && r.settled("proxy")
	})
	if lost := e.losses(); len(lost) > 0 {
		t.Errorf("taken away: %v", lost)
	}
}

func TestWhileTheCauseIsSearchedForNoStatusIsToldOfARefusal(t *testing.T) {
	r := newRig(t)
	r.apply(all(20, 1))
	r.proxy("r3=2")
	r.until("all run", func() bool { return r.settled("proxy") })
	r.apply(map[int]int64{3: 2})
	r.until("r3 is held", func() bool { return r.statuses.quarantined()[route(3)] != "" && r.settled("proxy") })
	if got := r.statuses.toldRefused(); len(got) > 0 {
		t.Errorf("told that %v is refused, of which all but one route has its part live", got)
	}
}

func TestWhatNoSearchExplainsIsToldAsRefused(t *testing.T) {
	r := newRig(t)
	r.apply(all(3, 1))
	e := &envoy{id: "proxy", bad: func(string) bool { return false }, refuse: "shared"}
	r.connect(e)
	r.until("it is told", func() bool {
		r.recorder.mu.Lock()
		defer r.recorder.mu.Unlock()
		return len(r.statuses.toldRefused()) > 0 && len(r.recorder.refused) == 1
	})
	if len(r.statuses.quarantined()) > 0 || len(r.current()) != 3 {
		t.Errorf("held %v; the world has %v", r.statuses.quarantined(), r.current())
	}
}

// Whatever is edited whenever, and however often the controller starts anew, no route that
// Envoy runs is ever taken away, but for bad ones of which a new controller knows nothing.
func TestRandomEditsAndRestartsTakeNoWorkingRouteAway(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 4))
			odd := func(content string) bool { return (content[len(content)-1]-'0')%2 == 1 }
			r := newStrictRig(t, odd)
			n := 3 + random.IntN(20)
			r.apply(all(n, 2))
			e := &envoy{id: "proxy", bad: odd, gone: map[string]bool{}}
			r.connect(e)
			excused := map[string]bool{}
			for range 12 {
				edits := map[int]int64{}
				for range 1 + random.IntN(3) {
					edits[random.IntN(n)] = 1 + random.Int64N(8)
				}
				what := random.IntN(6)
				switch what {
				case 0: // while nothing runs
					r.restart(edits, e)
					r.excuse(excused)
				case 1: // a bad edit may be unanswered for when the controller ends
					r.restart(nil, e)
					r.excuse(excused)
				case 2:
					i := random.IntN(n)
					e.delete(route(i))
					r.apply(map[int]int64{i: 0})
				case 3:
					r.apply(edits)
					r.until("the proxy has taken all", func() bool { return r.settled("proxy") })
				default:
					r.apply(edits)
				}
			}
			r.until("the proxy has taken all", func() bool { return r.settled("proxy") })
			for k, o := range r.objects {
				content := fmt.Sprintf("%s=%d", k.Name, o.GetGeneration())
				if _, held := r.statuses.quarantined()[k]; held != odd(content) {
					t.Errorf("%s is held: %t", content, held)
				}
				if !odd(content) && !slices.Contains(e.runs(), content) {
					t.Errorf("%s does not run; what does is %v", content, e.runs())
				}
			}
			for _, lost := range e.losses() {
				if !excused[strings.TrimPrefix(lost, "own of ")] {
					t.Errorf("%s was taken away", lost)
				}
			}
		})
	}
}

func TestEveryScopeGetsWhatIsShared(t *testing.T) {
	r := newRig(t)
	trust := must(resource.New("trust", &discoveryv1.TrustBundle{RootsDer: [][]byte{{1}}}))
	r.p.Share(trust)
	gw := object.Key{Kind: object.Gateway, Namespace: "apps", Name: "own"}
	own := must(scope.Gateway("apps", "own"))
	r.p.Apply(pipeline.Batch{Synced: true, Changes: []object.Change{{Key: gw, Object: &gatewayv1.Gateway{Spec: gatewayv1.GatewaySpec{GatewayClassName: "coxswain"}}}}})
	for _, s := range []scope.Scope{scope.SharedPool(), own} {
		if !slices.ContainsFunc(r.world.Resources(s), func(res *resource.Resource) bool { return res.Name == trust.Name }) {
			t.Errorf("%s lacks what is shared", s)
		}
	}
	if class, ok := r.p.Dedicated("apps", "own"); !ok || class != "coxswain" {
		t.Errorf("Dedicated: %q, %t", class, ok)
	}
	if got := r.p.DedicatedIn("apps"); len(got) != 1 || got[0].Spec.GatewayClassName != "coxswain" {
		t.Errorf("DedicatedIn: %v", got)
	}

	renewed := must(resource.New("trust", &discoveryv1.TrustBundle{RootsDer: [][]byte{{2}}}))
	r.p.Share(renewed)
	for _, res := range r.world.Resources(own) {
		if res.Name == trust.Name && res.Hash != renewed.Hash {
			t.Error("the scope has the old bundle")
		}
	}
	r.p.Apply(pipeline.Batch{Synced: true, Changes: []object.Change{{Key: gw}}})
	if _, ok := r.p.Dedicated("apps", "own"); ok {
		t.Error("a Gateway that is gone is still dedicated")
	}
}
