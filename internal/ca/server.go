package ca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// serverCertificate is the controller's own certificate for one ID or name. It is picked for
// each handshake and replaced at half of its life or when the issuer changes.
type serverCertificate struct {
	mu      sync.Mutex // held while issuing, so that one handshake issues for all
	cert    *tls.Certificate
	by      *issuer
	renewAt time.Time
}

// ServerTLS is the configuration of the listener that authenticates only itself, as id.
// TLS 1.3 only; it offers HTTP/2, which gRPC then insists on.
func (a *Authority) ServerTLS(id spiffeid.ID) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		Time:       a.cfg.Now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return a.serverCertificate(id)
		},
		// A resumed session would outlive the certificates and roots it was made with.
		SessionTicketsDisabled: true,
	}
}

// MutualTLS is ServerTLS for the listener that demands an SVID of our trust domain from
// its clients. Roots are those of the moment of the handshake.
func (a *Authority) MutualTLS(id spiffeid.ID) *tls.Config {
	conf := a.ServerTLS(id)
	conf.ClientAuth = tls.RequireAndVerifyClientCert
	conf.ClientCAs = x509.NewCertPool() // without GetConfigForClient: nobody
	conf.VerifyConnection = func(cs tls.ConnectionState) error {
		_, err := spiffeid.PeerFromCertificate(a.cfg.TrustDomain, cs.PeerCertificates[0])
		return err
	}
	perClient := conf.Clone()
	conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := perClient.Clone()
		c.ClientCAs = a.Roots().Pool()
		return c, nil
	}
	return conf
}

// serverIssuer signs server certificates. During a rotation it will stay with the old
// issuer for longer than Sign does.
func (a *Authority) serverIssuer() *issuer { return a.current() }

// serverCertificate returns the certificate to serve now. An old one that cannot be
// renewed is served until it expires.
func (a *Authority) serverCertificate(id spiffeid.ID) (*tls.Certificate, error) {
	a.mu.Lock()
	s := a.servers[id]
	if s == nil {
		s = &serverCertificate{}
		a.servers[id] = s
	}
	a.mu.Unlock()

	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(a.serverIssuer(), a.cfg.Now(), func(by *issuer, now time.Time) (*tls.Certificate, error) {
		cert, err := newServerCertificate(by, id, a.cfg.SVIDTTL, now)
		if err == nil {
			a.cfg.Log.Info("server certificate issued", logkey.Identity, id.String(), logkey.NotAfter, cert.Leaf.NotAfter)
		}
		return cert, err
	})
}

// get is the certificate to serve, issued anew if need be. The caller holds mu.
func (s *serverCertificate) get(by *issuer, now time.Time, issue func(*issuer, time.Time) (*tls.Certificate, error)) (*tls.Certificate, error) {
	if s.cert != nil && s.by == by && now.Before(s.renewAt) {
		return s.cert, nil
	}
	cert, err := issue(by, now)
	switch {
	case err == nil:
		s.cert, s.by = cert, by
		s.renewAt = now.Add(cert.Leaf.NotAfter.Sub(now) / 2)
	case s.cert == nil || now.After(s.cert.Leaf.NotAfter):
		return nil, err
	}
	return s.cert, nil
}

func newServerCertificate(by *issuer, id spiffeid.ID, ttl time.Duration, now time.Time) (*tls.Certificate, error) {
	return serverCertificateFor(by, id.String(), now, func(is *issuer, key crypto.PublicKey) (*x509.Certificate, error) {
		return is.sign(svid.Request{ID: id, PublicKey: key}, ttl, now)
	})
}

// serverCertificateFor makes a key and has a certificate of it issued, for whoever errors are to name.
func serverCertificateFor(by *issuer, who string, now time.Time, issue func(*issuer, crypto.PublicKey) (*x509.Certificate, error)) (*tls.Certificate, error) {
	is, err := usable(by, now)
	if err != nil {
		return nil, fmt.Errorf("server certificate for %s: %w", who, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make server key: %w", err)
	}
	leaf, err := issue(is, key.Public())
	if err != nil {
		return nil, fmt.Errorf("server certificate for %s: %w", who, err)
	}
	return &tls.Certificate{Certificate: is.issued(leaf).Chain, PrivateKey: key, Leaf: leaf}, nil
}

// serverNotAfter is when the first of the server certificates in use expires; zero if
// none has been served.
func (a *Authority) serverNotAfter() time.Time {
	a.mu.Lock()
	servers := make([]*serverCertificate, 0, len(a.servers))
	for _, s := range a.servers {
		servers = append(servers, s)
	}
	a.mu.Unlock()
	var first time.Time
	for _, s := range servers {
		s.mu.Lock()
		if s.cert != nil && (first.IsZero() || s.cert.Leaf.NotAfter.Before(first)) {
			first = s.cert.Leaf.NotAfter
		}
		s.mu.Unlock()
	}
	return first
}
