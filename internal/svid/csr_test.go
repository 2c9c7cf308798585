package svid_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"math/big"
	"testing"

	"aether.io/aether/internal/svid"
)

func request(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func ec(t testing.TB, c elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0") // the adversary's library does not refuse weak keys
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestParseCSRGivesThePublicKey(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{
		"P-256": ec(t, elliptic.P256()), "P-384": ec(t, elliptic.P384()), "Ed25519": ed, "RSA 2048": rsaKey(t, 2048),
	} {
		t.Run(name, func(t *testing.T) {
			pub, err := svid.ParseCSR(request(t, key))
			if err != nil {
				t.Fatal(err)
			}
			if !pub.(interface{ Equal(crypto.PublicKey) bool }).Equal(key.Public()) {
				t.Error("another key came out")
			}
		})
	}
}

func TestParseCSRRefuses(t *testing.T) {
	good := request(t, ec(t, elliptic.P256()))
	flipped := append([]byte{}, good...)
	flipped[len(flipped)-1] ^= 1
	stolen := withKey(t, good, ec(t, elliptic.P256()).Public())
	huge := withKey(t, good, &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 16384, 1), E: 65537})
	for name, tc := range map[string]struct {
		der  []byte
		want error
	}{
		"nothing":                        {nil, svid.ErrCSR},
		"garbage":                        {[]byte("garbage"), svid.ErrCSR},
		"a truncated request":            {good[:len(good)-9], svid.ErrCSR},
		"bytes after the request":        {append(append([]byte{}, good...), 0), svid.ErrCSR},
		"a broken signature":             {flipped, svid.ErrCSR},
		"somebody else's public key":     {stolen, svid.ErrCSR},
		"more than 64 KiB":               {append(append([]byte{}, good...), make([]byte, svid.MaxCSR)...), svid.ErrCSR},
		"P-224":                          {request(t, ec(t, elliptic.P224())), svid.ErrWeakKey},
		"P-521":                          {request(t, ec(t, elliptic.P521())), svid.ErrWeakKey},
		"RSA of 1024 bits":               {request(t, rsaKey(t, 1024)), svid.ErrWeakKey},
		"RSA of a length to make us pay": {huge, svid.ErrWeakKey},
	} {
		t.Run(name, func(t *testing.T) {
			if pub, err := svid.ParseCSR(tc.der); !errors.Is(err, tc.want) || pub != nil {
				t.Errorf("got %T, %v; want %v", pub, err, tc.want)
			}
		})
	}
	if err := svid.CheckKey(nil); !errors.Is(err, svid.ErrWeakKey) {
		t.Errorf("no key: %v", err)
	}
}

// withKey puts another public key into a request and leaves the signature as it was.
func withKey(t testing.TB, der []byte, pub crypto.PublicKey) []byte {
	t.Helper()
	type info struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes asn1.RawValue `asn1:"tag:0"`
	}
	var csr struct {
		Info      info
		Algorithm asn1.RawValue
		Signature asn1.BitString
	}
	if _, err := asn1.Unmarshal(der, &csr); err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	csr.Info.PublicKey = asn1.RawValue{FullBytes: spki}
	out, err := asn1.Marshal(csr)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Whatever bytes a stranger sends: an error, or a key that the policy accepts.
func FuzzParseCSR(f *testing.F) {
	f.Add(request(f, ec(f, elliptic.P256())))
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(request(f, ed))
	f.Add([]byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, der []byte) {
		pub, err := svid.ParseCSR(der)
		if err != nil {
			if !errors.Is(err, svid.ErrCSR) && !errors.Is(err, svid.ErrWeakKey) {
				t.Fatalf("an error without a name: %v", err)
			}
			return
		}
		if err := svid.CheckKey(pub); err != nil {
			t.Fatal(err)
		}
	})
}
