package identity

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"aether.io/aether/internal/svid"
)

// SVID is an identity with its private key. It is immutable, and it cannot be printed,
// logged or encoded with its key: all of these give what is public.
type SVID struct {
	svid     *x509svid.SVID
	wire     uint32
	sequence uint64
}

// ID is the SPIFFE ID.
func (s *SVID) ID() spiffeid.ID { return s.svid.ID }

// NotBefore is when the SVID begins to be valid.
func (s *SVID) NotBefore() time.Time { return s.svid.Certificates[0].NotBefore }

// NotAfter is when the SVID expires.
func (s *SVID) NotAfter() time.Time { return s.svid.Certificates[0].NotAfter }

// Serial is the leaf's, as svid.Serial writes it.
func (s *SVID) Serial() string { return svid.Serial(s.svid.Certificates[0]) }

// IssuerKeyID is the authority key identifier, lower-case hexadecimal.
func (s *SVID) IssuerKeyID() string { return hex.EncodeToString(s.svid.Certificates[0].AuthorityKeyId) }

// ServerWireVersion is the wire version of the controller that issued the SVID.
func (s *SVID) ServerWireVersion() uint32 { return s.wire }

// Sequence counts the SVIDs of one Source: 1 for its first.
func (s *SVID) Sequence() uint64 { return s.sequence }

// ExpiredAt reports whether the SVID has expired at a time.
func (s *SVID) ExpiredAt(now time.Time) bool { return now.After(s.NotAfter()) }

// String names the identity and its serial.
func (s *SVID) String() string { return s.ID().String() + " serial " + s.Serial() }

// GoString is String.
func (s *SVID) GoString() string { return s.String() }

// Format writes String for every verb: package fmt would look through the fields.
func (s *SVID) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText gives String.
func (s *SVID) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String.
func (s *SVID) LogValue() slog.Value { return slog.StringValue(s.String()) }

// What can be wrong with an SVID that the controller has sent.
var (
	ErrMalformed   = errors.New("malformed SVID")
	ErrWrongDomain = errors.New("SVID of a foreign trust domain")
	ErrNotValidNow = errors.New("SVID not valid now")
)

// verify checks that an SVID whose chain go-spiffe has parsed, and whose key it has
// found to be ours, is one that we may use.
func verify(got *x509svid.SVID, td spiffeid.TrustDomain, now time.Time) error {
	leaf := got.Certificates[0]
	switch {
	case !got.ID.MemberOf(td):
		return fmt.Errorf("%w: %s", ErrWrongDomain, got.ID)
	case now.Before(leaf.NotBefore) || now.After(leaf.NotAfter):
		return fmt.Errorf("%w: from %s to %s", ErrNotValidNow, leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339))
	}
	for i, cert := range got.Certificates[:len(got.Certificates)-1] {
		if err := cert.CheckSignatureFrom(got.Certificates[i+1]); err != nil {
			return fmt.Errorf("%w: certificate %d of the chain: %w", ErrMalformed, i, err)
		}
	}
	return nil
}
