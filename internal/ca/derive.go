package ca

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"fmt"

	"aether.io/aether/internal/svid"
)

// Derive is a key of 32 bytes for a purpose, from the key that signs now: the same in every
// replica that has the same CA, and another for each purpose. It says nothing of the CA's
// key. svid.ErrUnusable while there is no CA.
func (a *Authority) Derive(purpose string) ([]byte, error) {
	is := a.current()
	if is == nil {
		return nil, fmt.Errorf("derive a key: %w: none loaded", svid.ErrUnusable)
	}
	der, err := x509.MarshalPKCS8PrivateKey(is.key)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return hkdf.Key(sha256.New, der, nil, purpose, 32)
}
