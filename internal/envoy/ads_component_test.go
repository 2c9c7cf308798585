//go:build component

package envoy_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
)

// adsServer is the least delta ADS server that feeds one Envoy: it answers every
// subscription at once, pushes what changes, and keeps what Envoy refused.
type adsServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	mu        sync.Mutex // guards all below
	resources map[resource.Name]*resource.Resource
	refusals  []string
	changed   chan struct{} // closed and replaced at each change
}

func newADSServer() *adsServer {
	return &adsServer{resources: map[resource.Name]*resource.Resource{}, changed: make(chan struct{})}
}

func (s *adsServer) put(r *resource.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources[r.Name] = r
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *adsServer) refused() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refusals)
}

// order is the order in which types are best sent.
func order() []string {
	return []string{
		envoy.RuntimeType, envoy.ClusterType, envoy.EndpointType,
		envoy.ScopedRouteType, envoy.ListenerType, envoy.SecretType,
	}
}

// snapshot returns the resources, sorted, and what is closed when they change.
func (s *adsServer) snapshot() ([]*resource.Resource, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.SortedFunc(maps.Values(s.resources), func(a, b *resource.Resource) int { return a.Name.Compare(b.Name) })
	return all, s.changed
}

// subscription is what Envoy wants of one type and has been sent.
type subscription struct {
	fresh bool // has had no answer; the first must have all there is, even if that is nothing
	all   bool
	names map[string]bool
	sent  map[string]resource.Hash
}

// DeltaAggregatedResources serves one Envoy until its stream ends.
func (s *adsServer) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	requests := make(chan *discoveryv3.DeltaDiscoveryRequest)
	go func() { // ends with the stream
		defer close(requests)
		for {
			q, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- q:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	subs := map[string]*subscription{}
	for {
		resources, changed := s.snapshot()
		if err := push(stream, subs, resources); err != nil {
			return err
		}
		select {
		case q, ok := <-requests:
			if !ok {
				return stream.Context().Err()
			}
			s.request(subs, q)
		case <-changed:
		}
	}
}

func (s *adsServer) request(subs map[string]*subscription, q *discoveryv3.DeltaDiscoveryRequest) {
	if q.GetErrorDetail() != nil {
		s.mu.Lock()
		s.refusals = append(s.refusals, fmt.Sprintf("%s: %s", q.GetTypeUrl(), q.GetErrorDetail().GetMessage()))
		s.mu.Unlock()
	}
	sub, known := subs[q.GetTypeUrl()]
	if !known {
		sub = &subscription{fresh: true, names: map[string]bool{}, sent: map[string]resource.Hash{}}
		sub.all = len(q.GetResourceNamesSubscribe()) == 0
		subs[q.GetTypeUrl()] = sub
	}
	for _, n := range q.GetResourceNamesSubscribe() {
		sub.all = sub.all || n == "*"
		sub.names[n] = true
		delete(sub.sent, n)
	}
	for _, n := range q.GetResourceNamesUnsubscribe() {
		delete(sub.names, n)
	}
}

// push sends what is wanted and not yet sent, one response a type.
func push(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer, subs map[string]*subscription, resources []*resource.Resource) error {
	for _, typ := range order() {
		sub := subs[typ]
		if sub == nil {
			continue
		}
		m := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: typ, Nonce: typ}
		for _, r := range resources {
			name := r.Name.Name
			if r.TypeURL != typ || !sub.all && !sub.names[name] || sub.sent[name] == r.Hash {
				continue
			}
			sub.sent[name] = r.Hash
			m.Resources = append(m.Resources, &discoveryv3.Resource{Name: name, Version: r.Hash.String(), Resource: r.Any()})
		}
		if len(m.GetResources()) == 0 && !sub.fresh {
			continue
		}
		sub.fresh = false
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}
