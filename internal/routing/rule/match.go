package rule

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/route"
	"aether.io/aether/internal/routing/condition"
)

// compileMatches reads the matches of the rule of that name, and says what of them is
// not understood or not taken by Envoy. Such a match is left out: what it would match
// is not known, so nothing can be put in its place.
func compileMatches(r *gatewayv1.HTTPRouteRule, rule string) (list []Match, invalid condition.Problem) {
	matches := r.Matches
	if len(matches) == 0 {
		matches = []gatewayv1.HTTPRouteMatch{{}}
	}
	for i := range matches {
		m, why := compileMatch(&matches[i])
		m.Name = fmt.Sprintf("%s/%d", rule, i)
		if why == "" {
			if err := m.Validate(); err != nil {
				why = err.Error()
			}
		}
		if why != "" {
			invalid = condition.Problemf(gatewayv1.RouteReasonUnsupportedValue, "match %d: %s", i, why)
			continue
		}
		list = append(list, Match{Route: m, Index: i})
	}
	return list, invalid
}

func compileMatch(m *gatewayv1.HTTPRouteMatch) (envoy.Route, string) {
	r := envoy.Route{Path: envoy.PathMatch{Value: "/"}, Method: string(ptr.Deref(m.Method, ""))}
	if p := m.Path; p != nil {
		if p.Value != nil {
			r.Path.Value = *p.Value
		}
		switch ptr.Deref(p.Type, "") {
		case "", gatewayv1.PathMatchPathPrefix:
		case gatewayv1.PathMatchExact:
			r.Path.Kind = envoy.PathExact
		case gatewayv1.PathMatchRegularExpression:
			r.Path.Kind = envoy.PathRegex
		default:
			return r, fmt.Sprintf("path type %s is unknown", *p.Type)
		}
		if r.Path.Kind != envoy.PathRegex {
			r.Path.Value = route.NormalPath(r.Path.Value)
		}
	}
	for _, h := range m.Headers {
		header := envoy.HeaderMatch{Name: strings.ToLower(string(h.Name)), Value: h.Value, Regex: ptr.Deref(h.Type, "") == gatewayv1.HeaderMatchRegularExpression}
		if h.Type != nil && !header.Regex && *h.Type != gatewayv1.HeaderMatchExact {
			return r, fmt.Sprintf("header match type %s is unknown", *h.Type)
		}
		// Of equivalent names only the first counts.
		if !slices.ContainsFunc(r.Headers, func(o envoy.HeaderMatch) bool { return o.Name == header.Name }) {
			r.Headers = append(r.Headers, header)
		}
	}
	for _, q := range m.QueryParams {
		query := envoy.QueryMatch{Name: string(q.Name), Value: q.Value, Regex: ptr.Deref(q.Type, "") == gatewayv1.QueryParamMatchRegularExpression}
		if q.Type != nil && !query.Regex && *q.Type != gatewayv1.QueryParamMatchExact {
			return r, fmt.Sprintf("query parameter match type %s is unknown", *q.Type)
		}
		if !slices.ContainsFunc(r.Query, func(o envoy.QueryMatch) bool { return o.Name == query.Name }) {
			r.Query = append(r.Query, query)
		}
	}
	return r, ""
}
