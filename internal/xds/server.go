// Package xds serves the configuration of one Envoy on the same machine by delta
// discovery over a Unix socket, and says what that Envoy really does with it: what it
// accepted, refused, is still warming, and which ports it listens on. It remembers
// what ran well, so that it can serve it again before any controller is reached.
//
// It translates nothing and does not know the controller. Updates enter by Apply;
// what Envoy makes of them leaves by Apply's result and by Observed. What is sent
// when is decided in package delta, what is kept in package lastgood.
package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/lastgood"
)

// ErrStopped is returned by Apply when Run has ended.
var ErrStopped = errors.New("local xDS server has stopped")

// Config says where Envoy is and what to keep.
type Config struct {
	Socket      string // path of the Unix socket that Envoy's xDS cluster connects to; its directory exists
	AdminSocket string // path of Envoy's admin socket; empty: what is warming is not known, nor for how long connections are drained
	StateDir    string // directory of its own for the last-good store; empty: nothing is kept

	// Patience is how long nothing may move before Apply returns although something
	// is still warming. Zero: 250 ms.
	Patience time.Duration

	Log        *slog.Logger          // nil: discard
	Now        func() time.Time      // nil: time.Now
	Registerer prometheus.Registerer // nil: no metrics
}

// Server is the local xDS server. Use New.
type Server struct {
	cfg Config
	log *slog.Logger
	met *metrics

	turn     chan struct{}  // holds one token: one Apply at a time
	applies  chan *applying // to the loop, unbuffered
	opened   chan *stream   // to the loop, unbuffered
	closed   chan *stream   // to the loop, unbuffered
	inbox    chan fromEnvoy // to the loop
	pulse    chan struct{}  // of Observe; capacity 1
	restored chan struct{}  // closed once Held is true, or will never be
	stopped  chan struct{}  // closed when the loop has ended

	mu       sync.Mutex // guards what follows; written by the loop only
	image    *lastgood.Image
	observed resource.Observed
}

// applying is an Apply under way, or one that was answered and is not committed yet.
type applying struct {
	update resource.Update
	done   chan resource.Outcome // capacity 1
	told   bool                  // done has its outcome; of the loop only
}

// tell answers an Apply, once.
func (a *applying) tell(o resource.Outcome) {
	if !a.told {
		a.told = true
		a.done <- o
	}
}

// New returns a Server. It does no IO.
func New(cfg Config) (*Server, error) {
	if cfg.Socket == "" {
		return nil, errors.New("local xDS server: no socket path")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Patience == 0 {
		cfg.Patience = 250 * time.Millisecond
	}
	met, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("local xDS server: %w", err)
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, met: met,
		turn:     make(chan struct{}, 1),
		applies:  make(chan *applying),
		opened:   make(chan *stream),
		closed:   make(chan *stream),
		inbox:    make(chan fromEnvoy, 16),
		pulse:    make(chan struct{}, 1),
		restored: make(chan struct{}),
		stopped:  make(chan struct{}),
		image:    lastgood.NewImage(),
	}
	s.turn <- struct{}{}
	return s, nil
}

// Apply makes the update what Envoy is to run and returns what Envoy says of all that
// it is to run then. The update is relative to Held. Apply returns when Envoy has
// answered for everything, with what is still warming as pending. It waits for the first
// Envoy. When an Envoy goes before it has answered, and while none has come back, all that
// none has answered for is pending: an Envoy that does not survive what it is given is to be
// given what comes after that. It is waited for if that were too much to be said at once.
//
// If ctx ends first, Apply returns its error. Envoy is still brought to the update,
// and Held shows it once that is done, unless another Apply comes before.
func (s *Server) Apply(ctx context.Context, u resource.Update) (resource.Outcome, error) {
	stop := func() (resource.Outcome, error) {
		return resource.Outcome{}, fmt.Errorf("apply %s: %w", u.Version, ctx.Err())
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		return stop()
	}
	defer func() { s.turn <- struct{}{} }()
	a := &applying{update: u, done: make(chan resource.Outcome, 1)}
	select {
	case s.applies <- a:
	case <-s.stopped:
		return resource.Outcome{}, fmt.Errorf("apply %s: %w", u.Version, ErrStopped)
	case <-ctx.Done():
		return stop()
	}
	select {
	case o := <-a.done:
		return o, nil
	case <-s.stopped:
		return resource.Outcome{}, fmt.Errorf("apply %s: %w", u.Version, ErrStopped)
	case <-ctx.Done():
		return stop()
	}
}

// Held returns what the controller sent and Envoy has answered for. It waits until Run
// has read the last-good store.
func (s *Server) Held() resource.Held {
	<-s.restored
	s.mu.Lock()
	rec := lastgood.Record{Version: s.image.Version, Mark: s.image.Mark.Clone()}
	rs := slices.Collect(maps.Values(s.image.Resources))
	rec.Refused = slices.Collect(maps.Values(s.image.Refused))
	s.mu.Unlock()
	slices.SortFunc(rs, func(a, b *resource.Resource) int { return a.Compare(b.Name) })
	slices.SortFunc(rec.Refused, func(a, b resource.Refusal) int { return a.Compare(b.Name) })
	return resource.Held{Version: rec.Version, Resources: rs, Refused: rec.Refused, Mark: rec.Mark}
}

// Holds reports whether Held has a resource of that name, and false until Run has read the
// last-good store.
func (s *Server) Holds(name resource.Name) bool {
	select {
	case <-s.restored:
	default:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.image.Resources[name]
	return held
}

// Observe returns a channel that receives when Observed has changed. It is for one
// reader; changes that it is late for are one.
func (s *Server) Observe() <-chan struct{} { return s.pulse }

// Observed returns what Envoy runs, as far as it is known.
func (s *Server) Observed() resource.Observed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.observed
}

// observe replaces what Observed returns, and pulses if it differs.
func (s *Server) observe(o resource.Observed) {
	s.mu.Lock()
	same := equal(s.observed, o)
	s.observed = o
	s.mu.Unlock()
	if same {
		return
	}
	select {
	case s.pulse <- struct{}{}:
	default: // there is one that nobody has seen
	}
}

func equal(a, b resource.Observed) bool {
	return a.Version == b.Version && a.EnvoyConnected == b.EnvoyConnected && a.EnvoyVersion == b.EnvoyVersion &&
		a.Configured == b.Configured && slices.Equal(a.BoundPorts, b.BoundPorts) &&
		slices.Equal(a.Pending, b.Pending) && slices.Equal(a.Refused, b.Refused)
}
