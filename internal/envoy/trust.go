package envoy

import (
	"fmt"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/wire"
	"aether.io/aether/internal/resource"
)

// Validate tells whether Envoy will take the authorities. Errors are *InvalidError.
func (t Trust) Validate() error {
	_, err := t.read()
	return err
}

func (t Trust) read() ([]byte, error) {
	place := "trust " + t.Name
	if err := check.Name(t.Name); err != nil {
		return nil, attribute(t.Origin, within(place+": name", err))
	}
	authorities, err := check.Authorities(t.Authorities)
	return authorities, attribute(t.Origin, within(place, err))
}

// CollectorAuthorities returns the authorities, PEM, that the resource has if it is those that
// the collector is verified by.
func CollectorAuthorities(r *resource.Resource) (pem []byte, is bool, err error) {
	if r.Name != (resource.Name{TypeURL: SecretType, Name: CollectorName}) {
		return nil, false, nil
	}
	var s tlsv3.Secret
	if err := proto.Unmarshal(r.Payload, &s); err != nil {
		return nil, true, fmt.Errorf("decode %s: %w", r.Name, err)
	}
	return s.GetValidationContext().GetTrustedCa().GetInlineBytes(), true, nil
}

// Resource encodes the authorities as a secret under their own name.
func (t Trust) Resource() (*resource.Resource, error) {
	authorities, err := t.read()
	if err != nil {
		return nil, err
	}
	return encode(t.Name, &tlsv3.Secret{
		Name: t.Name,
		Type: &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: wire.Bytes(authorities),
		}},
	}, t.Origin)
}
