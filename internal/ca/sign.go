package ca

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"net/url"
	"time"

	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// backdate is how far before now a certificate becomes valid, for clocks that differ.
const backdate = 2 * time.Minute

// sign issues an SVID. Everything in it comes from the template: of the requester's own
// material only the public key is used.
func (i *issuer) sign(req svid.Request, ttl time.Duration, now time.Time) (*x509.Certificate, error) {
	tmpl := &x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{req.ID.URL()}, // critical, as the subject is empty
	}
	if !req.Pod.IsZero() {
		ext, err := spiffeid.MarshalPod(req.Pod)
		if err != nil {
			return nil, err
		}
		tmpl.ExtraExtensions = []pkix.Extension{ext}
	}
	return i.create(tmpl, req.PublicKey, ttl, now)
}

// create issues one leaf, which lives no longer than the issuer. The template has whose it is,
// and what it is for.
func (i *issuer) create(tmpl *x509.Certificate, key crypto.PublicKey, ttl time.Duration, now time.Time) (*x509.Certificate, error) {
	var err error
	if tmpl.SubjectKeyId, err = keyID(key); err != nil {
		return nil, err
	}
	tmpl.NotBefore, tmpl.NotAfter = now.Add(-backdate), now.Add(ttl)
	if tmpl.NotAfter.After(i.notAfter) {
		tmpl.NotAfter = i.notAfter
	}
	tmpl.SerialNumber = newSerial()
	tmpl.BasicConstraintsValid = true // CA:FALSE
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.AuthorityKeyId = i.keyID
	der, err := x509.CreateCertificate(rand.Reader, tmpl, i.chain[0], key, i.key)
	if err != nil {
		return nil, fmt.Errorf("create certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read certificate back: %w", err)
	}
	return leaf, nil
}

// issued is what the holder of a leaf receives.
func (i *issuer) issued(leaf *x509.Certificate) svid.Issued {
	chain := [][]byte{leaf.Raw}
	for _, c := range i.chain[:len(i.chain)-1] {
		chain = append(chain, c.Raw)
	}
	return svid.Issued{
		Chain:    chain,
		NotAfter: leaf.NotAfter,
		Serial:   fmt.Sprintf("%032x", leaf.SerialNumber),
		KeyID:    hex.EncodeToString(i.keyID),
	}
}
