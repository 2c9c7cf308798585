package world

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// maxNamed is how many proxies a verdict names in each of its lists.
const maxNamed = 10

// unbound is the reason of a proxy that runs what it should without the port.
const unbound = "Unbound"

// Proxies lists the proxies that are connected or remembered, sorted by scope and pod name.
func (w *World) Proxies() []fleet.Proxy {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []fleet.Proxy
	for _, a := range w.areas {
		for _, id := range a.ids {
			out = append(out, a.proxies[id].observed())
		}
	}
	slices.SortStableFunc(out, func(x, y fleet.Proxy) int {
		return cmp.Or(strings.Compare(x.ScopeName, y.ScopeName), strings.Compare(x.ID, y.ID))
	})
	return out
}

// Reported is what is refused of what scopes have now, and whether ports were bound. Where
// nobody refuses anything it looks at no proxy.
func (w *World) Reported() fleet.Reported {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := fleet.Reported{Bindings: w.bindings}
	for s, a := range w.areas {
		if a.refuse == 0 {
			continue
		}
		known := map[resource.Name]bool{}
		for _, id := range a.ids {
			p := a.proxies[id]
			for n, r := range p.refused {
				if !known[n] && p.refuses(n) {
					known[n] = true
					out.Refused = append(out.Refused, fleet.Objection{Scope: s, Refusal: r})
				}
			}
		}
	}
	slices.SortFunc(out.Refused, func(x, y fleet.Objection) int {
		return cmp.Or(strings.Compare(x.Scope.String(), y.Scope.String()), x.Compare(y.Name))
	})
	return out
}

func (p *proxy) observed() fleet.Proxy {
	a := p.area
	out := fleet.Proxy{
		Peer: p.peer, Scope: a.scope, ScopeName: a.scope.String(),
		Connected: p.sub != nil, Since: p.since,
		Version: p.version, Current: p.acked && p.version == a.Version() && len(p.pending) == 0,
		Laggard: p.laggard, LaggardFrom: p.from,
		Pending:    slices.SortedFunc(maps.Keys(p.pending), resource.Name.Compare),
		BoundPorts: p.ports, Status: p.status,
	}
	if v := p.status.EnvoyVersion; v != "" { // newer than what Subscribe said
		out.EnvoyVersion = v
	}
	for _, r := range p.refused {
		if p.refuses(r.Name) {
			out.Refused = append(out.Refused, r)
		}
	}
	slices.SortFunc(out.Refused, func(x, y resource.Refusal) int { return x.Compare(y.Name) })
	return out
}

// refuses reports whether the proxy refuses the current content of that name.
func (p *proxy) refuses(n resource.Name) bool {
	r, ok := p.refused[n]
	if !ok {
		return false
	}
	cur, _ := p.area.Current(n)
	return cur != nil && cur.Hash == r.Hash
}

// Verdict says where all of the named resources are live, and the port, unless it
// is 0, bound. A name that the scope does not have is live nowhere.
//
// A proxy counts if it is connected, has answered at least once, has not let the Ack
// deadline pass, and has none of the named resources warming for longer than that.
// So a resource that never gets ready is held against no resource but itself.
func (w *World) Verdict(s scope.Scope, names []resource.Name, port uint32) fleet.Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := fleet.Verdict{At: w.cfg.Now()}
	a := w.areas[s]
	if a == nil {
		return v
	}
	present, need := true, uint64(0)
	for _, n := range names {
		r, seq := a.Current(n)
		present = present && r != nil
		need = max(need, seq)
	}
	for _, id := range a.ids {
		p := a.proxies[id]
		if lag, ok := p.discounted(names, v.At.Add(-w.cfg.AckDeadline)); ok {
			v.Laggards = named(v.Laggards, lag)
			continue
		}
		v.Total++
		runs, refuses := present && p.seq >= need && !p.warming(names), false
		for _, n := range names {
			if len(p.refused) > 0 && p.refuses(n) {
				runs, refuses = false, true
				if len(v.Refused) < maxNamed {
					v.Refused = append(v.Refused, fleet.Refused{Proxy: id, Refusal: p.refused[n]})
				}
			}
		}
		switch {
		case refuses:
			v.Refusing++
		case !runs:
		case port != 0 && !p.bound(port):
			v.Unbound = named(v.Unbound, fleet.Laggard{Proxy: id, Reason: unbound, Since: p.since})
		default:
			v.Live++
		}
	}
	return v
}

// discounted reports whether, and as what, the proxy does not count; old is the time
// before which what began is overdue.
func (p *proxy) discounted(names []resource.Name, old time.Time) (fleet.Laggard, bool) {
	lag := fleet.Laggard{Proxy: p.peer.ID, Reason: p.laggard, Since: p.from}
	switch {
	case p.laggard == fleet.LagNotConnected, p.laggard == fleet.LagNoAck:
		return lag, true
	case !p.acked:
		lag.Reason, lag.Since = fleet.LagNoAck, p.since
		return lag, true
	case len(p.pending) == 0:
		return lag, false
	}
	for _, n := range names {
		if t, ok := p.pending[n]; ok && !t.After(old) {
			lag.Reason, lag.Since = fleet.LagPending, t
			return lag, true
		}
	}
	return lag, false
}

func (p *proxy) warming(names []resource.Name) bool {
	if len(p.pending) == 0 {
		return false
	}
	return slices.ContainsFunc(names, func(n resource.Name) bool {
		_, ok := p.pending[n]
		return ok
	})
}

func (p *proxy) bound(port uint32) bool {
	_, ok := slices.BinarySearch(p.ports, port)
	return ok
}

func named(list []fleet.Laggard, l fleet.Laggard) []fleet.Laggard {
	if len(list) < maxNamed {
		list = append(list, l)
	}
	return list
}
