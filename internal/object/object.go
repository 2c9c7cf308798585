// Package object names configuration objects and the changes to them, in the one
// form in which every source (Kubernetes, a directory) hands them to the routing graph.
// It holds no object and reads none.
package object

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is the kind of a configuration object. One name stands for one API group:
// Aether reads no two kinds of the same name.
type Kind string

// The kinds that Aether reads.
const (
	GatewayClass      Kind = "GatewayClass"
	Gateway           Kind = "Gateway"
	ListenerSet       Kind = "ListenerSet"
	HTTPRoute         Kind = "HTTPRoute"
	ReferenceGrant    Kind = "ReferenceGrant"
	Namespace         Kind = "Namespace"
	Service           Kind = "Service"
	EndpointSlice     Kind = "EndpointSlice"
	Secret            Kind = "Secret"
	ConfigMap         Kind = "ConfigMap"
	MeshConfig        Kind = "MeshConfig"
	GatewayParameters Kind = "GatewayParameters"
	BackendTLSPolicy  Kind = "BackendTLSPolicy"
)

// Kinds lists every kind in the order in which they are best applied: what is
// referred to before what refers to it.
func Kinds() []Kind {
	return []Kind{
		Namespace, GatewayClass, GatewayParameters, MeshConfig, ReferenceGrant,
		Secret, ConfigMap, BackendTLSPolicy, Service, EndpointSlice, Gateway, ListenerSet, HTTPRoute,
	}
}

// Namespaced reports whether objects of the kind live in a namespace.
func (k Kind) Namespaced() bool { return k != GatewayClass && k != Namespace }

// Key names one object. Namespace is empty for kinds that are not namespaced.
type Key struct {
	Kind      Kind
	Namespace string
	Name      string
}

// String is Kind/namespace/name, or Kind/name without a namespace.
func (k Key) String() string {
	if k.Namespace == "" {
		return string(k.Kind) + "/" + k.Name
	}
	return string(k.Kind) + "/" + k.Namespace + "/" + k.Name
}

// ParseKey reads what String wrote.
func ParseKey(s string) (Key, error) {
	part := strings.Split(s, "/")
	switch {
	case len(part) == 2 && part[0] != "" && part[1] != "":
		return Key{Kind: Kind(part[0]), Name: part[1]}, nil
	case len(part) == 3 && part[0] != "" && part[1] != "" && part[2] != "":
		return Key{Kind: Kind(part[0]), Namespace: part[1], Name: part[2]}, nil
	}
	return Key{}, fmt.Errorf("object key %q: want Kind/name or Kind/namespace/name", s)
}

// Compare orders keys by kind, namespace, name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// Object is a typed API object. It is immutable once it has left its source.
type Object interface {
	metav1.Object
	runtime.Object
}

// Change says that the object of that key is now Object, or that there is none if Object
// is nil.
type Change struct {
	Key    Key
	Object Object
	// Refused is why what is written under the key now is not Object: it was not admitted,
	// and the last version that was stays in effect, if there ever was one. Empty: Object
	// is what is written.
	Refused string
	// Generation and UID are of what is written, if that is refused and they are known.
	Generation int64
	UID        types.UID
	// Implied says that nobody wrote, or took away, the object: it is there, or was, because
	// others are in it.
	Implied bool
}
