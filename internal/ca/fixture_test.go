package ca_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func domain(t testing.TB) spiffeid.TrustDomain {
	t.Helper()
	td, err := spiffeid.ParseTrustDomain("cluster.local")
	if err != nil {
		t.Fatal(err)
	}
	return td
}

func account(t testing.TB, namespace, name string) spiffeid.ID {
	t.Helper()
	id, err := spiffeid.ForServiceAccount(domain(t), namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func controller(t testing.TB) spiffeid.ID { return account(t, "aether-system", "aether-controller") }

// authority is a hand-made CA, as an operator or an adversary has one.
type authority struct {
	cert   *x509.Certificate
	key    crypto.Signer
	parent *authority
}

func newKey(t testing.TB, c elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// makeCA signs a CA by parent, or by itself if that is nil.
func makeCA(t testing.TB, parent *authority, key crypto.Signer, change func(*x509.Certificate)) *authority {
	t.Helper()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: t.Name()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if parent != nil {
		tmpl.Subject.CommonName += " intermediate"
	}
	if change != nil {
		change(tmpl)
	}
	a := &authority{key: key, parent: parent}
	a.cert = sign(t, tmpl, a, key.Public())
	return a
}

// sign issues tmpl for pub by a's parent, or by a itself where it has none.
func sign(t testing.TB, tmpl *x509.Certificate, a *authority, pub crypto.PublicKey) *x509.Certificate {
	t.Helper()
	by, signer := tmpl, a.key
	if a.parent != nil {
		by, signer = a.parent.cert, a.parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, by, pub, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// material is the CA as stored: its certificate, those above it, and its key.
func (a *authority) material(t testing.TB) ca.Material {
	t.Helper()
	var m ca.Material
	for c := a; c != nil; c = c.parent {
		m.Cert = append(m.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cert.Raw})...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		t.Fatal(err)
	}
	m.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return m
}

// put replaces the files of a store, as an operator does.
func put(t testing.TB, dir string, m ca.Material) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"tls.crt": m.Cert, "tls.key": m.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// logs collects what is logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// start runs an authority until the test ends.
func start(t testing.TB, cfg ca.Config) (*ca.Authority, *logs) {
	t.Helper()
	out := &logs{}
	cfg.TrustDomain = domain(t)
	cfg.Log = slog.New(slog.NewJSONHandler(out, nil))
	a, err := ca.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return a, out
}

func waitReady(t testing.TB, a *ca.Authority) {
	t.Helper()
	select {
	case <-a.Ready():
	case <-time.After(time.Minute):
		t.Fatalf("not ready: %v", a.Fault())
	}
}

func isReady(a *ca.Authority) bool {
	select {
	case <-a.Ready():
		return true
	default:
		return false
	}
}

// issue signs and returns the parsed leaf.
func issue(t testing.TB, a *ca.Authority, req svid.Request) (*x509.Certificate, svid.Issued) {
	t.Helper()
	out, err := a.Sign(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(out.Chain[0])
	if err != nil {
		t.Fatal(err)
	}
	return leaf, out
}

// fixed is a store of one content.
type fixed struct{ m ca.Material }

func (f fixed) Load(context.Context) (ca.Material, error) { return f.m, nil }
func (f fixed) Create(context.Context, ca.Material) error { return ca.ErrExists }

// pass lets time go by in a synctest bubble.
func pass(d time.Duration) { <-time.After(d) }
