package world_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
)

// A roll leaves nobody out: who is behind is in it with the position that it has reached,
// and what it did not get to.
func TestARollHasEveryProxyAndWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		layer, layer2, other := res(t, "layer", "1"), res(t, "layer", "2"), res(t, "other", "1")
		w := synced(world.Config{}, change(layer))
		a, b, c := subscribe(t, w, "a", snapshot.Have{}), subscribe(t, w, "b", snapshot.Have{}), subscribe(t, w, "c", snapshot.Have{})
		defer a.Close()
		defer b.Close()
		defer c.Close()
		start := time.Now()
		first := w.Position(pool)
		want := func(when string, position uint64, list ...fleet.Member) {
			t.Helper()
			if diff := cmp.Diff(list, w.Roll(pool, names(layer), position)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		one := func(name string, reached uint64, lag string, since time.Time) fleet.Member {
			return fleet.Member{Name: name, Connected: true, Reached: reached, Lag: lag, Since: since}
		}
		ack(t, a, next(t, a), resource.Outcome{})
		ack(t, b, next(t, b), resource.Outcome{Pending: names(layer)})
		want("c has been sent nothing", first, one("a", first, "", time.Time{}), one("b", first, fleet.LagPending, start), one("c", 0, fleet.LagNoAck, start))

		time.Sleep(time.Second)
		ack(t, b, snapshot.Snapshot{Nonce: 1, Update: resource.Update{Version: w.Version(pool)}}, resource.Outcome{})
		ack(t, c, next(t, c), refused(layer))
		refuses := one("c", first, fleet.LagRejected, start.Add(time.Second))
		refuses.Detail = "no"
		want("c refuses it", first, one("a", first, "", time.Time{}), one("b", first, "", time.Time{}), refuses)

		time.Sleep(time.Second)
		w.Publish(change(layer2), watermark.Mark{})
		second := w.Position(pool)
		snap := next(t, a)
		sent := time.Now()
		want("a has not answered, b is about to be sent it, c's refusal is of what was before", second,
			one("a", first, fleet.LagNoAck, sent), one("b", first, fleet.LagNoAck, time.Time{}), one("c", first, fleet.LagNoAck, time.Time{}))
		ack(t, a, snap, resource.Outcome{})
		ack(t, b, next(t, b), resource.Outcome{})

		// What else is published moves nobody, and one that has left keeps where it was.
		time.Sleep(time.Second)
		w.Publish(change(other), watermark.Mark{})
		left := time.Now()
		c.Close()
		a.Close()
		gone := func(name string, reached uint64, lag string, since time.Time) fleet.Member {
			m := one(name, reached, lag, since)
			m.Connected = false
			return m
		}
		want("a and c have left", second, gone("a", second, "", time.Time{}), one("b", second, "", time.Time{}), gone("c", first, fleet.LagNotConnected, left))
		back := subscribe(t, w, "a", snapshot.Have{})
		defer back.Close()
		want("a is back and has answered nothing", second, one("a", 0, fleet.LagNoAck, left), one("b", second, "", time.Time{}), gone("c", first, fleet.LagNotConnected, left))
	})
}
