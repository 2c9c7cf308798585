//go:build component

// Package reference_test compares a real Envoy's choice of backend with the reference's, on
// random sets of routes and random requests, with the routes cut in both ways.
//
//	go test -tags component ./test/reference -run Differential -seed 17 -sets 1    one set again
//	go test -tags component ./test/reference -run Differential -sets 20000 -timeout 0
package reference_test

import (
	"bytes"
	"crypto/x509"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/test/admit"
	"aether.io/aether/internal/test/dataplane"
	"aether.io/aether/internal/test/instance"
	"aether.io/aether/internal/test/keypair"
	"aether.io/aether/test/reference"
)

var (
	firstSeed = flag.Uint64("seed", 1, "seed of the first set of routes")
	sets      = flag.Int("sets", 300, "number of sets of routes, each with the seed after the one before")
	most      = flag.Int("most", 3, "stop after this many sets in which Envoy and the reference differ")
	shrink    = flag.Bool("shrink", true, "reduce a set in which Envoy and the reference differ")
)

// slots is how many sets Envoy runs at a time, each cut in both ways.
const slots = 10

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a graph that feeds an Envoy.
type rig struct {
	t       *testing.T
	server  *admit.Server
	graph   *routing.Graph
	plane   *dataplane.Plane
	client  *client
	shared  []object.Object // what all sets refer to
	port    int32           // the barrier's; those of the slots follow
	applied map[object.Key]object.Object
	batch   int
}

// newRig starts everything.
func newRig(t *testing.T) *rig {
	t.Helper()
	path := os.Getenv("AETHER_ENVOY")
	if path == "" {
		t.Fatal("AETHER_ENVOY does not name an Envoy: run make component")
	}
	addresses, port := startBackends(t, backends)
	ports := make([]int, 1+2*slots*portsOf)
	for i := range ports {
		ports[i] = i
	}
	free, err := instance.FreeOffset(ports...)
	if err != nil {
		t.Fatal(err)
	}
	plane, err := dataplane.Start(t.Context(), dataplane.Config{Envoy: path, Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, plane: plane, client: &client{open: map[string]*connection{}}, port: int32(free), applied: map[object.Key]object.Object{}}
	t.Cleanup(r.client.close)
	if r.server, err = admit.New(); err != nil {
		t.Fatal(err)
	}
	if r.graph, err = routing.New(routing.Config{ControllerName: controller, ReleaseNamespace: release, Address: "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	own := keypair.New(t, &x509.Certificate{DNSNames: []string{"*.test"}}, nil) // for every host that the sets use
	r.shared = r.admit(world(addresses, port, own.CertPEM(), own.KeyPEM(t)))
	return r
}

// admit is fatal for an object that an API server would refuse: the generator makes none.
func (r *rig) admit(objects []object.Object) []object.Object {
	r.t.Helper()
	out := make([]object.Object, len(objects))
	for i, o := range objects {
		admitted, err := r.server.Object(r.t.Context(), o)
		if err != nil {
			r.t.Fatalf("%v\n%s", err, dump(o))
		}
		out[i] = admitted
	}
	return out
}

// run makes Envoy run these sets and no others, and waits until it does.
func (r *rig) run(groups ...[]object.Object) {
	r.t.Helper()
	r.batch++
	want := map[object.Key]object.Object{}
	for _, group := range append(groups, r.shared, r.barrier()) {
		for _, o := range group {
			want[admit.Key(o)] = o
		}
	}
	var changes []object.Change
	for _, k := range slices.SortedFunc(maps.Keys(r.applied), object.Key.Compare) {
		if want[k] == nil {
			changes = append(changes, object.Change{Key: k})
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(want), object.Key.Compare) {
		if r.applied[k] != want[k] {
			changes = append(changes, object.Change{Key: k, Object: want[k]})
		}
	}
	r.applied = want
	outcome, err := r.plane.Apply(r.t.Context(), r.graph.Apply(changes).Worlds[scope.SharedPool()])
	if err != nil {
		r.t.Fatal(err)
	}
	if len(outcome.Refused) > 0 {
		r.t.Errorf("Envoy refuses %v", outcome.Refused)
	}
	r.passBarrier()
}

// barrier is a route that only this batch's request matches: its answer shows that the
// worker, which takes updates in order, has them.
func (r *rig) barrier() []object.Object {
	gateway := &gatewayv1.Gateway{TypeMeta: kind(gatewayAPI, "Gateway"), ObjectMeta: meta(pool, "barrier")}
	gateway.Spec.GatewayClassName = "single"
	gateway.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: r.port, Protocol: gatewayv1.HTTPProtocolType}}
	route := &gatewayv1.HTTPRoute{TypeMeta: kind(gatewayAPI, "HTTPRoute"), ObjectMeta: meta(pool, "barrier")}
	route.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "barrier"}}
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{{
		Matches:     []gatewayv1.HTTPRouteMatch{{Headers: []gatewayv1.HTTPHeaderMatch{{Name: "Batch", Value: fmt.Sprint(r.batch)}}}},
		BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{Name: "b0", Port: new(int32(80))}}}},
	}}
	return r.admit([]object.Object{gateway, route})
}

func (r *rig) passBarrier() {
	r.t.Helper()
	q := reference.Request{Port: r.port, Method: "GET", Target: "/", Host: "barrier", Headers: []reference.Header{{Name: "Batch", Value: fmt.Sprint(r.batch)}}}
	r.await("the barrier", pool+"/b0:80", func() string { return r.client.send(q) })
}

func (r *rig) await(what, want string, got func() string) {
	r.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		seen := got()
		if seen == want {
			return
		}
		select {
		case <-deadline.C:
			r.t.Fatalf("gave up waiting until %s answers %q; it answers %q", what, want, seen)
		case <-tick.C:
		}
	}
}

// at is where a slot's set lives, in one of the two ways to cut.
func (r *rig) at(slot int, class string) site {
	port := r.port + 1 + int32(slot)*2*portsOf
	if class == "perhost" {
		port += portsOf
	}
	return site{prefix: fmt.Sprintf("%c%d", class[0], slot), class: class, port: port}
}

// differs asks Envoy and the reference, and says how they differ, or nothing.
func (r *rig) differs(objects []object.Object, q reference.Request) string {
	difference, _ := r.ask(objects, q)
	return difference
}

func (r *rig) ask(objects []object.Object, q reference.Request) (difference, got string) {
	want := reference.New(controller, append(slices.Clone(r.shared), objects...)...).Answer(q)
	got = r.client.send(q)
	if slices.Contains(want.Outcomes, got) {
		return "", got
	}
	return fmt.Sprintf("%s\nanswers    %s\nreference  %s by %s", describe(q), got, strings.Join(want.Outcomes, " or "), want.Why), got
}

func describe(q reference.Request) string {
	text := fmt.Sprintf("%s %s to %q at port %d", q.Method, q.Target, q.Host, q.Port)
	if q.TLS {
		text += fmt.Sprintf(", TLS with server name %q", q.SNI)
	}
	for _, h := range q.Headers {
		text += fmt.Sprintf(", %s: %s", h.Name, h.Value)
	}
	return text
}

// trial is a set, where it lives, and the requests to it.
type trial struct {
	seed     uint64
	at       site
	objects  []object.Object
	requests []reference.Request
}

func TestDifferentialWithARealEnvoy(t *testing.T) {
	r := newRig(t)
	answers, wrongSeeds := map[string]int{}, map[uint64]bool{}
	for done := 0; done < *sets && len(wrongSeeds) < *most; done += slots {
		var trials []trial
		var groups [][]object.Object
		for i := range min(slots, *sets-done) {
			for _, class := range []string{"single", "perhost"} {
				one := trial{seed: *firstSeed + uint64(done+i), at: r.at(i, class)}
				one.objects, one.requests = generate(one.seed, one.at)
				one.objects = r.admit(one.objects)
				trials, groups = append(trials, one), append(groups, one.objects)
			}
		}
		r.client.close()
		r.run(groups...)
		var wrong []trial
		for _, one := range trials {
			for _, q := range one.requests {
				difference, got := r.ask(one.objects, q)
				answers[strings.Split(got, "/")[0]]++
				if difference != "" {
					one.requests = []reference.Request{q}
					wrong = append(wrong, one)
					break // one of a set is enough
				}
			}
		}
		for _, one := range wrong {
			r.report(one)
			wrongSeeds[one.seed] = true
		}
	}
	t.Logf("of %d sets, each in two ways: %v", *sets, answers)
	for _, answer := range []string{pool, "404", "421", "500", "503", reference.Closed} { // else the sets are too tame
		if answers[answer] == 0 && *sets >= 100 {
			t.Errorf("no request was answered by %s", answer)
		}
	}
}

// report says what is different, once it is reduced.
func (r *rig) report(one trial) {
	q := one.requests[0]
	objects := r.reduce(one.objects, q)
	r.t.Errorf("seed %d, %s: %s\n%s", one.seed, one.at.class, r.differs(objects, q), dump(objects...))
}

func dump(objects ...object.Object) string {
	var b strings.Builder
	for _, o := range objects {
		if r, ok := o.(*gatewayv1.ReferenceGrant); ok && len(r.Spec.To) == 2 && r.Spec.To[1].Name == nil {
			continue // lets everything
		}
		text, _ := yaml.Marshal(o)
		text, _, _ = bytes.Cut(text, []byte("\nstatus:"))
		fmt.Fprintf(&b, "---\n%s\n", text)
	}
	return b.String()
}
