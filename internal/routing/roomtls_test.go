package routing

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

// townAuthorities is certificates, each another one, of some 350 bytes of PEM.
func townAuthorities(t *testing.T, n int) []byte {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for i := range n {
		template := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 1))}
		der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		if err != nil {
			t.Fatal(err)
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func townBundle(pem []byte) object.Change {
	return change(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ca"}, Data: map[string]string{"ca.crt": string(pem)}}, object.ConfigMap)
}

// bundled is a policy of Service s<i> with that bundle.
func bundled(i int) *gatewayv1.BackendTLSPolicy {
	p := townPolicy(i)
	p.Name = fmt.Sprintf("tls%d", i)
	p.Spec.Validation.WellKnownCACertificates = nil
	p.Spec.Validation.CACertificateRefs = []gatewayv1.LocalObjectReference{{Kind: "ConfigMap", Name: "ca"}}
	return p
}

func TestAuthoritiesOfBackendsNeedRoomForEachCluster(t *testing.T) {
	large, small := townBundle(townAuthorities(t, 180)), townBundle(townAuthorities(t, 1))
	c := testConfig()
	c.SharedMemory = 380_000 // for three routes of some 55 kB with clusters of their own, and two bundles of some 100 kB
	r := newReplicaOf(t, c)
	r.apply(append(town(3), large)...)
	requireLeftOut(t, r)
	for i := range 3 {
		r.apply(change(bundled(i), object.BackendTLSPolicy))
	}
	requireLeftOut(t, r, "shop/r2")

	shared := townRoute(2, 2)
	shared.Spec.Rules[0].BackendRefs[0].Name = "s1" // whose authorities are there already
	r.apply(change(shared, object.HTTPRoute))
	requireLeftOut(t, r)
	r.apply(change(townRoute(2, 3), object.HTTPRoute))
	requireLeftOut(t, r, "shop/r2")

	r.apply(small)
	requireLeftOut(t, r)
	r.apply(large)
	requireLeftOut(t, r, "shop/r2")
	r.apply(object.Change{Key: change(bundled(0), object.BackendTLSPolicy).Key})
	requireLeftOut(t, r)

	r.apply(change(townPolicy(0), object.BackendTLSPolicy)) // of the system's authorities, which are more than there is
	requireLeftOut(t, r, "shop/r0")                         // alone, so that it is in nobody's way
}

func TestACertificateThatIsShownNeedsRoomForEachCluster(t *testing.T) {
	c := testConfig()
	c.SharedMemory = 380_000
	r := newReplicaOf(t, c)
	r.apply(append(town(3), townBundle(townAuthorities(t, 1)))...)
	for i := range 3 {
		r.apply(change(bundled(i), object.BackendTLSPolicy))
	}
	shown := townSecret(0)
	shown.Name = "shown"
	gw := townGateway()
	gw.Spec.TLS = &gatewayv1.GatewayTLSConfig{Backend: &gatewayv1.GatewayBackendTLS{ClientCertificateRef: &gatewayv1.SecretObjectReference{Name: "shown"}}}
	r.apply(change(shown, object.Secret), change(gw, object.Gateway))
	requireLeftOut(t, r)
	long := shown.DeepCopy()
	long.Data[corev1.TLSCertKey] = append(long.Data[corev1.TLSCertKey], townAuthorities(t, 110)...)
	r.apply(change(long, object.Secret))
	requireLeftOut(t, r, "shop/r2")
	r.apply(change(shown, object.Secret))
	requireLeftOut(t, r)
}
