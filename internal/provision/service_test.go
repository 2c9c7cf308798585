package provision_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"aether.io/aether/internal/provision"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

const namespace = "aether-system"

func selector() map[string]string { return map[string]string{"app": "shared-proxy"} }

func gateway(ns, name string, ports ...uint32) front.Front {
	return front.Front{Gateway: key.Name{Namespace: ns, Name: name}, Class: "coxswain", Ports: ports, Type: corev1.ServiceTypeLoadBalancer}
}

// cluster is an API server as far as Services go: applying is merging.
type cluster struct {
	services map[key.Name]*corev1.Service
	ready    map[key.Name]bool // leads to proxies that serve
	clock    int64             // by which Services are dated
	now      time.Time
	last     uint32 // the internal port that was given last
}

const (
	overlap = 5 * time.Minute
	linger  = time.Minute
)

func newCluster() *cluster {
	return &cluster{services: map[key.Name]*corev1.Service{}, ready: map[key.Name]bool{}, now: time.Unix(1700000000, 0)}
}

func nameOf(s *corev1.Service) key.Name { return key.Name{Namespace: s.Namespace, Name: s.Name} }

// at is the Service in front of the shared proxies.
func at(gw front.Front) key.Name {
	return key.Name{Namespace: namespace, Name: front.SharedName(gw.Gateway, gw.Class)}
}

// ownAt is the Service in front of a Gateway's own.
func ownAt(gw front.Front) key.Name {
	return key.Name{Namespace: gw.Gateway.Namespace, Name: front.OwnName(gw.Gateway, gw.Class)}
}

func (c *cluster) existing() []*corev1.Service {
	return slices.SortedFunc(maps.Values(c.services), func(a, b *corev1.Service) int { return nameOf(a).Compare(nameOf(b)) })
}

func (c *cluster) reconcile(wanted ...front.Front) provision.Plan {
	p := provision.Services(provision.Input{
		Namespace: namespace, Selector: selector(), Wanted: wanted, Existing: c.existing(), Ready: func(n key.Name) bool { return c.ready[n] },
		Now: c.now, Overlap: overlap, Linger: linger, Last: c.last,
	})
	c.last = p.Last
	for _, a := range p.Apply {
		c.apply(a)
	}
	for _, s := range p.Delete {
		delete(c.services, nameOf(s))
	}
	return p
}

func (c *cluster) apply(a *coreac.ServiceApplyConfiguration) {
	n := key.Name{Namespace: *a.Namespace, Name: *a.Name}
	s := c.services[n]
	if s == nil {
		c.clock++
		s = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: *a.Name, Namespace: *a.Namespace, CreationTimestamp: metav1.Unix(c.clock, 0)}}
		c.services[n] = s
	}
	s.Labels, s.Annotations = a.Labels, a.Annotations
	s.Spec = corev1.ServiceSpec{Type: *a.Spec.Type, Selector: a.Spec.Selector}
	if a.Spec.LoadBalancerIP != nil {
		s.Spec.LoadBalancerIP = *a.Spec.LoadBalancerIP
	}
	if a.Spec.LoadBalancerClass != nil {
		s.Spec.LoadBalancerClass = a.Spec.LoadBalancerClass
	}
	if a.Spec.ExternalTrafficPolicy != nil {
		s.Spec.ExternalTrafficPolicy = *a.Spec.ExternalTrafficPolicy
	}
	for _, p := range a.Spec.Ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: *p.Name, Port: *p.Port, TargetPort: *p.TargetPort, Protocol: *p.Protocol})
	}
}

func (c *cluster) ports(gw front.Front) map[uint32]uint32 {
	s := c.services[at(gw)]
	if s == nil {
		return nil
	}
	return front.Ports(s)
}

func TestGatewaysWithEqualPortsNeverCross(t *testing.T) {
	c := newCluster()
	a, b := gateway("shop", "web", 80, 443), gateway("blog", "web", 80)
	c.reconcile(a, b)
	seen := map[uint32]bool{}
	for _, gw := range []front.Front{a, b} {
		for p, in := range c.ports(gw) {
			if seen[in] {
				t.Errorf("internal port %d of %s port %d is another's too", in, gw.Gateway, p)
			}
			seen[in] = true
		}
	}
	if len(seen) != 3 {
		t.Fatalf("%d internal ports, want 3", len(seen))
	}
}

// A node may send what is meant for an address to where it led a moment ago. Were that port
// another Gateway's by now, its listener would answer.
func TestAnInternalPortThatWasGivenBackIsNotGivenToTheNext(t *testing.T) {
	c := newCluster()
	seen := map[uint32]string{}
	for i := range 50 {
		gw := gateway("shop", fmt.Sprint("g", i), 443)
		c.reconcile(gw)
		in := c.ports(gw)[443]
		if before := seen[in]; before != "" || in == 0 {
			t.Fatalf("Gateway g%d has internal port %d, which %s had", i, in, before)
		}
		seen[in] = fmt.Sprint("g", i)
	}
	c.last = 0 // another process, which sees what there is
	stays, next := gateway("shop", "g49", 443), gateway("shop", "next", 443)
	c.reconcile(stays, next)
	if in := c.ports(next)[443]; seen[in] != "" {
		t.Errorf("after a restart %s's internal port %d is handed out", seen[in], in)
	}
	// At the end it begins anew.
	c.last = front.LastPort
	more := gateway("shop", "more", 443)
	c.reconcile(stays, more)
	if in := c.ports(more)[443]; in != front.FirstPort {
		t.Errorf("after the last port comes %d", in)
	}
}

func TestWhatIsAsWantedIsNotWritten(t *testing.T) {
	c := newCluster()
	gw := gateway("shop", "web", 80)
	gw.Address, gw.ExternalTrafficPolicy, gw.LoadBalancerClass = "192.0.2.1", corev1.ServiceExternalTrafficPolicyLocal, "example.com/lb"
	gw.Labels, gw.Annotations = map[string]string{"team": "a"}, map[string]string{"lb": "fast"}
	if p := c.reconcile(gw); len(p.Apply) != 1 {
		t.Fatalf("applied %d Services, want 1", len(p.Apply))
	}
	s := c.services[at(gw)]
	s.Labels["of-another"], s.Annotations["of-another"] = "x", "x"
	if p := c.reconcile(gw); len(p.Apply)+len(p.Delete) != 0 {
		t.Fatalf("plan %+v, want nothing", p)
	}
	s.Spec.Ports[0].TargetPort.IntVal++
	if p := c.reconcile(gw); len(p.Apply) != 0 {
		t.Error("an internal port that is free is as good as another: it was written")
	}
	for name, lose := range map[string]func(){
		"label":      func() { delete(s.Labels, front.ManagedByLabel) },
		"annotation": func() { delete(s.Annotations, front.OfAnnotation) },
	} {
		lose()
		p := c.reconcile(gw)
		if len(p.Apply) != 1 || len(p.Delete)+len(p.Lacks) != 0 {
			t.Errorf("a Service that has lost its %s: plan %+v, want it put right", name, p)
		}
	}
	s.Spec.Selector = map[string]string{"app": "evil"}
	if p := c.reconcile(gw); len(p.Apply) != 1 {
		t.Error("a selector that somebody changed was not put right")
	}
}

func TestAServiceThatIsNotOursIsLeftAlone(t *testing.T) {
	c := newCluster()
	gw := gateway("shop", "web", 80)
	name := at(gw)
	c.services[name] = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	p := c.reconcile(gw)
	if len(p.Apply)+len(p.Delete) != 0 || !strings.Contains(p.Lacks[gw.Gateway].Message, name.String()) {
		t.Fatalf("plan %+v, want only a complaint that names %s", p, name)
	}
	if p := c.reconcile(); len(p.Delete) != 0 {
		t.Fatalf("deletes %v", p.Delete)
	}
}

// That two Gateways want one name is not to happen. If it does, what one has stays.
func TestAServiceThatTwoWantIsNotTakenFromTheOneThatHasIt(t *testing.T) {
	for name, has := range map[string]int{"the dedicated one": 0, "the shared one": 1} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			both := []front.Front{gateway(namespace, "shop-web", 80), gateway("shop", "web", 80)}
			both[0].Dedicated = true
			if ownAt(both[0]) != at(both[1]) {
				t.Fatalf("%s and %s: want one name", ownAt(both[0]), at(both[1]))
			}
			c.reconcile(both[has])
			p := c.reconcile(both...)
			for _, a := range p.Apply {
				if got := a.Annotations[front.OfAnnotation]; got != both[has].Gateway.String() {
					t.Errorf("it is made %s's", got)
				}
			}
			if len(p.Delete) != 0 || p.Lacks[both[1-has].Gateway].Message == "" || p.Lacks[both[has].Gateway].Message != "" {
				t.Errorf("plan %+v, want only a complaint of the other", p)
			}
		})
	}
}

func TestNamesAreValidAndToldApart(t *testing.T) {
	long := strings.Repeat("x", 60)
	seen := map[string]string{}
	for _, gw := range []key.Name{{Namespace: "a", Name: "b"}, {Namespace: long, Name: "b"}, {Namespace: long, Name: "c"}, {Namespace: "a", Name: "b.c"}, {Namespace: "a", Name: "b-c"}, {Namespace: "1a", Name: "b"}} {
		name := front.SharedName(gw, "coxswain")
		if problems := validation.IsDNS1035Label(name); len(problems) > 0 {
			t.Errorf("%s: %q: %v", gw, name, problems)
		}
		if other, twice := seen[name]; twice {
			t.Errorf("%s and %s are both %q", gw, other, name)
		}
		seen[name] = gw.String()
	}
}

// Gateways and their ports come and go, the one who decides is replaced at any time: an
// internal port never changes while it is needed, and is never two Gateways'.
func TestAllocationsAreKeptThroughRandomChanges(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := newCluster()
		wanted := map[string]front.Front{}
		for step := range 50 {
			before := map[string]map[uint32]uint32{}
			for id, gw := range wanted {
				before[id] = c.ports(gw)
			}
			id := fmt.Sprint(random.IntN(8))
			if random.IntN(3) == 0 {
				delete(wanted, id)
			} else {
				gw := gateway("ns", "g"+id)
				for range random.IntN(5) {
					gw.Ports = append(gw.Ports, uint32(80+random.IntN(4)))
				}
				wanted[id] = gw
			}
			if p := c.reconcile(slices.Collect(maps.Values(wanted))...); len(p.Lacks) > 0 {
				t.Fatalf("seed %d step %d: %v", seed, step, p.Lacks)
			}
			taken := map[uint32]string{}
			for id, gw := range wanted {
				now := c.ports(gw)
				for _, port := range gw.Ports {
					in, has := now[port]
					if !has {
						t.Fatalf("seed %d step %d: port %d of %s has no internal port", seed, step, port, id)
					}
					if old, had := before[id][port]; had && old != in {
						t.Fatalf("seed %d step %d: port %d of %s moved from %d to %d", seed, step, port, id, old, in)
					}
					if other, twice := taken[in]; twice && other != fmt.Sprint(id, port) {
						t.Fatalf("seed %d step %d: internal port %d is %s and %s", seed, step, in, other, fmt.Sprint(id, port))
					}
					taken[in] = fmt.Sprint(id, port)
				}
			}
		}
		if c.reconcile(); len(c.services) != 0 {
			t.Fatalf("seed %d: %d Services are left without a Gateway", seed, len(c.services))
		}
	}
}

func TestOfTwoServicesWithOneInternalPortTheOlderKeepsIt(t *testing.T) {
	c := newCluster()
	a, b := gateway("z", "old", 80), gateway("a", "new", 80)
	c.reconcile(a)
	c.clock += int64(time.Minute / time.Second)
	c.reconcile(a, b)
	want := c.ports(a)[80]
	c.services[at(b)].Spec.Ports[0].TargetPort.IntVal = int32(want)
	c.reconcile(a, b)
	if got := c.ports(a)[80]; got != want {
		t.Errorf("the older has %d, want %d", got, want)
	}
	if got := c.ports(b)[80]; got == want {
		t.Errorf("both have %d", got)
	}
}
