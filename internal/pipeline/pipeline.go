// Package pipeline is the one writer of the routing graph: it takes batches of changes
// to the graph, what comes out to the world and to the statuses, and what proxies refuse
// back to the graph as objects to hold. It owns the order of these steps and nothing else.
package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/watermark"
)

// Graph turns changes of objects into changes of resources and statuses.
type Graph interface {
	Apply(changes []object.Change) routing.Delta
	Hold(held map[object.Key]object.Object) routing.Delta
}

// World receives resources and knows which of them proxies refuse.
type World interface {
	Publish(deltas map[scope.Scope]resource.Delta, mark watermark.Mark)
	SetSynced()
	Verdict(s scope.Scope, names []resource.Name, port uint32) fleet.Verdict
	Proxies() []fleet.Proxy
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
}

// Batch is a set of changes that were observed together.
type Batch struct {
	Changes []object.Change
	Mark    watermark.Mark
	Synced  bool     // the source's initial list is complete with this batch
	Cause   []string // where the changes came from, for people: files, or nothing
	Noticed time.Time
}

// Config is what a Pipeline is made from. All but Log are required.
type Config struct {
	Graph    Graph
	World    World
	Statuses Statuses
	Recorder Recorder
	Log      *slog.Logger
}

// Pipeline carries changes from a source to proxies.
type Pipeline struct {
	c Config

	mu      sync.Mutex // serialises everything that reaches the graph; guards what follows
	court   *quarantine.Court
	objects map[object.Key]object.Object
	mark    watermark.Mark
	current map[scope.Scope]map[resource.Name]*resource.Resource
	refused map[resource.Name]bool // as of the last pulse
	ports   map[string][]uint32    // bound ports of each proxy, as of the last pulse
	guilty  map[object.Key]string  // what is in quarantine for good, and why
	shared  *resource.Resource     // what every scope has beside its own; nil: nothing
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
	return &Pipeline{
		c: c, court: quarantine.New(), objects: map[object.Key]object.Object{},
		current: map[scope.Scope]map[resource.Name]*resource.Resource{}, refused: map[resource.Name]bool{}, ports: map[string][]uint32{}, guilty: map[object.Key]string{},
	}, nil
}

// Apply takes one batch through. It returns when its resources are published; what
// proxies make of them comes back later.
func (p *Pipeline) Apply(b Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := make(map[object.Key]object.Object, len(b.Changes))
	for _, ch := range b.Changes {
		before[ch.Key] = p.objects[ch.Key]
		if ch.Object == nil {
			delete(p.objects, ch.Key)
		} else {
			p.objects[ch.Key] = ch.Object
		}
	}
	p.mark = b.Mark
	delta := p.c.Graph.Apply(b.Changes)
	p.court.Changed(before, p.publish(delta))
	if b.Synced && !p.synced {
		p.synced = true
		p.c.World.SetSynced()
	}
	p.c.Statuses.Update(delta.Statuses)
	p.noteGuilty()
	if len(b.Changes) > 0 {
		p.c.Recorder.Record(b, delta)
	}
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

// DedicatedIn returns the dedicated Gateways of a namespace with their classes.
func (p *Pipeline) DedicatedIn(namespace string) map[string]string {
	p.mu.Lock()
	var names []string
	for s := range p.current {
		if ns, name, ok := s.GatewayName(); ok && ns == namespace {
			names = append(names, name)
		}
	}
	p.mu.Unlock()
	out := map[string]string{}
	for _, name := range names {
		if class, ok := p.Dedicated(namespace, name); ok {
			out[name] = class
		}
	}
	return out
}

// publish hands the resources out and returns those that were rebuilt.
func (p *Pipeline) publish(d routing.Delta) []*resource.Resource {
	var rebuilt []*resource.Resource
	worlds := maps.Clone(d.Worlds)
	for s, delta := range d.Worlds {
		if p.current[s] == nil {
			p.current[s] = map[resource.Name]*resource.Resource{}
			if p.shared != nil {
				delta.Changed = append(slices.Clone(delta.Changed), p.shared)
				worlds[s] = delta
			}
		}
		for _, r := range d.Worlds[s].Changed {
			rebuilt = append(rebuilt, r)
			p.current[s][r.Name] = r
		}
		for _, n := range delta.Removed {
			delete(p.current[s], n)
		}
		if len(p.current[s]) == 0 {
			delete(p.current, s)
		}
	}
	p.c.World.Publish(worlds, p.mark)
	return rebuilt
}

// Run follows what proxies report until ctx is done.
func (p *Pipeline) Run(ctx context.Context) error {
	events, stop := p.c.World.Observe()
	defer stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-events:
			p.observe()
		}
	}
}

// observe passes on what proxies report, and moves the search for culprits on.
func (p *Pipeline) observe() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteProxies()
	if p.court.Step(p.answer) {
		held := map[object.Key]object.Object{}
		for k, h := range p.court.Held() {
			held[k] = h.Object
		}
		delta := p.c.Graph.Hold(held)
		p.publish(delta)
		p.c.Statuses.Update(delta.Statuses)
	}
	p.noteGuilty()
	p.c.Statuses.Pulse()
}

// noteGuilty tells of each object once when it enters quarantine for good, and when it
// leaves it.
func (p *Pipeline) noteGuilty() {
	guilty := map[object.Key]string{}
	for k, h := range p.court.Convicted() {
		guilty[k] = h.Detail
		if _, known := p.guilty[k]; !known {
			p.c.Log.Warn("object quarantined: Envoy refuses what it makes", logkey.Object, k.String(), logkey.Resource, h.Resource.String(), logkey.Reason, h.Detail)
		}
	}
	if !maps.Equal(guilty, p.guilty) {
		p.guilty = guilty
		p.c.Statuses.Hold(guilty)
	}
}

// noteProxies compares proxies with the last pulse and tells what differs.
func (p *Pipeline) noteProxies() {
	refused, ports, rebound := map[resource.Name]bool{}, map[string][]uint32{}, false
	var changed []resource.Name
	for _, proxy := range p.c.World.Proxies() {
		for _, r := range proxy.Refused {
			cur := p.current[proxy.Scope][r.Name]
			if cur == nil || cur.Hash != r.Hash {
				continue // about content that has been superseded
			}
			p.court.Refused(cur)
			if !refused[r.Name] && !p.refused[r.Name] {
				changed = append(changed, r.Name)
			}
			refused[r.Name] = true
		}
		ports[proxy.ID] = proxy.BoundPorts
		rebound = rebound || !slices.Equal(proxy.BoundPorts, p.ports[proxy.ID])
	}
	for n := range p.refused {
		if !refused[n] {
			changed = append(changed, n)
		}
	}
	p.refused, p.ports = refused, ports
	if len(changed) > 0 {
		p.c.Statuses.Refused(changed)
	}
	if rebound {
		p.c.Statuses.Rebound()
	}
}

// answer is what the proxies of every scope that has the resource say of it. A resource
// that one proxy runs is not at fault, whatever others say of it: what is live is never
// taken away because a proxy is broken, of another version, or hostile.
func (p *Pipeline) answer(n resource.Name) (quarantine.Answer, string) {
	answer, detail := quarantine.Accepted, ""
	for s, resources := range p.current {
		if resources[n] == nil {
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
