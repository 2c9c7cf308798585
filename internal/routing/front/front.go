// Package front names the Service in front of a shared Gateway and reads what it says: the
// internal ports to which it maps the Gateway's, and the addresses at which it is reached.
// The Service is the record of both. Who makes it is package provision.
package front

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"aether.io/aether/internal/routing/key"
)

// The internal ports: what an unprivileged process may bind, below those from which the
// kernel takes the ports of outgoing connections.
const (
	FirstPort = 10000
	LastPort  = 32767
)

const (
	// FieldManager is whose fields of Services are ours.
	FieldManager = "aether-controller"
	// ManagedByLabel is on everything that we make, with FieldManager as its value.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// OfAnnotation is the Gateway that a Service is of, <namespace>/<name>: a label's value
	// may be too short for it.
	OfAnnotation = "config.aether.io/gateway"

	maxServiceName = 63
)

// Front is a shared Gateway of ours and what is wanted in front of it.
type Front struct {
	Gateway key.Name
	Class   string
	Ports   []uint32 // of its accepted listeners, sorted

	Type                  corev1.ServiceType
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy // empty: the default
	LoadBalancerClass     string                              // empty: the cluster's own
	Labels                map[string]string                   // of spec.infrastructure
	Annotations           map[string]string                   // of spec.infrastructure and of its parameters
	Address               string                              // the IP that is asked for; empty: any
}

// Name is the Service's: {ns}-{gateway}-{class}, or something like it and a hash where a Service
// cannot be called so: its name is a DNS label (RFC 1035) of at most 63 characters.
func Name(gw key.Name, class string) string {
	name := gw.Namespace + "-" + gw.Name + "-" + class
	if len(validation.IsDNS1035Label(name)) == 0 {
		return name
	}
	like := strings.ReplaceAll(name, ".", "-")
	if like[0] < 'a' { // a namespace may begin with a digit
		like = "ns-" + like
	}
	return Cut(like, gw.Namespace+"/"+gw.Name+"/"+class, maxServiceName)
}

// Cut is the beginning of name and a hash of what it stands for.
func Cut(name, whole string, limit int) string {
	sum := sha256.Sum256([]byte(whole))
	hash := "-" + hex.EncodeToString(sum[:5])
	return strings.TrimRight(name[:min(len(name), limit-len(hash))], "-") + hash
}

// Ours reports whether a Service is the one that we made for a Gateway.
func Ours(s *corev1.Service, gw key.Name) bool {
	return s.Labels[ManagedByLabel] == FieldManager && s.Annotations[OfAnnotation] == gw.String()
}

// Ports is the internal port of each of a Gateway's ports, as its Service has them.
func Ports(s *corev1.Service) map[uint32]uint32 {
	out := map[uint32]uint32{}
	for _, p := range s.Spec.Ports {
		if in := p.TargetPort.IntValue(); p.Port > 0 && in >= FirstPort && in <= LastPort {
			out[uint32(p.Port)] = uint32(in)
		}
	}
	return out
}

// Addresses is where a Service is reached: the addresses of its load balancer, IPs or host
// names, or its own in the cluster if it has none to wait for. Empty: it is not known yet.
func Addresses(s *corev1.Service) []string {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return slices.DeleteFunc(slices.Clone(s.Spec.ClusterIPs), func(ip string) bool { return ip == corev1.ClusterIPNone })
	}
	var out []string
	for _, in := range s.Status.LoadBalancer.Ingress {
		switch {
		case in.IP != "":
			out = append(out, in.IP)
		case in.Hostname != "":
			out = append(out, in.Hostname)
		}
	}
	return out
}
