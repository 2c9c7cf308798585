package world_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	pool = scope.SharedPool()
	t0   = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
)

func res(t testing.TB, name, content string) *resource.Resource {
	t.Helper()
	r, err := resource.New(name, wrapperspb.String(content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func change(rs ...*resource.Resource) map[scope.Scope]resource.Delta {
	return map[scope.Scope]resource.Delta{pool: {Changed: rs}}
}

func remove(rs ...*resource.Resource) map[scope.Scope]resource.Delta {
	var d resource.Delta
	for _, r := range rs {
		d.Removed = append(d.Removed, r.Name)
	}
	return map[scope.Scope]resource.Delta{pool: d}
}

func synced(cfg world.Config, deltas map[scope.Scope]resource.Delta) *world.World {
	w := world.New(cfg)
	w.Publish(deltas, watermark.Mark{})
	w.SetSynced()
	return w
}

func subscribe(t testing.TB, w *world.World, id string, have snapshot.Have) *world.Subscription {
	t.Helper()
	s, err := w.Subscribe(t.Context(), pool, fleet.Peer{ID: id}, have, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// next takes the snapshot that must be there.
func next(t testing.TB, s *world.Subscription) snapshot.Snapshot {
	t.Helper()
	snap, wait, err := s.Next()
	if err != nil || wait != nil {
		t.Fatalf("Next: wait %v, error %v; want a snapshot", wait != nil, err)
	}
	return snap
}

// idle checks that nothing is to be sent.
func idle(t testing.TB, s *world.Subscription) <-chan struct{} {
	t.Helper()
	snap, wait, err := s.Next()
	if err != nil || wait == nil {
		t.Fatalf("Next: %+v, error %v; want to wait", snap, err)
	}
	return wait
}

func ack(t testing.TB, s *world.Subscription, snap snapshot.Snapshot, o resource.Outcome) {
	t.Helper()
	if err := s.Answer(snapshot.Answer{Nonce: snap.Nonce, Version: snap.Version, Outcome: o}); err != nil {
		t.Fatal(err)
	}
}

func refused(r *resource.Resource) resource.Outcome {
	return resource.Outcome{Refused: []resource.Refusal{{Name: r.Name, Detail: "no"}}}
}

func names(rs ...*resource.Resource) []resource.Name {
	var out []resource.Name
	for _, r := range rs {
		out = append(out, r.Name)
	}
	return out
}

func TestDifferences(t *testing.T) {
	a, b, b2, c := res(t, "a", "1"), res(t, "b", "1"), res(t, "b", "2"), res(t, "c", "1")
	w := synced(world.Config{}, change(a, b))
	s := subscribe(t, w, "p", snapshot.Have{})
	defer s.Close()

	first := next(t, s)
	if !first.Full || !cmp.Equal(first.Changed, []*resource.Resource{a, b}) || first.Version != w.Version(pool) {
		t.Errorf("first snapshot %+v, want all of it", first)
	}
	wait := idle(t, s)
	w.Publish(change(b2), watermark.Mark{})
	w.Publish(change(c), watermark.Mark{Epoch: 1})
	w.Publish(remove(a), watermark.Mark{Epoch: 2})
	<-wait
	idle(t, s) // still one in flight
	ack(t, s, first, resource.Outcome{})
	second := next(t, s)
	want := resource.Update{Version: w.Version(pool), Changed: []*resource.Resource{b2, c}, Removed: names(a), Mark: watermark.Mark{Epoch: 2}}
	if diff := cmp.Diff(want, second.Update); diff != "" {
		t.Errorf("what had changed meanwhile (-want +got):\n%s", diff)
	}
	ack(t, s, second, resource.Outcome{})
	idle(t, s)

	w.Publish(change(a), watermark.Mark{})
	w.Publish(remove(a), watermark.Mark{})
	if snap, wait, err := s.Next(); wait == nil {
		t.Errorf("a world that came back to what was sent gives %+v, %v", snap, err)
	}
	w.Publish(change(b), watermark.Mark{})
	w.Publish(change(b2), watermark.Mark{})
	idle(t, s)
	if v := w.Verdict(pool, names(b2), 0); !v.IsLive() {
		t.Errorf("what came back to what it was: %+v, want it live", v)
	}
}

func TestResume(t *testing.T) {
	a, a2, b := res(t, "a", "1"), res(t, "a", "2"), res(t, "b", "1")
	w := synced(world.Config{}, change(a, b))
	s := subscribe(t, w, "p", snapshot.Have{})
	v1 := next(t, s)
	ack(t, s, v1, resource.Outcome{})
	s.Close()

	t.Run("with the current version nothing is sent but the question what is live", func(t *testing.T) {
		s := subscribe(t, w, "p", snapshot.Have{Version: v1.Version})
		defer s.Close()
		if got := next(t, s); got.Full || len(got.Changed)+len(got.Removed) != 0 || got.Version != v1.Version {
			t.Errorf("got %+v", got)
		}
	})
	w.Publish(change(a2), watermark.Mark{})
	t.Run("with a version sent before, the difference", func(t *testing.T) {
		s := subscribe(t, w, "p", snapshot.Have{Version: v1.Version})
		defer s.Close()
		if got := next(t, s); got.Full || !cmp.Equal(got.Changed, []*resource.Resource{a2}) {
			t.Errorf("got %+v", got)
		}
	})
	t.Run("with an unknown version, the difference to the inventory", func(t *testing.T) {
		s := subscribe(t, w, "p", snapshot.Have{Version: "of another life"})
		defer s.Close()
		if err := s.Inventory(nil); !errors.Is(err, snapshot.ErrAnswer) {
			t.Errorf("inventory before it was asked: %v", err)
		}
		if _, _, err := s.Next(); !errors.Is(err, snapshot.ErrUnknownVersion) {
			t.Fatalf("Next: %v, want the inventory asked for", err)
		}
		wait := idle(t, s)
		gone := res(t, "gone", "1")
		refs := []snapshot.Ref{{Name: a.Name, Hash: a.Hash}, {Name: b.Name, Hash: b.Hash}, {Name: gone.Name, Hash: gone.Hash}}
		if err := s.Inventory(refs); err != nil {
			t.Fatal(err)
		}
		<-wait
		got := next(t, s)
		want := resource.Update{Version: w.Version(pool), Changed: []*resource.Resource{a2}, Removed: names(gone)}
		if diff := cmp.Diff(want, got.Update); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if err := s.Inventory(nil); !errors.Is(err, snapshot.ErrAnswer) {
			t.Errorf("a second inventory: %v", err)
		}
	})
}

func TestWhatIsNotServedYet(t *testing.T) {
	gw, err := scope.Gateway("ns", "gw")
	if err != nil {
		t.Fatal(err)
	}
	mark := func(n uint64) watermark.Mark { return watermark.Mark{Positions: map[string]uint64{"routes": n}} }
	tests := map[string]struct {
		prepare func(*world.World)
		scope   scope.Scope
		want    error
	}{
		"no scope":                          {func(w *world.World) { w.SetSynced() }, scope.Scope{}, scope.ErrInvalid},
		"a source that has not been read":   {func(w *world.World) { w.Publish(change(), mark(9)) }, pool, snapshot.ErrNotSynced},
		"a source behind the subscriber":    {func(w *world.World) { w.Publish(change(), mark(4)); w.SetSynced() }, pool, snapshot.ErrBehind},
		"a Gateway never heard of":          {func(w *world.World) { w.Publish(change(), mark(9)); w.SetSynced() }, gw, snapshot.ErrNotSynced},
		"a pool with nothing in it is fine": {func(w *world.World) { w.Publish(nil, mark(9)); w.SetSynced() }, pool, nil},
		"a source where the subscriber is":  {func(w *world.World) { w.Publish(nil, mark(5)); w.SetSynced() }, pool, nil},
		"a Gateway without anything":        {func(w *world.World) { w.Publish(map[scope.Scope]resource.Delta{gw: {}}, mark(5)); w.SetSynced() }, gw, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world.New(world.Config{})
			tt.prepare(w)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			s, err := w.Subscribe(ctx, tt.scope, fleet.Peer{ID: "p"}, snapshot.Have{Mark: mark(5)}, nil)
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err == nil {
				s.Close()
			}
		})
	}
	t.Run("waits for the source", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := world.New(world.Config{})
			done := make(chan error)
			go func() {
				s, err := w.Subscribe(t.Context(), pool, fleet.Peer{ID: "p"}, snapshot.Have{Mark: mark(5)}, nil)
				if err == nil {
					s.Close()
				}
				done <- err
			}()
			w.Publish(nil, mark(4))
			w.SetSynced()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("subscribed behind its own mark: %v", err)
			default:
			}
			w.Publish(nil, mark(5))
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
}

func TestAnswers(t *testing.T) {
	a, b, a2 := res(t, "a", "1"), res(t, "b", "1"), res(t, "a", "2")
	w := synced(world.Config{}, change(a, b))
	s, other := subscribe(t, w, "p", snapshot.Have{}), subscribe(t, w, "q", snapshot.Have{})
	defer s.Close()
	defer other.Close()
	live := func(want int, rs ...*resource.Resource) {
		t.Helper()
		if v := w.Verdict(pool, names(rs...), 0); v.Live != want {
			t.Errorf("%v live in %d, want %d: %+v", names(rs...), v.Live, want, v)
		}
	}

	first := next(t, s)
	for name, bad := range map[string]snapshot.Answer{
		"no nonce":        {Version: first.Version},
		"a nonce ahead":   {Nonce: first.Nonce + 1, Version: first.Version},
		"another version": {Nonce: first.Nonce, Version: "x"},
	} {
		if err := s.Answer(bad); !errors.Is(err, snapshot.ErrAnswer) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	live(0, a)
	ack(t, s, first, refused(a))
	ack(t, other, next(t, other), resource.Outcome{Pending: names(b)})
	live(1, a)
	live(1, b)
	live(0, a, b)
	live(0, res(t, "absent", ""))
	live(2)
	if v := w.Verdict(pool, names(a), 0); v.Total != 2 || len(v.Refused) != 1 || v.Refused[0].Proxy != "p" || v.Refused[0].Hash != a.Hash || v.Refused[0].Detail != "no" {
		t.Errorf("verdict %+v, want p's refusal", v)
	}
	idle(t, s) // what was refused is not sent again

	// Answers of the same version replace each other, in both directions.
	ack(t, s, first, resource.Outcome{})
	live(2, a)
	ack(t, s, first, refused(a))
	live(1, a)

	// A, B, A: it is what is refused there again, so there is nothing to send.
	c := res(t, "c", "1")
	w.Publish(change(a2), watermark.Mark{})
	w.Publish(change(a, c), watermark.Mark{})
	second := next(t, s)
	if !cmp.Equal(second.Changed, []*resource.Resource{c}) {
		t.Errorf("sent %+v, want only c", second.Changed)
	}
	ack(t, s, second, refused(a))
	live(1, b) // in other, nothing has been answered since
	live(0, a)

	// An answer that names content that has been replaced meanwhile is about nothing.
	w.Publish(change(res(t, "c", "2")), watermark.Mark{})
	ack(t, s, second, refused(c))
	if got := w.Proxies()[0].Refused; len(got) != 0 {
		t.Errorf("refusals %+v, want none of current content", got)
	}
	// One of an older snapshot is without effect.
	third := next(t, s)
	ack(t, s, third, resource.Outcome{})
	ack(t, s, first, refused(b))
	live(1, b)
	if p := w.Proxies()[0]; !p.Current || p.Version != w.Version(pool) {
		t.Errorf("p is %+v, want it current", p)
	}
}

func TestPorts(t *testing.T) {
	a := res(t, "a", "1")
	w := synced(world.Config{}, change(a))
	s := subscribe(t, w, "p", snapshot.Have{})
	defer s.Close()
	ack(t, s, next(t, s), resource.Outcome{})
	if v := w.Verdict(pool, names(a), 443); v.IsLive() || len(v.Unbound) != 1 {
		t.Errorf("verdict %+v, want the port missing", v)
	}
	events, stop := w.Observe()
	defer stop()
	s.Report([]uint32{80, 443}, fleet.Status{SVIDSerial: "1"})
	<-events
	if v := w.Verdict(pool, names(a), 443); !v.IsLive() {
		t.Errorf("verdict %+v, want it live", v)
	}
	s.Report([]uint32{80, 443}, fleet.Status{SVIDSerial: "1"})
	select {
	case <-events:
		t.Error("a report without news pulsed")
	default:
	}
}

func TestANewerStreamOfAPodTakesOver(t *testing.T) {
	a, b := res(t, "a", "1"), res(t, "b", "1")
	w := synced(world.Config{}, change(a))
	old := subscribe(t, w, "p", snapshot.Have{})
	first := next(t, old)
	ack(t, old, first, resource.Outcome{})
	wait := idle(t, old)

	young := subscribe(t, w, "p", snapshot.Have{Version: first.Version})
	defer young.Close()
	<-wait
	if _, _, err := old.Next(); !errors.Is(err, snapshot.ErrSuperseded) {
		t.Errorf("the old stream's Next: %v", err)
	}
	if err := old.Answer(snapshot.Answer{Nonce: 1, Version: first.Version}); !errors.Is(err, snapshot.ErrSuperseded) {
		t.Errorf("the old stream's Answer: %v", err)
	}
	old.Report([]uint32{1}, fleet.Status{})
	old.Close()
	if v := w.Verdict(pool, names(a), 0); !v.IsLive() {
		t.Errorf("during take-over %+v, want it live throughout", v)
	}
	w.Publish(change(b), watermark.Mark{})
	if got := next(t, young); !cmp.Equal(got.Changed, []*resource.Resource{b}) {
		t.Errorf("the new stream got %+v, want the difference", got)
	}
	oldest := subscribe(t, w, "p", snapshot.Have{Version: first.Version})
	defer oldest.Close()
	ack(t, oldest, next(t, oldest), resource.Outcome{})
	if v := w.Verdict(pool, names(b), 0); !v.IsLive() {
		t.Errorf("answered: %+v, want it live", v)
	}
	back := subscribe(t, w, "p", snapshot.Have{Version: first.Version})
	defer back.Close()
	if v := w.Verdict(pool, names(b), 0); v.Total != 1 || v.Live != 0 {
		t.Errorf("taken over by one that holds less: %+v", v)
	}
	ps := w.Proxies()
	if len(ps) != 1 || !ps[0].Connected || len(ps[0].BoundPorts) != 0 {
		t.Errorf("proxies %+v, want one, connected", ps)
	}
}

func TestAProxyThatCameBackHasToAnswerBeforeItCounts(t *testing.T) {
	a := res(t, "a", "1")
	w := synced(world.Config{}, change(a))
	s := subscribe(t, w, "p", snapshot.Have{})
	first := next(t, s)
	ack(t, s, first, refused(a))
	s.Close()
	if v := w.Verdict(pool, names(a), 0); v.Total != 0 || len(v.Laggards) != 1 || v.Laggards[0].Reason != fleet.LagNotConnected {
		t.Errorf("gone: %+v", v)
	}
	s = subscribe(t, w, "p", snapshot.Have{Version: first.Version, Refused: []resource.Refusal{{Name: a.Name, Hash: a.Hash}}})
	defer s.Close()
	if v := w.Verdict(pool, names(a), 0); v.Total != 0 || len(v.Laggards) != 1 || v.Laggards[0].Reason != fleet.LagNoAck {
		t.Errorf("back: %+v", v)
	}
	if got := w.Proxies()[0].Refused; len(got) != 1 || got[0].Detail != "no" {
		t.Errorf("its refusals %+v, want what it said before", got)
	}
	ack(t, s, next(t, s), refused(a))
	if v := w.Verdict(pool, names(a), 0); v.Total != 1 || v.Live != 0 || len(v.Refused) != 1 {
		t.Errorf("answered: %+v", v)
	}
}

func TestLaggards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := res(t, "a", "1"), res(t, "b", "1")
		w := synced(world.Config{AckDeadline: 30 * time.Second, Keep: time.Minute}, change(a, b))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		defer func() { cancel(); <-done }()
		lag := func(id, want string) {
			t.Helper()
			synctest.Wait()
			for _, p := range w.Proxies() {
				if p.ID == id && p.Laggard != want {
					t.Errorf("at %s, %s is laggard %q, want %q", time.Now(), id, p.Laggard, want)
				}
			}
		}
		slow, warm := subscribe(t, w, "slow", snapshot.Have{}), subscribe(t, w, "warm", snapshot.Have{})
		mute := subscribe(t, w, "mute", snapshot.Have{Version: "unknown"})
		s1, s2 := next(t, slow), next(t, warm)
		if _, _, err := mute.Next(); !errors.Is(err, snapshot.ErrUnknownVersion) {
			t.Fatal(err)
		}
		ack(t, warm, s2, resource.Outcome{Pending: names(a)})
		time.Sleep(29 * time.Second)
		lag("slow", "")
		lag("warm", "")
		lag("mute", "")
		ack(t, warm, s2, resource.Outcome{Pending: names(a, b)})
		events, stop := w.Observe()
		defer stop()
		<-events // what was before
		<-events // the deadline
		lag("slow", fleet.LagNoAck)
		lag("warm", fleet.LagPending)
		lag("mute", fleet.LagNoAck)
		if v := w.Verdict(pool, names(a), 0); v.Total != 0 || len(v.Laggards) != 3 {
			t.Errorf("what is warming for long: %+v", v)
		}
		if v := w.Verdict(pool, names(b), 0); v.Total != 1 || v.Live != 0 {
			t.Errorf("what is warming: %+v", v)
		}
		ack(t, warm, s2, resource.Outcome{})
		ack(t, slow, s1, resource.Outcome{})
		lag("slow", "")
		lag("warm", "")
		if v := w.Verdict(pool, names(a, b), 0); v.Live != 2 {
			t.Errorf("caught up: %+v", v)
		}
		slow.Close()
		warm.Close()
		mute.Close()
		time.Sleep(59 * time.Second)
		if got := len(w.Proxies()); got != 3 {
			t.Errorf("%d proxies are remembered, want 3", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := len(w.Proxies()); got != 0 {
			t.Errorf("%d proxies are remembered after their time", got)
		}
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	now := t0
	w := synced(world.Config{KeepMost: 3, Tombstones: 5, Versions: 2, Now: func() time.Time { now = now.Add(1); return now }}, change())
	for i := range 10 {
		subscribe(t, w, fmt.Sprintf("p%d", i), snapshot.Have{}).Close()
	}
	var ids []string
	for _, p := range w.Proxies() {
		ids = append(ids, p.ID)
	}
	if want := []string{"p7", "p8", "p9"}; !slices.Equal(ids, want) {
		t.Errorf("remembered %v, want %v", ids, want)
	}
	// A stream that is so far behind that removals have been forgotten is asked.
	s := subscribe(t, w, "p", snapshot.Have{})
	defer s.Close()
	ack(t, s, next(t, s), resource.Outcome{})
	for i := range 100 {
		r := res(t, fmt.Sprint(i), "")
		w.Publish(change(r), watermark.Mark{})
		w.Publish(remove(r), watermark.Mark{})
	}
	w.Publish(change(res(t, "a", "")), watermark.Mark{})
	if _, _, err := s.Next(); !errors.Is(err, snapshot.ErrUnknownVersion) {
		t.Errorf("Next: %v, want the inventory asked for", err)
	}
}

func TestStandingTellsHowFarProxiesHaveCome(t *testing.T) {
	a, b := res(t, "a", "1"), res(t, "b", "1")
	now := t0
	answered := time.Time{} // last, by the connected one
	w := synced(world.Config{Now: func() time.Time { return now }}, change(a))
	s := subscribe(t, w, "p", snapshot.Have{})
	defer s.Close()
	subscribe(t, w, "gone", snapshot.Have{}).Close()
	answer := func(snap snapshot.Snapshot, o resource.Outcome) {
		t.Helper()
		now = now.Add(time.Second)
		answered = now
		ack(t, s, snap, o)
		now = now.Add(time.Second)
	}
	standing := func(position uint64, want fleet.Standing, of ...*resource.Resource) {
		t.Helper()
		want.At = answered
		if diff := cmp.Diff(want, w.Standing(pool, position, names(of...))); diff != "" {
			t.Errorf("of %v at %d (-want +got):\n%s", names(of...), position, diff)
		}
	}
	one := w.Position(pool)
	standing(one, fleet.Standing{Connected: 1}, a)
	first := next(t, s)
	answer(first, resource.Outcome{Pending: names(a)})
	standing(one, fleet.Standing{Connected: 1, Differed: 1}, a)
	answer(first, resource.Outcome{})
	standing(one, fleet.Standing{Connected: 1, Reached: 1, Running: 1, Differed: 1}, a)
	w.Publish(change(a), watermark.Mark{})
	if got := w.Position(pool); got != one {
		t.Errorf("a publication without news moved the position from %d to %d", one, got)
	}
	w.Publish(change(b), watermark.Mark{})
	two := w.Position(pool)
	standing(two, fleet.Standing{Connected: 1, Differed: 1}, b)
	standing(one, fleet.Standing{Connected: 1, Reached: 1, Running: 1, Differed: 1}, a)
	standing(one, fleet.Standing{Connected: 1, Reached: 1, Differed: 1}, a, b)
	answer(next(t, s), resource.Outcome{Refused: []resource.Refusal{{Name: b.Name}}})
	standing(two, fleet.Standing{Connected: 1, Reached: 1, Refused: names(b), Differed: 1}, a, b)
	standing(two, fleet.Standing{Connected: 1, Reached: 1, Running: 1, Differed: 1}, a)
	w.Publish(remove(b), watermark.Mark{})
	standing(two, fleet.Standing{Connected: 1, Reached: 1, Running: 1, Differed: 1}, a, b)
	if got := w.Position(scope.Scope{}); got != 0 {
		t.Errorf("position of no scope is %d", got)
	}
	if got := w.Standing(scope.Scope{}, 0, nil); got.Connected != 0 {
		t.Errorf("standing in no scope is %+v", got)
	}
}

func TestStandingTellsByHowMuchTheWorldDiffersFromWhatAProxyHeld(t *testing.T) {
	a, b := res(t, "a", "1"), res(t, "b", "1")
	w := synced(world.Config{}, change(a))
	old := subscribe(t, w, "p", snapshot.Have{})
	version := next(t, old).Version
	old.Close()
	for want, r := range []*resource.Resource{a, b} {
		w.Publish(change(r), watermark.Mark{})
		s := subscribe(t, w, "p", snapshot.Have{Version: version})
		next(t, s)
		if got := w.Standing(pool, 0, nil).Differed; got != want {
			t.Errorf("it differs by %d, want %d", got, want)
		}
		s.Close()
	}
}
