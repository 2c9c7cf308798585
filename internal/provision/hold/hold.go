// Package hold keeps GatewayClasses of ours that Gateways use: each has the Gateway API's
// finalizer, so deleting it takes nothing down. It goes when the last Gateway has gone. What
// there is comes in by Observe.
package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/run"
)

// Finalizer is the one of the specification.
const Finalizer = gatewayv1.GatewayClassFinalizerGatewaysExist

const (
	callTimeout  = 10 * time.Second
	defaultRetry = time.Second
	fieldManager = "aether-controller"
)

var resource = schema.GroupVersion(gatewayv1.GroupVersion).WithResource("gatewayclasses")

// Config is what an Engine is made from.
type Config struct {
	Client         *rest.Config  // required; its rights: get and patch on GatewayClasses
	ControllerName string        // required: whose classes are ours
	Retry          time.Duration // before what failed is tried again; zero: 1 s
	Log            *slog.Logger  // nil: none
}

// Engine holds classes. One replica runs it at a time.
type Engine struct {
	c       Config
	classes dynamic.NamespaceableResourceInterface
	wake    chan struct{} // capacity 1: something changed

	mu       sync.Mutex // guards what follows; not held while the API is called
	ours     map[string]*gatewayv1.GatewayClass
	gateways map[object.Key]string // the class that each names
	complete bool                  // they are all that there are
}

// New checks c. The engine does nothing before Run.
func New(c Config) (*Engine, error) {
	if c.Client == nil || c.ControllerName == "" {
		return nil, errors.New("holding GatewayClasses needs a client configuration and the controller's name")
	}
	if c.Retry == 0 {
		c.Retry = defaultRetry
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	one := rest.CopyConfig(c.Client)
	one.Timeout = callTimeout
	client, err := dynamic.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of GatewayClasses: %w", err)
	}
	return &Engine{
		c: c, classes: client.Resource(resource), wake: make(chan struct{}, 1),
		ours: map[string]*gatewayv1.GatewayClass{}, gateways: map[object.Key]string{},
	}, nil
}

// Observe takes changes of objects, of which Gateways and their classes count. Before they are
// complete nothing is done: a class of which no Gateway is known would be let go.
func (e *Engine) Observe(changes []object.Change, complete bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	moved := complete && !e.complete
	e.complete = e.complete || complete
	for _, c := range changes {
		switch c.Key.Kind {
		case object.GatewayClass:
			delete(e.ours, c.Key.Name)
			if class, there := c.Object.(*gatewayv1.GatewayClass); there && string(class.Spec.ControllerName) == e.c.ControllerName {
				e.ours[c.Key.Name] = class
			}
		case object.Gateway:
			delete(e.gateways, c.Key)
			if gw, there := c.Object.(*gatewayv1.Gateway); there {
				e.gateways[c.Key] = string(gw.Spec.GatewayClassName)
			}
		default:
			continue
		}
		moved = true
	}
	if !moved {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default: // a wake-up is pending and will see this too
	}
}

// Run holds and lets go until ctx is done. It can be called again.
func (e *Engine) Run(ctx context.Context) error {
	return run.Loop(ctx, e.wake, func(ctx context.Context) (again time.Time) {
		err := e.apply(ctx)
		if err == nil || ctx.Err() != nil {
			return time.Time{}
		}
		e.c.Log.Error("hold GatewayClasses; will retry", logkey.Error, err, logkey.Wait, e.c.Retry)
		return time.Now().Add(e.c.Retry)
	})
}

// decide is which classes are not as they are to be: by name, whether they are to be held.
func decide(ours map[string]*gatewayv1.GatewayClass, gateways map[object.Key]string) map[string]bool {
	used := map[string]bool{}
	for _, class := range gateways {
		used[class] = true
	}
	out := map[string]bool{}
	for name, class := range ours {
		if _, differs := finalizers(class, used[name]); differs {
			out[name] = used[name]
		}
	}
	return out
}

// finalizers are those that a class is to have, and whether it has others.
func finalizers(class metav1.Object, hold bool) ([]string, bool) {
	now := class.GetFinalizers()
	switch held := slices.Contains(now, Finalizer); {
	// What is being deleted takes no finalizer any more.
	case hold && !held && class.GetDeletionTimestamp().IsZero():
		return append(slices.Clone(now), Finalizer), true
	case !hold && held:
		return slices.DeleteFunc(slices.Clone(now), func(f string) bool { return f == Finalizer }), true
	}
	return now, false
}

// apply does what is to be done about what was seen last.
func (e *Engine) apply(ctx context.Context) error {
	e.mu.Lock()
	var edits map[string]bool
	if e.complete {
		edits = decide(e.ours, e.gateways)
	}
	e.mu.Unlock()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(edits)) {
		if err := e.edit(ctx, name, edits[name]); err != nil {
			errs = append(errs, fmt.Errorf("finalizers of GatewayClass %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// edit reads the class first: what was seen may be older, as a status that was written since
// is not seen here.
func (e *Engine) edit(ctx context.Context, name string, hold bool) error {
	now, err := e.classes.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	next, differs := finalizers(now, hold)
	if !differs {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": now.GetResourceVersion(), "finalizers": next}})
	if err != nil {
		return err
	}
	if _, err := e.classes.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return err
	}
	e.c.Log.Info("GatewayClass finalizers written", logkey.Object, name, logkey.Count, len(next))
	return nil
}
