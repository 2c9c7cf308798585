package unit

import (
	"fmt"

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

// class is what a GatewayClass means to its Gateways. The zero class does not exist or
// is another controller's.
type class struct {
	Ours       bool
	Invalid    string // why its parameters cannot be used
	Parameters gateway.Parameters
}

func (u *Units) computeClass(c *sheet.Cell, n key.Name) class {
	o, there := entry.Get[*gatewayv1.GatewayClass](u.entries, c, n.Object(object.GatewayClass))
	if !there || string(o.Spec.ControllerName) != u.config.ControllerName {
		return class{}
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
	return g.Ours && !g.Held && g.Rejected.IsZero() && g.Unusable.IsZero()
}

// computeGateway also claims what the Gateway cannot share with others.
func (u *Units) computeGateway(c *sheet.Cell, n key.Name) ownGateway {
	o, e, there := entry.See[*gatewayv1.Gateway](u.entries, c, n.Object(object.Gateway))
	if !there {
		return ownGateway{}
	}
	of := u.class.Get(c, key.Name{Name: string(o.Spec.GatewayClassName)})
	if !of.Ours {
		return ownGateway{}
	}
	parameters, invalid := of.Parameters, of.Invalid
	if invalid != "" {
		invalid = fmt.Sprintf("GatewayClass %s: %s", o.Spec.GatewayClassName, invalid)
	}
	if ptr.Deref(o.Spec.Infrastructure, gatewayv1.GatewayInfrastructure{}).ParametersRef != nil {
		ref := o.Spec.Infrastructure.ParametersRef
		own, why := u.parameters(c, ref.Group, ref.Kind, key.Name{Namespace: n.Namespace, Name: ref.Name})
		parameters = own.Or(parameters)
		if why != "" {
			invalid = why
		}
	}
	var sets []*gatewayv1.ListenerSet
	if gateway.AllowsAnySet(o) {
		sets = gateway.Attached(o, u.sets.All(c, n), func(namespace string) labels.Set { return u.namespaceLabels(c, namespace) })
	}
	out := ownGateway{Gateway: gateway.Read(o, sets, parameters, invalid, u.site(c, n, string(o.Spec.GatewayClassName))), Held: e.Held}
	if !out.servable() {
		return out
	}
	if out.Account != (key.Name{}) {
		u.claims.Put(c, claim{account: out.Account}, n, out.Created)
	}
	if out.Scope.IsSharedPool() {
		for port, age := range out.Ports() {
			u.claims.Put(c, claim{port: port}, n, age)
		}
	}
	return out
}

// site is where a Gateway is reached: as the installation says, or as the Service in front
// of it does.
func (u *Units) site(c *sheet.Cell, n key.Name, class string) gateway.Site {
	if !u.config.Fronts {
		return u.config.Site
	}
	out := gateway.Site{Mapped: true}
	service := key.Name{Namespace: u.config.ReleaseNamespace, Name: front.Name(n, class)}
	if s, there := entry.Get[*corev1.Service](u.entries, c, service.Object(object.Service)); there && front.Ours(s, n) {
		out.Internal, out.PublishAddresses = front.Ports(s), front.Addresses(s)
	}
	return out
}

// askFront hands out what is wanted in front of a Gateway, whatever is there: what is wanted
// must not depend on what came of it.
func (u *Units) askFront(c *sheet.Cell, n key.Name) none {
	gw := u.gateway.Get(c, n)
	if u.config.Fronts && gw.Ours && !gw.Held && gw.Rejected.IsZero() && gw.Scope.IsSharedPool() {
		u.fronts.Put(c, n, gw.Front)
	}
	return none{}
}

// claim is something that only one Gateway can have: a port bound by the shared pool, or
// the identity of a dedicated Gateway's proxies.
type claim struct {
	port    uint32
	account key.Name
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
	Scope       scope.Scope
	RouteScopes configv1.RouteScopes
	Sections    []gateway.Section
	Of          map[key.Parent][]gateway.Section // the same by what they are of
}

// computeParent also makes the units of the Gateway's ports and tables exist.
func (u *Units) computeParent(c *sheet.Cell, n key.Name) parent {
	gw := u.gateway.Get(c, n)
	out := parent{Ours: gw.Ours, Served: gw.servable(), Unusable: gw.Unusable, Scope: gw.Scope, RouteScopes: gw.RouteScopes, Sections: gw.Sections}
	if gw.Ours {
		out.Of = map[key.Parent][]gateway.Section{}
	}
	for _, s := range out.Sections {
		out.Of[s.Parent()] = append(out.Of[s.Parent()], s)
	}
	if out.Served && gw.Account != (key.Name{}) {
		if owner := u.owner.Get(c, claim{account: gw.Account}); owner != n {
			out.Served = false
			out.Unusable = condition.Problemf(gatewayv1.GatewayReasonInvalid, "its proxies' ServiceAccount %s is that of the older Gateway %s", gw.Account.Name, owner)
		}
	}
	if !out.Served {
		return out
	}
	u.layers.Scopes.Put(c, n.Namespace, n, out.Scope)
	u.layers.Scopes.Put(c, "", n, out.Scope)
	u.layers.Gateways.Put(c, out.Scope, n, none{})
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
