package ca_test

import (
	"context"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	gospiffeid "github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"

	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/svid"
)

func TestServerCertificateIsRenewedAtHalfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: filepath.Join(t.TempDir(), "ca")}, Lifetime: 48 * time.Hour, SVIDTTL: 24 * time.Hour})
		synctest.Wait()
		bootstrap, stream := a.ServerTLS(controller(t)), a.MutualTLS(controller(t))
		get := func(c *tls.Config) *tls.Certificate {
			t.Helper()
			cert, err := c.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			return cert
		}
		first := get(bootstrap)
		if get(stream) != first {
			t.Error("the two listeners do not share the certificate of one ID")
		}
		pass(12*time.Hour - 2*time.Second)
		if get(bootstrap) != first {
			t.Error("renewed before half of its life")
		}
		pass(2 * time.Second)
		second := get(bootstrap)
		if second == first || !second.Leaf.NotAfter.After(first.Leaf.NotAfter) {
			t.Error("not renewed at half of its life")
		}
		// The CA's own end is near: certificates end with it, and then there are none.
		pass(36*time.Hour - time.Minute)
		last := get(bootstrap)
		if want := a.Roots().Certificates()[0].NotAfter; !last.Leaf.NotAfter.Equal(want) {
			t.Errorf("the last certificate ends at %s, the CA at %s", last.Leaf.NotAfter, want)
		}
		pass(2 * time.Minute)
		if _, err := bootstrap.GetCertificate(nil); !errors.Is(err, svid.ErrUnusable) {
			t.Errorf("after the CA's end: %v, want ErrUnusable", err)
		}
		if _, err := a.Sign(t.Context(), svid.Request{ID: controller(t), PublicKey: newKey(t, elliptic.P256()).Public()}); !errors.Is(err, svid.ErrUnusable) {
			t.Errorf("sign after the CA's end: %v, want ErrUnusable", err)
		}
	})
}

func TestServerCertificateFollowsItsCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "ca")
		a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: dir}})
		synctest.Wait()
		conf := a.ServerTLS(controller(t))
		if _, err := conf.GetCertificate(nil); err != nil {
			t.Fatal(err)
		}
		next := makeCA(t, nil, newKey(t, elliptic.P256()), nil)
		changed := a.Changed()
		put(t, dir, next.material(t))
		<-changed
		if cert, err := conf.GetCertificate(nil); err != nil || cert.Leaf.CheckSignatureFrom(next.cert) != nil {
			t.Errorf("still the old CA's certificate, %v", err)
		}
	})
}

// handshake lets a client meet a server and exchanges a byte each way, so that a refusal by
// either side is seen.
func handshake(t testing.TB, server, client *tls.Config) error {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	served := make(chan error, 1)
	go func() {
		conn, err := lis.Accept()
		if err != nil {
			served <- err
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		tc := tls.Server(conn, server)
		if err := tc.Handshake(); err != nil {
			served <- err
			return
		}
		_, err = io.CopyN(tc, tc, 1)
		served <- err
	}()
	conn, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	tc := tls.Client(conn, client)
	err = tc.HandshakeContext(context.Background())
	if err == nil {
		if _, err = tc.Write([]byte{1}); err == nil {
			_, err = tc.Read(make([]byte, 1))
		}
	}
	_ = conn.Close()
	return errors.Join(err, <-served)
}

// clientOf trusts the authority's roots and accepts only the controller's ID, as proxies do.
func clientOf(t testing.TB, a *ca.Authority) *tls.Config {
	t.Helper()
	roots := x509bundle.FromX509Authorities(domain(t), a.Roots().Certificates())
	conf := tlsconfig.TLSClientConfig(roots, tlsconfig.AuthorizeID(controller(t)))
	conf.NextProtos = []string{"h2"}
	return conf
}

// with adds a client certificate.
func with(conf *tls.Config, key any, chain ...[]byte) *tls.Config {
	c := conf.Clone()
	c.Certificates = []tls.Certificate{{Certificate: chain, PrivateKey: key}}
	return c
}

func TestHandshakes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	ours := makeCA(t, nil, newKey(t, elliptic.P256()), nil)
	put(t, dir, ours.material(t))
	a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: dir}})
	waitReady(t, a)
	foreign, _ := start(t, ca.Config{Store: ca.FileStore{Dir: filepath.Join(t.TempDir(), "ca")}})
	waitReady(t, foreign)

	key := newKey(t, elliptic.P256())
	proxy := svid.Request{ID: account(t, "aether-system", "coxswain-shared-proxy"), PublicKey: key.Public()}
	leaf, good := issue(t, a, proxy)
	_, foreignSVID := issue(t, foreign, proxy)
	// forged is a leaf by our own CA's key, which only the CA itself could make.
	forged := func(change func(*x509.Certificate)) []byte {
		tmpl := &x509.Certificate{
			SerialNumber: big.NewInt(7), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			URIs:        []*url.URL{proxy.ID.URL()},
		}
		change(tmpl)
		return sign(t, tmpl, &authority{parent: ours}, key.Public()).Raw
	}
	// A leaf that plays CA: signed by the key of a valid SVID.
	usurper := &authority{cert: leaf, key: key}
	usurped := sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(8), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		URIs: []*url.URL{controller(t).URL()}, Subject: pkix.Name{},
	}, &authority{parent: usurper}, key.Public()).Raw

	server, mutual, client := a.ServerTLS(controller(t)), a.MutualTLS(controller(t)), clientOf(t, a)
	tls12 := func(c *tls.Config) *tls.Config {
		c = c.Clone()
		c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
		return c
	}
	otherID := clientOf(t, a)
	otherID.VerifyPeerCertificate = tlsconfig.TLSClientConfig(
		x509bundle.FromX509Authorities(domain(t), a.Roots().Certificates()),
		tlsconfig.AuthorizeID(gospiffeid.RequireFromString("spiffe://cluster.local/ns/aether-system/sa/other"))).VerifyPeerCertificate
	for name, tc := range map[string]struct {
		server, client *tls.Config
		ok             bool
	}{
		"bootstrap: a client that trusts our root":       {server, client, true},
		"bootstrap: a client that trusts another root":   {server, clientOf(t, foreign), false},
		"bootstrap: a client that wants another ID":      {server, otherID, false},
		"bootstrap: TLS 1.2":                             {server, tls12(client), false},
		"stream: a proxy's SVID":                         {mutual, with(client, key, good.Chain...), true},
		"stream: no certificate":                         {mutual, client, false},
		"stream: TLS 1.2":                                {mutual, tls12(with(client, key, good.Chain...)), false},
		"stream: an SVID of another CA":                  {mutual, with(client, key, foreignSVID.Chain...), false},
		"stream: an SVID without its key":                {mutual, with(client, newKey(t, elliptic.P256()), good.Chain...), false},
		"stream: a leaf below a leaf":                    {mutual, with(client, key, usurped, good.Chain[0]), false},
		"stream: by our CA, as the test forges them":     {mutual, with(client, key, forged(func(*x509.Certificate) {})), true},
		"stream: expired":                                {mutual, with(client, key, forged(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })), false},
		"stream: not yet valid":                          {mutual, with(client, key, forged(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })), false},
		"stream: by our CA, for servers only":            {mutual, with(client, key, forged(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })), false},
		"stream: by our CA, a DNS name and no ID":        {mutual, with(client, key, forged(func(c *x509.Certificate) { c.URIs, c.DNSNames = nil, []string{"x"} })), false},
		"stream: by our CA, of a foreign trust domain":   {mutual, with(client, key, forged(func(c *x509.Certificate) { c.URIs[0] = &url.URL{Scheme: "spiffe", Host: "evil", Path: "/ns/a/sa/b"} })), false},
		"stream: by our CA, with two IDs in one":         {mutual, with(client, key, forged(func(c *x509.Certificate) { c.URIs = append(c.URIs, controller(t).URL()) })), false},
		"stream: the CA's own certificate used as SVID":  {mutual, with(client, ours.key, ours.cert.Raw), false},
		"stream: the base configuration knows no client": {withoutGetConfig(mutual), with(client, key, good.Chain...), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := handshake(t, tc.server, tc.client); (err == nil) != tc.ok {
				t.Errorf("got %v, want ok %v", err, tc.ok)
			}
		})
	}
}

func withoutGetConfig(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.GetConfigForClient = nil
	return c
}

func TestRootsAreThoseOfTheHandshake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: dir}, Poll: time.Millisecond})
	waitReady(t, a)
	key := newKey(t, elliptic.P256())
	req := svid.Request{ID: account(t, "aether-system", "coxswain-shared-proxy"), PublicKey: key.Public()}
	_, old := issue(t, a, req)
	mutual := a.MutualTLS(controller(t)) // one configuration for the listener's whole life
	changed := a.Changed()
	put(t, dir, makeCA(t, nil, newKey(t, elliptic.P256()), nil).material(t))
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatalf("no change: %v", a.Fault())
	}
	_, fresh := issue(t, a, req)
	for name, chain := range map[string][][]byte{"the old CA's": old.Chain, "the new CA's": fresh.Chain} {
		if err := handshake(t, mutual, with(clientOf(t, a), key, chain...)); err != nil {
			t.Errorf("an SVID of %s: %v", name, err)
		}
	}
}

func TestNoSessionIsResumed(t *testing.T) {
	a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: filepath.Join(t.TempDir(), "ca")}})
	waitReady(t, a)
	client := clientOf(t, a)
	client.ClientSessionCache = &noTicket{t}
	for range 2 {
		if err := handshake(t, a.ServerTLS(controller(t)), client); err != nil {
			t.Fatal(err)
		}
	}
}

type noTicket struct{ t *testing.T }

func (n *noTicket) Get(string) (*tls.ClientSessionState, bool) { return nil, false }
func (n *noTicket) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		n.t.Error("the server gave a session ticket")
	}
}
