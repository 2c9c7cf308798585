package cluster

import (
	"aether.io/aether/internal/envoy/footprint"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

// Footprint is what the cluster of a Service's port takes of an Envoy's memory, by estimate,
// without its endpoints.
func (t *Clusters) Footprint(c *sheet.Cell, k key.Service) int64 {
	size := int64(footprint.Cluster)
	if by := t.backend.Get(c, k.Anonymous()).Policy; by != (key.Name{}) {
		size += t.footprint.Get(c, by)
	}
	if shown := t.credentials.Identity(c, k.Client).Secret; shown != (key.Name{}) {
		size += t.chain.Get(c, shown)
	}
	return size
}

// computeChain is what each cluster takes for which a certificate is shown. It stands between
// the Secret and routes.
func (t *Clusters) computeChain(c *sheet.Cell, n key.Name) int64 {
	if r := t.credentials.Secret(c, n).Resource; r != nil {
		return footprint.Chain(len(r.Payload))
	}
	return 0
}

// computeFootprint is what each cluster of a policy takes for its TLS. It stands between the
// policy and routes, which the rest of it does not concern.
func (t *Clusters) computeFootprint(c *sheet.Cell, n key.Name) int64 {
	switch p := t.policy.Get(c, n); {
	case p.Trust != nil:
		return footprint.TLS + footprint.Authorities(len(p.Trust.Payload))
	case p.TLS.TrustFile != "":
		return footprint.TLS + footprint.Authorities(footprint.SystemAuthorities)
	}
	return 0
}
