// Package certificate reads a Secret as a certificate with its key. Nothing that it says
// of a Secret holds anything of the key.
package certificate

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/key"
)

// Certificate is what a Secret is to a listener.
type Certificate struct {
	Resource *resource.Resource // nil: there is none
	Problem  string             // why there is none, or why it is not the newest; empty if all is well
}

// Behind is the certificate of a Secret of which something else is written now that is
// refused.
func (c Certificate) Behind(refused string) Certificate {
	if refused == "" {
		return c
	}
	if c.Problem = "is refused: " + refused; c.Resource != nil {
		c.Problem += "; the version before it is in effect"
	}
	return c
}

// Read reads the Secret of that name; nil is one that does not exist. Dates are not
// looked at: there is no clock here, and clients see for themselves.
func Read(n key.Name, s *corev1.Secret) Certificate {
	switch {
	case s == nil:
		return Certificate{Problem: "does not exist"}
	case s.Type != corev1.SecretTypeTLS:
		return Certificate{Problem: "is not of type " + string(corev1.SecretTypeTLS)}
	}
	r, err := envoy.Secret{
		Name:   n.String(),
		Chain:  s.Data[corev1.TLSCertKey],
		Key:    s.Data[corev1.TLSPrivateKeyKey],
		Origin: []object.Key{n.Object(object.Secret)},
	}.Resource()
	if e, ok := errors.AsType[*envoy.InvalidError](err); ok {
		err = e.Err
	}
	if err != nil {
		return Certificate{Problem: err.Error()}
	}
	return Certificate{Resource: r}
}
