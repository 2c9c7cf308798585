package analyze

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/grant"
	"aether.io/aether/internal/routing/key"
)

// lint tells what no status says.
func (a *analysis) lint() {
	for _, k := range slices.SortedFunc(maps.Keys(a.written), object.Key.Compare) {
		switch o := a.objects[k].(type) {
		case *gatewayv1.GatewayClass:
			a.lintClass(k, o)
		case *gatewayv1.Gateway:
			a.lintGateway(k, o)
		case *gatewayv1.HTTPRoute:
			a.lintRoute(k, o)
		case *gatewayv1.ReferenceGrant:
			a.lintGrant(k, o)
		}
		switch {
		case a.objects[k] == nil:
		case k.Kind == object.BackendTLSPolicy && !a.reported(k):
			a.say(k, code.PolicyUnused, "spec.targetRefs", "no route that is attached to a Gateway sends requests to its target")
		case k.Kind == object.GatewayParameters && a.sees(object.Gateway, object.GatewayClass) && !a.used(k):
			a.say(k, code.ParametersUnused, "", "neither a Gateway nor a GatewayClass refers to it")
		case k.Kind == object.MeshConfig:
			a.lintMeshConfig(k)
		}
	}
	a.lintCertificates()
	a.shadows()
}

// sees reports whether every object of these kinds is given.
func (a *analysis) sees(kinds ...object.Kind) bool {
	return a.c.Complete && !slices.ContainsFunc(kinds, func(k object.Kind) bool { return !a.knows(k) })
}

// reported reports whether the graph says anything of an object.
func (a *analysis) reported(k object.Key) bool { return a.statuses[k].Value != nil }

func (a *analysis) used(k object.Key) bool {
	return slices.ContainsFunc(a.refs, func(r reference) bool { return r.To == k })
}

// there reports whether there is an object, or is taken to be.
func (a *analysis) there(k object.Key) bool { return a.objects[k] != nil || a.refused[k] }

func (a *analysis) lintClass(k object.Key, o *gatewayv1.GatewayClass) {
	if string(o.Spec.ControllerName) != a.c.ControllerName {
		return
	}
	users := 0
	for _, r := range a.refs {
		if r.To == k {
			users++
		}
	}
	switch {
	case users > 0 && o.DeletionTimestamp != nil:
		a.say(k, code.ClassGoes, "metadata.deletionTimestamp", "is being deleted since %s, and %d Gateways use it", o.DeletionTimestamp.UTC().Format("2006-01-02 15:04:05"), users)
	case users == 0 && a.sees(object.Gateway):
		a.say(k, code.ClassUnused, "", "no Gateway is of this class")
	}
}

func (a *analysis) lintGateway(k object.Key, o *gatewayv1.Gateway) {
	class := object.Key{Kind: object.GatewayClass, Name: string(o.Spec.GatewayClassName)}
	if !a.there(class) {
		a.say(k, code.ClassMissing, "spec.gatewayClassName", "%s does not exist", class)
	}
	v, is := a.statuses[k].Value.(*gatewayv1.GatewayStatus)
	if !is || !a.sees(object.HTTPRoute) {
		return
	}
	for i, l := range v.Listeners {
		if l.AttachedRoutes == 0 && isTrue(l.Conditions, string(gatewayv1.ListenerConditionAccepted)) && !conflicts(l.Conditions) {
			a.say(k, code.NoRoutes, fmt.Sprintf("spec.listeners[%d]", i), "no route is attached to listener %s: requests get 404", l.Name)
		}
	}
}

func conflicts(list []metav1.Condition) bool {
	return isTrue(list, string(gatewayv1.ListenerConditionConflicted))
}

// lintRoute leaves alone what other controllers serve.
func (a *analysis) lintRoute(k object.Key, o *gatewayv1.HTTPRoute) {
	if len(o.Spec.ParentRefs) == 0 {
		a.say(k, code.Nowhere, "spec.parentRefs", "it has no parentRef")
	}
	for i, p := range o.Spec.ParentRefs {
		path := fmt.Sprintf("spec.parentRefs[%d]", i)
		kind := object.Kind(ptr.Deref(p.Kind, "Gateway"))
		if group := ptr.Deref(p.Group, gatewayv1.GroupName); group != gatewayv1.GroupName || kind != object.Gateway && kind != object.ListenerSet {
			a.say(k, code.Nowhere, path, "a parent of kind %s of group %q is none of Aether's", kind, group)
			continue
		}
		to := key.In(k.Namespace, p.Namespace, p.Name).Object(kind)
		if a.sees(kind) && !a.there(to) {
			a.sayAs(k, code.Nowhere, code.Error, path, "%s does not exist", to)
		}
	}
	for i := range o.Spec.Rules {
		list := o.Spec.Rules[i].BackendRefs
		if len(list) > 0 && !slices.ContainsFunc(list, func(b gatewayv1.HTTPBackendRef) bool { return ptr.Deref(b.Weight, 1) > 0 }) {
			a.say(k, code.NoWeight, fmt.Sprintf("spec.rules[%d].backendRefs", i), "every backend has weight 0: requests get 500")
		}
	}
}

// lintGrant asks for each reference across namespaces whether the grant allows it.
func (a *analysis) lintGrant(k object.Key, o *gatewayv1.ReferenceGrant) {
	if !a.sees(object.Gateway, object.ListenerSet, object.HTTPRoute) {
		return
	}
	for _, f := range o.Spec.From {
		if f.Group != gatewayv1.GroupName || f.Kind != "Gateway" && f.Kind != "ListenerSet" && f.Kind != "HTTPRoute" {
			return // who refers is not Aether's to read
		}
	}
	for _, r := range a.refs {
		if r.cross() && r.To.Namespace == k.Namespace && grant.Allows(o, r.From.Kind, r.From.Namespace, r.To.Kind, key.Name{Namespace: r.To.Namespace, Name: r.To.Name}) {
			return
		}
	}
	a.say(k, code.GrantUnused, "", "no reference that it allows is there")
}
