package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

const routes = "httproutes.gateway.networking.k8s.io"

func routeAt(name string, version uint64) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: strconv.FormatUint(version, 10), Generation: int64(version)},
		Spec:       gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("v%d.example.com", version))}},
	}
}

// effect is what a mirror of routes has handed out.
type effect struct {
	reader
	routes   map[string]bool
	position uint64
}

func (e *effect) collect(t *testing.T) {
	t.Helper()
	b := e.reader.collect()
	if b == nil {
		return
	}
	for _, c := range b.Changes {
		if c.Object == nil {
			delete(e.routes, c.Key.Name)
		} else {
			e.routes[c.Key.Name] = true
		}
	}
	if to := b.Mark.Positions[routes]; to < e.position {
		t.Errorf("position went back from %d to %d", e.position, to)
	} else {
		e.position = to
	}
}

func TestADeletionTakesEffectWhenItsDefinitionIsKnownToBeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &effect{reader: read(t, object.HTTPRoute), routes: map[string]bool{}}
		answers := make(chan func() (bool, error))
		ctx, cancel := context.WithCancel(t.Context())
		var confirming sync.WaitGroup
		confirming.Go(func() {
			e.confirm(ctx, func(ctx context.Context) (bool, error) {
				select {
				case a := <-answers:
					return a()
				case <-ctx.Done():
					return false, ctx.Err()
				}
			})
		})
		if err := errors.Join(e.Replace([]any{routeAt("a", 1), routeAt("b", 2), routeAt("c", 3)}, "3"), e.Delete(routeAt("a", 4)), e.Update(routeAt("b", 5))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		e.collect(t)
		if !e.routes["a"] || e.position != 3 {
			t.Fatalf("before the definition is known: %v at %d", e.routes, e.position)
		}
		// The API server cannot be asked; then it can. What was deleted after it was asked is asked about again.
		answers <- func() (bool, error) { return false, errors.New("connection refused") }
		answers <- func() (bool, error) { return true, e.Delete(routeAt("c", 6)) }
		synctest.Wait()
		e.collect(t)
		if e.routes["a"] || !e.routes["c"] || e.position >= 6 {
			t.Fatalf("when the first is settled: %v at %d", e.routes, e.position)
		}
		answers <- func() (bool, error) { return true, nil }
		synctest.Wait()
		e.collect(t)
		if e.routes["c"] || e.position != 6 {
			t.Fatalf("when all are: %v at %d", e.routes, e.position)
		}
		// One that comes back is there, whatever was asked about it.
		if err := e.Delete(routeAt("b", 7)); err != nil {
			t.Fatal(err)
		}
		answers <- func() (bool, error) { return true, e.Add(routeAt("b", 8)) }
		synctest.Wait()
		e.collect(t)
		if !e.routes["b"] || e.position != 8 {
			t.Fatalf("when one has come back: %v at %d", e.routes, e.position)
		}
		// The definition goes: what goes with it stays, until a list says what is there.
		if err := e.Delete(routeAt("b", 9)); err != nil {
			t.Fatal(err)
		}
		answers <- func() (bool, error) { return false, nil }
		synctest.Wait()
		e.collect(t)
		if !e.routes["b"] || e.position != 8 {
			t.Fatalf("when the definition has gone: %v at %d", e.routes, e.position)
		}
		if err := e.Replace(nil, "12"); err != nil {
			t.Fatal(err)
		}
		answers <- func() (bool, error) { return true, nil }
		synctest.Wait()
		e.collect(t)
		if len(e.routes) != 0 || e.position != 12 {
			t.Fatalf("when it is back without objects: %v at %d", e.routes, e.position)
		}
		cancel()
		confirming.Wait()
	})
}

// Whenever the definition is marked as being deleted, and however late events and answers
// come: what was deleted before is gone in the end, what goes with the definition stays, and
// nobody claims a position before which something is still to be done.
func TestNothingGoesWithItsDefinition(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			e := &effect{reader: read(t, object.HTTPRoute), routes: map[string]bool{}}
			var mu sync.Mutex
			going := false
			ctx, cancel := context.WithCancel(t.Context())
			var confirming sync.WaitGroup
			confirming.Go(func() {
				e.confirm(ctx, func(context.Context) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					return !going, nil
				})
			})
			version, api := uint64(1), map[string]bool{}
			if err := e.Replace(nil, "1"); err != nil {
				t.Fatal(err)
			}
			var late []*gatewayv1.HTTPRoute // deletions that were not seen yet, in order
			see := func(n int) {
				for ; n > 0 && len(late) > 0; n-- {
					if err := e.Delete(late[0]); err != nil {
						t.Fatal(err)
					}
					late = late[1:]
				}
			}
			for range 60 {
				name := string(rune('a' + random.IntN(8)))
				version++
				switch {
				case random.IntN(2) == 0:
					see(len(late)) // a watch is in order
					api[name] = true
					if err := e.Update(routeAt(name, version)); err != nil {
						t.Fatal(err)
					}
				case api[name]:
					delete(api, name)
					late = append(late, routeAt(name, version))
				}
				see(random.IntN(3))
				if random.IntN(3) == 0 {
					synctest.Wait()
				}
				e.collect(t)
				for _, o := range late {
					if e.routes[o.Name] && e.position >= position(o.ResourceVersion) {
						t.Fatalf("at %d, and %s is not deleted", e.position, o.Name)
					}
				}
			}
			see(len(late))
			synctest.Wait()
			mu.Lock()
			going = true
			mu.Unlock()
			for name := range api {
				version++
				if err := e.Delete(routeAt(name, version)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			e.collect(t)
			if len(e.routes) != len(api) {
				t.Fatalf("seed %d: in effect are %v, want %v", seed, e.routes, api)
			}
			for name := range api {
				if !e.routes[name] {
					t.Fatalf("seed %d: in effect are %v, want %v", seed, e.routes, api)
				}
			}
			cancel()
			confirming.Wait()
		})
	}
}
