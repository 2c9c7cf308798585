// Package material says whether a Secret, a ConfigMap or a MeshConfig is good for what it is
// there for. An API server takes a certificate with another one's key, authorities that are
// no certificates, and what a definition allowed when it was written; to put them in the
// place of good ones would end what works. So every source asks here before it lets such an
// object into effect, and goes on with the version before it if the answer is no.
package material

import (
	corev1 "k8s.io/api/core/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/certificate"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/trust"
)

// Problem is why nobody could use the object, with nothing of a key in it; empty: it can be
// used, or it is of no kind that is judged here. A MeshConfig is judged by its values. A ConfigMap is if it has an entry ca.crt. A Secret is
// judged by its type: one of kubernetes.io/tls by its pair alone, whatever authorities come
// with it, which are mostly none; any other by its entry ca.crt, if there is something in it.
func Problem(o object.Object) string {
	switch o := o.(type) {
	case *configv1.MeshConfig:
		if fields := meshconfig.Validate(o.Spec); len(fields) > 0 {
			return (&meshconfig.Invalid{Fields: fields}).Error()
		}
	case *corev1.ConfigMap:
		_, text := o.Data[trust.Key]
		if _, binary := o.BinaryData[trust.Key]; text || binary {
			return trust.ReadConfigMap(o).Problem
		}
	case *corev1.Secret:
		switch {
		case o.Type == corev1.SecretTypeTLS:
			return certificate.Read(key.Name{Namespace: o.Namespace, Name: o.Name}, o).Problem
		case len(o.Data[trust.Key]) > 0:
			return trust.ReadSecret(o).Problem
		}
	}
	return ""
}
