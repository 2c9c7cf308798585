package status_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/status"
)

// api is where statuses are written, as an API server has them: slow, at times
// unavailable, written by others too. It holds the engine to what it promises of its calls.
type api struct {
	t *testing.T

	mu      sync.Mutex
	engine  *status.Engine
	slow    func() time.Duration // how long a call takes; nil: no time
	hang    map[object.Key]chan struct{}
	fail    func() error // nil: calls succeed
	shown   map[object.Key]status.Document
	writes  map[object.Key]int
	removed map[object.Key]types.UID
	calling map[object.Key]bool
	most    int // calls under way at a time
	lead    bool
}

func newAPI(t *testing.T) *api {
	return &api{
		t: t, hang: map[object.Key]chan struct{}{}, shown: map[object.Key]status.Document{}, writes: map[object.Key]int{},
		removed: map[object.Key]types.UID{}, calling: map[object.Key]bool{}, lead: true,
	}
}

func (a *api) Verdict(scope.Scope, []resource.Name, uint32) fleet.Verdict { return live }

func (a *api) Position(scope.Scope) uint64 { return 0 }

func (a *api) Roll(scope.Scope, []resource.Name, uint64) []fleet.Member { return nil }

// begin notes a call, waits as long as it takes and returns what it ends with.
func (a *api) begin(ctx context.Context, k object.Key) error {
	a.mu.Lock()
	if a.calling[k] {
		a.t.Errorf("two calls about %s at a time", k)
	}
	if !a.lead {
		a.t.Errorf("a call about %s by one that does not lead", k)
	}
	a.calling[k] = true
	a.most = max(a.most, len(a.calling))
	wait, hang := time.Duration(0), a.hang[k]
	if a.slow != nil {
		wait = a.slow()
	}
	a.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	time.Sleep(wait)
	a.mu.Lock()
	delete(a.calling, k)
	if a.fail != nil {
		if err := a.fail(); err != nil {
			a.mu.Unlock()
			return err
		}
	}
	return nil // with mu held
}

func (a *api) Write(ctx context.Context, d status.Document) (bool, error) {
	if err := a.begin(ctx, d.Key); err != nil {
		return false, err
	}
	now, there := a.shown[d.Key]
	a.shown[d.Key] = d
	wrote := !there || !equal(now, d)
	if wrote {
		a.writes[d.Key]++
	}
	a.mu.Unlock()
	if wrote {
		a.event(d.Key)
	}
	return wrote, nil
}

func (a *api) Remove(ctx context.Context, k object.Key, uid types.UID) error {
	if err := a.begin(ctx, k); err != nil {
		return err
	}
	delete(a.shown, k)
	a.removed[k] = uid
	a.mu.Unlock()
	return nil
}

// event shows the engine the object as it is.
func (a *api) event(k object.Key) {
	a.mu.Lock()
	now, there := a.shown[k]
	a.mu.Unlock()
	a.engine.Seen(k, uidOf(k), there, func(d status.Document) bool { return there && equal(now, d) })
}

// foreign takes away what is shown.
func (a *api) foreign(k object.Key) {
	a.mu.Lock()
	delete(a.shown, k)
	a.mu.Unlock()
	a.event(k)
}

func (a *api) count(k object.Key) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.writes[k]
}

func (a *api) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func uidOf(k object.Key) types.UID { return types.UID("uid of " + k.String()) }

func accepted(d status.Document) string {
	return d.Status.(*gatewayv1.HTTPRouteStatus).Parents[0].Conditions[0].Message
}

func equal(a, b status.Document) bool {
	return a.Generation == b.Generation && accepted(a) == accepted(b)
}

func routeNamed(i int) object.Key {
	return object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: fmt.Sprintf("r%d", i)}
}

func saying(k object.Key, generation int64, message string) routing.Status {
	return routing.Status{
		Key: k, Generation: generation, UID: uidOf(k),
		Value: &gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{{
			Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", Message: message}},
		}}}},
	}
}

// against runs an engine that writes to an api, in a bubble of its own time.
func against(t *testing.T, script func(t *testing.T, a *api, en *status.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t)
		en, err := status.New(status.Config{Observer: a, Sink: a})
		if err != nil {
			t.Fatal(err)
		}
		a.engine = en
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- en.Run(ctx) }()
		script(t, a, en)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestAWriteThatHangsHoldsUpNoOther(t *testing.T) {
	against(t, func(t *testing.T, a *api, en *status.Engine) {
		hung := make(chan struct{})
		a.hang[routeNamed(0)] = hung
		a.slow = func() time.Duration { return 10 * time.Millisecond }
		var all []routing.Status
		for i := range 500 {
			all = append(all, saying(routeNamed(i), 1, "first"))
		}
		en.Update(all)
		pass(2 * time.Second)
		for i := 1; i < 500; i++ {
			if a.count(routeNamed(i)) != 1 {
				t.Fatalf("%s was written %d times", routeNamed(i), a.count(routeNamed(i)))
			}
		}
		if a.most > status.DefaultInFlight || a.most < status.DefaultInFlight/2 {
			t.Errorf("%d writes were under way at a time, want up to %d", a.most, status.DefaultInFlight)
		}
		if en.Settled() {
			t.Error("settled while a write hangs")
		}
		// What it is to say by now is written when it comes back, and what it was to say is not again.
		for i := range 10 {
			en.Update([]routing.Status{saying(routeNamed(0), int64(2+i), fmt.Sprint(i))})
			pass(100 * time.Millisecond)
		}
		a.set(func() { delete(a.hang, routeNamed(0)) })
		close(hung)
		pass(time.Second)
		synctest.Wait()
		if got := a.shown[routeNamed(0)]; a.count(routeNamed(0)) != 2 || accepted(got) != "9" || !en.Settled() {
			t.Errorf("written %d times, shows %q, settled %t", a.count(routeNamed(0)), accepted(got), en.Settled())
		}
	})
}

// A Gateway of which a thousand routes are created says how many are attached, soon and not
// a thousand times.
func TestAStatusThatChangesAllTheTimeIsWrittenNowAndThen(t *testing.T) {
	against(t, func(t *testing.T, a *api, en *status.Engine) {
		k := routeNamed(0)
		const changes, every = 1000, 5 * time.Millisecond
		for i := range changes {
			en.Update([]routing.Status{saying(k, 1, fmt.Sprint(i))})
			pass(every)
		}
		pass(1100 * time.Millisecond)
		synctest.Wait()
		if got, most := a.count(k), 4+int(changes*every/time.Second)+1; got > most || got < 5 {
			t.Errorf("%d writes, want at most %d", got, most)
		}
		if got := accepted(a.shown[k]); got != fmt.Sprint(changes-1) || !en.Settled() {
			t.Errorf("shows %s in the end, settled %t", got, en.Settled())
		}
		// Then it is as quick as ever.
		pass(time.Minute)
		en.Update([]routing.Status{saying(k, 1, "edit")})
		lull()
		if got := accepted(a.shown[k]); got != "edit" {
			t.Errorf("shows %s", got)
		}
	})
}

// An API that takes nothing is not asked more often because there is more and more to be written.
func TestEditsDoNotMultiplyWhatFails(t *testing.T) {
	against(t, func(t *testing.T, a *api, en *status.Engine) {
		calls := 0
		a.fail = func() error { calls++; return errors.New("no room") }
		k := routeNamed(0)
		for i := range 3000 { // half a minute
			en.Update([]routing.Status{saying(k, int64(i), fmt.Sprint(i))})
			pass(10 * time.Millisecond)
		}
		if calls > 4+30+1 || calls < 10 {
			t.Errorf("%d calls in half a minute", calls)
		}
		a.set(func() { a.fail = nil })
		pass(10 * time.Second)
		if got := accepted(a.shown[k]); got != "2999" {
			t.Errorf("shows %q in the end", got)
		}
	})
}

func TestWhatOthersTakeAwayIsPutBackAndNeverFoughtOver(t *testing.T) {
	against(t, func(t *testing.T, a *api, en *status.Engine) {
		k := routeNamed(0)
		en.Update([]routing.Status{saying(k, 1, "ours")})
		lull()
		a.foreign(k)
		lull()
		if _, there := a.shown[k]; !there || a.count(k) != 2 {
			t.Fatalf("it is not put back at once: %d writes", a.count(k))
		}
		// Another controller takes it away as soon as it is back, for an hour.
		before := a.count(k)
		for range 36000 {
			pass(100 * time.Millisecond)
			synctest.Wait()
			a.mu.Lock()
			_, there := a.shown[k]
			a.mu.Unlock()
			if there {
				a.foreign(k)
			}
		}
		if n := a.count(k) - before; n > 25 || n < 12 {
			t.Errorf("it was put back %d times in an hour of fighting", n)
		}
		// What is new is written at once all the same.
		en.Update([]routing.Status{saying(k, 2, "news")})
		pass(time.Second)
		synctest.Wait()
		if got, there := a.shown[k]; !there || accepted(got) != "news" {
			t.Errorf("news are not written while others fight")
		}
		// When they have long given up, it is put back at once again.
		pass(time.Hour)
		a.foreign(k)
		pass(time.Second)
		synctest.Wait()
		if _, there := a.shown[k]; !there {
			t.Error("it is not put back after an hour of peace")
		}
	})
}

// Deleted and made anew before anybody looked, it is as it was but for its UID, and nothing
// has been said of it.
func TestWhatTakesAnObjectsPlaceIsToldOf(t *testing.T) {
	against(t, func(t *testing.T, a *api, en *status.Engine) {
		k := routeNamed(0)
		en.Update([]routing.Status{saying(k, 1, "the same")})
		lull()
		first := a.shown[k].Status.(*gatewayv1.HTTPRouteStatus).Parents[0].Conditions[0].LastTransitionTime
		pass(time.Minute)
		a.set(func() { delete(a.shown, k) })
		next := saying(k, 1, "the same")
		next.UID = "another"
		en.Update([]routing.Status{next})
		lull()
		got, there := a.shown[k]
		if !there || got.UID != "another" || a.count(k) != 2 {
			t.Fatalf("shown is %+v, after %d writes", got, a.count(k))
		}
		if at := got.Status.(*gatewayv1.HTTPRouteStatus).Parents[0].Conditions[0].LastTransitionTime; !at.After(first.Time) {
			t.Errorf("its condition changed at %s, when there was no such object", at)
		}
	})
}

func TestWhatAnEarlierProcessLeftOfAnObjectIsRemovedOnceAllAreKnown(t *testing.T) {
	against(t, func(t *testing.T, a *api, en *status.Engine) {
		for _, k := range []object.Key{routeNamed(0), routeNamed(1)} {
			en.Seen(k, uidOf(k), true, func(status.Document) bool { return false })
		}
		en.Seen(routeNamed(2), "another's", false, func(status.Document) bool { return false })
		pass(time.Minute)
		synctest.Wait()
		if len(a.removed) > 0 {
			t.Fatalf("removed %v before what there is was known", a.removed)
		}
		en.Update([]routing.Status{saying(routeNamed(1), 1, "ours")})
		lull()
		if len(a.removed) != 1 || a.removed[routeNamed(0)] != uidOf(routeNamed(0)) || a.count(routeNamed(1)) != 1 {
			t.Errorf("removed %v, written %v", a.removed, a.writes)
		}
	})
}

func TestOneThatDoesNotLeadObservesAndWritesNothing(t *testing.T) {
	against(t, func(t *testing.T, a *api, en *status.Engine) {
		a.lead = false
		en.Lead(false)
		stray := routeNamed(9)
		en.Seen(stray, uidOf(stray), true, func(status.Document) bool { return false })
		en.Update([]routing.Status{saying(routeNamed(0), 1, "one"), saying(routeNamed(1), 1, "two")})
		en.Update([]routing.Status{{Key: routeNamed(1)}})
		pass(time.Minute)
		synctest.Wait()
		if got := en.Documents(); len(got) != 1 || got[0].Key != routeNamed(0) {
			t.Errorf("known are %v", got)
		}
		a.set(func() { a.lead = true })
		en.Lead(true)
		lull()
		if a.count(routeNamed(0)) != 1 || len(a.removed) != 1 {
			t.Errorf("written %v, removed %v", a.writes, a.removed)
		}
		// It is deposed, another leads and takes its own view; when it leads again, it looks at all.
		en.Lead(false)
		synctest.Wait()
		a.set(func() { a.lead = false; delete(a.shown, routeNamed(0)) })
		pass(time.Minute)
		a.set(func() { a.lead = true })
		en.Lead(true)
		lull()
		if _, there := a.shown[routeNamed(0)]; !there {
			t.Error("what another took away is not put back")
		}
	})
}

// Whatever happens, in whatever order: in the end what is shown is what was said last, and
// at no time is there more than one call about an object, or more calls than there may be.
func TestInTheEndTheNewestIsShown(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			against(t, func(t *testing.T, a *api, en *status.Engine) {
				random := rand.New(rand.NewPCG(seed, 1))
				own := rand.New(rand.NewPCG(seed, 2))
				troubled := true
				a.slow = func() time.Duration { return time.Duration(own.Int64N(int64(300 * time.Millisecond))) }
				a.fail = func() error {
					if troubled && own.IntN(4) == 0 {
						return errors.New("the server has asked for fewer requests")
					}
					return nil
				}
				const objects = 40
				want := map[object.Key]string{}
				for step := range 600 {
					k := routeNamed(random.IntN(objects))
					switch random.IntN(8) {
					case 0:
						delete(want, k)
						en.Update([]routing.Status{{Key: k, UID: uidOf(k)}})
					case 1:
						a.foreign(k)
					case 2:
						en.Pulse()
					case 3:
						en.Rewrite()
					case 4:
						a.event(k)
					default:
						want[k] = fmt.Sprint(step)
						en.Update([]routing.Status{saying(k, int64(step+1), want[k])})
					}
					pass(time.Duration(random.Int64N(int64(50 * time.Millisecond))))
				}
				a.set(func() { troubled = false })
				pass(time.Hour)
				synctest.Wait()
				if !en.Settled() {
					t.Error("not settled after an hour without a change")
				}
				a.mu.Lock()
				defer a.mu.Unlock()
				for i := range objects {
					k := routeNamed(i)
					got, there := a.shown[k]
					if message, wanted := want[k]; there != wanted || there && accepted(got) != message {
						t.Errorf("%s shows %v, want %q", k, got, message)
					}
				}
				if a.most > status.DefaultInFlight {
					t.Errorf("%d calls at a time", a.most)
				}
			})
		})
	}
}
