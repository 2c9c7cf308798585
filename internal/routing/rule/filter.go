package rule

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy/route"
	"aether.io/aether/internal/routing/condition"
)

// filters is what a list of filters asks for.
type filters struct {
	route.Filters
	rewrites   bool // there is a URLRewrite
	unresolved bool // there is one that is not known: it must not be skipped, so requests fail
}

// compileFilters reads a rule's or a backend's filters, or says why they cannot be had.
// References that are not good go to refs.
func compileFilters(list []gatewayv1.HTTPRouteFilter, refs *references) (filters, condition.Problem) {
	var out filters
	seen := map[gatewayv1.HTTPRouteFilterType]bool{}
	for i := range list {
		f := &list[i]
		if seen[f.Type] && f.Type != gatewayv1.HTTPRouteFilterRequestMirror && f.Type != gatewayv1.HTTPRouteFilterExtensionRef {
			return out, condition.Problemf(gatewayv1.RouteReasonIncompatibleFilters, "filter %s is there twice", f.Type)
		}
		seen[f.Type] = true
		if why := out.add(f, refs); why != "" {
			return out, condition.Problemf(gatewayv1.RouteReasonUnsupportedValue, "filter %s: %s", f.Type, why)
		}
	}
	return out, out.incompatible()
}

// incompatible names what cannot be combined: there is nothing left to rewrite or to
// mirror of a request that is redirected.
func (o filters) incompatible() condition.Problem {
	switch {
	case o.Redirect == nil:
		return condition.Problem{}
	case o.rewrites:
		return condition.Problemf(gatewayv1.RouteReasonIncompatibleFilters, "RequestRedirect and URLRewrite cannot be combined")
	case len(o.Mirrors) > 0:
		return condition.Problemf(gatewayv1.RouteReasonIncompatibleFilters, "RequestRedirect and RequestMirror cannot be combined")
	}
	return condition.Problem{}
}

// add reads one filter, or says what is not understood of it.
func (o *filters) add(f *gatewayv1.HTTPRouteFilter, refs *references) string {
	switch {
	case f.Type == gatewayv1.HTTPRouteFilterRequestHeaderModifier && f.RequestHeaderModifier != nil:
		change, host := compileChange(f.RequestHeaderModifier, true)
		o.Request = change
		if host != "" {
			o.Rewrite.Host = host
		}
	case f.Type == gatewayv1.HTTPRouteFilterResponseHeaderModifier && f.ResponseHeaderModifier != nil:
		o.Response, _ = compileChange(f.ResponseHeaderModifier, false)
	case f.Type == gatewayv1.HTTPRouteFilterRequestRedirect && f.RequestRedirect != nil:
		return o.redirect(f.RequestRedirect)
	case f.Type == gatewayv1.HTTPRouteFilterURLRewrite && f.URLRewrite != nil:
		o.rewrites = true
		if f.URLRewrite.Hostname != nil {
			o.Rewrite.Host = string(*f.URLRewrite.Hostname)
		}
		var why string
		o.Rewrite.Path, why = compilePath(f.URLRewrite.Path)
		return why
	case f.Type == gatewayv1.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
		o.mirror(f.RequestMirror, refs)
	case f.Type == gatewayv1.HTTPRouteFilterCORS && f.CORS != nil:
		o.CORS = compileCORS(f.CORS)
	case f.Type == gatewayv1.HTTPRouteFilterExtensionRef && f.ExtensionRef != nil:
		o.unresolved = true
		refs.complain(condition.Problemf(gatewayv1.RouteReasonInvalidKind, "extensionRef %s: %s of group %q is no filter that is known",
			f.ExtensionRef.Name, f.ExtensionRef.Kind, f.ExtensionRef.Group))
	default:
		return "is unknown, or there is nothing in it"
	}
	return ""
}

// compileChange reads changes of headers. Names are compared without regard to case, and
// of equivalent ones in one list only the first counts (HTTPHeader.name). To set Host is
// to rewrite it.
func compileChange(f *gatewayv1.HTTPHeaderFilter, ofRequest bool) (c route.HeaderChange, host string) {
	headers := func(list []gatewayv1.HTTPHeader) (out []route.Header) {
		for _, h := range list {
			name := strings.ToLower(string(h.Name))
			if !slices.ContainsFunc(out, func(o route.Header) bool { return o.Name == name }) {
				out = append(out, route.Header{Name: name, Value: h.Value})
			}
		}
		return out
	}
	c = route.HeaderChange{Set: headers(f.Set), Add: headers(f.Add)}
	for _, name := range f.Remove {
		if name = strings.ToLower(name); !slices.Contains(c.Remove, name) {
			c.Remove = append(c.Remove, name)
		}
	}
	if i := slices.IndexFunc(c.Set, func(h route.Header) bool { return h.Name == "host" }); i >= 0 && ofRequest {
		host = c.Set[i].Value
		c.Set = slices.Delete(c.Set, i, i+1)
	}
	return c, host
}

func (o *filters) redirect(f *gatewayv1.HTTPRequestRedirectFilter) string {
	status := ptr.Deref(f.StatusCode, 302)
	d := &route.Redirect{Scheme: ptr.Deref(f.Scheme, ""), Host: string(ptr.Deref(f.Hostname, "")), Status: uint32(max(status, 0))}
	if f.Port != nil {
		d.Port = uint32(max(*f.Port, 0))
	}
	var why string
	d.Path, why = compilePath(f.Path)
	o.Redirect = d
	return why
}

func compilePath(p *gatewayv1.HTTPPathModifier) (route.PathChange, string) {
	switch {
	case p == nil:
		return route.PathChange{}, ""
	case p.Type == gatewayv1.FullPathHTTPPathModifier && p.ReplaceFullPath != nil:
		return route.PathChange{Kind: route.ReplacePath, Value: *p.ReplaceFullPath}, ""
	case p.Type == gatewayv1.PrefixMatchHTTPPathModifier && p.ReplacePrefixMatch != nil:
		return route.PathChange{Kind: route.ReplacePrefix, Value: *p.ReplacePrefixMatch}, ""
	}
	return route.PathChange{}, fmt.Sprintf("path type %s is unknown, or there is nothing in it", p.Type)
}

// mirror adds a mirror. One to a backend that is not good is left out, and a condition
// says so (HTTPRequestMirrorFilter.backendRef).
func (o *filters) mirror(f *gatewayv1.HTTPRequestMirrorFilter, refs *references) {
	cluster := refs.cluster(&gatewayv1.BackendRef{BackendObjectReference: f.BackendRef})
	if share := perMillion(f); cluster != "" && share > 0 {
		o.Mirrors = append(o.Mirrors, route.Mirror{Cluster: cluster, PerMillion: share})
	}
}

// perMillion is the share to mirror. One that is not 0 does not become 0 by rounding.
func perMillion(f *gatewayv1.HTTPRequestMirrorFilter) uint32 {
	numerator, denominator := int64(1), int64(1)
	switch {
	case f.Percent != nil:
		numerator, denominator = int64(*f.Percent), 100
	case f.Fraction != nil:
		numerator, denominator = int64(f.Fraction.Numerator), int64(ptr.Deref(f.Fraction.Denominator, 100))
	}
	if numerator <= 0 || denominator <= 0 {
		return 0
	}
	return uint32(min(max((numerator*route.Million+denominator/2)/denominator, 1), route.Million))
}

// defaultMaxAge is what the CRD puts where nothing is said.
const defaultMaxAge = 5

func compileCORS(f *gatewayv1.HTTPCORSFilter) *route.CORS {
	c := &route.CORS{
		Origins: texts(f.AllowOrigins), Credentials: ptr.Deref(f.AllowCredentials, false),
		Methods: texts(f.AllowMethods), Headers: texts(f.AllowHeaders), Expose: texts(f.ExposeHeaders),
		MaxAge: defaultMaxAge,
	}
	if f.MaxAge > 0 {
		c.MaxAge = uint32(f.MaxAge)
	}
	return c
}

func texts[T ~string](list []T) []string {
	var out []string
	for _, s := range list {
		out = append(out, string(s))
	}
	return out
}
