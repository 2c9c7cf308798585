package cluster

import (
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/policy"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/routing/trust"
)

// computePolicy also claims the policy's targets, whether it can be followed or not: a
// younger one, or plaintext, must not take the place of one that is broken.
func (t *Clusters) computePolicy(c *sheet.Cell, n key.Name) policy.Policy {
	o, e, there := entry.See[*gatewayv1.BackendTLSPolicy](t.entries, c, n.Object(object.BackendTLSPolicy))
	if !there {
		return policy.Policy{}
	}
	p := policy.Read(o, t.trustFile, func(kind object.Kind, from key.Name) trust.Bundle {
		return t.credentials.Bundle(c, from.Object(kind))
	})
	if e.Held {
		p = p.Withhold()
	}
	for _, k := range p.Targets {
		t.policies.Put(c, k, n, p.Created)
	}
	return p
}

// computeSecured: of several policies of one target the oldest has it, then the first by
// namespace and name.
func (t *Clusters) computeSecured(c *sheet.Cell, k policy.Target) key.Name {
	return key.Oldest(t.policies.All(c, k))
}

// policyOf is the policy of a Service's port: one that names it, or one of all ports.
func (t *Clusters) policyOf(c *sheet.Cell, service key.Name, port string) key.Name {
	if port != "" {
		if n := t.secured.Get(c, policy.Target{Service: service, Port: port}); n != (key.Name{}) {
			return n
		}
	}
	return t.secured.Get(c, policy.Target{Service: service})
}

func (t *Clusters) computeTarget(c *sheet.Cell, k policy.Target) policy.Attachment {
	o, _ := entry.Get[*corev1.Service](t.entries, c, k.Service.Object(object.Service))
	return k.Attach(o)
}
