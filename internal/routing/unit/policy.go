package unit

import (
	"cmp"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/sheet"
)

// use is a Gateway through which requests go to a Service's port.
type use struct {
	Gateway key.Name
	Of      key.Service
}

// computeUse files a use under its Service, however many routes make it.
func (u *Units) computeUse(c *sheet.Cell, k use) none {
	u.users.Put(c, k.Of.Service, k, none{})
	return none{}
}

// reportPolicy says nothing of a policy whose targets no Gateway of ours reaches.
func (u *Units) reportPolicy(c *sheet.Cell, n key.Name) none {
	o, e, there := entry.See[*gatewayv1.BackendTLSPolicy](u.entries, c, n.Object(object.BackendTLSPolicy))
	if !there {
		return none{}
	}
	p := u.clusters.Policy(c, n)
	known := report.Policy{Generation: o.Generation, Rejected: p.Invalid, Refs: p.Refs}
	if known.Rejected.IsZero() {
		known.Rejected = p.Behind
	}
	gateways := map[key.Name]none{}
	for _, t := range p.Targets {
		at := u.clusters.Target(c, t)
		for by := range u.users.All(c, t.Service) {
			if t.Port == "" || at.Missing || u.clusters.Port(c, by.Of).Name == t.Port {
				gateways[by.Gateway] = none{}
			}
		}
		known.Warning += at.Warning
		if len(p.Targets) > 1 { // which is what is wrong with it
			continue
		}
		switch owner := u.clusters.Holder(c, t); {
		case owner != n:
			known.Rejected = condition.Problemf(gatewayv1.PolicyReasonConflicted, "BackendTLSPolicy %s, which comes first, has the same target", owner)
		case known.Rejected.IsZero():
			known.Rejected = at.Invalid
		}
	}
	if len(gateways) == 0 {
		return none{}
	}
	for i, gw := range key.Sorted(gateways, u.byAge(c, gateways)) {
		if i < report.MaxAncestors {
			known.Gateways = append(known.Gateways, gw)
			continue
		}
		known.More++
		u.unlisted.Put(c, gw, n, none{})
	}
	u.say(c, report.Status{Key: n.Object(object.BackendTLSPolicy), Generation: e.Generation, UID: e.UID, Value: known.Status(u.config.ControllerName)})
	return none{}
}

// computeBorn is when a Gateway was made, in Unix seconds, apart from all else of it: a
// policy is not looked at again for every listener of every Gateway that uses it.
func (u *Units) computeBorn(c *sheet.Cell, n key.Name) int64 {
	o, _, there := entry.See[*gatewayv1.Gateway](u.entries, c, n.Object(object.Gateway))
	if !there {
		return 0
	}
	return o.CreationTimestamp.Unix()
}

// byAge orders Gateways so that one that comes does not push another out of a list: the
// oldest first, then by namespace and name.
func (u *Units) byAge(c *sheet.Cell, gateways map[key.Name]none) func(a, b key.Name) int {
	created := make(map[key.Name]int64, len(gateways))
	for gw := range gateways {
		created[gw] = u.born.Get(c, gw)
	}
	return func(a, b key.Name) int { return cmp.Or(cmp.Compare(created[a], created[b]), a.Compare(b)) }
}
