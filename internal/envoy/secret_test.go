package envoy_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
)

// newSecret is a secret with a self-signed certificate for hosts.
func newSecret(t *testing.T, name string, key crypto.Signer, hosts ...string) envoy.Secret {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: hosts,
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return envoy.Secret{
		Name:  name,
		Chain: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:   pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}
}

func TestASecretIsWrittenInOneFormWhateverSurroundsIt(t *testing.T) {
	s := newSecret(t, "ns/cert", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), "a.example")
	clean, err := s.Resource()
	if err != nil {
		t.Fatal(err)
	}
	s.Chain = []byte("Bag Attributes\n  friendlyName: x\n" + strings.ReplaceAll(string(s.Chain), "\n", "\r\n") + "\n\n")
	s.Key = []byte(strings.TrimSpace(string(s.Key)))
	dressed, err := s.Resource()
	if err != nil {
		t.Fatal(err)
	}
	if clean.Hash != dressed.Hash {
		t.Error("the same pair in another dress gives another resource")
	}
}

func TestASecretThatDoesNotMatchNamesItsOriginAndNotItsKey(t *testing.T) {
	s := newSecret(t, "ns/cert", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	other := newSecret(t, "ns/cert", ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize))))
	s.Key = other.Key
	s.Origin = []object.Key{{Kind: object.Secret, Namespace: "ns", Name: "cert"}}
	_, err := s.Resource()
	e, ok := errors.AsType[*envoy.InvalidError](err)
	if !ok || len(e.Origin) != 1 || e.Origin[0].Name != "cert" {
		t.Fatalf("got %#v, want an InvalidError with the secret as origin", err)
	}
	if !strings.HasPrefix(err.Error(), "secret ns/cert: certificate and key: ") {
		t.Errorf("got %q, want the secret and what does not fit", err)
	}
	for line := range strings.Lines(string(other.Key)) {
		if line = strings.TrimSpace(line); strings.Contains(err.Error(), line) {
			t.Errorf("%q holds the key", err)
		}
	}
}
