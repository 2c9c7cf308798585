package unit

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/scope"
)

// computeSet files a ListenerSet under the Gateway that it names, and says which that is,
// also while nothing may be made of it.
func (u *Units) computeSet(c *sheet.Cell, n key.Name) key.Name {
	o, e, there := entry.See[*gatewayv1.ListenerSet](u.entries, c, n.Object(object.ListenerSet))
	if !there {
		return key.Name{}
	}
	to, named := gateway.GatewayOf(o)
	if !named {
		return key.Name{}
	}
	if !e.Held {
		u.sets.Put(c, to, n, o)
	}
	return to
}

// offer is what routes find at a parent: its own sections. Those of its Gateway's other
// objects are not in it, so that a ListenerSet that comes or goes does not reach the
// routes of the others.
type offer struct {
	Ours     bool
	Served   bool
	Scopes   []scope.Scope // the one that counts is first
	Gateway  key.Name
	Sections []gateway.Section
}

func (u *Units) computeOffer(c *sheet.Cell, k key.Parent) offer {
	gw := k.Name
	if k.Kind == object.ListenerSet {
		if gw = u.set.Get(c, k.Name); gw == (key.Name{}) {
			return offer{}
		}
	}
	as := u.parent.Get(c, gw)
	return offer{Ours: as.Ours, Served: as.Served, Scopes: as.Scopes, Gateway: gw, Sections: as.Of[k]}
}

// pattern is a hostname that a section of a port has.
type pattern struct {
	Port key.Port
	Host string
}

// holder is the ID of the section that requests for host reach: the most specific one.
func (u *Units) holder(c *sheet.Cell, port key.Port, host string) string {
	for _, p := range hostname.Patterns(host) {
		for id := range u.patterns.All(c, pattern{port, p}) { // at most one: sections are distinct
			return id
		}
	}
	return ""
}
