package unit

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/backend"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

// computePort stands between a Service and what uses it, which only the port concerns.
func (u *Units) computePort(c *sheet.Cell, k key.Service) backend.Port {
	o, _ := get[*corev1.Service](u, c, k.Service.Object(object.Service))
	return backend.ReadPort(k, o)
}

// computeBackend adds how the port is spoken to. How the policy says so in detail
// concerns the cluster, not routes.
func (u *Units) computeBackend(c *sheet.Cell, k key.Service) backend.Port {
	port := u.port.Get(c, k)
	by := u.policyOf(c, k.Service, port.Name)
	var invalid condition.Problem
	if by != (key.Name{}) {
		invalid = u.policy.Get(c, by).Invalid
	}
	return port.By(k, by, invalid)
}

// cluster is the cluster of a Service's port with its endpoints: always both, because
// Envoy waits for the second once it has the first. The zero cluster is none.
type cluster struct {
	Cluster, Endpoints *resource.Resource
	Policy             key.Name // whose authorities it needs; zero: none
	Certificate        key.Name // the Secret that it needs; zero: none
	Lack               string   // why it has no endpoint; empty if it has one
}

func (u *Units) computeCluster(c *sheet.Cell, k key.Service) cluster {
	port := u.backend.Get(c, k.Anonymous())
	if !port.Invalid.IsZero() {
		return cluster{}
	}
	service := k.Service.Object(object.Service)
	m := envoy.Cluster{Name: k.Cluster(), Protocol: port.Protocol, Origin: []object.Key{service}}
	var out cluster
	if port.Policy != (key.Name{}) {
		by := u.policy.Get(c, port.Policy)
		m.TLS = &by.TLS
		m.Origin = append(m.Origin, port.Policy.Object(object.BackendTLSPolicy))
		if by.Trust != nil {
			out.Policy = port.Policy
		}
	}
	if k.Client != (key.Name{}) {
		id := u.identity.Get(c, k.Client)
		if m.TLS == nil || !id.shown() { // the route is about to ask for another one
			return cluster{}
		}
		out.Certificate = id.Secret
		m.TLS.Certificate = id.Secret.String()
		m.Origin = append(m.Origin, k.Client.Object(object.Gateway))
	}
	var err error
	if out.Cluster, err = m.Resource(); err != nil {
		return cluster{}
	}
	var found backend.Endpoints
	ends := envoy.Endpoints{Cluster: k.Cluster(), Origin: []object.Key{service}}
	for n, s := range u.slices.All(c, k.Service) {
		if found.Add(s, port.Name) {
			ends.Origin = append(ends.Origin, key.Name{Namespace: k.Service.Namespace, Name: n}.Object(object.EndpointSlice))
		}
	}
	ends.Addresses = found.Addresses()
	out.Lack = found.Lack(k.Service, port)
	if out.Endpoints, err = ends.Resource(); err != nil {
		return cluster{}
	}
	return out
}

// computeSlice files an EndpointSlice under its Service.
func (u *Units) computeSlice(c *sheet.Cell, n key.Name) none {
	if o, there := get[*discoveryv1.EndpointSlice](u, c, n.Object(object.EndpointSlice)); there {
		if service := o.Labels[discoveryv1.LabelServiceName]; service != "" {
			u.slices.Put(c, key.Name{Namespace: n.Namespace, Name: service}, n.Name, o)
		}
	}
	return none{}
}

// shipCluster puts a cluster into a world in which some route uses it, and asks for what
// its TLS needs there.
func (u *Units) shipCluster(c *sheet.Cell, k key.Placed[key.Service]) none {
	of := u.cluster.Get(c, k.Of)
	u.put(c, k.Scope, of.Cluster, of.Endpoints)
	if of.Policy != (key.Name{}) {
		u.trusts.Put(c, key.Placed[key.Name]{Scope: k.Scope, Of: of.Policy}, k.Of.Cluster(), none{})
	}
	if of.Certificate != (key.Name{}) {
		u.secrets.Put(c, key.Placed[key.Name]{Scope: k.Scope, Of: of.Certificate}, "cluster "+k.Of.Cluster(), none{})
	}
	return none{}
}

// shipTrust puts a policy's authorities into a world in which some cluster needs them.
func (u *Units) shipTrust(c *sheet.Cell, k key.Placed[key.Name]) none {
	u.put(c, k.Scope, u.policy.Get(c, k.Of).Trust)
	return none{}
}

// needs is what proxies must have for requests to the cluster to arrive.
func (u *Units) needs(c *sheet.Cell, k key.Service) []resource.Name {
	of := u.cluster.Get(c, k)
	list := []*resource.Resource{of.Cluster, of.Endpoints}
	if of.Policy != (key.Name{}) {
		list = append(list, u.policy.Get(c, of.Policy).Trust)
	}
	if of.Certificate != (key.Name{}) {
		list = append(list, u.secret.Get(c, of.Certificate).Resource)
	}
	return names(list...)
}
