package kube

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source"
	"aether.io/aether/internal/watermark"
)

// intake gathers what all mirrors saw until it is collected. It is bounded by the number
// of objects: of several changes to one key only the last is kept.
type intake struct {
	now  func() time.Time
	wake chan struct{} // capacity 1: there is something to collect

	mu        sync.Mutex // guards what follows
	history   history
	last      watermark.Mark // as it was handed out
	positions map[string]uint64
	fresh     map[feed]time.Time // when each kind was last heard of
	followed  map[feed]bool      // exist
	awaited   map[feed]bool      // of those, have not been listed yet
	ready     bool               // which kinds exist is known
	changes   map[object.Key]object.Change
	lists     map[object.Kind]uint64    // how often each was listed
	failures  map[object.Kind]uint64    // answers that were errors
	problems  map[string]source.Problem // by what they are about
	faults    map[string]bool           // those of problems that are about how the API is followed
	told      bool                      // problems are as they were handed out
	synced    bool                      // a complete batch was handed out
	moved     bool                      // positions are ahead of those handed out
	noticed   time.Time                 // when the first of what waits came
}

func newIntake(epoch uint64, now func() time.Time) *intake {
	return &intake{
		now: now, wake: make(chan struct{}, 1), history: newHistory(epoch), positions: map[string]uint64{}, fresh: map[feed]time.Time{},
		followed: map[feed]bool{}, awaited: map[feed]bool{}, lists: map[object.Kind]uint64{}, failures: map[object.Kind]uint64{}, faults: map[string]bool{},
		changes: map[object.Key]object.Change{}, problems: map[string]source.Problem{}, told: true,
	}
}

// take adds changes that were seen up to a position of a turn; empty: the position stays.
func (in *intake) take(turn uint64, resource, at string, changes []object.Change) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if to := position(at); to > in.positions[resource] && turn == in.history.turn {
		in.positions[resource], in.moved = to, true
	}
	for _, c := range changes {
		in.changes[c.Key] = c
	}
	if len(changes) > 0 {
		in.poke()
	}
}

// listed says that all of a kind was taken. From then on the kind is complete.
func (in *intake) listed(turn uint64, k feed) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lists[k.Kind]++
	if turn != in.history.turn {
		return
	}
	if in.awaited[k] {
		delete(in.awaited, k)
		in.poke()
	}
}

// expect says that a kind exists and will be listed.
func (in *intake) expect(k feed) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.followed[k], in.awaited[k] = true, true
}

// forget says that a kind is not waited for: it does not exist, or no more.
func (in *intake) forget(k feed) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.awaited, k)
	delete(in.followed, k)
	in.poke()
}

// complete says that all kinds that exist were expected.
func (in *intake) complete() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ready = true
	in.poke()
}

// heard notes that the API answered about a kind.
func (in *intake) heard(k feed) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.fresh[k] = in.now()
}

// failed counts an answer about a kind that was an error.
func (in *intake) failed(k feed) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.failures[k.Kind]++
}

// silence says that a kind is followed no more, so nothing is to be heard of it.
func (in *intake) silence(k feed) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.fresh, k)
}

// freshness is how long ago each kind was heard of, in the namespace of which that is longest ago.
func (in *intake) freshness() map[object.Kind]time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := make(map[object.Kind]time.Duration, len(in.fresh))
	for k, at := range in.fresh {
		out[k.Kind] = max(out[k.Kind], in.now().Sub(at))
	}
	return out
}

// fault is report of what is wrong with how the API is followed.
func (in *intake) fault(about string, s source.Severity, message string) bool {
	in.mu.Lock()
	in.faults[about] = true
	in.mu.Unlock()
	return in.report(about, s, message)
}

// report sets what is wrong with about; nothing if the message is empty. It reports
// whether that is news.
func (in *intake) report(about string, s source.Severity, message string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	old, known := in.problems[about]
	switch {
	case message == "" && !known, known && old.Message == message && old.Severity == s:
		return false
	case message == "":
		delete(in.problems, about)
	default:
		p := source.Problem{Severity: s, Object: about, Message: message, Since: in.now()}
		if known {
			p.Since = old.Since
		}
		in.problems[about] = p
	}
	in.told = false
	in.poke()
	return true
}

// collect returns what has come since it was last called, nil if nothing has; a batch
// without changes is about problems or moves the position. Before every kind that exists
// was listed once it returns problems and no changes: a part of the objects is not a
// configuration.
func (in *intake) collect() *source.Batch {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := in.ready && len(in.awaited) == 0 && in.history.known
	if in.history.again && all {
		in.history.again, in.moved = false, true
	}
	complete := in.synced && !in.history.again || all
	if in.told && (!complete || in.synced && !in.moved && len(in.changes) == 0) {
		return nil
	}
	b := &source.Batch{Synced: complete || in.synced, Noticed: in.noticed, Mark: in.last}
	b.Problems = slices.SortedFunc(maps.Values(in.problems), func(a, b source.Problem) int { return strings.Compare(a.String(), b.String()) })
	if complete {
		b.Mark = watermark.Mark{Epoch: in.history.epoch, Positions: maps.Clone(in.positions)}
		in.last = b.Mark
		b.Changes = slices.SortedFunc(maps.Values(in.changes), func(a, b object.Change) int { return a.Key.Compare(b.Key) })
		clear(in.changes)
		in.moved = false
	}
	in.told, in.synced, in.noticed = true, b.Synced, time.Time{}
	return b
}

// poke wakes the collector. The caller holds mu.
func (in *intake) poke() {
	if in.noticed.IsZero() {
		in.noticed = in.now()
	}
	select {
	case in.wake <- struct{}{}:
	default: // a wake-up is pending and will see this too
	}
}
