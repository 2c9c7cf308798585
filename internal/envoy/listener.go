package envoy

import (
	"fmt"
	"math"
	"strings"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	inspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	"google.golang.org/protobuf/proto"
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
	if err := l.Proxied.check(); err != nil {
		return within("PROXY protocol", err)
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
	if len(c.Secrets) == 0 && (c.Clients != ClientCertificates{} || c.MinTLS13) {
		return invalid("TLS", "there is no certificate")
	}
	if c.Clients.Trust != "" {
		if err := check.Name(c.Clients.Trust); err != nil {
			return within("trust", err)
		}
	} else if c.Clients.Optional {
		return invalid("trust", "there are none")
	}
	if c.Port > math.MaxUint16 {
		return invalid("port", "%d is no port", c.Port)
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
		for _, way := range l.Proxied.split() {
			chain, err := c.encode(tls, way)
			if err != nil {
				return nil, attribute(l.Origin, within("listener "+l.Name+": chain "+c.Name, err))
			}
			m.FilterChains = append(m.FilterChains, chain)
		}
	}
	if err := l.inspect(m, tls); err != nil {
		return nil, attribute(l.Origin, within("listener "+l.Name, err))
	}
	return encode(l.Name, m, l.Origin)
}

// inspect adds what looks at the first bytes of each connection.
func (l Listener) inspect(m *listenerv3.Listener, tls bool) error {
	if l.Proxied.Mode != ProxyOff {
		f, err := l.Proxied.filter()
		if err != nil {
			return err
		}
		m.ListenerFilters = append(m.ListenerFilters, f)
	}
	if tls {
		config, err := wire.Pack(&inspectorv3.TlsInspector{})
		if err != nil {
			return err
		}
		m.ListenerFilters = append(m.ListenerFilters, &listenerv3.ListenerFilter{
			Name:       "envoy.filters.listener.tls_inspector",
			ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: config},
		})
	}
	if len(m.GetListenerFilters()) > 0 {
		m.ListenerFiltersTimeout = durationpb.New(handshakeTimeout)
	}
	return nil
}

// encode makes the filter chain for one way to it; inspected says that the listener looks
// for TLS, so that plain connections can be told from it.
func (c Chain) encode(inspected bool, way reached) (*listenerv3.FilterChain, error) {
	http, err := hcm.Config{
		Table:       c.Name,
		PerHost:     c.PerHost,
		AccessLog:   c.AccessLog,
		Collector:   c.Collector,
		TrustedHops: c.TrustedHops,
		Port:        c.Port,
		Direct:      way.direct,
	}.Filter()
	if err != nil {
		return nil, err
	}
	m := &listenerv3.FilterChain{Name: c.Name + way.suffix, Filters: []*listenerv3.Filter{http}}
	match := &listenerv3.FilterChainMatch{DirectSourcePrefixRanges: way.by}
	switch {
	case len(c.Secrets) > 0:
		match.TransportProtocol, match.ServerNames = "tls", c.SNI
		m.TransportSocketConnectTimeout = durationpb.New(handshakeTimeout)
		m.TransportSocket, err = c.transportSocket()
	case inspected:
		match.TransportProtocol = "raw_buffer"
	}
	if !proto.Equal(match, &listenerv3.FilterChainMatch{}) {
		m.FilterChainMatch = match
	}
	return m, err
}
