package table

import (
	"strings"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/scope"
)

// cut is how a table that can be reached is served.
type cut struct {
	Live    bool
	PerHost bool
	Scopes  []scope.Scope
}

func (t *Tables) computeCut(c *sheet.Cell, k key.Table) cut {
	r := t.reach(c, k)
	if !r.Live {
		return cut{}
	}
	out := cut{Live: true, Scopes: r.Scopes}
	switch r.RouteScopes {
	case configv1.RouteScopesPerHost:
		out.PerHost = true
	case configv1.RouteScopesSingle:
	case configv1.RouteScopesAuto:
		out.PerHost = t.hosts.Len(c, k) > maxSingleHosts
	}
	return out
}

// computeStar makes the scope of every host that has none of its own. It exists whenever
// the table can be reached, so that a listener never waits for it.
func (t *Tables) computeStar(c *sheet.Cell, k key.Table) []resource.Name {
	how := t.cut.Get(c, k)
	if !how.Live {
		return nil
	}
	in := &t.hosts
	if how.PerHost {
		in = &t.wildcards
	}
	m := envoy.Scope{Table: k.Name, Host: hostname.Any, PerHost: how.PerHost, Origin: []object.Key{k.Gateway.Object(object.Gateway)}}
	own := in.All(c, k)
	for _, name := range t.Elsewhere.All(c, k)[struct{}{}] {
		if _, is := own[name]; !is {
			m.Elsewhere = append(m.Elsewhere, name)
		}
	}
	for _, name := range key.Sorted(own, strings.Compare) {
		h := t.host.Get(c, key.Host{Table: k, Host: name})
		m.VirtualHosts = append(m.VirtualHosts, h.Model)
		m.Origin = append(m.Origin, h.Origin...)
	}
	return t.serve(c, how.Scopes, m)
}

// computeScope finds the scope that a host is in, and makes it if it is the host's own.
func (t *Tables) computeScope(c *sheet.Cell, k key.Host) []resource.Name {
	how := t.cut.Get(c, k.Table)
	switch {
	case !how.Live:
		return nil
	case !how.PerHost || hostname.IsWildcard(k.Host):
		return t.star.Get(c, k.Table)
	}
	h := t.host.Get(c, k)
	if h.Model.Host == "" {
		return nil
	}
	return t.serve(c, how.Scopes, envoy.Scope{
		Table: k.Table.Name, Host: k.Host, PerHost: true, VirtualHosts: []envoy.VirtualHost{h.Model}, Origin: h.Origin,
	})
}

// serve hands a scope out. What is in it was validated where it was made; should the
// whole be refused even so, it alone is missing and its requests get 404.
func (t *Tables) serve(c *sheet.Cell, in []scope.Scope, m envoy.Scope) []resource.Name {
	r, err := m.Resource()
	if err != nil {
		return nil
	}
	for _, s := range in {
		t.put(c, s, r)
	}
	return []resource.Name{r.Name}
}
