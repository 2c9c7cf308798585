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

// AllowList says who may have an SVID: the shared proxies of the release, and the
// proxies of live dedicated Gateways.
type AllowList struct {
	ReleaseNamespace string
	Gateways         Gateways // nil: there are no dedicated Gateways
}

// Allow returns nil or svid.ErrNotAllowed. The controller's own ID is never given out,
// whatever a Gateway may be called: with it one could pose as the controller.
func (l AllowList) Allow(_ context.Context, w svid.Workload) error {
	release := w.Namespace == l.ReleaseNamespace
	switch {
	case release && w.ServiceAccount == spiffeid.ControllerAccount:
		return fmt.Errorf("%w: it is the controller's", svid.ErrNotAllowed)
	case release && w.ServiceAccount == spiffeid.SharedProxyAccount:
		return nil
	case l.Gateways != nil && l.Gateways.HasAccount(w.Namespace, w.ServiceAccount):
		return nil
	}
	return fmt.Errorf("%w: no shared proxy and no live dedicated Gateway", svid.ErrNotAllowed)
}
