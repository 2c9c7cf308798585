package route

import (
	"fmt"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"aether.io/aether/internal/envoy/wire"
)

// Encode makes the Envoy routes that serve r in a virtual host. Most routes are one;
// beside it stand those for preflight requests, for origins without a share in a
// resource, for shares that differ in more than headers.
func (r Route) Encode(at Host) ([]*routev3.Route, error) {
	var list []*routev3.Route
	for _, s := range r.shares() {
		list = append(list, s.preflights()...)
		answers, err := s.answers(at)
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", s.Name, err)
		}
		list = append(list, answers...)
	}
	return list, nil
}

// share is a route for those of the requests that match whose number, by which Envoy
// also chooses among weighted clusters and what is mirrored, is in a range.
type share struct {
	Route
	from, below uint32 // of a million; those below from went to shares before
}

// shares cuts a route into one for each backend if they differ in what a weighted cluster
// cannot: where requests are redirected, rewritten, mirrored, or answered with 500 while
// the cluster of another, if it is missing, must answer 503. Bounds add up because Envoy
// compares them all with the same number of the request. A share is exact to a millionth.
func (r Route) shares() []share {
	if !r.uneven() {
		return []share{{r, 0, Million}}
	}
	var total, sum uint64
	for _, b := range r.Backends {
		total += uint64(b.Weight)
	}
	var list []share
	for i, b := range r.Backends {
		if b.Weight > 0 {
			from := uint32(sum * Million / total)
			sum += uint64(b.Weight)
			list = append(list, share{r.only(i), from, uint32(sum * Million / total)})
		}
	}
	return list
}

// uneven reports whether the backends need routes of their own. Where none serves, all of
// them are the same 500.
func (r Route) uneven() bool {
	return slices.ContainsFunc(r.Backends, Backend.serves) &&
		slices.ContainsFunc(r.Backends, func(b Backend) bool { return b.Weight > 0 && (b.Cluster == "" || b.apart()) })
}

// apart reports whether the filters can only be had by a route of their own.
func (f Filters) apart() bool {
	return f.Redirect != nil || f.Rewrite != (Rewrite{}) || len(f.Mirrors) > 0 || f.CORS != nil
}

// only is the route of one of the backends, with the filters of both.
func (r Route) only(i int) Route {
	b := r.Backends[i]
	r.Name = fmt.Sprintf("%s/%d", r.Name, i)
	if b.Cluster == "" {
		r.Backends = nil
		return r
	}
	if b.Rewrite.Host != "" {
		r.Rewrite.Host = b.Rewrite.Host
	}
	if b.Rewrite.Path.Kind != KeepPath {
		r.Rewrite.Path = b.Rewrite.Path
	}
	r.Mirrors = slices.Concat(r.Mirrors, b.Mirrors)
	if b.CORS != nil {
		r.CORS = b.CORS
	}
	r.Redirect = b.Redirect
	r.Backends = []Backend{{Cluster: b.Cluster, Weight: b.Weight, Filters: Filters{Request: b.Request, Response: b.Response}}}
	if r.Redirect != nil {
		r.Response = r.Response.then(b.Response)
		r.Backends = nil
	}
	return r
}

// match is what requests of the share must be like, and the conditions beside. A method
// is left out: those who need it give it.
func (s share) match(beside ...*routev3.HeaderMatcher) *routev3.RouteMatch {
	m := &routev3.RouteMatch{Headers: slices.Clone(beside)}
	s.Path.encode(m)
	for _, h := range s.Headers {
		m.Headers = append(m.Headers, matchHeader(h.Name, wire.String(h.Value, h.Regex)))
	}
	for _, q := range s.Query {
		m.QueryParameters = append(m.QueryParameters, &routev3.QueryParameterMatcher{
			Name: q.Name,
			QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{
				StringMatch: wire.String(q.Value, q.Regex),
			},
		})
	}
	if s.below < Million {
		m.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: perMillion(s.below)}
	}
	return m
}

func perMillion(n uint32) *typev3.FractionalPercent {
	return &typev3.FractionalPercent{Numerator: n, Denominator: typev3.FractionalPercent_MILLION}
}

// answers is the routes for requests that are no preflights.
func (s share) answers(at Host) ([]*routev3.Route, error) {
	var method []*routev3.HeaderMatcher
	if s.Method != "" {
		method = append(method, matchHeader(":method", wire.String(s.Method, false)))
	}
	if action := s.forward(); action != nil {
		m := &routev3.Route{Name: s.Name, Match: s.match(method...), Action: &routev3.Route_Route{Route: action}}
		if !s.changedByBackend() {
			s.change(m)
		}
		return []*routev3.Route{m}, s.mark(m)
	}
	var list []*routev3.Route
	local := []*routev3.Route{{Name: s.Name, Match: s.match(method...), Action: Respond(500)}}
	if s.Redirect != nil {
		local = s.redirects(at, method)
	}
	for _, m := range local {
		s.change(m)
		list = append(list, s.markLocal(m)...)
	}
	return list, nil
}

// Respond is an empty answer of the proxy itself.
func Respond(status uint32) *routev3.Route_DirectResponse {
	return &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: status}}
}
