package quarantine

import (
	"maps"
	"slices"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
)

// trial is the search in one resource. First all suspects are left out: in a copy that
// does no harm. When that is accepted, they are released in halves, each of which is
// answered for. Of one that is refused alone, earlier versions are tried, the last first.
type trial struct {
	about     resource.Name
	content   resource.Hash // of the resource as it was refused
	routes    []object.Key  // that make it up and were not convicted before; sorted
	suspects  map[object.Key]history
	groups    [][]object.Key // still to be tried, each known to be bad as a whole or unknown
	probation []object.Key   // released, the answer is awaited; nil before all are left out
	detail    string         // what Envoy said of the one on probation
	earlier   history        // of the one on probation, which is the culprit: what is still to be tried
	convicted bool           // somebody was
}

// begin opens the trial of a refused resource, unless there is nobody to suspect: those
// whose change is not known to be accepted, or if there are none, all.
func (c *Court) begin(r *resource.Resource) bool {
	t := &trial{about: r.Name, content: r.Hash, suspects: map[object.Key]history{}}
	for _, k := range sharers(r) {
		if _, convicted := c.convicted[k]; convicted {
			continue
		}
		t.routes = append(t.routes, k)
		if h, changed := c.open[r.Name][k]; changed {
			t.suspects[k] = h
		}
	}
	t.regroup()
	if len(t.suspects) == 0 && !t.widen() {
		return false
	}
	c.trial = t
	return true
}

// widen makes every route a suspect, and reports whether they were not yet. Of an earlier
// version of those that did not change nothing is known.
func (t *trial) widen() bool {
	if len(t.suspects) == len(t.routes) {
		return false
	}
	for _, k := range t.routes {
		if _, known := t.suspects[k]; !known {
			t.suspects[k] = nil
		}
	}
	t.regroup()
	return true
}

func (t *trial) regroup() {
	t.groups = halves(slices.SortedFunc(maps.Keys(t.suspects), object.Key.Compare))
}

// held is how suspects are held.
func (t *trial) held() map[object.Key]object.Object {
	out := make(map[object.Key]object.Object, len(t.suspects))
	for k := range t.suspects {
		out[k] = nil
	}
	for _, k := range t.probation {
		delete(out, k)
		if len(t.earlier) > 0 {
			out[k] = t.earlier[len(t.earlier)-1]
		}
	}
	return out
}

// halves splits a group that is known to be bad; a group of one is kept, it is the culprit.
func halves(keys []object.Key) [][]object.Key {
	if len(keys) < 2 {
		return [][]object.Key{keys}
	}
	return [][]object.Key{keys[:len(keys)/2], keys[len(keys)/2:]}
}
