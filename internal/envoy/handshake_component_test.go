//go:build component

package envoy_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/test/keypair"
)

// authority signs certificates.
type authority struct {
	*keypair.Pair
	parent *authority
}

func newAuthority(t *testing.T, name string, parent *authority) *authority {
	t.Helper()
	if parent == nil {
		return &authority{Pair: keypair.Authority(t, name, nil)}
	}
	return &authority{keypair.Authority(t, name, parent.Pair), parent}
}

// leaf is a certificate with its chain up to, and without, the root.
func (a *authority) leaf(t *testing.T, key crypto.Signer, usage x509.ExtKeyUsage, hosts ...string) tls.Certificate {
	t.Helper()
	out := tls.Certificate{PrivateKey: key, Certificate: [][]byte{a.Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "leaf"}, DNSNames: hosts, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, key.Public()).Raw}}
	for by := a; by.parent != nil; by = by.parent {
		out.Certificate = append(out.Certificate, by.Cert.Raw)
	}
	return out
}

func (a *authority) secret(t *testing.T, name string, key crypto.Signer, hosts ...string) envoy.Secret {
	t.Helper()
	s := envoy.Secret{Name: name}
	for _, der := range a.leaf(t, key, x509.ExtKeyUsageServerAuth, hosts...).Certificate {
		s.Chain = append(s.Chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	s.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return s
}

func ecKey() crypto.Signer {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return key
}

func rsaKey() crypto.Signer {
	key, _ := rsa.GenerateKey(rand.Reader, 2048)
	return key
}

// shown is the leaf that a server shows, and how many certificates come with it.
func shown(port uint32, config *tls.Config) (*x509.Certificate, int, error) {
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), config)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	peers := conn.ConnectionState().PeerCertificates
	return peers[0], len(peers), nil
}

func TestTheCertificateIsChosenByServerNameAndKey(t *testing.T) {
	r := newRig(t)
	root := newAuthority(t, "root", nil)
	issuing := newAuthority(t, "issuing", newAuthority(t, "intermediate", root))
	r.serve(t,
		issuing.secret(t, "ns/first", rsaKey(), "first.example"), issuing.secret(t, "ns/first-ec", ecKey(), "first.example"),
		issuing.secret(t, "ns/second", rsaKey(), "second.example"), issuing.secret(t, "ns/wild", ecKey(), "*.wild.example"))
	port := everything(t, r, envoy.Listener{}, envoy.Chain{Secrets: []string{"ns/first", "ns/first-ec", "ns/second", "ns/wild"}})
	for name, tc := range map[string]struct {
		sni  string
		host string
		key  x509.PublicKeyAlgorithm
	}{
		"both keys would do":                {"first.example", "first.example", x509.ECDSA},
		"the second host's":                 {"second.example", "second.example", x509.RSA},
		"a wildcard":                        {"x.wild.example", "*.wild.example", x509.ECDSA},
		"no server name: the first host's":  {"", "first.example", x509.ECDSA},
		"a name that none has: the first's": {"other.example", "first.example", x509.RSA},
		"another letter case: the first's":  {"Second.Example", "first.example", x509.RSA},
		"a wildcard is of one label only":   {"x.y.wild.example", "first.example", x509.RSA},
	} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{RootCAs: root.Pool(), ServerName: tc.sni, InsecureSkipVerify: tc.sni != "second.example"}
			leaf, n, err := shown(port, config)
			if err != nil {
				t.Fatal(err)
			}
			if leaf.DNSNames[0] != tc.host || leaf.PublicKeyAlgorithm != tc.key {
				t.Errorf("shown %v with %s", leaf.DNSNames, leaf.PublicKeyAlgorithm)
			}
			if n != 3 {
				t.Errorf("%d certificates were sent, want the leaf and both intermediate ones", n)
			}
		})
	}
}

func TestOnlySoundVersionsAndCiphersAreTaken(t *testing.T) {
	r := newRig(t)
	root := newAuthority(t, "root", nil)
	r.serve(t, root.secret(t, "ns/rsa", rsaKey(), "a.example"), root.secret(t, "ns/ec", ecKey(), "a.example"))
	secrets := []string{"ns/rsa", "ns/ec"}
	usual := everything(t, r, envoy.Listener{}, envoy.Chain{Secrets: secrets})
	onlyRSA := everything(t, r, envoy.Listener{}, envoy.Chain{Secrets: secrets[:1]})
	strict := everything(t, r, envoy.Listener{}, envoy.Chain{Secrets: secrets, MinTLS13: true})
	suite := func(id uint16) *tls.Config {
		return &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{id}}
	}
	for name, tc := range map[string]struct {
		port   uint32
		config *tls.Config
		taken  bool
	}{
		"TLS 1.3":                         {usual, &tls.Config{MinVersion: tls.VersionTLS13}, true},
		"TLS 1.2":                         {usual, &tls.Config{MaxVersion: tls.VersionTLS12}, true},
		"TLS 1.1":                         {usual, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		"TLS 1.2 where 1.3 is asked for":  {strict, &tls.Config{MaxVersion: tls.VersionTLS12}, false},
		"TLS 1.3 where 1.3 is asked for":  {strict, &tls.Config{}, true},
		"AES-GCM by ECDHE":                {usual, suite(tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256), true},
		"CBC":                             {onlyRSA, suite(tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA), false},
		"no forward secrecy":              {onlyRSA, suite(tls.TLS_RSA_WITH_AES_128_GCM_SHA256), false},
		"no forward secrecy and CBC":      {onlyRSA, suite(tls.TLS_RSA_WITH_AES_256_CBC_SHA), false},
		"triple DES":                      {onlyRSA, suite(tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA), false},
		"ChaCha20 by ECDHE with RSA":      {onlyRSA, suite(tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256), true},
		"AES-256-GCM by ECDHE with ECDSA": {usual, suite(tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384), true},
	} {
		tc.config.RootCAs, tc.config.ServerName = root.Pool(), "a.example"
		if _, _, err := shown(tc.port, tc.config); (err == nil) != tc.taken {
			t.Errorf("%s: %v, want taken %v", name, err, tc.taken)
		}
	}
}

func TestClientsShowCertificatesThatVerify(t *testing.T) {
	r := newRig(t)
	root := newAuthority(t, "root", nil)
	clients, others := newAuthority(t, "clients", nil), newAuthority(t, "others", nil)
	under := newAuthority(t, "under", clients)
	r.serve(t, root.secret(t, "ns/cert", ecKey(), "a.example"), envoy.Trust{Name: "ns/gw/443/clients", Authorities: clients.CertPEM()})
	chain := func(optional bool) uint32 {
		return everything(t, r, envoy.Listener{}, envoy.Chain{
			Secrets: []string{"ns/cert"}, Clients: envoy.ClientCertificates{Trust: "ns/gw/443/clients", Optional: optional},
		})
	}
	strict, lenient := chain(false), chain(true)
	expired := *keypair.New(t, &x509.Certificate{
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, clients.Pair).TLS()
	for name, tc := range map[string]struct {
		shows []tls.Certificate
		taken bool
	}{
		"none":                                   {nil, false},
		"one of the authority":                   {[]tls.Certificate{clients.leaf(t, ecKey(), x509.ExtKeyUsageClientAuth)}, true},
		"one below an intermediate":              {[]tls.Certificate{under.leaf(t, ecKey(), x509.ExtKeyUsageClientAuth)}, true},
		"one of another authority":               {[]tls.Certificate{others.leaf(t, ecKey(), x509.ExtKeyUsageClientAuth)}, false},
		"one that is for servers":                {[]tls.Certificate{clients.leaf(t, ecKey(), x509.ExtKeyUsageServerAuth)}, false},
		"one that has expired":                   {[]tls.Certificate{expired}, false},
		"the authority's, without being its own": {[]tls.Certificate{{Certificate: [][]byte{clients.Cert.Raw}, PrivateKey: others.Key}}, false},
	} {
		for port, taken := range map[uint32]bool{strict: tc.taken, lenient: true} {
			if port == lenient && name[0] == 't' { // a proof that is false is no certificate at all
				taken = false
			}
			client := clientFor(port, &tls.Config{RootCAs: root.Pool(), Certificates: tc.shows}, true)
			resp, err := client.Get(fmt.Sprintf("https://a.example:%d/", port))
			if err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					err = errors.New(resp.Status)
				}
			}
			client.CloseIdleConnections()
			if (err == nil) != taken {
				t.Errorf("%s, optional %v: %v, want taken %v", name, port == lenient, err, taken)
			}
		}
	}
}

// One client keeps its connection, another makes new ones, while certificate and client
// authorities are replaced by discovery of secrets alone.
func TestACertificateIsReplacedWhileConnectionsLive(t *testing.T) {
	r := newRig(t)
	root, clients := newAuthority(t, "root", nil), newAuthority(t, "clients", nil)
	mine := clients.leaf(t, ecKey(), x509.ExtKeyUsageClientAuth)
	first := root.secret(t, "ns/cert", ecKey(), "a.example")
	r.serve(t, first, envoy.Trust{Name: "ns/clients", Authorities: clients.CertPEM()})
	port := everything(t, r, envoy.Listener{}, envoy.Chain{Secrets: []string{"ns/cert"}, Clients: envoy.ClientCertificates{Trust: "ns/clients"}})
	config := func(own tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: root.Pool(), ServerName: "a.example", Certificates: []tls.Certificate{own}}
	}
	var failed, sent atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, client := range []*http.Client{clientFor(port, config(mine), true), clientFor(port, config(mine), false)} {
		client.Transport.(*http.Transport).DisableKeepAlives = client.Transport.(*http.Transport).Protocols.HTTP1()
		wg.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := client.Get(fmt.Sprintf("https://a.example:%d/", port))
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
				if sent.Add(1); err != nil || resp.StatusCode != 200 {
					failed.Add(1)
					t.Logf("%v", err)
				}
			}
		})
	}
	serial := func(own tls.Certificate) string {
		leaf, _, err := shown(port, config(own))
		if err != nil {
			return err.Error()
		}
		return leaf.SerialNumber.String()
	}
	before := serial(mine)
	for range 5 {
		next := root.secret(t, "ns/cert", ecKey(), "a.example")
		block, _ := pem.Decode(next.Chain)
		cert, _ := x509.ParseCertificate(block.Bytes)
		r.serve(t, next)
		await(t, "the next certificate", func() bool { return serial(mine) == cert.SerialNumber.String() }, func() string { return before + ", now " + serial(mine) })
	}
	more := newAuthority(t, "more", nil)
	theirs := more.leaf(t, ecKey(), x509.ExtKeyUsageClientAuth)
	get := func(own tls.Certificate) bool {
		client := clientFor(port, config(own), true)
		defer client.CloseIdleConnections()
		resp, err := client.Get(fmt.Sprintf("https://a.example:%d/", port))
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	}
	if get(theirs) {
		t.Error("a client of an authority that is not there yet was served")
	}
	r.serve(t, envoy.Trust{Name: "ns/clients", Authorities: append(clients.CertPEM(), more.CertPEM()...)})
	await(t, "the second authority", func() bool { return get(theirs) }, func() string { return r.get("/certs") })
	at := sent.Load()
	await(t, "more requests", func() bool { return sent.Load() > at+20 }, func() string { return fmt.Sprint(sent.Load()) })
	close(stop)
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", failed.Load(), sent.Load())
	}
	r.serve(t, envoy.Trust{Name: "ns/clients", Authorities: more.CertPEM()})
	await(t, "the first authority to be gone", func() bool { return !get(mine) }, func() string { return r.get("/certs") })
}
