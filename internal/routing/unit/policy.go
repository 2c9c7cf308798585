package unit

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/policy"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/routing/trust"
)

// computeBundle reads the authorities in a ConfigMap or a Secret.
func (u *Units) computeBundle(c *sheet.Cell, k object.Key) trust.Bundle {
	if k.Kind == object.Secret {
		o, _ := get[*corev1.Secret](u, c, k)
		return trust.ReadSecret(o).Behind(u.refused(c, k))
	}
	o, _ := get[*corev1.ConfigMap](u, c, k)
	return trust.ReadConfigMap(o).Behind(u.refused(c, k))
}

// computePolicy also claims the policy's targets, whether it can be followed or not: a
// younger one, or plaintext, must not take the place of one that is broken.
func (u *Units) computePolicy(c *sheet.Cell, n key.Name) policy.Policy {
	o, e, there := see[*gatewayv1.BackendTLSPolicy](u, c, n.Object(object.BackendTLSPolicy))
	if !there {
		return policy.Policy{}
	}
	p := policy.Read(o, u.config.TrustFile, func(kind object.Kind, from key.Name) trust.Bundle {
		return u.bundle.Get(c, from.Object(kind))
	})
	if e.Held {
		p = p.Withhold()
	}
	for _, t := range p.Targets {
		u.policies.Put(c, t, n, p.Created)
	}
	return p
}

// computeSecured: of several policies of one target the oldest has it, then the first by
// namespace and name.
func (u *Units) computeSecured(c *sheet.Cell, t policy.Target) key.Name {
	return oldest(u.policies.All(c, t))
}

// policyOf is the policy of a Service's port: one that names it, or one of all ports.
func (u *Units) policyOf(c *sheet.Cell, service key.Name, port string) key.Name {
	if port != "" {
		if n := u.secured.Get(c, policy.Target{Service: service, Port: port}); n != (key.Name{}) {
			return n
		}
	}
	return u.secured.Get(c, policy.Target{Service: service})
}

func (u *Units) computeTarget(c *sheet.Cell, t policy.Target) policy.Attachment {
	o, _ := get[*corev1.Service](u, c, t.Service.Object(object.Service))
	return t.Attach(o)
}

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
	o, e, there := see[*gatewayv1.BackendTLSPolicy](u, c, n.Object(object.BackendTLSPolicy))
	if !there {
		return none{}
	}
	p := u.policy.Get(c, n)
	known := report.Policy{Generation: o.Generation, Rejected: p.Invalid, Refs: p.Refs}
	gateways := map[key.Name]none{}
	for _, t := range p.Targets {
		at := u.target.Get(c, t)
		for by := range u.users.All(c, t.Service) {
			if t.Port == "" || at.Missing || u.port.Get(c, by.Of).Name == t.Port {
				gateways[by.Gateway] = none{}
			}
		}
		known.Warning += at.Warning
		if len(p.Targets) > 1 { // which is what is wrong with it
			continue
		}
		switch owner := u.secured.Get(c, t); {
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
	u.say(c, report.Status{Key: n.Object(object.BackendTLSPolicy), Generation: e.Generation, Value: known.Status(u.config.ControllerName)})
	return none{}
}

// computeBorn is when a Gateway was made, in Unix seconds, apart from all else of it: a
// policy is not looked at again for every listener of every Gateway that uses it.
func (u *Units) computeBorn(c *sheet.Cell, n key.Name) int64 {
	o, _, there := see[*gatewayv1.Gateway](u, c, n.Object(object.Gateway))
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
