//go:build cluster

package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"aether.io/aether/test/audit"
	"aether.io/aether/test/cluster/build"
)

// release is one that Helm has installed, and a controller of it as a process, with the rights that
// the chart gives.
type release struct {
	*replica
	namespace string
}

// install has Helm install the chart. In one of several releases everything has the chart's names.
func (r *rig) install(ns string, values ...string) {
	r.Helper()
	cache, err := build.Cache()
	if err != nil {
		r.Fatal(err)
	}
	helm, err := build.Helm("../..").Find(cache)
	if err != nil {
		r.Fatal(err)
	}
	args := []string{"upgrade", "--install", "aether", "../../charts/aether", "--namespace", ns, "--set", strings.Join(values, ",")}
	cmd := exec.CommandContext(r.Context(), helm, args...)
	home := filepath.Join(r.dir, "helm")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.server.Kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// account is a kubeconfig of the controller's service account.
func (r *rig) account(ns string) string {
	r.Helper()
	config, err := clientcmd.LoadFromFile(r.server.Kubeconfig)
	if err != nil {
		r.Fatal(err)
	}
	token := strings.TrimSpace(r.kubectl("", "create", "token", "aether-controller", "--namespace="+ns, "--duration=1h"))
	for name := range config.AuthInfos {
		user := config.AuthInfos[name]
		user.ClientCertificate, user.ClientCertificateData, user.ClientKey, user.ClientKeyData = "", nil, "", nil
		user.Token = token
	}
	file := filepath.Join(r.dir, ns+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		r.Fatal(err)
	}
	return file
}

// startRelease runs a controller with the arguments of the chart that say what is watched.
func (r *rig) startRelease(name, ns string) *release {
	r.Helper()
	args := []string{"--kubeconfig=" + r.account(ns)}
	for arg := range strings.FieldsSeq(r.jsonpath("deployment", ns, "aether-controller", "{.spec.template.spec.containers[0].args}")) {
		for arg := range strings.SplitSeq(strings.Trim(arg, "[]"), ",\"") {
			arg = strings.Trim(arg, `"`)
			for _, flag := range []string{"--release-namespace=", "--release-name=", "--gateway-class=", "--watch-namespaces="} {
				if strings.HasPrefix(arg, flag) {
					args = append(args, arg)
				}
			}
		}
	}
	if len(args) < 4 {
		r.Fatalf("the chart's arguments are %v", args)
	}
	return &release{r.startReplica(name, args...), ns}
}

// readiness is what /readyz answers, whether it is ready or not.
func (c *release) readiness(ctx context.Context) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.at(c.health)+"/readyz", http.NoBody)
	if err != nil {
		return ""
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// writes are those of a program that were answered with success.
func (r *rig) writes(program string) (out []audit.Write) {
	r.Helper()
	all, err := audit.Since(r.server.AuditLog, 0)
	if err != nil {
		r.Fatal(err)
	}
	for _, w := range all {
		if w.Program() == program && w.Done() {
			out = append(out, w)
		}
	}
	return out
}

// keepsTo fails if a release wrote anything outside of its namespaces and its class, but for
// questions that leave nothing behind.
func (c *release) keepsTo(class string, namespaces ...string) {
	c.Helper()
	all := c.writes(c.name)
	for _, w := range all {
		ref := w.ObjectRef
		own := ref.Resource == "gatewayclasses" && ref.Name == class || ref.Resource == "tokenreviews" || ref.Resource == "subjectaccessreviews"
		for _, n := range namespaces {
			own = own || ref.Namespace == n
		}
		if !own {
			c.Errorf("%s: %s", c.name, w)
		}
	}
	if len(all) == 0 {
		c.Errorf("%s wrote nothing: the log does not tell who did", c.name)
	}
	log, err := os.ReadFile(filepath.Join(c.dir, c.name+".log"))
	if err != nil {
		c.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "forbidden") {
			c.Errorf("%s was refused something: %s", c.name, line)
		}
	}
}

// leave ends a release as its removal does: its Leases go with its Deployment.
func (c *release) leave() {
	c.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		c.Errorf("%s ended with %v", c.name, err)
	}
	uid := c.jsonpath("deployment", c.namespace, "aether-controller", "{.metadata.uid}")
	owners := c.kubectl("", "get", "leases", "--namespace="+c.namespace, "--selector=config.aether.io/release=aether", "-o", "jsonpath={.items[*].metadata.ownerReferences[*].uid}")
	if owners != uid || uid == "" {
		c.Errorf("the Leases of %s are owned by %q, and its Deployment is %q", c.namespace, owners, uid)
	}
	c.kubectl("", "delete", "leases", "--namespace="+c.namespace, "--selector=config.aether.io/release=aether")
}

const gatewayOf = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[2]s, namespace: %[1]s}
spec: {gatewayClassName: %[2]s, listeners: [{name: http, port: 80, protocol: HTTP}]}
`

func (r *rig) accepted(ns, name string) bool {
	return r.jsonpath("gateway", ns, name, `{.status.conditions[?(@.type=="Accepted")].status}`) == "True"
}

// projects waits until a MeshConfig has its statuses.
func (r *rig) projects(ns string) {
	r.Helper()
	r.eventually("the MeshConfig of "+ns, func(context.Context) bool { return strings.HasPrefix(r.condition(ns), "True ") })
}

func TestSeveralReleasesInOneCluster(t *testing.T) {
	r := newRig(t)
	for _, ns := range []string{"team-a", "team-b", "team-c", "shop", "billing", "others"} {
		r.kubectl("", "create", "namespace", ns)
	}
	r.install("team-a", "watchNamespaces={shop}", "gatewayClass.name=a", "webhook.enabled=false")
	r.install("team-b", "watchNamespaces={billing}", "gatewayClass.name=b", "webhook.enabled=false")
	a, b := r.startRelease("release-a", "team-a"), r.startRelease("release-b", "team-b")
	r.eventually("both are ready", func(ctx context.Context) bool { return a.ready(ctx) && b.ready(ctx) })

	// Each serves what is its own, and nobody what is nobody's.
	r.kubectl(strings.Join([]string{
		fmt.Sprintf(gatewayOf, "shop", "a"), fmt.Sprintf(gatewayOf, "shop", "b"), fmt.Sprintf(gatewayOf, "billing", "b"), fmt.Sprintf(gatewayOf, "others", "a"),
		mesh("shop", 10), mesh("billing", 20), mesh("others", 30),
	}, "---"), "create", "-f", "-")
	r.eventually("the Gateways", func(context.Context) bool { return r.accepted("shop", "a") && r.accepted("billing", "b") })
	for _, ns := range []string{"team-a", "team-b", "shop", "billing"} {
		r.projects(ns)
	}
	for _, of := range []string{"shop/b", "others/a"} {
		ns, name, _ := strings.Cut(of, "/")
		// Gateways have conditions of the definition's default, which nobody has looked at.
		if got := r.jsonpath("gateway", ns, name, `{.status.conditions[?(@.reason!="Pending")].type}`); got != "" {
			t.Errorf("Gateway %s has the conditions %s", of, got)
		}
	}
	if got := r.jsonpath("meshconfig", "others", "default", "{.status}"); got != "" {
		t.Errorf("the MeshConfig that nobody watches has the status %s", got)
	}

	// The third is to have what the first has. It waits, and says for whom.
	r.install("team-c", "watchNamespaces={shop}", "gatewayClass.name=c", "webhook.enabled=false")
	c := r.startRelease("release-c", "team-c")
	r.eventually("the younger names the other", func(ctx context.Context) bool {
		text := c.readiness(ctx)
		return strings.Contains(text, "release aether of namespace team-a") && strings.Contains(text, "namespace shop")
	})
	r.eventually("the Event", func(context.Context) bool {
		text, _ := r.server.Kubectl(t.Context(), "", "get", "events.events.k8s.io", "--namespace=team-c", "-o", "yaml")
		return strings.Contains(text, "reason: ReleasesOverlap") && strings.Contains(text, "team-a")
	})
	r.kubectl(fmt.Sprintf(gatewayOf, "shop", "c"), "create", "-f", "-")
	r.kubectl("", "patch", "meshconfig", "default", "--namespace=shop", "--type=merge", "-p", `{"spec":{"proxy":{"accessLogSuccessSampleRate":11}}}`)
	r.eventually("the older goes on", func(context.Context) bool {
		return r.jsonpath("meshconfig", "shop", "default", "{.status.observedGeneration}") == "2"
	})
	if c.ready(t.Context()) || c.leads(t.Context()) {
		t.Errorf("it is ready, or leads:\n%s", c.readiness(t.Context()))
	}
	for _, w := range r.writes(c.name) {
		switch w.ObjectRef.Resource {
		case "leases", "events", "secrets", "tokenreviews", "subjectaccessreviews":
			if w.ObjectRef.Namespace != "" && w.ObjectRef.Namespace != "team-c" {
				t.Errorf("it waits, and wrote %s", w)
			}
		default:
			t.Errorf("it waits, and wrote %s", w)
		}
	}
	a.keepsTo("a", "team-a", "shop")

	// The older is removed.
	a.leave()
	r.eventually("the younger is ready", func(ctx context.Context) bool { return c.ready(ctx) && c.leads(ctx) })
	r.eventually("its Gateway", func(context.Context) bool { return r.accepted("shop", "c") })
	c.keepsTo("c", "team-c", "shop")

	// The values of another one change to what that has. Its new replica waits, and the old one goes on.
	r.install("team-b", "watchNamespaces={billing,shop}", "gatewayClass.name=b", "webhook.enabled=false")
	next := r.startRelease("release-b-next", "team-b")
	r.eventually("what is to be watched names the other", func(ctx context.Context) bool {
		text := next.readiness(ctx)
		return strings.Contains(text, "release aether of namespace team-c") && strings.Contains(text, "namespace shop")
	})
	r.kubectl("", "patch", "meshconfig", "default", "--namespace=billing", "--type=merge", "-p", `{"spec":{"proxy":{"accessLogSuccessSampleRate":21}}}`)
	r.eventually("the old replica goes on", func(context.Context) bool {
		return r.jsonpath("meshconfig", "billing", "default", "{.status.observedGeneration}") == "2"
	})
	if next.ready(t.Context()) || next.leads(t.Context()) || !b.leads(t.Context()) || !c.ready(t.Context()) {
		t.Errorf("the new replica is ready or leads, or the old one or the other does not any more:\n%s", next.readiness(t.Context()))
	}
	b.keepsTo("b", "team-b", "billing")
	if !b.ready(t.Context()) {
		t.Errorf("the one that shares nothing is not ready:\n%s", b.readiness(t.Context()))
	}
}
