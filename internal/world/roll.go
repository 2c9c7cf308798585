package world

import (
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// Roll lists the scope's proxies, connected or remembered, sorted by pod name, and how each
// stands to what was published up to a position, and to the named resources as they are now.
// None is left out for being behind: Verdict does that.
func (w *World) Roll(s scope.Scope, names []resource.Name, position uint64) []fleet.Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.areas[s]
	if a == nil {
		return nil
	}
	out := make([]fleet.Member, 0, len(a.ids))
	for _, id := range a.ids {
		out = append(out, a.proxies[id].member(names, position))
	}
	return out
}

func (p *proxy) member(names []resource.Name, position uint64) fleet.Member {
	m := fleet.Member{Name: p.peer.ID, UID: p.peer.PodUID, Connected: p.sub != nil}
	if p.acked {
		m.Reached = min(p.seq, position)
	}
	for _, n := range names {
		if len(p.refused) > 0 && p.refuses(n) {
			m.Lag, m.Since, m.Detail = fleet.LagRejected, p.denied[n], p.refused[n].Detail
			return m
		}
	}
	for _, n := range names {
		if t, ok := p.pending[n]; ok {
			m.Lag, m.Since = fleet.LagPending, t
			return m
		}
	}
	switch {
	case p.acked && p.seq >= position:
	case p.sub == nil:
		m.Lag, m.Since = fleet.LagNotConnected, p.since
	case !p.acked:
		m.Lag, m.Since = fleet.LagNoAck, p.since
	default:
		m.Lag, m.Since = fleet.LagNoAck, p.sub.waiting
	}
	return m
}
