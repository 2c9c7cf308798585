//go:build cluster

package kubernetes_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/test/bench/kube"
	benchrig "aether.io/aether/test/bench/rig"
	"aether.io/aether/test/cluster/build"
)

const (
	ourController = "config.aether.io/gateway-controller"
	atOnce        = 1000 // routes
	mostWrites    = 200  // to the status of their Gateway
)

// system is the programs as they are now, on an API server of their own.
func system(t *testing.T) *benchrig.Rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "as") //nolint:usetesting // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	root, err := build.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir, "./cmd/aether-controller", "./cmd/aether-proxy")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	envoy := os.Getenv("AETHER_ENVOY")
	if envoy == "" {
		t.Fatal("AETHER_ENVOY is not set: run make cluster-test")
	}
	r, err := benchrig.Start(t.Context(), benchrig.Config{Programs: dir, Envoy: envoy, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestStatusesOfManyRoutesTakeFewWritesAndTouchNothingOfOthers(t *testing.T) {
	r := system(t)
	b, err := kube.CreateAtOnce(t.Context(), r, atOnce)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", b)
	if b.GatewayWrites == 0 || b.GatewayWrites > mostWrites {
		t.Errorf("the Gateway's status was written %d times for %d routes, want at most %d", b.GatewayWrites, atOnce, mostWrites)
	}
	if b.RouteWrites < atOnce || b.RouteWrites > 2*atOnce {
		t.Errorf("statuses of %d routes were written %d times", atOnce, b.RouteWrites)
	}
	if b.Foreign != 0 {
		t.Errorf("%d writes to statuses of another controller's objects", b.Foreign)
	}

	// What another takes away of a status is put back, and what it wrote itself is left.
	route := &gatewayv1.HTTPRoute{}
	const name = "burst-r7"
	read := func(ctx context.Context) []string {
		if err := r.API.Get(ctx, benchrig.Namespace, name, route); err != nil {
			return nil
		}
		var of []string
		for _, p := range route.Status.Parents {
			of = append(of, string(p.ControllerName))
		}
		return of
	}
	read(t.Context())
	theirs := route.Status.Parents[0]
	theirs.ControllerName = "example.com/controller"
	route.Status.Parents = []gatewayv1.RouteParentStatus{theirs}
	if err := r.API.PutStatus(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for both := false; !both; {
		of := read(ctx)
		both = slices.Contains(of, ourController) && slices.Contains(of, "example.com/controller")
		select {
		case <-ctx.Done():
			t.Fatalf("entries of the route's status are %v", of)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
