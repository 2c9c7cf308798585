package status_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/status"
)

var layerName = resource.Name{TypeURL: "x.Runtime", Name: "aether"}

// crowd is what surrounds an engine that counts: proxies of one scope, the pods that run
// them, and what was written.
type crowd struct {
	edge
	mu       sync.Mutex
	position uint64
	members  map[string]fleet.Member // Reached is not cut off here, Lag is what is said of one that is behind
	names    []string                // of members, sorted
	pods     []fleet.Pod
	unlisted bool // which pods there are is not known
	engine   *status.Engine
}

func (c *crowd) Position(scope.Scope) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position
}

func (c *crowd) Roll(_ scope.Scope, _ []resource.Name, position uint64) []fleet.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]fleet.Member, 0, len(c.names))
	for _, name := range c.names {
		m := c.members[name]
		if m.Reached >= position && m.Lag != fleet.LagRejected && m.Lag != fleet.LagPending {
			m.Lag, m.Since = "", time.Time{}
		}
		m.Reached = min(m.Reached, position)
		out = append(out, m)
	}
	return out
}

func (c *crowd) Running(scope.Scope) ([]fleet.Pod, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.pods), !c.unlisted
}

// see makes proxies be observed.
func (c *crowd) see(list ...fleet.Member) {
	c.mu.Lock()
	for _, m := range list {
		if i, there := slices.BinarySearch(c.names, m.Name); !there {
			c.names = slices.Insert(c.names, i, m.Name)
		}
		c.members[m.Name] = m
	}
	c.mu.Unlock()
	c.engine.Pulse()
}

// edit publishes a generation.
func (c *crowd) edit(generation int64) {
	c.mu.Lock()
	c.position++
	c.mu.Unlock()
	c.engine.Update([]routing.Status{mesh(generation, int(generation))})
}

func mesh(generation int64, rate int) routing.Status {
	return routing.Status{
		Key: meshKey, UID: "u", Generation: generation,
		Value: &configv1.MeshConfigStatus{ObservedGeneration: generation, Effective: &configv1.MeshConfigEffective{
			Proxy: configv1.MeshConfigEffectiveProxy{AccessLogSuccessSampleRate: configv1.EffectiveUint32{Value: uint32(rate), From: "default"}},
		}},
		Live: []routing.Requirement{{Scope: scope.SharedPool(), Resources: []resource.Name{layerName}}},
	}
}

// at is a connected proxy that has answered for a position.
func at(name string, reached uint64) fleet.Member {
	return fleet.Member{Name: name, UID: name, Connected: true, Reached: reached, Lag: fleet.LagNoAck, Since: time.Now()}
}

func gather(t *testing.T, onCluster bool, script func(t *testing.T, c *crowd)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{members: map[string]fleet.Member{}}
		config := status.Config{Observer: c, Sink: c, ReleaseNamespace: "zoo"}
		if onCluster {
			config.Pods = c
		}
		var err error
		if c.engine, err = status.New(config); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.engine.Run(ctx) }()
		c.engine.Update(nil) // the source's first list, of nothing
		script(t, c)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// says is what was written last, in one line.
func (c *crowd) says(t *testing.T) string {
	t.Helper()
	s := c.last(t).Status.(*configv1.MeshConfigStatus)
	var b strings.Builder
	for _, k := range s.Conditions {
		if k.Type == status.MeshApplied {
			fmt.Fprintf(&b, "%s/%s g%d", k.Status, k.Reason, k.ObservedGeneration)
		}
	}
	fmt.Fprintf(&b, " %d/%d", s.Proxies.Applied, s.Proxies.Total)
	for _, l := range s.Proxies.Laggards {
		fmt.Fprintf(&b, " %s:%d:%s", l.Name, l.Generation, l.Reason)
	}
	return b.String()
}

func (c *crowd) want(t *testing.T, when, want string) {
	t.Helper()
	if got := c.says(t); got != want {
		t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// runs says which pods there are.
func (c *crowd) runs(pods ...fleet.Pod) {
	c.mu.Lock()
	c.pods = pods
	c.mu.Unlock()
	c.engine.Pulse()
}

func (c *crowd) message(t *testing.T) string {
	t.Helper()
	for _, k := range c.last(t).Status.(*configv1.MeshConfigStatus).Conditions {
		if k.Type == status.MeshApplied {
			return k.Message
		}
	}
	return ""
}

func TestAMeshConfigIsAppliedWhenEveryProxyRunsIt(t *testing.T) {
	gather(t, false, func(t *testing.T, c *crowd) {
		c.see(at("a", 0), at("b", 0))
		c.edit(1)
		pass(status.DefaultPatience + status.DefaultLull)
		c.want(t, "nobody has answered", "False/Progressing g1 0/2 a:0:NotAcknowledged b:0:NotAcknowledged")
		c.see(at("a", 1))
		pass(time.Minute)
		c.want(t, "one has", "False/Progressing g1 1/2 b:0:NotAcknowledged")
		if got, want := c.message(t), "1 of 2 proxies run it; behind: b (NotAcknowledged)"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		c.see(at("b", 1))
		lull()
		c.want(t, "all have", "True/Applied g1 2/2")

		// An edit that one does not answer to, while others come, go and join.
		c.edit(2)
		c.see(at("a", 2))
		pass(time.Minute)
		c.want(t, "b has not answered to the second", "False/Progressing g2 1/2 b:1:NotAcknowledged")
		c.see(at("c", 2))
		pass(time.Minute)
		c.want(t, "a third has joined", "False/Progressing g2 2/3 b:1:NotAcknowledged")
		gone := at("a", 2)
		gone.Connected = false
		c.see(gone)
		pass(time.Minute)
		c.want(t, "one is gone, of which nothing else is known", "False/Progressing g2 1/2 b:1:NotAcknowledged")
		pending := at("b", 2)
		pending.Lag = fleet.LagPending
		c.see(pending)
		pass(time.Minute)
		c.want(t, "b warms up", "False/Progressing g2 1/2 b:1:Pending")
		refuses := at("b", 2)
		refuses.Lag, refuses.Detail = fleet.LagRejected, "no"
		c.see(refuses)
		lull()
		c.want(t, "b refuses", "False/Rejected g2 1/2 b:1:Rejected")
		if got, want := c.message(t), "b refused it: no"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	})
}

// What is inherited can change while the object does not: it is to be run all the same.
func TestWhatIsInheritedIsCountedToo(t *testing.T) {
	gather(t, false, func(t *testing.T, c *crowd) {
		c.see(at("a", 1))
		c.edit(1)
		lull()
		c.want(t, "at first", "True/Applied g1 1/1")
		c.mu.Lock()
		c.position++
		c.mu.Unlock()
		c.engine.Update([]routing.Status{mesh(1, 50)})
		pass(time.Minute)
		c.want(t, "what it inherits is not there yet", "False/Progressing g1 0/1 a:1:NotAcknowledged")
		c.see(at("a", 2))
		lull()
		c.want(t, "it is", "True/Applied g1 1/1")
		written := c.writes()
		c.mu.Lock()
		c.position++
		c.mu.Unlock()
		c.engine.Update([]routing.Status{mesh(1, 50)}) // a Gateway more, say
		pass(time.Minute)
		if c.writes() != written {
			t.Errorf("written because of what it is not about: %s", c.says(t))
		}
	})
}

func TestARunningPodCountsWhetherOrNotItIsConnected(t *testing.T) {
	gather(t, true, func(t *testing.T, c *crowd) {
		start := time.Now()
		pod := func(name string) fleet.Pod { return fleet.Pod{Name: name, UID: name, Since: time.Now()} }
		c.runs(pod("a"), pod("b"))
		c.see(at("a", 1))
		c.edit(1)
		pass(time.Minute)
		c.want(t, "b runs and was never seen", "False/Progressing g1 1/2 b:0:Disconnected")
		if since := c.last(t).Status.(*configv1.MeshConfigStatus).Proxies.Laggards[0].Since; !since.Equal(new(metav1.NewTime(start.UTC().Truncate(time.Second)))) {
			t.Errorf("since %v, want the pod's start %v", since, start)
		}
		c.see(at("b", 1))
		lull()
		c.want(t, "b has come", "True/Applied g1 2/2")

		away := at("b", 1)
		away.Connected, away.Lag = false, fleet.LagNotConnected
		c.see(away)
		pass(time.Minute)
		c.want(t, "b is away, with what it should run", "True/Applied g1 2/2")
		c.edit(2)
		c.see(at("a", 2))
		pass(time.Minute)
		c.want(t, "b has missed an edit", "False/Progressing g2 1/2 b:1:Disconnected")
		leaving := pod("b")
		leaving.Leaving = true
		c.runs(pod("a"), leaving)
		lull()
		c.want(t, "b's pod is being deleted", "True/Applied g2 1/1")
		c.runs(pod("a"))
		pass(time.Minute)
		c.want(t, "b's pod is gone, and b is remembered", "True/Applied g2 1/1")
		another := pod("a")
		another.UID = "another"
		c.runs(another)
		away = at("a", 2)
		away.Connected, away.Lag = false, fleet.LagNotConnected
		c.see(away)
		pass(time.Minute)
		c.want(t, "another pod of the name", "False/Progressing g2 0/1 a:0:Disconnected")
	})
}

func TestAMeshConfigThatConcernsNobodySaysSo(t *testing.T) {
	gather(t, true, func(t *testing.T, c *crowd) {
		s := mesh(1, 1)
		s.Live = nil
		c.engine.Update([]routing.Status{s})
		lull()
		c.want(t, "no scope", "True/Applied g1 0/0")
		if got := c.message(t); !strings.Contains(got, "concerns no proxy") {
			t.Errorf("message %q", got)
		}
		c.edit(2)
		pass(time.Minute)
		c.want(t, "a scope without proxies", "False/Progressing g2 0/0")
	})
}

func TestAtMostTenLaggardsAreNamedTheLongestFirst(t *testing.T) {
	gather(t, false, func(t *testing.T, c *crowd) {
		for i := range 14 {
			m := at(fmt.Sprintf("p%02d", 13-i), 0)
			m.Since = time.Now().Add(time.Duration(i) * time.Second)
			c.see(m)
		}
		c.edit(1)
		pass(time.Minute)
		s := c.last(t).Status.(*configv1.MeshConfigStatus)
		if n := len(s.Proxies.Laggards); n != 10 || s.Proxies.Laggards[0].Name != "p13" || s.Proxies.Laggards[9].Name != "p04" {
			t.Errorf("%d laggards: %v", n, s.Proxies.Laggards)
		}
		if got := c.message(t); !strings.HasSuffix(got, "and 4 more") {
			t.Errorf("message %q", got)
		}
	})
}

// A thousand proxies that answer one by one make a handful of writes an edit, and none at rest.
func TestAThousandProxiesMakeFewWrites(t *testing.T) {
	const proxies = 1000
	gather(t, false, func(t *testing.T, c *crowd) {
		name := func(i int) string { return fmt.Sprintf("p%04d", i) }
		for i := range proxies {
			c.see(at(name(i), 1))
		}
		c.edit(1)
		lull()
		c.want(t, "at first", "True/Applied g1 1000/1000")
		for generation := int64(2); generation < 4; generation++ {
			before := c.writes()
			c.edit(generation)
			for i := range proxies { // half a minute in all
				pass(30 * time.Millisecond)
				c.see(at(name(i), uint64(generation)))
			}
			lull()
			if n := c.writes() - before; n > 8 {
				t.Errorf("generation %d took %d writes", generation, n)
			}
			c.want(t, "when all have answered", fmt.Sprintf("True/Applied g%d 1000/1000", generation))
			before = c.writes()
			for i := range 20 { // answers about something else
				c.see(at(name(i), uint64(generation)+1))
				pass(time.Second)
			}
			pass(time.Hour)
			if n := c.writes() - before; n > 0 {
				t.Errorf("%d writes at rest", n)
			}
		}
	})
}

// After a storm of edits the status is settled within two seconds, and what is kept of it is bounded.
func TestAStormOfEditsSettlesSoon(t *testing.T) {
	gather(t, false, func(t *testing.T, c *crowd) {
		late := at("late", 3)
		c.see(at("a", 1), late)
		for generation := int64(1); generation <= 6000; generation++ { // a minute
			c.edit(generation)
			c.see(at("a", uint64(generation)))
			pass(10 * time.Millisecond)
		}
		writes := c.writes()
		if writes > 65 {
			t.Errorf("%d writes in a minute", writes)
		}
		pass(2 * time.Second)
		c.want(t, "after the storm", "False/Progressing g6000 1/2 late:3:NotAcknowledged")
		c.see(at("late", 6000))
		pass(2 * time.Second)
		c.want(t, "when the last has answered", "True/Applied g6000 2/2")
		if !c.engine.Settled() {
			t.Error("not settled")
		}
	})
}

// However fast it is edited, a status is never more than two seconds behind, and takes a write a second.
func TestAStatusFollowsEditsThatDoNotEnd(t *testing.T) {
	for name, answers := range map[string]func(c *crowd, generation, of int64){
		"proxies that answer at once": func(c *crowd, g, _ int64) { c.see(at("a", uint64(g))) },
		"proxies that answer late":    func(c *crowd, g, behind int64) { c.see(at("a", uint64(max(1, g-behind)))) },
		"proxies that do not answer":  func(*crowd, int64, int64) {},
	} {
		for _, every := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, 490 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, every %s", name, every), func(t *testing.T) {
				gather(t, false, func(t *testing.T, c *crowd) {
					const storm = time.Minute
					c.see(at("a", 1))
					edited := map[int64]time.Time{}
					for generation := int64(1); generation <= int64(storm/every); generation++ {
						edited[generation] = time.Now()
						c.edit(generation)
						answers(c, generation, int64(200*time.Millisecond/every)+1)
						pass(every)
						told := c.generation(meshKey)
						if since, untold := edited[told+1]; untold && time.Since(since) > 2*time.Second {
							t.Fatalf("generation %d of %s ago is not told, but %d", told+1, time.Since(since), told)
						}
					}
					if n := c.writes(); n > 4+int(storm/time.Second)+1 {
						t.Errorf("%d writes in %s", n, storm)
					}
				})
			})
		}
	}
}

// A process that begins does not know its proxies yet, and does not cry wolf.
func TestProxiesHaveTimeToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{members: map[string]fleet.Member{}, pods: []fleet.Pod{{Name: "a", UID: "a"}}}
		var err error
		if c.engine, err = status.New(status.Config{Observer: c, Sink: c, Pods: c}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.engine.Run(ctx) }()
		c.edit(1)
		pass(3 * time.Second)
		if c.writes() != 0 {
			t.Errorf("said before proxies could come back: %s", c.says(t))
		}
		pass(3 * time.Second)
		c.want(t, "it has not come", "False/Progressing g1 0/1 a:0:Disconnected")
		c.see(at("a", 1))
		lull()
		c.want(t, "it has", "True/Applied g1 1/1")
		cancel()
		<-done
	})
}

// What is not valid is run nowhere: what was before goes on, and is named.
func TestAMeshConfigThatIsRefusedIsAppliedNowhere(t *testing.T) {
	gather(t, false, func(t *testing.T, c *crowd) {
		c.see(at("a", 1))
		c.edit(1)
		lull()
		bad := mesh(2, 1)
		bad.Refused = "it is not valid, and generation 1 stays in effect: spec.x: no"
		c.engine.Update([]routing.Status{bad})
		lull()
		c.want(t, "it became bad", "False/Rejected g2 0/1 a:1:Rejected")
		if got := c.message(t); got != bad.Refused {
			t.Errorf("message %q", got)
		}
		c.engine.Update([]routing.Status{mesh(3, 1)})
		lull()
		c.want(t, "it is good again, and as it was", "True/Applied g3 1/1")

		never := bad
		never.UID = "another"
		c.engine.Update([]routing.Status{never})
		pass(time.Minute)
		c.want(t, "one that never was good", "False/Rejected g2 0/1 a:0:Rejected")
	})
}
