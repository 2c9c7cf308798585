package spiffeid

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"

	"golang.org/x/crypto/cryptobyte"
	cbasn1 "golang.org/x/crypto/cryptobyte/asn1"
)

// maxPodField bounds each text of a Pod, in bytes: the longest Kubernetes name.
const maxPodField = 253

// Errors that callers and tests tell apart.
var (
	// ErrNoPod is returned for a certificate without the pod extension.
	ErrNoPod = errors.New("certificate names no pod")
	// ErrMalformedPod is returned for a pod that cannot be encoded, or an extension
	// that is not exactly its encoding.
	ErrMalformedPod = errors.New("malformed pod extension")
)

// Pod is the pod that a certificate was issued to, as its token proved. The zero Pod
// is no pod. Node may be empty where the platform does not say.
type Pod struct {
	Name string
	UID  string
	Node string
}

// IsZero reports whether p is no pod.
func (p Pod) IsZero() bool { return p == Pod{} }

// Validate returns ErrMalformedPod unless name and UID are present and every text is
// at most 253 bytes of printable ASCII without spaces, so that it may stand in logs.
func (p Pod) Validate() error {
	if p.Name == "" || p.UID == "" {
		return fmt.Errorf("%w: name or UID is empty", ErrMalformedPod)
	}
	for _, s := range []string{p.Name, p.UID, p.Node} {
		if len(s) > maxPodField {
			return fmt.Errorf("%w: text of %d bytes", ErrMalformedPod, len(s))
		}
		for i := range len(s) {
			if s[i] <= ' ' || s[i] > '~' {
				return fmt.Errorf("%w: byte %#02x", ErrMalformedPod, s[i])
			}
		}
	}
	return nil
}

// PodExtensionOID is the extension's identifier, 2.25.1613965065. Under 2.25 (ITU-T
// X.667) the arc is a UUID read as a number; crypto/x509 cannot read a certificate
// that has an extension with an arc of more than 31 bits, so ours is short: the first
// 32 bits of SHA-256("aether.io/aether pod identity extension"), shifted right by one.
func PodExtensionOID() asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 25, 1613965065} }

// MarshalPod encodes p as a non-critical extension: SEQUENCE { name, UID, node }, each
// a UTF8String.
func MarshalPod(p Pod) (pkix.Extension, error) {
	if err := p.Validate(); err != nil {
		return pkix.Extension{}, err
	}
	var b cryptobyte.Builder
	b.AddASN1(cbasn1.SEQUENCE, func(b *cryptobyte.Builder) {
		for _, s := range []string{p.Name, p.UID, p.Node} {
			b.AddASN1(cbasn1.UTF8String, func(b *cryptobyte.Builder) { b.AddBytes([]byte(s)) })
		}
	})
	der, err := b.Bytes()
	if err != nil {
		return pkix.Extension{}, fmt.Errorf("encode pod %s: %w", p.Name, err)
	}
	return pkix.Extension{Id: PodExtensionOID(), Value: der}, nil
}

// PodFromCertificate reads the pod of a certificate: ErrNoPod if it names none,
// ErrMalformedPod if what it says is not exactly what MarshalPod writes.
func PodFromCertificate(cert *x509.Certificate) (Pod, error) {
	oid := PodExtensionOID()
	for _, ext := range cert.Extensions {
		if ext.Id.Equal(oid) {
			return parsePod(ext.Value)
		}
	}
	return Pod{}, ErrNoPod
}

func parsePod(der []byte) (Pod, error) {
	input := cryptobyte.String(der)
	var seq, name, uid, node cryptobyte.String
	if !input.ReadASN1(&seq, cbasn1.SEQUENCE) || !input.Empty() ||
		!seq.ReadASN1(&name, cbasn1.UTF8String) ||
		!seq.ReadASN1(&uid, cbasn1.UTF8String) ||
		!seq.ReadASN1(&node, cbasn1.UTF8String) || !seq.Empty() {
		return Pod{}, fmt.Errorf("%w: not a sequence of three UTF8Strings", ErrMalformedPod)
	}
	p := Pod{Name: string(name), UID: string(uid), Node: string(node)}
	if err := p.Validate(); err != nil {
		return Pod{}, err
	}
	return p, nil
}
