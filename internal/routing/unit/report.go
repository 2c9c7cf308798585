package unit

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/sheet"
)

func (u *Units) reportClass(c *sheet.Cell, n key.Name) none {
	o, e, there := entry.See[*gatewayv1.GatewayClass](u.entries, c, n.Object(object.GatewayClass))
	of := u.class.Get(c, n)
	if there && of.Ours {
		u.say(c, report.Status{
			Key: n.Object(object.GatewayClass), Generation: e.Generation, UID: e.UID,
			Value: report.GatewayClass(o.Generation, of.Invalid),
		})
	}
	return none{}
}

func (u *Units) reportGateway(c *sheet.Cell, n key.Name) none {
	_, e, there := entry.See[*gatewayv1.Gateway](u.entries, c, n.Object(object.Gateway))
	gw := u.gateway.Get(c, n)
	if !there || !gw.Ours {
		return none{}
	}
	as := u.parent.Get(c, n)
	known := report.Gateway{Gateway: gw.Gateway, Held: gw.Held}
	known.Unusable = as.Unusable
	known.Client = u.credentials.Identity(c, n).Problem
	s := report.Status{Key: n.Object(object.Gateway), Generation: e.Generation, UID: e.UID}
	known.Sets = u.joined.Len(c, n)
	known.Unlisted = key.Sorted(u.unlisted.All(c, n), key.Name.Compare)
	for _, section := range as.Of[key.Parent{Kind: object.Gateway, Name: n}] {
		part, need := u.reportSection(c, as, section)
		known.Sections = append(known.Sections, part)
		if part.Served {
			s.Live = append(s.Live, need)
		}
	}
	if len(s.Live) == 0 {
		s.Live = u.reportJoined(c, as)
	}
	known.Served = len(s.Live) > 0
	s.Value = known.Status()
	u.say(c, s)
	return none{}
}

// reportJoined is what must be live for a Gateway of which nothing is served but the
// listeners of its ListenerSets.
func (u *Units) reportJoined(c *sheet.Cell, as parent) []report.Requirement {
	var list []report.Requirement
	for _, section := range as.Sections {
		if part, need := u.reportSection(c, as, section); part.Served {
			need.Section = section.ID()
			list = append(list, need)
		}
	}
	return list
}

// reportSet is about ListenerSets that name a Gateway of ours.
func (u *Units) reportSet(c *sheet.Cell, n key.Name) none {
	o, e, there := entry.See[*gatewayv1.ListenerSet](u.entries, c, n.Object(object.ListenerSet))
	if !there {
		return none{}
	}
	to, named := gateway.GatewayOf(o)
	if !named {
		return none{}
	}
	gw := u.gateway.Get(c, to)
	if !gw.Ours {
		return none{}
	}
	as := u.parent.Get(c, to)
	known := report.Set{Generation: o.Generation, Held: e.Held || gw.Held, Allowed: gw.Sets[n] || e.Held, Parent: gw.Rejected, Unusable: as.Unusable}
	s := report.Status{Key: n.Object(object.ListenerSet), Generation: e.Generation, UID: e.UID}
	for _, section := range as.Of[key.Parent{Kind: object.ListenerSet, Name: n}] {
		part, need := u.reportSection(c, as, section)
		known.Sections = append(known.Sections, part)
		if part.Served {
			s.Live = append(s.Live, need)
		}
	}
	if known.Accepted() {
		u.joined.Put(c, to, n, none{})
	}
	s.Value = known.Status()
	u.say(c, s)
	return none{}
}

// reportSection is what is known of one section, and what must be live for it.
func (u *Units) reportSection(c *sheet.Cell, as parent, s gateway.Section) (report.Section, report.Requirement) {
	known := report.Section{
		Section: s, Rejected: s.Rejected, Refs: s.BadKinds,
		Attached: u.attached.Len(c, key.Section{Parent: s.Parent(), Section: s.Name}),
	}
	if !as.Served || !s.Accepted() {
		return known, report.Requirement{}
	}
	l := u.listener.Get(c, s.Table.Port)
	known.Rejected, known.Unmapped = l.Rejected[s.ID()], !l.bound() && l.Rejected[s.ID()].IsZero()
	known.Refs = l.Refs[s.ID()].And(s.BadKinds)
	need := report.Requirement{Section: s.Name}
	if l.bound() {
		need.Scope, need.Port = l.Places[0].Scope, l.Places[0].Port
	}
	bound, star := u.bound.Get(c, s.Table.Port), u.tables.Star(c, s.Table)
	for _, ch := range l.Chains {
		if ch.Table != s.Table {
			continue
		}
		known.Served = len(bound) > 0 && len(star) > 0
		for _, n := range ch.Secrets {
			need.Resources = append(need.Resources, names(u.credentials.Secret(c, n).Resource)...)
		}
	}
	need.Resources = sorted(slices.Concat(need.Resources, bound, star))
	return known, need
}

func (u *Units) reportRoute(c *sheet.Cell, n key.Name) none {
	_, e, there := entry.See[*gatewayv1.HTTPRoute](u.entries, c, n.Object(object.HTTPRoute))
	r := u.admitted.Get(c, n)
	if !there || len(r.Parents) == 0 {
		return none{}
	}
	value := &gatewayv1.HTTPRouteStatus{}
	s := report.Status{Key: n.Object(object.HTTPRoute), Generation: e.Generation, UID: e.UID, Value: value}
	for i, p := range r.Parents {
		known := report.Route{Generation: r.Generation, Attachment: p.Attachment, Rules: p.Rules, Lacking: u.lacking(c, p)}
		value.Parents = append(value.Parents, known.Parent(u.config.ControllerName, p.Ref))
		var need []resource.Name
		for _, h := range p.Hosts {
			need = append(need, u.tables.Scope(c, h)...)
		}
		if len(need) == 0 {
			continue
		}
		for _, b := range p.Rules.Backends {
			need = append(need, names(u.clusters.Resources(c, b)...)...)
		}
		s.Live = append(s.Live, report.Requirement{Scope: p.Scopes[0], Parent: i, Resources: sorted(need)})
	}
	u.say(c, s)
	return none{}
}

// lacking is the Services' ports without an endpoint that requests would be sent to, and the
// rules that send them to none.
func (u *Units) lacking(c *sheet.Cell, p routeParent) []condition.Problem {
	if len(p.Hosts) == 0 {
		return nil
	}
	var list []condition.Problem
	for _, k := range p.Rules.Asked {
		if why := u.clusters.Get(c, k).Lack; why != "" {
			list = append(list, condition.Problemf(report.ReasonNoEndpoints,
				"Service %s port %d has no endpoint, what is sent to it gets 503: %s", k.Service, k.Port, why))
		}
	}
	for _, name := range p.Rules.Idle {
		list = append(list, condition.Problemf(report.ReasonNoWeight, "every backend of rule %s has weight 0, requests that match get 500", name))
	}
	return list
}

// reportMeshConfig: it is applied when every scope that takes it runs its runtime layer.
func (u *Units) reportMeshConfig(c *sheet.Cell, n key.Name) none {
	o, e, there := entry.See[*configv1.MeshConfig](u.entries, c, n.Object(object.MeshConfig))
	refused := e.RefusedAt > 0
	if !there && !refused || n.Name != configv1.MeshConfigName {
		return none{}
	}
	s := report.Status{Key: n.Object(object.MeshConfig), Generation: e.Generation, UID: e.UID}
	if effective := u.layers.Effective(c, n.Namespace); refused {
		s.Value, s.Refused = report.Refused(o, e.Generation, effective, e.Refused)
	} else {
		s.Value = report.MeshConfig(o, o.Generation, effective)
	}
	for _, in := range u.layers.ScopesOf(c, n.Namespace) {
		if layer := u.layers.Get(c, in); len(layer) > 0 {
			s.Live = append(s.Live, report.Requirement{Scope: in, Resources: layer})
		}
	}
	u.say(c, s)
	return none{}
}
