package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

const (
	callTimeout = 10 * time.Second
	// DefaultRetry is how long before what failed is tried again.
	DefaultRetry = time.Second
)

// Config is what an Engine is made from.
type Config struct {
	Client    *rest.Config      // required; its rights: create, patch and delete on Services of the namespace
	Namespace string            // required: the release's
	Selector  map[string]string // required: labels of the shared proxies
	Retry     time.Duration     // zero: DefaultRetry
	Log       *slog.Logger      // nil: none
}

// Engine keeps the Services as they are wanted. One replica runs it at a time.
type Engine struct {
	c        Config
	services coreclient.ServiceInterface
	wake     chan struct{} // capacity 1: something changed

	mu     sync.Mutex // guards what follows; not held while the API is called
	fronts map[key.Name]front.Front
	seen   map[string]*corev1.Service
	lacks  map[key.Name]string
}

// New checks c. The engine does nothing before Run.
func New(c Config) (*Engine, error) {
	if c.Client == nil || c.Namespace == "" || len(c.Selector) == 0 {
		return nil, errors.New("provisioning needs a client configuration, a namespace and a selector")
	}
	if c.Retry == 0 {
		c.Retry = DefaultRetry
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	one := rest.CopyConfig(c.Client)
	one.Timeout = callTimeout
	client, err := coreclient.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of Services: %w", err)
	}
	return &Engine{
		c: c, services: client.Services(c.Namespace), wake: make(chan struct{}, 1),
		fronts: map[key.Name]front.Front{}, seen: map[string]*corev1.Service{}, lacks: map[key.Name]string{},
	}, nil
}

// Want takes fronts that changed; nil: none is wanted any more.
func (e *Engine) Want(changed map[key.Name]*front.Front) {
	if len(changed) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for gw, f := range changed {
		if f == nil {
			delete(e.fronts, gw)
		} else {
			e.fronts[gw] = *f
		}
	}
	e.poke()
}

// Observe takes changes of objects, of which Services of the release namespace count.
func (e *Engine) Observe(changes []object.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range changes {
		if c.Key.Kind != object.Service || c.Key.Namespace != e.c.Namespace {
			continue
		}
		if s, ok := c.Object.(*corev1.Service); ok {
			e.seen[c.Key.Name] = s
		} else {
			delete(e.seen, c.Key.Name)
		}
		e.poke()
	}
}

// Lacks is why Gateways do not have what they need.
func (e *Engine) Lacks() map[key.Name]string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.lacks)
}

// Run makes what is wanted, and puts right what others change, until ctx is done.
func (e *Engine) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.wake:
		case <-retry.C:
		}
		if err := e.reconcile(ctx); err != nil && ctx.Err() == nil {
			e.c.Log.Error("provision; will retry", logkey.Error, err, logkey.Wait, e.c.Retry)
			retry.Reset(e.c.Retry)
		}
	}
}

// reconcile does what is planned for what was seen last. What it does comes back by
// Observe, so a plan on something old is made again on something newer.
func (e *Engine) reconcile(ctx context.Context) error {
	e.mu.Lock()
	p := Services(e.c.Namespace, e.c.Selector, slices.Collect(maps.Values(e.fronts)), slices.Collect(maps.Values(e.seen)))
	e.lacks = p.Lacks
	e.mu.Unlock()
	var errs []error
	for _, s := range p.Apply {
		made, err := e.services.Apply(ctx, s, metav1.ApplyOptions{FieldManager: front.FieldManager, Force: true})
		if err != nil {
			errs = append(errs, fmt.Errorf("apply Service %s: %w", *s.Name, err))
			continue
		}
		e.mu.Lock()
		e.seen[*s.Name] = made // its ports are taken from now on, not from when it is observed
		e.mu.Unlock()
		e.c.Log.Info("Service applied", logkey.Object, *s.Name)
	}
	for _, name := range p.Delete {
		if err := e.services.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete Service %s: %w", name, err))
			continue
		}
		e.c.Log.Info("Service deleted", logkey.Object, name)
	}
	return errors.Join(errs...)
}

// poke wakes Run. The caller holds mu.
func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default: // a wake-up is pending and will see this too
	}
}
