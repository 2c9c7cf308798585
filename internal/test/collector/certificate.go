package collector

import (
	"crypto/x509"
	"testing"

	"aether.io/aether/internal/test/keypair"
)

// Certificate makes an authority and a certificate of it for a DNS name, as PEM.
func Certificate(t *testing.T, name string) (cert, key, ca []byte) {
	t.Helper()
	authority := keypair.Authority(t, "collector's authority", nil)
	own := keypair.New(t, &x509.Certificate{
		DNSNames: []string{name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, authority)
	return own.CertPEM(), own.KeyPEM(t), authority.CertPEM()
}
