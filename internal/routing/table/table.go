// Package table is the part of the routing graph that keeps route tables: the virtual
// hosts that routes make together, and how they are cut into scopes, which is how Envoy
// gets them. What routes there are, and which tables can be reached, comes from outside.
package table

import (
	"cmp"
	"slices"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/rule"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/scope"
)

// maxSingleHosts is the number of hosts up to which a table is one scope, unless the
// Gateway's parameters pin it: a larger one costs more to rebuild than the miss path of
// scopes by host costs each request. There is no hysteresis, so that equal objects give
// equal bytes.
const maxSingleHosts = 200

// Contribution is what one object adds to one host of one table. A Gateway's own has no
// matches and makes the host exist.
type Contribution struct {
	Matches []rule.Match
	Origin  object.Key
}

// Reach is whether and where a table can be reached, and how its Gateway wants it cut.
type Reach struct {
	Live        bool
	Scopes      []scope.Scope
	RouteScopes configv1.RouteScopes
}

// Tables is every route table.
type Tables struct {
	// Routes is what objects contribute to each host.
	Routes sheet.Group[key.Host, key.Name, Contribution]
	// Sections is the sections that share each table, which exists as long as it has one.
	Sections sheet.Group[key.Table, string, struct{}]
	// Elsewhere is the hosts of each table's port that other tables have, sorted, as one
	// member. What no object contributes to is answered as misdirected.
	Elsewhere sheet.Group[key.Table, struct{}, []string]

	reach func(*sheet.Cell, key.Table) Reach
	put   func(*sheet.Cell, scope.Scope, *resource.Resource)

	hosts     sheet.Group[key.Table, string, struct{}]
	wildcards sheet.Group[key.Table, string, struct{}]

	host  *sheet.Formula[key.Host, host]
	cut   *sheet.Formula[key.Table, cut]
	star  *sheet.Formula[key.Table, []resource.Name]
	scope *sheet.Formula[key.Host, []resource.Name]
}

// New adds the formulas of tables to a sheet. reach must read only what is below them,
// and what contributes must be below them too; put takes what is to be served.
func New(s *sheet.Sheet, reach func(*sheet.Cell, key.Table) Reach, put func(*sheet.Cell, scope.Scope, *resource.Resource)) *Tables {
	t := &Tables{reach: reach, put: put}
	t.host = sheet.NewFormula(s, t.computeHost)
	t.cut = sheet.NewFormula(s, t.computeCut)
	t.star = sheet.NewFormula(s, t.computeStar)
	t.scope = sheet.NewFormula(s, t.computeScope)
	t.Sections.Want(t.star)
	t.Routes.Want(t.host)
	t.Routes.Want(t.scope)
	return t
}

// PerHost reports whether the table has a scope for each host.
func (t *Tables) PerHost(c *sheet.Cell, k key.Table) bool { return t.cut.Get(c, k).PerHost }

// Star is the name of the scope that holds every host without one of its own; none if
// the table cannot be reached.
func (t *Tables) Star(c *sheet.Cell, k key.Table) []resource.Name { return t.star.Get(c, k) }

// Scope is the name of the scope that a host is in; none if its table cannot be reached.
func (t *Tables) Scope(c *sheet.Cell, k key.Host) []resource.Name { return t.scope.Get(c, k) }

// host is one virtual host and what it was made of; the zero host is none.
type host struct {
	Model  envoy.VirtualHost
	Origin []object.Key
}

// placed is a match at a host.
type placed struct {
	rule.Match
	own string // what its route calls the host: *.example.com, where the listener makes it shop.example.com; empty: nothing
}

// compare: a route that names the host more precisely is before every other one.
func (p placed) compare(o placed) int {
	return cmp.Or(hostname.ComparePrecedence(p.own, o.own), p.Match.Compare(o.Match))
}

func (t *Tables) computeHost(c *sheet.Cell, k key.Host) host {
	all := t.Routes.All(c, k)
	if len(all) == 0 {
		return host{}
	}
	out := host{Model: envoy.VirtualHost{Host: k.Host, Port: k.Table.Port.Port, Secure: k.Table.Secure()}}
	var matches []placed
	for _, from := range all {
		out.Origin = append(out.Origin, from.Origin)
		for _, m := range from.Matches {
			matches = append(matches, placed{Match: m, own: hostname.Own(m.Hostnames, k.Host)})
		}
	}
	slices.SortFunc(out.Origin, object.Key.Compare)
	out.Origin = slices.Compact(out.Origin)
	slices.SortFunc(matches, placed.compare)
	for _, m := range matches {
		out.Model.Routes = append(out.Model.Routes, m.Route)
	}
	// A host without routes is there to answer 404; that of every name need not be.
	if k.Host != hostname.Any || len(matches) > 0 {
		t.hosts.Put(c, k.Table, k.Host, struct{}{})
		if hostname.IsWildcard(k.Host) {
			t.wildcards.Put(c, k.Table, k.Host, struct{}{})
		}
	}
	return out
}
