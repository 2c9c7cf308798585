package delta

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"aether.io/aether/internal/xds/kind"
)

// model behaves as Envoy 1.40.0 was seen to behave, its traps included. A resource is
// bad if its encoding contains "BAD".
type model struct {
	responses int
	claims    map[kind.Kind]map[string]string // what it believes to have, per kind

	clusters  map[string]*clusterIn
	scopes    map[string]string // in use by workers: name to cluster
	known     map[string]string // by name, contents that it takes for being in use
	listeners map[string]string
	endpoints map[string]string                    // asked for by name: content
	withheld  []*discoveryv3.DeltaDiscoveryRequest // about clusters, while any is warming
	excused   map[string]bool                      // scopes that run an older content than is wanted

	asked   map[kind.Kind]bool
	outbox  []*discoveryv3.DeltaDiscoveryRequest
	problem error // what must never be seen
}

type clusterIn struct {
	content string
	warm    bool
	was     bool // an earlier content is warm
}

func newModel() *model {
	m := &model{
		claims: map[kind.Kind]map[string]string{}, clusters: map[string]*clusterIn{}, scopes: map[string]string{},
		known: map[string]string{}, listeners: map[string]string{}, endpoints: map[string]string{},
	}
	for k := range kind.Kind(kind.Count) {
		m.claims[k] = map[string]string{}
	}
	return m
}

// connect opens a stream: what it sends first.
func (m *model) connect() {
	m.outbox, m.asked, m.withheld = nil, map[kind.Kind]bool{}, nil
	m.ask(kind.Clusters)
	if len(m.endpoints) > 0 {
		m.ask(kind.Endpoints, slices.Sorted(maps.Keys(m.endpoints))...)
	}
	m.ask(kind.Listeners)
	if len(m.listeners) > 0 {
		m.ask(kind.Scopes)
	}
}

func (m *model) ask(k kind.Kind, names ...string) {
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.TypeURL(), ResourceNamesSubscribe: names}
	if !m.asked[k] {
		m.asked[k] = true
		r.InitialResourceVersions = maps.Clone(m.claims[k])
	} else if len(names) == 0 {
		return // a wildcard is asked for once
	}
	m.say(k, r)
}

// say queues a request. Those about clusters wait while any cluster is warming.
func (m *model) say(k kind.Kind, r *discoveryv3.DeltaDiscoveryRequest) {
	if k == kind.Clusters && m.warming() {
		m.withheld = append(m.withheld, r)
		return
	}
	m.outbox = append(m.outbox, r)
}

func (m *model) warming() bool {
	for _, c := range m.clusters {
		if !c.warm {
			return true
		}
	}
	return false
}

// receive handles a response and queues what Envoy says to it.
func (m *model) receive(r *discoveryv3.DeltaDiscoveryResponse) {
	m.responses++
	k, _ := kind.Of(r.GetTypeUrl())
	if !m.asked[k] {
		m.fail("response of %s, which nobody asked for", k)
		return
	}
	var err error
	switch k {
	case kind.Clusters:
		m.onClusters(r)
		return
	case kind.Endpoints:
		err = m.onEndpoints(r)
	case kind.Scopes:
		err = m.onScopes(r)
	case kind.Listeners:
		err = m.onListeners(r)
	case kind.Secrets, kind.Runtime:
	}
	m.reply(k, r, err)
}

func (m *model) reply(k kind.Kind, r *discoveryv3.DeltaDiscoveryResponse, err error) {
	req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.TypeURL(), ResponseNonce: r.GetNonce()}
	if err != nil {
		req.ErrorDetail = &statuspb.Status{Code: 13, Message: err.Error()}
	} else if k != kind.Scopes || len(m.listeners) > 0 {
		// Envoy claims scopes that it has not read, too. That, followed by a refusal that
		// is lost, followed by a restart of our process, is not defended against.
		for _, x := range r.GetResources() {
			m.claims[k][x.GetName()] = x.GetVersion()
		}
	}
	for _, n := range r.GetRemovedResources() {
		delete(m.claims[k], n)
	}
	m.say(k, req)
}

func bad(x *discoveryv3.Resource) bool {
	return strings.Contains(string(x.GetResource().GetValue()), "BAD")
}

// onClusters applies each by itself and withholds the answer until all are warm.
// "BADLY" is one that cannot be decoded.
func (m *model) onClusters(r *discoveryv3.DeltaDiscoveryResponse) {
	for _, x := range r.GetResources() {
		if strings.Contains(string(x.GetResource().GetValue()), "BADLY") {
			m.reply(kind.Clusters, r, errors.New("Invalid duration: Expected positive duration: seconds: -1"))
			return
		}
	}
	for _, n := range r.GetRemovedResources() {
		for _, s := range slices.Sorted(maps.Keys(m.scopes)) {
			c := m.scopes[s]
			if c == n && m.clusters[n] != nil && !m.excused[s] {
				m.fail("cluster %s is removed while scope %s leads to it", n, s)
			}
		}
		delete(m.clusters, n) // a warming one cannot be among them: it would not have been answered for
		if _, ok := m.endpoints[n]; ok {
			delete(m.endpoints, n)
			m.outbox = append(m.outbox, &discoveryv3.DeltaDiscoveryRequest{
				TypeUrl: kind.Endpoints.TypeURL(), ResourceNamesUnsubscribe: []string{n},
			})
		}
	}
	var refused []string
	for _, x := range r.GetResources() {
		n, v := x.GetName(), string(x.GetResource().GetValue())
		switch old := m.clusters[n]; {
		case bad(x):
			refused = append(refused, n+": it is BAD, really: so")
		case old != nil && old.content == v:
		default:
			m.claims[kind.Clusters][n] = x.GetVersion()
			m.clusters[n] = &clusterIn{content: v, was: old != nil && (old.warm || old.was)}
			if _, ok := m.endpoints[n]; !ok {
				m.endpoints[n] = ""
				m.ask(kind.Endpoints, n)
			}
		}
	}
	var err error
	if len(refused) > 0 {
		err = errors.New("Error adding/updating cluster(s) " + strings.Join(refused, ", "))
	}
	m.reply(kind.Clusters, r, err)
}

// onEndpoints stops at the first bad one.
func (m *model) onEndpoints(r *discoveryv3.DeltaDiscoveryResponse) error {
	for _, x := range r.GetResources() {
		if bad(x) {
			return errors.New("malformed IP address: BAD")
		}
		n := x.GetName()
		if _, ok := m.endpoints[n]; !ok {
			continue // nobody watches it
		}
		m.endpoints[n] = string(x.GetResource().GetValue())
		if c := m.clusters[n]; c != nil {
			c.warm = true
		}
	}
	if !m.warming() {
		m.outbox = append(m.outbox, m.withheld...)
		m.withheld = nil
	}
	return nil
}

// onScopes takes all or none, but remembers those before the bad one.
func (m *model) onScopes(r *discoveryv3.DeltaDiscoveryResponse) error {
	if len(m.listeners) == 0 {
		return nil // nobody watches
	}
	use := map[string]string{}
	for _, n := range r.GetRemovedResources() {
		delete(m.scopes, n)
		delete(m.known, n)
	}
	for _, x := range r.GetResources() {
		if bad(x) {
			return errors.New("missing ): (")
		}
		n, v := x.GetName(), string(x.GetResource().GetValue())
		if m.known[n] == v {
			continue
		}
		m.known[n] = v
		var s routev3.ScopedRouteConfiguration
		if err := proto.Unmarshal(x.GetResource().GetValue(), &s); err != nil {
			return err
		}
		use[n] = s.GetRouteConfiguration().GetVirtualHosts()[0].GetRoutes()[0].GetRoute().GetCluster()
	}
	for n, c := range use {
		if in := m.clusters[c]; !m.excused[n] && (in == nil || !in.warm && !in.was) {
			m.fail("scope %s leads to cluster %s, which is not there", n, c)
		}
		m.scopes[n] = c
	}
	return nil
}

func (m *model) onListeners(r *discoveryv3.DeltaDiscoveryResponse) error {
	for _, n := range r.GetRemovedResources() {
		delete(m.listeners, n)
	}
	if len(m.listeners) == 0 { // the shared subscription goes with the last of them
		clear(m.scopes)
		clear(m.known)
	}
	var refused strings.Builder
	for _, x := range r.GetResources() {
		if bad(x) {
			fmt.Fprintf(&refused, "%s: it is BAD\n", x.GetName())
			continue
		}
		m.claims[kind.Listeners][x.GetName()] = x.GetVersion()
		m.listeners[x.GetName()] = string(x.GetResource().GetValue())
	}
	if len(m.listeners) > 0 {
		m.ask(kind.Scopes)
	}
	if refused.Len() > 0 {
		return errors.New("Error adding/updating listener(s) " + refused.String())
	}
	return nil
}

func (m *model) fail(format string, args ...any) {
	if m.problem == nil {
		m.problem = fmt.Errorf(format, args...)
	}
}
