package projection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/run"
)

// Bounds of how often it is written.
const (
	firstRetry = time.Second // after a write that failed, doubled with each that follows
	lastRetry  = 10 * time.Second
	firstTruce = time.Second // before what others change is put right again, doubled each time
	lastTruce  = 5 * time.Minute
	maxMoved   = 5 // tries of one write that another writer is ahead of
)

// pace is when to write next. It is Run's alone.
type pace struct {
	next     time.Time // not before
	failures int       // in a row
	restored time.Time // when what others changed was last put right
	quarrels int       // how often that was, one soon after the other
}

// peace is not before when what others changed again is put right.
func (p *pace) peace() time.Time { return p.restored.Add(p.truce()) }

func (p *pace) truce() time.Duration {
	if p.quarrels == 0 {
		return 0
	}
	return min(firstTruce<<min(p.quarrels-1, 10), lastTruce)
}

// restore notes that what others changed was put right.
func (p *pace) restore(now time.Time) {
	if now.Sub(p.restored) > 2*p.truce() {
		p.quarrels = 0
	}
	p.quarrels++
	p.restored = now
}

// fail notes a failure and returns how long to wait.
func (p *pace) fail(now time.Time) time.Duration {
	wait := min(firstRetry<<min(p.failures, 10), lastRetry)
	p.failures++
	wait -= rand.N(wait/4 + 1)
	p.next = now.Add(wait)
	return wait
}

// Run writes until ctx is done. It is for the leader, and can be called again: what is there is
// looked at anew each time, because others wrote meanwhile.
func (e *Engine) Run(ctx context.Context) error {
	e.begin()
	defer e.end()
	var p pace
	var failing fault
	return run.Loop(ctx, e.wake, func(ctx context.Context) (again time.Time) {
		due, pending := e.due(&p)
		if !pending || due.After(time.Now()) {
			return due
		}
		news, err := e.round(ctx, &p, &failing)
		if ctx.Err() != nil {
			return time.Time{}
		}
		if err == nil {
			p.failures, p.next = 0, time.Now().Add(e.c.Pause)
			return time.Time{}
		}
		wait := p.fail(time.Now())
		if news { // the same is told once, not with each try
			e.c.Log.Error("project mesh configuration; will retry", logkey.Error, err, logkey.Wait, wait)
		}
		return p.next
	})
}

// begin has everything looked at.
func (e *Engine) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stale, e.changed = true, true
	e.poke()
}

// end forgets what only who writes can know.
func (e *Engine) end() {
	e.mu.Lock()
	said := e.said
	e.known, e.said = nil, map[object.Key]Told{}
	e.mu.Unlock()
	for k := range said {
		e.c.Forget(k)
	}
}

// due is when to look, if there is a reason to.
func (e *Engine) due(p *pace) (at time.Time, pending bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case !e.complete:
		return time.Time{}, false
	case e.changed || p.failures > 0:
		return p.next, true
	case e.stale:
		if peace := p.peace(); peace.After(p.next) {
			return peace, true
		}
		return p.next, true
	}
	return time.Time{}, false
}

// round brings the ConfigMap up to date, if it is not, and tells what became of whom. news
// is whether an error is of another kind than that of the round before.
func (e *Engine) round(ctx context.Context, p *pace, failing *fault) (news bool, err error) {
	e.mu.Lock()
	changed := e.changed
	e.changed = false
	e.mu.Unlock()
	now, want, wrote, err := e.apply(ctx)
	if err != nil && changed {
		e.mu.Lock()
		e.changed = true
		e.mu.Unlock()
	}
	e.metrics.count(wrote, err)
	if err == nil && wrote && !changed {
		p.restore(time.Now())
		e.c.Log.Info("others changed the projected mesh configuration; it was put right", logkey.Object, e.at.String())
	}
	news, tell := failing.next(err)
	if ctx.Err() == nil { // else that is why, and nothing to tell
		e.settle(now, want, tell)
	}
	return news, err
}

// apply writes what is to be there. now is what is there after it, nil if that is not known.
func (e *Engine) apply(ctx context.Context) (now *configmap.State, want plan, wrote bool, err error) {
	// Exits: it is there; an error other than that somebody else was first; that too often.
	for try := 1; ; try++ {
		now, err = e.look(ctx)
		if err != nil {
			return now, want, false, err
		}
		if want, err = e.plan(*now); err != nil || same(*now, want.text) {
			return now, want, false, err
		}
		next, err := e.c.Place.Replace(ctx, *now, want.text)
		if err == nil {
			e.note(&next)
			return &next, want, true, nil
		}
		e.mu.Lock()
		e.stale = true // it may have been written even so
		e.mu.Unlock()
		if !errors.Is(err, configmap.ErrMoved) || try == maxMoved {
			return now, want, false, err
		}
	}
}

// look is what is there: as it is known, if nobody else has written since.
func (e *Engine) look(ctx context.Context) (*configmap.State, error) {
	e.mu.Lock()
	known, stale := e.known, e.stale
	e.stale = false
	e.mu.Unlock()
	if known != nil && !stale {
		return known, nil
	}
	now, err := e.c.Place.Look(ctx)
	if err != nil {
		e.mu.Lock()
		e.stale = true
		e.mu.Unlock()
		return known, err
	}
	e.note(&now)
	return &now, nil
}

func (e *Engine) note(s *configmap.State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.known = s
}

// plan is what is to be there.
func (e *Engine) plan(now configmap.State) (plan, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ns, n := range e.entries {
		if err := n.write(now.Text[keyOf(e.c.Namespace, ns)]); err != nil {
			return plan{}, fmt.Errorf("MeshConfig of %s: %w", ns, err)
		}
	}
	return choose(e.entries, e.c.Namespace, now.Foreign), nil
}

// settle tells what became of whom.
func (e *Engine) settle(there *configmap.State, want plan, fault error) {
	v := verdict{at: "ConfigMap " + e.c.Namespace + "/" + e.c.Name, release: e.c.Namespace, known: there, left: map[string]bool{}, total: len(want.text) + len(want.left), fault: fault}
	for _, ns := range want.left {
		v.left[ns] = true
	}
	e.metrics.left.Set(float64(len(want.left)))
	e.mu.Lock()
	before := e.said
	e.said = v.all(e.entries)
	for k, old := range before { // what is open is said as it was, of what the object was
		if _, known := e.said[k]; !known && e.entries[k.Namespace] != nil {
			e.said[k] = old
		}
	}
	now := maps.Clone(e.said)
	e.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(now), object.Key.Compare) {
		if old, known := before[k]; !known || old != now[k] {
			e.c.Tell(now[k])
		}
	}
	for k := range before {
		if _, still := now[k]; !still {
			e.c.Forget(k)
		}
	}
}
