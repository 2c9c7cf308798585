// Package changelog follows each batch of changes until it is live in the proxies that
// it concerns, or Envoy has refused it and it is known which object is to blame, and tells
// the journal: what changed, what that did, how long it took.
package changelog

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

// Patience is how long an entry is kept open for proxies that do not answer.
const Patience = 10 * time.Second

// lull is the least time from one look at proxies to the next. What many answer one after the
// other is looked at once.
const lull = 20 * time.Millisecond

// maxOpen bounds the entries that wait for proxies; the oldest is closed to make room.
const maxOpen = 256

// Progress says how far proxies have come.
type Progress interface {
	// Position is the scope's newest position.
	Position(s scope.Scope) uint64
	// Standing is how far the scope's proxies have come with what was published up to
	// position, and with the present content of the named resources.
	Standing(s scope.Scope, position uint64, names []resource.Name) fleet.Standing
	Observe() (events <-chan struct{}, stop func())
}

// open is an entry whose end is awaited.
type open struct {
	Entry
	targets map[scope.Scope]target
}

// target is what a batch changed in one scope.
type target struct {
	position uint64
	names    []resource.Name
}

// Log follows batches. It implements pipeline.Recorder.
type Log struct {
	progress Progress
	journal  *journal.Journal
	now      func() time.Time

	wake chan struct{} // capacity 1: something was judged

	mu          sync.Mutex // guards what follows
	open        []open     // oldest first
	quarantined map[object.Key]string
	refused     map[resource.Name]bool // for good
	candidates  map[object.Key]bool    // that exist
	started     bool                   // the source's initial list was recorded
}

// New returns a Log that writes to j.
func New(p Progress, j *journal.Journal, now func() time.Time) *Log {
	return &Log{progress: p, journal: j, now: now, wake: make(chan struct{}, 1), candidates: map[object.Key]bool{}}
}

// Record notes a batch that has just been published.
func (l *Log) Record(b pipeline.Batch, d routing.Delta) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := Entry{At: b.Noticed, Cause: b.Cause, Statuses: len(d.Statuses), Compile: l.now().Sub(b.Noticed), Start: b.Synced && !l.started}
	l.started = l.started || b.Synced
	for _, c := range b.Changes {
		if candidate(c.Key.Kind) && c.Object != nil {
			l.candidates[c.Key] = true
		} else {
			delete(l.candidates, c.Key)
		}
		name := c.Key.String()
		if c.Implied || c.Object == nil && c.Refused != "" { // nobody wrote it, or there was none before
			continue
		}
		if c.Object == nil {
			name = "-" + name
		}
		e.Objects = append(e.Objects, name)
	}
	if len(e.Objects) == 0 && !e.Start {
		return
	}
	slices.Sort(e.Objects)
	targets := map[scope.Scope]target{}
	for s, w := range d.Worlds {
		if w.IsZero() {
			continue
		}
		e.Changed += len(w.Changed)
		e.Removed += len(w.Removed)
		t := target{position: l.progress.Position(s)}
		for _, r := range w.Changed {
			t.names = append(t.names, r.Name)
		}
		targets[s] = t
	}
	if len(targets) == 0 {
		e.State = NoEffect
		if e.Quarantined = l.guilty(e.Objects); len(e.Quarantined) > 0 {
			e.State = Quarantined
		}
		l.close(e)
		return
	}
	l.open = append(l.open, open{Entry: e, targets: targets})
	if len(l.open) > maxOpen {
		l.open[0].State = Late
		l.close(l.open[0].Entry)
		l.open = l.open[1:]
	}
}

// candidate reports whether objects of a kind get a status if what they refer to leads to a
// GatewayClass of ours, and only then.
func candidate(k object.Kind) bool {
	return k == object.Gateway || k == object.ListenerSet || strings.HasSuffix(string(k), "Route")
}

// Candidates are the objects that exist, and get a status if there is something of ours that
// they lead to: without one, they have no effect. Sorted.
func (l *Log) Candidates() []object.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Keys(l.candidates), object.Key.Compare)
}

// Judged takes note of what is quarantined, and of what is refused with no search under way.
func (l *Log) Judged(quarantined map[object.Key]string, refused map[resource.Name]bool) {
	l.mu.Lock()
	l.quarantined, l.refused = quarantined, refused
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default: // Run has not come to the last one yet, and will see this too
	}
}

// guilty lists those of the objects that are quarantined. The caller holds mu.
func (l *Log) guilty(objects []string) []string {
	var out []string
	for k := range l.quarantined {
		if _, is := slices.BinarySearch(objects, k.String()); is {
			out = append(out, k.String())
		}
	}
	slices.Sort(out)
	return out
}

// Run closes entries as proxies answer, until ctx is done.
func (l *Log) Run(ctx context.Context) error {
	events, stop := l.progress.Observe()
	defer stop()
	look := time.NewTimer(time.Second)
	defer look.Stop()
	var next time.Time // not before; of the clock that timers go by
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-events:
		case <-l.wake:
		case <-look.C:
			next = time.Time{}
		}
		if wait := time.Until(next); wait > 0 {
			look.Reset(wait)
			continue
		}
		l.settle()
		next = time.Now().Add(lull)
		look.Reset(time.Second) // for entries nobody answers
	}
}

// settle closes the entries that have come to an end.
func (l *Log) settle() {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(o open) bool {
		var of fleet.Standing
		for s, t := range o.targets {
			in := l.progress.Standing(s, t.position, t.names)
			of.Connected, of.Reached, of.Running = of.Connected+in.Connected, of.Reached+in.Reached, of.Running+in.Running
			of.Refused, of.Differed = append(of.Refused, in.Refused...), max(of.Differed, in.Differed)
			if in.At.After(of.At) {
				of.At = in.At
			}
		}
		e := o.Entry
		e.State = l.state(of, now.Sub(e.At) >= Patience)
		if e.State == "" {
			return false
		}
		e.Proxies = of.Running
		if e.State == Live {
			e.LiveAfter = liveAt(of, e.At, now).Sub(e.At)
			if e.Quarantined = l.guilty(e.Objects); len(e.Quarantined) > 0 {
				e.State = Quarantined
			}
		}
		if e.State == Refused {
			for _, n := range of.Refused {
				e.Refused = append(e.Refused, n.String())
			}
		}
		if e.Start { // what it made of the objects proxies may have had already
			e.Changed, e.Removed = of.Differed, 0
		}
		l.close(e)
		return true
	})
}

// liveAt is when the last proxy came to run what was changed: it is found out a little later.
func liveAt(of fleet.Standing, changed, now time.Time) time.Time {
	if of.At.Before(changed) || of.At.After(now) {
		return now // they ran it already, or clocks were set
	}
	return of.At
}

// state is what has become of a batch, empty as long as that is open.
func (l *Log) state(of fleet.Standing, late bool) State {
	refused := len(of.Refused) > 0
	// Until the search is over it may be that only a part is to blame.
	decided := !slices.ContainsFunc(of.Refused, func(n resource.Name) bool { return !l.refused[n] })
	switch {
	case of.Connected > 0 && of.Running == of.Connected:
		return Live
	case of.Connected > 0 && of.Reached == of.Connected && refused && decided:
		return Refused
	case !late:
		return ""
	case of.Connected == 0:
		return NoProxies
	case refused:
		return Refused
	}
	return Late
}

func (l *Log) close(e Entry) { l.journal.Add(l.now(), journal.Change, e.String(), e) }
