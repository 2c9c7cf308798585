//go:build cluster

package kube_test

import (
	"testing"

	"aether.io/aether/test/cluster/apiserver"
	"aether.io/aether/test/cluster/build"
)

// rig is an API server that the test may do anything to.
type rig struct {
	*testing.T
	*apiserver.Server
}

func newRig(t *testing.T) rig {
	t.Helper()
	return rig{t, apiserver.Start(t)}
}

func (r rig) kubectl(input string, args ...string) string {
	r.Helper()
	out, err := r.Server.Kubectl(r.Context(), input, args...)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// define gives the server the definitions of all that is followed.
func (r rig) define() {
	r.Helper()
	root, err := build.Root(".")
	if err != nil {
		r.Fatal(err)
	}
	r.kubectl("", "apply", "--server-side", "-f", root+"/internal/crd/gateway-api", "-f", root+"/charts/crds/templates")
	r.kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinition", "--all")
}

func (r rig) stop(programs ...string) {
	r.Helper()
	for _, p := range programs {
		if err := r.Stop(p); err != nil {
			r.Fatal(err)
		}
	}
}

func (r rig) start() {
	r.Helper()
	if err := r.StartAll(); err != nil {
		r.Fatal(err)
	}
	if err := r.Ready(r.Context()); err != nil {
		r.Fatal(err)
	}
}
