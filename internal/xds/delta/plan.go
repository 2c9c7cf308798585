package delta

import (
	"maps"
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"aether.io/aether/internal/xds/kind"
)

const (
	maxResponse = 4 << 20 // bytes of payload in one response, if it has more than one resource
	maxInflight = 8       // responses of one kind, where it may be more than one: secrets, and clusters with Hold
	maxFresh    = 64      // new clusters up to which each payload is searched for their names
)

// Next returns the responses that can be sent now. They must be sent in this order.
//
// Additions and changes go first: clusters, right behind them their endpoints, then
// the scopes and listeners that mention no cluster which Envoy does not have yet;
// listeners behind scopes. What each kind is sent next waits for the answer to what
// it was sent before. When nothing is left of them, removals go, in the opposite
// order, each kind waiting for the answers to the one before. Scopes that connections may
// still look up are kept; see keep.
func (b *Book) Next() []*discoveryv3.DeltaDiscoveryResponse {
	if !b.open || !b.loaded {
		return nil
	}
	var out []*discoveryv3.DeltaDiscoveryResponse
	for k := range kind.Kind(kind.Count) {
		for t := b.offer(k); t != nil; t = b.offer(k) { // Exits: it is busy, or nothing is left
			out = append(out, b.send(k, t))
		}
	}
	if b.quiet() {
		b.keep()
		for _, k := range []kind.Kind{kind.Listeners, kind.Scopes, kind.Clusters, kind.Endpoints, kind.Secrets, kind.Runtime} {
			if t := b.kinds[k].withdraw(); t != nil {
				return append(out, b.send(k, t))
			}
		}
	}
	return out
}

// Settled reports whether everything that can be done is done and answered. It is
// true of a Book whose Next returned nothing.
func (b *Book) Settled() bool {
	if !b.open || !b.loaded || b.scopesDue || !b.kinds[kind.Clusters].answered || !b.kinds[kind.Listeners].answered {
		return false
	}
	for k := range kind.Kind(kind.Count) {
		if s := &b.kinds[k]; len(s.groups) > 0 || s.owed() {
			return false
		}
	}
	return true
}

// quiet: no addition or change is left, so removals may go.
func (b *Book) quiet() bool {
	for k := range kind.Kind(kind.Count) {
		if len(b.kinds[k].dirty) > 0 {
			return false
		}
	}
	return b.Settled()
}

// busy: what was sent before must be answered first.
func (s *state) busy() bool {
	return s.kind != kind.Secrets && s.owed() || len(s.inflight) >= maxInflight
}

// owed: Envoy has not answered, and does not withhold it.
func (s *state) owed() bool {
	return slices.ContainsFunc(s.inflight, func(t *batch) bool { return !t.held })
}

// offer takes the next additions and changes of a kind; nil: there are none now.
func (b *Book) offer(k kind.Kind) *batch {
	s := &b.kinds[k]
	if !s.subscribed || s.busy() {
		return nil
	}
	late := k == kind.Scopes || k == kind.Listeners
	if scopes := &b.kinds[kind.Scopes]; k == kind.Listeners &&
		(scopes.busy() || len(scopes.dirty) > 0 && b.kinds[kind.Clusters].busy()) || late && !b.kinds[kind.Clusters].answered {
		return nil // listeners change over to scopes that are there
	}
	var fresh [][]byte
	if late {
		fresh = b.fresh()
	}
	t := &batch{items: s.take(fresh)}
	if len(t.items) == 0 && (s.answered || k.Named() || len(s.dirty) > 0) {
		return nil
	}
	if k == kind.Clusters {
		b.pushEndpoints(t.items)
	}
	if k == kind.Listeners {
		t.removed = s.replaced(t.items)
		t.again = b.kinds[kind.Scopes].subscribed
	}
	return t
}

// take removes from groups or dirty what one response can hold of it.
func (s *state) take(fresh [][]byte) []item {
	// Exits: each turn uses up a group.
	for len(s.groups) > 0 {
		names := s.groups[0]
		s.groups = s.groups[1:]
		if items := s.pick(names, fresh); len(items) > 0 {
			return items
		}
	}
	return s.pick(slices.Sorted(maps.Keys(s.dirty)), fresh)
}

func (s *state) pick(names []string, fresh [][]byte) []item {
	var items []item
	size := 0
	for _, n := range names {
		t := s.entries[n].target()
		if t == nil && !s.kind.Named() {
			s.touch(n, false)
			continue
		}
		if t != nil {
			if kind.Mentions(t.Payload, fresh) {
				s.dirty[n] = true // if it came from a group
				continue
			}
			// Secrets go one by one: of one that it refused with others Envoy remembers
			// that it has seen it, and would accept it unread when it comes alone.
			size += len(t.Payload)
			if len(items) > 0 && (size > maxResponse || s.kind == kind.Secrets) {
				s.dirty[n] = true
				continue
			}
		}
		delete(s.dirty, n)
		items = append(items, item{name: n, res: t})
	}
	return items
}

// pushEndpoints makes the endpoints of those clusters follow them at once: Envoy
// waits for them again after every change of a cluster, and does not ask.
// Before the first answer to clusters Envoy has not begun to listen for any but
// those that it names.
func (b *Book) pushEndpoints(clusters []item) {
	s := &b.kinds[kind.Endpoints]
	if !s.subscribed {
		return
	}
	for _, c := range clusters {
		n := kind.EndpointsOf(c.res)
		if n == "" {
			continue
		}
		if _, asked := s.names[n]; asked || b.kinds[kind.Clusters].answered {
			s.touch(n, true)
		}
	}
}

// replaced takes the listeners that are to be removed and whose port one of the new
// ones takes over: Envoy hands the socket on if both are in one response.
func (s *state) replaced(added []item) []string {
	if len(s.gone) == 0 {
		return nil
	}
	taken := map[uint32]struct{}{}
	for _, i := range added {
		for _, p := range kind.PortsOf(i.res) {
			taken[p] = struct{}{}
		}
	}
	var out []string
	for _, n := range slices.Sorted(maps.Keys(s.gone)) {
		e := s.entries[n]
		if e == nil || e.live == nil {
			continue
		}
		if slices.ContainsFunc(kind.PortsOf(e.live), func(p uint32) bool { _, ok := taken[p]; return ok }) {
			out = append(out, n)
			s.have[n] = unknown
			delete(s.gone, n)
		}
	}
	return out
}

// withdraw takes all removals of a kind.
func (s *state) withdraw() *batch {
	if !s.subscribed || len(s.gone) == 0 {
		return nil
	}
	t := &batch{}
	for _, n := range slices.Sorted(maps.Keys(s.gone)) {
		if s.kind.Named() {
			t.items = append(t.items, item{name: n})
		} else {
			t.removed = append(t.removed, n)
			s.have[n] = unknown // if it is wanted again before the answer, it is not there
		}
	}
	clear(s.gone)
	return t
}

// fresh lists, as kind.Field, the clusters that Envoy is to have and does not have yet;
// nil stands for any.
func (b *Book) fresh() [][]byte {
	s := &b.kinds[kind.Clusters]
	names := map[string]struct{}{}
	add := func(n string) {
		if have, known := s.have[n]; !known || have == unknown {
			names[n] = struct{}{}
		}
	}
	for _, g := range append(slices.Clip(s.groups), slices.Collect(maps.Keys(s.dirty))) {
		for _, n := range g {
			add(n)
		}
	}
	for _, t := range s.inflight {
		for _, i := range t.items {
			if _, warms := t.warming[i.name]; warms || !t.held {
				add(i.name)
			}
		}
	}
	if len(names) > maxFresh {
		return [][]byte{nil}
	}
	var out [][]byte
	for n := range names {
		out = append(out, kind.Field(n))
	}
	return out
}

// Hold says which clusters are warming, so that the answer which Envoy withholds
// because of them holds back nothing else.
func (b *Book) Hold(warming []string) {
	for _, t := range b.kinds[kind.Clusters].inflight {
		t.held, t.warming = true, map[string]struct{}{}
		for _, i := range t.items {
			if slices.Contains(warming, i.name) {
				t.warming[i.name] = struct{}{}
			}
		}
	}
	// The first answer is due, but what it stands for has happened.
	b.kinds[kind.Clusters].answered = b.kinds[kind.Clusters].answered || len(b.kinds[kind.Clusters].inflight) > 0
}

// Unanswered reports whether clusters, and whether anything else, was sent and Envoy
// has not answered.
func (b *Book) Unanswered() (clusters, others bool) {
	for k := range kind.Kind(kind.Count) {
		sent := len(b.kinds[k].inflight) > 0
		clusters, others = clusters || sent && k == kind.Clusters, others || sent && k != kind.Clusters
	}
	return clusters, others
}

// NoScopes says that no subscription to scopes has followed the listeners.
func (b *Book) NoScopes() { b.scopesDue = false }

// Retry offers once more what was refused for reasons that lie outside of its content.
func (b *Book) Retry() {
	for n := range b.waiting {
		k, _ := kind.Of(n.TypeURL)
		e := b.kinds[k].entries[n.Name]
		for i := range e.bad {
			e.bad[i].again = e.bad[i].again || kind.Environmental(e.bad[i].detail)
		}
		b.kinds[k].touch(n.Name, false)
	}
}

// Waiting reports whether Retry would do something.
func (b *Book) Waiting() bool { return len(b.waiting) > 0 }
