// Package status joins what the routing graph says of objects with what proxies are
// observed to run, and writes the result where a user reads it. It decides no routing
// and observes no proxy: both are handed in. At rest it writes nothing.
//
// Writes run at the same time, up to a bound, those of one object one after the other. What is
// written is what is known when the write begins, so of many changes only the newest is. A
// write that does not come back holds up its own object and nothing else.
package status

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/scope"
)

// comeback is by how much more patience there is with proxies when a process begins.
const comeback = 10

// The defaults of a Config.
const (
	DefaultPatience = 500 * time.Millisecond
	DefaultLull     = 20 * time.Millisecond
	DefaultGrace    = 30 * time.Second
	DefaultRetry    = time.Second
	DefaultInFlight = 16
)

// Observer says what proxies run.
type Observer interface {
	Verdict(s scope.Scope, names []resource.Name, port uint32) fleet.Verdict
	// Position is up to where a scope has been published.
	Position(s scope.Scope) uint64
	// Roll is every proxy of a scope, and how it stands to what was published up to a position.
	Roll(s scope.Scope, names []resource.Name, position uint64) []fleet.Member
}

// Sink is where statuses are written. Several calls are under way at a time, one of each
// object; each ends by itself, within a bound.
type Sink interface {
	// Write brings what is ours of the object's status to what d says, and reports whether
	// that took a write. Of an object with another UID than d's it writes nothing.
	Write(ctx context.Context, d Document) (wrote bool, err error)
	// Remove takes it out. Without a UID the object is known to be gone.
	Remove(ctx context.Context, k object.Key, uid types.UID) error
}

// Document is the status of one object.
type Document struct {
	Key        object.Key
	Generation int64
	UID        types.UID // empty: not known
	Status     any       // a pointer to the API's status type; immutable
	Absent     []string  // types of conditions of the object as a whole that there are to be none of; sorted
}

// Config is what an Engine is made from.
type Config struct {
	Observer Observer
	Sink     Sink
	Pods     Pods // nil: the proxies that are connected are all there are
	// Patience is how long a status whose only open question is whether proxies have
	// it live is held back, so that the usual case is one write and not two. What changes
	// meanwhile does not make it longer.
	Patience time.Duration
	// Lull is how long the engine does nothing after it was told of something: what
	// proxies have to be sent comes first, and mostly there is more to be told soon.
	Lull time.Duration
	// Grace is how long a proxy that has just begun is held against no status that counts it:
	// the Ack deadline.
	Grace time.Duration
	// ReleaseNamespace is whose MeshConfig is told of before those of others; empty: none's.
	ReleaseNamespace string
	// Elsewhere reports whether there are other controllers that proxies can be connected to; nil:
	// never. Pulse tells when that changes.
	Elsewhere func() bool
	Retry     time.Duration // before a write that failed is tried again, doubled each time up to ten times as much
	InFlight  int           // the most writes under way at a time
	// Sweep removes what an earlier process left of objects that are not among keys. It is
	// called when all are known, before anything is written, and again while it fails. Nil:
	// such objects are Seen.
	Sweep      func(ctx context.Context, keys []object.Key) error
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Engine keeps the statuses of all objects.
type Engine struct {
	c       Config
	metrics *metrics
	wake    chan struct{} // capacity 1: there is something to look at
	ended   chan struct{} // capacity 1: a write ended, so another may begin
	born    time.Time

	mu        sync.Mutex // guards what follows; never held while the sink or the observer is called
	entries   map[object.Key]*entry
	dirty     map[object.Key]bool // to be looked at
	waiting   map[object.Key]bool // not live yet, or refused: looked at on each pulse
	retry     map[object.Key]bool // writes that failed
	users     map[resource.Name]map[object.Key]bool
	ports     map[object.Key]bool // statuses that need a bound port
	tallies   map[scope.Scope]*tally
	held      map[object.Key]string
	lacks     map[object.Key]condition.Problem   // of Gateways
	added     map[object.Key]map[string]Addition // by type of condition
	strays    map[object.Key]types.UID           // have something of ours, and no status
	minors    map[object.Key]minority            // differ in numbers alone from what is written
	ration    ration                             // of writes of those
	ready     [ranks][]object.Key                // whose turn comes, each once
	follow    ration                             // of writes of those in ready[followRank]
	flying    int                                // writes under way
	elsewhere bool                               // proxies may be connected to other controllers
	pulsed    bool
	recounts  bool      // as pulsed, for tallies
	lookAt    time.Time // when to look, if nothing is told
	told      bool      // there was an Update
	idle      bool      // another replica writes
	swept     bool      // or there is nothing to sweep
	sweepAt   time.Time // not before
	silence   silence
}

// entry is what is known of one object. All of it is guarded by the engine's mutex.
type entry struct {
	wanted  routing.Status
	since   time.Time              // when wanted last changed
	marks   map[scope.Scope][]mark // of one that counts proxies, by age: at least one of each scope
	awaits  bool                   // what it counts is not what it will be
	edited  time.Time              // when wanted last became another object or generation; zero: not in this process
	untold  bool                   // wanted, or that it is open, has not been told
	from    time.Time              // since when it was not, or was not last: patience began
	back    time.Time              // before that, proxies have yet to come back to this process
	looked  bool                   // glance is of when it was looked at last
	glance  glance
	paid    bool      // it has its share of the ration
	late    bool      // there is something to write that patience holds back
	shown   *Document // as it was observed last; nil: not yet
	written *Document // nil: never written
	forced  bool      // to be written though nothing has changed
	lost    bool      // what was written was seen to be gone
	queued  bool      // it is in ready
	rank    int       // where
	busy    bool      // a write is under way
	flight  *Document // what it writes; nil: it removes
	pace    pace
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
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.Retry == 0 {
		c.Retry = DefaultRetry
	}
	if c.InFlight == 0 {
		c.InFlight = DefaultInFlight
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		c: c, wake: make(chan struct{}, 1), ended: make(chan struct{}, 1), swept: c.Sweep == nil,
		entries: map[object.Key]*entry{}, dirty: map[object.Key]bool{}, waiting: map[object.Key]bool{}, retry: map[object.Key]bool{}, minors: map[object.Key]minority{},
		users: map[resource.Name]map[object.Key]bool{}, tallies: map[scope.Scope]*tally{}, ports: map[object.Key]bool{}, held: map[object.Key]string{}, strays: map[object.Key]types.UID{},
		added: map[object.Key]map[string]Addition{}, born: c.Now(),
		follow: ration{burst: followBurst, every: followEvery}, ration: ration{burst: minorBurst, every: minorEvery},
	}
	e.metrics = newMetrics(e.unwritten)
	if c.Registerer != nil {
		if err := e.metrics.register(c.Registerer); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Update takes what the graph says anew. Call it after the resources that belong to it
// have been published, so that what is observed is about them.
func (e *Engine) Update(statuses []routing.Status) {
	now, at := e.c.Now(), e.positions(statuses)
	e.mu.Lock()
	first := !e.told
	e.told = true
	for _, s := range statuses {
		en := e.entries[s.Key]
		if en == nil {
			en = &entry{}
			e.entries[s.Key] = en
		}
		switch {
		case !first && (en.wanted.UID != s.UID || en.wanted.Generation != s.Generation):
			en.edited = now
		case first && counts(s):
			en.back = now.Add(comeback * e.c.Patience)
		}
		e.index(en.wanted, false)
		e.note(en, s, at)
		en.wanted, en.since = s, now
		if !en.untold { // else patience goes on: edits without end would never be told
			en.untold, en.from = true, now
		}
		e.index(s, true)
		e.dirty[s.Key] = true
		delete(e.strays, s.Key)
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
	e.rewrite()
	e.mu.Unlock()
	e.poke()
}

// rewrite forces every status. The caller holds mu.
func (e *Engine) rewrite() {
	for k, en := range e.entries {
		e.dirty[k], en.forced = true, true
	}
}

// Lead says whether this replica is the one that writes, as it is from the start. One that
// is not goes on observing and writes nothing; what is under way ends. One that is again
// looks at every status, as others wrote meanwhile.
func (e *Engine) Lead(leads bool) {
	e.mu.Lock()
	if leads && e.idle {
		e.rewrite()
	}
	e.idle = !leads
	e.mu.Unlock()
	e.poke()
}

// Seen says that an object was seen by whoever watches where statuses are written: shows
// is whether a document is what it has of ours, ours whether it has anything of ours.
// What was taken away, or left by an earlier process, is put right. An object that is seen as it
// was before a write that has just ended is read once in vain.
func (e *Engine) Seen(k object.Key, uid types.UID, ours bool, shows func(Document) bool) {
	e.mu.Lock()
	en := e.entries[k]
	if en == nil {
		if ours {
			e.strays[k] = uid
			e.dirty[k] = true
		} else {
			delete(e.strays, k)
		}
		e.mu.Unlock()
		if ours {
			e.poke()
		}
		return
	}
	written, flight := en.written, en.flight
	e.mu.Unlock()
	for _, d := range []*Document{written, flight} {
		if d != nil && (d.UID != uid || shows(*d)) {
			return // of another UID the graph tells
		}
	}
	if written == nil && flight == nil {
		return
	}
	e.mu.Lock()
	if e.entries[k] == en {
		en.lost = true
		e.dirty[k] = true
	}
	e.mu.Unlock()
	e.poke()
}

// Pulse says that proxies were observed to have changed.
func (e *Engine) Pulse() {
	e.mu.Lock()
	e.pulsed, e.recounts = true, true
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
	if !e.told || !e.swept || e.pending() > 0 || e.pulsed && len(e.waiting) > 0 || e.recounts && len(e.tallies) > 0 {
		return false
	}
	for k := range e.waiting {
		if en := e.entries[k]; en != nil && en.late {
			return false
		}
	}
	return true
}

// pending is how many objects are to be looked at or written. The caller holds mu.
func (e *Engine) pending() int {
	n := len(e.dirty) + len(e.retry) + len(e.minors) + e.flying
	for _, queue := range e.ready {
		n += len(queue)
	}
	return n
}

func (e *Engine) unwritten() float64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return float64(e.pending())
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
