package election_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"aether.io/aether/internal/election"
)

// replica is one of several that stand for election.
type replica struct {
	*election.Election
	name string
	stop context.CancelFunc
	done chan error
}

// house is a lease, those who stand for it, and who leads.
type house struct {
	t     *testing.T
	lease *lease

	mu      sync.Mutex
	leaders []string
	terms   int
	most    int           // who led at a time
	reach   []bool        // whether the Lease could be used, each time that this changed
	linger  time.Duration // after the end of a term
	fail    chan error    // ends what is led
}

// play runs a test in a bubble, where time is the test's.
func play(t *testing.T, test func(*testing.T, *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, lease: &lease{}, fail: make(chan error)}
		test(t, h)
		if h.most > 1 {
			t.Errorf("%d led at a time", h.most)
		}
	})
}

func (h *house) stand(name string) *replica {
	h.t.Helper()
	e, err := election.New(election.Config{Lock: &standing{lease: h.lease, identity: name}, Lead: func(ctx context.Context) error { return h.lead(ctx, name) }, OnReach: h.reached})
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &replica{Election: e, name: name, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- e.Run(ctx) }()
	synctest.Wait()
	return r
}

func (h *house) lead(ctx context.Context, name string) error {
	h.mu.Lock()
	h.leaders = append(h.leaders, name)
	h.terms++
	h.most = max(h.most, len(h.leaders))
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.leaders = slices.DeleteFunc(h.leaders, func(s string) bool { return s == name })
	}()
	select {
	case err := <-h.fail:
		return err
	case <-ctx.Done():
		pass(h.linger)
		return ctx.Err()
	}
}

// pass lets the bubble's time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (h *house) reached(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reach = append(h.reach, err == nil)
}

func (h *house) want(names ...string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.leaders, names) {
		h.t.Fatalf("%v lead, want %v", h.leaders, names)
	}
}

func (h *house) end(r *replica) {
	h.t.Helper()
	r.stop()
	if err := <-r.done; !errors.Is(err, context.Canceled) {
		h.t.Errorf("%s: %v", r.name, err)
	}
}

func TestOneLeadsAndHandsOverAtOnce(t *testing.T) {
	play(t, func(_ *testing.T, h *house) {
		a, b := h.stand("a"), h.stand("b")
		h.want("a")
		pass(time.Hour)
		h.want("a")
		h.linger = 4 * time.Second // it takes its time: nobody leads before it is done
		h.end(a)
		h.want()
		if h.lease.holder() != "" {
			t.Fatalf("%q holds the lease", h.lease.holder())
		}
		pass(5 * time.Second) // b's next look, not the lease's end
		h.want("b")
		if !b.Leading() || a.Leading() {
			t.Error("they do not know who leads")
		}
		h.linger = 0
		h.end(b)
	})
}

func TestALeaderThatCannotRenewStopsAndStandsAgain(t *testing.T) {
	play(t, func(t *testing.T, h *house) {
		a, b := h.stand("a"), h.stand("b")
		h.lease.set(true)
		pass(election.DefaultRenew + 2*election.DefaultRetry)
		h.want()
		pass(10 * time.Minute)
		h.want()
		h.lease.set(false)
		pass(election.DefaultLease + 5*time.Second)
		if len(h.leaders) != 1 {
			t.Fatalf("%v lead", h.leaders)
		}
		h.end(a)
		h.end(b)
		if !slices.Equal(h.reach, []bool{false, false, true, true}) { // of each once, and once when it was over
			t.Errorf("it was told whether the lease can be used: %v", h.reach)
		}
	})
}

func TestAnOutageShorterThanThatIsNotNoticed(t *testing.T) {
	play(t, func(t *testing.T, h *house) {
		a := h.stand("a")
		for range 5 {
			pass(time.Minute)
			h.lease.set(true)
			pass(election.DefaultRenew - election.DefaultRetry)
			h.lease.set(false)
		}
		pass(time.Minute)
		h.want("a")
		if h.terms != 1 {
			t.Errorf("%d terms", h.terms)
		}
		h.end(a)
	})
}

func TestStoppingWhileTheAPIIsAwayTakesNoLong(t *testing.T) {
	play(t, func(t *testing.T, h *house) {
		a := h.stand("a")
		h.want("a")
		h.lease.set(true)
		before := time.Now()
		h.end(a)
		if took := time.Since(before); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestStoppingBeforeTheElection(t *testing.T) {
	play(t, func(_ *testing.T, h *house) {
		h.lease.set(true)
		a := h.stand("a")
		pass(time.Minute)
		h.end(a)
		h.want()
	})
}

// A process that dies leaves the lease behind. One with its record, and without its memory,
// is another.
func TestTheLeaseOfADeadOneEnds(t *testing.T) {
	play(t, func(_ *testing.T, h *house) {
		a := h.stand("a")
		h.lease.set(true) // all that a does from here on is for nothing
		h.end(a)
		h.lease.set(false)
		b := h.stand("b")
		h.want()
		pass(election.DefaultLease + 3*election.DefaultRetry) // the next try is up to 2.2 times DefaultRetry away
		h.want("b")
		h.end(b)
	})
}

func TestWhatEndsByItselfIsAnError(t *testing.T) {
	for name, failure := range map[string]error{"with an error": errors.New("broken"), "without": nil} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, h *house) {
				a := h.stand("a")
				h.fail <- failure
				if err := <-a.done; err == nil || failure != nil && !errors.Is(err, failure) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}
