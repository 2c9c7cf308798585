// Package world keeps, per scope, the current set of immutable resources, and tells
// each subscriber what differs from what it was sent before. It remembers what every
// proxy has answered, so that status can say what is live where.
//
// It does not make resources, move bytes or decide who may subscribe. Resources enter
// by Publish, from one writer; they leave by a Subscription, one per stream, through
// which answers and reports come back; observations leave by Proxies and Verdict.
//
// The cost of a publication and of a difference follows what changed, never what is
// there: each scope keeps its resources in the order of their last change, so that
// the difference since any point is a walk that stops there.
package world

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world/history"
)

// Config configures a World.
type Config struct {
	AckDeadline time.Duration    // from sending to the answer, past which a proxy is a laggard; 0: 30 s
	Keep        time.Duration    // how long a disconnected proxy is remembered; 0: 10 min
	KeepMost    int              // how many of those a scope remembers, the youngest; 0: 1000
	Tombstones  int              // how many removals a scope remembers beside as many as it has resources; 0: 1000
	Versions    int              // how many versions a scope that was sent can be resumed from; 0: 1000
	Rate        int              // of snapshots a second that changes make in the long run, in all scopes, if Hold leaves time for that; 0: DefaultRate
	Burst       int              // snapshots that changes may make at once before Rate counts; 0: as many as Rate makes in two seconds
	Hold        time.Duration    // the longest that a change waits because of Rate; 0: DefaultHold
	Now         func() time.Time // nil: time.Now
	Log         *slog.Logger     // nil: discard
}

// The defaults of a Config. To send a snapshot and take its answer costs a controller some
// 100 µs of a processor.
const (
	DefaultRate = 1000
	DefaultHold = 200 * time.Millisecond
)

// World is every scope's resources and the proxies that subscribe to them. It is
// safe for concurrent use, with a single publisher.
type World struct {
	cfg Config

	// rearm tells Run that a deadline before the one it sleeps for has come up. Run
	// receives; anyone sends without blocking.
	rearm chan struct{}

	mu        sync.Mutex // guards all below, the areas, proxies and subscriptions
	synced    bool
	seq       uint64 // of the newest publication
	mark      watermark.Mark
	moved     chan struct{} // closed and replaced when mark or synced changes
	areas     map[scope.Scope]*area
	observers map[chan struct{}]struct{}
	pace      pace
	bindings  uint64    // how often a proxy has reported other ports than before
	armed     time.Time // what Run sleeps for, zero if for nothing
}

// New returns a World without resources. It starts nothing.
func New(cfg Config) *World {
	if cfg.AckDeadline == 0 {
		cfg.AckDeadline = 30 * time.Second
	}
	if cfg.Keep == 0 {
		cfg.Keep = 10 * time.Minute
	}
	if cfg.KeepMost == 0 {
		cfg.KeepMost = 1000
	}
	if cfg.Tombstones == 0 {
		cfg.Tombstones = 1000
	}
	if cfg.Versions == 0 {
		cfg.Versions = 1000
	}
	if cfg.Rate == 0 {
		cfg.Rate = DefaultRate
	}
	if cfg.Burst == 0 {
		cfg.Burst = 2 * cfg.Rate
	}
	if cfg.Hold == 0 {
		cfg.Hold = DefaultHold
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &World{
		cfg:       cfg,
		rearm:     make(chan struct{}, 1),
		moved:     make(chan struct{}),
		areas:     make(map[scope.Scope]*area),
		observers: make(map[chan struct{}]struct{}),
		pace:      newPace(cfg.Rate, cfg.Burst, cfg.Hold),
	}
}

// Publish takes in what became different, and the position of the source that this
// reflects. It must not be called concurrently with itself. What is equal to what
// is there already changes nothing. A scope exists from the first time it is named,
// be it with an empty delta; the zero scope is ignored.
//
// Subscribers are sent it at once, or, where changes that came before make more snapshots
// than Rate, at most Hold later.
func (w *World) Publish(deltas map[scope.Scope]resource.Delta, mark watermark.Mark) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	for s, d := range deltas {
		if s.IsZero() {
			continue
		}
		a := w.area(s)
		if a.Apply(d, w.seq) {
			w.release(a)
		}
	}
	w.mark = mark.Clone()
	w.move()
}

// SetSynced says that the source has been read once and all of it published. The
// shared pool exists from then on, even if it is empty.
func (w *World) SetSynced() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.synced {
		w.synced = true
		w.area(scope.SharedPool())
		w.move()
	}
}

// Synced reports whether SetSynced was called.
func (w *World) Synced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced
}

// area is one scope: its resources and its proxies. It is guarded by the World's lock.
type area struct {
	*history.History
	scope   scope.Scope
	subs    map[*Subscription]struct{} // those neither closed nor superseded
	proxies map[string]*proxy          // by pod name
	ids     []string                   // of proxies, sorted
	refuse  int                        // of proxies, those that are known to refuse anything, be it superseded

	released uint64 // up to where subscribers are to be brought; what came since waits
	held     bool   // there is something that waits; a timer releases it
}

// area returns the scope's area, made if need be. Areas of deleted Gateways stay,
// empty, so that they answer as empty rather than as unheard of.
func (w *World) area(s scope.Scope) *area {
	a := w.areas[s]
	if a == nil {
		a = &area{
			History: history.New(w.cfg.Tombstones, w.cfg.Versions),
			scope:   s, subs: make(map[*Subscription]struct{}), proxies: make(map[string]*proxy),
		}
		w.areas[s] = a
	}
	return a
}

func (w *World) move() {
	close(w.moved)
	w.moved = make(chan struct{})
}

// Subscribe opens a subscription of p to s. An older one of the same pod to the same
// scope is superseded. Where the source is not synced, the scope unheard of, or the
// subscriber ahead, it waits for that to change until ctx ends, and returns then
// snapshot.ErrNotSynced or snapshot.ErrBehind. It returns scope.ErrInvalid for the
// zero scope. The caller closes the subscription.
//
// superseded, if not nil, is called once if a newer stream takes over; it must not
// block nor call the World. The methods of the subscription say so too, but whoever is
// held up in sending calls none.
func (w *World) Subscribe(ctx context.Context, s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (*Subscription, error) {
	if s.IsZero() {
		return nil, fmt.Errorf("subscribe: %w", scope.ErrInvalid)
	}
	for { // left with a subscription, or when ctx ends
		sub, moved, err := w.trySubscribe(s, p, have, superseded)
		if err == nil {
			return sub, nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, fmt.Errorf("subscribe to %s: %w", s, err)
		}
	}
}

func (w *World) trySubscribe(s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (*Subscription, <-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.areas[s]
	switch {
	case !w.synced, a == nil:
		return nil, w.moved, snapshot.ErrNotSynced
	case w.mark.Behind(have.Mark):
		return nil, w.moved, snapshot.ErrBehind
	}
	sub := w.connect(a, p, have)
	sub.onSuperseded = superseded
	return sub, nil, nil
}

// Observe returns a channel that gets a pulse, any number coalesced into one, after
// anything that Proxies or Verdict tell has changed, and a function that ends that. The
// first pulse is there at once, so that nothing is missed by who looks at each pulse.
// Publications do not pulse: they change nothing that was observed.
func (w *World) Observe() (events <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	ch <- struct{}{} // for what was before
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observers[ch] = struct{}{}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.observers, ch)
	}
}

func (w *World) pulse() {
	for ch := range w.observers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// Scopes lists the scopes that exist, sorted by their text.
func (w *World) Scopes() []scope.Scope {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]scope.Scope, 0, len(w.areas))
	for s := range w.areas {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b scope.Scope) int { return strings.Compare(a.String(), b.String()) })
	return out
}

// Resources lists the scope's resources, sorted by name.
func (w *World) Resources(s scope.Scope) []*resource.Resource {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.areas[s]
	if a == nil {
		return nil
	}
	return a.All()
}

// Version is the scope's current version, empty for a scope that does not exist.
func (w *World) Version(s scope.Scope) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a := w.areas[s]; a != nil {
		return a.Version()
	}
	return ""
}
