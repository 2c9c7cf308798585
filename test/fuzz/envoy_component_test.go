//go:build component

package fuzz_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"go.uber.org/goleak"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/test/admit"
	"aether.io/aether/internal/test/dataplane"
	"aether.io/aether/internal/test/instance"
)

const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an Envoy with a route that must always answer.
type rig struct {
	t       *testing.T
	plane   *dataplane.Plane
	control []object.Object
	client  *http.Client
	port    int
}

func newRig(t *testing.T, server *admit.Server, port int) *rig {
	t.Helper()
	path := os.Getenv("AETHER_ENVOY")
	if path == "" {
		t.Fatal("AETHER_ENVOY does not name an Envoy: run make component")
	}
	r := &rig{t: t, port: port, client: &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}}
	r.start(path)
	backend, err := instance.StartBackend("control", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	for _, text := range []string{
		`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "control"}, "spec": {"controllerName": "` + controller + `"}}`,
		fmt.Sprintf(`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "control", "namespace": "control"}, "spec": {"gatewayClassName": "control", "listeners": [{"name": "http", "port": %d, "protocol": "HTTP"}]}}`, port),
		`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "control", "namespace": "control"}, "spec": {"parentRefs": [{"name": "control"}], "rules": [{"backendRefs": [{"name": "control", "port": 80}]}]}}`,
		`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "control", "namespace": "control"}, "spec": {"ports": [{"port": 80}]}}`,
		fmt.Sprintf(`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "control", "namespace": "control", "labels": {"kubernetes.io/service-name": "control"}}, "addressType": "IPv4", "ports": [{"port": %d}], "endpoints": [{"addresses": ["127.0.0.1"]}]}`, backend.Port),
	} {
		o, err := server.JSON(t.Context(), json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		r.control = append(r.control, o)
	}
	return r
}

func (r *rig) start(path string) {
	plane, err := dataplane.Start(r.t.Context(), dataplane.Config{Envoy: path, Log: os.Stderr})
	if err != nil {
		r.t.Fatal(err)
	}
	r.plane = plane
	r.t.Cleanup(func() {
		if err := plane.Close(); err != nil {
			r.t.Error(err)
		}
	})
}

// try gives Envoy what the objects compile to, each world in turn, and says what it
// refuses, or that the control route does not answer.
func (r *rig) try(objects []object.Object) error {
	worlds := compile(append(slices.Clone(objects), r.control...)).worlds
	shared := scope.SharedPool()
	for _, s := range append(slices.DeleteFunc(slices.Collect(maps.Keys(worlds)), func(s scope.Scope) bool { return s == shared }), shared) {
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		outcome, err := r.plane.Replace(ctx, worlds[s])
		cancel()
		if err != nil {
			return fmt.Errorf("world of %s: %w", s, err)
		}
		if len(outcome.Refused) > 0 {
			return fmt.Errorf("world of %s: Envoy refuses %s: %s", s, outcome.Refused[0].Name, outcome.Refused[0].Detail)
		}
	}
	return r.controlAnswers()
}

// controlAnswers waits until it does: after a world without it, its listener is new.
func (r *rig) controlAnswers() error {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		got := 0
		if resp, err := r.client.Get(fmt.Sprintf("http://127.0.0.1:%d/", r.port)); err == nil {
			got = resp.StatusCode
			_ = resp.Body.Close()
		}
		if got == http.StatusOK {
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("the control route answers %d", got)
		case <-r.plane.Ended():
			return dataplane.ErrEnded
		case <-tick.C:
		}
	}
}

func TestEnvoyTakesWhateverIsAdmitted(t *testing.T) {
	server, err := admit.New()
	if err != nil {
		t.Fatal(err)
	}
	base, err := instance.FreeOffset(0, 1, 2, 3, 4, 5)
	if err != nil {
		t.Fatal(err)
	}
	r, all := newRig(t, server, base), definitions(t)
	for i := range *sets {
		seed := *firstSeed + uint64(i)
		g := newGenerator(t, server, all)
		for n := range 5 {
			g.ports = append(g.ports[:n], int32(base+1+n))
		}
		objects := g.set(seeded(seed))
		if err := r.try(objects); err != nil {
			select {
			case <-r.plane.Ended():
				t.Fatalf("seed %d: %v\n%s", seed, err, describe(objects))
			default:
			}
			less := reduce(objects, func(o []object.Object) bool { return r.try(o) != nil })
			t.Fatalf("seed %d: %v; with less:\n%v\n%s", seed, err, r.try(less), describe(less))
		}
	}
}

// A rig that sees no refusal proves nothing.
func TestARefusalAndASilentNeighborAreSeen(t *testing.T) {
	server, err := admit.New()
	if err != nil {
		t.Fatal(err)
	}
	port, err := instance.FreeOffset(0)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, server, port)
	if err := r.try(nil); err != nil {
		t.Fatal(err)
	}
	bad, err := resource.New("bad", &routev3.ScopedRouteConfiguration{Name: "bad"}) // without a key
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := r.plane.Apply(t.Context(), resource.Delta{Changed: []*resource.Resource{bad}})
	if err != nil || len(outcome.Refused) != 1 || outcome.Refused[0].Name != bad.Name {
		t.Errorf("a scope without a key: %v, %v", outcome, err)
	}
	r.control = r.control[:2] // the class and the Gateway
	if _, err := r.plane.Replace(t.Context(), compile(r.control).worlds[scope.SharedPool()]); err != nil {
		t.Fatal(err)
	}
	resp, err := r.client.Get(fmt.Sprintf("http://127.0.0.1:%d/", r.port))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("without its route, the control answers %d", resp.StatusCode)
	}
}
