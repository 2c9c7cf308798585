//go:build cluster

package kubernetes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/test/collector"
)

// The API server calls the webhook as the chart's configuration says, with the certificate that
// Helm makes: wrong MeshConfigs are refused there, and not by the handler alone.
func TestTheAPIServerRefusesWrongMeshConfigs(t *testing.T) {
	a := newAdmission(t)
	config, secret := a.render()
	if secret == nil {
		t.Fatal("the chart renders no Secret")
	}
	dir := t.TempDir()
	put := func(cert, key []byte) {
		t.Helper()
		for name, text := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(secret.Data["tls.crt"], secret.Data["tls.key"])
	a.apply(config)
	if err := a.refuses(t.Context()); !errors.Is(err, errPassed) {
		t.Fatalf("before there is a webhook: %v", err)
	}
	controller := a.startController("--webhook-bind-address="+a.at(a.port), "--webhook-certificate-dir="+dir)
	a.eventually("a wrong MeshConfig is refused", func(ctx context.Context) bool { return a.refuses(ctx) == nil })

	t.Run("warnings arrive", func(t *testing.T) {
		a := a.in(t)
		a.warnings.take()
		if err := a.write(t.Context(), `{"proxy": {"tracingEnable": true, "traceSampleRate": 1}}`); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"spec.proxy.tracingEnable is not known here and has no effect; is it spec.proxy.tracingEnabled?",
			"spec.proxy.traceSampleRate has no effect: tracing is off, by system config",
		}
		if got := a.warnings.take(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})

	// What would make the API server not call it is found: the check that all of this rests on
	// is not one that always passes.
	other, _, _, _ := a.material()
	a.kubectl(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: another, namespace: %s}, spec: {type: ExternalName, externalName: localhost}}", namespace), "create", "-f", "-")
	for name, change := range map[string]func(*admissionregistrationv1.ValidatingWebhook){
		"another scope": func(h *admissionregistrationv1.ValidatingWebhook) {
			scope := admissionregistrationv1.ClusterScope
			h.Rules[0].Scope = &scope
		},
		"other operations": func(h *admissionregistrationv1.ValidatingWebhook) {
			h.Rules[0].Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Update}
		},
		"another group": func(h *admissionregistrationv1.ValidatingWebhook) { h.Rules[0].APIGroups = []string{"aether.io"} },
		"another resource": func(h *admissionregistrationv1.ValidatingWebhook) {
			h.Rules[0].Resources = []string{"meshconfigs/status"}
		},
		"another path": func(h *admissionregistrationv1.ValidatingWebhook) {
			path := "/mutate"
			h.ClientConfig.Service.Path = &path
		},
		"another authority":             func(h *admissionregistrationv1.ValidatingWebhook) { h.ClientConfig.CABundle = other },
		"a name not in the certificate": func(h *admissionregistrationv1.ValidatingWebhook) { h.ClientConfig.Service.Name = "another" },
		"a condition": func(h *admissionregistrationv1.ValidatingWebhook) {
			h.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "never", Expression: "false"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := a.in(t)
			bad := config.DeepCopy()
			change(&bad.Webhooks[0])
			a.apply(bad)
			a.eventually(name+" is noticed", func(ctx context.Context) bool { return errors.Is(a.refuses(ctx), errPassed) })
			a.apply(config)
			a.eventually("after "+name, func(ctx context.Context) bool { return a.refuses(ctx) == nil })
		})
	}

	t.Run("another certificate under writes", func(t *testing.T) {
		a := a.in(t)
		ca, _, cert, key := a.material()
		both := config.DeepCopy()
		both.Webhooks[0].ClientConfig.CABundle = slices.Concat(secret.Data["ca.crt"], ca)
		a.underWrites(func() {
			before := a.serves(t.Context(), a.port)
			a.apply(both)
			put(cert, key)
			a.eventually("it is served", func(ctx context.Context) bool {
				now := a.serves(ctx, a.port)
				return now != nil && !now.Equal(before)
			})
		})
	})

	// While it is down writes go on, and what the definition knows to be wrong is refused still.
	end(controller)
	a.eventually("without it the API server goes on", func(ctx context.Context) bool { return errors.Is(a.refuses(ctx), errPassed) })
	if err := a.write(t.Context(), `{"proxy": {"traceSampleRate": 7}}`); err == nil || !strings.Contains(err.Error(), "spec.proxy.traceSampleRate") {
		t.Errorf("out of range, without the webhook: %v", err)
	}
}

// A certificate that the controllers make themselves: the leader keeps caBundle right, and that
// alone, whatever becomes of the CA and of the configuration.
func TestTheControllerKeepsWhomTheAPIServerTrusts(t *testing.T) {
	a := newAdmission(t)
	config, secret := a.render("--set", "webhook.certificate=self")
	if secret != nil || len(config.Webhooks[0].ClientConfig.CABundle) > 0 {
		t.Fatal("the chart makes a certificate")
	}
	one, two := a.rig.port(), a.rig.port()
	a.spread(one, two)
	exports := collector.Start(t, collector.Config{})
	for _, port := range []int{one, two} {
		args := append(exporting(exports), "--webhook-bind-address="+a.at(port), "--webhook-server-name="+webhookHost, "--webhook-configuration="+hookConfig)
		a.startReplica("controller-"+strconv.Itoa(port), args...)
	}
	a.apply(config)
	a.eventually("a wrong MeshConfig is refused", func(ctx context.Context) bool { return a.refuses(ctx) == nil })
	for _, f := range a.config().ManagedFields {
		if f.Manager == "aether-controller" && strings.ReplaceAll(f.FieldsV1.GetRawString(), " ", "") != `{"f:webhooks":{"k:{\"name\":\"meshconfig.config.aether.io\"}":{".":{},"f:clientConfig":{"f:caBundle":{}},"f:name":{}}}}` {
			t.Errorf("the controller has made its own %s", f.FieldsV1.GetRawString())
		}
	}
	right := a.config().Webhooks[0].ClientConfig.CABundle

	t.Run("each review is a span", func(t *testing.T) { a.in(t).reviewsAreSpans(exports, one) })
	t.Run("taken away", func(t *testing.T) {
		a := a.in(t)
		a.kubectl("", "patch", "validatingwebhookconfiguration", hookConfig, "--type=json", "--patch", `[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`)
		a.eventually("it is put back", func(context.Context) bool { return bytes.Equal(a.config().Webhooks[0].ClientConfig.CABundle, right) })
	})
	t.Run("deleted and made anew", func(t *testing.T) {
		a := a.in(t)
		a.kubectl("", "delete", "validatingwebhookconfiguration", hookConfig)
		a.apply(config)
		a.eventually("a wrong MeshConfig is refused", func(ctx context.Context) bool { return a.refuses(ctx) == nil })
	})
	t.Run("applied again", func(t *testing.T) {
		a := a.in(t)
		a.underWrites(func() { a.apply(config) })
		if !bytes.Equal(a.config().Webhooks[0].ClientConfig.CABundle, right) {
			t.Error("who renders no caBundle takes it away")
		}
	})
	t.Run("another CA under writes", func(t *testing.T) {
		a := a.in(t)
		ca, key, _, _ := a.material()
		a.underWrites(func() {
			before := []any{a.serves(t.Context(), one).Issuer.String(), a.serves(t.Context(), two).Issuer.String()}
			secrets := a.core.Secrets(namespace)
			if err := secrets.Delete(t.Context(), "coxswain-discovery-ca", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := secrets.Create(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "coxswain-discovery-ca"}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": ca, "tls.key": key},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			a.eventually("the new root is trusted", func(context.Context) bool {
				return bytes.Contains(a.config().Webhooks[0].ClientConfig.CABundle, bytes.TrimSpace(ca))
			})
			for i, port := range []int{one, two} {
				a.eventually("its certificates are served", func(ctx context.Context) bool {
					now := a.serves(ctx, port)
					return now != nil && now.Issuer.String() != before[i]
				})
			}
		})
	})
	t.Run("not ours to keep", func(t *testing.T) {
		a := a.in(t)
		made := config.DeepCopy()
		made.Annotations = nil
		made.Webhooks[0].ClientConfig.CABundle, _, _, _ = a.material()
		text := a.config()
		text.Annotations, text.Webhooks[0].ClientConfig.CABundle = nil, made.Webhooks[0].ClientConfig.CABundle
		if _, err := a.hooks.Update(t.Context(), text, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		a.eventually("nobody can call it", func(ctx context.Context) bool { return errors.Is(a.refuses(ctx), errPassed) })
		again := a.config()
		if !bytes.Equal(again.Webhooks[0].ClientConfig.CABundle, made.Webhooks[0].ClientConfig.CABundle) {
			t.Error("what Helm made is written over")
		}
	})
}
