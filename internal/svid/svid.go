// Package svid holds the words in which attestation, the bootstrap server, the CA and
// the proxies speak of issuing SVIDs: tokens, workloads, certificate requests, what was
// issued, sets of roots, and the errors on which callers branch. It signs nothing, keeps
// nothing and reads no clock; the engines that use it need not know each other.
package svid

import (
	"crypto"
	"errors"
	"time"

	"aether.io/aether/internal/spiffeid"
)

// Errors on which callers branch.
var (
	// ErrUnauthenticated says that a token proves nobody: unknown, expired, or for
	// another audience.
	ErrUnauthenticated = errors.New("token not accepted")
	// ErrNotAllowed says that an identity was proved but may not have an SVID.
	ErrNotAllowed = errors.New("identity may not have an SVID")
	// ErrUnusable says that the CA cannot sign now.
	ErrUnusable = errors.New("CA unusable")
)

// Workload is who a token stands for.
type Workload struct {
	Namespace      string
	ServiceAccount string
	Pod            spiffeid.Pod
}

// ID is the workload's SPIFFE ID in a trust domain.
func (w Workload) ID(td spiffeid.TrustDomain) (spiffeid.ID, error) {
	return spiffeid.ForServiceAccount(td, w.Namespace, w.ServiceAccount)
}

// Request asks for an SVID.
type Request struct {
	ID        spiffeid.ID
	Pod       spiffeid.Pod     // zero for none
	PublicKey crypto.PublicKey // must pass CheckKey
}

// Issued is a new SVID.
type Issued struct {
	Chain    [][]byte // DER, leaf first, then the intermediates; without the root
	NotAfter time.Time
	Serial   string // lower-case hexadecimal
	KeyID    string // of the issuer's key, lower-case hexadecimal
}
