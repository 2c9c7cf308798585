// Package cluster is the part of the routing graph that keeps clusters: how the ports of
// Services are spoken to, by which BackendTLSPolicy, and where their endpoints are. Which
// of them routes use, and which worlds get them, is not known here.
package cluster

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/backend"
	"aether.io/aether/internal/routing/credential"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/policy"
	"aether.io/aether/internal/routing/sheet"
)

// Clusters is every cluster that can be asked for.
type Clusters struct {
	entries     *entry.Entries
	credentials *credential.Credentials
	trustFile   string

	slices   sheet.Group[key.Name, string, *discoveryv1.EndpointSlice] // by Service
	policies sheet.Group[policy.Target, key.Name, int64]               // who wants it, and its age

	policy    *sheet.Formula[key.Name, policy.Policy]
	footprint *sheet.Formula[key.Name, int64] // of a policy
	chain     *sheet.Formula[key.Name, int64] // of a Secret
	secured   *sheet.Formula[policy.Target, key.Name]
	target    *sheet.Formula[policy.Target, policy.Attachment]
	port      *sheet.Formula[key.Service, backend.Port]
	backend   *sheet.Formula[key.Service, backend.Port]
	cluster   *sheet.Formula[key.Service, Cluster]
}

// New adds the formulas of clusters to a sheet, above those of entries and credentials.
// trustFile is the system's authorities beside each proxy; empty: there are none.
func New(s *sheet.Sheet, entries *entry.Entries, credentials *credential.Credentials, trustFile string) *Clusters {
	t := &Clusters{entries: entries, credentials: credentials, trustFile: trustFile}
	slice := sheet.NewFormula(s, t.computeSlice)
	t.policy = sheet.NewFormula(s, t.computePolicy)
	t.footprint = sheet.NewFormula(s, t.computeFootprint)
	t.chain = sheet.NewFormula(s, t.computeChain)
	t.secured = sheet.NewFormula(s, t.computeSecured)
	t.target = sheet.NewFormula(s, t.computeTarget)
	t.port = sheet.NewFormula(s, t.computePort)
	t.backend = sheet.NewFormula(s, t.computeBackend)
	t.cluster = sheet.NewFormula(s, t.computeCluster)
	entries.Root(object.EndpointSlice, slice)
	entries.Root(object.BackendTLSPolicy, t.policy)
	return t
}

// Policy is a BackendTLSPolicy, whether anything is spoken to by it or not.
func (t *Clusters) Policy(c *sheet.Cell, n key.Name) policy.Policy { return t.policy.Get(c, n) }

// Holder is the policy that has the target, of several that want it.
func (t *Clusters) Holder(c *sheet.Cell, k policy.Target) key.Name { return t.secured.Get(c, k) }

// Target is what a policy's target is in its Service.
func (t *Clusters) Target(c *sheet.Cell, k policy.Target) policy.Attachment {
	return t.target.Get(c, k)
}

// Port is a Service's port, apart from how a policy says that it is spoken to.
func (t *Clusters) Port(c *sheet.Cell, k key.Service) backend.Port { return t.port.Get(c, k) }

// Backend is a Service's port as routes may send requests to it.
func (t *Clusters) Backend(c *sheet.Cell, k key.Service) backend.Port { return t.backend.Get(c, k) }

// Get is the cluster of a Service's port.
func (t *Clusters) Get(c *sheet.Cell, k key.Service) Cluster { return t.cluster.Get(c, k) }

// Resources is what proxies must have for requests to the cluster to arrive; any may be
// nil.
func (t *Clusters) Resources(c *sheet.Cell, k key.Service) []*resource.Resource {
	of := t.cluster.Get(c, k)
	list := []*resource.Resource{of.Cluster, of.Endpoints}
	if of.Policy != (key.Name{}) {
		list = append(list, t.policy.Get(c, of.Policy).Trust)
	}
	if of.Certificate != (key.Name{}) {
		list = append(list, t.credentials.Secret(c, of.Certificate).Resource)
	}
	return list
}

// Cluster is the cluster of a Service's port with its endpoints: always both, because
// Envoy waits for the second once it has the first. The zero Cluster is none.
type Cluster struct {
	Cluster, Endpoints *resource.Resource
	Policy             key.Name // whose authorities it needs; zero: none
	Certificate        key.Name // the Secret that it needs; zero: none
	Lack               string   // why it has no endpoint; empty if it has one
}

func (t *Clusters) computeCluster(c *sheet.Cell, k key.Service) Cluster {
	port := t.backend.Get(c, k.Anonymous())
	if !port.Invalid.IsZero() {
		return Cluster{}
	}
	service := k.Service.Object(object.Service)
	m := envoy.Cluster{Name: k.Cluster(), Protocol: port.Protocol, Origin: []object.Key{service}}
	var out Cluster
	if port.Policy != (key.Name{}) {
		by := t.policy.Get(c, port.Policy)
		m.TLS = &by.TLS
		m.Origin = append(m.Origin, port.Policy.Object(object.BackendTLSPolicy))
		if by.Trust != nil {
			out.Policy = port.Policy
		}
	}
	if k.Client != (key.Name{}) {
		id := t.credentials.Identity(c, k.Client)
		if m.TLS == nil || !id.Shown() { // the route is about to ask for another one
			return Cluster{}
		}
		out.Certificate = id.Secret
		m.TLS.Certificate = id.Secret.String()
		m.Origin = append(m.Origin, k.Client.Object(object.Gateway))
	}
	var err error
	if out.Cluster, err = m.Resource(); err != nil {
		return Cluster{}
	}
	var found backend.Endpoints
	ends := envoy.Endpoints{Cluster: k.Cluster(), Origin: []object.Key{service}}
	for n, s := range t.slices.All(c, k.Service) {
		if found.Add(s, port.Name) {
			ends.Origin = append(ends.Origin, key.Name{Namespace: k.Service.Namespace, Name: n}.Object(object.EndpointSlice))
		}
	}
	ends.Addresses = found.Addresses()
	out.Lack = found.Lack(k.Service, port)
	if out.Endpoints, err = ends.Resource(); err != nil {
		return Cluster{}
	}
	return out
}

// computeSlice files an EndpointSlice under its Service.
func (t *Clusters) computeSlice(c *sheet.Cell, n key.Name) struct{} {
	if o, there := entry.Get[*discoveryv1.EndpointSlice](t.entries, c, n.Object(object.EndpointSlice)); there {
		if service := o.Labels[discoveryv1.LabelServiceName]; service != "" {
			t.slices.Put(c, key.Name{Namespace: n.Namespace, Name: service}, n.Name, o)
		}
	}
	return struct{}{}
}
