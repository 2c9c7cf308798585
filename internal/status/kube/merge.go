package kube

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/status"
)

// Shows reports whether what is ours of an object's status is as d says. The object is not changed.
func (s *Sink) Shows(o object.Object, d status.Document) bool {
	now, ok := o.DeepCopyObject().(object.Object)
	return ok && s.merge(now, d) == nil && object.Alike(o, now)
}

// HasOurs reports whether an object's status has anything of ours that is to go when there is
// nothing to be said of it any more. The object is not changed.
func (s *Sink) HasOurs(o object.Object) bool {
	switch o := o.(type) {
	case *gatewayv1.Gateway:
		return clearGateway(o.Status.DeepCopy(), fieldsOf(o, s.managers))
	case *gatewayv1.ListenerSet:
		return clearSet(o.Status.DeepCopy(), fieldsOf(o, s.managers))
	case *gatewayv1.HTTPRoute:
		return slices.ContainsFunc(o.Status.Parents, func(p gatewayv1.RouteParentStatus) bool { return p.ControllerName == s.controller })
	case *gatewayv1.BackendTLSPolicy:
		return slices.ContainsFunc(o.Status.Ancestors, func(p gatewayv1.PolicyAncestorStatus) bool { return p.ControllerName == s.controller })
	}
	return false
}

// told is the newest generation of which our part of an object's status speaks; 0: none.
func (s *Sink) told(o object.Object) int64 {
	newest := int64(0)
	look := func(conditions []metav1.Condition) {
		for _, c := range conditions {
			newest = max(newest, c.ObservedGeneration)
		}
	}
	switch o := o.(type) {
	case *gatewayv1.HTTPRoute:
		for _, p := range o.Status.Parents {
			if p.ControllerName == s.controller {
				look(p.Conditions)
			}
		}
	case *gatewayv1.BackendTLSPolicy:
		for _, p := range o.Status.Ancestors {
			if p.ControllerName == s.controller {
				look(p.Conditions)
			}
		}
	}
	return newest
}

// merge puts what is wanted in the place of what is ours.
func (s *Sink) merge(o object.Object, d status.Document) error {
	switch v := d.Status.(type) {
	case *gatewayv1.GatewayClassStatus:
		o := o.(*gatewayv1.GatewayClass)
		o.Status.SupportedFeatures = v.SupportedFeatures
		o.Status.Conditions = mergeConditions(o.Status.Conditions, v.Conditions)
	case *gatewayv1.GatewayStatus:
		o := o.(*gatewayv1.Gateway)
		next := v.DeepCopy()
		next.Conditions = mergeConditions(o.Status.Conditions, v.Conditions)
		keepListeners(o.Status.Listeners, next.Listeners, func(l gatewayv1.ListenerStatus) (gatewayv1.SectionName, []metav1.Condition) {
			return l.Name, l.Conditions
		})
		o.Status = *next
	case *gatewayv1.ListenerSetStatus:
		o := o.(*gatewayv1.ListenerSet)
		next := v.DeepCopy()
		next.Conditions = mergeConditions(o.Status.Conditions, v.Conditions)
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
		next.Conditions = slices.DeleteFunc(mergeConditions(o.Status.Conditions, v.Conditions), func(c metav1.Condition) bool { return slices.Contains(d.Absent, c.Type) })
		o.Status = *next
	default:
		return fmt.Errorf("a status of type %T is not known", d.Status)
	}
	return nil
}

// clear takes what is ours out of a status that other controllers write too, be it that a
// Gateway is of another class now.
func (s *Sink) clear(o object.Object) {
	switch o := o.(type) {
	case *gatewayv1.Gateway:
		clearGateway(&o.Status, fieldsOf(o, s.managers))
	case *gatewayv1.ListenerSet:
		clearSet(&o.Status, fieldsOf(o, s.managers))
	case *gatewayv1.HTTPRoute:
		o.Status.Parents = mergeEntries(s, o.Status.Parents, nil, maxParents, parent)
	case *gatewayv1.BackendTLSPolicy:
		o.Status.Ancestors = mergeEntries(s, o.Status.Ancestors, nil, maxAncestors, ancestor)
	}
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
			if old := of(&now[j]); old.controller == s.controller && object.Alike(old.about, e.about) {
				keepTransitions(*old.conditions, *e.conditions)
			}
		}
		out = append(out, next)
	}
	return out
}

// mergeConditions is what there is with the wanted ones in it; those of other types stay.
func mergeConditions(now, wanted []metav1.Condition) []metav1.Condition {
	wanted = slices.Clone(wanted)
	keepTransitions(now, wanted)
	out := slices.Clone(now)
	for _, w := range wanted {
		if i := slices.IndexFunc(out, func(c metav1.Condition) bool { return c.Type == w.Type }); i >= 0 {
			out[i] = w
		} else {
			out = append(out, w)
		}
	}
	return out
}

// keepTransitions keeps the time of a condition whose status is what it was, which an
// earlier process or replica wrote. Of one whose status another has changed meanwhile, the time is
// not before that.
func keepTransitions(now, next []metav1.Condition) {
	for i := range next {
		for _, old := range now {
			if old.Type == next[i].Type && (old.Status == next[i].Status || next[i].LastTransitionTime.Before(&old.LastTransitionTime)) {
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
