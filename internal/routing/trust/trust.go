// Package trust reads ConfigMaps and Secrets as certificates of authorities, which say
// whose signature on a certificate is believed. It is given objects and finds none itself.
package trust

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"aether.io/aether/internal/envoy/check"
)

// Key is the entry of a ConfigMap or Secret that holds the certificates.
const Key = "ca.crt"

// Bundle is what one object contributes. The zero Bundle is none.
type Bundle struct {
	Authorities []byte // PEM in the one form, each certificate once; nil: there are none
	Problem     string // why there are none, or why they are not the newest; empty if all is well
}

// Behind is the bundle of an object of which something else is written now that is
// refused.
func (b Bundle) Behind(refused string) Bundle {
	if refused == "" {
		return b
	}
	if b.Problem = "is refused: " + refused; b.Authorities != nil {
		b.Problem += "; the version before it is in effect"
	}
	return b
}

// ReadConfigMap reads a ConfigMap; nil is one that does not exist.
func ReadConfigMap(o *corev1.ConfigMap) Bundle {
	if o == nil {
		return Bundle{Problem: "does not exist"}
	}
	if text, there := o.Data[Key]; there {
		return read([]byte(text), true)
	}
	data, there := o.BinaryData[Key]
	return read(data, there)
}

// ReadSecret reads a Secret; nil is one that does not exist. Of its other entries nothing
// is read or said.
func ReadSecret(o *corev1.Secret) Bundle {
	if o == nil {
		return Bundle{Problem: "does not exist"}
	}
	data, there := o.Data[Key]
	return read(data, there)
}

func read(data []byte, there bool) Bundle {
	if !there {
		return Bundle{Problem: "has no entry " + Key}
	}
	pem, err := check.Authorities(data)
	if err != nil {
		return Bundle{Problem: fmt.Sprintf("%s: %v", Key, err)}
	}
	return Bundle{Authorities: pem}
}
