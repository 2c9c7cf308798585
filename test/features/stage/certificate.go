package stage

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"time"

	"aether.io/aether/test/features/example"
)

// lifetime is that of everything that is made here.
const lifetime = 24 * time.Hour

// Certificates is what an example asked to have made.
type Certificates struct {
	Objects []Object                    // Secrets and ConfigMaps
	Trust   *x509.CertPool              // what clients trust: every authority, and what is signed by itself
	Clients map[string]*tls.Certificate // by name
	signers map[string]*signer
}

type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Make makes them, anew each time.
func Make(e *example.Example) (*Certificates, error) {
	c := &Certificates{Trust: x509.NewCertPool(), Clients: map[string]*tls.Certificate{}, signers: map[string]*signer{}}
	for _, a := range e.Authorities {
		_, s, err := issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: a.Name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}, nil)
		if err != nil {
			return nil, err
		}
		c.signers[a.Name] = s
		c.Trust.AddCert(s.cert)
		if a.ConfigMap != "" {
			c.Objects = append(c.Objects, made("ConfigMap", a.ConfigMap, Object{
				"data": map[string]any{"ca.crt": encode("CERTIFICATE", s.cert.Raw)},
			}))
		}
	}
	for _, w := range e.Certificates {
		pair, err := c.serve(e, w.Hosts, w.Authority)
		if err != nil {
			return nil, err
		}
		key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		if err != nil {
			return nil, err
		}
		c.Objects = append(c.Objects, made("Secret", w.Secret, Object{
			"type": "kubernetes.io/tls",
			"data": map[string]any{
				"tls.crt": base64.StdEncoding.EncodeToString([]byte(encode("CERTIFICATE", pair.Leaf.Raw))),
				"tls.key": base64.StdEncoding.EncodeToString([]byte(encode("PRIVATE KEY", key))),
			},
		}))
	}
	for _, w := range e.Clients {
		pair, _, err := issue(&x509.Certificate{
			Subject: pkix.Name{CommonName: w.Name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, c.signers[w.Authority])
		if err != nil {
			return nil, err
		}
		c.Clients[w.Name] = pair
	}
	return c, nil
}

// Backend is the TLS side of a backend, nil if it has none.
func (c *Certificates) Backend(e *example.Example, name string) (*tls.Config, error) {
	b := e.Backends[name]
	if len(b.Hosts) == 0 {
		return nil, nil
	}
	pair, err := c.serve(e, b.Hosts, b.Authority)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{Certificates: []tls.Certificate{*pair}, MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert}
	if b.Clients != "" {
		config.ClientCAs = x509.NewCertPool()
		config.ClientCAs.AddCert(c.signers[b.Clients].cert)
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// serve issues a server's certificate, which a client may show too.
func (c *Certificates) serve(e *example.Example, hosts []string, authority string) (*tls.Certificate, error) {
	if authority == "" {
		authority = e.Authorities[0].Name
	}
	pair, s, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, c.signers[authority])
	if err == nil && authority == example.Self {
		c.Trust.AddCert(s.cert)
	}
	return pair, err
}

// issue makes a certificate; a nil signer has it sign itself.
func issue(template *x509.Certificate, by *signer) (*tls.Certificate, *signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, err
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(lifetime)
	parent := by
	if parent == nil {
		parent = &signer{cert: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.cert, &key.PublicKey, parent.key)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate %s: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: cert}, &signer{cert: cert, key: key}, nil
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func made(kind, key string, o Object) Object {
	namespace, name, _ := strings.Cut(key, "/")
	o["apiVersion"], o["kind"] = "v1", kind
	o["metadata"] = map[string]any{"namespace": namespace, "name": name}
	return o
}
