package status

import (
	"cmp"
	"math"
	"slices"
	"time"

	"aether.io/aether/internal/object"
)

// The queues of those whose turn comes. One is served when those before it are empty or may not
// be written yet.
const (
	ownRank    = iota // what a person watches: what was edited, and Gateways
	followRank        // MeshConfigs of which there is news though nobody has edited them
	manyRank          // what comes by the thousand
	minorRank         // numbers, and what many objects have in common
	ranks
)

// How many statuses are written in all. An edit of what thousands inherit, and a proxy that lags,
// is news of each of them: it is told soon, and leaves room for others at the API server. Of what
// has no news but numbers an API server notices nothing.
const (
	followBurst = 200                   // in followRank, that do not wait
	followEvery = 10 * time.Millisecond // between those that follow, and until one more need not wait
	minorBurst  = 40                    // likewise in minorRank
	minorEvery  = 50 * time.Millisecond
)

// ration says when the next of statuses that wait for each other may be written.
type ration struct {
	burst int
	every time.Duration
	full  time.Time // when a burst need not wait again
}

// next is the earliest time of a write.
func (r *ration) next() time.Time { return r.full.Add(-time.Duration(r.burst-1) * r.every) }

// take takes a share for a write.
func (r *ration) take(now time.Time) { r.full = later(r.full, now).Add(r.every) }

// give gives back a share that was not needed.
func (r *ration) give() { r.full = r.full.Add(-r.every) }

// rank is which queue an object's turn is in. What an edit brings, be it only that proxies answer, does
// not wait for those that nobody edited. The caller holds mu.
func (e *Engine) rank(k object.Key, en *entry, now time.Time) int {
	switch {
	case k.Kind == object.HTTPRoute, k.Kind == object.BackendTLSPolicy:
		return manyRank
	case k.Kind == object.MeshConfig && (en.edited.IsZero() || now.Sub(en.edited) > e.c.Grace):
		return followRank
	}
	return ownRank
}

// weight is how many proxies a status was about when it was looked at last, and more than any
// of what concerns all that there are. The caller holds mu.
func (e *Engine) weight(k object.Key) int {
	if k.Kind == object.MeshConfig && k.Namespace == e.c.ReleaseNamespace {
		return math.MaxInt32
	}
	if en := e.entries[k]; en != nil {
		return en.glance.applied.total
	}
	return 0
}

// order returns those whose turn comes at the same time, those first that concern most proxies. The
// caller holds mu.
func (e *Engine) order(of map[object.Key]bool) []object.Key {
	type heavy struct {
		key    object.Key
		weight int
	}
	list := make([]heavy, 0, len(of))
	for k := range of {
		list = append(list, heavy{k, e.weight(k)})
	}
	slices.SortFunc(list, func(a, b heavy) int { return cmp.Or(cmp.Compare(b.weight, a.weight), a.key.Compare(b.key)) })
	keys := make([]object.Key, len(list))
	for i, of := range list {
		keys[i] = of.key
	}
	return keys
}

// enqueue has an object's turn come. One whose turn comes already, and later, comes up. The caller
// holds mu.
func (e *Engine) enqueue(k object.Key, en *entry, rank int) {
	if en.queued {
		if en.rank <= rank {
			return
		}
		i := slices.Index(e.ready[en.rank], k)
		e.ready[en.rank] = slices.Delete(e.ready[en.rank], i, i+1)
	}
	en.queued, en.rank = true, rank
	e.ready[rank] = append(e.ready[rank], k)
}

// pop takes the next of whom a write may begin; nil: none may.
func (e *Engine) pop() (object.Key, *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.flying >= e.c.InFlight || e.sweepDue() {
		return object.Key{}, nil
	}
	room := e.flying < (e.c.InFlight+1)/2 // of those that may wait, so that there is some for others
	for rank, queue := range e.ready {
		switch {
		case len(queue) == 0, !room && (rank == followRank || rank == minorRank):
			continue
		case rank == followRank:
			if at := e.follow.next(); e.c.Now().Before(at) {
				e.sooner(at)
				continue
			}
		}
		k := queue[0]
		if e.ready[rank] = queue[1:]; len(queue) == 1 {
			e.ready[rank] = nil // and with it what was taken
		}
		en := e.entries[k]
		en.queued = false
		return k, en
	}
	return object.Key{}, nil
}
