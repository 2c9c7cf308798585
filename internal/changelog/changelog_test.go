package changelog_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/changelog"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// proxies are as a test wants them.
type proxies struct {
	events chan struct{}

	mu sync.Mutex
	at fleet.Standing
}

func (p *proxies) Position(scope.Scope) uint64 { return 1 }

func (p *proxies) Standing(scope.Scope, uint64, []resource.Name) fleet.Standing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

func (p *proxies) Observe() (events <-chan struct{}, stop func()) { return p.events, func() {} }

func (p *proxies) set(at fleet.Standing) {
	p.mu.Lock()
	p.at = at
	p.at.At = time.Now()
	p.mu.Unlock()
	p.events <- struct{}{}
}

var (
	web    = object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "web"}
	shop   = object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "shop"}
	shared = resource.Name{TypeURL: "type.googleapis.com/x.Scope", Name: "default/gw/80|*"}
	effect = routing.Delta{Worlds: map[scope.Scope]resource.Delta{scope.SharedPool(): {Changed: []*resource.Resource{{Name: shared}}}}}
	guilty = map[object.Key]string{web: "no"}

	silent   = fleet.Standing{Connected: 1}
	live     = fleet.Standing{Connected: 1, Reached: 1, Running: 1}
	refusing = fleet.Standing{Connected: 1, Reached: 1, Refused: []resource.Name{shared}}
)

func batch(keys ...object.Key) pipeline.Batch {
	b := pipeline.Batch{Noticed: time.Now()}
	for _, k := range keys {
		b.Changes = append(b.Changes, object.Change{Key: k, Object: &gatewayv1.HTTPRoute{}})
	}
	return b
}

// play runs a log in a bubble of its own time; script returns after what it wants to see.
func play(t *testing.T, script func(l *changelog.Log, p *proxies)) changelog.Entry {
	t.Helper()
	var entry changelog.Entry
	synctest.Test(t, func(t *testing.T) {
		p := &proxies{events: make(chan struct{}), at: silent}
		var j journal.Journal
		l := changelog.New(p, &j, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		script(l, p)
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

func TestAnEntrySaysWhatBecameOfTheBatch(t *testing.T) {
	rest := func() { time.Sleep(3 * time.Millisecond) }
	refusedFor := map[resource.Name]bool{shared: true}
	cases := map[string]struct {
		script func(l *changelog.Log, p *proxies)
		state  changelog.State
		text   string
	}{
		"every proxy runs it": {
			func(l *changelog.Log, p *proxies) {
				l.Record(batch(web), effect)
				p.set(fleet.Standing{Connected: 2, Reached: 2, Running: 1})
				rest()
				p.set(fleet.Standing{Connected: 2, Reached: 2, Running: 2})
			},
			changelog.Live, "HTTPRoute/default/web: 1 resource changed, live in 2 proxies after 3ms",
		},
		"an object is gone": {
			func(l *changelog.Log, p *proxies) {
				l.Record(pipeline.Batch{Changes: []object.Change{{Key: web}}, Noticed: time.Now()}, effect)
				rest()
				p.set(live)
			},
			changelog.Live, "-HTTPRoute/default/web: 1 resource changed, live in 1 proxy after 3ms",
		},
		"nothing was changed by it": {
			func(l *changelog.Log, _ *proxies) { l.Record(batch(web), routing.Delta{}) },
			changelog.NoEffect, "HTTPRoute/default/web: no resource changes",
		},
		"nobody is connected": {
			func(l *changelog.Log, p *proxies) { p.set(fleet.Standing{}); l.Record(batch(web), effect) },
			changelog.NoProxies, "HTTPRoute/default/web: 1 resource changed, no proxies (live in 0)",
		},
		"one proxy does not answer": {
			func(l *changelog.Log, p *proxies) {
				p.set(fleet.Standing{Connected: 2, Reached: 1, Running: 1})
				l.Record(batch(web), effect)
			},
			changelog.Late, "HTTPRoute/default/web: 1 resource changed, late (live in 1)",
		},
		"Envoy refuses it, and nobody looks for the cause": {
			func(l *changelog.Log, p *proxies) {
				l.Record(batch(web), effect)
				p.set(refusing)
				l.Judged(nil, refusedFor)
			},
			changelog.Refused, "HTTPRoute/default/web: 1 resource changed, refused by Envoy: Scope default/gw/80|*",
		},
		"that it is refused is known before the proxy's answer is looked at": {
			func(l *changelog.Log, p *proxies) {
				l.Record(batch(web), effect)
				l.Judged(nil, refusedFor)
				p.set(refusing)
			},
			changelog.Refused, "HTTPRoute/default/web: 1 resource changed, refused by Envoy: Scope default/gw/80|*",
		},
		"Envoy refuses it, and the search for the cause has no end": {
			func(l *changelog.Log, p *proxies) { l.Record(batch(web), effect); p.set(refusing) },
			changelog.Refused, "HTTPRoute/default/web: 1 resource changed, refused by Envoy: Scope default/gw/80|*",
		},
		"Envoy refuses it, and it is to blame": {
			func(l *changelog.Log, p *proxies) {
				l.Record(batch(web), effect)
				p.set(refusing)
				rest()
				l.Judged(guilty, nil)
				p.set(silent) // what is published instead
				rest()
				p.set(live)
			},
			changelog.Quarantined, "HTTPRoute/default/web: quarantined, Envoy refuses it",
		},
		"Envoy refuses a part of it": {
			func(l *changelog.Log, p *proxies) {
				l.Record(batch(web, shop), effect)
				p.set(refusing)
				rest()
				l.Judged(guilty, nil)
				p.set(silent)
				rest()
				p.set(live)
			},
			changelog.Quarantined, "HTTPRoute/default/shop, HTTPRoute/default/web: 1 resource changed, live in 1 proxy after 6ms; Envoy refuses HTTPRoute/default/web, quarantined",
		},
		"another object is to blame": {
			func(l *changelog.Log, p *proxies) {
				l.Record(batch(shop), effect)
				p.set(refusing)
				l.Judged(guilty, nil)
				rest()
				p.set(live)
			},
			changelog.Live, "HTTPRoute/default/shop: 1 resource changed, live in 1 proxy after 3ms",
		},
		"it is quarantined as it was": {
			func(l *changelog.Log, _ *proxies) {
				l.Judged(guilty, nil)
				l.Record(batch(web), routing.Delta{})
			},
			changelog.Quarantined, "HTTPRoute/default/web: quarantined, Envoy refuses it",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := play(t, c.script)
			if e.State != c.state {
				t.Errorf("got %q, want %q", e.State, c.state)
			}
			if e.String() != c.text {
				t.Errorf("got  %s\nwant %s", e, c.text)
			}
		})
	}
}

func TestTheStartSaysWhatWasTakenUp(t *testing.T) {
	cases := map[string]struct {
		at   fleet.Standing
		bad  map[object.Key]string
		text string
	}{
		"proxies have all":                   {live, nil, "2 objects taken up: nothing differs"},
		"a proxy has nothing":                {fleet.Standing{Connected: 1, Reached: 1, Running: 1, Differed: 7}, nil, "2 objects taken up: 7 resources differ, live in 1 proxy after 3ms"},
		"what was quarantined is":            {live, guilty, "2 objects taken up: nothing differs; Envoy refuses HTTPRoute/default/web, quarantined"},
		"nobody is there to take it from it": {fleet.Standing{}, nil, "2 objects taken up: no proxies (live in 0)"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := play(t, func(l *changelog.Log, p *proxies) {
				b := batch(web, shop)
				b.Synced = true
				l.Judged(c.bad, nil)
				l.Record(b, effect)
				time.Sleep(3 * time.Millisecond)
				p.set(c.at)
			})
			if e.String() != c.text || !e.Start {
				t.Errorf("got  %s\nwant %s", e, c.text)
			}
		})
	}
}

func TestOnlyTheFirstWholeListIsTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal.Journal
		l := changelog.New(&proxies{}, &j, time.Now)
		for _, synced := range []bool{false, true, true} {
			b := batch(web)
			b.Synced = synced
			l.Record(b, routing.Delta{})
		}
		for i, e := range j.Since(0) {
			if start := e.Detail.(changelog.Entry).Start; start != (i == 1) {
				t.Errorf("batch %d is the start: %t", i, start)
			}
		}
	})
}

func TestWhatIsRefusedAndWasNeverThereIsNoChange(t *testing.T) {
	var j journal.Journal
	l := changelog.New(&proxies{}, &j, time.Now)
	b := batch()
	b.Changes = []object.Change{{Key: web, Refused: "is odd"}}
	l.Record(b, routing.Delta{Statuses: []routing.Status{{}}})
	if got := j.Since(0); len(got) > 0 {
		t.Errorf("told %v", got)
	}
}

func TestWhatNobodyWroteIsNotNamed(t *testing.T) {
	var j journal.Journal
	l := changelog.New(&proxies{}, &j, time.Now)
	b := batch(web)
	b.Changes = append(b.Changes, object.Change{Key: object.Key{Kind: object.Namespace, Name: "default"}, Object: &corev1.Namespace{}, Implied: true})
	l.Record(b, routing.Delta{})
	if got := j.Since(0); len(got) != 1 || got[0].Message != "HTTPRoute/default/web: no resource changes" {
		t.Errorf("told %v", got)
	}
}

func TestCandidatesAreTheObjectsThatAreThere(t *testing.T) {
	l := changelog.New(&proxies{}, &journal.Journal{}, time.Now)
	service := object.Key{Kind: object.Service, Namespace: "default", Name: "shop"}
	l.Record(batch(web, service, shop), routing.Delta{})
	l.Record(pipeline.Batch{Changes: []object.Change{{Key: shop}}}, routing.Delta{})
	if got := l.Candidates(); len(got) != 1 || got[0] != web {
		t.Errorf("got %v, want %s", got, web)
	}
	l.Record(pipeline.Batch{Changes: []object.Change{{Key: web, Refused: "no"}}}, routing.Delta{})
	if got := l.Candidates(); len(got) != 0 {
		t.Errorf("what was never taken is there: %v", got)
	}
}
