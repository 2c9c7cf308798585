//go:build cluster

// Package inspection_test has aetherctl ask Aether on a cluster, with the rights that its guide
// asks for and with less, and while things are broken.
package inspection_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/test/cluster/release"
	"aether.io/aether/test/pods"
)

// limit is for one command: each has its own deadline, well below.
const limit = time.Minute

// said is what a command printed and how it ended.
type said struct {
	out, err string
	code     int
}

// aetherctl runs it with a kubeconfig.
func aetherctl(ctx context.Context, r *pods.Rig, kubeconfig string, args ...string) said {
	r.Helper()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(r.Programs, "aetherctl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "XDG_STATE_HOME="+r.TempDir())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		r.Fatal(err)
	}
	return said{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// as is a kubeconfig of a new account with the rules, which may be none.
func as(r *pods.Rig, account, rules string) string {
	r.Helper()
	r.Apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: " + account + "}}")
	if rules != "" {
		name := r.Namespace + "-" + account
		manifest := fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s, namespace: %[2]s}
rules:
%[3]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: %[1]s, namespace: %[2]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: %[1]s}
subjects: [{kind: ServiceAccount, name: %[4]s, namespace: %[5]s}]
`, name, release.Namespace, rules, account, r.Namespace)
		if _, err := r.Cluster.Kubectl(r.Context(), manifest, "apply", "--server-side", "-f", "-"); err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { r.System("delete", "role,rolebinding", name) })
	}
	text, err := os.ReadFile(r.Cluster.Kubeconfig())
	if err != nil {
		r.Fatal(err)
	}
	file := filepath.Join(r.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		r.Fatal(err)
	}
	token := r.Kubectl("create", "token", account)
	r.Kubectl("config", "--kubeconfig="+file, "set-credentials", account, "--token="+token)
	r.Kubectl("config", "--kubeconfig="+file, "set-context", "--current", "--user="+account)
	return file
}

// guidesRules is what the guide tells to be granted.
func guidesRules(r *pods.Rig) string {
	r.Helper()
	text, err := os.ReadFile(filepath.Join(r.Root, "docs/guides/look-into-a-cluster.md"))
	if err != nil {
		r.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)\nrules:\n(.*?)` + "```").FindSubmatch(text)
	if m == nil {
		r.Fatal("the guide has no rules")
	}
	return string(m[1])
}

func TestPodsAClusterIsAskedAsAnInstanceIs(t *testing.T) {
	r := pods.New(t)
	r.Backend("shop")
	r.Gateway("web", "shop.example.com", "shop")
	r.Address("web")
	viewer := as(r, "viewer", guidesRules(r))

	got := aetherctl(t.Context(), r, viewer, "status", "gateway", "-n", r.Namespace)
	if got.code != 0 || !regexp.MustCompile(`Gateway/`+r.Namespace+`/web +1 +Accepted=True Programmed=True`).MatchString(got.out) {
		t.Errorf("status: %+v", got)
	}
	var proxies []fleet.Proxy
	if got = aetherctl(t.Context(), r, viewer, "get", "proxies", "-o", "json"); got.code != 0 || json.Unmarshal([]byte(got.out), &proxies) != nil {
		t.Fatalf("get proxies: %+v", got)
	}
	names := strings.Fields(r.System("get", "pods", "--selector=app.kubernetes.io/component=shared-proxy", "--output=jsonpath={.items[*].metadata.name}"))
	for _, name := range names {
		if n := slices.IndexFunc(proxies, func(p fleet.Proxy) bool { return p.ID == name }); n < 0 || !proxies[n].Connected {
			t.Errorf("pod %s is not among the proxies that are connected: %s", name, got.out)
		}
	}
	for what, want := range map[string]string{
		"processes": "kubectl logs --namespace aether-system " + names[0],
		"resources": "Gateway/" + r.Namespace + "/web",
		"identity":  "CN=Aether discovery CA", // whom it signed for is in the memory of this controller only
	} {
		if got := aetherctl(t.Context(), r, viewer, "get", what); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("get %s: %+v, want %q", what, got, want)
		}
	}
}

const ownProxies = `
apiVersion: config.aether.io/v1
kind: GatewayParameters
metadata: {name: own}
spec: {mode: Dedicated, dedicated: {replicas: 1}, drainSeconds: 5} # a namespace is gone half a drain after its pods
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: own}
spec:
  gatewayClassName: coxswain
  infrastructure: {parametersRef: {group: config.aether.io, kind: GatewayParameters, name: own}}
  listeners: [{name: http, protocol: HTTP, port: 80}]
`

func TestPodsProxiesOfADedicatedGatewayAreShown(t *testing.T) {
	r := pods.New(t)
	r.Backend("shop")
	r.Gateway("web", "shop.example.com", "shop")
	r.Address("web")
	r.Apply(ownProxies)
	r.Address("own")
	row := regexp.MustCompile(`(?m)^own-coxswain-\S+ +- +true +kubectl logs --namespace ` + r.Namespace)
	r.Eventually(func(ctx context.Context) string {
		if got := aetherctl(ctx, r, r.Cluster.Kubeconfig(), "get", "processes"); got.code != 0 || !row.MatchString(got.out) {
			return fmt.Sprintf("get processes: %+v", got)
		}
		return ""
	})
	scope := regexp.MustCompile(`(?m)^own-coxswain-\S+ +\S*` + r.Namespace + `/own\S* +true`)
	if got := aetherctl(t.Context(), r, r.Cluster.Kubeconfig(), "get", "proxies"); got.code != 0 || !scope.MatchString(got.out) {
		t.Errorf("get proxies: %+v", got)
	}
	var all []inspect.Resource
	got := aetherctl(t.Context(), r, r.Cluster.Kubeconfig(), "get", "resources", "-o", "json")
	if err := json.Unmarshal([]byte(got.out), &all); err != nil {
		t.Fatalf("get resources: %+v: %v", got, err)
	}
	sent := 0
	for _, res := range all {
		own, of := res.Scope == "Gateway/"+r.Namespace+"/own", strings.HasPrefix(res.Name, r.Namespace+"/own/")
		if res.Type == "Listener" && (own || of) {
			sent++
			if own != of {
				t.Errorf("scope %s is sent %s", res.Scope, res.Name)
			}
		}
	}
	if sent == 0 {
		t.Error("no listener of the Gateway is sent to its proxies")
	}
}

func TestPodsARightThatIsMissingIsNamed(t *testing.T) {
	r := pods.New(t)
	for account, test := range map[string]struct{ rules, want string }{
		"nobody": {"", "needs the right to list pods in namespace aether-system"},
		"lister": {`- {apiGroups: [""], resources: [pods], verbs: [list]}`, "needs the right to create pods/portforward in namespace aether-system"},
	} {
		t.Run(account, func(t *testing.T) {
			got := aetherctl(t.Context(), r, as(r, account, test.rules), "status")
			if got.code != 1 || !strings.Contains(got.err, test.want) || !strings.Contains(got.err, "forbidden") {
				t.Errorf("got %+v, want %q", got, test.want)
			}
		})
	}
	got := aetherctl(t.Context(), r, r.Cluster.Kubeconfig(), "status", "--release-namespace", r.Namespace)
	if got.code != 1 || !strings.Contains(got.err, "there is none in namespace "+r.Namespace) {
		t.Errorf("where nothing is installed: %+v", got)
	}
}

func TestPodsADefinitionThatIsMissingIsNamed(t *testing.T) {
	r := pods.New(t)
	const definition = "backendtlspolicies.gateway.networking.k8s.io"
	r.Cleanup(func() {
		if err := r.GatewayAPI(context.WithoutCancel(r.Context())); err != nil {
			r.Error(err)
		}
	})
	r.Kubectl("delete", "customresourcedefinition", definition)
	asked := func(ctx context.Context) said { return aetherctl(ctx, r, r.Cluster.Kubeconfig(), "status", "--check") }
	r.Eventually(func(ctx context.Context) string {
		if got := asked(ctx); got.code != 1 || !strings.Contains(got.out, definition+": is not installed") {
			return fmt.Sprintf("status does not name the definition: %+v", got)
		}
		return ""
	})
	if err := r.GatewayAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Eventually(func(ctx context.Context) string {
		if got := asked(ctx); strings.Contains(got.out, definition) {
			return fmt.Sprintf("status still names the definition: %+v", got)
		}
		return ""
	})
}

func TestPodsProxiesAreAskedWhileNoControllerCanBe(t *testing.T) {
	r := pods.New(t)
	r.Cleanup(func() {
		r.System("scale", "deployment/aether-controller", "--replicas=1")
		r.Settled("aether-controller", "controller")
	})
	r.System("scale", "deployment/aether-controller", "--replicas=0")
	r.Settled("aether-controller", "controller")
	degraded := regexp.MustCompile(`(?m)^coxswain-shared-proxy-\S+ +Ready +\d+ +Degraded +Disconnected`)
	r.Eventually(func(ctx context.Context) string {
		got := aetherctl(ctx, r, r.Cluster.Kubeconfig(), "status")
		want := r.System("get", "deployment", "coxswain-shared-proxy", "--output=jsonpath={.spec.replicas}")
		if n := len(degraded.FindAllString(got.out, -1)); got.code != 1 || fmt.Sprint(n) != want || !strings.Contains(got.err, "no controller can be asked") {
			return fmt.Sprintf("%d proxies say how they are, want %s: %+v", n, want, got)
		}
		return ""
	})
}
