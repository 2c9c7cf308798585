//go:build cluster

package chart_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/test/cluster/release"
	"aether.io/aether/test/pods"
	"aether.io/aether/test/traffic"
)

const (
	controllerAccount = "system:serviceaccount:" + release.Namespace + ":aether-controller"
	proxyAccount      = "system:serviceaccount:" + release.Namespace + ":coxswain-shared-proxy"
)

// may asks the API server itself whether the account has a right. A resource is written as
// kubectl has it, or with a subresource after a colon.
func may(r *pods.Rig, account, namespace, verb, resource string) bool {
	r.Helper()
	resource, sub, _ := strings.Cut(resource, ":")
	out, err := r.Cluster.Kubectl(r.Context(), "", "auth", "can-i", verb, resource, "--subresource="+sub, "--namespace="+namespace, "--as="+account)
	answer := strings.TrimSpace(out)
	if answer != "yes" && answer != "no" {
		r.Fatalf("may %s %s %s: %q, %v", account, verb, resource, out, err)
	}
	return answer == "yes"
}

func TestPodsRights(t *testing.T) {
	r := pods.New(t)
	list := func(account string) string {
		return r.System("auth", "can-i", "--list", "--no-headers", "--as="+account)
	}
	if nobody, proxy := list("system:serviceaccount:"+release.Namespace+":nobody"), list(proxyAccount); proxy != nobody {
		t.Errorf("a proxy has rights beyond those of everybody:\n%s\neverybody's are\n%s", proxy, nobody)
	}
	if volumes := r.System("get", "pods", "--selector=app.kubernetes.io/component=shared-proxy", "--output=jsonpath={.items[*].spec.volumes[*].name}"); volumes == "" || strings.Contains(volumes, "api-access") {
		t.Errorf("proxies have the volumes %s", volumes)
	}
	for _, c := range []struct {
		namespace, verb, resource string
		want                      bool
	}{
		{release.Namespace, "create", "secrets", true},
		{release.Namespace, "update", "secrets/coxswain-discovery-ca", false},
		{release.Namespace, "delete", "secrets/coxswain-discovery-ca", false},
		{r.Namespace, "create", "secrets", false},
		{r.Namespace, "patch", "configmaps/coxswain-discovery-trust", true},
		{r.Namespace, "patch", "configmaps/another", false},
		{release.Namespace, "patch", "configmaps/aether-last-good", true},
		{release.Namespace, "delete", "configmaps/aether-quarantine", true},
		{release.Namespace, "patch", "configmaps/aether-proxy-template", false},
		{r.Namespace, "patch", "configmaps/aether-quarantine", false},
		{r.Namespace, "create", "pods", false},
		{r.Namespace, "create", "serviceaccounts:token", false},
		{release.Namespace, "create", "rolebindings.rbac.authorization.k8s.io", false},
		{release.Namespace, "update", "leases.coordination.k8s.io/aether-controller", true},
		{r.Namespace, "list", "leases.coordination.k8s.io", true}, // of other releases
		{r.Namespace, "update", "leases.coordination.k8s.io/another", false},
		{r.Namespace, "update", "gateways.gateway.networking.k8s.io", false},
	} {
		if got := may(r, controllerAccount, c.namespace, c.verb, c.resource); got != c.want {
			t.Errorf("the controller may %s %s in %s: %v, want %v", c.verb, c.resource, c.namespace, got, c.want)
		}
	}
	// What it lacks it would say.
	if log := r.System("logs", "deployment/aether-controller"); strings.Contains(log, "forbidden") {
		t.Errorf("the controller was refused something:\n%s", log)
	}
}

// The namespace takes nothing that is not restricted, so that everything of ours is there shows
// that it is.
func TestPodsAreRestricted(t *testing.T) {
	r := pods.New(t)
	const privileged = "{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: [{name: c, image: i, securityContext: {privileged: true}}]}}"
	_, err := r.Cluster.Kubectl(r.Context(), privileged, "create", "--dry-run=server", "--namespace="+release.Namespace, "-f", "-")
	if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Errorf("a privileged pod: %v", err)
	}
	settled(r)
}

// An authority that somebody else makes: the controller makes none, says that it waits, and
// goes on by itself. Proxies do not care.
func TestPodsTheAuthorityOfOthers(t *testing.T) {
	r, address := serving(t)
	restoreAfter(r)
	const secret = "coxswain-discovery-ca"
	data := r.System("get", "secret", secret, "--output=jsonpath={.data}")
	manifest := "{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: " + secret + ", namespace: " + release.Namespace + "}, data: " + data + "}"
	flow := traffic.Start(t, address, host)
	if err := r.Install(r.Context(), release.Name, filepath.Join(r.Root, "charts/aether"), "--set", "discovery.ca.mode=external"); err != nil {
		t.Fatal(err)
	}
	settled(r)
	if may(r, controllerAccount, release.Namespace, "create", "secrets") {
		t.Error("the controller may make Secrets")
	}
	r.System("delete", "secret", secret)
	restored := false
	r.Cleanup(func() {
		if !restored {
			r.Apply(manifest)
		}
	})
	r.System("rollout", "restart", "deployment/aether-controller")
	r.Eventually(func(context.Context) string {
		log := r.System("logs", "--selector=app.kubernetes.io/component=controller", "--tail=-1", "--ignore-errors")
		if strings.Contains(log, "CA Secret absent and mode=external") {
			return ""
		}
		return "nobody says that the Secret is not there:\n" + log
	})
	r.Eventually(func(context.Context) string { // the Deployment's status comes after its pod's
		ready := r.System("get", "deployment", "aether-controller", "--output=jsonpath={.status.updatedReplicas} {.status.conditions[?(@.type==\"Progressing\")].reason}")
		if ready == "1 ReplicaSetUpdated" {
			return ""
		}
		return fmt.Sprintf("without an authority the new controller is %q", ready)
	})
	if _, err := r.Cluster.Kubectl(r.Context(), manifest, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	restored = true
	settled(r)
	flow.Stop(t)
}
