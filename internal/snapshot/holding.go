package snapshot

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"aether.io/aether/internal/resource"
)

// Holding is what a subscriber was sent. The zero Holding holds nothing. It is not
// safe for concurrent use.
type Holding struct {
	set resource.Set
	res map[resource.Name]*resource.Resource
}

// NewHolding holds what was stored of an earlier one.
func NewHolding(resources []*resource.Resource) *Holding {
	h := &Holding{}
	for _, r := range resources {
		h.put(r)
	}
	return h
}

// Version is the version of what is held: empty if that is nothing.
func (h *Holding) Version() string {
	if len(h.res) == 0 {
		return ""
	}
	return h.set.Version()
}

// Len is the number of resources held.
func (h *Holding) Len() int { return len(h.res) }

// Get returns the resource of that name, or nil.
func (h *Holding) Get(n resource.Name) *resource.Resource { return h.res[n] }

// All yields the resources held, sorted by name.
func (h *Holding) All() iter.Seq[*resource.Resource] {
	return func(yield func(*resource.Resource) bool) {
		for _, n := range slices.SortedFunc(maps.Keys(h.res), resource.Name.Compare) {
			if !yield(h.res[n]) {
				return
			}
		}
	}
}

// Apply takes an update in and returns what it made different, sorted. It returns
// ErrVersion, and holds what it held before, if the result is not of the version
// that the update announces; whoever sees that should subscribe again with
// nothing in hand.
//
// Its cost follows the update, and what is held only where Full is set.
func (h *Holding) Apply(u resource.Update) (resource.Delta, error) {
	var d resource.Delta
	set := h.set
	in := make(map[resource.Name]struct{}, len(u.Changed))
	for _, r := range u.Changed {
		in[r.Name] = struct{}{}
		old := h.res[r.Name]
		if old != nil && old.Hash == r.Hash {
			continue
		}
		if old != nil {
			set.Remove(old.Name, old.Hash)
		}
		set.Add(r.Name, r.Hash)
		d.Changed = append(d.Changed, r)
	}
	gone := u.Removed
	if u.Full {
		gone = nil
		for n := range h.res {
			if _, ok := in[n]; !ok {
				gone = append(gone, n)
			}
		}
	}
	for _, n := range gone {
		if old := h.res[n]; old != nil {
			set.Remove(n, old.Hash)
			d.Removed = append(d.Removed, n)
		}
	}
	if got := set.Version(); got != u.Version {
		return resource.Delta{}, fmt.Errorf("apply update: %w: announced %s, computed %s", ErrVersion, u.Version, got)
	}
	for _, n := range d.Removed {
		delete(h.res, n)
	}
	for _, r := range d.Changed {
		h.keep(r)
	}
	h.set = set
	slices.SortFunc(d.Changed, func(a, b *resource.Resource) int { return a.Compare(b.Name) })
	slices.SortFunc(d.Removed, resource.Name.Compare)
	return d, nil
}

func (h *Holding) put(r *resource.Resource) {
	if old := h.res[r.Name]; old != nil {
		h.set.Remove(old.Name, old.Hash)
	}
	h.set.Add(r.Name, r.Hash)
	h.keep(r)
}

func (h *Holding) keep(r *resource.Resource) {
	if h.res == nil {
		h.res = make(map[resource.Name]*resource.Resource)
	}
	h.res[r.Name] = r
}
