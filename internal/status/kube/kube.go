// Package kube writes statuses to the Kubernetes API. It touches only what is ours: the
// entries of our controller, and conditions of the types that we know. An object that is
// already as it should be is read and not written.
package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/status"
)

const (
	callTimeout  = 10 * time.Second // of one request
	maxConflicts = 10               // tries of one write that another writer is ahead of
)

// Config is what a Sink is made from. All is required.
type Config struct {
	Client         *rest.Config // its rights: get on the kinds that have a status, update on their status
	ControllerName string       // whose entries are ours
}

// Sink writes statuses to the API. It is safe for concurrent use.
type Sink struct {
	controller gatewayv1.GatewayController
	clients    map[object.Kind]rest.Interface
}

// described is every kind whose status we write, and where.
func described() map[object.Kind]struct {
	resource schema.GroupVersionResource
	empty    func() object.Object
} {
	type at = struct {
		resource schema.GroupVersionResource
		empty    func() object.Object
	}
	return map[object.Kind]at{
		object.GatewayClass:     {schema.GroupVersion(gatewayv1.GroupVersion).WithResource("gatewayclasses"), func() object.Object { return &gatewayv1.GatewayClass{} }},
		object.Gateway:          {schema.GroupVersion(gatewayv1.GroupVersion).WithResource("gateways"), func() object.Object { return &gatewayv1.Gateway{} }},
		object.ListenerSet:      {schema.GroupVersion(gatewayv1.GroupVersion).WithResource("listenersets"), func() object.Object { return &gatewayv1.ListenerSet{} }},
		object.HTTPRoute:        {schema.GroupVersion(gatewayv1.GroupVersion).WithResource("httproutes"), func() object.Object { return &gatewayv1.HTTPRoute{} }},
		object.BackendTLSPolicy: {schema.GroupVersion(gatewayv1.GroupVersion).WithResource("backendtlspolicies"), func() object.Object { return &gatewayv1.BackendTLSPolicy{} }},
		object.MeshConfig:       {configv1.GroupVersion().WithResource("meshconfigs"), func() object.Object { return &configv1.MeshConfig{} }},
	}
}

// New checks c. It does not call the API.
func New(c Config) (*Sink, error) {
	if c.Client == nil || c.ControllerName == "" {
		return nil, errors.New("a sink of statuses needs a client configuration and a controller name")
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(gatewayv1.Install(scheme), configv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	s := &Sink{controller: gatewayv1.GatewayController(c.ControllerName), clients: map[object.Kind]rest.Interface{}}
	for kind, at := range described() {
		gv := at.resource.GroupVersion()
		one := rest.CopyConfig(c.Client)
		one.APIPath, one.GroupVersion = "/apis", &gv
		one.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		one.Timeout = callTimeout
		client, err := rest.RESTClientFor(one)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", at.resource.GroupResource(), err)
		}
		s.clients[kind] = client
	}
	return s, nil
}

// Write brings what is ours of the object's status to what d says. An object that is gone
// is no error: what is said of it is gone with it.
func (s *Sink) Write(ctx context.Context, d status.Document) error {
	return s.change(ctx, d.Key, func(o object.Object) error { return s.merge(o, d.Status) })
}

// Remove takes what is ours out of the object's status.
func (s *Sink) Remove(ctx context.Context, k object.Key) error {
	return s.change(ctx, k, func(o object.Object) error { s.clear(o); return nil })
}

// KeepOnly takes our entries out of routes and policies that have them of an earlier
// process and are not among keys.
func (s *Sink) KeepOnly(ctx context.Context, keys []object.Key) error {
	keep := make(map[object.Key]bool, len(keys))
	for _, k := range keys {
		keep[k] = true
	}
	var errs []error
	for _, of := range []struct {
		kind object.Kind
		list func() ([]object.Object, error)
	}{
		{object.HTTPRoute, func() ([]object.Object, error) {
			var list gatewayv1.HTTPRouteList
			err := s.list(ctx, object.HTTPRoute, &list)
			return pointers(list.Items), err
		}},
		{object.BackendTLSPolicy, func() ([]object.Object, error) {
			var list gatewayv1.BackendTLSPolicyList
			err := s.list(ctx, object.BackendTLSPolicy, &list)
			return pointers(list.Items), err
		}},
	} {
		all, err := of.list()
		if err != nil && !apierrors.IsNotFound(err) { // not found: the kind is not installed
			errs = append(errs, fmt.Errorf("list %s: %w", of.kind, err))
		}
		for _, o := range all {
			k := object.Key{Kind: of.kind, Namespace: o.GetNamespace(), Name: o.GetName()}
			if !keep[k] && s.clear(o) {
				errs = append(errs, s.Remove(ctx, k))
			}
		}
	}
	return errors.Join(errs...)
}

// pointers is the items of a list as objects.
func pointers[T any, P interface {
	*T
	object.Object
}](items []T) []object.Object {
	out := make([]object.Object, len(items))
	for i := range items {
		out[i] = P(&items[i])
	}
	return out
}

func (s *Sink) list(ctx context.Context, k object.Kind, into runtime.Object) error {
	return s.clients[k].Get().Resource(described()[k].resource.Resource).Do(ctx).Into(into)
}

// change reads an object, edits it and writes its status if that made a difference. A
// write that another is ahead of is done again with what the other wrote.
func (s *Sink) change(ctx context.Context, k object.Key, edit func(object.Object) error) error {
	client, known := s.clients[k.Kind]
	if !known {
		return fmt.Errorf("write status of %s: its kind has none", k)
	}
	at := described()[k.Kind]
	request := func(r *rest.Request) *rest.Request {
		return r.NamespaceIfScoped(k.Namespace, k.Kind.Namespaced()).Resource(at.resource.Resource).Name(k.Name)
	}
	// Exits: gone; as it should be already; written; another error than a conflict; too many conflicts.
	for try := 1; ; try++ {
		now := at.empty()
		err := request(client.Get()).Do(ctx).Into(now)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", k, err)
		}
		before := now.DeepCopyObject()
		if err := edit(now); err != nil {
			return fmt.Errorf("write status of %s: %w", k, err)
		}
		if equality.Semantic.DeepEqual(before, now) {
			return nil
		}
		err = request(client.Put()).SubResource("status").Body(now).Do(ctx).Error()
		switch {
		case err == nil || apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || try == maxConflicts:
			return fmt.Errorf("write status of %s: %w", k, err)
		}
	}
}

// merge puts what is wanted in the place of what is ours.
func (s *Sink) merge(o object.Object, wanted any) error {
	switch v := wanted.(type) {
	case *gatewayv1.GatewayClassStatus:
		o := o.(*gatewayv1.GatewayClass)
		o.Status.SupportedFeatures = v.SupportedFeatures
		mergeConditions(&o.Status.Conditions, v.Conditions)
	case *gatewayv1.GatewayStatus:
		o := o.(*gatewayv1.Gateway)
		next := v.DeepCopy()
		next.Conditions = o.Status.Conditions
		mergeConditions(&next.Conditions, v.Conditions)
		keepListeners(o.Status.Listeners, next.Listeners, func(l gatewayv1.ListenerStatus) (gatewayv1.SectionName, []metav1.Condition) {
			return l.Name, l.Conditions
		})
		o.Status = *next
	case *gatewayv1.ListenerSetStatus:
		o := o.(*gatewayv1.ListenerSet)
		next := v.DeepCopy()
		next.Conditions = o.Status.Conditions
		mergeConditions(&next.Conditions, v.Conditions)
		keepListeners(o.Status.Listeners, next.Listeners, func(l gatewayv1.ListenerEntryStatus) (gatewayv1.SectionName, []metav1.Condition) {
			return l.Name, l.Conditions
		})
		o.Status = *next
	case *gatewayv1.HTTPRouteStatus:
		o := o.(*gatewayv1.HTTPRoute)
		o.Status.Parents = mergeEntries(s, o.Status.Parents, v.Parents, maxParents, parent)
	case *gatewayv1.PolicyStatus:
		o := o.(*gatewayv1.BackendTLSPolicy)
		o.Status.Ancestors = mergeEntries(s, o.Status.Ancestors, v.Ancestors, maxAncestors, ancestor)
	case *configv1.MeshConfigStatus:
		o := o.(*configv1.MeshConfig)
		next := v.DeepCopy()
		next.Conditions = o.Status.Conditions
		mergeConditions(&next.Conditions, v.Conditions)
		o.Status = *next
	default:
		return fmt.Errorf("a status of type %T is not known", wanted)
	}
	return nil
}

// clear takes what is ours out of a status that other controllers write too, and reports
// whether there was anything. A Gateway that is another class's now is its controller's
// to describe.
func (s *Sink) clear(o object.Object) bool {
	switch o := o.(type) {
	case *gatewayv1.HTTPRoute:
		before := len(o.Status.Parents)
		o.Status.Parents = mergeEntries(s, o.Status.Parents, nil, maxParents, parent)
		return len(o.Status.Parents) != before
	case *gatewayv1.BackendTLSPolicy:
		before := len(o.Status.Ancestors)
		o.Status.Ancestors = mergeEntries(s, o.Status.Ancestors, nil, maxAncestors, ancestor)
		return len(o.Status.Ancestors) != before
	}
	return false
}

// entry is what routes and policies have of each parent: who wrote it, about what.
type entry struct {
	controller gatewayv1.GatewayController
	about      *gatewayv1.ParentReference
	conditions *[]metav1.Condition
}

func parent(p *gatewayv1.RouteParentStatus) entry {
	return entry{p.ControllerName, &p.ParentRef, &p.Conditions}
}

func ancestor(p *gatewayv1.PolicyAncestorStatus) entry {
	return entry{p.ControllerName, &p.AncestorRef, &p.Conditions}
}

// The most entries that the API takes.
const (
	maxParents   = 32
	maxAncestors = 16
)

// mergeEntries returns those of other controllers as they are, in front, and ours as they
// are wanted, as far as there is room: others' are not ours to push out.
func mergeEntries[T any](s *Sink, now, wanted []T, limit int, of func(*T) entry) []T {
	out := make([]T, 0, len(now)+len(wanted)) // never nil: the API wants a list
	for i := range now {
		if of(&now[i]).controller != s.controller {
			out = append(out, now[i])
		}
	}
	for i := range wanted[:min(len(wanted), max(0, limit-len(out)))] {
		next := wanted[i]
		e := of(&next)
		*e.conditions = append([]metav1.Condition(nil), *e.conditions...)
		if e.about.Group == nil { // the API server's defaults, or every look would find a difference
			e.about.Group = ptr.To(gatewayv1.Group(gatewayv1.GroupName))
		}
		if e.about.Kind == nil {
			e.about.Kind = ptr.To(gatewayv1.Kind("Gateway"))
		}
		for j := range now {
			if old := of(&now[j]); old.controller == s.controller && equality.Semantic.DeepEqual(old.about, e.about) {
				keepTransitions(*old.conditions, *e.conditions)
			}
		}
		out = append(out, next)
	}
	return out
}

// mergeConditions sets the wanted ones and leaves those of other types.
func mergeConditions(now *[]metav1.Condition, wanted []metav1.Condition) {
	wanted = append([]metav1.Condition(nil), wanted...)
	keepTransitions(*now, wanted)
	out := append([]metav1.Condition(nil), *now...)
	for _, w := range wanted {
		found := false
		for i := range out {
			if out[i].Type == w.Type {
				out[i], found = w, true
			}
		}
		if !found {
			out = append(out, w)
		}
	}
	*now = out
}

// keepTransitions keeps the time of a condition whose status is what it was, which an
// earlier process or replica wrote.
func keepTransitions(now, next []metav1.Condition) {
	for i := range next {
		for _, old := range now {
			if old.Type == next[i].Type && old.Status == next[i].Status {
				next[i].LastTransitionTime = old.LastTransitionTime
			}
		}
	}
}

// keepListeners keeps the times of the conditions of listeners of the same name.
func keepListeners[T any](now, next []T, of func(T) (gatewayv1.SectionName, []metav1.Condition)) {
	for _, wanted := range next {
		name, conditions := of(wanted)
		for _, old := range now {
			if called, its := of(old); called == name {
				keepTransitions(its, conditions)
			}
		}
	}
}
