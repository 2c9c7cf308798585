package controller

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"testing"
	"time"
)

// CA signs whatever a test asks for.
type CA struct {
	Root *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes a root of its own.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	return &CA{Root: sign(t, template, template, key.Public(), key), key: key}
}

// Leaf signs a leaf with one URI SAN.
func (ca *CA) Leaf(t testing.TB, id string, pub crypto.PublicKey, notAfter time.Time) *x509.Certificate {
	t.Helper()
	uri, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, &x509.Certificate{
		SerialNumber: serial(t), NotBefore: time.Now().Add(-2 * time.Minute), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, URIs: []*url.URL{uri},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca.Root, pub, ca.key)
}

// Server returns a certificate for a listener.
func (ca *CA) Server(t testing.TB, id string) *tls.Certificate {
	t.Helper()
	key := newKey(t)
	leaf := ca.Leaf(t, id, key.Public(), time.Now().Add(time.Hour))
	return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
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

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sign(t testing.TB, template, parent *x509.Certificate, pub crypto.PublicKey, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Certificate is the CA itself, as a listener should never present it.
func (ca *CA) Certificate() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{ca.Root.Raw}, PrivateKey: ca.key, Leaf: ca.Root}
}
