// Package scope names the audiences of configuration: who receives one world of resources.
// A scope is an opaque value; the zero Scope is no scope and is refused wherever one is needed.
package scope

import "errors"

// ErrInvalid is returned where a scope is absent or incomplete.
var ErrInvalid = errors.New("scope is absent or empty")

type kind uint8

const (
	none kind = iota
	sharedPool
	gateway
)

// Scope is one audience: the shared pool of proxies, or one dedicated Gateway.
type Scope struct {
	kind            kind
	namespace, name string
}

// SharedPool is the scope of the proxies that serve every Gateway that is not dedicated.
func SharedPool() Scope { return Scope{kind: sharedPool} }

// Gateway is the scope of one dedicated Gateway. Both parts are required.
func Gateway(namespace, name string) (Scope, error) {
	if namespace == "" || name == "" {
		return Scope{}, ErrInvalid
	}
	return Scope{kind: gateway, namespace: namespace, name: name}, nil
}

// IsZero reports whether s is no scope.
func (s Scope) IsZero() bool { return s.kind == none }

// IsSharedPool reports whether s is the shared pool.
func (s Scope) IsSharedPool() bool { return s.kind == sharedPool }

// GatewayName returns the dedicated Gateway's namespace and name; ok is false for other scopes.
func (s Scope) GatewayName() (namespace, name string, ok bool) {
	return s.namespace, s.name, s.kind == gateway
}

// Kind is "SharedPool", "Gateway" or "" and is fit for a metric label.
func (s Scope) Kind() string {
	switch s.kind {
	case sharedPool:
		return "SharedPool"
	case gateway:
		return "Gateway"
	case none:
	}
	return ""
}

// String is "SharedPool" or "Gateway/namespace/name".
func (s Scope) String() string {
	if s.kind == gateway {
		return "Gateway/" + s.namespace + "/" + s.name
	}
	return s.Kind()
}
