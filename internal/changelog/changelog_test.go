package changelog_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"aether.io/aether/internal/changelog"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is proxies as a test wants them.
type fleet struct {
	events chan struct{}

	mu             sync.Mutex
	reached, total int
}

func (f *fleet) Position(scope.Scope) uint64 { return 1 }

func (f *fleet) Reached(scope.Scope, uint64) (reached, total int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reached, f.total
}

func (f *fleet) Observe() (events <-chan struct{}, stop func()) { return f.events, func() {} }

func (f *fleet) set(reached, total int) {
	f.mu.Lock()
	f.reached, f.total = reached, total
	f.mu.Unlock()
	f.events <- struct{}{}
}

var (
	key   = object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "web"}
	batch = func() pipeline.Batch {
		return pipeline.Batch{Changes: []object.Change{{Key: key}}, Noticed: time.Now()}
	}
	effect = routing.Delta{Worlds: map[scope.Scope]resource.Delta{scope.SharedPool(): {Changed: []*resource.Resource{{}}}}}
)

// play runs a log in a bubble of its own time; script returns after what it wants to see.
func play(t *testing.T, f *fleet, script func(l *changelog.Log)) changelog.Entry {
	t.Helper()
	var entry changelog.Entry
	synctest.Test(t, func(t *testing.T) {
		f.events = make(chan struct{})
		var j journal.Journal
		l := changelog.New(f, &j, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		script(l)
		events, err := j.Wait(ctx, 0)
		if err != nil || len(events) != 1 {
			t.Fatalf("got %v, %v", events, err)
		}
		entry = events[0].Detail.(changelog.Entry)
		if events[0].Message != entry.String() {
			t.Errorf("message %q, entry %q", events[0].Message, entry)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return entry
}

func TestAnEntryEndsWhenEveryProxyHasAnswered(t *testing.T) {
	f := &fleet{total: 2}
	e := play(t, f, func(l *changelog.Log) {
		l.Record(batch(), effect)
		time.Sleep(3 * time.Millisecond)
		f.set(1, 2)
		time.Sleep(4 * time.Millisecond)
		f.set(2, 2)
	})
	if e.State != changelog.Live || e.LiveAfter != 7*time.Millisecond || e.Proxies != 2 {
		t.Fatalf("got %+v", e)
	}
	if want := "-HTTPRoute/default/web: 1 resource changed, live in 2 proxies after 7ms"; e.String() != want {
		t.Fatalf("got %q, want %q", e, want)
	}
}

func TestAnEntryThatNobodyAnswersEndsAllTheSame(t *testing.T) {
	cases := map[string]struct {
		reached, total int
		want           changelog.State
	}{
		"nobody is connected":    {0, 0, changelog.NoProxies},
		"one does not answer":    {1, 2, changelog.Late},
		"it is answered in time": {1, 1, changelog.Live},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := play(t, &fleet{reached: c.reached, total: c.total}, func(l *changelog.Log) { l.Record(batch(), effect) })
			if e.State != c.want {
				t.Fatalf("got %q, want %q", e.State, c.want)
			}
		})
	}
}

func TestABatchWithoutEffectSaysSoAtOnce(t *testing.T) {
	e := play(t, &fleet{total: 1}, func(l *changelog.Log) { l.Record(batch(), routing.Delta{}) })
	if e.State != changelog.NoEffect || !strings.Contains(e.String(), "no resource changes") {
		t.Fatalf("got %+v", e)
	}
}
