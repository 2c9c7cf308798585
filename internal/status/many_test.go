package status_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/status"
)

// many is the statuses of so many namespaces' MeshConfigs, of which all have a rate in effect.
func many(n, rate int) []routing.Status {
	out := make([]routing.Status, n)
	for i := range out {
		out[i] = mesh(1, rate)
		out[i].Key.Namespace = fmt.Sprintf("n%04d", i)
	}
	return out
}

// publish has all of so many MeshConfigs changed by an edit that they inherit.
func (c *crowd) publish(n, rate int) {
	c.mu.Lock()
	c.position++
	c.mu.Unlock()
	c.engine.Update(many(n, rate))
}

// change publishes a generation of a namespace's MeshConfig.
func (c *crowd) change(namespace string, generation int64, rate int) {
	c.mu.Lock()
	c.position++
	c.mu.Unlock()
	s := mesh(generation, rate)
	s.Key.Namespace = namespace
	c.engine.Update([]routing.Status{s})
}

// since is what was written after the first writes, by kind: urgent, or numbers alone.
func (c *crowd) since(first int) (urgent, minor int) {
	c.edge.mu.Lock()
	defer c.edge.mu.Unlock()
	last := map[object.Key]*configv1.MeshConfigStatus{}
	for i, d := range c.written {
		s := d.Status.(*configv1.MeshConfigStatus)
		if i >= first {
			if old := last[d.Key]; old != nil && applied(old) == applied(s) && *old.Effective == *s.Effective {
				minor++
			} else {
				urgent++
			}
		}
		last[d.Key] = s
	}
	return urgent, minor
}

func applied(s *configv1.MeshConfigStatus) string {
	for _, k := range s.Conditions {
		if k.Type == status.MeshApplied {
			return fmt.Sprintf("%s/%s g%d", k.Status, k.Reason, k.ObservedGeneration)
		}
	}
	return ""
}

// numbers is what was written last of each MeshConfig, and of how many.
func (c *crowd) numbers() map[string]int {
	c.edge.mu.Lock()
	defer c.edge.mu.Unlock()
	last := map[object.Key]string{}
	for _, d := range c.written {
		s := d.Status.(*configv1.MeshConfigStatus)
		last[d.Key] = fmt.Sprintf("%s %d/%d", applied(s), s.Proxies.Applied, s.Proxies.Total)
	}
	out := map[string]int{}
	for _, s := range last {
		out[s]++
	}
	return out
}

// saying is of how many MeshConfigs a condition was written last with which status.
func (c *crowd) saying(condition string) map[metav1.ConditionStatus]int {
	c.edge.mu.Lock()
	defer c.edge.mu.Unlock()
	last := map[object.Key]metav1.ConditionStatus{}
	for _, d := range c.written {
		last[d.Key] = ""
		for _, k := range d.Status.(*configv1.MeshConfigStatus).Conditions {
			if k.Type == condition {
				last[d.Key] = k.Status
			}
		}
	}
	out := map[metav1.ConditionStatus]int{}
	for _, s := range last {
		out[s]++
	}
	return out
}

// after is what was written after the first writes.
func (c *crowd) after(first int) []status.Document {
	c.edge.mu.Lock()
	defer c.edge.mu.Unlock()
	return slices.Clone(c.written[first:])
}

// generation is of which generation something was written last.
func (c *crowd) generation(k object.Key) int64 {
	c.edge.mu.Lock()
	defer c.edge.mu.Unlock()
	for _, d := range slices.Backward(c.written) {
		if d.Key == k {
			return d.Generation
		}
	}
	return 0
}

func (c *crowd) wantNumbers(t *testing.T, when, want string, objects int) {
	t.Helper()
	if got := c.numbers(); got[want] != objects || len(got) != 1 {
		t.Errorf("%s: %v, want %d of %q", when, got, objects, want)
	}
}

// Pods that join are counted in each MeshConfig that concerns them with one write, which no
// condition flaps for, and not faster than an API server likes.
func TestJoiningCostsEachMeshConfigOneWrite(t *testing.T) {
	const configs, proxies, joining = 2000, 20, 5
	gather(t, true, func(t *testing.T, c *crowd) {
		pod := func(i int) fleet.Pod {
			return fleet.Pod{Name: fmt.Sprintf("p%02d", i), UID: fmt.Sprintf("p%02d", i), Since: time.Now()}
		}
		var pods []fleet.Pod
		for i := range proxies {
			pods = append(pods, pod(i))
			c.see(at(pod(i).Name, 1))
		}
		c.runs(pods...)
		c.publish(configs, 1)
		pass(time.Minute)
		c.wantNumbers(t, "at first", "True/Applied g1 20/20", configs)
		if n := c.writes(); n != configs {
			t.Errorf("%d writes at first, want %d", n, configs)
		}
		before := c.writes()
		for i := proxies; i < proxies+joining; i++ { // each pod starts, connects, and answers
			pods = append(pods, pod(i))
			c.runs(slices.Clone(pods)...)
			pass(2 * time.Second)
			c.see(at(pod(i).Name, 0))
			pass(time.Second)
			c.see(at(pod(i).Name, 1))
		}
		c.see(at(pod(proxies+joining-1).Name, 1))
		pass(10 * time.Second)
		if urgent, minor := c.since(before); urgent != 0 || minor > 10*30+60 {
			t.Errorf("%d urgent writes and %d others in ten seconds", urgent, minor)
		}
		pass(10 * time.Minute)
		c.wantNumbers(t, "they have joined", "True/Applied g1 25/25", configs)
		if urgent, minor := c.since(before); urgent != 0 || minor > configs+400 {
			t.Errorf("%d urgent writes and %d others because %d pods joined", urgent, minor, joining)
		}
		if !c.engine.Settled() {
			t.Error("not settled")
		}
		before = c.writes()
		pass(time.Hour)
		if n := c.writes() - before; n != 0 {
			t.Errorf("%d writes at rest", n)
		}
	})
}

// A pod that joins and never answers is a laggard when its time is over, of all that it concerns.
func TestAPodThatNeverAnswersIsALaggardInTheEnd(t *testing.T) {
	gather(t, true, func(t *testing.T, c *crowd) {
		c.runs(fleet.Pod{Name: "a", UID: "a"})
		c.see(at("a", 1))
		c.edit(1)
		pass(time.Minute)
		c.want(t, "at first", "True/Applied g1 1/1")
		c.runs(fleet.Pod{Name: "a", UID: "a"}, fleet.Pod{Name: "b", UID: "b", Since: time.Now()})
		pass(status.DefaultGrace - time.Second)
		c.want(t, "b has begun", "True/Applied g1 1/1")
		if c.engine.Settled() {
			t.Error("settled, though there is a proxy to be counted")
		}
		pass(2 * time.Second)
		c.want(t, "b's time is over", "False/Progressing g1 1/2 b:0:Disconnected")
		c.see(at("b", 1))
		lull()
		c.want(t, "b has come", "True/Applied g1 2/2")
	})
}

// While there is always somebody who has just begun, the others are counted all the same.
func TestThoseWhoKeepJoiningAreCounted(t *testing.T) {
	gather(t, false, func(t *testing.T, c *crowd) {
		c.see(at("a", 1))
		c.edit(1)
		pass(time.Minute)
		before := c.writes()
		for i := range 60 { // ten minutes
			c.see(at(fmt.Sprintf("p%02d", i), 0))
			pass(5 * time.Second)
			c.see(at(fmt.Sprintf("p%02d", i), 1), at(fmt.Sprintf("p%02d", i+1), 0))
			pass(5 * time.Second)
		}
		if s := c.last(t).Status.(*configv1.MeshConfigStatus); s.Proxies.Total < 50 || s.Proxies.Applied < 50 {
			t.Errorf("of 61 proxies there are %d of %d", s.Proxies.Applied, s.Proxies.Total)
		}
		if urgent, minor := c.since(before); urgent != 0 || minor > 25 {
			t.Errorf("%d urgent writes and %d others in ten minutes", urgent, minor)
		}
	})
}

// An edit that thousands inherit is told of all of them, at a rate that leaves room, those first that
// concern most; what one edits meanwhile does not wait for them.
func TestWhatIsInheritedIsToldInTurn(t *testing.T) {
	const configs, edited = 2000, "n1999"
	gather(t, false, func(t *testing.T, c *crowd) {
		c.see(at("a", 1))
		c.publish(configs, 1)
		pass(time.Minute)
		before := c.writes()
		c.publish(configs, 2)
		c.see(at("a", 2))
		pass(time.Second)
		if n := c.writes() - before; n < 200 || n > 310 {
			t.Errorf("%d writes in a second", n)
		}
		c.change(edited, 2, 7)
		c.see(at("a", 3))
		lull()
		if got := c.numbers()["True/Applied g2 1/1"]; got != 1 {
			t.Errorf("what was edited waits for its turn: %v", c.numbers())
		}
		pass(20 * time.Second)
		urgent, minor := c.since(before)
		if urgent != configs || minor != 0 || !c.engine.Settled() {
			t.Errorf("%d urgent writes and %d others, settled %t", urgent, minor, c.engine.Settled())
		}
	})
}

// While what thousands inherit is edited all the time, its own status is never far behind, and
// all of theirs together take no more writes than ever.
func TestAStormThatThousandsInheritIsBounded(t *testing.T) {
	const configs, storm, every = 2000, 6 * time.Second, 200 * time.Millisecond
	gather(t, false, func(t *testing.T, c *crowd) {
		c.see(at("a", 1))
		c.publish(configs, 1)
		pass(time.Minute)
		before := c.writes()
		root := object.Key{Kind: object.MeshConfig, Namespace: "aether", Name: "default"}
		edits := map[int64]time.Time{}
		for i := range int64(storm / every) {
			edits[i] = time.Now()
			c.change(root.Namespace, i, int(i))
			c.publish(configs, int(i))
			pass(every / 2)
			c.see(at("a", uint64(2*i+3)))
			pass(every / 2)
			told := c.generation(root)
			if since, untold := edits[told+1]; untold && time.Since(since) > 2*time.Second {
				t.Fatalf("edit %d of %s ago is not told, but %d", told+1, time.Since(since), told)
			}
		}
		if n, most := c.writes()-before, 200+int(storm/(10*time.Millisecond))+4+int(storm/time.Second)+1; n > most {
			t.Errorf("%d writes in %s, want at most %d", n, storm, most)
		}
		pass(21 * time.Second)
		if !c.engine.Settled() {
			t.Error("not settled")
		}
	})
}

// A collector that goes is news of each MeshConfig that exports: told of those that concern most
// proxies first, at the rate of numbers. What comes back before its turn has come is not told.
func TestWhatManyHaveInCommonIsToldInTurn(t *testing.T) {
	const configs = 1000
	gather(t, false, func(t *testing.T, c *crowd) {
		c.see(at("a", 1))
		all := many(configs, 1)
		for i := range all {
			if i%2 == 0 {
				all[i].Live = nil // it concerns nobody
			}
		}
		all[0].Key.Namespace = "zoo" // the release's
		say := func(s metav1.ConditionStatus) {
			for _, of := range all {
				c.engine.Add(of.Key, status.Addition{UID: of.UID, Generation: 1, Minor: true, Condition: metav1.Condition{Type: "Common", Status: s, Reason: string(s)}})
			}
		}
		c.engine.Update(all)
		say(metav1.ConditionTrue)
		pass(10 * time.Minute)
		if got := c.saying("Common"); got[metav1.ConditionTrue] != configs {
			t.Fatalf("at first: %v", got)
		}

		before := c.writes()
		say(metav1.ConditionFalse)
		pass(20 * time.Second)
		if n := c.writes() - before; n < 40+19*20 || n > 40+20*20+1 {
			t.Errorf("%d writes in 20 s", n)
		}
		written := c.after(before)
		if !slices.ContainsFunc(written[:40], func(d status.Document) bool { return d.Key == all[0].Key }) {
			t.Errorf("%s was not told among the first", all[0].Key)
		}
		for _, d := range written {
			if d.Key != all[0].Key && d.Status.(*configv1.MeshConfigStatus).Proxies.Total == 0 {
				t.Errorf("%s was told before those that concern proxies", d.Key)
				break
			}
		}
		edited := c.writes()
		c.change("n0998", 2, 7) // one that has not been told
		c.see(at("a", 2))
		lull()
		if written := c.after(edited); !slices.ContainsFunc(written, func(d status.Document) bool { return d.Key.Namespace == "n0998" && d.Generation == 2 }) {
			t.Errorf("an edit waits: written are %v", written)
		}
		pass(2 * time.Minute)
		if got := c.saying("Common"); got[metav1.ConditionFalse] != configs {
			t.Errorf("it is gone for long: %v", got)
		}

		before = c.writes()
		say(metav1.ConditionTrue)
		pass(time.Second)
		say(metav1.ConditionFalse)
		pass(10 * time.Minute)
		if n := c.writes() - before; n > 2*(40+20+1) {
			t.Errorf("it came for a second, which took %d writes", n)
		}
		if got := c.saying("Common"); got[metav1.ConditionFalse] != configs || !c.engine.Settled() {
			t.Errorf("in the end: %v, settled %t", got, c.engine.Settled())
		}
	})
}

// What is added of an edited object is no number: it is told as the edit is.
func TestWhatIsAddedOfAnEditDoesNotWait(t *testing.T) {
	gather(t, false, func(t *testing.T, c *crowd) {
		c.see(at("a", 1))
		for generation := int64(1); generation < 4; generation++ {
			c.edit(generation)
			c.see(at("a", uint64(generation)))
			pass(500 * time.Millisecond)
			before := c.writes()
			c.engine.Add(meshKey, status.Addition{UID: "u", Generation: generation, Minor: true, Condition: metav1.Condition{Type: "Common", Status: "True", Reason: "True"}})
			lull()
			if n := c.writes() - before; generation > 1 && n != 1 {
				t.Errorf("generation %d: %d writes", generation, n)
			}
			pass(time.Minute)
		}
	})
}

// What one edits is told at once, though thousands wait for their numbers.
func TestAnEditDoesNotWaitForNumbers(t *testing.T) {
	const configs = 2000
	gather(t, false, func(t *testing.T, c *crowd) {
		c.see(at("a", 1))
		c.publish(configs, 1)
		pass(time.Minute)
		c.see(at("b", 1)) // one write of each
		pass(time.Second)
		c.change("n1999", 2, 7)
		c.see(at("a", 2), at("b", 2))
		lull()
		if got := c.numbers(); got["True/Applied g2 2/2"] != 1 || got["True/Applied g1 1/1"] < configs/2 {
			t.Errorf("%v", got)
		}
	})
}

// Where there are other controllers, who is not connected to this one is not said to lag.
func TestWhoMayBeConnectedElsewhereIsNoLaggard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{members: map[string]fleet.Member{}, pods: []fleet.Pod{{Name: "a", UID: "a"}, {Name: "b", UID: "b"}, {Name: "c", UID: "c"}}}
		others := true
		var err error
		c.engine, err = status.New(status.Config{Observer: c, Sink: c, Pods: c, Elsewhere: func() bool { return others }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.engine.Run(ctx) }()
		c.see(at("a", 1))
		c.edit(1)
		pass(time.Minute)
		c.want(t, "b and c are elsewhere", "Unknown/PartlySeen g1 1/3")
		const elsewhere = "2 are not connected to the controller that writes this; there are others, and what is connected to them they do not tell"
		if got, want := c.message(t), "1 of 3 proxies are known to run it; "+elsewhere; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		c.edit(2)
		pass(time.Minute)
		c.want(t, "a does not answer", "False/Progressing g2 0/3 a:1:NotAcknowledged")
		if got, want := c.message(t), "0 of 3 proxies run it; behind: a (NotAcknowledged); "+elsewhere; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
		c.see(at("a", 2), at("b", 2), at("c", 2))
		lull()
		c.want(t, "all are here", "True/Applied g2 3/3")
		away := at("b", 2)
		away.Connected, away.Lag = false, fleet.LagNotConnected
		c.see(away)
		c.edit(3)
		c.see(at("a", 3), at("c", 3))
		pass(time.Minute)
		c.want(t, "b has left, and there was an edit", "Unknown/PartlySeen g3 2/3")
		others = false
		c.engine.Pulse()
		pass(time.Minute)
		c.want(t, "there are no others any more", "False/Progressing g3 2/3 b:2:Disconnected")
		cancel()
		<-done
	})
}

// still is proxies that stand still, and a sink that takes everything.
type still struct {
	members  []fleet.Member
	position uint64
}

func (s *still) Position(scope.Scope) uint64 { return s.position }

func (s *still) Verdict(scope.Scope, []resource.Name, uint32) fleet.Verdict { return fleet.Verdict{} }

func (s *still) Roll(_ scope.Scope, _ []resource.Name, position uint64) []fleet.Member {
	out := slices.Clone(s.members)
	for i := range out {
		out[i].Reached = min(out[i].Reached, position)
	}
	return out
}

func (s *still) Write(context.Context, status.Document) (bool, error) { return true, nil }

func (s *still) Remove(context.Context, object.Key, types.UID) error { return nil }

// What a proxy's answer, a pod that joins, an edit, and one that all inherit cost, by how many
// MeshConfigs and proxies there are. One proxy is behind while answers come, so that they count.
func BenchmarkManyMeshConfigs(b *testing.B) {
	for _, configs := range []int{10, 100, 2000} {
		for _, proxies := range []int{10, 1000} {
			s := &still{position: 1}
			for i := range proxies {
				s.members = append(s.members, fleet.Member{Name: fmt.Sprintf("p%04d", i), UID: "u", Connected: true, Reached: 1})
			}
			now := time.Now()
			e, err := status.New(status.Config{Observer: s, Sink: s, Now: func() time.Time { return now }})
			if err != nil {
				b.Fatal(err)
			}
			step := func() {
				now = now.Add(time.Second)
				e.Step(b.Context())
			}
			name := fmt.Sprintf("configs=%d/proxies=%d", configs, proxies)
			e.Update(many(configs, 1))
			step()
			b.Run(name+"/answer", func(b *testing.B) {
				for i := range b.N {
					s.members[proxies/2].Lag = []string{fleet.LagPending, ""}[i%2]
					e.Pulse()
					step()
				}
			})
			for i := range s.members {
				s.members[i].Lag = ""
			}
			b.Run(name+"/join", func(b *testing.B) {
				for range b.N {
					s.members = append(s.members, fleet.Member{Name: "q", UID: "u", Connected: true})
					e.Pulse()
					step()
					s.members = s.members[:proxies]
					e.Pulse()
					step()
				}
			})
			b.Run(name+"/edit-one", func(b *testing.B) {
				for i := range b.N {
					s.position++
					edited := mesh(int64(2+i), i)
					edited.Key.Namespace = "n0007"
					e.Update([]routing.Status{edited})
					for j := range s.members {
						s.members[j].Reached = s.position
					}
					step()
				}
			})
			b.Run(name+"/edit", func(b *testing.B) {
				for i := range b.N {
					s.position++
					e.Update(many(configs, i))
					for j := range s.members {
						s.members[j].Reached = s.position
					}
					for settled := false; !settled; settled = e.Settled() { // so many are written at a time
						step()
					}
				}
			})
		}
	}
}
