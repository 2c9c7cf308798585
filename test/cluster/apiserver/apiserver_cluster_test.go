//go:build cluster

package apiserver_test

import (
	"strings"
	"testing"

	"aether.io/aether/test/cluster/apiserver"
	"aether.io/aether/test/cluster/build"
)

const gateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: two-with-one-name, namespace: default}
spec:
  gatewayClassName: coxswain
  listeners:
    - {name: web, port: 80, protocol: HTTP}
    - {name: web, port: 81, protocol: HTTP}
`

const restricted = `
apiVersion: v1
kind: Namespace
metadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: restricted}
---
apiVersion: v1
kind: Pod
metadata: {name: privileged, namespace: restricted}
spec: {containers: [{name: c, image: i, securityContext: {privileged: true}}]}
`

func TestTheRealServerHoldsObjectsAndDeniesBadOnes(t *testing.T) {
	s := apiserver.Start(t)
	kubectl := func(input string, args ...string) (string, error) {
		t.Helper()
		return s.Kubectl(t.Context(), input, args...)
	}
	root, err := build.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl("", "version"); err != nil || !strings.Contains(out, "Server Version: v1.37.2") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, dir := range []string{"/internal/crd/gateway-api", "/charts/crds/templates"} {
		if _, err := kubectl("", "apply", "--server-side", "-f", root+dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinition", "--all"); err != nil {
		t.Fatal(err)
	}
	if _, err := kubectl(gateway, "create", "-f", "-"); err == nil || !strings.Contains(err.Error(), "Listener name must be unique within the Gateway") {
		t.Errorf("a Gateway that breaks a rule: %v", err)
	}
	if _, err := kubectl(strings.Replace(gateway, "name: web, port: 81", "name: other, port: 81", 1), "create", "-f", "-"); err != nil {
		t.Error(err)
	}
	if _, err := kubectl(restricted, "create", "-f", "-"); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Errorf("a privileged pod in a restricted namespace: %v", err)
	}
	if out, err := kubectl("", "auth", "can-i", "create", "pods", "--as", "nobody"); err == nil {
		t.Errorf("who has no role may create pods: %s", out)
	}

	// What was written outlives both programs.
	for _, program := range []string{apiserver.APIServer, apiserver.Etcd} {
		if err := s.Stop(program); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.StartAll(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := kubectl("", "get", "gateways", "-o", "name"); err != nil || strings.TrimSpace(out) != "gateway.gateway.networking.k8s.io/two-with-one-name" {
		t.Errorf("%v: %s", err, out)
	}
}
