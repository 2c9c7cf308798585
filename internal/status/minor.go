package status

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
)

// A proxy more is one small fact for each MeshConfig that concerns it, of which there may be
// thousands. Such facts are told at a rate that an API server does not notice, each object's
// newest and the one first that has waited longest. Whatever is urgent does not wait for them.

// How many statuses are written in all that differ in numbers alone from what is there.
const (
	rationBurst = 40                    // that do not wait
	rationEvery = 50 * time.Millisecond // between those that follow, and until one more need not wait
)

// ration says when the next of such statuses may be written. The zero ration says: now.
type ration struct{ full time.Time } // when rationBurst need not wait again

// next is the earliest time of a write.
func (r *ration) next() time.Time { return r.full.Add(-(rationBurst - 1) * rationEvery) }

// take takes a share for a write.
func (r *ration) take(now time.Time) {
	if r.full.Before(now) {
		r.full = now
	}
	r.full = r.full.Add(rationEvery)
}

// give gives back a share that was not needed.
func (r *ration) give() { r.full = r.full.Add(-rationEvery) }

// minority is when numbers alone of an object are told.
type minority struct {
	from time.Time // when they began to differ
	due  time.Time // not before
}

// postpone has an object's numbers told when it is their time: not while proxies that have just
// begun are about to be counted, so that all of them take one write. The caller holds mu.
func (e *Engine) postpone(k object.Key, en *entry, g glance) {
	if e.idle {
		return // who leads looks at everything
	}
	m, waits := e.minors[k]
	if !waits {
		m.from = e.c.Now()
	}
	m.due = en.pace.calm()
	if hold := m.from.Add(e.c.Grace); g.beginning() && hold.After(m.due) {
		m.due = hold
	}
	e.minors[k] = m
	e.sooner(later(m.due, e.ration.next()))
}

// serve has those looked at whose numbers may be told now. The caller holds mu.
func (e *Engine) serve(now time.Time) {
	if now.Before(e.ration.next()) || len(e.minors) == 0 {
		return
	}
	var due []object.Key
	for k, m := range e.minors {
		if en := e.entries[k]; !now.Before(m.due) && !en.busy && !en.queued && !e.dirty[k] {
			due = append(due, k)
		}
	}
	slices.SortFunc(due, func(a, b object.Key) int {
		return cmp.Or(e.minors[a].due.Compare(e.minors[b].due), a.Compare(b))
	})
	for _, k := range due {
		if now.Before(e.ration.next()) {
			return
		}
		e.ration.take(now)
		e.entries[k].paid, e.entries[k].queued = true, true
		e.ready[minorRank] = append(e.ready[minorRank], k)
	}
}

// serveAt is when there is something for serve to do next; ok is false if there is not. The
// caller holds mu.
func (e *Engine) serveAt() (at time.Time, ok bool) {
	for k, m := range e.minors {
		if en := e.entries[k]; !en.busy && !en.queued && !e.dirty[k] && (!ok || m.due.Before(at)) {
			at, ok = m.due, true
		}
	}
	return later(at, e.ration.next()), ok
}

// settle notes that an object is told of as a whole, or that there is nothing to tell of it, and
// gives back the share of the ration that it does not use. The caller holds mu.
func (e *Engine) settle(k object.Key, en *entry, uses bool) {
	delete(e.minors, k)
	e.refund(en, uses)
}

func (e *Engine) refund(en *entry, uses bool) {
	if en.paid && !uses {
		e.ration.give()
	}
	en.paid = false
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// minor reports whether two documents differ in nothing but how many proxies have come how
// far: no condition has another status, reason or generation.
func minor(a, b Document) bool {
	x, is := a.Status.(*configv1.MeshConfigStatus)
	y, also := b.Status.(*configv1.MeshConfigStatus)
	if !is || !also || a.UID != b.UID || a.Generation != b.Generation || x.ObservedGeneration != y.ObservedGeneration {
		return false
	}
	if x.Effective == nil || y.Effective == nil || *x.Effective != *y.Effective {
		return false
	}
	return slices.EqualFunc(x.Conditions, y.Conditions, func(c, d metav1.Condition) bool {
		return c.Type == d.Type && c.Status == d.Status && c.Reason == d.Reason && c.ObservedGeneration == d.ObservedGeneration
	})
}
