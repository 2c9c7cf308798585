package unit

import (
	"cmp"
	"slices"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/scope"
)

// effective is the mesh configuration in effect in one namespace.
type effective struct {
	meshconfig.Effective
	Origin []object.Key // the objects that there are, sorted
}

func (u *Units) computeEffective(c *sheet.Cell, namespace string) effective {
	var out effective
	read := func(namespace string) *configv1.MeshConfig {
		k := object.Key{Kind: object.MeshConfig, Namespace: namespace, Name: configv1.MeshConfigName}
		o, there := get[*configv1.MeshConfig](u, c, k)
		if there {
			out.Origin = append(out.Origin, k)
		}
		return o
	}
	release := read(u.config.ReleaseNamespace)
	own := release
	if namespace != u.config.ReleaseNamespace {
		own = read(namespace)
	}
	out.Effective = meshconfig.Resolve(u.config.System, release, own)
	slices.SortFunc(out.Origin, object.Key.Compare)
	return out
}

// computeRuntime makes the runtime layer of a scope: how each table is logged, by the
// configuration of its Gateway's namespace.
func (u *Units) computeRuntime(c *sheet.Cell, s scope.Scope) []resource.Name {
	m := envoy.Runtime{AccessLogs: map[string]envoy.AccessLog{}, Connections: map[string]uint32{}}
	for p, n := range u.limits.All(c, s) {
		m.Connections[p.String()] = n
	}
	for t := range u.logged.All(c, s) {
		e := u.effective.Get(c, t.Gateway.Namespace)
		m.AccessLogs[t.Name] = envoy.AccessLog{Enabled: e.AccessLogs.Value, SuccessSample: e.AccessLogSuccessSampleRate.Value}
		m.Origin = append(m.Origin, e.Origin...)
	}
	r, err := m.Resource()
	if err != nil { // its numbers were validated with the objects, and its names are ours
		return nil
	}
	return u.put(c, s, r)
}

// reportMeshConfig: it is applied when every scope that takes it runs its runtime layer.
func (u *Units) reportMeshConfig(c *sheet.Cell, n key.Name) none {
	o, e, there := see[*configv1.MeshConfig](u, c, n.Object(object.MeshConfig))
	if !there || n.Name != configv1.MeshConfigName {
		return none{}
	}
	s := report.Status{
		Key: n.Object(object.MeshConfig), Generation: e.Generation,
		Value: report.MeshConfig(o, u.effective.Get(c, n.Namespace).Effective),
	}
	for _, in := range u.scopesOf(c, n.Namespace) {
		if layer := u.runtime.Get(c, in); len(layer) > 0 {
			s.Live = append(s.Live, report.Requirement{Scope: in, Resources: layer})
		}
	}
	u.say(c, s)
	return none{}
}

// scopesOf is the scopes with a Gateway in the namespace; for the release namespace, from
// which every other inherits, it is all of them.
func (u *Units) scopesOf(c *sheet.Cell, namespace string) []scope.Scope {
	found := map[scope.Scope]none{}
	if namespace == u.config.ReleaseNamespace {
		namespace = ""
		found[scope.SharedPool()] = none{}
	}
	for _, s := range u.gateways.All(c, namespace) {
		found[s] = none{}
	}
	return key.Sorted(found, func(a, b scope.Scope) int { return cmp.Compare(a.String(), b.String()) })
}
