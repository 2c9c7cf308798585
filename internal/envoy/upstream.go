package envoy

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/wire"
)

// Validate tells whether Envoy will take it. Errors are *InvalidError without an origin.
func (t UpstreamTLS) Validate() error { return within("TLS", t.check()) }

func (t UpstreamTLS) check() error {
	if err := checkServerName(t.ServerName); err != nil {
		return within(fmt.Sprintf("server name %q", t.ServerName), err)
	}
	if len(t.Names) == 0 {
		return invalid("names", "any certificate would do: want at least one")
	}
	for _, n := range t.Names {
		if err := n.check(); err != nil {
			return within(fmt.Sprintf("name %q", n.Value), err)
		}
	}
	if (t.Trust == "") == (t.TrustFile == "") {
		return invalid("trust", "want authorities or a file of them, and not both")
	}
	for _, secret := range []string{t.Trust, t.Certificate} {
		if secret == "" {
			continue
		}
		if err := check.Name(secret); err != nil {
			return within(fmt.Sprintf("secret %q", secret), err)
		}
	}
	if strings.ContainsAny(t.TrustFile, "\x00\r\n") {
		return invalid("trust file", "path has a line break")
	}
	return nil
}

// checkServerName wants what may be asked for: RFC 6066 has no addresses and no wildcards.
func checkServerName(host string) error {
	if _, err := netip.ParseAddr(host); err == nil || strings.HasPrefix(host, anyHost) {
		return errors.New("want a host name, neither an address nor a wildcard")
	}
	return check.Host(host)
}

func (n SubjectName) check() error {
	if !n.URI {
		if n.Value == anyHost {
			return errors.New("any name would do")
		}
		return check.Host(n.Value)
	}
	if u, err := url.Parse(n.Value); err != nil || u.Scheme == "" || strings.ContainsAny(n.Value, "\x00\r\n") {
		return errors.New("want a URI with a scheme")
	}
	return nil
}

// transportSocket is TLS to the endpoints. Authorities and the certificate come by SDS, so
// that they are exchanged without a new cluster and connections outlive that.
func (t UpstreamTLS) transportSocket(p Protocol) (*corev3.TransportSocket, error) {
	common := &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
			TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3, // Envoy's default towards backends is 1.2
		},
		AlpnProtocols: []string{"http/1.1"},
	}
	if p == HTTP2 {
		common.AlpnProtocols = []string{"h2"}
	}
	validation := &tlsv3.CertificateValidationContext{}
	for _, n := range t.Names {
		validation.MatchTypedSubjectAltNames = append(validation.MatchTypedSubjectAltNames, n.matcher())
	}
	if t.Trust != "" {
		common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         validation,
				ValidationContextSdsSecretConfig: &tlsv3.SdsSecretConfig{Name: t.Trust, SdsConfig: wire.ADS(secretWait)},
			},
		}
	} else {
		validation.TrustedCa = &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: t.TrustFile}}
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: validation}
	}
	if t.Certificate != "" {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{{Name: t.Certificate, SdsConfig: wire.ADS(secretWait)}}
	}
	config, err := wire.Pack(&tlsv3.UpstreamTlsContext{CommonTlsContext: common, Sni: t.ServerName})
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
	}, nil
}

// matcher is how Envoy looks for the name. Its exact match of a host takes a certificate's
// own wildcard into account; a wildcard of ours it would compare as it stands.
func (n SubjectName) matcher() *tlsv3.SubjectAltNameMatcher {
	m := &tlsv3.SubjectAltNameMatcher{SanType: tlsv3.SubjectAltNameMatcher_DNS, Matcher: wire.String(n.Value, false)}
	suffix, wildcard := strings.CutPrefix(n.Value, anyHost)
	switch {
	case n.URI:
		m.SanType = tlsv3.SubjectAltNameMatcher_URI
	case wildcard:
		m.Matcher = &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: suffix}, IgnoreCase: true}
	}
	return m
}
