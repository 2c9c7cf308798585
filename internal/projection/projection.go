// Package projection has every valid MeshConfig in one ConfigMap of the release namespace,
// where those read it who do not ask the API: under mesh-config.yaml that of the release
// namespace, under ns.<namespace>.yaml that of each other one. What is in effect where is
// worked out by who reads it.
//
// Objects come in by Observe and the ConfigMap, as others leave it, by Seen; the leader
// writes (Run); and what became of each object goes out by Tell. It serves no proxy and
// writes no status.
package projection

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/object"
)

// DefaultPause is how long after a write the next may come, so that many changes are few of them.
const DefaultPause = 500 * time.Millisecond

// Name is the ConfigMap of a release.
func Name(release string) string { return release + "-mesh-config" }

// ReleaseKey is where the MeshConfig of the release namespace is.
const ReleaseKey = "mesh-config.yaml"

// Parts of the other keys. A namespace has no dot in its name.
const (
	keyPrefix = "ns."
	keySuffix = ".yaml"
)

// Ours reports whether an entry of that key is ours, whoever wrote it: readers take it for
// a MeshConfig.
func Ours(key string) bool {
	ns, prefixed := strings.CutPrefix(key, keyPrefix)
	ns, suffixed := strings.CutSuffix(ns, keySuffix)
	return key == ReleaseKey || prefixed && suffixed && ns != "" && !strings.Contains(ns, ".")
}

// Place is the ConfigMap: a *configmap.Part.
type Place interface {
	Look(ctx context.Context) (configmap.State, error)
	Replace(ctx context.Context, was configmap.State, text map[string]string) (configmap.State, error)
	Of(m *corev1.ConfigMap) configmap.State
}

// Config is what an Engine is made from.
type Config struct {
	Place     Place         // required
	Namespace string        // required: the release's
	Name      string        // required: the ConfigMap's
	Pause     time.Duration // zero: DefaultPause
	// Tell takes what became of an object, whenever that is something else than before, while
	// Run runs. It must not block. Required.
	Tell func(Told)
	// Forget takes an object of which nothing is told any more. It must not block. Required.
	Forget     func(object.Key)
	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: no metrics
}

// Told is what became of an object.
type Told struct {
	Key        object.Key
	UID        types.UID
	Generation int64
	Condition  metav1.Condition // Projected, without a time of transition
}

// Engine keeps the ConfigMap as the objects are. One replica runs it at a time.
type Engine struct {
	c       Config
	at      object.Key    // the ConfigMap
	wake    chan struct{} // capacity 1: there may be something to write
	metrics *metrics

	mu       sync.Mutex // guards what follows; not held while the API is called
	complete bool       // entries is all there is
	changed  bool       // since it was planned last
	stale    bool       // the ConfigMap may not be as known
	entries  map[string]*entry
	known    *configmap.State    // what was there last; nil: not known
	said     map[object.Key]Told // as it was told
}

// entry is the MeshConfig of one namespace. Of one that is in the engine only text and looked change.
type entry struct {
	spec       *configv1.MeshConfigSpec // in effect, if there is one
	inEffect   bool
	uid        types.UID // of the version that is refused, if that is known, or in effect; as the next
	generation int64
	refused    string // why what is written now is not in effect; empty: it is
	text       string // what it is projected as; empty: not known yet, or nothing
	looked     bool   // the ConfigMap was looked at, for what is known of it
}

// New checks c. The engine does nothing before Run.
func New(c Config) (*Engine, error) {
	if c.Place == nil || c.Namespace == "" || c.Name == "" || c.Tell == nil || c.Forget == nil {
		return nil, errors.New("projection needs a ConfigMap, its name and its namespace, and somebody to tell")
	}
	if c.Pause == 0 {
		c.Pause = DefaultPause
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{
		c: c, at: object.Key{Kind: object.ConfigMap, Namespace: c.Namespace, Name: c.Name}, wake: make(chan struct{}, 1),
		metrics: newMetrics(), entries: map[string]*entry{}, said: map[object.Key]Told{},
	}
	if c.Registerer != nil {
		if err := e.metrics.register(c.Registerer); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Observe takes changes of objects, of which MeshConfigs count, and the end of the ConfigMap.
// Before they are complete nothing is written: what is not known yet would be taken out.
func (e *Engine) Observe(changes []object.Change, complete bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if complete && !e.complete {
		e.complete, e.changed = true, true
		e.poke()
	}
	for _, c := range changes {
		switch {
		case c.Key.Kind == object.MeshConfig && c.Key.Name == configv1.MeshConfigName:
			e.set(c)
		case c.Key == e.at && c.Object == nil:
			e.stale = true
		default:
			continue
		}
		e.poke()
	}
}

// set takes one MeshConfig in. The caller holds mu.
func (e *Engine) set(c object.Change) {
	e.changed = true
	before := e.entries[c.Key.Namespace]
	if c.Object == nil && c.Refused == "" {
		delete(e.entries, c.Key.Namespace)
		return
	}
	next := &entry{refused: c.Refused}
	if o, is := c.Object.(*configv1.MeshConfig); is {
		next.spec, next.inEffect, next.uid, next.generation = o.Spec, true, o.UID, o.Generation
	} else if before != nil {
		next.text, next.looked = before.text, before.looked
	}
	if c.Refused != "" && c.Generation > 0 {
		next.uid, next.generation = c.UID, c.Generation
	}
	e.entries[c.Key.Namespace] = next
}

// Seen looks at a version of an object as it came from the API, all of it. Others may have
// written to the ConfigMap. The object is not kept.
func (e *Engine) Seen(k object.Key, o object.Object) {
	m, is := o.(*corev1.ConfigMap)
	if !is || k != e.at {
		return
	}
	now := e.c.Place.Of(m)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.known != nil && (now.Version == e.known.Version || same(now, e.known.Text) && now.Foreign == e.known.Foreign) {
		return
	}
	e.stale = true // or it is as it was before the last write, which costs a look
	e.poke()
}

// poke wakes Run.
func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default: // a wake-up is pending and will see this too
	}
}
