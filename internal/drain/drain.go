package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/logkey"
)

// every is how often Envoy is looked at while its connections end.
const every = 200 * time.Millisecond

// Envoy is what is drained.
type Envoy interface {
	// Revive takes WindDown back.
	Revive(ctx context.Context) error
	// WindDown has it end each connection with the next answer on it.
	WindDown(ctx context.Context) error
	// Connections is how many connections clients have to it.
	Connections(ctx context.Context) (int, error)
}

// Config is what a Drain is made from. Envoy and Terms are required.
type Config struct {
	Envoy      Envoy
	Absent     error // what Envoy's errors are if there is no Envoy: then nothing is to be drained
	Terms      Terms
	OnChange   func(State) // called by Run for each new phase; must not block
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Drain is the drain of one proxy, before, while and after it happens.
type Drain struct {
	c     Config
	asked chan struct{} // capacity 1: Begin was called
	over  chan struct{} // closed when Drained
	gauge prometheus.Gauge

	mu    sync.Mutex // guards state; written by Begin and Run
	state State
}

// New checks c.
func New(c Config) (*Drain, error) {
	switch {
	case c.Envoy == nil:
		return nil, errors.New("a drain needs an Envoy")
	case c.Terms.Delay < 0 || c.Terms.Timeout <= c.Terms.Delay:
		return nil, fmt.Errorf("a drain of at most %s cannot begin with a delay of %s", c.Terms.Timeout, c.Terms.Delay)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	d := &Drain{c: c, asked: make(chan struct{}, 1), over: make(chan struct{}), gauge: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "aether_drain_phase", Help: "How far the proxy's drain is: 0 serving, 1 not ready any more, 2 connections are ended, 3 over.",
	})}
	if c.Registerer != nil {
		if err := c.Registerer.Register(d.gauge); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Begin begins the drain. It changes nothing if it has begun.
func (d *Drain) Begin() {
	d.mu.Lock()
	before := d.state.Phase
	d.state = d.state.Begin(time.Now())
	d.mu.Unlock()
	if before != Serving {
		return
	}
	select {
	case d.asked <- struct{}{}:
	default: // cannot be: it leaves Serving once
	}
}

// State is how far the drain is.
func (d *Drain) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// Over is closed when the drain is.
func (d *Drain) Over() <-chan struct{} { return d.over }

// Run drains when it is asked to, until ctx is done. Envoy may have been told to end its
// connections by a process before this one, which did not see it through: that is taken back.
func (d *Drain) Run(ctx context.Context) error {
	if err := d.c.Envoy.Revive(ctx); err != nil && !d.absent(err) {
		d.c.Log.Warn("envoy may still end its connections, as it was told earlier", logkey.Error, err)
	}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	told := false
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.asked:
			d.tell(ctx, d.State())
		case <-timer.C:
			d.step(ctx, &told)
		}
		if due := d.State().Due(d.c.Terms, time.Now(), every); due > 0 {
			timer.Reset(due)
		}
	}
}

// step looks at Envoy, if that matters yet, and goes on.
func (d *Drain) step(ctx context.Context, told *bool) {
	seen := Sight{Connections: -1}
	if d.State().Phase == Waning {
		seen = d.look(ctx, told)
	}
	d.mu.Lock()
	before := d.state.Phase
	d.state = d.state.Next(d.c.Terms, seen, time.Now())
	after := d.state
	d.mu.Unlock()
	if after.Phase != before {
		d.tell(ctx, after)
	}
}

// look tells Envoy to end its connections, until that has been heard once, and counts them.
func (d *Drain) look(ctx context.Context, told *bool) Sight {
	if !*told {
		if err := d.c.Envoy.WindDown(ctx); err != nil {
			return d.blind(err)
		}
		*told = true
	}
	n, err := d.c.Envoy.Connections(ctx)
	if err != nil {
		return d.blind(err)
	}
	return Sight{Told: true, Connections: n}
}

// blind is what is seen if Envoy does not answer: nothing, or that it is not there.
func (d *Drain) blind(err error) Sight {
	if d.absent(err) {
		return Sight{Gone: true}
	}
	d.c.Log.Warn("envoy does not answer while it drains; will ask again", logkey.Error, err)
	return Sight{Connections: -1}
}

func (d *Drain) absent(err error) bool { return d.c.Absent != nil && errors.Is(err, d.c.Absent) }

func (d *Drain) tell(ctx context.Context, s State) {
	d.gauge.Set(float64(s.Phase))
	level := slog.LevelInfo
	if s.Cut {
		level = slog.LevelWarn
	}
	d.c.Log.Log(ctx, level, "drain", logkey.State, s.Phase.String(), logkey.Count, s.Connections, logkey.Duration, time.Since(s.Begun))
	if d.c.OnChange != nil {
		d.c.OnChange(s)
	}
	if s.Phase == Drained {
		close(d.over) // once: Drained is never left
	}
}
