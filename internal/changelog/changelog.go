// Package changelog follows each batch of changes until it is live in the proxies that
// it concerns, and tells the journal: what changed, what that did, how long it took.
package changelog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

// Patience is how long an entry is kept open for proxies that do not answer.
const Patience = 10 * time.Second

// maxOpen bounds the entries that wait for proxies; the oldest is closed to make room.
const maxOpen = 256

// Progress says how far proxies have come.
type Progress interface {
	// Position is the scope's newest position.
	Position(s scope.Scope) uint64
	// Reached counts the scope's connected proxies, and those whose Envoy has
	// answered for everything up to position, with nothing pending.
	Reached(s scope.Scope, position uint64) (reached, total int)
	Observe() (events <-chan struct{}, stop func())
}

// State is what became of a batch.
type State string

// The states of an entry.
const (
	Live      State = "live"       // every connected proxy concerned has answered for it
	NoEffect  State = "no effect"  // no resource changed
	NoProxies State = "no proxies" // no proxy was connected within Patience
	Late      State = "late"       // a proxy had not answered within Patience
)

// Entry is one batch.
type Entry struct {
	At        time.Time     `json:"at"`
	Cause     []string      `json:"cause,omitempty"`   // files
	Objects   []string      `json:"objects"`           // Kind/namespace/name, sorted; "-" before one that is gone
	Changed   int           `json:"changed"`           // resources sent
	Removed   int           `json:"removed"`           // resources taken away
	Statuses  int           `json:"statuses"`          // statuses that differ
	Compile   time.Duration `json:"compile_ns"`        // until the resources were published
	LiveAfter time.Duration `json:"live_ns,omitempty"` // until Envoy had answered, if Live
	State     State         `json:"state"`
	Proxies   int           `json:"proxies"` // how many have it
}

// open is an entry whose end is awaited.
type open struct {
	Entry
	targets map[scope.Scope]uint64
}

// Log follows batches. It implements pipeline.Recorder.
type Log struct {
	progress Progress
	journal  *journal.Journal
	now      func() time.Time

	mu   sync.Mutex
	open []open // oldest first
}

// New returns a Log that writes to j.
func New(p Progress, j *journal.Journal, now func() time.Time) *Log {
	return &Log{progress: p, journal: j, now: now}
}

// Record notes a batch that has just been published.
func (l *Log) Record(b pipeline.Batch, d routing.Delta) {
	e := Entry{At: b.Noticed, Cause: b.Cause, Statuses: len(d.Statuses), Compile: l.now().Sub(b.Noticed)}
	for _, c := range b.Changes {
		name := c.Key.String()
		if c.Object == nil {
			name = "-" + name
		}
		e.Objects = append(e.Objects, name)
	}
	slices.Sort(e.Objects)
	targets := map[scope.Scope]uint64{}
	for s, w := range d.Worlds {
		if w.IsZero() {
			continue
		}
		e.Changed += len(w.Changed)
		e.Removed += len(w.Removed)
		targets[s] = l.progress.Position(s)
	}
	if len(targets) == 0 {
		e.State = NoEffect
		l.close(e)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, open{Entry: e, targets: targets})
	if len(l.open) > maxOpen {
		l.open[0].State = Late
		l.close(l.open[0].Entry)
		l.open = l.open[1:]
	}
}

// Run closes entries as proxies answer, until ctx is done.
func (l *Log) Run(ctx context.Context) error {
	events, stop := l.progress.Observe()
	defer stop()
	tick := time.NewTicker(time.Second) // for entries nobody answers
	defer tick.Stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-events:
		case <-tick.C:
		}
		l.settle()
	}
}

// settle closes the entries that have come to an end.
func (l *Log) settle() {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(o open) bool {
		reached, total := 0, 0
		for s, position := range o.targets {
			r, t := l.progress.Reached(s, position)
			reached, total = reached+r, total+t
		}
		o.Proxies = reached
		switch {
		case total > 0 && reached == total:
			o.State, o.LiveAfter = Live, now.Sub(o.At)
		case now.Sub(o.At) < Patience:
			return false
		case total == 0:
			o.State = NoProxies
		default:
			o.State = Late
		}
		l.close(o.Entry)
		return true
	})
}

func (l *Log) close(e Entry) { l.journal.Add(l.now(), journal.Change, e.String(), e) }

// String is the entry as one line for a person.
func (e Entry) String() string {
	objects := e.Objects
	const most = 3
	rest := ""
	if len(objects) > most {
		rest = fmt.Sprintf(" and %d more", len(objects)-most)
		objects = objects[:most]
	}
	what := strings.Join(objects, ", ") + rest
	switch e.State {
	case NoEffect:
		return fmt.Sprintf("%s: no resource changes", what)
	case Live:
		return fmt.Sprintf("%s: %s, live in %d %s after %s", what, e.effect(), e.Proxies, plural(e.Proxies, "proxy", "proxies"), round(e.LiveAfter))
	case NoProxies, Late:
	}
	return fmt.Sprintf("%s: %s, %s (live in %d)", what, e.effect(), e.State, e.Proxies)
}

func (e Entry) effect() string {
	s := fmt.Sprintf("%d %s changed", e.Changed, plural(e.Changed, "resource", "resources"))
	if e.Removed > 0 {
		s += fmt.Sprintf(", %d removed", e.Removed)
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
