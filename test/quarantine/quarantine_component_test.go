//go:build component

// Package quarantine_test forces into a world what a real Envoy refuses, and looks at
// what that does to its neighbours, to the objects' statuses, and to the culprit.
package quarantine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

// Both ways to cut routes into resources must isolate a bad one: in Single all hosts
// share one resource, which Envoy refuses as a whole.
func TestARouteThatEnvoyRefusesHoldsBackNothingElse(t *testing.T) {
	for _, mode := range []string{"Single", "PerHost"} {
		t.Run(mode, func(t *testing.T) {
			r := start(t)
			objects := append(gateway(mode), append(service(t, "old"), service(t, "new")...)...)
			for i := range 6 {
				objects = append(objects, route(fmt.Sprintf("r%d", i), "old", 1, false))
			}
			r.apply(objects...)
			r.answers("r0", "200 old")

			// One bad edit, one good edit, one new route, in one batch.
			r.apply(route("r3", "new", 2, true), route("r4", "new", 2, false), route("r9", "new", 1, false))
			r.answers("r4", "200 new")
			r.answers("r9", "200 new")
			r.conditionBecomes("r3", "False RefusedByProxy at 2")
			r.conditionBecomes("r4", "True")
			r.conditionBecomes("r9", "True")
			if got := r.get("r3.example.com"); got != "200 old" {
				t.Errorf("the refused route answers %q, want its last good version's 200 old", got)
			}

			// Neighbours can be edited as if nothing were.
			r.apply(route("r5", "new", 2, false))
			r.answers("r5", "200 new")
			r.conditionBecomes("r5", "True")
			r.conditionBecomes("r3", "False RefusedByProxy at 2")

			// A change ends the quarantine.
			r.apply(route("r3", "new", 3, false))
			r.answers("r3", "200 new")
			r.conditionBecomes("r3", "True Programmed at 3")
		})
	}
}

// A controller that starts with a bad route knows no earlier version of anything.
func TestABadRouteFromTheStartIsFoundAmongMany(t *testing.T) {
	r := start(t)
	objects := append(gateway("Single"), service(t, "b")...)
	for i := range 20 {
		objects = append(objects, object.Object(route(fmt.Sprintf("r%d", i), "b", 1, i == 7 || i == 13)))
	}
	r.apply(objects...)
	for _, good := range []string{"r0", "r6", "r8", "r12", "r14", "r19"} {
		r.answers(good, "200 b")
	}
	r.conditionBecomes("r7", "False RefusedByProxy at 1")
	r.conditionBecomes("r13", "False RefusedByProxy at 1")
	r.conditionBecomes("r19", "True")
}

// What the controller does to find a culprit, or forgets by being started anew, is at the
// cost of nobody but the culprit.
func TestNoSearchTakesAWorkingRouteAway(t *testing.T) {
	r := start(t)
	objects := append(gateway("Single"), append(service(t, "old"), service(t, "new")...)...)
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf("r%d", i))
		objects = append(objects, route(all[i], "old", 1, false))
	}
	r.apply(objects...)
	for _, name := range all {
		r.answers(name, "200 old")
	}
	unharmed := func(what string, stop func() []string) {
		t.Helper()
		if bad := stop(); len(bad) > 0 {
			t.Errorf("%s: %d requests failed, the first: %s", what, len(bad), bad[0])
		}
	}

	stop := r.watch(all...)
	r.apply(route("r7", "new", 2, true), route("r8", "new", 2, false))
	r.answers("r8", "200 new")
	r.conditionBecomes("r7", "False RefusedByProxy at 2")
	unharmed("a bad edit", stop)
	if got := r.get("r7.example.com"); got != "200 old" {
		t.Errorf("the refused route answers %q, want its last good version's 200 old", got)
	}
	r.eventually("what is kept", "1", func() string { return fmt.Sprint(len(r.convictions())) })

	tries := r.tries.Load()
	stop = r.watch(all...)
	r.restart()
	r.conditionBecomes("r7", "False RefusedByProxy at 2")
	r.conditionBecomes("r19", "True")
	unharmed("a restart", stop)
	if n := r.tries.Load() - tries; n > 0 {
		t.Errorf("%d copies were tried for what was known", n)
	}

	stop = r.watch(slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "r12" })...)
	r.restart(route("r12", "new", 2, true))
	r.conditionBecomes("r12", "False RefusedByProxy at 2")
	r.conditionBecomes("r7", "False RefusedByProxy at 2")
	r.conditionBecomes("r19", "True")
	r.answers("r12", "404")
	unharmed("a bad edit while no controller ran", stop)
	if got := r.get("r7.example.com"); got != "200 old" {
		t.Errorf("after the restart the refused route answers %q, want 200 old", got)
	}
	if r.tries.Load() == tries {
		t.Error("nothing was tried in a copy")
	}

	r.apply(route("r12", "new", 3, false), route("r7", "new", 3, false))
	r.answers("r12", "200 new")
	r.answers("r7", "200 new")
	r.conditionBecomes("r12", "True Programmed at 3")
}

// Edits that Envoy takes and that it refuses come at random, also while a search runs, and
// the controller is started anew now and then. Whoever was ever served is served on, but for
// bad edits that nobody saw.
func TestRandomEditsAndRestartsTakeNoWorkingRouteAway(t *testing.T) {
	// More restarts would take long: the proxy takes its time when a controller keeps going away.
	const seed, routes, rounds, mostRestarts = 1, 12, 25, 2
	random := rand.New(rand.NewPCG(seed, seed))
	r := start(t)
	objects := append(gateway("Single"), append(service(t, "old"), service(t, "new")...)...)
	var all []string
	for i := range routes {
		all = append(all, fmt.Sprintf("r%d", i))
		objects = append(objects, route(all[i], "old", 1, false))
	}
	r.apply(objects...)
	for _, name := range all {
		r.answers(name, "200")
	}
	bad := map[string]bool{}
	edit := func(round int) *gatewayv1.HTTPRoute {
		name := all[random.IntN(routes)]
		bad[name] = random.IntN(3) == 0
		return route(name, []string{"old", "new"}[random.IntN(2)], int64(2+round), bad[name])
	}
	stop := r.watch(all...)
	restarts := 0
	for round := range rounds {
		switch random.IntN(5) {
		case 0: // what is refused is convicted first, so that the next controller knows
			r.settled(bad)
			if restarts < mostRestarts {
				restarts++
				r.restart()
			}
		default:
			r.apply(edit(round))
		}
	}
	r.settled(bad)
	if restarts < mostRestarts || len(r.convictions()) == 0 {
		t.Errorf("%d restarts, convicted %v: the seed tests too little", restarts, r.convictions())
	}
	if failed := stop(); len(failed) > 0 {
		t.Errorf("%d requests failed, the first: %s", len(failed), failed[0])
	}
}
