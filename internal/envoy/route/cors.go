package route

import (
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/cors/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/envoy/wire"
)

const (
	anything = "*"

	requestOrigin  = "%REQ(ORIGIN)%"
	requestMethod  = "%REQ(ACCESS-CONTROL-REQUEST-METHOD)%"
	requestHeaders = "%REQ(ACCESS-CONTROL-REQUEST-HEADERS)%"
)

// preflights is the routes that answer the preflight requests for what the share matches:
// an origin that may not is refused with 403, others are told what they may. No preflight
// reaches a backend. That of a method has another one itself, so the share's method is
// looked for in what the client announces; its other conditions must be met as they are.
func (s share) preflights() []*routev3.Route {
	if s.CORS == nil {
		return nil
	}
	announced := matchPresent("access-control-request-method")
	if s.Method != "" && s.Method != "OPTIONS" {
		announced = matchHeader("access-control-request-method", wire.String(s.Method, false))
	}
	is := []*routev3.HeaderMatcher{matchHeader(":method", wire.String("OPTIONS", false)), announced, matchPresent("origin")}
	var list []*routev3.Route
	if others, some := s.CORS.others(); some {
		list = append(list, &routev3.Route{
			Name: s.Name + "/preflight-refused", Match: s.match(slices.Concat(is, others)...), Action: Respond(403),
		})
	}
	list = append(list, &routev3.Route{
		Name: s.Name + "/preflight", Match: s.match(is...), Action: Respond(200),
		ResponseHeadersToAdd: s.CORS.allow(),
	})
	for _, m := range list {
		vary(m)
	}
	return list
}

// allow is what the answer to a preflight request says. A "*" means nothing to a request
// with credentials: what was asked for is named instead, and a header that would be empty
// is left out.
func (c CORS) allow() []*corev3.HeaderValueOption {
	list := c.expose()
	say := func(name string, allowed []string, asked string) {
		switch {
		case len(allowed) == 0:
		case !slices.Contains(allowed, anything):
			list = append(list, header(name, literal(strings.Join(allowed, ", ")), overwrite))
		case c.Credentials:
			list = append(list, header(name, asked, overwrite))
		default:
			list = append(list, header(name, anything, overwrite))
		}
	}
	say("access-control-allow-methods", c.Methods, requestMethod)
	say("access-control-allow-headers", c.Headers, requestHeaders)
	if c.MaxAge > 0 {
		list = append(list, header("access-control-max-age", strconv.FormatUint(uint64(c.MaxAge), 10), overwrite))
	}
	return list
}

// expose is what an answer of the proxy itself says to an origin that may read it.
func (c CORS) expose() []*corev3.HeaderValueOption {
	list := []*corev3.HeaderValueOption{header("access-control-allow-origin", requestOrigin, overwrite)}
	if c.Credentials {
		list = append(list, header("access-control-allow-credentials", "true", overwrite))
	}
	if exposed := c.exposed(); exposed != "" {
		list = append(list, header("access-control-expose-headers", literal(exposed), overwrite))
	}
	return list
}

// exposed: with credentials "*" is the name of a header, and there is nothing to put instead.
func (c CORS) exposed() string {
	if c.Credentials && slices.Contains(c.Expose, anything) {
		return ""
	}
	return strings.Join(c.Expose, ", ")
}

// mark has the responses of a backend say which origin may read them: what the backend
// itself says of it is dropped, and Envoy's filter, which has kept the origin, says it anew.
func (s share) mark(m *routev3.Route) error {
	if s.CORS == nil {
		return nil
	}
	policy := &corsv3.CorsPolicy{
		AllowCredentials:             wrapperspb.Bool(s.CORS.Credentials),
		ExposeHeaders:                s.CORS.exposed(),
		ForwardNotMatchingPreflights: wrapperspb.Bool(false),
	}
	for _, o := range s.CORS.Origins {
		policy.AllowOriginStringMatch = append(policy.AllowOriginStringMatch, originMatchers(o)...)
	}
	config, err := wire.Pack(policy)
	if err != nil {
		return err
	}
	m.TypedPerFilterConfig = map[string]*anypb.Any{hcm.CORSFilter: config}
	for _, name := range []string{"allow-credentials", "allow-headers", "allow-methods", "allow-origin", "expose-headers", "max-age"} {
		m.ResponseHeadersToRemove = append(m.ResponseHeadersToRemove, "access-control-"+name)
	}
	vary(m)
	return nil
}

// markLocal does the same for an answer of the proxy itself, which the filter leaves
// alone: origins that may not read it get it from another route, without the headers.
func (s share) markLocal(m *routev3.Route) []*routev3.Route {
	if s.CORS == nil {
		return []*routev3.Route{m}
	}
	var list []*routev3.Route
	vary(m)
	if others, some := s.CORS.others(); some {
		other := proto.CloneOf(m)
		other.Name += "/other-origin"
		other.Match.Headers = append(other.Match.Headers, append(others, matchPresent("origin"))...)
		list = append(list, other)
	}
	m.ResponseHeadersToAdd = append(m.ResponseHeadersToAdd, s.CORS.expose()...)
	return append(list, m)
}

// vary tells caches that responses differ by origin, after all that the route changes of
// them: a Vary that it sets stays beside this one.
func vary(m *routev3.Route) {
	m.ResponseHeadersToAdd = append(m.ResponseHeadersToAdd, header("vary", "Origin", add))
}

// others is the conditions for an origin that may not, if there can be one.
func (c CORS) others() (list []*routev3.HeaderMatcher, some bool) {
	for _, o := range c.Origins {
		if o == anything {
			return nil, false
		}
		for _, m := range originMatchers(o) {
			not := matchHeader("origin", m)
			not.InvertMatch = true
			list = append(list, not)
		}
	}
	return list, true
}
