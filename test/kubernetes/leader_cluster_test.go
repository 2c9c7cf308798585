//go:build cluster

package kubernetes_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"aether.io/aether/test/audit"
	"aether.io/aether/test/cluster/apiserver"
)

// replica is one of several controllers. What it writes it writes under its program's name.
type replica struct {
	*rig
	name            string
	cmd             *exec.Cmd
	stream, boot    int
	metrics, health int
}

// startReplica runs a controller beside others.
func (r *rig) startReplica(name string, args ...string) *replica {
	r.Helper()
	program := filepath.Join(r.dir, name)
	if err := os.Link(filepath.Join(r.dir, controllerProgram), program); err != nil {
		r.Fatal(err)
	}
	c := &replica{rig: r, name: name, stream: r.port(), boot: r.port(), metrics: r.port(), health: r.port()}
	c.cmd = r.start(program, append([]string{
		"--kubeconfig=" + r.server.Kubeconfig, "--release-namespace=" + namespace, "--bind=" + r.address,
		"--discovery-bind=" + r.address, "--discovery-port=" + strconv.Itoa(c.stream), "--discovery-bootstrap-port=" + strconv.Itoa(c.boot),
		"--metrics-bind-address=" + r.at(c.metrics), "--health-probe-bind-address=" + r.at(c.health),
		"--inspect-port=" + strconv.Itoa(r.port()),
	}, args...)...)
	return c
}

// page is what a port answers, empty if it is not 200.
func (r *rig) page(ctx context.Context, port int, path string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.at(port)+path, http.NoBody)
	if err != nil {
		return ""
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

func (c *replica) leads(ctx context.Context) bool {
	return strings.Contains(c.page(ctx, c.metrics, "/metrics"), "\naether_leader 1\n")
}

func (c *replica) ready(ctx context.Context) bool { return c.page(ctx, c.health, "/readyz") != "" }

// leader waits until one of the two leads, and the other does not.
func (r *rig) leader(a, b *replica) (leads, follows *replica) {
	r.Helper()
	r.eventually("one leads", func(ctx context.Context) bool {
		one, two := a.leads(ctx), b.leads(ctx)
		leads, follows = a, b
		if two {
			leads, follows = b, a
		}
		return one != two
	})
	return leads, follows
}

// statusWrites counts writes of statuses, by the program that made them.
func (r *rig) statusWrites() map[string]int {
	r.Helper()
	all, err := audit.Since(r.server.AuditLog, 0)
	if err != nil {
		r.Fatal(err)
	}
	out := map[string]int{}
	for _, w := range all {
		if w.ObjectRef.Subresource == "status" && w.ObjectRef.APIGroup == "gateway.networking.k8s.io" {
			out[w.Program()]++
		}
	}
	return out
}

// write makes routes and waits until each has its status, which only the leader may write.
func (r *rig) write(leads, follows *replica, prefix string, n int) {
	r.Helper()
	before := r.statusWrites()
	var all []string
	for i := range n {
		all = append(all, route(prefix+strconv.Itoa(i), prefix+strconv.Itoa(i)+".example.com"))
	}
	r.kubectl(strings.Join(all, "---"), "create", "-f", "-")
	r.eventually("statuses of "+prefix, func(context.Context) bool {
		text, _ := r.server.Kubectl(r.Context(), "", "get", "httproutes", "-n", "default", "-o",
			`jsonpath={range .items[*]}{.metadata.name}={.status.parents[0].conditions[?(@.type=="Accepted")].status}{"\n"}{end}`)
		done := 0
		for line := range strings.Lines(text) {
			if name, status, _ := strings.Cut(strings.TrimSpace(line), "="); strings.HasPrefix(name, prefix) && status == "True" {
				done++
			}
		}
		return done == n
	})
	now := r.statusWrites()
	if got := now[leads.name] - before[leads.name]; got < n {
		r.Errorf("the leader, %s, wrote %d statuses for %d routes", leads.name, got, n)
	}
	if got := now[follows.name] - before[follows.name]; got != 0 {
		r.Errorf("%s does not lead, and wrote %d statuses", follows.name, got)
	}
}

func (c *replica) kill() {
	c.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		c.Fatal(err)
	}
	_ = c.cmd.Wait()
}

func TestOfTwoControllersOneWritesAndBothServe(t *testing.T) {
	r := newRig(t)
	r.kubectl(objects+"---"+slice(r.backend.Listener.Addr().String())+"---"+route("shop", host), "create", "-f", "-")
	a, b := r.startReplica("controller-a"), r.startReplica("controller-b")
	for _, c := range []*replica{a, b} { // followers are ready too
		r.eventually(c.name+" is ready", c.ready)
	}
	leads, follows := r.leader(a, b)
	r.write(leads, follows, "first", 20)

	// One that dies is followed by the other once its Lease has ended.
	leads.kill()
	old := leads
	leads = follows
	r.eventually("the other leads", leads.leads)
	c := r.startReplica("controller-c")
	r.eventually("the third is ready", c.ready)
	follows = c
	r.write(leads, follows, "second", 20)
	if got := r.statusWrites()[old.name]; got == 0 {
		t.Error("the first leader wrote nothing: the log tells them not apart")
	}

	// A proxy is served by the one that does not lead.
	r.stream, r.boot = follows.stream, follows.boot
	r.startProxy("proxy-1")
	internal := 0
	r.eventually("the Service", func(context.Context) bool {
		internal, _ = strconv.Atoi(r.jsonpath("service", namespace, "default-web-coxswain", "{.spec.ports[0].targetPort}"))
		return internal > 0
	})
	r.eventually("the route answers", func(ctx context.Context) bool { return r.get(ctx, internal, host) == http.StatusOK })

	// Without the API nobody leads, and both serve; then one does.
	if err := r.server.Stop(apiserver.APIServer); err != nil {
		t.Fatal(err)
	}
	r.eventually("nobody leads without the API", func(ctx context.Context) bool { return !a.leads(ctx) && !b.leads(ctx) && !c.leads(ctx) })
	for _, x := range []*replica{leads, follows} {
		if !x.ready(t.Context()) {
			t.Errorf("%s is not ready without the API", x.name)
		}
	}
	if code := r.get(t.Context(), internal, host); code != http.StatusOK {
		t.Errorf("the route answers %d without the API", code)
	}
	if !strings.Contains(r.page(t.Context(), follows.metrics, "/metrics"), `coxswain_discovery_connected_clients{scope="SharedPool"} 1`) {
		t.Error("the proxy is not connected without the API")
	}
	if err := r.server.StartAll(); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	leads, follows = r.leader(leads, follows)
	r.write(leads, follows, "third", 20)

	// One that is stopped hands over: its Lease is nobody's when it has ended.
	holder := r.jsonpath("lease", namespace, "aether-controller", "{.spec.holderIdentity}")
	if err := leads.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := leads.cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v", leads.name, err)
	}
	if now := r.jsonpath("lease", namespace, "aether-controller", "{.spec.holderIdentity}"); holder == "" || now == holder {
		t.Errorf("%q held the Lease, and %q does after it was stopped", holder, now)
	}
	r.eventually("the last one leads", follows.leads)
	r.write(follows, leads, "fourth", 5)
	r.rejected(follows)
}

// rejected sends a token that is none, and looks for the Event.
func (r *rig) rejected(c *replica) {
	r.Helper()
	const token = "bm90LWEtdG9rZW4"
	file := filepath.Join(r.dir, "bad-token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		r.Fatal(err)
	}
	dir := filepath.Join(r.dir, "bad")
	r.start(filepath.Join(r.dir, proxyProgram),
		"--discovery-endpoint=https://"+r.at(c.stream), "--discovery-bootstrap-endpoint=https://"+r.at(c.boot),
		"--discovery-sa-token-path="+file, "--discovery-ca-bundle-path="+filepath.Join(r.dir, "ca.crt"),
		"--discovery-server-id=spiffe://cluster.local/ns/"+namespace+"/sa/aether-controller", "--proxy-id=nobody", "--scope=shared",
		"--xds-socket="+dir+"/xds.sock", "--envoy-admin-socket="+dir+"/admin.sock", "--envoy-bootstrap="+dir+"/bootstrap.json",
		"--last-good-dir="+dir+"/last-good", "--inspect-socket="+dir+"/inspect.sock")
	var events string
	r.eventually("the Event of the rejected bootstrap", func(context.Context) bool {
		events, _ = r.server.Kubectl(r.Context(), "", "get", "events.events.k8s.io", "-n", namespace, "-o", "yaml")
		return strings.Contains(events, "reason: BootstrapRejected")
	})
	for _, want := range []string{"unknown (127.0.0.1): Unauthenticated", "name: coxswain-controller-discovery", "type: Warning"} {
		if !strings.Contains(events, want) {
			r.Errorf("the Event does not say %q:\n%s", want, events)
		}
	}
	if strings.Contains(events, token) {
		r.Error("the token is in the Event")
	}
}
