package check

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
)

// Authorities reads a bundle of certificates and writes them again in the one form, each
// once, in their order. What else is in the bundle is refused: a key has no business there,
// and what is not understood might be the certificate that was meant.
func Authorities(bundle []byte) ([]byte, error) {
	if len(bundle) > maxPEM {
		return nil, fmt.Errorf("more than %d bytes", maxPEM)
	}
	var out bytes.Buffer
	seen := map[string]struct{}{}
	blocks := 0
	// Exits: no block is left, or one is bad.
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("block %d is a %s, want certificates only", blocks, block.Type)
		}
		c, err := parseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", blocks, err)
		}
		if _, twice := seen[string(c.Raw)]; twice {
			continue
		}
		seen[string(c.Raw)] = struct{}{}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}); err != nil {
			return nil, err
		}
	}
	switch {
	case bytes.Count(bundle, []byte("-----BEGIN")) != blocks: // damaged ones are skipped silently
		return nil, errors.New("a PEM block is cut off or damaged")
	case blocks == 0:
		return nil, errors.New("there is no PEM certificate")
	}
	return out.Bytes(), nil
}
