package routing

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// said is a condition of a listener, of a Gateway or of a policy.
func said(s Status, listener, kind string) string {
	var list []metav1.Condition
	switch v := s.Value.(type) {
	case *gatewayv1.GatewayStatus:
		list = v.Conditions
		for _, l := range v.Listeners {
			if string(l.Name) == listener {
				list = l.Conditions
			}
		}
	case *gatewayv1.PolicyStatus:
		list = v.Ancestors[0].Conditions
	}
	for _, c := range list {
		if c.Type == kind {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "nothing"
}

// A source does not let a Secret or a ConfigMap into effect that nobody could use. What
// was good stays, and those that refer to it say so.
func TestWhatIsRefusedIsToldByWhatRefersToIt(t *testing.T) {
	infra := func(kind object.Kind, name string) object.Key {
		return object.Key{Kind: kind, Namespace: "infra", Name: name}
	}
	for name, c := range map[string]struct {
		scenario     string
		key, by      object.Key
		listener     string
		resource     string
		reason, said string
	}{
		"a listener's certificate": {
			"certificates", infra(object.Secret, "cert"), infra(object.Gateway, "web"), "good", "infra/cert",
			"InvalidCertificateRef", "certificateRef: Secret infra/cert",
		},
		"a listener's authorities of clients": {
			"client-validation", infra(object.ConfigMap, "ca"), infra(object.Gateway, "web"), "default", "infra/web/443/clients",
			"InvalidCACertificateRef", "caCertificateRef: ConfigMap infra/ca",
		},
		"what a Gateway shows to backends": {
			"client-certificate", infra(object.Secret, "client"), infra(object.Gateway, "known"), "", "infra/client",
			"InvalidClientCertificateRef", "clientCertificateRef: Secret infra/client",
		},
		"a policy's authorities": {
			"backend-tls",
			object.Key{Kind: object.ConfigMap, Namespace: "shop", Name: "ca"},
			object.Key{Kind: object.BackendTLSPolicy, Namespace: "shop", Name: "parts-of-all"},
			"", "shop/parts-of-all/backend-ca",
			"InvalidCACertificateRef", "caCertificateRef: ConfigMap shop/ca",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t)
			var own object.Change
			for _, ch := range readManifests(t, "testdata/"+c.scenario+".in.yaml") {
				if r.apply(ch); ch.Key == c.key {
					own = ch
				}
			}
			if own.Object == nil {
				t.Fatalf("there is no %s", c.key)
			}
			secret := resource.Name{TypeURL: envoy.SecretType, Name: c.resource}
			expect := func(when, want string, there bool) {
				t.Helper()
				if got := said(r.statuses[c.by], c.listener, "ResolvedRefs"); got != want {
					t.Errorf("%s: ResolvedRefs is\n%s, want\n%s", when, got, want)
				}
				if got := r.worlds[scope.SharedPool()][secret] != nil; got != there {
					t.Errorf("%s: %s is there: %v", when, secret, got)
				}
			}
			expect("at first", "True ResolvedRefs: every reference is resolved", true)
			before := r.state()
			refused := fmt.Sprintf("False %s: %s: is refused: data: too bad", c.reason, c.said)
			r.apply(object.Change{Key: c.key, Object: own.Object, Refused: "data: too bad"})
			expect("refused", refused+"; the version before it is in effect", true)
			// A policy has no authorities now that could be believed, and says that, too.
			if want := "False NoValidCACertificate: " + c.said + ": is refused: data: too bad; the version before it is in effect"; c.by.Kind == object.BackendTLSPolicy {
				if got := said(r.statuses[c.by], "", "Accepted"); got != want {
					t.Errorf("Accepted is\n%s, want\n%s", got, want)
				}
			}
			r.apply(own)
			requireEqual(t, before, r.state())
			r.apply(object.Change{Key: c.key})
			r.apply(object.Change{Key: c.key, Refused: "data: too bad"})
			expect("refused from the first", refused, false)
			r.apply(own)
			requireEqual(t, before, r.state())
		})
	}
}
