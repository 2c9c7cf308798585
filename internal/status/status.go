// Package status joins what the routing graph says of objects with what proxies are
// observed to run, and writes the result where a user reads it. It decides no routing
// and observes no proxy: both are handed in. At rest it writes nothing.
package status

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

// The defaults of a Config.
const (
	DefaultPatience = 500 * time.Millisecond
	DefaultLull     = 20 * time.Millisecond
	DefaultRetry    = time.Second
)

// Observer says what proxies run.
type Observer interface {
	Verdict(s scope.Scope, names []resource.Name, port uint32) fleet.Verdict
}

// Sink is where statuses are written. Calls come from one goroutine.
type Sink interface {
	Write(ctx context.Context, d Document) error
	Remove(ctx context.Context, k object.Key) error
	// KeepOnly removes what an earlier process left of objects that are no more.
	KeepOnly(ctx context.Context, keys []object.Key) error
}

// Document is the status of one object.
type Document struct {
	Key        object.Key
	Generation int64
	Status     any // a pointer to the API's status type; immutable
}

// Config is what an Engine is made from.
type Config struct {
	Observer Observer
	Sink     Sink
	// Patience is how long a status whose only open question is whether proxies have
	// it live is held back, so that the usual case is one write and not two.
	Patience time.Duration
	// Lull is how long the engine does nothing after it was told of something: what
	// proxies have to be sent comes first, and mostly there is more to be told soon.
	Lull  time.Duration
	Retry time.Duration // before a write that failed is tried again
	Now   func() time.Time
	Log   *slog.Logger
}

// Engine keeps the statuses of all objects.
type Engine struct {
	c    Config
	wake chan struct{} // capacity 1: something is dirty

	mu      sync.Mutex // guards what follows; never held while the sink is called
	entries map[object.Key]*entry
	dirty   map[object.Key]bool // to be looked at
	waiting map[object.Key]bool // not live yet, or refused: looked at on each pulse
	users   map[resource.Name]map[object.Key]bool
	ports   map[object.Key]bool // statuses that need a bound port
	held    map[object.Key]string
	retry   map[object.Key]time.Time // writes that failed, and when they are tried again
	failing map[object.Key]string    // what was told of them
	pulsed  bool
	working bool                // the statuses of this round are being written
	forced  map[object.Key]bool // to be written though nothing has changed
	told    bool                // there was an Update
	swept   bool                // what an earlier process left was removed
}

type entry struct {
	wanted  routing.Status
	since   time.Time // when wanted last changed
	late    bool      // there is something to write that patience holds back
	shown   *Document // as it was observed last; nil: not yet
	written *Document // nil: never written
}

// New checks c. The engine does nothing before Run.
func New(c Config) (*Engine, error) {
	if c.Observer == nil || c.Sink == nil {
		return nil, errors.New("status needs an observer and a sink")
	}
	if c.Patience == 0 {
		c.Patience = DefaultPatience
	}
	if c.Lull == 0 {
		c.Lull = DefaultLull
	}
	if c.Retry == 0 {
		c.Retry = DefaultRetry
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Engine{
		c: c, wake: make(chan struct{}, 1),
		entries: map[object.Key]*entry{}, dirty: map[object.Key]bool{}, waiting: map[object.Key]bool{},
		users: map[resource.Name]map[object.Key]bool{}, ports: map[object.Key]bool{}, held: map[object.Key]string{}, retry: map[object.Key]time.Time{},
		failing: map[object.Key]string{}, forced: map[object.Key]bool{},
	}, nil
}

// Update takes what the graph says anew. Call it after the resources that belong to it
// have been published, so that what is observed is about them.
func (e *Engine) Update(statuses []routing.Status) {
	now := e.c.Now()
	e.mu.Lock()
	e.told = true
	for _, s := range statuses {
		en := e.entries[s.Key]
		if en == nil {
			en = &entry{}
			e.entries[s.Key] = en
		}
		e.index(en.wanted, false)
		en.wanted, en.since = s, now
		e.index(s, true)
		e.dirty[s.Key] = true
	}
	e.mu.Unlock()
	e.poke()
}

// Hold says which objects are quarantined, and to people why and what is in effect instead.
func (e *Engine) Hold(held map[object.Key]string) {
	e.mu.Lock()
	for k := range e.held {
		e.dirty[k] = true
	}
	for k := range held {
		e.dirty[k] = true
	}
	e.held = maps.Clone(held)
	e.mu.Unlock()
	e.poke()
}

// Rewrite has every status written again, because what was written may be gone.
func (e *Engine) Rewrite() {
	e.mu.Lock()
	for k, en := range e.entries {
		if en.written != nil {
			e.dirty[k], e.forced[k] = true, true
		}
	}
	e.mu.Unlock()
	e.poke()
}

// Pulse says that proxies were observed to have changed.
func (e *Engine) Pulse() {
	e.mu.Lock()
	e.pulsed = true
	e.mu.Unlock()
	e.poke()
}

// Refused says that proxies refuse these resources now: what depends on them is looked at.
func (e *Engine) Refused(names []resource.Name) {
	e.mu.Lock()
	for _, n := range names {
		for k := range e.users[n] {
			e.dirty[k] = true
		}
	}
	e.mu.Unlock()
	e.poke()
}

// Rebound says that ports were bound or lost: what needs one is looked at.
func (e *Engine) Rebound() {
	e.mu.Lock()
	for k := range e.ports {
		e.dirty[k] = true
	}
	e.mu.Unlock()
	e.poke()
}

// Documents returns what is known, sorted by key, whether or not it could be written.
func (e *Engine) Documents() []Document {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Document
	for _, en := range e.entries {
		if en.shown != nil {
			out = append(out, *en.shown)
		}
	}
	slices.SortFunc(out, func(a, b Document) int { return a.Key.Compare(b.Key) })
	return out
}

// Settled reports whether all that is known has been written: nothing is held back, being
// written or to be tried again.
func (e *Engine) Settled() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.told || e.working || len(e.dirty) > 0 || len(e.retry) > 0 || e.pulsed && len(e.waiting) > 0 {
		return false
	}
	for k := range e.waiting {
		if e.entries[k].late {
			return false
		}
	}
	return true
}

// Run writes until ctx is done.
func (e *Engine) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	// Exits: ctx is done.
	for {
		timer.Reset(e.round(ctx))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			continue
		case <-e.wake:
		}
		timer.Reset(e.c.Lull)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// round looks at everything that may have changed, and returns when to look again.
func (e *Engine) round(ctx context.Context) time.Duration {
	e.sweep(ctx)
	for _, k := range e.due() {
		if ctx.Err() != nil {
			break
		}
		e.settle(ctx, k)
	}
	return e.pause()
}

// sweep removes, once, what an earlier process left of objects that went while none ran:
// the first Update has every object that there is.
func (e *Engine) sweep(ctx context.Context) {
	e.mu.Lock()
	if !e.told || e.swept {
		e.mu.Unlock()
		return
	}
	e.swept = true
	keys := slices.SortedFunc(maps.Keys(e.entries), object.Key.Compare)
	e.mu.Unlock()
	if err := e.c.Sink.KeepOnly(ctx, keys); err != nil {
		e.c.Log.Error("remove statuses of objects that are gone", logkey.Error, err)
	}
}

// pause is how long there is nothing to do unless something is dirty: until the next
// write that is held back, or that failed, is due.
func (e *Engine) pause() time.Duration {
	now := e.c.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.working = false
	pause := time.Hour
	for k := range e.waiting {
		if en := e.entries[k]; en.late {
			pause = min(pause, en.since.Add(e.c.Patience).Sub(now))
		}
	}
	for _, at := range e.retry {
		pause = min(pause, at.Sub(now))
	}
	return max(pause, 0)
}

// due takes the keys to look at: dirty ones always, waiting ones on a pulse or when
// their patience is over.
func (e *Engine) due() []object.Key {
	now := e.c.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for k := range e.waiting {
		if en := e.entries[k]; e.pulsed || en.late && now.Sub(en.since) >= e.c.Patience {
			e.dirty[k] = true
		}
	}
	e.pulsed = false
	for k, at := range e.retry {
		if !now.Before(at) {
			e.dirty[k] = true
			delete(e.retry, k)
		}
	}
	keys := slices.SortedFunc(maps.Keys(e.dirty), object.Key.Compare)
	clear(e.dirty)
	e.working = true
	return keys
}

// settle brings what is written of one object up to date.
func (e *Engine) settle(ctx context.Context, k object.Key) {
	e.mu.Lock()
	en := e.entries[k]
	if en == nil {
		e.mu.Unlock()
		return
	}
	wanted, written, since, reason, forced := en.wanted, en.written, en.since, e.held[k], e.forced[k]
	e.mu.Unlock()

	if wanted.Value == nil {
		e.remove(ctx, k, en)
		return
	}
	verdicts := make([]fleet.Verdict, len(wanted.Live))
	for i, r := range wanted.Live {
		verdicts[i] = e.c.Observer.Verdict(r.Scope, r.Resources, r.Port)
	}
	next, open := observe(wanted, verdicts, reason, written)
	now := e.c.Now()
	stamp(next, written, now)

	holdBack := open == awaited && now.Sub(since) < e.c.Patience
	e.mu.Lock()
	setMember(e.waiting, k, open != settled)
	en.late = holdBack
	e.mu.Unlock()
	doc := Document{Key: k, Generation: wanted.Generation, Status: next}
	if holdBack || written != nil && !forced && same(*written, doc) {
		return
	}
	e.mu.Lock()
	en.shown = &doc
	e.mu.Unlock()
	if err := e.c.Sink.Write(ctx, doc); err != nil {
		e.failed(k, err)
		return
	}
	e.mu.Lock()
	en.written = &doc
	delete(e.failing, k)
	delete(e.forced, k)
	e.mu.Unlock()
}

func (e *Engine) remove(ctx context.Context, k object.Key, en *entry) {
	if err := e.c.Sink.Remove(ctx, k); err != nil {
		e.failed(k, err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.failing, k)
	delete(e.forced, k)
	if en.wanted.Value == nil { // it may have come back meanwhile
		delete(e.entries, k)
		delete(e.waiting, k)
	}
}

func (e *Engine) failed(k object.Key, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failing[k] != err.Error() { // the same is told once, not with each try
		e.failing[k] = err.Error()
		e.c.Log.Error("write status; will retry", logkey.Object, k.String(), logkey.Error, err, logkey.Wait, e.c.Retry)
	}
	e.retry[k] = e.c.Now().Add(e.c.Retry)
}

// index keeps users and ports in step with the requirements of s. The caller holds mu.
func (e *Engine) index(s routing.Status, add bool) {
	needsPort := false
	for _, r := range s.Live {
		needsPort = needsPort || r.Port != 0
		for _, n := range r.Resources {
			switch {
			case add && e.users[n] == nil:
				e.users[n] = map[object.Key]bool{s.Key: true}
			case add:
				e.users[n][s.Key] = true
			default:
				delete(e.users[n], s.Key)
				if len(e.users[n]) == 0 {
					delete(e.users, n)
				}
			}
		}
	}
	setMember(e.ports, s.Key, add && needsPort)
}

func setMember(set map[object.Key]bool, k object.Key, in bool) {
	if in {
		set[k] = true
	} else {
		delete(set, k)
	}
}

func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default: // a wake-up is already pending and will see this too
	}
}
