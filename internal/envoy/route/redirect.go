package route

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"aether.io/aether/internal/envoy/wire"
)

func redirectCodes() map[uint32]routev3.RedirectAction_RedirectResponseCode {
	return map[uint32]routev3.RedirectAction_RedirectResponseCode{
		301: routev3.RedirectAction_MOVED_PERMANENTLY,
		302: routev3.RedirectAction_FOUND,
		303: routev3.RedirectAction_SEE_OTHER,
		307: routev3.RedirectAction_TEMPORARY_REDIRECT,
		308: routev3.RedirectAction_PERMANENT_REDIRECT,
	}
}

// redirects is the routes that answer with the share's redirect. Envoy leaves the port of
// the request's Host in the location unless it is told another one, and it cannot be told
// none. Where none is wanted, the name of an exact host is put instead, which has no
// port; a host that is not known gets a route of its own for requests with a port, which
// is replaced by the right one, needless as it is.
func (s share) redirects(at Host, method []*routev3.HeaderMatcher) []*routev3.Route {
	d := *s.Redirect
	port, usual := d.port(at)
	if port == usual {
		port = 0
	}
	if port == 0 && d.Host == "" && at.Name != "" && !strings.HasPrefix(at.Name, "*") {
		d.Host = at.Name
	}
	plain := &routev3.Route{
		Name: s.Name, Match: s.match(method...),
		Action: &routev3.Route_Redirect{Redirect: d.encode(s.Path, port)},
	}
	if port != 0 || d.Host != "" {
		return []*routev3.Route{plain}
	}
	with := s.match(slices.Concat(method, []*routev3.HeaderMatcher{matchHeader(":authority", wire.String(`.*:[0-9]+`, true))})...)
	return []*routev3.Route{{
		Name: s.Name + "/port", Match: with,
		Action: &routev3.Route_Redirect{Redirect: d.encode(s.Path, usual)},
	}, plain}
}

// port is the one to redirect to, and the one that its scheme does not have to name
// (HTTPRequestRedirectFilter.port).
func (d Redirect) port(at Host) (port, usual uint32) {
	usual = 80
	if d.Scheme == "https" || d.Scheme == "" && at.Secure {
		usual = 443
	}
	switch {
	case d.Port != 0:
		return d.Port, usual
	case d.Scheme == "" && at.Port != 0:
		return at.Port, usual
	}
	return usual, usual
}

func (d Redirect) encode(p PathMatch, port uint32) *routev3.RedirectAction {
	m := &routev3.RedirectAction{HostRedirect: d.Host, PortRedirect: port, ResponseCode: redirectCodes()[d.Status]}
	if d.Scheme != "" {
		m.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: d.Scheme}
	}
	switch d.Path.Kind {
	case ReplacePath:
		m.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: d.Path.whole()}
	case ReplacePrefix:
		text, expression := d.Path.prefix(p)
		switch {
		case text != "":
			m.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: text}
		case expression != nil:
			m.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: expression}
		}
	case KeepPath:
	}
	return m
}
