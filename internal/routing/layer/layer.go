// Package layer is the part of the routing graph that keeps runtime layers: what proxies
// of one scope are told that no listener or route is rebuilt for, as the mesh
// configuration of each Gateway's namespace says. Which Gateways and tables there are
// comes from outside.
package layer

import (
	"cmp"
	"slices"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/scope"
)

// Config is what is the same for every layer.
type Config struct {
	ReleaseNamespace string            // whose MeshConfig every namespace inherits
	System           meshconfig.System // what MeshConfigs inherit in the end
	Collector        Collector
}

// Layers is every runtime layer.
type Layers struct {
	// Gateways is the served Gateways of each scope, which has a layer as long as it has
	// one; the shared pool always has.
	Gateways sheet.Group[scope.Scope, key.Name, struct{}]
	// Scopes is the scopes of each served Gateway, by namespace; "": of all.
	Scopes sheet.Group[string, key.Name, []scope.Scope]
	// Tables is the tables of each scope whose requests are logged.
	Tables sheet.Group[scope.Scope, key.Table, struct{}]
	// Limits is the connections that each scope's listeners hold.
	Limits sheet.Group[scope.Scope, key.Port, uint32]

	config  Config
	entries *entry.Entries
	put     func(*sheet.Cell, scope.Scope, *resource.Resource)

	effective *sheet.Formula[string, effective]
	layer     *sheet.Formula[scope.Scope, []resource.Name]
}

// New adds the formulas of runtime layers to a sheet, above those of what fills its
// groups; put takes what is to be served.
func New(s *sheet.Sheet, c Config, entries *entry.Entries, put func(*sheet.Cell, scope.Scope, *resource.Resource)) *Layers {
	l := &Layers{config: c, entries: entries, put: put}
	l.effective = sheet.NewFormula(s, l.computeEffective)
	l.layer = sheet.NewFormula(s, l.computeLayer)
	l.Gateways.Want(l.layer)
	l.layer.Pin(scope.SharedPool()) // a world that always exists
	return l
}

// Effective is the mesh configuration in effect in a namespace.
func (l *Layers) Effective(c *sheet.Cell, namespace string) meshconfig.Effective {
	return l.effective.Get(c, namespace).Effective
}

// Get is the name of the layer of a scope; none if there is none.
func (l *Layers) Get(c *sheet.Cell, s scope.Scope) []resource.Name { return l.layer.Get(c, s) }

// effective is the mesh configuration in effect in one namespace.
type effective struct {
	meshconfig.Effective
	Origin []object.Key // the objects that there are, sorted
}

func (l *Layers) computeEffective(c *sheet.Cell, namespace string) effective {
	var out effective
	read := func(namespace string) *configv1.MeshConfig {
		k := object.Key{Kind: object.MeshConfig, Namespace: namespace, Name: configv1.MeshConfigName}
		o, there := entry.Get[*configv1.MeshConfig](l.entries, c, k)
		if there {
			out.Origin = append(out.Origin, k)
		}
		return o
	}
	release := read(l.config.ReleaseNamespace)
	own := release
	if namespace != l.config.ReleaseNamespace {
		own = read(namespace)
	}
	out.Effective = meshconfig.Resolve(l.config.System, release, own)
	slices.SortFunc(out.Origin, object.Key.Compare)
	return out
}

// computeLayer makes the runtime layer of a scope: how each table is logged, by the
// configuration of its Gateway's namespace.
func (l *Layers) computeLayer(c *sheet.Cell, s scope.Scope) []resource.Name {
	m := envoy.Runtime{
		AccessLogs: map[string]envoy.AccessLog{}, Traces: map[string]float64{}, PodStats: map[string]bool{}, Connections: map[string]uint32{},
	}
	for p, n := range l.Limits.All(c, s) {
		m.Connections[p.String()] = n
	}
	for t := range l.Tables.All(c, s) {
		e := l.effective.Get(c, t.Gateway.Namespace)
		m.AccessLogs[t.Name] = envoy.AccessLog{Enabled: e.AccessLogs.Value, SuccessSample: e.AccessLogSuccessSampleRate.Value}
		if e.EmitStatsPod.Value {
			m.PodStats[t.Name] = true
		}
		if e.Tracing.Value && !l.config.Collector.IsZero() {
			m.Traces[t.Name] = e.TraceSampleRate.Value
		}
		m.Origin = append(m.Origin, e.Origin...)
	}
	r, err := m.Resource()
	if err != nil { // its numbers were validated with the objects, and its names are ours
		return nil
	}
	l.put(c, s, r)
	return append([]resource.Name{r.Name}, l.shipCollector(c, s)...)
}

// ScopesOf is the scopes with a Gateway in the namespace; for the release namespace, from
// which every other inherits, it is all of them.
func (l *Layers) ScopesOf(c *sheet.Cell, namespace string) []scope.Scope {
	found := map[scope.Scope]struct{}{}
	if namespace == l.config.ReleaseNamespace {
		namespace = ""
		found[scope.SharedPool()] = struct{}{}
	}
	for _, list := range l.Scopes.All(c, namespace) {
		for _, s := range list {
			found[s] = struct{}{}
		}
	}
	return key.Sorted(found, func(a, b scope.Scope) int { return cmp.Compare(a.String(), b.String()) })
}
