package ca

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/url"
	"time"

	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// Errors that a store returns.
var (
	// ErrAbsent is returned by Load where no CA has been created.
	ErrAbsent = errors.New("CA absent")
	// ErrExists is returned by Create where somebody was first.
	ErrExists = errors.New("CA exists already")
)

// What can be wrong with a CA that was loaded.
var (
	ErrMalformed   = errors.New("CA does not parse")
	ErrKeyMismatch = errors.New("CA key does not belong to the certificate")
	ErrNotCA       = errors.New("certificate is no CA")
	ErrExpired     = errors.New("CA has expired")
	ErrNotYetValid = errors.New("CA is not valid yet")
	ErrUnverified  = errors.New("CA issues nothing that verifies")
	ErrExposed     = errors.New("CA key may be read by others")
)

// Store keeps the CA where every replica finds it.
type Store interface {
	// Load returns the material, or ErrAbsent.
	Load(ctx context.Context) (Material, error)
	// Create stores the material as one, or changes nothing and returns ErrExists.
	Create(ctx context.Context, m Material) error
}

// Material is a CA as it is stored: the keys tls.crt and tls.key of its Secret. It
// does not print.
type Material struct {
	Cert []byte // PEM: the issuing certificate, then its chain; the last is the root
	Key  []byte // PEM
}

// Equal reports whether both are the same bytes.
func (m Material) Equal(o Material) bool {
	return bytes.Equal(m.Cert, o.Cert) && bytes.Equal(m.Key, o.Key)
}

// Format writes "REDACTED" for every verb.
func (m Material) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("REDACTED")) }

// MarshalText gives "REDACTED".
func (m Material) MarshalText() ([]byte, error) { return []byte("REDACTED"), nil }

// LogValue is "REDACTED".
func (m Material) LogValue() slog.Value { return slog.StringValue("REDACTED") }

// issuer is a CA that has been found good. It is immutable.
type issuer struct {
	chain    []*x509.Certificate // the issuing certificate first, the root last
	key      crypto.Signer
	keyID    []byte
	notAfter time.Time // the earliest of the chain
}

func (i *issuer) root() *x509.Certificate { return i.chain[len(i.chain)-1] }

// parse judges material at a time. A good one is able to issue what both sides of the
// discovery channel will verify; that is tried, not concluded.
func parse(m Material, td spiffeid.TrustDomain, now time.Time) (*issuer, error) {
	chain, err := parseChain(m.Cert)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(m.Key)
	if err != nil {
		return nil, err
	}
	if pub, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !pub.Equal(chain[0].PublicKey) {
		return nil, ErrKeyMismatch
	}
	if err := svid.CheckKey(key.Public()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	is := &issuer{chain: chain, key: key, notAfter: chain[0].NotAfter}
	for _, c := range chain {
		switch {
		case !c.BasicConstraintsValid || !c.IsCA || (c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0):
			return nil, fmt.Errorf("%w: %s", ErrNotCA, c.Subject)
		case now.After(c.NotAfter):
			return nil, fmt.Errorf("%w: %s at %s", ErrExpired, c.Subject, c.NotAfter)
		case now.Before(c.NotBefore):
			return nil, fmt.Errorf("%w: %s before %s", ErrNotYetValid, c.Subject, c.NotBefore)
		case c.NotAfter.Before(is.notAfter):
			is.notAfter = c.NotAfter
		}
	}
	if is.keyID = chain[0].SubjectKeyId; len(is.keyID) == 0 {
		if is.keyID, err = keyID(key.Public()); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
	}
	if err := is.probe(td, now); err != nil {
		return nil, err
	}
	return is, nil
}

// intermediates are the certificates between a leaf and the root.
func (i *issuer) intermediates() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range i.chain[:len(i.chain)-1] {
		pool.AddCert(c)
	}
	return pool
}

// probe issues a leaf that nobody will see and verifies it as servers and clients do.
// It finds broken chains, path lengths, name constraints and extended key usages.
func (i *issuer) probe(td spiffeid.TrustDomain, now time.Time) error {
	id, err := spiffeid.ForServiceAccount(td, "probe", "probe")
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make probe key: %w", err)
	}
	leaf, err := i.sign(svid.Request{ID: id, PublicKey: key.Public()}, time.Minute, now)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnverified, err)
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := leaf.Verify(x509.VerifyOptions{
			Roots: svid.NewBundle(i.root()).Pool(), Intermediates: i.intermediates(),
			CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
		})
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnverified, err)
		}
	}
	return nil
}

func parseChain(text []byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%w: block %q among the certificates", ErrMalformed, block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		chain = append(chain, cert)
	}
	if len(chain) == 0 {
		return nil, fmt.Errorf("%w: no certificate", ErrMalformed)
	}
	return chain, nil
}

// parseKey reads the first private key: PKCS#8, SEC 1 or PKCS#1. Its errors say nothing
// of the key's content.
func parseKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		default:
			continue // openssl writes EC PARAMETERS before the key
		}
		signer, ok := key.(crypto.Signer)
		if err != nil || !ok {
			return nil, fmt.Errorf("%w: block %q holds no key that we can use", ErrMalformed, block.Type)
		}
		return signer, nil
	}
	return nil, fmt.Errorf("%w: no private key", ErrMalformed)
}

// create makes a new self-signed CA with a P-256 key.
func create(td spiffeid.TrustDomain, lifetime time.Duration, now time.Time) (Material, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Material{}, fmt.Errorf("make CA key: %w", err)
	}
	id, err := keyID(key.Public())
	if err != nil {
		return Material{}, err
	}
	serial := newSerial()
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		// Roots of one product have one name; the number keeps their subjects apart.
		Subject:               pkix.Name{CommonName: "Aether discovery CA", SerialNumber: serial.Text(16)},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(lifetime),
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		SubjectKeyId:          id,
		URIs:                  []*url.URL{td.ID().URL()}, // X509-SVID section 4.2
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return Material{}, fmt.Errorf("sign CA: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Material{}, fmt.Errorf("encode CA key: %w", err)
	}
	return Material{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// newSerial is 128 random bits, and not zero.
func newSerial() *big.Int {
	var b [16]byte
	for {
		_, _ = rand.Read(b[:]) // does not fail
		if n := new(big.Int).SetBytes(b[:]); n.Sign() > 0 {
			return n
		}
	}
}

// keyID is a key identifier: the leftmost 160 bits of the SHA-256 of the
// SubjectPublicKeyInfo. RFC 5280 section 4.2.1.2 leaves the method open.
func keyID(pub crypto.PublicKey) ([]byte, error) {
	spki, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	sum := sha256.Sum256(spki)
	return sum[:20], nil
}
