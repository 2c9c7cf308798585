package kube

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"aether.io/aether/internal/object"
)

// A status of a Gateway or a ListenerSet names no controller, so what is ours of it is what the
// API server has on record as written by us, and by nobody since.

// fields are who wrote what of an object's status.
type fields struct {
	ours, others *fieldpath.Set
}

// fieldsOf reads who wrote an object's status. Managers are ours. What cannot be read is nobody's.
func fieldsOf(o object.Object, managers []string) fields {
	f := fields{&fieldpath.Set{}, &fieldpath.Set{}}
	for _, m := range o.GetManagedFields() {
		set := &fieldpath.Set{}
		if m.FieldsV1 == nil || set.FromJSON(m.FieldsV1.GetRawReader()) != nil {
			continue
		}
		set = set.WithPrefix(field("status"))
		if slices.Contains(managers, m.Manager) && m.Subresource == "status" {
			f.ours = f.ours.Union(set)
		} else {
			f.others = f.others.Union(set)
		}
	}
	return f
}

func (f fields) below(e fieldpath.PathElement) fields {
	return fields{f.ours.WithPrefix(e), f.others.WithPrefix(e)}
}

// onlyOurs reports whether we wrote something of a field, and nobody else anything.
func (f fields) onlyOurs(e fieldpath.PathElement) bool {
	return touches(f.ours, e) && !touches(f.others, e)
}

func touches(s *fieldpath.Set, e fieldpath.PathElement) bool {
	return s.Members.Has(e) || !s.WithPrefix(e).Empty()
}

func field(name string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &name} }

// keyed is the element of a list whose key field has that value.
func keyed(key, is string) fieldpath.PathElement {
	return fieldpath.PathElement{Key: &value.FieldList{{Name: key, Value: value.NewValueInterface(is)}}}
}

// clearGateway takes what is ours out of a Gateway's status, and reports whether there was anything.
func clearGateway(s *gatewayv1.GatewayStatus, f fields) bool {
	cleared := clearConditions(&s.Conditions, f)
	cleared = clearListeners(&s.Listeners, f, func(l *gatewayv1.ListenerStatus) (gatewayv1.SectionName, *[]metav1.Condition) {
		return l.Name, &l.Conditions
	}) || cleared
	if s.Addresses != nil && f.onlyOurs(field("addresses")) {
		s.Addresses, cleared = nil, true
	}
	if s.AttachedListenerSets != nil && f.onlyOurs(field("attachedListenerSets")) {
		s.AttachedListenerSets, cleared = nil, true
	}
	return cleared
}

// clearSet takes what is ours out of a ListenerSet's status, and reports whether there was anything.
func clearSet(s *gatewayv1.ListenerSetStatus, f fields) bool {
	cleared := clearConditions(&s.Conditions, f)
	return clearListeners(&s.Listeners, f, func(l *gatewayv1.ListenerEntryStatus) (gatewayv1.SectionName, *[]metav1.Condition) {
		return l.Name, &l.Conditions
	}) || cleared
}

func clearListeners[T any](list *[]T, f fields, of func(*T) (gatewayv1.SectionName, *[]metav1.Condition)) bool {
	f = f.below(field("listeners"))
	before := len(*list)
	*list = slices.DeleteFunc(*list, func(l T) bool {
		name, _ := of(&l)
		return f.onlyOurs(keyed("name", string(name)))
	})
	cleared := len(*list) != before
	for i := range *list {
		name, conditions := of(&(*list)[i])
		cleared = clearConditions(conditions, f.below(keyed("name", string(name)))) || cleared
	}
	return cleared
}

// clearConditions leaves those that say that a controller is waited for: the API server puts
// them where there are none, and has whoever took the last one on record for that.
func clearConditions(list *[]metav1.Condition, f fields) bool {
	f = f.below(field("conditions"))
	before := len(*list)
	*list = slices.DeleteFunc(*list, func(c metav1.Condition) bool {
		waits := c.Status == metav1.ConditionUnknown && c.Reason == string(gatewayv1.GatewayReasonPending) && c.LastTransitionTime.Unix() == 0
		return !waits && f.onlyOurs(keyed("type", c.Type))
	})
	return len(*list) != before
}
