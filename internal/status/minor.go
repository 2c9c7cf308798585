package status

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
)

// A proxy more is one small fact for each MeshConfig that concerns it, of which there may be
// thousands, and so is a collector that goes. Such facts are told at a rate that an API server does
// not notice, each object's newest, those first that concern most proxies or have waited longest;
// what is as it was before its turn comes is not told. Whatever is urgent does not wait for them.

// headstart is by how much one that concerns twice as many proxies as another is ahead of it:
// of what is new at the same time, what tells most is told first, and nothing waits for ever.
const headstart = 10 * time.Second

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
	type one struct {
		key   object.Key
		since time.Time // with its head start
	}
	var due []one
	for k, m := range e.minors {
		if en := e.entries[k]; !now.Before(m.due) && !en.busy && !en.queued && !e.dirty[k] {
			due = append(due, one{k, m.from.Add(-time.Duration(bits.Len(uint(e.weight(k)))) * headstart)})
		}
	}
	slices.SortFunc(due, func(a, b one) int { return cmp.Or(a.since.Compare(b.since), a.key.Compare(b.key)) })
	for _, next := range due {
		if now.Before(e.ration.next()) {
			return
		}
		e.ration.take(now)
		en := e.entries[next.key]
		en.paid = true
		e.enqueue(next.key, en, minorRank)
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
// far, and in conditions of types that are minor: no other has another status or reason, and
// none is of another generation.
func minor(a, b Document, types map[string]bool) bool {
	x, is := a.Status.(*configv1.MeshConfigStatus)
	y, also := b.Status.(*configv1.MeshConfigStatus)
	if !is || !also || a.UID != b.UID || a.Generation != b.Generation || x.ObservedGeneration != y.ObservedGeneration {
		return false
	}
	if x.Effective == nil || y.Effective == nil || *x.Effective != *y.Effective {
		return false
	}
	for _, c := range x.Conditions {
		if d := meta.FindStatusCondition(y.Conditions, c.Type); d != nil && d.ObservedGeneration != c.ObservedGeneration {
			return false
		}
	}
	others := func(all []metav1.Condition) []metav1.Condition {
		return slices.DeleteFunc(slices.Clone(all), func(c metav1.Condition) bool { return types[c.Type] })
	}
	return slices.EqualFunc(others(x.Conditions), others(y.Conditions), func(c, d metav1.Condition) bool {
		return c.Type == d.Type && c.Status == d.Status && c.Reason == d.Reason
	})
}
