package route

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

const (
	overwrite = corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	add       = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
)

func (c HeaderChange) isZero() bool { return len(c.Set)+len(c.Add)+len(c.Remove) == 0 }

// encode: Envoy removes first, which makes no difference while a name is there once.
func (c HeaderChange) encode() (put []*corev3.HeaderValueOption, remove []string) {
	for _, h := range c.Set {
		put = append(put, header(h.Name, literal(h.Value), overwrite))
	}
	for _, h := range c.Add {
		put = append(put, header(h.Name, literal(h.Value), add))
	}
	return put, slices.Clone(c.Remove)
}

// then is the change that c and after it o make.
func (c HeaderChange) then(o HeaderChange) HeaderChange {
	replaced := slices.Clone(o.Remove)
	for _, h := range o.Set {
		replaced = append(replaced, h.Name)
	}
	gone := func(h Header) bool { return slices.Contains(replaced, h.Name) }
	return HeaderChange{
		Set:    append(slices.DeleteFunc(slices.Clone(c.Set), gone), o.Set...),
		Add:    append(slices.DeleteFunc(slices.Clone(c.Add), gone), o.Add...),
		Remove: slices.Concat(c.Remove, o.Remove),
	}
}

// change puts the route's changes of headers into m.
func (r Route) change(m *routev3.Route) {
	m.RequestHeadersToAdd, m.RequestHeadersToRemove = r.Request.encode()
	m.ResponseHeadersToAdd, m.ResponseHeadersToRemove = r.Response.encode()
}

// literal keeps Envoy from taking a value for a format.
func literal(value string) string { return strings.ReplaceAll(value, "%", "%%") }

func header(name, format string, how corev3.HeaderValueOption_HeaderAppendAction) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: format}, AppendAction: how}
}

func matchHeader(name string, m *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: m}}
}

func matchPresent(name string) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: true}}
}
