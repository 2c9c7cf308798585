// Package pods is what tests with Aether's pods stand on: the cluster that make cluster-up
// made, with Aether on it. A test has a namespace of its own there, and leaves Aether as it
// found it.
package pods

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aether.io/aether/test/cluster"
	"aether.io/aether/test/cluster/build"
	"aether.io/aether/test/cluster/release"
)

// Patience is for each thing that is waited for.
const Patience = 2 * time.Minute

// Rig is one test on the cluster.
type Rig struct {
	testing.TB
	release.Release
	Namespace string // the test's own, where only restricted pods may be
	Class     string // of the Gateways that it makes

	made *[]string // every namespace of the test
}

// New makes the namespace, which is removed when the test ends. It fails the test if there is
// no cluster, and has the state of Aether logged if the test fails.
func New(t testing.TB) *Rig {
	t.Helper()
	root, err := build.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.In(filepath.Join(root, ".build/cluster"))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := build.Cache()
	if err != nil {
		t.Fatal(err)
	}
	helm, err := build.Helm(root).Find(cache)
	if err != nil {
		t.Fatal(err)
	}
	rel, err := release.New(release.Config{
		Cluster: c, Root: root, Programs: filepath.Join(root, "bin"), Probe: filepath.Join(root, ".build/cluster-tools/probe"),
		Envoy: os.Getenv("AETHER_ENVOY"), Helm: helm, Out: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &Rig{TB: t, Release: rel, Namespace: "test-" + strings.ToLower(rand.Text()[:8]), Class: "coxswain", made: &[]string{}}
	if _, err := os.Stat(c.Kubeconfig()); err != nil {
		t.Fatalf("there is no cluster: run make cluster-up (%v)", err)
	}
	if _, err := c.Kubectl(t.Context(), "", "get", "deployment/aether-controller", "--namespace="+release.Namespace); err != nil {
		t.Fatalf("Aether is not on the cluster: run make cluster-up (%v)", err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			t.Log(rel.State(ctx))
		}
		if _, err := c.Kubectl(ctx, "", append([]string{"delete", "namespace", "--timeout=" + Patience.String()}, *r.made...)...); err != nil {
			t.Error(err)
		}
	})
	r.makeNamespace()
	return r
}

func (r *Rig) makeNamespace() {
	r.Helper()
	*r.made = append(*r.made, r.Namespace)
	r.Apply(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {pod-security.kubernetes.io/enforce: restricted}}}", r.Namespace))
}

// Another is the same test in one more namespace, which is removed together with its first, and
// whose state is logged if the test fails.
func (r *Rig) Another(name string) *Rig {
	r.Helper()
	out := *r
	out.Namespace = r.Namespace + "-" + name
	out.makeNamespace()
	r.Cleanup(func() {
		if r.Failed() {
			r.Log(out.StateIn(context.WithoutCancel(r.Context()), out.Namespace))
		}
	})
	return &out
}

// Kubectl runs kubectl in the test's namespace and returns what it printed. It may be used
// while the test is cleaned up.
func (r *Rig) Kubectl(args ...string) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 2*Patience)
	defer cancel()
	out, err := r.Cluster.Kubectl(ctx, "", append([]string{"--namespace=" + r.Namespace}, args...)...)
	if err != nil {
		r.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// System runs kubectl in the release's namespace.
func (r *Rig) System(args ...string) string {
	r.Helper()
	return r.Kubectl(append([]string{"--namespace=" + release.Namespace}, args...)...)
}

// Apply applies a manifest in the test's namespace.
func (r *Rig) Apply(manifest string) {
	r.Helper()
	if _, err := r.Cluster.Kubectl(r.Context(), manifest, "apply", "--server-side", "--force-conflicts", "--namespace="+r.Namespace, "-f", "-"); err != nil {
		r.Fatal(err)
	}
}

// Eventually waits until is says nothing; then what it said last fails the test.
func (r *Rig) Eventually(is func(context.Context) string) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), Patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		wrong := is(ctx)
		if wrong == "" {
			return
		}
		select {
		case <-ctx.Done():
			r.Fatalf("after %s: %s", Patience, wrong)
		case <-tick.C:
		}
	}
}

const backend = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 2
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: echo
          image: ` + release.ProbeImage + `
          imagePullPolicy: IfNotPresent
          args: [echo, "8080"]
          readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {selector: {app: NAME}, ports: [{port: 80, targetPort: 8080}]}
`

// Backend makes a Service of two pods that answer as package echo does, on port 80, and
// returns when both are ready.
func (r *Rig) Backend(name string) {
	r.Helper()
	r.Apply(strings.ReplaceAll(backend, "NAME", name))
	r.Kubectl("rollout", "status", "deployment/"+name, "--timeout="+Patience.String())
}

// Gateway makes a Gateway with one HTTP listener, port 80, and a route that sends the host to
// the Service of the route's name.
func (r *Rig) Gateway(name, host, service string) {
	r.Helper()
	r.Apply(fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[1]s}
spec: {gatewayClassName: %[4]s, listeners: [{name: http, protocol: HTTP, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[3]s}
spec: {parentRefs: [{name: %[1]s}], hostnames: [%[2]s], rules: [{backendRefs: [{name: %[3]s, port: 80}]}]}
`, name, host, service, r.Class))
}

// Address waits until the Gateway is programmed and returns where it is reached on port 80. The
// network learns of a Service's address at its own pace, so that is waited for as well.
func (r *Rig) Address(gateway string) string {
	r.Helper()
	r.Kubectl("wait", "--for=condition=Programmed", "gateway/"+gateway, "--timeout="+Patience.String())
	address := net.JoinHostPort(r.Kubectl("get", "gateway", gateway, "--output=jsonpath={.status.addresses[0].value}"), "80")
	r.Eventually(func(ctx context.Context) string {
		conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err.Error()
		}
		_ = conn.Close()
		return ""
	})
	return address
}

// Settled waits until the Deployment of the release's namespace has the pods that it wants, and
// no other: the old ones have been drained and are gone.
func (r *Rig) Settled(deployment, component string) {
	r.Helper()
	r.System("rollout", "status", "deployment/"+deployment, "--timeout="+Patience.String())
	want := r.System("get", "deployment", deployment, "--output=jsonpath={.spec.replicas}")
	r.Eventually(func(context.Context) string {
		names := strings.Fields(r.System("get", "pods", "--selector=app.kubernetes.io/component="+component, "--output=name"))
		if fmt.Sprint(len(names)) == want {
			return ""
		}
		return fmt.Sprintf("Deployment %s wants %s pods and has %s", deployment, want, strings.Join(names, ", "))
	})
}
