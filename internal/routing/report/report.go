// Package report writes the statuses of objects as far as objects decide them. It is
// given what was found out and finds out nothing. A condition that only observation can
// decide is Unknown here, and comes with the requirements that must be observed.
package report

import (
	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// Status is what is to be said of one object.
type Status struct {
	Key        object.Key
	Generation int64 // of the newest object, also while an older one is in effect
	// UID is the newest object's: what is said of it must not be taken for what is said of
	// another of the same name. Empty of one that is gone, and where the source gives none.
	UID types.UID
	// Value is *gatewayv1.GatewayClassStatus, *gatewayv1.GatewayStatus, *gatewayv1.ListenerSetStatus, *gatewayv1.HTTPRouteStatus
	// (only the parents that are ours), *gatewayv1.PolicyStatus (only the ancestors that are
	// ours) or *configv1.MeshConfigStatus. It is immutable and
	// no condition in it has a lastTransitionTime. Nil: the object is gone, or no longer ours.
	Value any
	// Refused is why the newest object is not in effect, for people, with what is instead: of
	// a MeshConfig only. Live is then what must be live for that.
	Refused string
	Live    []Requirement // what must be live in proxies for the parts of it to be in effect
}

// Requirement is what proxies must run for one part of a status to be in effect.
type Requirement struct {
	Scope     scope.Scope
	Section   string          // Gateway, ListenerSet: the listener's name; <namespace>/<listenerset>/<name> if it is not its own
	Parent    int             // HTTPRoute: index in Value.Parents
	Resources []resource.Name // sorted
	Port      uint32          // must be bound; 0: none
}
