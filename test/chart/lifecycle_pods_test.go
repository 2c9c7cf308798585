//go:build cluster

package chart_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/test/cluster/release"
	"aether.io/aether/test/pods"
	"aether.io/aether/test/traffic"
)

const host = "shop.example.com"

// serving is a rig with a Gateway that answers at the address.
func serving(t *testing.T) (r *pods.Rig, address string) {
	t.Helper()
	r = pods.New(t)
	r.Backend("shop")
	r.Gateway("web", host, "shop")
	address = r.Address("web")
	return r, address
}

// settled waits until controller and shared proxies are those that are wanted, and no others.
func settled(r *pods.Rig) {
	r.Helper()
	r.Settled("aether-controller", "controller")
	r.Settled("coxswain-shared-proxy", "shared-proxy")
}

func chart(r *pods.Rig) string { return filepath.Join(r.Root, "charts/aether") }

// restoreAfter has Aether as make cluster-up installs it when the test ends, whoever made
// what is there.
func restoreAfter(r *pods.Rig) {
	r.Cleanup(func() {
		ctx := context.WithoutCancel(r.Context())
		if err := r.Install(ctx, release.Definitions, filepath.Join(r.Root, "charts/crds")); err != nil {
			r.Error(err)
		}
		if err := r.Install(ctx, release.Name, chart(r), "--take-ownership", "--force-conflicts"); err != nil {
			r.Error(err)
		}
	})
}

// uninstall removes Aether and returns when its last pod has gone.
func uninstall(r *pods.Rig) {
	r.Helper()
	helmDo(r, "uninstall", release.Name, "--wait", "--timeout", release.Patience.String())
	r.Eventually(func(context.Context) string {
		left := r.System("get", "deployments,pods,roles,rolebindings,poddisruptionbudgets", "--output=name", "--selector=app.kubernetes.io/instance="+release.Name)
		if left == "" {
			return ""
		}
		return "after uninstalling there is " + left
	})
}

func helmDo(r *pods.Rig, args ...string) string {
	r.Helper()
	out, err := r.Release.Helm(r.Context(), args...)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

func TestPodsARestartOfAllProxiesLosesNothing(t *testing.T) {
	r, address := serving(t)
	flow := traffic.Start(t, address, host)
	r.System("rollout", "restart", "deployment/coxswain-shared-proxy")
	r.Settled("coxswain-shared-proxy", "shared-proxy")
	flow.Stop(t)
}

func TestPodsUpgradeAndRollbackLoseNothing(t *testing.T) {
	r, address := serving(t)
	before := previous(r)
	restoreAfter(r)
	if err := before.Up(r.Context()); err != nil {
		t.Fatal(err)
	}
	settled(r)
	flow := traffic.Start(t, address, host)
	if err := r.Up(r.Context()); err != nil {
		t.Fatal(err)
	}
	settled(r)
	helmDo(r, "rollback", release.Name, "--wait", "--timeout", release.Patience.String())
	settled(r)
	flow.Stop(t)
}

// previous is the release of the commit before this one: its charts, and its programs.
func previous(r *pods.Rig) release.Release {
	r.Helper()
	dir := r.TempDir()
	run := func(name string, args ...string) {
		r.Helper()
		cmd := exec.CommandContext(r.Context(), name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GIT_DIR="+filepath.Join(r.Root, ".git"))
		if out, err := cmd.CombinedOutput(); err != nil {
			r.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	run("sh", "-c", "git archive HEAD~1 | tar -x")
	run("sh", "-c", "cp "+filepath.Join(r.Root, "internal/crd/gateway-api")+"/* internal/crd/gateway-api/") // made by the build
	run("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "bin/", "./cmd/aether-controller", "./cmd/aether-proxy")
	config := r.Config
	config.Root, config.Programs = dir, filepath.Join(dir, "bin")
	rel, err := release.New(config)
	if err != nil {
		r.Fatal(err)
	}
	return rel
}

func TestPodsWhatUninstallingLeavesIsTakenUpAgain(t *testing.T) {
	r, address := serving(t)
	restoreAfter(r)
	const authority = "coxswain-discovery-ca"
	was := r.System("get", "secret", authority, "--output=jsonpath={.data}")
	r.System("patch", "meshconfig", "default", "--type=merge", "--patch", `{"spec": {"proxy": {"accessLogSuccessSampleRate": 7}}}`)
	r.Cleanup(func() {
		r.System("patch", "meshconfig", "default", "--type=json", "--patch", `[{"op": "replace", "path": "/spec", "value": {}}]`)
	})

	uninstall(r)
	r.Kubectl("get", "gateway/web", "httproute/shop")
	r.Kubectl("get", "customresourcedefinition", "gateways.gateway.networking.k8s.io", "meshconfigs.config.aether.io")
	// Uninstalling the definitions leaves them, too, and they are taken up again.
	helmDo(r, "uninstall", release.Definitions)
	r.Kubectl("get", "customresourcedefinition", "meshconfigs.config.aether.io", "gatewayparameters.config.aether.io")

	if err := r.Up(r.Context()); err != nil {
		t.Fatal(err)
	}
	settled(r)
	if now := r.System("get", "secret", authority, "--output=jsonpath={.data}"); now != was {
		t.Error("the certificate authority is another")
	}
	if now := r.System("get", "meshconfig", "default", "--output=jsonpath={.spec.proxy.accessLogSuccessSampleRate}"); now != "7" {
		t.Errorf("the default MeshConfig has %q, want 7", now)
	}
	if now := r.Address("web"); now != address {
		t.Errorf("the Gateway is at %s, and was at %s", now, address)
	}
	traffic.Start(t, address, host).Stop(t)
}

// What Helm only renders works as well, and an upgrade by Helm does not touch the MeshConfig.
func TestPodsRenderedAndApplied(t *testing.T) {
	r, address := serving(t)
	restoreAfter(r)
	images, err := r.Images(r.Context())
	if err != nil {
		t.Fatal(err)
	}
	manifest := helmDo(r, append([]string{"template", release.Name, chart(r)}, images...)...)
	uninstall(r)
	if _, err := r.Cluster.Kubectl(r.Context(), manifest, "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	settled(r)
	traffic.Start(t, address, host).Stop(t)
	// Helm takes over what is there only if it is told to.
	if out, err := r.Release.Helm(r.Context(), append([]string{"install", release.Name, chart(r)}, images...)...); err == nil || !strings.Contains(err.Error(), "exists and cannot be imported") {
		t.Errorf("Helm installed over what it did not make: %v\n%s", err, out)
	}
	helmDo(r, append([]string{"install", release.Name, chart(r), "--take-ownership", "--force-conflicts", "--wait", "--timeout", release.Patience.String()}, images...)...)
	// kubectl stays an owner of every field, and would be in the way of what changes any.
	uninstall(r)
}
