package verdict

import (
	"crypto/x509"
	"testing"
	"time"

	"aether.io/aether/internal/test/keypair"
)

// authority is a certificate that is valid for so long, as PEM.
func authority(t *testing.T, valid time.Duration) string {
	t.Helper()
	now := time.Now()
	return string(keypair.New(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(valid)}, nil).CertPEM())
}
