// Package provision makes what a Gateway needs beside configuration: a Service in front of
// it, which maps its ports to internal ones, and, for a dedicated Gateway, the objects that
// run its proxies. The Services are also the record of what was allocated and of how far
// a change between shared and dedicated proxies has come, so there is nothing else to
// keep: what was decided is what the API server has.
package provision

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

// Input is what is decided upon.
type Input struct {
	Namespace string            // the release's, where the Services in front of the shared proxies are
	Selector  map[string]string // labels of the shared proxies
	Wanted    []front.Front
	Existing  []*corev1.Service   // every one that is in a namespace of one of them, or ours
	Ready     func(key.Name) bool // whether a Service leads to a proxy that serves
	Refused   map[key.Name]bool   // Gateways whose proxies cannot be had, so that nothing is to lead to them
	Last      uint32              // the internal port that shared proxies were given last; 0: not known
	Now       time.Time           // to which Overlap and Linger are measured
	Overlap   time.Duration       // for how long both Services are published after a change of proxies
	Linger    time.Duration       // for how long after that the old one still leads to proxies
}

// Plan is what is to be done.
type Plan struct {
	Apply  []*coreac.ServiceApplyConfiguration // Services that do not exist or are not as wanted
	Delete []*corev1.Service                   // of ours that are nobody's any more
	Lacks  map[key.Name]condition.Problem      // why a Gateway cannot have what it needs
	Stay   map[key.Name]bool                   // Gateways whose own proxies are to be left as they are
	Again  time.Time                           // when to look again though nothing changed; zero: not
	Last   uint32                              // the Last of the next Input
}

// slot is one Service of a Gateway: where it is, what is there, and which of the two it is.
type slot struct {
	front.Front
	at  key.Name
	own bool // in front of its own proxies
	now *corev1.Service
}

// ours is what is there, if it is this Gateway's.
func (s slot) ours() *corev1.Service {
	if s.now != nil && front.Ours(s.now, s.Gateway) {
		return s.now
	}
	return nil
}

// planner makes a plan.
type planner struct {
	Input
	plan  Plan
	there map[key.Name]*corev1.Service
	used  map[key.Name]bool
	named map[key.Name]string // the Gateway, as annotations have it, whose Service is to have the name
}

// Services decides which Services there are to be. Those that are not ours are left alone,
// and a Gateway whose name one of them has goes without.
//
// A Gateway that changes between shared and dedicated proxies has two for a while: the old
// one counts until the new one is ready, is then superseded, and after Overlap retired, and
// after Linger gone. When each began is written on it.
func Services(in Input) Plan {
	p := planner{
		Input: in, there: map[key.Name]*corev1.Service{}, used: map[key.Name]bool{}, named: map[key.Name]string{},
		plan: Plan{Lacks: map[key.Name]condition.Problem{}, Stay: map[key.Name]bool{}},
	}
	for _, s := range in.Existing {
		p.there[key.Name{Namespace: s.Namespace, Name: s.Name}] = s
	}
	p.Wanted = slices.SortedFunc(slices.Values(in.Wanted), func(a, b front.Front) int { return a.Gateway.Compare(b.Gateway) })
	now, before := map[key.Name]slot{}, map[key.Name]slot{}
	for _, gw := range p.Wanted {
		if gw.Keep {
			continue
		}
		shared, own := p.slots(gw)
		now[gw.Gateway], before[gw.Gateway] = shared, own
		if gw.Dedicated {
			now[gw.Gateway], before[gw.Gateway] = own, shared
		}
		at := now[gw.Gateway].at
		p.used[at] = true
		if old := p.there[at]; p.named[at] == "" || old != nil && front.Ours(old, gw.Gateway) {
			p.named[at] = gw.Gateway.String()
		}
	}
	p.keep()
	ports := p.allocate(now, before)
	for _, gw := range p.Wanted {
		if !gw.Keep {
			p.decide(now[gw.Gateway], before[gw.Gateway], ports)
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(p.there), key.Name.Compare) {
		if s := p.there[at]; managed(s) && !p.used[at] {
			p.plan.Delete = append(p.plan.Delete, s)
		}
	}
	return p.plan
}

// managed reports whether a Service is one that we made, and that is still to be deleted.
func managed(s *corev1.Service) bool {
	return s.Labels[front.ManagedByLabel] == front.FieldManager && s.Annotations[front.OfAnnotation] != "" && s.DeletionTimestamp == nil
}

// slots are the two Services that a Gateway may have.
func (p *planner) slots(gw front.Front) (shared, own slot) {
	shared = slot{Front: gw, at: key.Name{Namespace: p.Namespace, Name: front.SharedName(gw.Gateway, gw.Class)}}
	own = slot{Front: gw, at: key.Name{Namespace: gw.Gateway.Namespace, Name: front.OwnName(gw.Gateway, gw.Class)}, own: true}
	shared.now, own.now = p.there[shared.at], p.there[own.at]
	return shared, own
}

// keep leaves what is there of Gateways that are to be left as they are, but for what
// another Gateway has a right to.
func (p *planner) keep() {
	kept := map[string]key.Name{}
	for _, gw := range p.Wanted {
		if gw.Keep {
			kept[gw.Gateway.String()] = gw.Gateway
			p.plan.Stay[gw.Gateway] = true
		}
	}
	for at, s := range p.there {
		if gw, is := kept[s.Annotations[front.OfAnnotation]]; is && front.Ours(s, gw) {
			p.used[at] = true
		}
	}
}

// decide plans for one Gateway.
func (p *planner) decide(now, before slot, ports allocations) {
	if now.now != nil && now.ours() == nil {
		p.plan.Lacks[now.Gateway] = condition.Problemf(gatewayv1.GatewayReasonInvalid, "Service %s exists and is not this Gateway's", now.at)
		// One of a Gateway that has no right to the name goes. The graph sees to it that no two
		// Gateways want one name; if they do, this takes nothing from either.
		if managed(now.now) && p.named[now.at] == now.Gateway.String() {
			p.plan.Delete = append(p.plan.Delete, now.now)
		}
	} else if !p.Refused[now.Gateway] || now.now != nil {
		p.apply(now, ports, nil)
	}
	if before.ours() == nil {
		return
	}
	stamps, over := p.pass(now, before)
	if over {
		return // it is used no more
	}
	p.used[before.at] = true
	if before.own {
		p.plan.Stay[before.Gateway] = true
	}
	p.apply(before, ports, stamps)
}

// pass is how far the change from one Service to the other has come: what is to be written
// on the old one, or that it is over.
func (p *planner) pass(now, before slot) (stamps map[string]string, over bool) {
	superseded, is := stamp(before.now, front.SupersededAnnotation)
	if !is {
		if now.ours() == nil || len(front.Addresses(now.now)) == 0 || !p.Ready(now.at) {
			return nil, false
		}
		superseded = p.Now
	}
	stamps = map[string]string{}
	stamps[front.SupersededAnnotation] = superseded.UTC().Format(time.RFC3339Nano)
	retired, is := stamp(before.now, front.RetiredAnnotation)
	if !is {
		if p.later(superseded.Add(p.Overlap)) {
			return stamps, false
		}
		retired = p.Now
	}
	stamps[front.RetiredAnnotation] = retired.UTC().Format(time.RFC3339Nano)
	return stamps, !p.later(retired.Add(p.Linger))
}

// later reports whether a time is still to come, and has that looked at then.
func (p *planner) later(at time.Time) bool {
	if !at.After(p.Now) {
		return false
	}
	if p.plan.Again.IsZero() || at.Before(p.plan.Again) {
		p.plan.Again = at
	}
	return true
}

// stamp reads when something began. What nobody can read did not.
func stamp(s *corev1.Service, annotation string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339Nano, s.Annotations[annotation])
	return at, err == nil
}

// apply plans for one Service.
func (p *planner) apply(s slot, ports allocations, stamps map[string]string) {
	mapped, ok := ports[s.at]
	if !ok {
		p.plan.Lacks[s.Gateway] = condition.Problemf(gatewayv1.GatewayReasonNoResources, "every internal port from %d to %d is taken", front.FirstPort, front.LastPort)
		return
	}
	if len(mapped) == 0 { // a Service must have a port
		delete(p.used, s.at)
		return
	}
	next := service(s, p.Selector, mapped, stamps)
	if s.now == nil || !has(s.now, next) {
		p.plan.Apply = append(p.plan.Apply, next)
	}
}
