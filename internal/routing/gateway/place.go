package gateway

import (
	"slices"

	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/scope"
)

// Site is where Gateways are reached, or one of them.
type Site struct {
	PublishAddresses []string // IPs or host names of a shared Gateway, if nothing maps its ports
	PortOffset       uint32   // added to a section's port to get the bound one, if nothing maps it
	// Mapped says that a Service in front maps the ports to internal ones: a port that it does
	// not map cannot be bound yet.
	Mapped bool
	Pooled bool        // no Gateway can have proxies of its own
	Shared front.State // the Service in front of the shared proxies
	Own    front.State // the Service in front of the Gateway's own
}

// plain is the port that is bound for a Gateway's where nothing maps it.
func (s Site) plain(port uint32) uint32 { return port + s.PortOffset }

// Place is one world in which a Gateway is served, and the port that is bound there for
// each of the Gateway's.
type Place struct {
	Scope scope.Scope
	Bound map[uint32]uint32 // by the Gateway's port; what is not in it is not known yet
}

// settle says where the Gateway is served and reached: where it is to be, in the world to,
// and, for as long as a Service of the other kind is in front of it, in that one too. The
// one that counts is first, which is the old one until the new one is ready. own is the
// Gateway's own world. A zero world is none that can be had.
func (g *Gateway) settle(to, own scope.Scope, site Site) {
	if !site.Mapped {
		g.place(to, site.plain)
		if to.IsSharedPool() {
			g.Addresses = site.PublishAddresses
		}
		return
	}
	now, before, other := site.Shared, site.Own, own
	if !to.IsSharedPool() {
		now, before, other = site.Own, site.Shared, scope.SharedPool()
	}
	placeNow := func() { g.place(to, func(port uint32) uint32 { return now.Ports[port] }) }
	placeBefore := func() { g.place(other, func(port uint32) uint32 { return before.Ports[port] }) }
	switch {
	case !before.There:
		placeNow()
		g.Addresses = now.Addresses
	case !before.Superseded:
		placeBefore()
		placeNow()
		g.Addresses = before.Addresses
	default:
		placeNow()
		placeBefore()
		g.Addresses = now.Addresses
		if !before.Retired {
			g.Addresses = slices.Concat(now.Addresses, before.Addresses)
		}
	}
}

// place adds a world, with the bound ports that are known.
func (g *Gateway) place(in scope.Scope, bound func(uint32) uint32) {
	if in.IsZero() {
		return
	}
	p := Place{Scope: in, Bound: map[uint32]uint32{}}
	for _, s := range g.Sections {
		if b := bound(s.Table.Port.Port); b > 0 {
			p.Bound[s.Table.Port.Port] = b
		}
	}
	g.Places = append(g.Places, p)
}
