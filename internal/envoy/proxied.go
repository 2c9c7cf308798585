package envoy

import (
	"errors"
	"fmt"
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/wire"
)

func (p Proxied) check() error {
	if p.Mode > ProxyRequire {
		return fmt.Errorf("mode %d is unknown", p.Mode)
	}
	if p.Mode == ProxyOff && len(p.Trusted) > 0 {
		return errors.New("there are trusted peers, and no header is taken")
	}
	for _, cidr := range p.Trusted {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return err
		}
	}
	return nil
}

// filter reads the header before anything else looks at the connection.
func (p Proxied) filter() (*listenerv3.ListenerFilter, error) {
	config, err := wire.Pack(&proxyv3.ProxyProtocol{AllowRequestsWithoutProxyProtocol: p.Mode == ProxyAccept})
	if err != nil {
		return nil, err
	}
	return &listenerv3.ListenerFilter{
		Name:       "envoy.filters.listener.proxy_protocol",
		ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: config},
	}, nil
}

// split says by which peers the chains of a listener are reached. The filter reads
// everybody's header and cannot be told whose to believe, so trusted peers get a chain
// and others another, which asks for the peer's own address, or none at all.
func (p Proxied) split() []reached {
	if p.Mode == ProxyOff || len(p.Trusted) == 0 {
		return []reached{{}}
	}
	list := []reached{{by: ranges(p.Trusted)}}
	if p.Mode == ProxyAccept {
		list = append(list, reached{suffix: "|direct", direct: true})
	}
	return list
}

// reached is one way to a chain.
type reached struct {
	suffix string              // of the chain's name
	by     []*corev3.CidrRange // peers; none: every peer that has no other way
	direct bool                // the client's address is the peer's, whatever a header said
}

func ranges(cidrs []string) []*corev3.CidrRange {
	var list []*corev3.CidrRange
	for _, cidr := range cidrs {
		if p, err := netip.ParsePrefix(cidr); err == nil { // all were checked
			p = p.Masked()
			list = append(list, &corev3.CidrRange{AddressPrefix: p.Addr().String(), PrefixLen: wrapperspb.UInt32(uint32(p.Bits()))})
		}
	}
	return list
}
