package envoy

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/wire"
)

// transportSocket terminates TLS. Of several certificates Envoy takes the one with the
// client's server name, by ECDSA if the client can, and else the first. Cipher suites
// are Envoy's: forward secret and authenticated ones only.
func (c Chain) transportSocket() (*corev3.TransportSocket, error) {
	common := &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
			TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		},
		AlpnProtocols: []string{"h2", "http/1.1"},
	}
	if c.MinTLS13 {
		common.TlsParams.TlsMinimumProtocolVersion = tlsv3.TlsParameters_TLSv1_3
	}
	for _, name := range c.Secrets {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, secret(name))
	}
	m := &tlsv3.DownstreamTlsContext{CommonTlsContext: common}
	c.Clients.ask(m)
	config, err := wire.Pack(m)
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
	}, nil
}

// ask has clients show a certificate. Their verification is never off by mistake: only
// what is merged into the bundle for Optional takes what does not verify.
func (c ClientCertificates) ask(m *tlsv3.DownstreamTlsContext) {
	if c.Trust == "" {
		return
	}
	by := secret(c.Trust)
	m.RequireClientCertificate = wrapperspb.Bool(!c.Optional)
	if !c.Optional {
		m.CommonTlsContext.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{
			ValidationContextSdsSecretConfig: by,
		}
		return
	}
	m.CommonTlsContext.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
		CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext: &tlsv3.CertificateValidationContext{
				TrustChainVerification: tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED,
			},
			ValidationContextSdsSecretConfig: by,
		},
	}
}

func secret(name string) *tlsv3.SdsSecretConfig {
	return &tlsv3.SdsSecretConfig{Name: name, SdsConfig: wire.ADS(secretWait)}
}
