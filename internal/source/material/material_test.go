package material_test

import (
	"crypto/x509"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/material"
	"aether.io/aether/internal/test/keypair"
)

func TestOnlyWhatCanBeUsedReplacesWhatIsInUse(t *testing.T) {
	one, other := newPair(t), newPair(t)
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "a"}
	secret := func(kind corev1.SecretType, data map[string]string) object.Object {
		s := &corev1.Secret{ObjectMeta: meta, Type: kind, Data: map[string][]byte{}}
		for k, v := range data {
			s.Data[k] = []byte(v)
		}
		return s
	}
	config := func(data map[string]string) object.Object { return &corev1.ConfigMap{ObjectMeta: meta, Data: data} }
	for name, c := range map[string]struct {
		object object.Object
		want   string // a part of the problem; empty: there is none
	}{
		"a pair":                            {secret(corev1.SecretTypeTLS, map[string]string{"tls.crt": one.Cert, "tls.key": one.Key}), ""},
		"a pair without authorities":        {secret(corev1.SecretTypeTLS, map[string]string{"tls.crt": one.Cert, "tls.key": one.Key, "ca.crt": ""}), ""},
		"a pair with authorities of no use": {secret(corev1.SecretTypeTLS, map[string]string{"tls.crt": one.Cert, "tls.key": one.Key, "ca.crt": "x"}), ""},
		"another one's key":                 {secret(corev1.SecretTypeTLS, map[string]string{"tls.crt": one.Cert, "tls.key": other.Key}), "does not match"},
		"a certificate that is cut off":     {secret(corev1.SecretTypeTLS, map[string]string{"tls.crt": one.Cert[:100], "tls.key": one.Key}), "certificate"},
		"nothing at all":                    {secret(corev1.SecretTypeTLS, nil), "certificate"},
		"a pair that is Opaque":             {secret(corev1.SecretTypeOpaque, map[string]string{"tls.crt": "x", "tls.key": "y"}), ""},
		"authorities in a Secret":           {secret(corev1.SecretTypeOpaque, map[string]string{"ca.crt": one.Cert}), ""},
		"a key among authorities":           {secret(corev1.SecretTypeOpaque, map[string]string{"ca.crt": one.Cert + one.Key}), "PRIVATE KEY"},
		"authorities in a ConfigMap":        {config(map[string]string{"ca.crt": one.Cert + other.Cert}), ""},
		"authorities that are no PEM":       {config(map[string]string{"ca.crt": "x"}), "no PEM certificate"},
		"an entry ca.crt that is empty":     {config(map[string]string{"ca.crt": ""}), "no PEM certificate"},
		"a ConfigMap of something else":     {config(map[string]string{"settings": "x"}), ""},
		"an object of another kind":         {&corev1.Service{ObjectMeta: meta}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := material.Problem(c.object)
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if strings.Contains(got, strings.Split(one.Key, "\n")[1]) {
				t.Errorf("it tells the key: %q", got)
			}
		})
	}
}

// pair is a certificate with its key, both PEM.
type pair struct{ Cert, Key string }

func newPair(t *testing.T) pair {
	t.Helper()
	p := keypair.New(t, &x509.Certificate{}, nil)
	return pair{Cert: string(p.CertPEM()), Key: string(p.KeyPEM(t))}
}
