package world_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
)

func TestWhatIsReported(t *testing.T) {
	a, a2, b := res(t, "a", "1"), res(t, "a", "2"), res(t, "b", "1")
	w := synced(world.Config{}, change(a, b))
	s, u := subscribe(t, w, "p", snapshot.Have{}), subscribe(t, w, "q", snapshot.Have{})
	defer s.Close()
	defer u.Close()
	want := func(when string, bindings uint64, of ...*resource.Resource) {
		t.Helper()
		expected := fleet.Reported{Bindings: bindings}
		for _, r := range of {
			expected.Refused = append(expected.Refused, fleet.Objection{Scope: pool, Refusal: resource.Refusal{Name: r.Name, Hash: r.Hash, Detail: "no"}})
		}
		if diff := cmp.Diff(expected, w.Reported(), cmp.Comparer(func(x, y fleet.Objection) bool { return x.Scope == y.Scope && x.Refusal == y.Refusal })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	want("nobody has answered", 0)
	both := resource.Outcome{Refused: append(refused(b).Refused, refused(a).Refused...)}
	ack(t, s, next(t, s), refused(b))
	want("one refuses one", 0, b)
	ack(t, u, next(t, u), both)
	want("the other refuses both", 0, a, b)

	s.Report([]uint32{80}, fleet.Status{})
	want("ports were bound", 1, a, b)
	s.Report([]uint32{80}, fleet.Status{EnvoyVersion: "1", SVIDSerial: "2"})
	want("what else is reported is of no concern", 1, a, b)
	u.Report([]uint32{80, 81}, fleet.Status{})
	want("another has bound others", 2, a, b)

	w.Publish(change(a2), watermark.Mark{})
	want("what was refused is superseded", 2, b)
	ack(t, s, next(t, s), resource.Outcome{})
	want("one runs everything", 2, b)
	ack(t, u, next(t, u), resource.Outcome{})
	want("both do", 2)

	// One that says when it connects what it refuses, and is gone.
	v := subscribe(t, w, "r", snapshot.Have{Version: w.Version(pool), Refused: []resource.Refusal{{Name: b.Name, Hash: b.Hash, Detail: "no"}}})
	want("one comes that refuses", 2, b)
	v.Close()
	want("it is remembered", 2, b)
	w.Publish(remove(b), watermark.Mark{})
	want("there is nothing any more that was refused", 2)
}
