//go:build component

package standalone_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// withParameters is gateway with a reference to GatewayParameters own.
var withParameters = strings.Replace(gateway, "gatewayClassName: coxswain\n",
	"gatewayClassName: coxswain\n  infrastructure: {parametersRef: {group: config.aether.io, kind: GatewayParameters, name: own}}\n", 1)

const dedicated = `apiVersion: config.aether.io/v1
kind: GatewayParameters
metadata: {name: own}
spec: {mode: Dedicated}
`

// says waits until the Gateway's status has all of these words.
func (w *world) says(words ...string) {
	w.t.Helper()
	w.eventually("the Gateway's status says "+strings.Join(words, ", "), func() (bool, string) {
		out := w.aetherctl("status", "gateway", "web")
		for _, s := range words {
			if !strings.Contains(out, s) {
				return false, out
			}
		}
		return true, out
	})
}

func TestAGatewayIsServedAsItWasWhenItsParametersCannotBeRead(t *testing.T) {
	work := t.TempDir()
	dir, state := filepath.Join(work, "manifests"), filepath.Join(work, "state")
	w := startIn(t, dir, state, map[string]string{"gateway.yaml": withParameters, "a.yaml": backend(t, "a"), "route.yaml": route("one", "a")})
	w.says("InvalidParameters", "GatewayParameters default/own does not exist")
	if strings.Contains(w.aetherctl("get", "resources"), "default/web/8080") {
		t.Error("a Gateway that was never served is served by defaults")
	}

	w.write("own.yaml", dedicated)
	w.answers("one.example.com", http.StatusOK, "a")
	w.says("mode Dedicated of its parameters has no effect")

	stop := w.load("one.example.com")
	if err := os.Remove(filepath.Join(dir, "own.yaml")); err != nil {
		t.Fatal(err)
	}
	w.says("InvalidParameters", "it is served as it was last")
	w.killAndAwaitSuccessor("controller")
	w.write("late.yaml", route("late", "a"))
	w.answers("late.example.com", http.StatusOK, "a")
	for code, n := range stop() {
		if code != http.StatusOK {
			t.Errorf("%d answers with %d", n, code)
		}
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	w = startIn(t, dir, state, nil)
	w.answers("late.example.com", http.StatusOK, "a")
	w.says("InvalidParameters", "it is served as it was last")
}
