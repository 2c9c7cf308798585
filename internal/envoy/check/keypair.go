package check

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	minRSABits = 2048 // Envoy refuses smaller ones
	maxPEM     = 1 << 20
)

// KeyPair reads a certificate chain and its key and writes them again in the one form,
// so that nothing of what surrounds them depends on what Envoy's parser makes of it.
// The leaf must come first and be the key's.
func KeyPair(chainPEM, keyPEM []byte) (chain, key []byte, err error) {
	if len(chainPEM) > maxPEM || len(keyPEM) > maxPEM {
		return nil, nil, fmt.Errorf("more than %d bytes", maxPEM)
	}
	pair, err := tls.X509KeyPair(chainPEM, keyPEM)
	if err != nil {
		return nil, nil, describe(chainPEM, keyPEM, err)
	}
	if err := errors.Join(checkPublicKey(pair.Leaf), checkLeaf(pair.Leaf)); err != nil {
		return nil, nil, fmt.Errorf("certificate: %w", err)
	}
	var out bytes.Buffer
	for i, der := range pair.Certificate {
		if _, err := parseCertificate(der); err != nil {
			return nil, nil, fmt.Errorf("certificate %d of the chain: %w", i+1, err)
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return nil, nil, err
		}
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return nil, nil, fmt.Errorf("key: %w", err)
	}
	return out.Bytes(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

// describe finds the plainer reason for a common mistake.
func describe(chainPEM, keyPEM []byte, err error) error {
	for i, rest := 1, chainPEM; ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return fmt.Errorf("certificate and key: %w", err)
		}
		if _, err := tls.X509KeyPair(pem.EncodeToMemory(block), keyPEM); err == nil && i > 1 {
			return fmt.Errorf("certificate: the key belongs to certificate %d of the chain: the leaf must come first", i)
		}
	}
}

// checkPublicKey refuses the kinds of keys that BoringSSL refuses.
func checkPublicKey(leaf *x509.Certificate) error {
	switch k := leaf.PublicKey.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < minRSABits {
			return fmt.Errorf("RSA key of %d bits: at least %d are wanted", k.N.BitLen(), minRSABits)
		}
		return nil
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256(), elliptic.P384(), elliptic.P521():
			return nil
		}
		return fmt.Errorf("ECDSA curve %s: P-256, P-384 or P-521 is wanted", k.Curve.Params().Name)
	case ed25519.PublicKey:
		return nil
	}
	return errors.New("want an RSA, ECDSA or Ed25519 key")
}
