package envoy

import (
	"fmt"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/envoy/wire"
	"aether.io/aether/internal/resource"
)

const (
	// handshakeTimeout bounds how long a client may take to say its server name and to
	// finish its TLS handshake.
	handshakeTimeout = 10 * time.Second

	// secretWait bounds what a chain whose certificate is not answered holds back: the
	// listener's other chains. The chain itself refuses connections without it.
	secretWait = 5 * time.Second
)

// Validate tells whether Envoy will take the listener. Errors are *InvalidError.
func (l Listener) Validate() error { return attribute(l.Origin, within("listener "+l.Name, l.check())) }

func (l Listener) check() error {
	if err := check.Name(l.Name); err != nil {
		return within("name", err)
	}
	if err := check.IP(l.Address); err != nil {
		return within("address", err)
	}
	if err := check.Port(l.Port); err != nil {
		return within(fmt.Sprintf("port %d", l.Port), err)
	}
	if len(l.Chains) == 0 {
		return invalid("chains", "there are none")
	}
	var names, reached []string
	for _, c := range l.Chains {
		if err := c.check(); err != nil {
			return within("chain "+c.Name, err)
		}
		names = append(names, c.Name)
		reached = append(reached, c.reach()...)
	}
	if name, ok := check.Duplicate(names); ok {
		return invalid("chain "+name, "is there twice")
	}
	if by, ok := check.Duplicate(reached); ok {
		return invalid("chains", "two are reached by %s", by)
	}
	return nil
}

func (c Chain) check() error {
	if err := check.Table(c.Name); err != nil {
		return within("name", err)
	}
	if len(c.SNI) > 0 && len(c.Secrets) == 0 {
		return invalid("server names", "there is no certificate")
	}
	for _, name := range c.SNI {
		if name == anyHost {
			return invalid("server names", "* is written as no name at all")
		}
		if err := check.Host(name); err != nil {
			return within(fmt.Sprintf("server name %q", name), err)
		}
	}
	for _, name := range c.Secrets {
		if err := check.Name(name); err != nil {
			return within("secret", err)
		}
	}
	if strings.ContainsAny(c.AccessLog, "\x00\r\n") {
		return invalid("access log", "path has a line break")
	}
	return nil
}

// reach says how connections come to the chain. No two chains may share a way.
func (c Chain) reach() []string {
	switch {
	case len(c.Secrets) == 0:
		return []string{"plain connections"}
	case len(c.SNI) == 0:
		return []string{"every server name"}
	}
	return c.SNI
}

// Resource encodes the listener under its own name.
func (l Listener) Resource() (*resource.Resource, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	m := &listenerv3.Listener{
		Name:                          l.Name,
		Address:                       wire.SocketAddress(l.Address, l.Port),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(bufferLimit),
		// With it two processes could bind the port and each get a part of the traffic.
		EnableReusePort: wrapperspb.Bool(false),
	}
	var tls bool
	for _, c := range l.Chains {
		tls = tls || len(c.Secrets) > 0
	}
	for _, c := range l.Chains {
		chain, err := c.encode(tls)
		if err != nil {
			return nil, attribute(l.Origin, within("listener "+l.Name+": chain "+c.Name, err))
		}
		m.FilterChains = append(m.FilterChains, chain)
	}
	if tls {
		inspector, err := wire.Pack(&inspectorv3.TlsInspector{})
		if err != nil {
			return nil, err
		}
		m.ListenerFiltersTimeout = durationpb.New(handshakeTimeout)
		m.ListenerFilters = []*listenerv3.ListenerFilter{{
			Name:       "envoy.filters.listener.tls_inspector",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: inspector},
		}}
	}
	return encode(l.Name, m, l.Origin)
}

// encode makes the filter chain; inspected says that the listener looks at the first
// bytes of a connection, so that plain ones can be told from TLS.
func (c Chain) encode(inspected bool) (*listenerv3.FilterChain, error) {
	http, err := hcm.Config{
		Table:       c.Name,
		PerHost:     c.PerHost,
		AccessLog:   c.AccessLog,
		TrustedHops: c.TrustedHops,
	}.Filter()
	if err != nil {
		return nil, err
	}
	m := &listenerv3.FilterChain{Name: c.Name, Filters: []*listenerv3.Filter{http}}
	switch {
	case len(c.Secrets) > 0:
		m.FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: "tls", ServerNames: c.SNI}
		m.TransportSocketConnectTimeout = durationpb.New(handshakeTimeout)
		m.TransportSocket, err = c.transportSocket()
	case inspected:
		m.FilterChainMatch = &listenerv3.FilterChainMatch{TransportProtocol: "raw_buffer"}
	}
	return m, err
}

func (c Chain) transportSocket() (*corev3.TransportSocket, error) {
	common := &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{
			TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2,
			TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		},
		AlpnProtocols: []string{"h2", "http/1.1"},
	}
	for _, name := range c.Secrets {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs,
			&tlsv3.SdsSecretConfig{Name: name, SdsConfig: wire.ADS(secretWait)})
	}
	config, err := wire.Pack(&tlsv3.DownstreamTlsContext{CommonTlsContext: common})
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
	}, nil
}
