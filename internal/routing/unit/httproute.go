package unit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/rule"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/scope"
)

// route is an HTTPRoute: where it is attached and what it asks for.
type route struct {
	Generation int64
	Created    int64         // Unix seconds
	Parents    []routeParent // only of Gateways that are ours
}

// routeParent is one parentRef to a Gateway of ours.
type routeParent struct {
	Ref    gatewayv1.ParentReference
	Scopes []scope.Scope // the one that counts is first
	Rules  rule.Set      // the same for all but Gateways with a certificate for backends
	gateway.Attachment
	to   key.Parent
	uses []use // that its rules make of Services, whether they are good or not
}

func (p routeParent) shared() bool { return slices.ContainsFunc(p.Scopes, scope.Scope.IsSharedPool) }

// computeRoute also asks for room in the shared pool.
func (u *Units) computeRoute(c *sheet.Cell, n key.Name) route {
	o, e, there := entry.See[*gatewayv1.HTTPRoute](u.entries, c, n.Object(object.HTTPRoute))
	if !there {
		return route{}
	}
	out := route{Generation: o.Generation, Created: o.CreationTimestamp.Unix()}
	compiled := map[key.Name]compiled{}
	for i := range o.Spec.ParentRefs {
		ref := &o.Spec.ParentRefs[i]
		to := key.Parent{Kind: object.Kind(ptr.Deref(ref.Kind, "Gateway")), Name: key.In(n.Namespace, ref.Namespace, ref.Name)}
		if ptr.Deref(ref.Group, gatewayv1.GroupName) != gatewayv1.GroupName || to.Kind != object.Gateway && to.Kind != object.ListenerSet {
			continue
		}
		as := u.offer.Get(c, to)
		if !as.Ours {
			continue
		}
		rules := u.compile(c, o, as.Gateway, compiled)
		p := routeParent{Ref: *ref, Scopes: as.Scopes, Rules: rules.Set, to: to, Attachment: gateway.Attach(as.Sections, to, o, ref,
			func(namespace string) labels.Set { return u.namespaceLabels(c, namespace) },
			func(port key.Port, host string) string { return u.holder(c, port, host) })}
		for _, s := range rules.uses {
			p.uses = append(p.uses, use{Gateway: as.Gateway, Of: s})
		}
		if p.Rejected.IsZero() && p.Rules.Rejected() {
			p.Rejected = condition.Problemf(p.Rules.Complaint().Reason, "no rule can be served: rule %s", p.Rules.Complaint().Message)
		}
		if !as.Served || e.Held {
			p.Hosts = nil
		}
		out.Parents = append(out.Parents, p)
	}
	u.ask(c, n, out)
	return out
}

// compiled is a route's rules as one Gateway, or all that show no certificate, serve them.
type compiled struct {
	rule.Set
	uses []key.Service // that the route may refer to, whether they are good or not
}

// compile compiles a route's rules for a Gateway, once for all that need not be told apart.
func (u *Units) compile(c *sheet.Cell, o *gatewayv1.HTTPRoute, gw key.Name, known map[key.Name]compiled) compiled {
	id := u.credentials.Identity(c, gw)
	if !id.Wanted() {
		gw = key.Name{}
	}
	if done, is := known[gw]; is {
		return done
	}
	var out compiled
	out.Set = rule.Compile(o, func(ref *gatewayv1.BackendRef) (key.Service, condition.Problem) {
		k, why := u.clusters.Resolve(c, o.Namespace, ref)
		if k == (key.Service{}) {
			return k, why
		}
		out.uses = append(out.uses, k)
		switch port := u.clusters.Backend(c, k); {
		case !port.Invalid.IsZero():
			return k, port.Invalid
		case port.Policy == key.Name{} || !id.Wanted():
			return k, condition.Problem{}
		}
		k.Client = gw
		if id.Shown() {
			return k, condition.Problem{}
		}
		why = id.Problem
		why.Message = fmt.Sprintf("Gateway %s: %s", gw, why.Message)
		return k, why
	})
	known[gw] = out
	return out
}

// namespaceLabels is the labels of a namespace. One that is only referred to exists, with
// the label that every namespace has.
func (u *Units) namespaceLabels(c *sheet.Cell, namespace string) labels.Set {
	if o, there := entry.Get[*corev1.Namespace](u.entries, c, object.Key{Kind: object.Namespace, Name: namespace}); there {
		return o.Labels
	}
	return labels.Set{corev1.LabelMetadataName: namespace}
}
