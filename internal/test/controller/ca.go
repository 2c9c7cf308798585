package controller

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"testing"
	"time"

	"aether.io/aether/internal/test/keypair"
)

// CA signs whatever a test asks for.
type CA struct {
	Root *x509.Certificate
	pair *keypair.Pair
}

// NewCA makes a root of its own.
func NewCA(t testing.TB) *CA {
	t.Helper()
	pair := keypair.Authority(t, "test CA", nil)
	return &CA{Root: pair.Cert, pair: pair}
}

// Leaf signs a leaf with one URI SAN.
func (ca *CA) Leaf(t testing.TB, id string, pub crypto.PublicKey, notAfter time.Time) *x509.Certificate {
	t.Helper()
	return ca.pair.Sign(t, leaf(t, id, notAfter), pub)
}

func leaf(t testing.TB, id string, notAfter time.Time) *x509.Certificate {
	t.Helper()
	uri, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{
		NotBefore: time.Now().Add(-2 * time.Minute), NotAfter: notAfter, BasicConstraintsValid: true, URIs: []*url.URL{uri},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

// Server returns a certificate for a listener.
func (ca *CA) Server(t testing.TB, id string) *tls.Certificate {
	t.Helper()
	return keypair.New(t, leaf(t, id, time.Now().Add(time.Hour)), ca.pair).TLS()
}

// WriteBundle writes roots as a mounted bundle has them, replacing the file at once.
func WriteBundle(t testing.TB, path string, roots ...*x509.Certificate) {
	t.Helper()
	var text bytes.Buffer
	for _, r := range roots {
		if err := pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: r.Raw}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path+".new", text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// Certificate is the CA itself, as a listener should never present it.
func (ca *CA) Certificate() *tls.Certificate { return ca.pair.TLS() }
