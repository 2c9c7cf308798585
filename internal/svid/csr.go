package svid

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
)

// MaxCSR is the largest certificate request that is looked at, in bytes.
const MaxCSR = 64 << 10

// RSA moduli in bits. The upper bound is crypto/tls's own: a larger one would only
// make verification slow.
const minRSA, maxRSA = 2048, 8192

// Errors that callers and tests tell apart.
var (
	// ErrCSR is returned for a certificate request that does not parse, or that does
	// not prove possession of its key.
	ErrCSR = errors.New("malformed certificate request")
	// ErrWeakKey is returned for keys other than P-256, P-384, RSA of 2048 to 8192 bits
	// and Ed25519.
	ErrWeakKey = errors.New("key not accepted")
)

// ParseCSR checks a PKCS#10 request in DER and returns its public key, the only thing
// that may be taken from it. The key is judged before the signature is computed, so a
// stranger cannot make us compute with a key of any size.
func ParseCSR(der []byte) (crypto.PublicKey, error) {
	if len(der) > MaxCSR {
		return nil, fmt.Errorf("%w: %d bytes", ErrCSR, len(der))
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCSR, err)
	}
	if err := CheckKey(csr.PublicKey); err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCSR, err)
	}
	return csr.PublicKey, nil
}

// CheckKey returns ErrWeakKey unless the policy accepts the public key.
func CheckKey(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() || k.Curve == elliptic.P384() {
			return nil
		}
		return fmt.Errorf("%w: curve %s", ErrWeakKey, k.Curve.Params().Name)
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < minRSA || n > maxRSA {
			return fmt.Errorf("%w: RSA of %d bits", ErrWeakKey, n)
		}
		return nil
	case ed25519.PublicKey:
		return nil
	}
	return fmt.Errorf("%w: %T", ErrWeakKey, pub)
}
