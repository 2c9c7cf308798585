package envoy

import (
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/envoy/route"
	"aether.io/aether/internal/envoy/wire"
	"aether.io/aether/internal/resource"
)

// anyHost is the host of the scope that holds what has no scope of its own: all hosts, or
// in scope-per-host mode the others.
const anyHost = hcm.AnyHost

// name is the scope's key and the name of its resource, so keys are unique where names are.
func (s Scope) name() string {
	if s.PerHost && s.Host == anyHost {
		return hcm.ScopeKey(s.Table, hcm.OtherHosts)
	}
	return hcm.ScopeKey(s.Table, s.Host)
}

// Validate tells whether Envoy will take the scope. Errors are *InvalidError; one about
// a route carries the route's name.
func (s Scope) Validate() error { return attribute(s.Origin, s.check()) }

func (s Scope) check() error {
	place := "scope " + s.name()
	if err := check.Table(s.Table); err != nil {
		return within(place+": table", err)
	}
	if s.Host != anyHost && (!s.PerHost || strings.HasPrefix(s.Host, "*")) {
		return invalid(place+": host", "want * or, in scope-per-host mode, an exact host")
	}
	if s.Host != anyHost && (len(s.VirtualHosts) != 1 || s.VirtualHosts[0].Host != s.Host) {
		return invalid(place+": virtual hosts", "want the one of the scope's host")
	}
	if s.Host != anyHost && len(s.Elsewhere) > 0 {
		return invalid(place+": hosts elsewhere", "want them in the scope of * only")
	}
	hosts := make([]string, 0, len(s.VirtualHosts)+len(s.Elsewhere))
	for _, v := range s.VirtualHosts {
		hosts = append(hosts, v.Host)
		if err := v.check(); err != nil {
			return within(place, err)
		}
	}
	for _, host := range s.Elsewhere {
		hosts = append(hosts, host)
		if err := check.Host(host); err != nil {
			return within(fmt.Sprintf("%s: host elsewhere %q", place, host), err)
		}
	}
	if host, ok := check.Duplicate(hosts); ok {
		return invalid(place+": virtual hosts", "%s is there twice", host)
	}
	return nil
}

func (v VirtualHost) check() error {
	if err := check.Host(v.Host); err != nil {
		return within(fmt.Sprintf("host %q", v.Host), err)
	}
	names := make([]string, 0, len(v.Routes))
	for _, r := range v.Routes {
		names = append(names, r.Name)
		if err := r.Validate(); err != nil {
			return err
		}
	}
	if name, ok := check.Duplicate(names); ok {
		return invalid("host "+v.Host, "route %s is there twice", name)
	}
	return nil
}

// Resource encodes the scope with its routes inline, under its key: "<table>|<host>", or
// "<table>|*others" for the hosts that have none where others do.
func (s Scope) Resource() (*resource.Resource, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	off, err := wire.Pack(&routev3.FilterConfig{Disabled: true})
	if err != nil {
		return nil, err
	}
	config := &routev3.RouteConfiguration{
		Name:                     s.name(),
		IgnorePortInHostMatching: true,
		RequestHeadersToRemove:   []string{hcm.ScopeHeader, hcm.ClientAddressHeader, hcm.ForceTraceHeader},
		// A cluster may come after its route or be left out as invalid: that is a 503 on
		// this route, and no reason to refuse the scope.
		ValidateClusters: wrapperspb.Bool(false),
		// The miss path is only for requests that found no route.
		TypedPerFilterConfig: map[string]*anypb.Any{hcm.MissFilter: off},
	}
	for _, v := range s.VirtualHosts {
		m, err := v.encode(s.Table)
		if err != nil {
			return nil, attribute(s.Origin, within("scope "+s.name(), err))
		}
		config.VirtualHosts = append(config.VirtualHosts, m)
	}
	if len(s.Elsewhere) > 0 {
		config.VirtualHosts = append(config.VirtualHosts, s.misdirected())
	}
	return encode(s.name(), &routev3.ScopedRouteConfiguration{
		Name:               s.name(),
		RouteConfiguration: config,
		Key: &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
			Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: s.name()},
		}}},
	}, s.Origin)
}

// domains is how requests say the host: with a dot at the end it is the same one. The
// connection manager could drop the dot, but then backends would not see it either.
func domains(host string) []string {
	if host == anyHost {
		return []string{host}
	}
	return []string{host, host + "."}
}

func (v VirtualHost) encode(table string) (*routev3.VirtualHost, error) {
	m := &routev3.VirtualHost{Name: hcm.ScopeKey(table, v.Host), Domains: domains(v.Host)}
	for _, r := range v.Routes {
		list, err := r.Encode(route.Host{Name: v.Host, Port: v.Port, Secure: v.Secure})
		if err != nil {
			return nil, err
		}
		m.Routes = append(m.Routes, list...)
	}
	// Ends the search: a host that matched never falls through to a wildcard.
	m.Routes = append(m.Routes, always(m.GetName(), 404))
	return m, nil
}

// elsewhere is in the place of a host in the name of what answers for the hosts of other
// tables; no host is called so.
const elsewhere = "*elsewhere"

// misdirected answers for all hosts of other tables at once: on a port of n tables each has
// those of n-1 others.
func (s Scope) misdirected() *routev3.VirtualHost {
	m := &routev3.VirtualHost{Name: hcm.ScopeKey(s.Table, elsewhere)}
	for _, host := range s.Elsewhere {
		m.Domains = append(m.Domains, domains(host)...)
	}
	m.Routes = []*routev3.Route{always(m.GetName(), 421)}
	return m
}

// always is a route for every path (the empty prefix is any path, also the "*" of OPTIONS).
func always(host string, status uint32) *routev3.Route {
	return &routev3.Route{
		Name:   fmt.Sprintf("%s|%d", host, status),
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
		Action: route.Respond(status),
	}
}
