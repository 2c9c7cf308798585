//go:build cluster

package chart_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"aether.io/aether/test/cluster/release"
	"aether.io/aether/test/pods"
)

// A violation under the name that protobuf gives a field beside ours: the definition does not
// know it, so that only the webhook refuses it.
const (
	wrongSpec = "{proxy: {trace_sample_rate: 7, access_log_success_sample_rate: 101}}"
	refusal   = "* spec.proxy.accessLogSuccessSampleRate: must be less than or equal to 100, got 101\n* spec.proxy.traceSampleRate: must be"
)

func meshConfig(namespace, spec string) string {
	return fmt.Sprintf("apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: %s}\nspec: %s\n", namespace, spec)
}

// refuses waits until a wrong MeshConfig is refused by the webhook.
func refuses(r *pods.Rig) {
	r.Helper()
	r.Eventually(func(ctx context.Context) string {
		out, err := r.Cluster.Kubectl(ctx, meshConfig(r.Namespace, wrongSpec), "apply", "--dry-run=server", "-f", "-")
		if err != nil && strings.Contains(err.Error(), refusal) {
			return ""
		}
		return fmt.Sprintf("a wrong MeshConfig is not refused: %s, %v", out, err)
	})
}

// The chart makes the webhook's certificate once: an upgrade keeps it, and the API server that
// trusts it.
func TestPodsAWrongMeshConfigIsRefused(t *testing.T) {
	r := pods.New(t)
	settled(r)
	refuses(r)
	out, err := r.Cluster.Kubectl(t.Context(), meshConfig(r.Namespace, "{proxy: {tracingEnable: true}}"), "apply", "--dry-run=server", "-f", "-")
	if err != nil {
		t.Errorf("what is unknown is refused: %v %s", err, out)
	}
	made := func() string {
		return r.System("get", "secret", "aether-controller-webhook", "--output=jsonpath={.data}") +
			r.Kubectl("get", "validatingwebhookconfiguration", "aether-controller-webhook.aether-system", "--output=jsonpath={.webhooks[*].clientConfig.caBundle}")
	}
	before := made()
	if err := r.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	settled(r)
	if made() != before {
		t.Error("an upgrade made another certificate")
	}
	refuses(r)
	if may(r, controllerAccount, "", "patch", "validatingwebhookconfigurations.admissionregistration.k8s.io/aether-controller-webhook.aether-system") {
		t.Error("the controller may change the configuration that Helm made")
	}
}

// With a certificate that the controller makes there is no Secret, and it may write caBundle of
// its own configuration and of no other. Back to Helm's, Helm's it is.
func TestPodsTheControllerMakesTheWebhooksCertificate(t *testing.T) {
	r := pods.New(t)
	restoreAfter(r)
	const config = "validatingwebhookconfigurations.admissionregistration.k8s.io/aether-controller-webhook.aether-system"
	if err := r.Install(t.Context(), release.Name, chart(r), "--set", "webhook.certificate=self"); err != nil {
		t.Fatal(err)
	}
	settled(r)
	refuses(r)
	if secret := r.System("get", "secret", "aether-controller-webhook", "--ignore-not-found", "--output=name"); secret != "" {
		t.Errorf("there is %s", secret)
	}
	for _, c := range []struct {
		verb, resource string
		want           bool
	}{
		{"patch", config, true},
		{"update", config, false},
		{"delete", config, false},
		{"patch", "validatingwebhookconfigurations.admissionregistration.k8s.io/another", false},
		{"create", "validatingwebhookconfigurations.admissionregistration.k8s.io", false},
		{"list", "validatingwebhookconfigurations.admissionregistration.k8s.io", false},
	} {
		if got := may(r, controllerAccount, "", c.verb, c.resource); got != c.want {
			t.Errorf("the controller may %s %s: %v, want %v", c.verb, c.resource, got, c.want)
		}
	}
	if err := r.Install(t.Context(), release.Name, chart(r), "--force-conflicts"); err != nil {
		t.Fatal(err)
	}
	settled(r)
	refuses(r)
	if may(r, controllerAccount, "", "patch", config) {
		t.Error("the controller may still change the configuration, which Helm makes")
	}
}
