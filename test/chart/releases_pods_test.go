//go:build cluster

package chart_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"aether.io/aether/test/audit"
	"aether.io/aether/test/cluster/release"
	"aether.io/aether/test/pods"
	"aether.io/aether/test/traffic"
)

// The hosts of the releases beside the first.
const (
	otherHost = "cart.example.com"
	lateHost  = "late.example.com"
)

// late is a Gateway of a class, NAME, and a route of it to what another one's route has as well.
const late = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: late}
spec: {gatewayClassName: NAME, listeners: [{name: http, protocol: HTTP, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: late}
spec: {parentRefs: [{name: late}], hostnames: [` + lateHost + `], rules: [{backendRefs: [{name: cart, port: 80}]}]}
`

// install has Helm install one more release, of the first one's name, in a namespace of its own. It watches
// another one, its class has its namespace's name, and it has one proxy, which ends at once. When the
// test ends it is removed.
func install(r *pods.Rig, name, watches string, args ...string) *pods.Rig {
	r.Helper()
	ns := r.Namespace + "-" + name
	r.Cleanup(func() {
		if _, err := r.Release.Helm(context.WithoutCancel(r.Context()), removal(ns, "--ignore-not-found")...); err != nil {
			r.Error(err)
		}
	})
	a := r.Another(name)
	a.Class = ns
	values := fmt.Sprintf("watchNamespaces={%s},gatewayClass.name=%s,sharedProxy.replicas=1,sharedProxy.drain.delaySeconds=1", watches, a.Class)
	if err := r.Install(r.Context(), release.Name, chart(r), append([]string{"--namespace=" + ns, "--set", values}, args...)...); err != nil {
		r.Fatal(err)
	}
	return a
}

// removal is the arguments by which Helm uninstalls the release of a namespace.
func removal(namespace string, args ...string) []string {
	return append([]string{"uninstall", release.Name, "--namespace=" + namespace, "--wait", "--timeout", release.Patience.String()}, args...)
}

// account is the controller's, of the release of a namespace.
func account(namespace string) string {
	return "system:serviceaccount:" + namespace + ":aether-controller"
}

// readiness is what /readyz answers of the controller of a release, whether it is ready or not.
func readiness(ctx context.Context, of *pods.Rig) string {
	of.Helper()
	address := of.Kubectl("get", "pods", "--selector=app.kubernetes.io/component=controller", "--output=jsonpath={.items[*].status.podIP}")
	if address == "" {
		return "its pod has no address"
	}
	code, text := get(ctx, address+":8082", "", "/readyz")
	return fmt.Sprintf("%d %s", code, text)
}

// get is one answer; 0 and why, if there is none.
func get(ctx context.Context, address, host, path string) (code int, text string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	req.Host, req.Close = host, true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// serves waits until what has an address is a Service of a release's namespace, with all proxies of that release
// behind it and nothing else.
func serves(r *pods.Rig, namespace, address string) {
	r.Helper()
	names := func(args ...string) []string {
		list := strings.Fields(r.Kubectl(append([]string{"--namespace=" + namespace, "get"}, args...)...))
		slices.Sort(list)
		return list
	}
	ip := strings.TrimSuffix(address, ":80")
	r.Eventually(func(context.Context) string {
		service := names("services", `--output=jsonpath={.items[?(@.status.loadBalancer.ingress[0].ip=="`+ip+`")].metadata.name}`)
		if len(service) != 1 {
			return fmt.Sprintf("of namespace %s the Services %v have address %s", namespace, service, ip)
		}
		behind := names("endpointslices", "--selector=kubernetes.io/service-name="+service[0], "--output=jsonpath={.items[*].endpoints[*].targetRef.name}")
		own := names("pods", "--selector=app.kubernetes.io/component=shared-proxy", "--output=jsonpath={.items[*].metadata.name}")
		if len(own) == 0 || !slices.Equal(behind, own) {
			return fmt.Sprintf("behind %s are the pods %v, and the proxies of namespace %s are %v", address, behind, namespace, own)
		}
		return ""
	})
}

// keepsTo fails the test if an account has written anything since, or tried to, that is not in the
// namespaces or of the class, but for questions that leave nothing behind; and if it has written nothing.
func keepsTo(r *pods.Rig, since int64, account, class string, namespaces ...string) {
	r.Helper()
	all, err := audit.Since(r.Cluster.AuditLog(), since)
	if err != nil {
		r.Fatal(err)
	}
	n := 0
	for _, w := range all {
		if w.User.Username != account {
			continue
		}
		n++
		switch ref := w.ObjectRef; {
		case slices.Contains(namespaces, ref.Namespace):
		case ref.Resource == "gatewayclasses" && ref.Name == class && class != "":
		case ref.Resource == "tokenreviews", ref.Resource == "subjectaccessreviews":
		default:
			r.Errorf("%s: %s, answered %d", account, w, w.Response.Code)
		}
	}
	if n == 0 {
		r.Errorf("%s wrote nothing: the log does not tell who did", account)
	}
}

// The release of all tests leaves to others what it does not need, and serves through all that becomes
// of them: one that has nothing in common with it, and one that would have what that has.
func TestPodsReleasesOnOneCluster(t *testing.T) {
	r, address := serving(t)
	shop := r.Another("shop")
	r.Cleanup(func() { // classes outlive their releases; the first has them all again
		r.Kubectl("delete", "gatewayclass", r.Namespace+"-two", r.Namespace+"-three", "--ignore-not-found", "--timeout="+pods.Patience.String())
	})
	restoreAfter(r)
	r.Cleanup(func() { shop.Kubectl("delete", "gateway", "--all") })
	flow := traffic.Start(t, address, host)
	if err := r.Install(t.Context(), release.Name, chart(r), "--set", "watchNamespaces={"+r.Namespace+"}"); err != nil {
		t.Fatal(err)
	}
	r.Settled("aether-controller", "controller")
	began, err := audit.Size(r.Cluster.AuditLog())
	if err != nil {
		t.Fatal(err)
	}

	// Two of them, each with what is its own.
	two := install(r, "two", shop.Namespace)
	shop.Class = two.Class
	shop.Backend("cart")
	shop.Gateway("web", otherHost, "cart")
	second := shop.Address("web")
	others := traffic.Start(t, second, otherHost)
	serves(r, release.Namespace, address)
	serves(r, two.Namespace, second)
	for at, asked := range map[string]string{address: otherHost, second: host} {
		if code, text := get(t.Context(), at, asked, "/"); code != http.StatusNotFound {
			t.Errorf("%s is asked for what the other serves, %s, and answers %d %s", at, asked, code, text)
		}
	}

	// The third is to have what the second has. It waits, and says for whom.
	three := install(r, "three", shop.Namespace, "--wait=hookOnly")
	shop.Apply(strings.ReplaceAll(late, "NAME", three.Class))
	named := "release " + release.Name + " of namespace " + two.Namespace
	r.Eventually(func(ctx context.Context) string {
		if said := readiness(ctx, three); !strings.HasPrefix(said, "503 ") || !strings.Contains(said, named) || !strings.Contains(said, "namespace "+shop.Namespace) {
			return "the third is to wait for the " + named + ", and its readiness is " + said
		}
		return ""
	})
	statusSays(r, named, true, "--release-namespace="+three.Namespace)
	if ready := three.Kubectl("get", "deployment", "aether-controller", "--output=jsonpath={.status.readyReplicas}"); ready != "" {
		t.Errorf("%s replicas of the third are ready", ready)
	}
	if reason := reason(shop, "late"); reason != "Pending" { // the definition's default
		t.Errorf("the Gateway of the third is Accepted for reason %q", reason)
	}
	keepsTo(r, began, account(three.Namespace), "", three.Namespace)
	keepsTo(r, began, account(two.Namespace), two.Class, two.Namespace, shop.Namespace)
	keepsTo(r, began, account(release.Namespace), r.Class, release.Namespace, r.Namespace)
	others.Stop(t)

	// The second goes, and the third need not wait any more.
	helmDo(r, removal(two.Namespace)...)
	three.Kubectl("rollout", "status", "deployment/aether-controller", "--timeout="+pods.Patience.String())
	statusSays(r, named, false, "--release-namespace="+three.Namespace)
	r.Eventually(func(context.Context) string {
		if reason := reason(shop, "late"); reason != "Accepted" {
			return fmt.Sprintf("the third is ready, and its Gateway is Accepted for reason %q", reason)
		}
		return ""
	})
	// Its proxy could not start without the trust bundle, for which a kubelet looks ever more seldom.
	three.Kubectl("delete", "pods", "--selector=app.kubernetes.io/component=shared-proxy", "--wait=false")
	third := shop.Address("late")
	traffic.Start(t, third, lateHost).Stop(t)
	serves(r, three.Namespace, third)
	keepsTo(r, began, account(three.Namespace), three.Class, three.Namespace, shop.Namespace)
	keepsTo(r, began, account(release.Namespace), r.Class, release.Namespace, r.Namespace)
	flow.Stop(t)
}

// reason is why a Gateway is accepted or not.
func reason(r *pods.Rig, gateway string) string {
	r.Helper()
	return r.Kubectl("get", "gateway", gateway, `--output=jsonpath={.status.conditions[?(@.type=="Accepted")].reason}`)
}
