package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
)

// graph makes one shared resource of all routes, one resource of each route beside it,
// as a cluster would be, and one of each Gateway in its own scope. The content of the
// shared one is the routes' names and generations.
type graph struct {
	objects map[object.Key]object.Object
	held    map[object.Key]object.Object
}

func newGraph() *graph { return &graph{objects: map[object.Key]object.Object{}} }

func (g *graph) Update(changes []object.Change, held map[object.Key]object.Object) routing.Delta {
	d := routing.Delta{Worlds: map[scope.Scope]resource.Delta{}}
	before := g.made()
	for _, c := range changes {
		if g.objects[c.Key] = c.Object; c.Object == nil {
			delete(g.objects, c.Key)
		}
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
	g.held = held
	var pool resource.Delta
	after := g.made()
	for n, r := range after {
		if old := before[n]; old == nil || old.Hash != r.Hash {
			pool.Changed = append(pool.Changed, r)
		}
	}
	for n := range before {
		if after[n] == nil {
			pool.Removed = append(pool.Removed, n)
		}
	}
	d.Worlds[scope.SharedPool()] = pool
	return d
}

func (g *graph) Try(s scope.Scope, of resource.Name, held map[object.Key]object.Object) *resource.Resource {
	if s != scope.SharedPool() || of.Name != "shared" {
		panic("tried " + of.String())
	}
	return inventory("shared:trial", g.routes(held))
}

func (g *graph) made() map[resource.Name]*resource.Resource {
	out := map[resource.Name]*resource.Resource{}
	routes := g.routes(g.held)
	shared := inventory("shared", routes)
	out[shared.Name] = shared
	for k := range routes {
		r := must(resource.New("own of "+k.Name, &discoveryv1.Scope{}))
		out[r.Name] = r
	}
	return out
}

// routes is what is compiled when these are held.
func (g *graph) routes(held map[object.Key]object.Object) map[object.Key]object.Object {
	out := map[object.Key]object.Object{}
	for k, o := range g.objects {
		if old, ok := held[k]; ok {
			o = old
		}
		if k.Kind == object.HTTPRoute && o != nil {
			out[k] = o
		}
	}
	return out
}

func inventory(name string, routes map[object.Key]object.Object) *resource.Resource {
	m := &discoveryv1.Inventory{}
	keys := slices.SortedFunc(maps.Keys(routes), object.Key.Compare)
	for _, k := range keys {
		m.Resources = append(m.Resources, &discoveryv1.ResourceRef{Name: fmt.Sprintf("%s=%d", k.Name, routes[k].GetGeneration())})
	}
	return must(resource.New(name, m, keys...))
}

// contents is what an inventory says.
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

// statuses notes what it is told.
type statuses struct {
	pulses chan struct{}

	mu      sync.Mutex // guards what follows
	updates []object.Key
	held    map[object.Key]string
	refused []resource.Name // everything that was ever told
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

func (s *statuses) Refused(names []resource.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, names...)
}

func (s *statuses) toldRefused() []resource.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refused)
}

func (s *statuses) Pulse() {
	select {
	case s.pulses <- struct{}{}:
	default: // whoever looks at each pulse has not come to the last one
	}
}
func (s *statuses) Rebound() {}

// recorder notes what it is told.
type recorder struct {
	mu          sync.Mutex // guards what follows
	batches     int
	quarantined map[object.Key]string
	refused     map[resource.Name]bool
}

func (r *recorder) Record(pipeline.Batch, routing.Delta) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.batches++
}

func (r *recorder) Judged(quarantined map[object.Key]string, refused map[resource.Name]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.quarantined, r.refused = quarantined, refused
}

// store is a pipeline.Store in memory.
type store struct {
	mu      sync.Mutex // guards what follows
	saved   map[object.Key]quarantine.Conviction
	saves   int
	failing error
}

func (s *store) Load(context.Context) (map[object.Key]quarantine.Conviction, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.saved), s.failing
}

func (s *store) Save(_ context.Context, convicted map[object.Key]quarantine.Conviction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saves++
	if s.failing != nil {
		return s.failing
	}
	s.saved = maps.Clone(convicted)
	return nil
}

func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = err
}

func (s *store) has(k object.Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.saved[k]
	return ok
}

// envoy is what one proxy runs, over restarts of the controller. It refuses what holds
// something bad, whole, and keeps what it had.
type envoy struct {
	id     string
	bad    func(content string) bool
	refuse string // a resource that is refused whatever it holds; empty: none

	mu    sync.Mutex        // guards what follows
	live  map[string]string // routes of the shared resource and their versions
	gone  map[string]bool   // routes that were deleted
	lost  []string          // routes that it ran and does not run any more
	tried int               // copies that it was sent
	turns chan struct{}     // it answers once for each; nil: at once
}

func refuser(id string, bad ...string) *envoy {
	return &envoy{id: id, bad: func(content string) bool { return slices.Contains(bad, content) }, gone: map[string]bool{}}
}

func (e *envoy) runs() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for name, version := range e.live {
		out = append(out, name+"="+version)
	}
	slices.Sort(out)
	return out
}

func (e *envoy) losses() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.lost)
}

func (e *envoy) delete(k object.Key) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone[k.Name] = true
}

// take applies one resource, or says what is wrong with it.
func (e *envoy) take(r *resource.Resource) (detail string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Name.Name == "shared:trial" {
		e.tried++
	}
	if r.Name.Name == e.refuse {
		return "no"
	}
	now := map[string]string{}
	for _, c := range contents(r) {
		if e.bad(c) {
			return r.Name.Name + " has no " + c
		}
		name, version, _ := strings.Cut(c, "=")
		now[name] = version
	}
	if r.Name.Name != "shared" {
		return ""
	}
	for name := range e.live {
		if now[name] == "" && !e.gone[name] {
			e.lost = append(e.lost, name)
		}
	}
	e.live = now
	return ""
}

// drop notes that a resource is removed. That of a route that runs must not be.
func (e *envoy) drop(n resource.Name) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if route, own := strings.CutPrefix(n.Name, "own of "); own && e.live[route] != "" && !e.gone[route] {
		e.lost = append(e.lost, n.Name)
	}
}

// hold has it answer only when told to, until release.
func (e *envoy) hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turns = make(chan struct{})
}

// answer lets it answer once.
func (e *envoy) answer(r *rig) {
	r.t.Helper()
	select {
	case e.turns <- struct{}{}:
	case <-time.After(20 * time.Second):
		r.t.Fatal("the proxy has nothing to answer")
	}
}

func (e *envoy) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.turns)
}

func (e *envoy) turn(ctx context.Context) bool {
	e.mu.Lock()
	turns := e.turns
	e.mu.Unlock()
	if turns == nil {
		return true
	}
	select {
	case <-turns:
		return true
	case <-ctx.Done():
		return false
	}
}

// serve answers everything that it is sent until ctx ends.
func (e *envoy) serve(ctx context.Context, s *world.Subscription) error {
	defer s.Close()
	refused := map[resource.Name]resource.Refusal{}
	for {
		snap, wait, err := s.Next()
		if err != nil {
			return err
		}
		if wait != nil {
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		for _, n := range snap.Removed {
			delete(refused, n)
			e.drop(n)
		}
		for _, r := range snap.Changed {
			delete(refused, r.Name)
			if detail := e.take(r); detail != "" {
				refused[r.Name] = resource.Refusal{Name: r.Name, Hash: r.Hash, Detail: detail}
			}
		}
		if !e.turn(ctx) {
			return nil
		}
		a := snapshot.Answer{Nonce: snap.Nonce, Version: snap.Version}
		a.Refused = slices.Collect(maps.Values(refused))
		if err := s.Answer(a); err != nil {
			return err
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// publisher is a world that looks at what is published: the shared resource has every
// innocent route, as it is now, at every moment.
type publisher struct {
	*world.World
	graph *graph
	bad   func(content string) bool // nil: do not look
	lacks func(content string)
}

func (p publisher) Publish(deltas map[scope.Scope]resource.Delta, mark watermark.Mark) {
	for _, r := range deltas[scope.SharedPool()].Changed {
		if r.Name.Name != "shared" || p.bad == nil {
			continue
		}
		has := contents(r)
		for k, o := range p.graph.objects { // the pipeline's lock is held
			if c := fmt.Sprintf("%s=%d", k.Name, o.GetGeneration()); k.Kind == object.HTTPRoute && !p.bad(c) && !slices.Contains(has, c) {
				p.lacks(c)
			}
		}
	}
	p.World.Publish(deltas, mark)
}

// rig is a controller and its proxies.
type rig struct {
	t        *testing.T
	p        *pipeline.Pipeline
	world    *world.World
	statuses *statuses
	recorder *recorder
	store    *store
	objects  map[object.Key]object.Object
	unread   error               // of the store when the controller started
	bad      func(string) bool   // what every proxy refuses; nil: not told
	recalled map[object.Key]bool // what the store knew when the controller started
	seq      uint64
	stop     func() // ends the controller and the proxies' streams
	parts    *sync.WaitGroup
	ctx      context.Context //nolint:containedctx // of the controller that runs now
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newStrictRig(t, nil)
}

// newStrictRig fails the test if anything is published without an innocent route.
func newStrictRig(t *testing.T, bad func(content string) bool) *rig {
	t.Helper()
	r := &rig{t: t, bad: bad, store: &store{}, objects: map[object.Key]object.Object{}}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// start starts a controller that knows nothing but what is in the store.
func (r *rig) start() {
	r.world, r.statuses, r.recorder = world.New(world.Config{}), &statuses{pulses: make(chan struct{}, 1)}, &recorder{}
	g := newGraph()
	w := publisher{World: r.world, graph: g, bad: r.bad, lacks: func(content string) {
		r.t.Errorf("the shared resource was published without %s, which is innocent", content)
	}}
	r.p = must(pipeline.New(pipeline.Config{Graph: g, World: w, Statuses: r.statuses, Recorder: r.recorder, Store: r.store}))
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithCancel(context.Background())
	r.parts = &sync.WaitGroup{}
	p, ctx, parts := r.p, r.ctx, r.parts
	parts.Go(func() { _ = p.Run(ctx) })
	r.stop = func() { cancel(); parts.Wait() }
	r.recalled = map[object.Key]bool{}
	for k := range r.store.saved {
		r.recalled[k] = true
	}
	r.unread = p.Recall(ctx)
}

// restart stops the controller, makes edits that nobody sees, and starts another one,
// to which the proxies connect.
func (r *rig) restart(edits map[int]int64, proxies ...*envoy) {
	r.t.Helper()
	r.stop()
	r.note(edits)
	r.start()
	b := pipeline.Batch{Synced: true, Mark: r.mark()}
	for _, k := range slices.SortedFunc(maps.Keys(r.objects), object.Key.Compare) {
		b.Changes = append(b.Changes, object.Change{Key: k, Object: r.objects[k]})
	}
	r.p.Apply(b)
	for _, e := range proxies {
		r.connect(e)
	}
}

// excuse notes the bad routes of which the controller that has just started knows nothing.
func (r *rig) excuse(excused map[string]bool) {
	for k, o := range r.objects {
		excused[k.Name] = excused[k.Name] || o.GetGeneration()%2 == 1 && !r.recalled[k]
	}
}

func route(i int) object.Key {
	return object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: fmt.Sprintf("r%d", i)}
}

func version(i int, v int64) object.Object {
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Name: route(i).Name, Namespace: "default", Generation: v},
		Spec:       gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("v%d.example", v))}},
	}
}

func (r *rig) mark() watermark.Mark {
	r.seq++
	return watermark.Mark{Epoch: 1, Positions: map[string]uint64{"x": r.seq}}
}

// note makes edits; version 0 is none.
func (r *rig) note(versions map[int]int64) []object.Change {
	var out []object.Change
	for i, v := range versions {
		k := route(i)
		if v == 0 {
			delete(r.objects, k)
		} else {
			r.objects[k] = version(i, v)
		}
		out = append(out, object.Change{Key: k, Object: r.objects[k]})
	}
	return out
}

func (r *rig) apply(versions map[int]int64) {
	r.p.Apply(pipeline.Batch{Synced: true, Mark: r.mark(), Changes: r.note(versions)})
}

// connect has a proxy subscribe and answer until the controller ends.
func (r *rig) connect(e *envoy) {
	r.t.Helper()
	s, err := r.world.Subscribe(r.t.Context(), scope.SharedPool(), fleet.Peer{ID: e.id}, snapshot.Have{}, func() {})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, t := r.ctx, r.t
	r.parts.Go(func() {
		if err := e.serve(ctx, s); err != nil && !errors.Is(err, snapshot.ErrClosed) {
			t.Error(err)
		}
	})
}

// proxy connects a new proxy that refuses what holds one of these.
func (r *rig) proxy(bad ...string) *envoy {
	r.t.Helper()
	e := refuser("proxy", bad...)
	r.connect(e)
	return e
}

// resource is one of the shared pool's, by name, or nil.
func (r *rig) resource(name string) *resource.Resource {
	for _, res := range r.world.Resources(scope.SharedPool()) {
		if res.Name.Name == name {
			return res
		}
	}
	return nil
}

// current is the shared resource's content in the world.
func (r *rig) current() []string {
	if res := r.resource("shared"); res != nil {
		return contents(res)
	}
	return nil
}

// verdict is what proxies say of the shared resource.
func (r *rig) verdict() fleet.Verdict {
	if res := r.resource("shared"); res != nil {
		return r.world.Verdict(scope.SharedPool(), []resource.Name{res.Name}, 0)
	}
	return fleet.Verdict{}
}

// settled reports whether the proxy has taken all that is current.
func (r *rig) settled(id string) bool {
	return slices.ContainsFunc(r.world.Proxies(), func(p fleet.Proxy) bool { return p.ID == id && p.Current && len(p.Refused) == 0 })
}

// until waits until ok is true.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	late := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond) // for what the pipeline does without being observed
	defer tick.Stop()
	for !ok() {
		select {
		case <-r.statuses.pulses:
		case <-tick.C:
		case <-late:
			r.t.Fatalf("gave up waiting until %s; the world has %v, held is %v", what, r.current(), r.statuses.quarantined())
		}
	}
}
