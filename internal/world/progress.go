package world

import (
	"slices"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// Position is the point up to which the scope has been published: 0 for a scope that
// does not exist. It grows with each publication that changes the scope.
func (w *World) Position(s scope.Scope) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.areas[s]; a != nil {
		return a.Seq()
	}
	return 0
}

// Standing is how far the scope's connected proxies have come with what was published up
// to position, and with the named resources as they are now. Names of resources that the
// scope does not have any more are left aside.
func (w *World) Standing(s scope.Scope, position uint64, names []resource.Name) fleet.Standing {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out fleet.Standing
	a := w.areas[s]
	if a == nil {
		return out
	}
	need := position
	for _, n := range names {
		_, seq := a.Current(n)
		need = max(need, seq)
	}
	for _, p := range a.proxies {
		if p.sub == nil {
			continue
		}
		out.Connected++
		if p.answered.After(out.At) {
			out.At = p.answered
		}
		out.Differed = max(out.Differed, p.differed)
		refuses := false
		for _, n := range names {
			if len(p.refused) > 0 && p.refuses(n) {
				refuses = true
				out.Refused = append(out.Refused, n)
			}
		}
		if !p.acked || p.seq < position || len(p.pending) > 0 {
			continue
		}
		out.Reached++
		if !refuses && p.seq >= need {
			out.Running++
		}
	}
	slices.SortFunc(out.Refused, resource.Name.Compare)
	out.Refused = slices.Compact(out.Refused)
	return out
}
