package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
)

// graph makes one shared resource of all routes, and one resource of each Gateway in its
// own scope. Its content is the routes' names and generations.
type graph struct {
	objects map[object.Key]object.Object
	held    map[object.Key]object.Object
}

func (g *graph) Apply(changes []object.Change) routing.Delta {
	d := routing.Delta{Worlds: map[scope.Scope]resource.Delta{scope.SharedPool(): {}}}
	for _, c := range changes {
		g.objects[c.Key] = c.Object
		delete(g.held, c.Key)
		d.Statuses = append(d.Statuses, routing.Status{Key: c.Key})
		if s, err := scope.Gateway(c.Key.Namespace, c.Key.Name); c.Key.Kind == object.Gateway && err == nil {
			r := must(resource.New(c.Key.Name, &discoveryv1.Scope{}))
			if c.Object == nil {
				d.Worlds[s] = resource.Delta{Removed: []resource.Name{r.Name}}
			} else {
				d.Worlds[s] = resource.Delta{Changed: []*resource.Resource{r}}
			}
		}
	}
	d.Worlds[scope.SharedPool()] = g.shared()
	return d
}

func (g *graph) Hold(held map[object.Key]object.Object) routing.Delta {
	g.held = held
	return routing.Delta{Worlds: map[scope.Scope]resource.Delta{scope.SharedPool(): g.shared()}}
}

func (g *graph) shared() resource.Delta {
	var content []string
	var origin []object.Key
	for k, o := range g.objects {
		if old, ok := g.held[k]; ok {
			o = old
		}
		if k.Kind == object.HTTPRoute && o != nil {
			content = append(content, fmt.Sprintf("%s=%d", k.Name, o.GetGeneration()))
			origin = append(origin, k)
		}
	}
	slices.Sort(content)
	m := &discoveryv1.Inventory{}
	for _, c := range content {
		m.Resources = append(m.Resources, &discoveryv1.ResourceRef{Name: c})
	}
	return resource.Delta{Changed: []*resource.Resource{must(resource.New("shared", m, origin...))}}
}

// statuses notes what it is told.
type statuses struct {
	pulses chan struct{}

	mu      sync.Mutex // guards what follows
	updates []object.Key
	held    map[object.Key]string
}

func (s *statuses) Update(list []routing.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range list {
		s.updates = append(s.updates, u.Key)
	}
}

func (s *statuses) Hold(held map[object.Key]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
}

func (s *statuses) quarantined() map[object.Key]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held
}

func (s *statuses) Pulse()                  { s.pulses <- struct{}{} }
func (s *statuses) Refused([]resource.Name) {}
func (s *statuses) Rebound()                {}

type recorder struct{ batches int }

func (r *recorder) Record(pipeline.Batch, routing.Delta) { r.batches++ }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

type rig struct {
	t        *testing.T
	p        *pipeline.Pipeline
	world    *world.World
	statuses *statuses
	recorder *recorder
	seq      uint64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, world: world.New(world.Config{}), statuses: &statuses{pulses: make(chan struct{}, 64)}, recorder: &recorder{}}
	r.p = must(pipeline.New(pipeline.Config{
		Graph: &graph{objects: map[object.Key]object.Object{}, held: map[object.Key]object.Object{}},
		World: r.world, Statuses: r.statuses, Recorder: r.recorder,
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func route(i int) object.Key {
	return object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: fmt.Sprintf("r%d", i)}
}

func (r *rig) apply(versions map[int]int64) {
	r.seq++
	b := pipeline.Batch{Synced: true, Mark: watermark.Mark{Epoch: 1, Positions: map[string]uint64{"x": r.seq}}}
	for i, v := range versions {
		b.Changes = append(b.Changes, object.Change{Key: route(i), Object: &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: route(i).Name, Namespace: "default", Generation: v}}})
	}
	r.p.Apply(b)
}

// proxy subscribes and answers everything it is sent: content with a version in bad is refused.
func (r *rig) proxy(bad ...string) *world.Subscription {
	r.t.Helper()
	return r.proxyNamed("proxy", bad...)
}

func (r *rig) proxyNamed(id string, bad ...string) *world.Subscription {
	r.t.Helper()
	s, err := r.world.Subscribe(r.t.Context(), scope.SharedPool(), fleet.Peer{ID: id}, snapshot.Have{}, func() {})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	r.t.Cleanup(func() { cancel(); <-done; s.Close() })
	go func() {
		defer close(done)
		for {
			snap, wait, err := s.Next()
			if err != nil {
				return
			}
			if wait != nil {
				select {
				case <-wait:
					continue
				case <-ctx.Done():
					return
				}
			}
			if err := s.Answer(answer(snap, bad)); err != nil {
				r.t.Error(err)
				return
			}
		}
	}()
	return s
}

func answer(snap snapshot.Snapshot, bad []string) snapshot.Answer {
	a := snapshot.Answer{Nonce: snap.Nonce, Version: snap.Version}
	for _, res := range snap.Changed {
		for _, b := range bad {
			if slices.Contains(contents(res), b) {
				a.Refused = append(a.Refused, resource.Refusal{Name: res.Name, Hash: res.Hash, Detail: "no " + b})
			}
		}
	}
	return a
}

func contents(r *resource.Resource) []string {
	var m discoveryv1.Inventory
	if err := r.Any().UnmarshalTo(&m); err != nil {
		return nil
	}
	var out []string
	for _, ref := range m.Resources {
		out = append(out, ref.GetName())
	}
	return out
}

// current is the shared resource's content in the world.
func (r *rig) current() []string {
	for _, res := range r.world.Resources(scope.SharedPool()) {
		if res.Name.Name == "shared" {
			return contents(res)
		}
	}
	return nil
}

// verdict is what proxies say of the shared resource.
func (r *rig) verdict() fleet.Verdict {
	for _, res := range r.world.Resources(scope.SharedPool()) {
		if res.Name.Name == "shared" {
			return r.world.Verdict(scope.SharedPool(), []resource.Name{res.Name}, 0)
		}
	}
	return fleet.Verdict{}
}

// runs reports whether the proxy has taken all that is current.
func (r *rig) runs(id string) bool {
	return slices.ContainsFunc(r.world.Proxies(), func(p fleet.Proxy) bool { return p.ID == id && p.Current && len(p.Refused) == 0 })
}

// until waits for a pulse that finds ok true.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	late := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-r.statuses.pulses:
		case <-late:
			r.t.Fatalf("gave up waiting until %s; the world has %v, held is %v", what, r.current(), r.statuses.quarantined())
		}
	}
}

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
		return slices.Equal(r.current(), []string{"r1=1", "r2=1", "r3=2"}) && r.statuses.quarantined()[route(2)] == "no r2=2"
	})
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
	r.proxyNamed("good", "r2=2")
	r.until("it runs", func() bool { return r.runs("good") })
	r.proxyNamed("hostile", "r1=1", "r2=1", "r2=2", "r3=1")
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
		return slices.Equal(r.current(), []string{"r1=1", "r2=1", "r3=1"}) && r.statuses.quarantined()[route(2)] != "" && r.runs("good")
	})
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
	if got := r.p.DedicatedIn("apps"); len(got) != 1 || got["own"] != "coxswain" {
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
