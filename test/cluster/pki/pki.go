// Package pki makes the certificates of a test cluster: one authority, a certificate for
// each of its programs and people, the key of its service accounts, and kubeconfigs. All
// are files in one folder. What is there and still good is used again, so that a cluster
// that is started again is the same one.
package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"aether.io/aether/internal/atomicfile"
)

const (
	lifetime = 365 * 24 * time.Hour
	// margin is how much lifetime a certificate must have left to be used again.
	margin = 30 * 24 * time.Hour
)

// Authority signs everything in a cluster.
type Authority struct {
	dir  string
	cert *x509.Certificate
	pem  []byte
	key  crypto.Signer
}

// Pair is a certificate and its key, PEM files.
type Pair struct{ CertFile, KeyFile string }

// Subject is who a certificate is for. It is good for both ends of a connection: most of
// a cluster's programs are both.
type Subject struct {
	CommonName    string   // the user's name
	Organizations []string // the user's groups
	Hosts         []string // DNS names and addresses
}

// Open reads the authority in dir, or makes dir and an authority in it.
func Open(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &Authority{dir: dir}
	pair := a.Pair()
	loaded, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = a.create(pair)
	case err == nil && time.Until(loaded.Leaf.NotAfter) < margin:
		err = a.create(pair)
	case err == nil:
		a.cert, a.key = loaded.Leaf, loaded.PrivateKey.(crypto.Signer)
		a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	}
	if err != nil {
		return nil, fmt.Errorf("open the authority in %s: %w", dir, err)
	}
	return a, nil
}

func (a *Authority) create(pair Pair) error {
	key, err := newKey(pair.KeyFile)
	if err != nil {
		return err
	}
	template := template(Subject{CommonName: "aether-test-cluster"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = nil
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	a.key = key
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return atomicfile.Write(pair.CertFile, a.pem, 0o644)
}

// Pair is the authority's own.
func (a *Authority) Pair() Pair { return a.pair("ca") }

// PEM is the authority's certificate.
func (a *Authority) PEM() []byte { return slices.Clone(a.pem) }

func (a *Authority) pair(name string) Pair {
	return Pair{filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")}
}

// Issue returns a certificate for the subject, in files of the name.
func (a *Authority) Issue(name string, s Subject) (Pair, error) {
	pair := a.pair(name)
	if a.good(pair, s) {
		return pair, nil
	}
	key, err := newKey(pair.KeyFile)
	if err != nil {
		return Pair{}, fmt.Errorf("issue %s: %w", name, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template(s), a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("issue %s: %w", name, err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return pair, atomicfile.Write(pair.CertFile, text, 0o644)
}

// good reports whether the pair is there, for the subject, from this authority, and will last.
func (a *Authority) good(pair Pair, s Subject) bool {
	loaded, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil || loaded.Leaf.CheckSignatureFrom(a.cert) != nil || time.Until(loaded.Leaf.NotAfter) < margin {
		return false
	}
	got, want := loaded.Leaf, template(s)
	return got.Subject.CommonName == want.Subject.CommonName &&
		slices.Equal(got.Subject.Organization, want.Subject.Organization) &&
		slices.Equal(got.DNSNames, want.DNSNames) &&
		slices.EqualFunc(got.IPAddresses, want.IPAddresses, net.IP.Equal)
}

func template(s Subject) *x509.Certificate {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // it never fails
	c := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial),
		Subject:      pkix.Name{CommonName: s.CommonName, Organization: s.Organizations},
		NotBefore:    time.Now().Add(-time.Hour), // a clock may be behind
		NotAfter:     time.Now().Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range s.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return c
}

// Key returns the file of a key without a certificate, as service accounts' tokens are
// signed with. It is made once.
func (a *Authority) Key(name string) (string, error) {
	path := a.pair(name).KeyFile
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	_, err := newKey(path)
	return path, err
}

// newKey writes a new key, in the form that Kubernetes also takes for service accounts.
func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, atomicfile.Write(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// Kubeconfig issues a certificate of the name for the user and writes a kubeconfig to path
// that has all it needs within: it may be copied anywhere. server is the API server's URL.
func (a *Authority) Kubeconfig(path, name, server string, user Subject) error {
	pair, err := a.Issue(name, user)
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(pair.CertFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(pair.KeyFile)
	if err != nil {
		return err
	}
	type object = map[string]any
	text, err := json.MarshalIndent(object{ // JSON is YAML
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": "aether",
		"clusters":        []object{{"name": "aether", "cluster": object{"server": server, "certificate-authority-data": a.pem}}},
		"users":           []object{{"name": user.CommonName, "user": object{"client-certificate-data": cert, "client-key-data": key}}},
		"contexts":        []object{{"name": "aether", "context": object{"cluster": "aether", "user": user.CommonName}}},
	}, "", "  ")
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	return atomicfile.Write(path, text, 0o600)
}
