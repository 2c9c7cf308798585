package spiffeid

import (
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ErrNotSVID is returned for a certificate that is not the leaf of an X.509 SVID as
// we issue them.
var ErrNotSVID = errors.New("not an X.509 SVID")

// Identity is what a leaf certificate says of its holder. It proves nothing until the
// certificate's chain has been verified.
type Identity struct {
	ID             ID
	Namespace      string
	ServiceAccount string
	Pod            Pod // zero if the certificate names none, as the controller's
}

// PeerFromCertificate reads the identity of a leaf whose chain the caller has verified.
// It is strict: no CA, exactly one URI SAN, of a service account of td, and a pod
// extension that is absent or well formed.
//
// See https://github.com/spiffe/spiffe/blob/main/standards/X509-SVID.md sections 2 and 5.
func PeerFromCertificate(td TrustDomain, cert *x509.Certificate) (Identity, error) {
	switch {
	case cert.IsCA || cert.KeyUsage&(x509.KeyUsageCertSign|x509.KeyUsageCRLSign) != 0:
		return Identity{}, fmt.Errorf("%w: may sign certificates", ErrNotSVID)
	case cert.KeyUsage&x509.KeyUsageDigitalSignature == 0:
		return Identity{}, fmt.Errorf("%w: may not sign", ErrNotSVID)
	case len(cert.URIs) != 1:
		return Identity{}, fmt.Errorf("%w: %d URI SANs", ErrNotSVID, len(cert.URIs))
	}
	id, err := spiffeid.FromURI(cert.URIs[0])
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrNotSVID, err)
	}
	if !id.MemberOf(td) {
		return Identity{}, fmt.Errorf("%s: %w", id, ErrTrustDomain)
	}
	namespace, account, err := Parse(id)
	if err != nil {
		return Identity{}, err
	}
	pod, err := PodFromCertificate(cert)
	if err != nil && !errors.Is(err, ErrNoPod) {
		return Identity{}, fmt.Errorf("%s: %w", id, err)
	}
	return Identity{ID: id, Namespace: namespace, ServiceAccount: account, Pod: pod}, nil
}
