package unit

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/routing/table"
	"aether.io/aether/internal/scope"
)

// class is what a GatewayClass means to its Gateways. The zero class is another controller's.
type class struct {
	Ours       bool
	Absent     bool   // it does not exist
	Invalid    string // why its parameters cannot be used
	Parameters gateway.Parameters
}

func (u *Units) computeClass(c *sheet.Cell, n key.Name) class {
	o, there := entry.Get[*gatewayv1.GatewayClass](u.entries, c, n.Object(object.GatewayClass))
	if !there || string(o.Spec.ControllerName) != u.config.ControllerName {
		return class{Absent: !there}
	}
	out := class{Ours: true}
	if ref := o.Spec.ParametersRef; ref != nil {
		out.Parameters, out.Invalid = u.parameters(c, ref.Group, ref.Kind, key.In("", ref.Namespace, ref.Name))
	}
	return out
}

// parameters reads the object that a parametersRef names, or says why it cannot.
func (u *Units) parameters(c *sheet.Cell, group gatewayv1.Group, kind gatewayv1.Kind, n key.Name) (gateway.Parameters, string) {
	switch {
	case group != configv1.GroupName || kind != configv1.KindGatewayParameters:
		return gateway.Parameters{}, fmt.Sprintf("parametersRef: %s of group %q is not supported, want %s of %s", kind, group, configv1.KindGatewayParameters, configv1.GroupName)
	case n.Namespace == "":
		return gateway.Parameters{}, fmt.Sprintf("parametersRef: %s %s: no namespace is given", kind, n.Name)
	}
	o, there := entry.Get[*configv1.GatewayParameters](u.entries, c, n.Object(object.GatewayParameters))
	if !there {
		return gateway.Parameters{}, fmt.Sprintf("parametersRef: %s %s does not exist", kind, n)
	}
	return gateway.ReadParameters(o), ""
}

// ownGateway is a Gateway by itself; Held says that nothing may be made of it.
type ownGateway struct {
	gateway.Gateway
	Held bool
}

func (g ownGateway) servable() bool {
	good := (g.Rejected.IsZero() || g.Stands) && (g.Unusable.IsZero() || g.Wants.IsZero() && len(g.Places) > 0)
	return g.Ours && !g.Held && good
}

// kept reports whether what is in front of it stays as it is, because it says nothing that
// could be made.
func (g ownGateway) kept() bool { return g.Held || !g.Rejected.IsZero() || g.Wants.IsZero() }

// scopes are the proxies by which it is served, or is to be; each once.
func (g ownGateway) scopes() []scope.Scope {
	var out []scope.Scope
	if !g.Wants.IsZero() {
		out = append(out, g.Wants)
	}
	for _, at := range g.Places {
		if at.Scope != g.Wants {
			out = append(out, at.Scope)
		}
	}
	return out
}

// computeGateway also claims what the Gateway cannot share with others.
func (u *Units) computeGateway(c *sheet.Cell, n key.Name) ownGateway {
	o, e, there := entry.See[*gatewayv1.Gateway](u.entries, c, n.Object(object.Gateway))
	if !there {
		return ownGateway{}
	}
	of := u.class.Get(c, key.Name{Name: string(o.Spec.GatewayClassName)})
	site := u.site(c, n, string(o.Spec.GatewayClassName))
	parameters, invalid := of.Parameters, of.Invalid
	switch {
	case of.Absent && site.Known():
		// It was ours. What is made by a class does not go with it: that it is gone may be a mistake.
		invalid = fmt.Sprintf("GatewayClass %s does not exist", o.Spec.GatewayClassName)
	case !of.Ours:
		return ownGateway{}
	case invalid != "":
		invalid = fmt.Sprintf("GatewayClass %s: %s", o.Spec.GatewayClassName, invalid)
	}
	if ptr.Deref(o.Spec.Infrastructure, gatewayv1.GatewayInfrastructure{}).ParametersRef != nil {
		ref := o.Spec.Infrastructure.ParametersRef
		own, why := u.parameters(c, ref.Group, ref.Kind, key.Name{Namespace: n.Namespace, Name: ref.Name})
		parameters = own.Or(parameters)
		if why != "" && !of.Absent {
			invalid = why
		}
	}
	var sets []*gatewayv1.ListenerSet
	if gateway.AllowsAnySet(o) {
		sets = gateway.Attached(o, u.sets.All(c, n), func(namespace string) labels.Set { return u.namespaceLabels(c, namespace) })
	}
	out := ownGateway{Gateway: gateway.Read(o, sets, parameters, invalid, site), Held: e.Held}
	if !out.servable() {
		return out
	}
	if out.Account != (key.Name{}) {
		u.claims.Put(c, claim{account: out.Account}, n, out.Created)
	}
	for _, at := range out.Places {
		if at.Scope.IsSharedPool() {
			for port, age := range out.Ports(at) {
				u.claims.Put(c, claim{port: port}, n, age)
			}
		}
	}
	if u.config.Fronts {
		for _, s := range out.scopes() {
			u.claims.Put(c, claim{service: u.service(n, string(o.Spec.GatewayClassName), s)}, n, out.Created)
		}
	}
	return out
}

// service is the name of the Service between a Gateway and the proxies of a scope. That of
// a dedicated Gateway in the release namespace may be that of somebody's shared one.
func (u *Units) service(n key.Name, class string, s scope.Scope) key.Name {
	if s.IsSharedPool() {
		return key.Name{Namespace: u.config.ReleaseNamespace, Name: front.SharedName(n, class)}
	}
	return key.Name{Namespace: n.Namespace, Name: front.OwnName(n, class)}
}

// site is where a Gateway is reached: as the installation says, or as the Services in front
// of it do; and how it was served last, if that is on record.
func (u *Units) site(c *sheet.Cell, n key.Name, class string) gateway.Site {
	switch {
	case u.config.Pooled:
		kept, _ := entry.Get[*configv1.GatewayParameters](u.entries, c, n.Object(front.Kept))
		out := u.config.Site
		out.Pooled, out.Shared.Parameters = true, front.ReadKept(kept, class)
		return out
	case !u.config.Fronts:
		return u.config.Site
	}
	read := func(namespace, name string) front.State {
		s, _ := entry.Get[*corev1.Service](u.entries, c, object.Key{Kind: object.Service, Namespace: namespace, Name: name})
		return front.Read(s, n)
	}
	return gateway.Site{
		Mapped: true,
		Shared: read(u.config.ReleaseNamespace, front.SharedName(n, class)),
		Own:    read(n.Namespace, front.OwnName(n, class)),
	}
}

// askFront hands out what is wanted in front of a Gateway, whatever is there: what is wanted
// must not depend on what came of it.
func (u *Units) askFront(c *sheet.Cell, n key.Name) none {
	gw := u.gateway.Get(c, n)
	if !(u.config.Fronts || u.config.Pooled) || !gw.Ours {
		return none{}
	}
	f := gw.Front
	if gw.kept() || !u.lost(c, n, gw).IsZero() {
		f = front.Front{Gateway: f.Gateway, Class: f.Class, UID: f.UID, Keep: true}
	}
	u.fronts.Put(c, n, f)
	return none{}
}

// claim is something that only one Gateway can have: a port bound by the shared pool, the
// identity of a dedicated Gateway's proxies, or a Service in front of it.
type claim struct {
	port    uint32
	account key.Name
	service key.Name
}

// lost is why what a Gateway is to have is another's.
func (u *Units) lost(c *sheet.Cell, n key.Name, gw ownGateway) condition.Problem {
	if !gw.Wants.IsSharedPool() && gw.Account != (key.Name{}) {
		if owner := u.owner.Get(c, claim{account: gw.Account}); owner != n {
			return condition.Problemf(gatewayv1.GatewayReasonInvalid, "its proxies' ServiceAccount %s is that of the older Gateway %s", gw.Account.Name, owner)
		}
	}
	if u.config.Fronts && !gw.Wants.IsZero() {
		at := u.service(n, gw.Front.Class, gw.Wants)
		if owner := u.owner.Get(c, claim{service: at}); owner != n {
			return condition.Problemf(gatewayv1.GatewayReasonInvalid, "its Service would have the name %s, which is that of the older Gateway %s", at, owner)
		}
	}
	return condition.Problem{}
}

// computeOwner: the oldest has it, then the first by namespace and name.
func (u *Units) computeOwner(c *sheet.Cell, k claim) key.Name {
	return key.Oldest(u.claims.All(c, k))
}

// parent is a Gateway without what does not reach routes: certificates, generations and
// the like.
type parent struct {
	Ours        bool
	Served      bool
	Unusable    condition.Problem // other Gateways considered
	Scopes      []scope.Scope     // in which it is served; the one that counts is first
	RouteScopes configv1.RouteScopes
	Sections    []gateway.Section
	Of          map[key.Parent][]gateway.Section // the same by what they are of
}

// computeParent also makes the units of the Gateway's ports and tables exist.
func (u *Units) computeParent(c *sheet.Cell, n key.Name) parent {
	gw := u.gateway.Get(c, n)
	out := parent{Ours: gw.Ours, Served: gw.servable(), Unusable: gw.Unusable, RouteScopes: gw.RouteScopes, Sections: gw.Sections}
	for _, at := range gw.Places {
		out.Scopes = append(out.Scopes, at.Scope)
	}
	if gw.Ours {
		out.Of = map[key.Parent][]gateway.Section{}
	}
	for _, s := range out.Sections {
		out.Of[s.Parent()] = append(out.Of[s.Parent()], s)
	}
	if why := u.lost(c, n, gw); out.Served && !why.IsZero() { // where it was before, it may be still
		out.Unusable = why
		out.Scopes = slices.DeleteFunc(out.Scopes, func(s scope.Scope) bool { return s == gw.Wants })
		out.Served = len(out.Scopes) > 0
	}
	if !out.Served {
		return out
	}
	u.layers.Scopes.Put(c, n.Namespace, n, out.Scopes)
	u.layers.Scopes.Put(c, "", n, out.Scopes)
	for _, s := range out.Scopes {
		u.layers.Gateways.Put(c, s, n, none{})
	}
	for _, s := range out.Sections {
		if !s.Accepted() {
			continue
		}
		u.ports.Put(c, s.Table.Port, s.ID(), none{})
		u.patterns.Put(c, pattern{s.Table.Port, s.Host}, s.ID(), none{})
		u.tables.Sections.Put(c, s.Table, s.ID(), none{})
		if hosts := gateway.Elsewhere(out.Sections, s); len(hosts) > 0 {
			u.tables.Elsewhere.Put(c, s.Table, none{}, hosts)
		}
		// What no route takes of a section's hosts is answered there, and never falls to
		// a less specific section.
		u.tables.Routes.Put(c, key.Host{Table: s.Table, Host: s.Host}, key.Name{Name: s.ID()}, table.Contribution{Origin: s.Parent().Object(s.Parent().Kind)})
	}
	return out
}
