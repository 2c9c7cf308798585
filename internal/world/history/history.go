// Package history keeps a set of resources in the order of their last change, so that
// the difference between any earlier moment and now costs what changed in between. It
// is pure: moments are sequence numbers that the caller gives, rising; it locks nothing.
package history

import (
	"container/list"
	"slices"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
)

// History is a set of resources and how it came to be. It is not safe for concurrent use.
type History struct {
	entries map[resource.Name]*entry
	order   *list.List // of *entry, most recently changed first
	graves  *list.List // of *entry, those removed, most recently first
	live    int        // entries that are not removed
	set     resource.Set
	version string
	seq     uint64 // of the newest publication that changed anything here

	// forgotten is the sequence up to which removals may have been forgotten: a
	// difference since before it cannot be told.
	forgotten  uint64
	tombstones int

	sent     map[string]uint64 // versions sent, and the sequence at which each was current
	sentList []string          // their order, oldest first
	versions int               // bound of both
}

// entry is one name, with its resource or, once removed, without.
type entry struct {
	name  resource.Name
	res   *resource.Resource // nil: removed
	seq   uint64             // of the publication that changed it last
	elem  *list.Element
	grave *list.Element // nil unless removed
}

// New returns an empty History that remembers tombstones removals beside as many as it
// has resources, and versions versions.
func New(tombstones, versions int) *History {
	h := &History{
		entries: make(map[resource.Name]*entry), order: list.New(), graves: list.New(),
		tombstones: tombstones, versions: versions, sent: make(map[string]uint64),
	}
	h.version = h.set.Version()
	return h
}

// Apply takes a delta in, at the moment seq, and reports whether anything is different now.
func (h *History) Apply(d resource.Delta, seq uint64) bool {
	before := h.seq
	for _, n := range d.Removed {
		e := h.entries[n]
		if e == nil || e.res == nil {
			continue
		}
		h.set.Remove(n, e.res.Hash)
		h.live--
		e.res = nil
		e.grave = h.graves.PushFront(e)
		h.touch(e, seq)
	}
	for _, r := range d.Changed {
		e := h.entries[r.Name]
		switch {
		case e == nil:
			e = &entry{name: r.Name}
			e.elem = h.order.PushFront(e)
			h.entries[r.Name] = e
			h.live++
		case e.res == nil:
			h.graves.Remove(e.grave)
			e.grave = nil
			h.live++
		case e.res.Hash == r.Hash:
			e.res = r // its origin may be another
			continue
		default:
			h.set.Remove(r.Name, e.res.Hash)
		}
		h.set.Add(r.Name, r.Hash)
		e.res = r
		h.touch(e, seq)
	}
	if h.seq == before {
		return false
	}
	h.version = h.set.Version()
	h.forget()
	return true
}

func (h *History) touch(e *entry, seq uint64) {
	e.seq, h.seq = seq, seq
	h.order.MoveToFront(e.elem)
}

// forget drops the oldest removals beyond the bound.
func (h *History) forget() {
	for h.graves.Len() > h.tombstones+h.live {
		e := h.graves.Remove(h.graves.Back()).(*entry)
		h.order.Remove(e.elem)
		delete(h.entries, e.name)
		h.forgotten = max(h.forgotten, e.seq)
	}
}

// Since gives the difference between the moment base and now; ok is false if that is no longer known.
func (h *History) Since(base uint64) (d resource.Delta, ok bool) {
	if base < h.forgotten {
		return d, false
	}
	for el := h.order.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		if e.seq <= base {
			break
		}
		if e.res != nil {
			d.Changed = append(d.Changed, e.res)
		} else {
			d.Removed = append(d.Removed, e.name)
		}
	}
	sortDelta(&d)
	return d, true
}

// Against gives the difference between an inventory and now.
func (h *History) Against(refs []snapshot.Ref) resource.Delta {
	var d resource.Delta
	held := make(map[resource.Name]resource.Hash, len(refs))
	for _, r := range refs {
		held[r.Name] = r.Hash
		if e := h.entries[r.Name]; e == nil || e.res == nil {
			d.Removed = append(d.Removed, r.Name)
		}
	}
	for n, e := range h.entries {
		if e.res == nil {
			continue
		}
		if h, ok := held[n]; !ok || h != e.res.Hash {
			d.Changed = append(d.Changed, e.res)
		}
	}
	sortDelta(&d)
	return d
}

// All lists the resources, sorted by name.
func (h *History) All() []*resource.Resource {
	d := resource.Delta{Changed: make([]*resource.Resource, 0, h.live)}
	for _, e := range h.entries {
		if e.res != nil {
			d.Changed = append(d.Changed, e.res)
		}
	}
	sortDelta(&d)
	return d.Changed
}

// Remember notes that the current version has been sent.
func (h *History) Remember() {
	if _, ok := h.sent[h.version]; !ok {
		h.sentList = append(h.sentList, h.version)
		if len(h.sentList) > h.versions {
			delete(h.sent, h.sentList[0])
			h.sentList = slices.Delete(h.sentList, 0, 1)
		}
	}
	h.sent[h.version] = h.seq
}

// Resume gives the moment of a version, if it is current or was sent recently. What has
// changed since may have been forgotten nevertheless.
func (h *History) Resume(version string) (seq uint64, ok bool) {
	if version == h.version {
		return h.seq, true
	}
	seq, ok = h.sent[version]
	return seq, ok
}

// Current returns the resource of that name and the sequence of its content.
func (h *History) Current(n resource.Name) (*resource.Resource, uint64) {
	if e := h.entries[n]; e != nil && e.res != nil {
		return e.res, e.seq
	}
	return nil, 0
}

func sortDelta(d *resource.Delta) {
	slices.SortFunc(d.Changed, func(x, y *resource.Resource) int { return x.Compare(y.Name) })
	slices.SortFunc(d.Removed, resource.Name.Compare)
}

// Version is that of all resources.
func (h *History) Version() string { return h.version }

// Seq is the moment of the last change.
func (h *History) Seq() uint64 { return h.seq }
