package world_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
)

// crowd is proxies that answer whatever they are sent at once.
type crowd struct {
	t    testing.TB
	w    *world.World
	subs []*world.Subscription
	sent int // snapshots, to all of them
}

func newCrowd(t testing.TB, w *world.World, n int) *crowd {
	t.Helper()
	c := &crowd{t: t, w: w}
	for i := range n {
		c.subs = append(c.subs, subscribe(t, w, fmt.Sprintf("p%d", i), snapshot.Have{}))
	}
	c.take()
	return c
}

// take takes what there is for each of them, and returns how many were sent something.
func (c *crowd) take() int {
	c.t.Helper()
	n := 0
	for _, s := range c.subs {
		snap, wait, err := s.Next()
		if err != nil {
			c.t.Fatal(err)
		}
		if wait == nil {
			n++
			ack(c.t, s, snap, resource.Outcome{})
		}
	}
	c.sent += n
	return n
}

// current is how many have answered for what the world has.
func (c *crowd) current() int {
	n := 0
	for _, p := range c.w.Proxies() {
		if p.Current {
			n++
		}
	}
	return n
}

func (c *crowd) leave() {
	for _, s := range c.subs {
		s.Close()
	}
}

func publish(t testing.TB, w *world.World, i int) {
	w.Publish(change(res(t, "a", fmt.Sprint(i))), watermark.Mark{})
}

// However many proxies there are, and as often as a person changes something, nothing waits.
func TestALoneChangeIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const proxies = 500
		w := synced(world.Config{Rate: 200, Burst: 100}, change(res(t, "a", "")))
		c := newCrowd(t, w, proxies)
		defer c.leave()
		for i := range 10 {
			publish(t, w, i)
			if n := c.take(); n != proxies {
				t.Fatalf("change %d was sent to %d of %d proxies at once", i, n, proxies)
			}
			time.Sleep(time.Second)
		}
	})
}

// Nor does one of a series, as long as it makes no more snapshots than there is room for.
func TestASeriesOfChangesIsSentOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := synced(world.Config{}, change(res(t, "a", "")))
		c := newCrowd(t, w, 2)
		defer c.leave()
		for i := range 1000 {
			publish(t, w, i)
			if n := c.take(); n != 2 {
				t.Fatalf("change %d was sent to %d of 2 proxies at once", i, n)
			}
			time.Sleep(time.Millisecond)
		}
	})
}

func TestChangesWithoutEndAreSentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			proxies = 50
			rate    = 500 // so that there is room for all of them every 100 ms
			every   = 5 * time.Millisecond
			lasts   = 10 * time.Second
		)
		w := synced(world.Config{Rate: rate}, change(res(t, "a", "")))
		c := newCrowd(t, w, proxies)
		defer c.leave()
		c.sent = 0
		behind := time.Duration(0) // for how long somebody has been
		for i := range int(lasts / every) {
			publish(t, w, i)
			if c.take() == proxies {
				behind = 0
			} else if behind += every; behind > world.DefaultHold {
				t.Fatalf("change %d waits for longer than %s", i, world.DefaultHold)
			}
			time.Sleep(every)
			synctest.Wait()
		}
		// What there was room for at first, what came since, and that the last was begun before
		// there was room for all of it.
		if most := 2*rate + rate*int(lasts/time.Second) + proxies; c.sent > most || c.sent < most/2 {
			t.Errorf("%d snapshots were sent, want at most %d and not much less", c.sent, most)
		}
		time.Sleep(world.DefaultHold)
		synctest.Wait()
		c.take()
		if n := c.current(); n != proxies {
			t.Errorf("%d of %d proxies have the last change", n, proxies)
		}
		for _, s := range c.subs {
			idle(t, s)
		}
	})
}

// However much is owed, a change waits no longer than it may, and who does not answer holds
// up nobody else.
func TestAChangeWaitsNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			proxies = 300
			hold    = 50 * time.Millisecond
		)
		w := synced(world.Config{Rate: 1, Hold: hold}, change(res(t, "a", "")))
		c := newCrowd(t, w, proxies)
		defer c.leave()
		mute := subscribe(t, w, "mute", snapshot.Have{})
		defer mute.Close()
		next(t, mute)
		publish(t, w, 0)
		c.take()
		for i := range 20 {
			publish(t, w, 2*i+1)
			publish(t, w, 2*i+2)
			if n := c.take(); n != 0 {
				t.Fatalf("round %d: %d proxies were sent something without room for it", i, n)
			}
			time.Sleep(hold)
			synctest.Wait()
			if n := c.take(); n != proxies {
				t.Fatalf("round %d: %d of %d proxies were sent something after %s", i, n, proxies, hold)
			}
			idle(t, mute)
		}
	})
}

// Those who begin are sent what there is, and not once more when it would have been sent.
func TestThoseWhoBeginDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := synced(world.Config{Rate: 1}, change(res(t, "a", "")))
		c := newCrowd(t, w, 10)
		defer c.leave()
		publish(t, w, 0)
		c.take()
		publish(t, w, 1) // is held
		late := subscribe(t, w, "late", snapshot.Have{})
		defer late.Close()
		first := next(t, late)
		if first.Version != w.Version(pool) {
			t.Errorf("sent version %s of %s", first.Version, w.Version(pool))
		}
		ack(t, late, first, resource.Outcome{})
		for range 2 {
			time.Sleep(world.DefaultHold)
			synctest.Wait()
			idle(t, late)
		}
		if n := c.take(); n != 10 {
			t.Errorf("%d of 10 others were sent it", n)
		}
	})
}

// What was changed back while it was held is no difference.
func TestWhatWasChangedBackIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := synced(world.Config{Rate: 1}, change(res(t, "a", "")))
		c := newCrowd(t, w, 10)
		defer c.leave()
		publish(t, w, 0)
		c.take()
		publish(t, w, 1)
		publish(t, w, 0)
		time.Sleep(world.DefaultHold)
		synctest.Wait()
		if n := c.take(); n != 0 {
			t.Errorf("%d proxies were sent nothing new", n)
		}
		if n := c.current(); n != 10 {
			t.Errorf("%d of 10 proxies are current", n)
		}
	})
}
