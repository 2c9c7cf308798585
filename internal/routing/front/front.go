// Package front says what is wanted in front of a Gateway: a Service that maps its ports to
// internal ones and has its addresses and, behind it, the shared proxies or proxies of its
// own. The Service is the record of ports and addresses, of how the Gateway was served
// last, and of how far a change between shared and dedicated proxies has come: this
// package names and reads it. Who makes it is package provision.
package front

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/routing/key"
)

// The internal ports: what an unprivileged process may bind, below those from which the
// kernel takes the ports of outgoing connections.
const (
	FirstPort = 10000
	LastPort  = 32767
)

const (
	// FieldManager is whose fields of objects are ours.
	FieldManager = "aether-controller"
	// ManagedByLabel is on everything that we make, with FieldManager as its value.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// OfAnnotation is the Gateway that an object is of, <namespace>/<name>: a label's value
	// may be too short for it.
	OfAnnotation = "config.aether.io/gateway"
	// ParametersAnnotation is the part of the parameters by which the Gateway is served, for
	// when they cannot be read.
	ParametersAnnotation = "config.aether.io/parameters"
	// SupersededAnnotation is since when (RFC 3339) the Gateway's other Service is the one
	// that counts. Both are served and published.
	SupersededAnnotation = "config.aether.io/superseded-at"
	// RetiredAnnotation is since when (RFC 3339) a superseded Service is not published any
	// more. It is still served, for those who read its address before.
	RetiredAnnotation = "config.aether.io/retired-at"
)

// Front is a Gateway of ours and what is wanted in front of it. It never depends on what is
// there.
type Front struct {
	Gateway key.Name
	Class   string
	UID     types.UID // of the Gateway
	// Keep says that nothing is wanted but that what is there stays as it is: the Gateway
	// cannot be read as it is now.
	Keep      bool
	Dedicated bool     // it has proxies of its own
	Ports     []uint32 // of its accepted listeners, sorted

	Type                  corev1.ServiceType
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy // empty: the default
	LoadBalancerClass     string                              // empty: the cluster's own
	Labels                map[string]string                   // of spec.infrastructure
	Annotations           map[string]string                   // of spec.infrastructure
	ServiceAnnotations    map[string]string                   // of its parameters; those of spec.infrastructure win
	Address               string                              // the IP that is asked for; empty: any

	Parameters string  // ParametersAnnotation
	Proxies    Proxies // its own
}

// Proxies is how the proxies of a dedicated Gateway are run.
type Proxies struct {
	Replicas     *int32 // one of Replicas and Autoscaling is set
	Autoscaling  *configv1.Autoscaling
	Pod          configv1.PodTemplate // what of it is allowed
	DrainSeconds int32
	Dropped      []string // what of it is not, for people
}
