package unit

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/backend"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

// computeBackend stands between a Service and its routes, which only the port concerns.
func (u *Units) computeBackend(c *sheet.Cell, k key.Service) backend.Port {
	o, _ := get[*corev1.Service](u, c, k.Service.Object(object.Service))
	return backend.ReadPort(k, o)
}

// cluster is the cluster of a Service's port with its endpoints: always both, because
// Envoy waits for the second once it has the first. The zero cluster is none.
type cluster struct {
	Cluster, Endpoints *resource.Resource
}

func (u *Units) computeCluster(c *sheet.Cell, k key.Service) cluster {
	port := u.backend.Get(c, k)
	if !port.Invalid.IsZero() {
		return cluster{}
	}
	origin := []object.Key{k.Service.Object(object.Service)}
	m, err := envoy.Cluster{Name: k.Cluster(), Protocol: port.Protocol, Origin: origin}.Resource()
	if err != nil {
		return cluster{}
	}
	ends := envoy.Endpoints{Cluster: k.Cluster(), Origin: origin}
	for n, s := range u.slices.All(c, k.Service) {
		if found := backend.Endpoints(s, port.Name); len(found) > 0 {
			ends.Addresses = append(ends.Addresses, found...)
			ends.Origin = append(ends.Origin, key.Name{Namespace: k.Service.Namespace, Name: n}.Object(object.EndpointSlice))
		}
	}
	ends.Addresses = backend.Sorted(ends.Addresses)
	e, err := ends.Resource()
	if err != nil {
		return cluster{}
	}
	return cluster{Cluster: m, Endpoints: e}
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

// shipCluster puts a cluster into a world in which some route uses it.
func (u *Units) shipCluster(c *sheet.Cell, k key.Placed[key.Service]) none {
	of := u.cluster.Get(c, k.Of)
	u.put(c, k.Scope, of.Cluster, of.Endpoints)
	return none{}
}
