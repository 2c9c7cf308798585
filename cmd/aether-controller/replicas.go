package main

import (
	"os"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"aether.io/aether/internal/object"
)

// replicas is which other controllers proxies can be connected to: the pods that are ready behind
// the Service that proxies connect to, whose EndpointSlices the source follows anyway.
type replicas struct {
	namespace string // the release's
	self      string // name of this pod

	mu sync.Mutex          // guards in
	in map[object.Key]bool // EndpointSlices with others' pods
}

func newReplicas(namespace string) (*replicas, error) {
	host, err := os.Hostname()
	return &replicas{namespace: namespace, self: host, in: map[object.Key]bool{}}, err
}

// observe takes changes of objects, and reports whether there are others now and were none
// before, or the other way round.
func (r *replicas) observe(changes []object.Change) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.in) > 0
	for _, c := range changes {
		if c.Key.Kind != object.EndpointSlice || c.Key.Namespace != r.namespace {
			continue
		}
		delete(r.in, c.Key)
		s, there := c.Object.(*discoveryv1.EndpointSlice)
		if !there || s.Labels[discoveryv1.LabelServiceName] != discoveryService {
			continue
		}
		for _, e := range s.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) && e.TargetRef != nil && e.TargetRef.Name != r.self {
				r.in[c.Key] = true
			}
		}
	}
	return len(r.in) > 0 != before
}

// others reports whether there are any.
func (r *replicas) others() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.in) > 0
}
