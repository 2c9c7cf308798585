//go:build cluster

// Package dedicated_test has Gateways with proxies of their own on a real cluster: they come and
// go under traffic, and nobody else gets what is theirs.
package dedicated_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aether.io/aether/test/cluster/release"
	"aether.io/aether/test/pods"
	"aether.io/aether/test/traffic"
)

const (
	host = "shop.example.com"
	// overlap is for how long both addresses are published; a fifth of it, the old one stays
	// after that. It must be long enough to be seen on a computer that has other things to do.
	overlap = "40s"
)

const gateway = `
apiVersion: config.aether.io/v1
kind: GatewayParameters
metadata: {name: web}
spec: {mode: %s, drainSeconds: 5, dedicated: {replicas: 2}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: coxswain
  infrastructure: {parametersRef: {group: config.aether.io, kind: GatewayParameters, name: web}}
  listeners: [{name: http, protocol: HTTP, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec: {parentRefs: [{name: web}], hostnames: [shop.example.com], rules: [{backendRefs: [{name: shop, port: 80}]}]}
`

// mode applies the Gateway with proxies of that mode.
func mode(r *pods.Rig, mode string) {
	r.Helper()
	r.Apply(fmt.Sprintf(gateway, mode))
}

// addresses waits until the Gateway publishes as many, and returns them.
func addresses(r *pods.Rig, n int) []string {
	r.Helper()
	var list []string
	r.Eventually(func(context.Context) string {
		list = strings.Fields(r.Kubectl("get", "gateway", "web", "--output=jsonpath={.status.addresses[*].value}"))
		if len(list) == n {
			return ""
		}
		return fmt.Sprintf("the Gateway publishes %v, want %d addresses\n%s", list, n, r.Kubectl("get", "gateway,deployment,pods,service,endpointslices", "--output=wide"))
	})
	for i := range list {
		list[i] = net.JoinHostPort(list[i], "80")
	}
	return list
}

// gone waits until there are no such objects of the Gateway's in the test's namespace.
func gone(r *pods.Rig, kinds string) {
	r.Helper()
	r.Eventually(func(context.Context) string {
		return r.Kubectl("get", kinds, "--selector=gateway.networking.k8s.io/gateway-name=web", "--output=name")
	})
}

// hasten has the controller think a change of proxies over sooner, until the test ends.
func hasten(r *pods.Rig) {
	r.Helper()
	values := filepath.Join(r.TempDir(), "values.yaml")
	if err := os.WriteFile(values, []byte("controller: {proxyOverlap: "+overlap+"}\n"), 0o600); err != nil {
		r.Fatal(err)
	}
	config := r.Config
	config.Values = append(slices.Clone(config.Values), values)
	hasty, err := release.New(config)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := r.Up(context.WithoutCancel(r.Context())); err != nil {
			r.Error(err)
		}
	})
	if err := hasty.Up(r.Context()); err != nil {
		r.Fatal(err)
	}
	r.Settled("aether-controller", "controller")
}

// steady waits until an address takes one connection after the other: a proxy that was not
// connected to the controller when the Gateway came does not count for its status, and
// may have it a moment later.
func steady(r *pods.Rig, address string) string {
	r.Helper()
	const connections = 40
	r.Eventually(func(ctx context.Context) string {
		for i := range connections {
			conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", address)
			if err != nil {
				return fmt.Sprintf("connection %d of %d: %v", i+1, connections, err)
			}
			_ = conn.Close()
		}
		return ""
	})
	return address
}

func TestPodsAChangeOfProxiesLosesNothing(t *testing.T) {
	r := pods.New(t)
	hasten(r)
	r.Backend("shop")
	mode(r, "Shared")
	shared := steady(r, r.Address("web"))
	old := traffic.Start(t, shared, host)

	mode(r, "Dedicated")
	both := addresses(r, 2)
	if both[1] != shared || both[0] == shared {
		t.Fatalf("published are %v, want a new one and %s", both, shared)
	}
	now := traffic.Start(t, steady(r, both[0]), host)
	r.System("delete", "pods", "--selector=app.kubernetes.io/component=controller", "--wait=false") // another one goes on
	if left := addresses(r, 1); left[0] != both[0] {
		t.Fatalf("published is %v, want %s", left, both[0])
	}
	old.Stop(t)
	for _, kind := range []string{"serviceaccount", "deployment", "poddisruptionbudget", "service"} {
		r.Kubectl("get", kind, "web-coxswain")
	}

	mode(r, "Shared")
	back := addresses(r, 2)
	if back[1] != both[0] {
		t.Fatalf("published are %v, want a new one and %s", back, both[0])
	}
	again := traffic.Start(t, steady(r, back[0]), host)
	if left := addresses(r, 1); left[0] != back[0] {
		t.Fatalf("published is %v, want %s", left, back[0])
	}
	now.Stop(t)
	gone(r, "deployments,services,serviceaccounts,poddisruptionbudgets")
	r.Eventually(func(context.Context) string {
		return r.Kubectl("get", "configmap", "--field-selector=metadata.name=coxswain-discovery-trust", "--output=name")
	})
	again.Stop(t)
}

// Whoever can make a pod in a Gateway's namespace can have it run under the account of the
// Gateway's proxies. It gets no identity for that.
func TestPodsAnotherPodUnderTheAccountOfAGatewayGetsNothing(t *testing.T) {
	r := pods.New(t)
	r.Backend("shop")
	mode(r, "Dedicated")
	flow := traffic.Start(t, steady(r, r.Address("web")), host)

	var template map[string]any
	if err := json.Unmarshal([]byte(r.Kubectl("get", "deployment", "web-coxswain", "--output=jsonpath={.spec.template}")), &template); err != nil {
		t.Fatal(err)
	}
	impostor, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "impostor"}, "spec": template["spec"],
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Apply(string(impostor))
	r.Eventually(func(context.Context) string {
		said := r.Kubectl("get", "pods", "impostor", "--output=jsonpath={.status.initContainerStatuses[0].started}")
		if said != "true" {
			return "its proxy has not started: " + said
		}
		if log := r.Kubectl("logs", "impostor", "--container=aether-proxy"); !strings.Contains(log, "may not have an SVID") {
			return "it was not refused yet:\n" + log
		}
		return ""
	})
	if ready := r.Kubectl("get", "pods", "impostor", `--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}`); ready != "False" {
		t.Errorf("the impostor's Ready is %q", ready)
	}

	// The Gateway goes with all that was made for it; its proxies end.
	flow.Stop(t)
	r.Kubectl("delete", "gateway", "web", "--wait=false")
	gone(r, "deployments,services,serviceaccounts,poddisruptionbudgets,pods")
}
