package claim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// entry is one Lease that counts, as it is judged.
type entry struct {
	Namespace string // of the release, by which it is told from others
	Release   string
	Name      string // of the Lease
	Watches   Watches
	Holds     bool      // it acts; else it waits
	Renewed   bool      // this process has seen it renewed
	Since     time.Time // when the Lease was made
}

// Rival is another release that has something that this one is to have.
type Rival struct {
	Namespace, Release string
	Lease              string
	Since              time.Time // when it claimed it
	items              []item
}

// OverlapError says that others have what this release is to have.
type OverlapError struct {
	Rivals []Rival // sorted, at least one
}

// Error names each other release and what of this one's it has.
func (e *OverlapError) Error() string {
	var out []string
	for _, r := range e.Rivals {
		out = append(out, fmt.Sprintf("%s, of release %s of namespace %s since %s (Lease %s/%s)",
			names(r.items), r.Release, r.Namespace, r.Since.UTC().Format(time.RFC3339), r.Namespace, r.Lease))
	}
	return "another release of Aether has what this one is to serve: " + strings.Join(out, "; ")
}

// rivals is which releases have something of what the one in namespace is to watch, by all
// entries that count.
//
// Of two who both hold a thing, or both wait for it, the older has it: whose Lease was made
// first, by the API's clock. One that holds it has it before one that waits, older or not: a
// release whose values change takes nothing from one that serves it. One that was away and has
// its Lease still, marked as held, holds: the older that comes back takes its own back.
// One that waits for one that acts keeps nobody out: what it would have beside that lies idle.
// What another entry of this release holds is this release's: its values are being changed.
func rivals(all []entry, namespace string, watches Watches) []Rival {
	var ours []entry
	for _, e := range all {
		if e.Namespace == namespace {
			ours = append(ours, e)
		}
	}
	free := slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return stuck(all, e) })
	return others(free, namespace, watches, func(other entry, i item) bool {
		mine, have := best(ours, i)
		return !have || before(mine, other) > 0
	})
}

// holders is which releases hold something of what the one in namespace is to watch.
func holders(all []entry, namespace string, watches Watches) []Rival {
	return others(all, namespace, watches, func(other entry, _ item) bool { return other.Holds })
}

// others is which releases but the one in namespace have an entry with something of what it is to
// watch for which has is true, sorted.
func others(all []entry, namespace string, watches Watches, has func(entry, item) bool) []Rival {
	by := map[string]*Rival{}
	for _, other := range all {
		if other.Namespace == namespace {
			continue
		}
		for _, i := range common(watches, other.Watches) {
			if !has(other, i) {
				continue
			}
			r := by[other.Namespace]
			if r == nil {
				r = &Rival{Namespace: other.Namespace, Release: other.Release, Lease: other.Name, Since: other.Since}
				by[other.Namespace] = r
			}
			if !slices.Contains(r.items, i) {
				r.items = append(r.items, i)
			}
		}
	}
	var out []Rival
	for _, r := range by {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Rival) int { return strings.Compare(a.Namespace, b.Namespace) })
	return out
}

// stuck reports whether an entry waits for another release, which acts.
func stuck(all []entry, e entry) bool {
	return !e.Holds && slices.ContainsFunc(all, func(h entry) bool {
		return h.Holds && h.Namespace != e.Namespace && len(common(h.Watches, e.Watches)) > 0
	})
}

// best is the entry by which an item is likeliest to be its release's.
func best(of []entry, i item) (out entry, have bool) {
	for _, e := range of {
		if e.Watches.has(i) && (!have || before(e, out) < 0) {
			out, have = e, true
		}
	}
	return out, have
}

// before is negative if a goes before b.
func before(a, b entry) int {
	if a.Holds != b.Holds {
		if a.Holds {
			return -1
		}
		return 1
	}
	return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
