// Package pipeline is the one writer of the routing graph: it takes batches of changes
// to the graph, what comes out to the world and to the statuses, and what proxies refuse
// to the court, whose convictions go back to the graph as objects to hold. It owns the
// order of these steps and nothing else.
package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/watermark"
)

// Graph turns changes of objects into changes of resources and statuses.
type Graph interface {
	// Update takes objects in, and what is held of all there are.
	Update(changes []object.Change, held map[object.Key]object.Object) routing.Delta
	// Try is a copy of a resource, under another name and found by no request, as it would
	// be if other objects were held; nil if there would be none. It changes nothing.
	Try(s scope.Scope, of resource.Name, held map[object.Key]object.Object) *resource.Resource
}

// World receives resources and knows which of them proxies refuse.
type World interface {
	Publish(deltas map[scope.Scope]resource.Delta, mark watermark.Mark)
	SetSynced()
	Verdict(s scope.Scope, names []resource.Name, port uint32) fleet.Verdict
	// Reported costs next to nothing while nobody refuses anything.
	Reported() fleet.Reported
	Observe() (events <-chan struct{}, stop func())
}

// Statuses receives statuses, and is told when to look at proxies again.
type Statuses interface {
	Update(statuses []routing.Status)
	Hold(held map[object.Key]string)
	Pulse()
	Refused(names []resource.Name)
	Rebound()
}

// Recorder remembers what each batch did.
type Recorder interface {
	Record(b Batch, d routing.Delta)
	// Judged says which objects are quarantined, and why, and which resources are refused
	// without a search under way that could find out why. It comes before what is done
	// about it. The maps are not changed any more.
	Judged(quarantined map[object.Key]string, refused map[resource.Name]bool)
}

// Fronts are the Services in front of Gateways.
type Fronts interface {
	// Update takes changes of objects, of which some may be such Services, and what is wanted in
	// front of Gateways, where it differs; nil: nothing any more. One without the other would
	// be Services that are in front of nothing, or Gateways that have none. Before the
	// source's initial list is complete, neither is all there is.
	Update(changes []object.Change, wanted map[key.Name]*front.Front, complete bool)
}

// Store keeps convictions from one process to the next.
type Store interface {
	// Load returns what was saved last, and what there is of it with an error too.
	Load(ctx context.Context) (map[object.Key]quarantine.Conviction, error)
	Save(ctx context.Context, convicted map[object.Key]quarantine.Conviction) error
}

// Batch is a set of changes that were observed together.
type Batch struct {
	Changes []object.Change
	Mark    watermark.Mark
	Synced  bool     // the source's initial list is complete with this batch
	Cause   []string // where the changes came from, for people: files, or nothing
	Noticed time.Time
}

// Config is what a Pipeline is made from. Graph, World, Statuses and Recorder are required.
type Config struct {
	Graph    Graph
	World    World
	Statuses Statuses
	Recorder Recorder
	Fronts   Fronts        // nil: nothing is in front of Gateways
	Store    Store         // nil: convictions last as long as the process
	Retry    time.Duration // before what could not be saved is saved again; 0: 1 s
	Tracer   trace.Tracer  // of batches; nil: none
	Log      *slog.Logger
}

// Pipeline carries changes from a source to proxies.
type Pipeline struct {
	c Config

	unsaved chan struct{} // capacity 1: convictions differ from what is in the store; taken by keep

	mu      sync.Mutex // serialises everything that reaches the graph; guards what follows
	court   *quarantine.Court
	held    map[object.Key]object.Object // as the graph was told
	objects map[object.Key]object.Object
	mark    watermark.Mark
	current map[scope.Scope]map[resource.Name]*resource.Resource
	copies  map[scope.Scope]*resource.Resource   // of the resource on trial; in no other map
	refused map[resource.Name]bool               // for good, as of the last pulse
	bound   uint64                               // the World's bindings, as of the last pulse
	guilty  map[object.Key]string                // what is in quarantine, and why
	kept    map[object.Key]quarantine.Conviction // what the store has, or is about to be given
	known   bool                                 // what the store had is in kept
	shared  *resource.Resource                   // what every scope has beside its own; nil: nothing
	synced  bool
}

// New checks c.
func New(c Config) (*Pipeline, error) {
	if c.Graph == nil || c.World == nil || c.Statuses == nil || c.Recorder == nil {
		return nil, errors.New("pipeline needs a graph, a world, statuses and a recorder")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Tracer == nil {
		c.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if c.Retry == 0 {
		c.Retry = time.Second
	}
	p := &Pipeline{
		c: c, unsaved: make(chan struct{}, 1), objects: map[object.Key]object.Object{},
		current: map[scope.Scope]map[resource.Name]*resource.Resource{}, refused: map[resource.Name]bool{}, guilty: map[object.Key]string{},
	}
	p.court = quarantine.New(func(k object.Key) object.Object { return p.objects[k] })
	return p, nil
}

// Apply takes one batch through. It returns when its resources are published; what
// proxies make of them comes back later.
func (p *Pipeline) Apply(b Batch) {
	_, span := p.c.Tracer.Start(context.Background(), "apply changes", trace.WithAttributes(
		attribute.Int("aether.changes", len(b.Changes)), attribute.Bool("aether.synced", b.Synced)))
	defer span.End()
	p.mu.Lock()
	defer p.mu.Unlock()
	edits := make(map[object.Key]quarantine.Edit, len(b.Changes))
	for _, ch := range b.Changes {
		edits[ch.Key] = quarantine.Edit{Before: p.objects[ch.Key], After: ch.Object}
		if ch.Object == nil {
			delete(p.objects, ch.Key)
		} else {
			p.objects[ch.Key] = ch.Object
		}
	}
	p.mark = b.Mark
	before := p.court.Changed(edits)
	if b.Synced && !p.synced {
		p.court.Forget()
	}
	p.judge()
	delta := p.c.Graph.Update(b.Changes, p.held)
	made := rebuilt(delta)
	span.SetAttributes(attribute.Int("aether.resources.changed", len(made)), attribute.Int("aether.statuses", len(delta.Statuses)))
	p.court.Rebuilt(made, before)
	p.publish(delta)
	if b.Synced && !p.synced {
		p.synced = true
		p.c.World.SetSynced()
	}
	p.c.Statuses.Update(delta.Statuses)
	if p.c.Fronts != nil {
		p.c.Fronts.Update(b.Changes, delta.Fronts, p.synced)
	}
	if len(b.Changes) > 0 {
		p.c.Recorder.Record(b, delta)
	}
}

func rebuilt(d routing.Delta) []*resource.Resource {
	var out []*resource.Resource
	for _, w := range d.Worlds {
		out = append(out, w.Changed...)
	}
	return out
}

// Share makes r a resource of every scope, in the place of the one that was shared before.
func (p *Pipeline) Share(r *resource.Resource) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = r
	worlds := map[scope.Scope]resource.Delta{scope.SharedPool(): {Changed: []*resource.Resource{r}}}
	for s := range p.current {
		worlds[s] = resource.Delta{Changed: []*resource.Resource{r}}
	}
	p.c.World.Publish(worlds, p.mark)
}

// Object returns the object of a key as it was handed in last, nil if there is none.
func (p *Pipeline) Object(k object.Key) object.Object {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[k]
}

// Objects returns the objects of a kind as they were handed in last, sorted by key.
func (p *Pipeline) Objects(kind object.Kind) []object.Object {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []object.Key
	for k := range p.objects {
		if k.Kind == kind {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, object.Key.Compare)
	out := make([]object.Object, 0, len(keys))
	for _, k := range keys {
		out = append(out, p.objects[k])
	}
	return out
}

// Dedicated returns the class of a Gateway that has a scope of its own, if there is one.
func (p *Pipeline) Dedicated(namespace, name string) (class string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, err := scope.Gateway(namespace, name)
	if err != nil || p.current[s] == nil {
		return "", false
	}
	gw, ok := p.objects[object.Key{Kind: object.Gateway, Namespace: namespace, Name: name}].(*gatewayv1.Gateway)
	if !ok {
		return "", false
	}
	return string(gw.Spec.GatewayClassName), true
}

// DedicatedNamespaces returns the namespaces with dedicated Gateways, sorted.
func (p *Pipeline) DedicatedNamespaces() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for s := range p.current {
		if ns, _, ok := s.GatewayName(); ok {
			out = append(out, ns)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// DedicatedIn returns the dedicated Gateways of a namespace.
func (p *Pipeline) DedicatedIn(namespace string) []*gatewayv1.Gateway {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*gatewayv1.Gateway
	for s := range p.current {
		if ns, name, ok := s.GatewayName(); ok && ns == namespace {
			if gw, is := p.objects[object.Key{Kind: object.Gateway, Namespace: ns, Name: name}].(*gatewayv1.Gateway); is {
				out = append(out, gw)
			}
		}
	}
	return out
}

// Synced reports whether the source's initial list has come in.
func (p *Pipeline) Synced() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.synced
}

// publish hands out the resources that differ, and in the same step the copies that are
// to be tried, or takes them back.
func (p *Pipeline) publish(d routing.Delta) {
	worlds := make(map[scope.Scope]resource.Delta, len(d.Worlds)+1)
	for s, delta := range d.Worlds {
		worlds[s] = resource.Delta{Changed: slices.Clone(delta.Changed), Removed: slices.Clone(delta.Removed)}
		if p.current[s] == nil {
			p.current[s] = map[resource.Name]*resource.Resource{}
			if p.shared != nil {
				change(worlds, s, p.shared)
			}
		}
		for _, r := range delta.Changed {
			p.current[s][r.Name] = r
		}
		for _, n := range delta.Removed {
			delete(p.current[s], n)
		}
		if len(p.current[s]) == 0 {
			delete(p.current, s)
		}
	}
	p.exhibit(worlds)
	for _, w := range worlds {
		slices.SortFunc(w.Changed, func(a, b *resource.Resource) int { return a.Name.Compare(b.Name) })
		slices.SortFunc(w.Removed, resource.Name.Compare)
	}
	p.c.World.Publish(worlds, p.mark)
}

// exhibit adds to worlds what differs in the copies: there is one beside each resource
// that is on trial, and no other.
func (p *Pipeline) exhibit(worlds map[scope.Scope]resource.Delta) {
	about, held, running := p.court.Trial()
	now := map[scope.Scope]*resource.Resource{}
	for s, resources := range p.current {
		if !running || resources[about] == nil {
			continue
		}
		if r := p.c.Graph.Try(s, about, held); r != nil {
			now[s] = r
		}
	}
	for s, r := range now {
		if old := p.copies[s]; old == nil || old.Name != r.Name || old.Hash != r.Hash {
			change(worlds, s, r)
		}
	}
	for s, old := range p.copies {
		if r := now[s]; r == nil || r.Name != old.Name {
			w := worlds[s]
			w.Removed = append(w.Removed, old.Name)
			worlds[s] = w
		}
	}
	p.copies = now
}

func change(worlds map[scope.Scope]resource.Delta, s scope.Scope, r *resource.Resource) {
	w := worlds[s]
	w.Changed = append(w.Changed, r)
	worlds[s] = w
}

// Run follows what proxies report, and keeps what comes of that, until ctx is done.
func (p *Pipeline) Run(ctx context.Context) error {
	events, stop := p.c.World.Observe()
	defer stop()
	kept := make(chan struct{})
	go func() { // ends with ctx
		defer close(kept)
		p.keep(ctx)
	}()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			<-kept
			return ctx.Err()
		case <-events:
			p.observe()
		}
	}
}

// observe passes on what proxies report, and moves the search for culprits on for as long
// as that needs no new answer.
func (p *Pipeline) observe() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteRefused()
	for p.court.Step(p.ofOriginal, p.ofCopy) {
		held := p.held
		p.judge()
		delta := routing.Delta{}
		if !maps.Equal(held, p.held) {
			delta = p.c.Graph.Update(nil, p.held)
		}
		p.publish(delta)
		p.c.Statuses.Update(delta.Statuses)
		if p.c.Fronts != nil {
			p.c.Fronts.Update(nil, delta.Fronts, p.synced)
		}
		p.noteRefused()
	}
	p.noteProxies()
	p.c.Statuses.Pulse()
}

// noteRefused tells the court of what is refused.
func (p *Pipeline) noteRefused() {
	for _, r := range p.c.World.Reported().Refused {
		if cur := p.current[r.Scope][r.Name]; cur != nil && cur.Hash == r.Hash {
			p.court.Refused(cur)
		}
	}
}

// judge takes over who is convicted, and tells of each object once when it enters
// quarantine, and when it leaves it.
func (p *Pipeline) judge() {
	convicted := p.court.Convicted()
	p.held = make(map[object.Key]object.Object, len(convicted))
	guilty := make(map[object.Key]string, len(convicted))
	for k, v := range convicted {
		p.held[k] = v.Instead
		guilty[k] = sentence(v)
		if _, known := p.guilty[k]; !known {
			p.c.Log.Warn("object quarantined: Envoy refuses what it makes", logkey.Object, k.String(), logkey.Resource, v.Resource.String(), logkey.Reason, v.Detail)
		}
	}
	if !maps.Equal(guilty, p.guilty) {
		p.guilty = guilty
		p.c.Statuses.Hold(guilty)
		p.c.Recorder.Judged(p.guilty, p.refused)
	}
	if !maps.Equal(convicted, p.kept) {
		p.kept = convicted
		select {
		case p.unsaved <- struct{}{}:
		default: // keep has not come to the last one yet, and will see this too
		}
	}
}

// sentence is a conviction as its object's status tells it.
func sentence(v quarantine.Conviction) string {
	effect := "an earlier version, which Envoy accepts, stays in effect"
	if v.Instead == nil {
		effect = "it is left out, because no earlier version that Envoy accepts is known"
	}
	return effect + "; it refused this one: " + v.Detail
}

// noteProxies compares proxies with the last pulse and tells what differs. What is
// refused while its cause is searched for is not told: of most that is in it, it is not true.
func (p *Pipeline) noteProxies() {
	reported, refused := p.c.World.Reported(), map[resource.Name]bool{}
	for _, r := range reported.Refused {
		cur := p.current[r.Scope][r.Name]
		if cur != nil && cur.Hash == r.Hash && !p.court.Searches(r.Name) { // else it has been superseded
			refused[r.Name] = true
		}
	}
	var changed []resource.Name
	for n := range refused {
		if !p.refused[n] {
			changed = append(changed, n)
		}
	}
	for n := range p.refused {
		if !refused[n] {
			changed = append(changed, n)
		}
	}
	p.refused = refused
	if len(changed) > 0 {
		p.c.Statuses.Refused(changed)
		p.c.Recorder.Judged(p.guilty, p.refused)
	}
	if reported.Bindings != p.bound {
		p.bound = reported.Bindings
		p.c.Statuses.Rebound()
	}
}

// ofOriginal is what the proxies of every scope that has the resource say of it.
func (p *Pipeline) ofOriginal(n resource.Name) (quarantine.Answer, string) {
	return p.ask(func(s scope.Scope) (resource.Name, bool) { return n, p.current[s][n] != nil })
}

// ofCopy is what they say of its copies. Where the copy would be nothing, nobody refuses it.
func (p *Pipeline) ofCopy(n resource.Name) (quarantine.Answer, string) {
	answer, detail := p.ask(func(s scope.Scope) (resource.Name, bool) {
		if r := p.copies[s]; r != nil {
			return r.Name, true
		}
		return resource.Name{}, false
	})
	for _, r := range p.copies { // people know the resource by its own name
		detail = strings.ReplaceAll(detail, r.Name.Name, n.Name)
	}
	return answer, detail
}

// ask collects the answers about one resource of each scope. A resource that one proxy
// runs is not at fault, whatever others say of it: what is live is never taken away
// because a proxy is broken, of another version, or hostile.
func (p *Pipeline) ask(in func(scope.Scope) (resource.Name, bool)) (quarantine.Answer, string) {
	answer, detail := quarantine.Accepted, ""
	for s := range p.current {
		n, has := in(s)
		if !has {
			continue
		}
		v := p.c.World.Verdict(s, []resource.Name{n}, 0)
		switch {
		case v.Total > 0 && v.Refusing == v.Total:
			return quarantine.Refused, v.Refused[0].Detail
		case v.Refusing > 0 && v.Live > 0:
			answer, detail = quarantine.Disputed, v.Refused[0].Detail
		case !v.IsLive() && answer == quarantine.Accepted:
			answer = quarantine.Awaited
		}
	}
	return answer, detail
}
