package kept

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
)

// ErrSealed says that what is kept was sealed with another key, or was changed since.
var ErrSealed = errors.New("sealed with another CA key, or changed since")

// Purpose is what the key is to be derived for. It binds what is sealed to this use, and to
// this form of it.
const Purpose = "aether.io/last-good/v1"

// seal encrypts text with AES-GCM under a key of 32 bytes, a fresh nonce before it. A key
// serves for as many as 2³² of them, which are written at most one a second.
func seal(key, text []byte) ([]byte, error) {
	aead, err := cipherOf(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("make a nonce: %w", err)
	}
	return aead.Seal(nonce, nonce, text, []byte(Purpose)), nil
}

// open is the text that was sealed, or ErrSealed.
func open(key, sealed []byte) ([]byte, error) {
	aead, err := cipherOf(key)
	if err != nil {
		return nil, err
	}
	if len(sealed) < aead.NonceSize() {
		return nil, ErrSealed
	}
	text, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(Purpose))
	if err != nil {
		return nil, ErrSealed
	}
	return text, nil
}

func cipherOf(key []byte) (cipher.AEAD, error) {
	if len(key) != 32 {
		return nil, fmt.Errorf("a key of %d bytes, want 32", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
