// Package delivery watches whether what the Envoy beside a proxy exports arrives at the
// collector. Statistics of Envoy come in, now and then, and a check of the proxy leaves. It
// sends nothing to the collector itself, so of one to which nothing is sent it knows nothing.
// What proxies say of it is put together in delivery/verdict.
package delivery

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
)

// The clusters by which Envoy exports: access logs and traces, and its metrics.
const (
	exports = "aether-otel"
	metrics = "aether-otel-metrics"
)

// DefaultEvery is how long after one look comes the next.
const DefaultEvery = 5 * time.Second

// share is the most of Envoy's main thread that looking may take: one part in as many. With
// thousands of clusters it takes Envoy a while to find the few statistics that are asked for.
const share = 100

// Envoy is asked for its statistics.
type Envoy interface {
	// Counters returns the counters that are not 0 and whose names a regular expression matches.
	Counters(ctx context.Context, filter string) (map[string]uint64, error)
}

// Config says whom to ask. Envoy and Exporting are required.
type Config struct {
	Envoy Envoy
	// Exporting reports whether Envoy has a collector at present; while it has none it is not asked.
	Exporting  func() bool
	Every      time.Duration // between looks; default DefaultEvery
	Confirm    time.Duration // how long it must be otherwise before something else is said; default DefaultConfirm
	Log        *slog.Logger  // default: none
	Registerer prometheus.Registerer
}

// Watch is a component. Its methods may be called at any time.
type Watch struct {
	c     Config
	gauge prometheus.Gauge
	pulse chan struct{} // capacity 1: Checks may differ

	before map[string]counts // of each cluster, at the last look; nil: there was none. Of Run
	judges map[string]*judge // by cluster. Of Run

	mu    sync.Mutex // guards check
	check *fleet.Check
}

// New checks c.
func New(c Config) (*Watch, error) {
	if c.Envoy == nil || c.Exporting == nil {
		return nil, errors.New("a watch of what is exported needs an Envoy, and whether it exports")
	}
	if c.Every <= 0 {
		c.Every = DefaultEvery
	}
	if c.Confirm <= 0 {
		c.Confirm = DefaultConfirm
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	w := &Watch{c: c, pulse: make(chan struct{}, 1), gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "aether_telemetry_undelivered", Help: "1 while what Envoy exports does not arrive at the collector, as the check \"telemetry\" of /readyz says; else 0.",
	})}
	if c.Registerer != nil {
		if err := c.Registerer.Register(w.gauge); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Run looks until ctx is done, and returns nil then.
func (w *Watch) Run(ctx context.Context) error {
	look := time.NewTimer(w.c.Every)
	defer look.Stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			began := time.Now()
			w.look(ctx, began)
			look.Reset(max(w.c.Every, share*time.Since(began)))
		}
	}
}

// Checks is at most one check: none while nothing is known of the collector, or none is
// exported to.
func (w *Watch) Checks() []fleet.Check {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.check == nil {
		return nil
	}
	return []fleet.Check{*w.check}
}

// Observe returns a channel that receives when Checks has changed. It is for one reader;
// changes that it is late for are one.
func (w *Watch) Observe() <-chan struct{} { return w.pulse }

// look takes one look at Envoy.
func (w *Watch) look(ctx context.Context, now time.Time) {
	if !w.c.Exporting() {
		w.before, w.judges = nil, nil
		w.say(nil)
		return
	}
	stats, err := w.c.Envoy.Counters(ctx, filter)
	if err != nil { // it does not run, or is busy: what was is so until it says otherwise
		w.c.Log.Debug("look at what is exported", logkey.Error, err)
		return
	}
	w.take(now, stats)
}

// take judges what statistics say of the time since the last ones.
func (w *Watch) take(now time.Time, stats map[string]uint64) {
	seen := map[string]counts{}
	for _, cluster := range []string{exports, metrics} {
		seen[cluster] = read(stats, cluster)
	}
	if w.before == nil { // since when these are is not known
		w.before, w.judges = seen, map[string]*judge{exports: {confirm: w.c.Confirm}, metrics: {confirm: w.c.Confirm}}
		return
	}
	for cluster, j := range w.judges {
		j.take(now, seen[cluster].since(w.before[cluster]))
	}
	w.before = seen
	w.say(checkOf(w.judges[exports], w.judges[metrics]))
}

// checkOf is what two judgements are together: failed if one is, of which the reason tells.
func checkOf(exports, metrics *judge) *fleet.Check {
	c := fleet.Check{Name: fleet.CheckTelemetry, State: fleet.CheckOK}
	of := []*judge{exports, metrics}
	if slices.ContainsFunc(of, func(j *judge) bool { return j.said == bad }) {
		of = slices.DeleteFunc(of, func(j *judge) bool { return j.said != bad })
		c.State, c.Reason = fleet.CheckFailed, of[0].cause.String()
		if of[0] == metrics && exports.said == good {
			c.Reason += " (it is Envoy's metrics alone; access logs and traces arrive)"
		}
	}
	for _, j := range of {
		if j.said != idle && (c.Since.IsZero() || j.since.Before(c.Since)) {
			c.Since = j.since
		}
	}
	if c.Since.IsZero() {
		return nil
	}
	c.Since = c.Since.UTC().Truncate(time.Second)
	return &c
}

// say makes a check known, and tells the log when it begins and ceases to fail.
func (w *Watch) say(c *fleet.Check) {
	w.mu.Lock()
	was := w.check
	w.check = c
	w.mu.Unlock()
	if was == c || was != nil && c != nil && *was == *c {
		return
	}
	failed := func(c *fleet.Check) bool { return c != nil && c.State == fleet.CheckFailed }
	switch {
	case failed(c) && (!failed(was) || was.Reason != c.Reason):
		w.gauge.Set(1)
		w.c.Log.Warn("what is exported does not arrive at the collector; traffic goes on", logkey.Reason, c.Reason)
	case failed(was) && !failed(c):
		w.gauge.Set(0)
		w.c.Log.Info("what is exported arrives at the collector again, or nothing is exported any more")
	}
	select {
	case w.pulse <- struct{}{}:
	default: // there is one that nobody has seen
	}
}
