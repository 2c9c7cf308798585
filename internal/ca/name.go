package ca

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/svid"
)

// Named is a server certificate for a DNS name, for callers who know servers by name and not by
// SPIFFE ID, as API servers do. It is made in the process and kept in memory, and has no ID:
// on the discovery channel it is nobody's.
type Named struct {
	a    *Authority
	name string
	held serverCertificate
}

// Named makes no certificate before one is asked for.
func (a *Authority) Named(dnsName string) *Named { return &Named{a: a, name: dnsName} }

// Certificate is the one to serve now: the last one until half of its life, or until there is
// another issuer. One that cannot be renewed is served until it expires. An error wraps
// svid.ErrUnusable while there is no CA, and ErrUnverified if the CA may not issue for the name.
func (n *Named) Certificate() (*tls.Certificate, error) {
	n.held.mu.Lock()
	defer n.held.mu.Unlock()
	return n.held.get(n.a.serverIssuer(), n.a.cfg.Now(), func(by *issuer, now time.Time) (*tls.Certificate, error) {
		cert, err := by.named(n.name, n.a.cfg.SVIDTTL, now)
		if err == nil {
			n.a.cfg.Log.Info("server certificate issued", logkey.Identity, n.name, logkey.NotAfter, cert.Leaf.NotAfter)
		}
		return cert, err
	})
}

// Roots is what to verify the certificate with: those of its issuer, and those that were before.
func (n *Named) Roots() svid.Bundle { return n.a.Roots() }

// Changed is closed when the roots or the issuer next change.
func (n *Named) Changed() <-chan struct{} { return n.a.Changed() }

// named issues a certificate for a DNS name, and verifies it as its callers will: an authority
// that somebody else made may be constrained to other names.
func (i *issuer) named(name string, ttl time.Duration, now time.Time) (*tls.Certificate, error) {
	return serverCertificateFor(i, name, now, func(is *issuer, key crypto.PublicKey) (*x509.Certificate, error) {
		leaf, err := is.create(&x509.Certificate{DNSNames: []string{name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, key, ttl, now)
		if err != nil {
			return nil, err
		}
		if _, err := leaf.Verify(x509.VerifyOptions{
			DNSName: name, Roots: svid.NewBundle(is.root()).Pool(), Intermediates: is.intermediates(), CurrentTime: now,
		}); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnverified, err)
		}
		return leaf, nil
	})
}
