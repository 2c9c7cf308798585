package envoy

import (
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/wire"
	"aether.io/aether/internal/resource"
)

// Validate tells whether Envoy will take the secret. Errors are *InvalidError and hold
// nothing of the key.
func (s Secret) Validate() error {
	_, _, err := s.read()
	return err
}

func (s Secret) read() (chain, key []byte, err error) {
	place := "secret " + s.Name
	if err := check.Name(s.Name); err != nil {
		return nil, nil, attribute(s.Origin, within(place+": name", err))
	}
	chain, key, err = check.KeyPair(s.Chain, s.Key)
	return chain, key, attribute(s.Origin, within(place, err))
}

// Resource encodes the secret under its own name.
func (s Secret) Resource() (*resource.Resource, error) {
	chain, key, err := s.read()
	if err != nil {
		return nil, err
	}
	return encode(s.Name, &tlsv3.Secret{
		Name: s.Name,
		Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
			CertificateChain: wire.Bytes(chain),
			PrivateKey:       wire.Bytes(key),
		}},
	}, s.Origin)
}
