package svid

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxRoots bounds a bundle that is read from outside.
const maxRoots = 64

// ErrBundle is returned for a trust bundle that cannot be read, or holds no root.
var ErrBundle = errors.New("malformed trust bundle")

// Bundle is an immutable set of roots, without duplicates and in canonical order: by
// SHA-256 fingerprint. Equal sets have equal encodings. The zero Bundle trusts nobody.
type Bundle struct {
	roots []*x509.Certificate
}

// NewBundle makes the set of the certificates given.
func NewBundle(certs ...*x509.Certificate) Bundle {
	roots := slices.Clone(certs)
	slices.SortFunc(roots, func(a, b *x509.Certificate) int {
		fa, fb := sha256.Sum256(a.Raw), sha256.Sum256(b.Raw)
		return bytes.Compare(fa[:], fb[:])
	})
	return Bundle{roots: slices.CompactFunc(roots, (*x509.Certificate).Equal)}
}

// ParseBundle reads PEM: one to 64 CERTIFICATE blocks and nothing else but text
// between them.
func ParseBundle(text []byte) (Bundle, error) {
	var certs []*x509.Certificate
	for len(bytes.TrimSpace(text)) > 0 {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		if block.Type != "CERTIFICATE" {
			return Bundle{}, fmt.Errorf("%w: block %q", ErrBundle, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return Bundle{}, fmt.Errorf("%w: %w", ErrBundle, err)
		}
		if certs = append(certs, cert); len(certs) > maxRoots {
			return Bundle{}, fmt.Errorf("%w: more than %d roots", ErrBundle, maxRoots)
		}
	}
	if len(certs) == 0 {
		return Bundle{}, fmt.Errorf("%w: no certificate", ErrBundle)
	}
	return NewBundle(certs...), nil
}

// With returns the set and the certificates given.
func (b Bundle) With(certs ...*x509.Certificate) Bundle {
	return NewBundle(append(slices.Clone(b.roots), certs...)...)
}

// Valid returns the roots that have not expired at a time.
func (b Bundle) Valid(at time.Time) Bundle {
	return Bundle{roots: slices.DeleteFunc(slices.Clone(b.roots), func(c *x509.Certificate) bool {
		return at.After(c.NotAfter)
	})}
}

// IsZero reports whether the set is empty.
func (b Bundle) IsZero() bool { return len(b.roots) == 0 }

// Equal reports whether both sets hold the same certificates.
func (b Bundle) Equal(o Bundle) bool {
	return slices.EqualFunc(b.roots, o.roots, (*x509.Certificate).Equal)
}

// Certificates returns the roots in canonical order.
func (b Bundle) Certificates() []*x509.Certificate { return slices.Clone(b.roots) }

// Pool returns a new pool of the roots. It is never nil: a nil pool would stand for
// the roots of the operating system.
func (b Bundle) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range b.roots {
		pool.AddCert(c)
	}
	return pool
}

// DER returns the roots' encodings in canonical order.
func (b Bundle) DER() [][]byte {
	der := make([][]byte, len(b.roots))
	for i, c := range b.roots {
		der[i] = bytes.Clone(c.Raw)
	}
	return der
}

// PEM is what ParseBundle reads.
func (b Bundle) PEM() []byte {
	var out bytes.Buffer
	for _, c := range b.roots {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a Buffer does not fail
	}
	return out.Bytes()
}

// Fingerprints returns the roots' SHA-256, lower-case hexadecimal, sorted.
func (b Bundle) Fingerprints() []string {
	out := make([]string, len(b.roots))
	for i, c := range b.roots {
		sum := sha256.Sum256(c.Raw)
		out[i] = hex.EncodeToString(sum[:])
	}
	return out
}
