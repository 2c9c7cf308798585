package server

import (
	"fmt"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/spiffeid"
)

// Gateways knows the live Gateways of ours that have proxies of their own.
type Gateways interface {
	// Dedicated returns the class of the dedicated Gateway of that name; ok is false if
	// there is none.
	Dedicated(namespace, name string) (class string, ok bool)
}

// Rule says whose identity a scope requires: the shared pool's is the shared proxy of
// the release, a dedicated Gateway's the account {gateway}-{class} in its namespace.
type Rule struct {
	TrustDomain      spiffeid.TrustDomain
	ReleaseNamespace string
	Gateways         Gateways // nil: there are no dedicated Gateways
}

// Authorize implements Authorizer.
func (r Rule) Authorize(p fleet.Peer, s scope.Scope) error {
	want, err := r.required(s)
	if err != nil {
		return err
	}
	if p.Identity == "" || p.Identity != want.String() {
		return fmt.Errorf("%s requires %s", s, want)
	}
	return nil
}

func (r Rule) required(s scope.Scope) (spiffeid.ID, error) {
	if s.IsSharedPool() {
		return spiffeid.ForServiceAccount(r.TrustDomain, r.ReleaseNamespace, spiffeid.SharedProxyAccount)
	}
	namespace, name, ok := s.GatewayName()
	if !ok {
		return spiffeid.ID{}, scope.ErrInvalid
	}
	class, ok := "", false
	if r.Gateways != nil {
		class, ok = r.Gateways.Dedicated(namespace, name)
	}
	if !ok {
		return spiffeid.ID{}, fmt.Errorf("%s is no live dedicated Gateway of ours", s)
	}
	account, err := spiffeid.DedicatedAccount(name, class)
	if err != nil {
		return spiffeid.ID{}, err
	}
	// A Gateway whose name and class happen to give one of our own accounts has no proxies.
	if namespace == r.ReleaseNamespace && (account == spiffeid.SharedProxyAccount || account == spiffeid.ControllerAccount) {
		return spiffeid.ID{}, fmt.Errorf("%s would run as %s", s, account)
	}
	return spiffeid.ForServiceAccount(r.TrustDomain, namespace, account)
}
