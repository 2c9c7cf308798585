package status

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

// Run writes until ctx is done, and returns when the writes under way have ended.
func (e *Engine) Run(ctx context.Context) error {
	var writes sync.WaitGroup
	defer writes.Wait()
	look := time.NewTimer(0)
	defer look.Stop()
	lulled := false // it is waited whether there is more to be told
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.ended:
		case <-e.wake:
			if !lulled {
				lulled = true
				look.Reset(e.c.Lull)
			}
			continue
		case <-look.C:
			lulled = false
			e.sweep(ctx)
			e.recount()
			e.look()
		}
		e.launch(ctx, &writes)
		if !lulled {
			look.Reset(e.pause())
		}
	}
}

// sweep removes what an earlier process left of objects that went while none ran: the first
// Update has every object that there is. Nothing else is written meanwhile.
func (e *Engine) sweep(ctx context.Context) {
	e.mu.Lock()
	if !e.sweepDue() || e.flying > 0 {
		e.mu.Unlock()
		return
	}
	keys := slices.SortedFunc(maps.Keys(e.entries), object.Key.Compare)
	e.mu.Unlock()
	err := e.c.Sweep(ctx, keys)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.swept = true
		return
	}
	e.sweepAt = e.c.Now().Add(10 * e.c.Retry)
	e.c.Log.Error("remove statuses of objects that are gone; will retry", logkey.Error, err, logkey.Wait, 10*e.c.Retry)
}

// sweepDue reports whether there is to be a sweep before anything else is written. The
// caller holds mu.
func (e *Engine) sweepDue() bool {
	return e.told && !e.swept && !e.idle && !e.c.Now().Before(e.sweepAt)
}

// look takes what has to be looked at and may be: dirty ones always, waiting ones on a
// pulse or when their patience is over, failed ones when it is their time.
func (e *Engine) look() {
	now := e.c.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for k := range e.waiting { // those that count are looked at when their numbers differ
		switch en := e.entries[k]; {
		case en.queued: // it is looked at when its turn comes
		case e.pulsed && len(en.marks) == 0, en.late && !now.Before(e.patience(en)):
			e.dirty[k] = true
		}
	}
	e.pulsed = false
	for k := range e.retry {
		if en := e.entries[k]; en == nil || !now.Before(en.pace.retryAt) {
			e.dirty[k] = true
			delete(e.retry, k)
		}
	}
	for _, k := range e.order(e.dirty) {
		en := e.entries[k]
		if en == nil {
			if en = e.adopt(k); en == nil {
				continue
			}
		}
		if en.busy || !en.queued && now.Before(en.pace.next()) {
			continue
		}
		delete(e.dirty, k)
		e.enqueue(k, en, e.rank(k, en, now))
	}
	e.serve(now)
	e.plan()
}

// adopt makes a stray an object whose status is to be removed, when it is known to be one
// and this replica is to do it. The caller holds mu.
func (e *Engine) adopt(k object.Key) *entry {
	uid, stray := e.strays[k]
	switch {
	case !stray:
		delete(e.dirty, k)
		return nil
	case !e.told || e.idle:
		return nil // an Update may tell of it; it stays dirty until then
	}
	delete(e.strays, k)
	en := &entry{}
	en.wanted.Key, en.wanted.UID = k, uid
	e.entries[k] = en
	return en
}

// patience is until when a status is held back while it is open. The caller holds mu.
func (e *Engine) patience(en *entry) time.Time { return later(en.from.Add(e.c.Patience), en.back) }

// pause is how long there is nothing to look at unless something is told.
func (e *Engine) pause() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(e.lookAt.Sub(e.c.Now()), time.Millisecond) // what is due now is no reason to spin
}

// sooner has it looked no later than at. The caller holds mu.
func (e *Engine) sooner(at time.Time) {
	if at.Before(e.lookAt) {
		e.lookAt = at
	}
}

// plan finds when to look next: when the next write that is held back, has to wait, or
// failed, is due. The caller holds mu.
func (e *Engine) plan() {
	e.lookAt = e.c.Now().Add(time.Hour)
	for k := range e.waiting {
		if en := e.entries[k]; en.late && !en.busy && !en.queued && !e.dirty[k] {
			e.sooner(e.patience(en))
		}
	}
	for k := range e.retry {
		if en := e.entries[k]; en != nil {
			e.sooner(en.pace.retryAt)
		}
	}
	for k := range e.dirty { // those whose write is under way are looked at when it has ended
		if en := e.entries[k]; en != nil && !en.busy {
			e.sooner(en.pace.next())
		}
	}
	for _, t := range e.tallies {
		if at := t.grows(); !at.IsZero() {
			e.sooner(at)
		}
	}
	if at, ok := e.serveAt(); ok {
		e.sooner(at)
	}
	if len(e.ready[followRank]) > 0 {
		e.sooner(e.follow.next())
	}
	if e.told && !e.swept && !e.idle && e.flying == 0 { // else it is looked at when the last has ended
		e.sooner(e.sweepAt)
	}
}

// launch begins writes until as many as may be are under way.
func (e *Engine) launch(ctx context.Context, writes *sync.WaitGroup) {
	// Exits: nothing is ready; as many as may be are under way; ctx is done.
	for ctx.Err() == nil {
		k, en := e.pop()
		if en == nil {
			return
		}
		job := e.prepare(k, en)
		if job == nil {
			continue
		}
		writes.Go(func() {
			job.run(ctx, e.c.Sink)
			e.finish(ctx, job)
		})
	}
}

// job is one write under way.
type job struct {
	key    object.Key
	entry  *entry
	doc    *Document // nil: a removal
	uid    types.UID
	lost   bool
	forced bool
	rank   int // of the queue that it was in
	wrote  bool
	err    error
}

func (j *job) run(ctx context.Context, to Sink) {
	if j.doc == nil {
		j.err = to.Remove(ctx, j.key, j.uid)
		j.wrote = j.err == nil
		return
	}
	j.wrote, j.err = to.Write(ctx, *j.doc)
}

// prepare observes one object and returns what is to be written of it; nil: nothing.
func (e *Engine) prepare(k object.Key, en *entry) *job {
	e.mu.Lock()
	for { // left when all that it counts is counted
		stale := e.staleScope(en)
		if stale == nil {
			break
		}
		e.mu.Unlock()
		e.take([]scope.Scope{*stale})
		e.mu.Lock()
	}
	delete(e.dirty, k) // what is known now is looked at now
	wanted, before, written, reason, lack, added := en.wanted, en.shown, en.written, e.held[k], e.lacks[k], maps.Clone(e.added[k])
	seen := seen{}
	if counts(wanted) {
		en.glance, en.looked = e.glance(k, en), true
		seen.count = e.count(en)
	}
	glance, since := en.glance, en.since
	e.mu.Unlock()
	if before != nil && before.UID != wanted.UID {
		before = nil // that was another object of the name
	}
	if written != nil && written.UID != wanted.UID {
		written = nil
	}
	if wanted.Refused != "" {
		reason = wanted.Refused
	}

	var doc *Document
	open := settled
	now := e.c.Now()
	if wanted.Value != nil {
		if !counts(wanted) {
			seen.verdicts = e.verdicts(wanted)
		}
		var next any
		next, open = observe(wanted, seen, reason, before)
		without(next, lack)
		absent := with(next, wanted.UID, added)
		stamp(next, now, written, before)
		doc = &Document{Key: k, Generation: wanted.Generation, UID: wanted.UID, Status: next, Absent: absent}
	}

	e.mu.Lock()
	defer e.mu.Unlock()
	if awaits := open == awaited && counts(wanted); awaits != en.awaits {
		if en.awaits = awaits; awaits && !en.untold { // those who were settled may have been for long
			en.untold, en.from = true, now
		}
	}
	holdBack := open == awaited && now.Before(e.patience(en))
	if !holdBack {
		if en.untold = !en.since.Equal(since); en.untold { // something came meanwhile
			en.from = en.since
		}
	}
	setMember(e.waiting, k, open != settled)
	en.late = holdBack
	if doc != nil && !holdBack {
		en.shown = doc
	}
	switch {
	case e.idle && doc == nil:
		e.forget(k, en)
		return nil
	case holdBack:
		e.settle(k, en, false)
		e.sooner(e.patience(en))
		return nil
	case e.idle:
		e.settle(k, en, false)
		return nil
	}
	news := doc == nil || en.written == nil || en.forced || !same(*en.written, *doc)
	switch {
	case news && doc != nil && en.written != nil && !en.forced && minor(*en.written, *doc, minors(added)):
		if now.Before(en.pace.calm()) || !en.paid {
			e.refund(en, false)
			e.postpone(k, en, glance)
			return nil
		}
		en.pace.told(now)
	case news:
		en.pace.changed(now)
	case !en.lost:
		e.settle(k, en, false)
		return nil
	default:
		if peace := en.pace.peace(); now.Before(peace) {
			return e.later(k, en, peace)
		}
	}
	e.settle(k, en, true)
	j := &job{key: k, entry: en, doc: doc, uid: wanted.UID, lost: en.lost && !news, forced: en.forced, rank: en.rank}
	if j.rank == followRank {
		e.follow.take(now)
	}
	en.lost, en.forced, en.busy, en.flight = false, false, true, doc
	e.flying++
	return j
}

// later has an object looked at again at a time. The caller holds mu.
func (e *Engine) later(k object.Key, en *entry, at time.Time) *job {
	en.pace.retryAt = at
	e.retry[k] = true
	e.sooner(at)
	return nil
}

// verdicts observes what a status needs that counts no proxies.
func (e *Engine) verdicts(wanted routing.Status) []fleet.Verdict {
	out := make([]fleet.Verdict, len(wanted.Live))
	for i, r := range wanted.Live {
		out[i] = e.c.Observer.Verdict(r.Scope, r.Resources, r.Port)
	}
	return out
}

// finish notes what came of a write.
func (e *Engine) finish(ctx context.Context, j *job) {
	now := e.c.Now()
	e.mu.Lock()
	en := j.entry
	en.busy, en.flight = false, nil
	e.flying--
	e.metrics.count(j)
	if j.err != nil {
		en.lost, en.forced = en.lost || j.lost, en.forced || j.forced
		en.pace.tried(now)
		wait := en.pace.failed(now, e.c.Retry)
		e.retry[j.key] = true
		if suppressed, tell := e.silence.interrupt(now); tell && ctx.Err() == nil {
			e.c.Log.Error("write status; will retry", logkey.Object, j.key.String(), logkey.Error, j.err, logkey.Wait, wait, logkey.Count, suppressed+1)
		}
	} else {
		en.pace.succeeded()
		if j.wrote {
			en.pace.tried(now)
		} else if j.rank == followRank { // it was read, and was as it should be
			e.follow.give()
		}
		if j.wrote && j.lost {
			en.pace.mends(now)
		}
		if j.lost && j.wrote && en.pace.times == 4 {
			e.c.Log.Warn("somebody takes away what is written of an object's status; it is put back ever less often", logkey.Object, j.key.String())
		}
		if j.doc != nil {
			en.written = j.doc
		} else if en.wanted.Value == nil { // else it has come back meanwhile
			e.forget(j.key, en)
		}
	}
	_, waits := e.minors[j.key]
	again := waits || e.dirty[j.key] || e.retry[j.key] || !e.swept
	e.mu.Unlock()
	if again {
		e.poke()
	}
	select {
	case e.ended <- struct{}{}:
	default: // that one is pending says all
	}
}

// forget drops an object of which nothing is to be said. The caller holds mu.
func (e *Engine) forget(k object.Key, en *entry) {
	delete(e.waiting, k)
	delete(e.retry, k)
	e.settle(k, en, false)
	for s := range en.marks {
		e.leave(s, k)
	}
	en.marks = nil
	if !e.dirty[k] {
		delete(e.entries, k)
		return
	}
	en.written, en.shown, en.pace = nil, nil, pace{} // it is looked at once more
}
