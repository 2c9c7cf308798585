package delta

import (
	"maps"
	"slices"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/kind"
)

// keep takes from what is to be removed the scopes that only connections can look up which
// Envoy is draining. When a table is cut another way, its listener leads to other scopes
// than before, but connections of the filter chain as it was go on to look in the old ones:
// without those they would be told that there is nothing, or, where a scope is looked for
// in several steps, find what belongs to somebody else. No new connection can find what is
// kept. Every other scope that is to go goes at once: a listener still leads to it, so that
// it would go on to be served, or its table is no more.
func (b *Book) keep() {
	s := &b.kinds[kind.Scopes]
	if len(s.gone) == 0 {
		return
	}
	wanted := b.leads(func(e *entry) *resource.Resource { return e.want })
	for n := range s.gone {
		here, otherwise := kind.Ways(n)
		if _, over := s.over[n]; over || here == nil || wanted(here) || !wanted(otherwise) {
			continue
		}
		s.kept[n] = struct{}{}
		delete(s.gone, n)
	}
}

// leads returns a function that reports whether one of the listeners leads to scopes in a
// way, of what is picked of each. It remembers: the scopes of a table have one way.
func (b *Book) leads(pick func(*entry) *resource.Resource) func(way []byte) bool {
	known := map[string]bool{}
	return func(way []byte) bool {
		is, ok := known[string(way)]
		if ok {
			return is
		}
		for _, e := range b.kinds[kind.Listeners].entries {
			if r := pick(e); r != nil && kind.Mentions(r.Payload, [][]byte{way}) {
				is = true
				break
			}
		}
		known[string(way)] = is
		return is
	}
}

// reconsider has keep decide anew: other listeners are wanted.
func (b *Book) reconsider() {
	s := &b.kinds[kind.Scopes]
	for n := range s.kept {
		s.touch(n, false)
	}
	clear(s.kept)
}

// Keeps reports whether scopes are kept that are to be removed.
func (b *Book) Keeps() bool { return len(b.kinds[kind.Scopes].kept) > 0 }

// Kept lists them, sorted. Whoever has waited for as long as Envoy drains connections calls
// Release with what it got.
func (b *Book) Kept() []string { return slices.Sorted(maps.Keys(b.kinds[kind.Scopes].kept)) }

// Release has scopes removed that are still kept, unless Envoy refused the listener that
// does not lead to them: then those that it has may look them up at any time.
func (b *Book) Release(scopes []string) {
	s := &b.kinds[kind.Scopes]
	running := b.leads((*entry).target)
	for _, n := range scopes {
		if _, ok := s.kept[n]; !ok {
			continue
		}
		if here, _ := kind.Ways(n); running(here) {
			continue
		}
		delete(s.kept, n)
		s.over[n] = struct{}{}
		s.touch(n, false)
	}
}
