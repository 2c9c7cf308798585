package claim

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// gate is Leases of which each request waits until it is let through.
type gate struct {
	*shelf
	next chan struct{}
}

func (g gate) List(ctx context.Context, take func([]coordinationv1.Lease) error) error {
	<-g.next
	return g.shelf.List(ctx, take)
}

func (g gate) Create(ctx context.Context, l *coordinationv1.Lease) error {
	<-g.next
	return g.shelf.Create(ctx, l)
}

func (g gate) Update(ctx context.Context, l *coordinationv1.Lease) error {
	<-g.next
	return g.shelf.Update(ctx, l)
}

// looker is a release that looks, request by request.
type looker struct {
	*Claim
	gate gate
	done chan error // of the look under way; nil: there is none
}

func newLooker(t *testing.T, s *shelf, namespace string) *looker {
	t.Helper()
	g := gate{s, make(chan struct{})}
	c, err := New(Config{Store: g, Namespace: namespace, Release: "aether", Watches: Watches{Class: "coxswain"}})
	if err != nil {
		t.Fatal(err)
	}
	return &looker{Claim: c, gate: g}
}

func (l *looker) begin(t *testing.T) {
	l.done = make(chan error, 1)
	go func() { l.done <- l.look(t.Context()) }()
	synctest.Wait()
}

// request lets one request through, if the look is not over.
func (l *looker) request(t *testing.T) (over bool) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-l.done:
		if err != nil {
			t.Error(err)
		}
		l.done <- nil
		return true
	case l.gate.next <- struct{}{}:
		synctest.Wait()
		return false
	}
}

func (l *looker) finish(t *testing.T) {
	t.Helper()
	for over := false; !over; { // ends: a look has a bound of steps
		over = l.request(t)
	}
}

// Whatever the order of their requests, of two releases that are installed within one second never do both act, and
// one does soon.
func TestOfTwoThatBeginWithinASecondNeverDoBothAct(t *testing.T) {
	const most = 12 // requests of two looks
	for schedule := range 1 << most {
		synctest.Test(t, func(t *testing.T) {
			s := &shelf{there: map[string]coordinationv1.Lease{}}
			a, b := newLooker(t, s, "team-a"), newLooker(t, s, "team-b")
			check := func(when string) {
				t.Helper()
				if a.Lacks() == nil && b.Lacks() == nil {
					t.Fatalf("schedule %012b, %s: both act", schedule, when)
				}
			}
			a.begin(t)
			b.begin(t)
			for i := range most {
				if one := map[bool]*looker{true: a, false: b}[schedule>>i&1 == 1]; !one.request(t) {
					check(fmt.Sprintf("request %d", i))
				}
			}
			a.finish(t)
			b.finish(t)
			check("the first looks")
			for round := range 3 {
				time.Sleep(DefaultEvery)
				for _, one := range []*looker{a, b} {
					one.begin(t)
					one.finish(t)
					check(fmt.Sprintf("round %d", round))
				}
			}
			if a.Lacks() != nil && b.Lacks() != nil {
				t.Fatalf("schedule %012b: neither acts: %v; %v", schedule, a.Lacks(), b.Lacks())
			}
		})
		if t.Failed() {
			return
		}
	}
}
