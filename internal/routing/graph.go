// Package routing is the graph from configuration objects to what proxies serve:
// Gateway API and mesh objects in, named Envoy resources per scope and the objects'
// statuses out. It is pure: no IO, no clock, no log; equal objects give equal bytes,
// whatever way they came in. It decides what is served; how Envoy is made to serve it
// is in package envoy, and whether it is really live is observed elsewhere, by the
// requirements that each status carries.
//
// The graph keeps every intermediate value: a gateway, a bound port, a route, a host of
// a route table, a cluster, a secret, a runtime layer, a status. A change costs those
// that it reaches, never the size of the world (packages sheet and unit).
package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/layer"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/unit"
	"aether.io/aether/internal/scope"
)

// Config is what the graph must know beside the objects.
type Config struct {
	ControllerName   string   // whose GatewayClasses are ours, "config.aether.io/gateway-controller"
	ReleaseNamespace string   // whose MeshConfig every namespace inherits
	Address          string   // IP that listeners bind
	PublishAddresses []string // status.addresses of shared Gateways: IPs or host names; may be empty
	PortOffset       uint32   // added to a listener's port to get the bound one
	// Fronts says that each shared Gateway is reached through a Service of the release
	// namespace, which maps its ports to internal ones and has its addresses: those two
	// settings are not used then.
	Fronts bool
	// Pooled says that no Gateway can have proxies of its own, nor a Service: each is served by the
	// shared ones. What a Service would have on record comes in as an object of front.Kept, and
	// Delta.Fronts says what it is to be. Not with Fronts.
	Pooled        bool
	AccessLogPath string            // file of the JSON lines access log; empty: no logger
	TrustFile     string            // PEM bundle of the system's authorities beside each proxy; empty: there is none
	System        meshconfig.System // what MeshConfigs inherit in the end
	Collector     Collector         // what proxies export to
	// SharedMemory is how many bytes of each shared proxy's memory the routes of one namespace
	// may take, by estimate; 0: any. What they take of a Gateway's own proxies is not bounded.
	SharedMemory int64
}

// DefaultSharedMemory is a SharedMemory that some 7,000 routes with a host and a Service each
// have room in, and that leaves an Envoy with a limit of 1 GiB room for a change.
const DefaultSharedMemory = 384 << 20

// Collector is what proxies export to. The zero Collector is none.
type Collector = layer.Collector

// Status is what is to be said of one object, as far as objects decide it.
type Status = report.Status

// Requirement is what proxies must run for one part of a status to be in effect.
type Requirement = report.Requirement

// Delta is what an Apply or a Hold made different.
type Delta struct {
	Worlds   map[scope.Scope]resource.Delta // only scopes in which something differs, be it only an origin
	Statuses []Status                       // sorted by key; only those that differ from what was last handed out
	Fronts   map[key.Name]*front.Front      // by Gateway, only those that differ; nil: none is wanted any more
}

// Graph holds the objects and all that was made of them. It has one user at a time.
type Graph struct {
	units  *unit.Units
	newest map[object.Key]object.Object // as they came in
	// refused is why what is written now of an object did not come in, which may then be
	// in newest as it was before or not at all.
	refused map[object.Key]refusal
	held    map[object.Key]object.Object // what is compiled instead; nil: as if absent
}

// refusal is why what is written of an object is not in effect, and which that is, if known.
type refusal struct {
	why        string
	generation int64
	uid        types.UID
}

// New makes a graph of no objects.
func New(c Config) (*Graph, error) {
	ip, err := netip.ParseAddr(c.Address)
	switch {
	case c.ControllerName == "":
		return nil, errors.New("routing: no controller name is configured")
	case c.ReleaseNamespace == "":
		return nil, errors.New("routing: no release namespace is configured")
	case err != nil:
		return nil, fmt.Errorf("routing: address to bind: %w", err)
	case ip.Zone() != "":
		return nil, fmt.Errorf("routing: address to bind %s: a zone is not supported", ip)
	}
	if c.Fronts && c.Pooled {
		return nil, errors.New("routing: Gateways have Services in front of them, or they do not")
	}
	if c.SharedMemory < 0 {
		return nil, fmt.Errorf("routing: memory of shared proxies for a namespace: %d bytes are negative", c.SharedMemory)
	}
	if err := c.Collector.Check(); err != nil {
		return nil, fmt.Errorf("routing: %w", err)
	}
	return &Graph{
		newest:  map[object.Key]object.Object{},
		refused: map[object.Key]refusal{},
		held:    map[object.Key]object.Object{},
		units: unit.New(unit.Config{
			ControllerName:   c.ControllerName,
			ReleaseNamespace: c.ReleaseNamespace,
			Address:          ip.String(),
			AccessLogPath:    c.AccessLogPath,
			TrustFile:        c.TrustFile,
			Site:             gateway.Site{PublishAddresses: slices.Clone(c.PublishAddresses), PortOffset: c.PortOffset},
			Fronts:           c.Fronts,
			Pooled:           c.Pooled,
			System:           c.System,
			Collector:        c.Collector,
			SharedMemory:     c.SharedMemory,
		}),
	}, nil
}

// Apply takes objects in. Of several changes to one key the last counts. The first call,
// even of no changes, hands out the world of no objects.
func (g *Graph) Apply(changes []object.Change) Delta {
	g.take(changes)
	return g.settle()
}

func (g *Graph) take(changes []object.Change) {
	for _, c := range changes {
		if c.Object == nil {
			delete(g.newest, c.Key)
		} else {
			g.newest[c.Key] = c.Object
		}
		if c.Refused == "" {
			delete(g.refused, c.Key)
		} else {
			g.refused[c.Key] = refusal{c.Refused, c.Generation, c.UID}
		}
		delete(g.held, c.Key)
		g.enter(c.Key)
	}
}

// Hold replaces the set of objects that are quarantined because Envoy refused what was
// made of them: instead of the newest, the graph compiles the object given here, or, for
// nil, makes nothing of it. A change of a key ends its hold. Keys of objects that do not
// exist are ignored. Conditions are those of what is compiled.
func (g *Graph) Hold(held map[object.Key]object.Object) Delta { return g.Update(nil, held) }

// Update is Apply and then Hold at once: what was never to be served is not in between.
func (g *Graph) Update(changes []object.Change, held map[object.Key]object.Object) Delta {
	g.take(changes)
	g.hold(held)
	return g.settle()
}

func (g *Graph) hold(held map[object.Key]object.Object) {
	before := g.held
	g.held = make(map[object.Key]object.Object, len(held))
	for k, o := range held {
		if g.newest[k] == nil {
			continue
		}
		g.held[k] = o
		if old, was := before[k]; !was || old != o {
			g.enter(k)
		}
	}
	for k := range before {
		if _, still := g.held[k]; !still {
			g.enter(k)
		}
	}
}

// enter takes in what is now to be seen under k. This is the one place where a hold puts
// an older object in front of the newest.
func (g *Graph) enter(k object.Key) {
	newest, refused := g.newest[k], g.refused[k]
	switch {
	case newest == nil && refused.why == "":
		g.units.Delete(k)
		return
	case newest == nil:
		g.units.Set(k, entry.Entry{Refused: refused.why, RefusedAt: refused.generation, Generation: refused.generation, UID: refused.uid})
		return
	}
	e := entry.Entry{Object: newest, Generation: newest.GetGeneration(), UID: newest.GetUID(), Refused: refused.why}
	if refused.generation > 0 {
		e.Generation, e.RefusedAt, e.UID = refused.generation, refused.generation, refused.uid
	}
	if older, held := g.held[k]; held {
		if e.Held = older == nil; older != nil {
			e.Object = older
		}
	}
	g.units.Set(k, e)
}

// settle computes what the entered objects reach and collects what came out.
func (g *Graph) settle() Delta {
	g.units.Settle()
	changed := g.units.Drain()
	d := Delta{Worlds: map[scope.Scope]resource.Delta{}}
	for _, c := range changed.Resources {
		w := d.Worlds[c.Key.Scope]
		if c.Gone {
			w.Removed = append(w.Removed, c.Key.Of)
		} else {
			w.Changed = append(w.Changed, c.Value)
		}
		d.Worlds[c.Key.Scope] = w
	}
	for _, w := range d.Worlds {
		slices.SortFunc(w.Changed, func(a, b *resource.Resource) int { return a.Name.Compare(b.Name) })
		slices.SortFunc(w.Removed, resource.Name.Compare)
	}
	for _, c := range changed.Statuses {
		s := c.Value
		if c.Gone {
			s = Status{Key: c.Key}
			if o := g.newest[c.Key]; o != nil {
				s.Generation, s.UID = o.GetGeneration(), o.GetUID()
			}
		}
		d.Statuses = append(d.Statuses, s)
	}
	slices.SortFunc(d.Statuses, func(a, b Status) int { return a.Key.Compare(b.Key) })
	for _, c := range changed.Fronts {
		if d.Fronts == nil {
			d.Fronts = map[key.Name]*front.Front{}
		}
		if d.Fronts[c.Key] = &c.Value; c.Gone {
			d.Fronts[c.Key] = nil
		}
	}
	return d
}
