//go:build cluster

package kubernetes_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/test/cluster/apiserver"
	"aether.io/aether/test/cluster/build"
)

// controllerPod is there for aetherctl, which looks for controllers by their pods.
const controllerPod = `
apiVersion: v1
kind: Pod
metadata:
  name: aether-controller-1
  namespace: aether-system
  labels: {app.kubernetes.io/name: aether, app.kubernetes.io/component: controller}
spec: {serviceAccountName: coxswain-shared-proxy, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
`

// halted changes etcd's data while neither it nor the API server runs.
func (r *rig) halted(change func(data string)) {
	r.Helper()
	for _, program := range []string{apiserver.APIServer, apiserver.Etcd} {
		if err := r.server.Stop(program); err != nil {
			r.Fatal(err)
		}
	}
	change(filepath.Join(r.server.Dir, "etcd"))
	if err := r.server.StartAll(); err != nil {
		r.Fatal(err)
	}
	if err := r.server.Ready(r.Context()); err != nil {
		r.Fatal(err)
	}
}

// advance writes until the API's position is far ahead of what it was.
func (r *rig) advance(name string) {
	r.Helper()
	const writes = 2000
	for i := range writes {
		patch := []byte(`{"data":{"n":"` + strconv.Itoa(i) + `"}}`)
		if _, err := r.core.ConfigMaps("default").Patch(r.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
			r.Fatal(err)
		}
	}
}

// aetherctl builds it and returns what runs it against the API server.
func (r *rig) aetherctl() func(args ...string) (string, error) {
	r.Helper()
	root, err := build.Root(".")
	if err != nil {
		r.Fatal(err)
	}
	program := filepath.Join(r.dir, "aetherctl")
	cmd := exec.CommandContext(r.Context(), "go", "build", "-buildvcs=false", "-o", program, "./cmd/aetherctl")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("build aetherctl: %v\n%s", err, out)
	}
	return func(args ...string) (string, error) {
		out, err := exec.CommandContext(r.Context(), program, append(args, "--kubeconfig="+r.server.Kubeconfig)...).CombinedOutput()
		return string(out), err
	}
}

// metric reads a metric of the controller that has no labels.
func (r *rig) metric(ctx context.Context, port int, name string) string {
	_, after, _ := strings.Cut(r.page(ctx, port, "/metrics"), "\n"+name+" ")
	value, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(value)
}

// No controller lives through the restore: none can notice it, and proxies have what the API will
// not have for a long time.
func TestAfterARestoreThatNobodyNoticedTheEpochIsRaisedByHand(t *testing.T) {
	r := newRig(t)
	aetherctl := r.aetherctl()
	epoch := func() string {
		return r.jsonpath("configmap", namespace, "coxswain-discovery-trust", `{.metadata.annotations.config\.aether\.io/epoch}`)
	}
	r.kubectl(objects+"---"+slice(r.backend.Listener.Addr().String())+"---"+route("shop", host)+"---"+controllerPod, "create", "-f", "-")
	r.kubectl("", "create", "configmap", "counter", "-n", "default")
	metrics := r.port()
	start := func() *exec.Cmd { return r.startController("--metrics-bind-address=" + r.at(metrics)) }
	controller := start()
	r.startProxy("proxy-1")
	var port int
	r.eventually("the Service", func(context.Context) bool {
		port, _ = strconv.Atoi(r.jsonpath("service", namespace, "default-web-coxswain", "{.spec.ports[0].targetPort}"))
		return port > 0
	})
	answers := func(host string, code int) func(context.Context) bool {
		return func(ctx context.Context) bool { return r.get(ctx, port, host) == code }
	}
	r.eventually("the route", answers(host, http.StatusOK))

	backup := filepath.Join(t.TempDir(), "etcd")
	r.halted(func(data string) {
		if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
			t.Fatal(err)
		}
	})
	r.advance("counter")
	r.kubectl(route("lost", "lost.example.com"), "create", "-f", "-")
	r.eventually("the route that is in no backup", answers("lost.example.com", http.StatusOK))

	end(controller)
	r.halted(func(data string) {
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(data, os.DirFS(backup)); err != nil {
			t.Fatal(err)
		}
	})
	start()
	r.kubectl(route("anew", "anew.example.com"), "create", "-f", "-")
	r.eventually("a proxy that is ahead, in the metrics", func(ctx context.Context) bool {
		return r.metric(ctx, metrics, "coxswain_discovery_clients_ahead") == "1"
	})
	log, err := os.ReadFile(filepath.Join(r.dir, controllerProgram+".log"))
	const words = "aetherctl discovery reset-epoch --release-namespace aether-system"
	if n := strings.Count(string(log), words); err != nil || n != 1 {
		t.Errorf("the log says %d times, want once, %q (%v)", n, words, err)
	}
	if !answers("lost.example.com", http.StatusOK)(t.Context()) || !answers("anew.example.com", http.StatusNotFound)(t.Context()) {
		t.Error("the proxy does not go on with what it had")
	}

	before := epoch()
	if said, err := aetherctl("discovery", "reset-epoch"); err != nil || !strings.Contains(said, "Nothing was done") || epoch() != before {
		t.Fatalf("without --yes: %v\n%s\nthe epoch is %q, was %q", err, said, epoch(), before)
	}
	if said, err := aetherctl("discovery", "reset-epoch", "--yes"); err != nil || !strings.Contains(said, "It is raised") || epoch() == before {
		t.Fatalf("with --yes: %v\n%s\nthe epoch is %q, was %q", err, said, epoch(), before)
	}
	r.eventually("the route that was written after", answers("anew.example.com", http.StatusOK))
	r.eventually("the end of the one that is in no backup", answers("lost.example.com", http.StatusNotFound))
	r.eventually("nobody is ahead any more", func(ctx context.Context) bool {
		return r.metric(ctx, metrics, "coxswain_discovery_clients_ahead") == "0"
	})
	managers := r.jsonpath("configmap", namespace, "coxswain-discovery-trust", `{.metadata.managedFields[*].manager}`)
	if n := strings.Count(managers, "aether-controller-epoch"); n != 1 {
		t.Errorf("the epoch has %d managers, want one: %s", n, managers)
	}
}
