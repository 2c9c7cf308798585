package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/dynamic"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/provision/inventory"
	"aether.io/aether/internal/provision/pod"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/run"
)

const (
	callTimeout = 10 * time.Second
	maxRetry    = 30 * time.Second
	// DefaultRetry is how long before what failed is tried again; each time it fails again
	// that doubles, up to 30 s.
	DefaultRetry = time.Second
	// DefaultOverlap is for how long both Services of a Gateway are published after a change
	// between shared and dedicated proxies.
	DefaultOverlap = 5 * time.Minute
	// lingerPart is which part of the overlap an old Service stays after that, unpublished.
	lingerPart = 5
	// ReasonDropped is that of the Event that says what of a pod template is not allowed.
	ReasonDropped = "PodTemplateFieldDropped"
)

// Config is what an Engine is made from.
type Config struct {
	// Client is required. Its rights: get, create, patch and delete on Services, ServiceAccounts,
	// Deployments, PodDisruptionBudgets and HorizontalPodAutoscalers, and to list and watch the last four.
	Client    *rest.Config
	Namespace string // required: the release's
	// Namespaces are those in which dedicated Gateways are looked for. Empty: all.
	Namespaces []string
	Selector   map[string]string // required: labels of the shared proxies
	Template   *pod.Template     // the proxies' pod; nil: Gateways cannot have proxies of their own
	Overlap    time.Duration     // zero: DefaultOverlap
	Retry      time.Duration     // zero: DefaultRetry
	// OnLack takes why Gateways do not have what they need, all of them whenever that
	// changes. It must not call the engine. Nil: nobody wants to know.
	OnLack func(map[key.Name]condition.Problem)
	// Tell takes an Event about a Gateway. It must not block. Nil: nobody wants to know.
	Tell func(about corev1.ObjectReference, reason, note string)
	Log  *slog.Logger // nil: none
}

// Engine keeps Services and proxies as they are wanted. One replica runs it at a time.
type Engine struct {
	c         Config
	services  coreclient.ServicesGetter
	objects   dynamic.Interface
	inventory *inventory.Inventory
	wake      chan struct{} // capacity 1: something changed

	mu       sync.Mutex // guards what follows; not held while the API is called
	complete bool       // what follows is all there is
	fronts   map[key.Name]*front.Front
	seen     map[key.Name]*corev1.Service // every Service
	ready    map[key.Name]map[string]bool // by Service of ours: its slices with an endpoint that is ready
	trust    map[string]bool              // namespaces with a trust bundle

	// What follows is Run's alone.
	last    uint32 // the internal port that was handed out last
	built   map[key.Name]built
	applied map[inventory.Key]applied
	told    map[key.Name]string // what was told to be dropped
	lacks   map[key.Name]condition.Problem
	failed  int // rounds in a row
}

// New checks c. The engine does nothing before Run.
func New(c Config) (*Engine, error) {
	if c.Client == nil || c.Namespace == "" || len(c.Selector) == 0 {
		return nil, errors.New("provisioning needs a client configuration, a namespace and a selector")
	}
	if includes(pod.Selector(key.Name{Name: "any"}, "any"), c.Selector) {
		return nil, fmt.Errorf("the labels %v of the shared proxies are those of dedicated ones too", c.Selector)
	}
	if c.Retry == 0 {
		c.Retry = DefaultRetry
	}
	if c.Overlap == 0 {
		c.Overlap = DefaultOverlap
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Tell == nil {
		c.Tell = func(corev1.ObjectReference, string, string) {}
	}
	if c.OnLack == nil {
		c.OnLack = func(map[key.Name]condition.Problem) {}
	}
	one := rest.CopyConfig(c.Client)
	one.Timeout = callTimeout
	services, err := coreclient.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of Services: %w", err)
	}
	objects, err := dynamic.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of proxies' objects: %w", err)
	}
	e := &Engine{
		c: c, services: services, objects: objects, wake: make(chan struct{}, 1),
		fronts: map[key.Name]*front.Front{}, seen: map[key.Name]*corev1.Service{}, ready: map[key.Name]map[string]bool{}, trust: map[string]bool{},
		built: map[key.Name]built{}, applied: map[inventory.Key]applied{}, told: map[key.Name]string{}, lacks: map[key.Name]condition.Problem{},
	}
	e.inventory, err = inventory.New(inventory.Config{Client: c.Client, Namespaces: c.Namespaces, Changed: e.poke, Log: c.Log})
	return e, err
}

// Update takes changes of objects, of which Services, their EndpointSlices and trust bundles
// count, and fronts that changed; nil: none is wanted any more. Both at once, or a Service
// could be taken for one that is in front of nothing. Until they are complete nothing is done.
func (e *Engine) Update(changes []object.Change, wanted map[key.Name]*front.Front, complete bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range changes {
		at := key.Name{Namespace: c.Key.Namespace, Name: c.Key.Name}
		switch c.Key.Kind {
		case object.Service:
			e.observeService(at, c.Object)
		case object.EndpointSlice:
			e.observeSlice(at, c.Object)
		case object.ConfigMap:
			if at.Name == pod.TrustConfigMap && (c.Object != nil) != e.trust[at.Namespace] {
				e.trust[at.Namespace] = c.Object != nil
				e.poke()
			}
		default:
		}
	}
	for gw, f := range wanted {
		if f == nil {
			delete(e.fronts, gw)
		} else {
			e.fronts[gw] = f
		}
	}
	if len(wanted) > 0 || complete && !e.complete {
		e.poke()
	}
	e.complete = e.complete || complete
}

// observeService wakes the engine for Services of ours, and for those that may have been in
// the way of one. The caller holds mu.
func (e *Engine) observeService(at key.Name, o object.Object) {
	old := e.seen[at]
	now, there := o.(*corev1.Service)
	if there {
		e.seen[at] = now
	} else {
		delete(e.seen, at)
	}
	if old != nil && managed(old) || there && managed(now) || at.Namespace == e.c.Namespace || !there {
		e.poke()
	}
}

// observeSlice takes the slices of Services of ours, whose labels they have. The caller
// holds mu.
func (e *Engine) observeSlice(at key.Name, o object.Object) {
	s, there := o.(*discoveryv1.EndpointSlice)
	if !there || s.Labels[front.ManagedByLabel] != front.FieldManager {
		for of, slices := range e.ready { // few: those in front of Gateways
			if _, was := slices[at.Name]; was && of.Namespace == at.Namespace {
				delete(slices, at.Name)
				e.poke()
			}
		}
		return
	}
	of := key.Name{Namespace: at.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}
	is := false
	for _, end := range s.Endpoints {
		is = is || end.Conditions.Ready == nil || *end.Conditions.Ready
	}
	if e.ready[of] == nil {
		e.ready[of] = map[string]bool{}
	}
	if e.ready[of][at.Name] != is {
		e.poke()
	}
	e.ready[of][at.Name] = is
}

// Run makes what is wanted, and puts right what others change, until ctx is done. It can be
// called again.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		e.inventory.Run(ctx)
	}()
	defer func() { cancel(); <-done }()
	return run.Loop(ctx, e.wake, e.step)
}

// step makes what is wanted, and returns when to look even if nothing happens.
func (e *Engine) step(ctx context.Context) (again time.Time) {
	again, err := e.reconcile(ctx)
	if err == nil {
		e.failed = 0
		return again
	}
	if ctx.Err() != nil {
		return time.Time{}
	}
	e.failed++
	wait := min(e.c.Retry<<min(e.failed-1, 10), maxRetry)
	e.c.Log.Error("provision; will retry", logkey.Error, err, logkey.Wait, wait)
	if at := time.Now().Add(wait); again.IsZero() || at.Before(again) {
		again = at
	}
	return again
}

// say hands out why Gateways do not have what they need, if that is news.
func (e *Engine) say(lacks map[key.Name]condition.Problem) {
	if !maps.Equal(lacks, e.lacks) {
		e.lacks = lacks
		e.c.OnLack(maps.Clone(lacks))
	}
}

// poke wakes Run.
func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default: // a wake-up is pending and will see this too
	}
}
