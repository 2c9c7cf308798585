// Package spiffeid holds Aether's naming rules on top of go-spiffe's IDs: which ID
// a service account has, which accounts are ours, and how a leaf certificate names
// the pod it was issued to. It verifies no chain and holds no key; certificates
// come in as parsed values and leave as identities.
package spiffeid

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ID is go-spiffe's, so that users of this package need not import two of one name.
type ID = spiffeid.ID

// TrustDomain is go-spiffe's.
type TrustDomain = spiffeid.TrustDomain

// The service accounts whose names are fixed.
const (
	SharedProxyAccount = "coxswain-shared-proxy"
	ControllerAccount  = "aether-controller"
)

// Errors that callers and tests tell apart.
var (
	// ErrNotServiceAccount is returned for an ID that is not exactly
	// spiffe://<trust domain>/ns/<namespace>/sa/<service account>.
	ErrNotServiceAccount = errors.New("not the ID of a service account")
	// ErrTrustDomain is returned for an ID of another trust domain than ours.
	ErrTrustDomain = errors.New("foreign trust domain")
	// ErrNameTooLong is returned for a dedicated Gateway whose account would pass
	// the 253 bytes that a Kubernetes name may have.
	ErrNameTooLong = errors.New("service account name longer than 253 bytes")
)

// ParseTrustDomain reads a bare trust domain name such as "cluster.local". Unlike
// go-spiffe it does not accept an ID in its place.
func ParseTrustDomain(name string) (TrustDomain, error) {
	td, err := spiffeid.TrustDomainFromString(name)
	if err != nil {
		return TrustDomain{}, fmt.Errorf("trust domain %q: %w", name, err)
	}
	if td.Name() != name {
		return TrustDomain{}, fmt.Errorf("trust domain %q: want a name alone", name)
	}
	return td, nil
}

// ForServiceAccount is spiffe://td/ns/namespace/sa/account. The namespace must be an
// RFC 1123 label and the account an RFC 1123 subdomain, as Kubernetes has them.
func ForServiceAccount(td TrustDomain, namespace, account string) (ID, error) {
	if err := CheckAccount(namespace, account); err != nil {
		return ID{}, err
	}
	id, err := spiffeid.FromSegments(td, "ns", namespace, "sa", account)
	if err != nil {
		return ID{}, fmt.Errorf("ID of service account %s/%s: %w", namespace, account, err)
	}
	return id, nil
}

// Controller is the ID of the controller of a release.
func Controller(td TrustDomain, releaseNamespace string) (ID, error) {
	return ForServiceAccount(td, releaseNamespace, ControllerAccount)
}

// Parse returns the namespace and service account of an ID, or ErrNotServiceAccount.
func Parse(id ID) (namespace, account string, err error) {
	part := strings.Split(id.Path(), "/")
	if len(part) != 5 || part[0] != "" || part[1] != "ns" || part[3] != "sa" {
		return "", "", fmt.Errorf("%q: %w", id, ErrNotServiceAccount)
	}
	if err := CheckAccount(part[2], part[4]); err != nil {
		return "", "", err
	}
	return part[2], part[4], nil
}

// DedicatedAccount is the service account of a dedicated Gateway: {gateway}-{class}.
// It is always the literal name; ErrNameTooLong says that it does not exist.
func DedicatedAccount(gateway, class string) (string, error) {
	name := gateway + "-" + class
	if len(name) > validation.DNS1123SubdomainMaxLength {
		return "", fmt.Errorf("gateway %s of class %s: %w", gateway, class, ErrNameTooLong)
	}
	return name, nil
}

// CheckAccount returns ErrNotServiceAccount unless the namespace is an RFC 1123 label and
// the account an RFC 1123 subdomain.
func CheckAccount(namespace, account string) error {
	if msg := validation.IsDNS1123Label(namespace); len(msg) > 0 {
		return fmt.Errorf("namespace %q: %w", namespace, ErrNotServiceAccount)
	}
	if msg := validation.IsDNS1123Subdomain(account); len(msg) > 0 {
		return fmt.Errorf("service account %q: %w", account, ErrNotServiceAccount)
	}
	return nil
}
