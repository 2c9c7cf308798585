// Package keypair makes certificates for tests, each with a key of its own: whatever a test
// wants, signed by itself or by another.
package keypair

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math"
	"math/big"
	"testing"
	"time"
)

// Pair is a certificate and its key.
type Pair struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// New makes a pair as the template has it, signed by another, or by itself if that is nil. What
// the template leaves out of its serial number and of its times is anything, and from an hour ago
// to in a day.
func New(t testing.TB, template *x509.Certificate, by *Pair) *Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &Pair{Key: key}
	if by == nil {
		by = &Pair{Cert: template, Key: key}
	}
	p.Cert = by.Sign(t, template, key.Public())
	return p
}

// Authority makes a pair that may sign others, and is signed as New has it.
func Authority(t testing.TB, name string, by *Pair) *Pair {
	t.Helper()
	return New(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, by)
}

// Sign makes a certificate, as New does, of somebody else's key.
func (p *Pair) Sign(t testing.TB, template *x509.Certificate, of crypto.PublicKey) *x509.Certificate {
	t.Helper()
	whole := *template
	if whole.SerialNumber == nil {
		n, err := rand.Int(rand.Reader, big.NewInt(math.MaxInt64))
		if err != nil {
			t.Fatal(err)
		}
		whole.SerialNumber = n
	}
	if whole.NotBefore.IsZero() {
		whole.NotBefore = time.Now().Add(-time.Hour)
	}
	if whole.NotAfter.IsZero() {
		whole.NotAfter = time.Now().Add(24 * time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, &whole, p.Cert, of, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// TLS is the pair as one shows it who has it.
func (p *Pair) TLS() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
}

// Pool is what those trust who trust this one.
func (p *Pair) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.Cert)
	return pool
}

// CertPEM is the certificate.
func (p *Pair) CertPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Cert.Raw})
}

// KeyDER is the key, by PKCS #8.
func (p *Pair) KeyDER(t testing.TB) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// KeyPEM is the same as PEM.
func (p *Pair) KeyPEM(t testing.TB) []byte {
	t.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p.KeyDER(t)})
}
