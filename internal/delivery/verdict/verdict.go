// Package verdict puts together what proxies say of the collector that they export to, and
// gives each MeshConfig that has them export something a condition that tells of it. It asks
// neither proxies nor the collector: statuses of the graph, changes of objects and what is
// observed of proxies come in, conditions leave.
package verdict

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

const (
	// DefaultLull is how often it is looked at proxies at most: what they all say at once, as
	// when a collector goes, is told in few writes.
	DefaultLull = time.Second
	// DefaultComeback is how long nothing is told after the start: proxies have yet to connect.
	DefaultComeback = 10 * time.Second
)

// Collector is what proxies export to. The zero Collector is none, of which nothing is told.
type Collector struct {
	Address string     // host:port, for people
	CA      object.Key // the ConfigMap of its authorities; zero: the system's
	Metrics bool       // Envoys export their metrics to it, whatever MeshConfigs say
}

// Proxies says what is observed of proxies.
type Proxies interface {
	Proxies() []fleet.Proxy
	Observe() (events <-chan struct{}, stop func())
}

// Told is what is to be said of one MeshConfig.
type Told struct {
	Key        object.Key
	UID        types.UID
	Generation int64
	Condition  metav1.Condition // without times
	Absent     bool             // there is to be no condition of that type: it has nothing exported
}

// Config says what is looked at and who is told. Proxies and Tell are required.
type Config struct {
	Collector        Collector
	ReleaseNamespace string
	Proxies          Proxies
	// Tell and Forget, of one that is gone, are called with a lock held, so that the last one called
	// of an object is right: they do not wait, and do not call the Engine.
	Tell   func(Told)
	Forget func(object.Key)
	// Say is told what is wrong on the whole, in a sentence, and that nothing is any more: "".
	Say        func(string)
	Lull       time.Duration // default DefaultLull
	Comeback   time.Duration // default DefaultComeback
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Engine is a component. Update and Observe may be called at any time.
type Engine struct {
	c     Config
	gauge prometheus.Gauge
	wake  chan struct{} // capacity 1: Update or Observe brought something

	mu     sync.Mutex // guards what follows
	meshes map[object.Key]*mesh
	dirty  map[object.Key]bool
	bundle *bundle // nil: what the authorities are is not known yet

	// Of Run.
	tallies map[scope.Scope]tally
	fault   fault
	said    string // the reason that was logged last
}

// mesh is one MeshConfig. It is replaced and never changed, but for told.
type mesh struct {
	uid        types.UID
	generation int64
	exports    bool
	scopes     []scope.Scope // in which what it concerns is served
	told       *Told         // nil: nothing yet. Of Run
	seen       bool          // what was told is what proxies said. Of Run
}

// New checks c.
func New(c Config) (*Engine, error) {
	if c.Proxies == nil || c.Tell == nil {
		return nil, errors.New("a verdict of what is delivered needs proxies, and somebody to tell")
	}
	if c.Lull <= 0 {
		c.Lull = DefaultLull
	}
	if c.Comeback <= 0 {
		c.Comeback = DefaultComeback
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Forget == nil {
		c.Forget = func(object.Key) {}
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	e := &Engine{
		c: c, wake: make(chan struct{}, 1), meshes: map[object.Key]*mesh{}, dirty: map[object.Key]bool{},
		gauge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "aether_telemetry_undelivered_proxies", Help: "Connected proxies whose exports do not arrive at the collector.",
		}),
	}
	if c.Registerer != nil {
		if err := c.Registerer.Register(e.gauge); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Update takes what the graph says anew of objects.
func (e *Engine) Update(statuses []routing.Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range statuses {
		if s.Key.Kind != object.MeshConfig {
			continue
		}
		v, there := s.Value.(*configv1.MeshConfigStatus)
		if !there {
			if e.meshes[s.Key] != nil {
				delete(e.meshes, s.Key)
				e.c.Forget(s.Key)
			}
			continue
		}
		m := &mesh{uid: s.UID, generation: s.Generation, exports: e.exports(s.Key, v)}
		for _, r := range s.Live {
			if !slices.Contains(m.scopes, r.Scope) {
				m.scopes = append(m.scopes, r.Scope)
			}
		}
		if old := e.meshes[s.Key]; old != nil && old.uid == m.uid {
			m.told, m.seen = old.told, old.seen && old.exports && m.exports
		}
		e.meshes[s.Key], e.dirty[s.Key] = m, true
	}
	e.poke()
}

// exports reports whether a MeshConfig has proxies send something to the collector. What all
// send is the release namespace's to tell of.
func (e *Engine) exports(k object.Key, v *configv1.MeshConfigStatus) bool {
	if e.c.Collector.Address == "" {
		return false
	}
	if k.Namespace == e.c.ReleaseNamespace && e.c.Collector.Metrics {
		return true
	}
	of := v.Effective
	return of != nil && (of.Proxy.AccessLogsEnabled.Value || of.Proxy.TracingEnabled.Value && of.Proxy.TraceSampleRate.Value > 0)
}

// Observe takes changes of objects; synced says that with them all are known.
func (e *Engine) Observe(changes []object.Change, synced bool) {
	ca := e.c.Collector.CA
	if ca == (object.Key{}) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range changes {
		if c.Key == ca {
			e.bundle = read(c.Object)
			e.poke()
		}
	}
	if synced && e.bundle == nil {
		e.bundle = read(nil)
		e.poke()
	}
}

func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default: // a wake-up is already pending and will see this too
	}
}

// Run tells until ctx is done, and returns nil then.
func (e *Engine) Run(ctx context.Context) error {
	events, stop := e.c.Proxies.Observe()
	defer stop()
	look := time.NewTimer(e.c.Comeback)
	defer look.Stop()
	begun, waits := false, true // look is due, and there is something to look at
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
		case <-e.wake:
		case <-look.C:
			begun, waits = true, false
			if again := e.pass(e.c.Now()); again > 0 {
				look.Reset(again)
			}
			continue
		}
		if begun && !waits {
			waits = true
			look.Reset(e.c.Lull)
		}
	}
}

// pass tells what is different, and returns when to look even if nothing happens; 0: never.
func (e *Engine) pass(now time.Time) time.Duration {
	tallies, all := count(e.c.Proxies.Proxies())
	e.mu.Lock()
	fault, again := e.bundle.fault(e.c.Collector.CA, now)
	everyone := fault != e.fault || !maps.EqualFunc(tallies, e.tallies, tally.equal)
	e.fault, e.tallies = fault, tallies
	sums := &sums{by: tallies, address: e.c.Collector.Address, known: map[string]sum{}}
	for _, k := range slices.SortedFunc(maps.Keys(e.meshes), object.Key.Compare) {
		if m := e.meshes[k]; everyone || e.dirty[k] {
			if t := e.decide(k, m, sums); m.told == nil || *m.told != t {
				m.told = &t
				e.c.Tell(t)
			}
		}
	}
	e.dirty = map[object.Key]bool{}
	e.mu.Unlock()
	if everyone {
		e.sum(all)
	}
	return again
}

// decide is what is to be said of one MeshConfig. The caller holds mu.
func (e *Engine) decide(k object.Key, m *mesh, sums *sums) Told {
	t := Told{Key: k, UID: m.uid, Generation: m.generation, Condition: metav1.Condition{Type: configv1.MeshConfigTelemetryDelivered}}
	if !m.exports || len(m.scopes) == 0 {
		t.Absent, m.seen = true, false
		return t
	}
	set := func(s metav1.ConditionStatus, reason, message string) {
		t.Condition.Status, t.Condition.Reason, t.Condition.Message = s, reason, message
	}
	of := sums.of(m.scopes)
	switch known := len(of.failing)+of.arriving > 0; {
	case e.fault != (fault{}):
		m.seen = false
		set(metav1.ConditionFalse, e.fault.reason, e.fault.text)
	case len(of.failing) > 0:
		m.seen = true
		set(metav1.ConditionFalse, of.reason, of.message)
	case known:
		m.seen = true
		set(metav1.ConditionTrue, configv1.MeshConfigReasonDelivered, "what proxies send to "+e.c.Collector.Address+" arrives")
	case m.seen && m.told != nil: // those who knew went, and those who came have sent nothing yet
		t.Condition = m.told.Condition
	default:
		set(metav1.ConditionUnknown, configv1.MeshConfigReasonNothingSent, "no proxy has had anything to send to "+e.c.Collector.Address+" yet")
	}
	return t
}

// sum says what is wrong on the whole, and logs it when it is another matter than before.
func (e *Engine) sum(all tally) {
	e.gauge.Set(float64(len(all.failing)))
	reason, text := "", ""
	switch {
	case e.c.Collector.Address == "":
	case e.fault != (fault{}):
		reason, text = e.fault.reason, e.fault.text
	case len(all.failing) > 0:
		reason, text = all.reason(), all.message(e.c.Collector.Address)
	}
	if reason == "" {
		e.c.Say("")
	} else {
		e.c.Say(reason + ": " + text)
	}
	switch {
	case reason == e.said:
	case reason == "":
		e.c.Log.Info("what proxies export arrives at the collector again, or nothing is exported any more", logkey.Endpoint, e.c.Collector.Address)
	default:
		e.c.Log.Warn("what proxies export does not arrive at the collector", logkey.Endpoint, e.c.Collector.Address, logkey.Reason, strings.TrimSpace(reason+": "+text))
	}
	e.said = reason
}
