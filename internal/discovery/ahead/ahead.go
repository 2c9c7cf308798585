// Package ahead notices proxies that have seen newer configuration than this controller has.
// For a moment that is a replica that is slower than another; if it lasts, the API server has an
// earlier history than before, and they will take nothing until the epoch is raised (ADR 0024). It
// is told how each subscription went (Note) and says who is ahead (Config.OnChange).
package ahead

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/discovery/backoff"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/snapshot"
)

const (
	// DefaultAfter is for how long a proxy is refused before it is told: replicas of a cluster
	// differ by seconds.
	DefaultAfter = 30 * time.Second
	// forget is how long a proxy counts that does not come again. It comes within backoff.Ceiling
	// if it can, so it is another replica's by then, or gone.
	forget = 4 * backoff.Ceiling
	// look is how often it is looked who counts.
	look = 5 * time.Second
	// most bounds the proxies that are kept; more are as bad.
	most = 10_000
)

// Config is what a Watch is made from.
type Config struct {
	After time.Duration // that a proxy is refused before it counts; 0: DefaultAfter
	// OnChange is called with who is ahead, sorted, when that changes, first when somebody is. It
	// must not block. Required.
	OnChange   func(ids []string)
	Help       string       // what is to be done, for the log
	Log        *slog.Logger // nil: none
	Registerer prometheus.Registerer
}

// Watch keeps who is ahead. Note may be called by any goroutine.
type Watch struct {
	c Config

	mu    sync.Mutex // guards what follows
	seen  map[string]sight
	ahead []string // as it was told last
}

// sight is when a proxy was refused.
type sight struct{ first, last time.Time }

// New checks c.
func New(c Config) (*Watch, error) {
	if c.OnChange == nil {
		return nil, errors.New("a watch for proxies that are ahead has nobody to tell")
	}
	if c.After == 0 {
		c.After = DefaultAfter
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watch{c: c, seen: map[string]sight{}}
	if c.Registerer != nil {
		if err := c.Registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coxswain_discovery_clients_ahead", Help: "Proxies that have newer configuration than this controller, for longer than replicas differ, and take none of it.",
		}, func() float64 { return float64(w.count()) })); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *Watch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ahead)
}

// Note takes how the subscription of a proxy went; nil: well.
func (w *Watch) Note(id string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.seen, id)
		return
	}
	if !errors.Is(err, snapshot.ErrBehind) {
		return
	}
	now := time.Now()
	s, known := w.seen[id]
	switch {
	case !known && len(w.seen) >= most:
		return
	case !known:
		s.first = now
	}
	s.last = now
	w.seen[id] = s
}

// Run tells who is ahead until ctx is done.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			w.look(time.Now())
		}
	}
}

func (w *Watch) look(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.seen, func(_ string, s sight) bool { return now.Sub(s.last) > forget })
	var ids []string
	for id, s := range w.seen {
		if s.last.Sub(s.first) >= w.c.After {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if slices.Equal(ids, w.ahead) {
		return
	}
	switch before := w.ahead; {
	case len(before) == 0:
		w.c.Log.Warn("proxies have newer configuration than this controller, and take nothing from it", logkey.Count, len(ids), logkey.NodeID, ids[0], logkey.Reason, w.c.Help)
	case len(ids) == 0:
		w.c.Log.Info("no proxy has newer configuration than this controller any more")
	}
	w.ahead = ids
	w.c.OnChange(slices.Clone(ids))
}
