package gateway

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/key"
)

// AllowsAnySet reports whether ListenerSets of some namespace may attach to the Gateway:
// only if it says so.
func AllowsAnySet(gw *gatewayv1.Gateway) bool {
	from, _ := allowedSets(gw)
	return from != gatewayv1.NamespacesFromNone
}

func allowedSets(gw *gatewayv1.Gateway) (gatewayv1.FromNamespaces, *metav1.LabelSelector) {
	if a := gw.Spec.AllowedListeners; a != nil && a.Namespaces != nil {
		return ptr.Deref(a.Namespaces.From, gatewayv1.NamespacesFromNone), a.Namespaces.Selector
	}
	return gatewayv1.NamespacesFromNone, nil
}

// Attached is those of the ListenerSets that the Gateway allows, in the order of
// precedence: the oldest first, then by namespace/name. labelsOf gives a namespace's
// labels and is called only if a selector asks for them.
func Attached(gw *gatewayv1.Gateway, sets map[key.Name]*gatewayv1.ListenerSet, labelsOf func(string) labels.Set) []*gatewayv1.ListenerSet {
	from, selector := allowedSets(gw)
	var list []*gatewayv1.ListenerSet
	for _, s := range sets {
		if allows(from, selector, gw.Namespace, s.Namespace, labelsOf) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *gatewayv1.ListenerSet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return list
}

// GatewayOf is the Gateway that a ListenerSet names, if it names one.
func GatewayOf(s *gatewayv1.ListenerSet) (key.Name, bool) {
	ref := s.Spec.ParentRef
	if ptr.Deref(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName || string(ptr.Deref(ref.Kind, "Gateway")) != string(object.Gateway) {
		return key.Name{}, false
	}
	return key.In(s.Namespace, ref.Namespace, ref.Name), true
}

// allows reports whether what is in a namespace may attach to what is in namespace own.
func allows(from gatewayv1.FromNamespaces, selector *metav1.LabelSelector, own, namespace string, labelsOf func(string) labels.Set) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == own
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && s.Matches(labelsOf(namespace))
	case gatewayv1.NamespacesFromNone:
	}
	return false
}
