package provision

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

// allocations is, by Service, the internal port of each of its Gateway's ports. One that is
// not in it could not have all that it needs.
type allocations map[key.Name]map[uint32]uint32

// allocate gives every Service that is wanted, or is still there, its internal ports. The
// Services in front of the shared proxies share one set of them, which is what the others
// have too, each for itself.
func (p *planner) allocate(now, before map[key.Name]slot) allocations {
	out := allocations{}
	shared := pool{taken: map[uint32]bool{}, last: p.Last}
	var list []slot
	for _, gw := range p.Wanted {
		for _, s := range []slot{now[gw.Gateway], before[gw.Gateway]} {
			if gw.Keep || s.at == (key.Name{}) || s.at == before[gw.Gateway].at && s.ours() == nil {
				continue
			}
			if !s.own {
				list = append(list, s)
				continue
			}
			alone := pool{taken: map[uint32]bool{}}
			alone.recall([]slot{s})
			alone.give(s, out)
		}
	}
	p.reserve(&shared)
	shared.recall(list)
	if shared.last == 0 { // a process that knows nothing of those before it
		for in := range shared.taken {
			shared.last = max(shared.last, in)
		}
	}
	for _, s := range list {
		shared.give(s, out)
	}
	p.plan.Last = shared.last
	return out
}

// reserve keeps the ports of shared Gateways that are left as they are.
func (p *planner) reserve(shared *pool) {
	for at, s := range p.there {
		if at.Namespace != p.Namespace || !p.keeps(s) {
			continue
		}
		for _, in := range front.Ports(s) {
			shared.taken[in] = true
		}
	}
}

// keeps reports whether a Service is of a Gateway that is to be left as it is.
func (p *planner) keeps(s *corev1.Service) bool {
	return slices.ContainsFunc(p.Wanted, func(f front.Front) bool { return f.Keep && front.Ours(s, f.Gateway) })
}

// pool is the internal ports of proxies that have them in common.
type pool struct {
	kept  map[key.Name]map[uint32]uint32 // of each Service: by its Gateway's port
	taken map[uint32]bool
	last  uint32 // handed out; 0: none
}

// next is a port that is free, and false if there is none. It goes round: a port that was just
// given back may still be where a load balancer, or a node, sends what is meant for the
// Gateway that had it, or for the one that has its address now.
func (a *pool) next() (uint32, bool) {
	const all = front.LastPort - front.FirstPort + 1
	for range all {
		if a.last++; a.last < front.FirstPort || a.last > front.LastPort {
			a.last = front.FirstPort
		}
		if !a.taken[a.last] {
			return a.last, true
		}
	}
	return 0, false
}

// recall reads what was allocated out of the Services. Should two have one internal port,
// the older keeps it.
func (a *pool) recall(list []slot) {
	a.kept = map[key.Name]map[uint32]uint32{}
	list = slices.DeleteFunc(slices.Clone(list), func(s slot) bool { return s.ours() == nil })
	slices.SortFunc(list, func(x, y slot) int {
		return cmp.Or(x.now.CreationTimestamp.Compare(y.now.CreationTimestamp.Time), x.Gateway.Compare(y.Gateway))
	})
	for _, s := range list {
		a.kept[s.at] = map[uint32]uint32{}
		ports := front.Ports(s.now)
		for _, p := range slices.Sorted(maps.Keys(ports)) {
			if slices.Contains(s.Front.Ports, p) && !a.taken[ports[p]] {
				a.taken[ports[p]] = true
				a.kept[s.at][p] = ports[p]
			}
		}
	}
}

// give is a Service's ports with their internal ones, which are allocated if need be.
func (a *pool) give(s slot, out allocations) {
	mapped := map[uint32]uint32{}
	for _, p := range slices.Compact(slices.Sorted(slices.Values(s.Front.Ports))) {
		if kept, has := a.kept[s.at][p]; has {
			mapped[p] = kept
			continue
		}
		in, free := a.next()
		if !free {
			return
		}
		a.taken[in] = true
		mapped[p] = in
	}
	out[s.at] = mapped
}
