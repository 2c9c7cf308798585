package check

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestHostsAreLowerCaseNamesOrWildcards(t *testing.T) {
	for _, host := range []string{"*", "a", "a.example", "*.a.example", "xn--nxasmq6b.example", "1.2.3.4", "a-b.c", strings.Repeat("a.", 126) + "a"} {
		if err := Host(host); err != nil {
			t.Errorf("%q: %v", host, err)
		}
	}
	for _, host := range []string{
		"", "A", "a.", ".a", "a..b", "*.", "*a.example", "a.*.example", "**", "*.*", "-a", "a-", "a_b", "a b", "a:80", "[::1]", "a|b", "é",
		strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a", "*.*.example", "a\n",
	} {
		if Host(host) == nil {
			t.Errorf("%q was accepted", host)
		}
	}
}

func FuzzHost(f *testing.F) {
	for _, host := range []string{"*", "*.a.example", "a.example", "A", "a..b", "[::1]:80", "a%b", "é.example"} {
		f.Add(host)
	}
	shape := regexp.MustCompile(`^(\*|(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)$`)
	f.Fuzz(func(t *testing.T, host string) {
		if Host(host) == nil && (!shape.MatchString(host) || len(host) > maxHost) {
			t.Errorf("accepted %q", host)
		}
	})
}

// certificate is a self-signed one, as PEM.
func certificate(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func pkcs8(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestOnlyPairsThatBoringSSLServesPass(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0") // to make what is to be refused
	p256 := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	other := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	rsa2048 := must(rsa.GenerateKey(rand.Reader, 2048))
	rsa1024 := must(rsa.GenerateKey(rand.Reader, 1024))
	p224 := must(ecdsa.GenerateKey(elliptic.P224(), rand.Reader))
	ed := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	garbage := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("garbage")})
	tests := map[string]struct {
		chain, key []byte
		want       string // a part of the error, empty if there is none
	}{
		"ECDSA P-256":                   {certificate(t, p256), pkcs8(t, p256), ""},
		"RSA 2048":                      {certificate(t, rsa2048), pkcs8(t, rsa2048), ""},
		"RSA 2048 in PKCS 1":            {certificate(t, rsa2048), pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsa2048)}), ""},
		"ECDSA in SEC 1":                {certificate(t, p256), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: must(x509.MarshalECPrivateKey(p256))}), ""},
		"Ed25519":                       {certificate(t, ed), pkcs8(t, ed), ""},
		"a chain of two":                {append(certificate(t, p256), certificate(t, other)...), pkcs8(t, p256), ""},
		"RSA 1024":                      {certificate(t, rsa1024), pkcs8(t, rsa1024), "1024 bits"},
		"ECDSA P-224":                   {certificate(t, p224), pkcs8(t, p224), "P-224"},
		"another key":                   {certificate(t, p256), pkcs8(t, other), "does not match"},
		"the leaf last":                 {append(certificate(t, other), certificate(t, p256)...), pkcs8(t, p256), "certificate 2 of the chain: the leaf must come first"},
		"garbage after the leaf":        {append(certificate(t, p256), garbage...), pkcs8(t, p256), "certificate 2 of the chain"},
		"no certificate":                {nil, pkcs8(t, p256), "certificate"},
		"no key":                        {certificate(t, p256), nil, "key"},
		"a key where a certificate was": {pkcs8(t, p256), pkcs8(t, p256), "certificate"},
		"more than a megabyte":          {bytes.Repeat([]byte("x"), maxPEM+1), pkcs8(t, p256), "bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			chain, key, err := KeyPair(tt.chain, tt.key)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "":
				if _, err := tls.X509KeyPair(chain, key); err != nil {
					t.Errorf("what was written again: %v", err)
				}
			case err == nil || !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}

func FuzzKeyPair(f *testing.F) {
	ed := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	f.Add(certificate(f, ed), pkcs8(f, ed))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	for _, o := range oddities() {
		chain, key := o.pair()
		f.Add(chain, key)
	}
	f.Fuzz(func(t *testing.T, chain, key []byte) {
		c, k, err := KeyPair(chain, key)
		if err != nil {
			return
		}
		c2, k2, err := KeyPair(c, k)
		if err != nil || !bytes.Equal(c, c2) || !bytes.Equal(k, k2) {
			t.Errorf("the written form is not stable: %v", err)
		}
	})
}
