package bootstrap

import (
	"context"
	"fmt"

	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// Gateways knows the dedicated Gateways.
type Gateways interface {
	// HasAccount reports whether a live dedicated Gateway of ours in the namespace runs
	// under the service account {gateway}-{class}.
	HasAccount(namespace, account string) bool
}

// Owners knows whose pods are.
type Owners interface {
	// Owned returns nil if the workload's pod is one of those that run the proxies of the
	// dedicated Gateway under whose account it runs, svid.ErrNotAllowed if it is another
	// one; any other error says that it cannot be known now.
	Owned(ctx context.Context, w svid.Workload) error
}

// AllowList says who may have an SVID: the shared proxies of the release, and the
// proxies of live dedicated Gateways.
type AllowList struct {
	ReleaseNamespace string
	Gateways         Gateways // nil: there are no dedicated Gateways
	// Owners has the last word on proxies of dedicated Gateways. Nil: who has such an account
	// is one, as where no pods are.
	Owners Owners
}

// Allow returns nil or svid.ErrNotAllowed. The controller's own ID is never given out,
// whatever a Gateway may be called: with it one could pose as the controller.
func (l AllowList) Allow(ctx context.Context, w svid.Workload) error {
	release := w.Namespace == l.ReleaseNamespace
	switch {
	case release && w.ServiceAccount == spiffeid.ControllerAccount:
		return fmt.Errorf("%w: it is the controller's", svid.ErrNotAllowed)
	case release && w.ServiceAccount == spiffeid.SharedProxyAccount:
		return nil
	case l.Gateways != nil && l.Gateways.HasAccount(w.Namespace, w.ServiceAccount):
		if l.Owners == nil {
			return nil
		}
		return l.Owners.Owned(ctx, w)
	}
	return fmt.Errorf("%w: no shared proxy and no live dedicated Gateway", svid.ErrNotAllowed)
}
