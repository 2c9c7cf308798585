package world

import "aether.io/aether/internal/scope"

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

// Reached counts the scope's connected proxies, and those of them that have answered
// for everything up to position and have nothing pending.
func (w *World) Reached(s scope.Scope, position uint64) (reached, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.areas[s]
	if a == nil {
		return 0, 0
	}
	for _, p := range a.proxies {
		if p.sub == nil {
			continue
		}
		total++
		if p.acked && p.seq >= position && len(p.pending) == 0 {
			reached++
		}
	}
	return reached, total
}
