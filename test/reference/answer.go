package reference

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Closed is the answer where no listener takes the connection.
const Closed = "closed"

// Answer is what may answer a request.
type Answer struct {
	// Outcomes are the ones possible, sorted: "namespace/service:port", a status such as
	// "404", or Closed.
	Outcomes []string
	// Why is the rule that decided, "namespace/route rule 1 match 0", or what did instead.
	Why string
}

func only(outcome, why string) Answer { return Answer{Outcomes: []string{outcome}, Why: why} }

// Answer says what may answer the request.
func (w *World) Answer(r Request) Answer {
	r = r.absolute()
	protocol := gatewayv1.HTTPProtocolType
	if r.TLS {
		protocol = gatewayv1.HTTPSProtocolType
	}
	all := slices.DeleteFunc(w.listeners(r.Port), func(l listener) bool { return l.Protocol != protocol })
	if len(all) == 0 {
		return only(Closed, "no listener on the port")
	}
	l, found := choose(all, r.host())
	if r.TLS {
		shaken, ok := choose(all, strings.ToLower(strings.TrimSuffix(r.SNI, ".")))
		switch {
		case !ok:
			return only(Closed, "no listener for the server name")
		case !found:
			// "If no other Listener matches the Host, the Gateway MUST return a 404."
			return only("404", "no listener for the host")
		case !shaken.is(l):
			// "If another Listener has an exact match or more specific wildcard entry, the
			// Gateway SHOULD return a 421. If the current Listener (selected by SNI matching
			// during ClientHello) does not match the Host: If another Listener does match the
			// Host, the Gateway SHOULD return a 421."
			return only("421", "listener "+string(l.Name)+" has the host, not "+string(shaken.Name))
		}
	}
	if !found {
		// "If traffic to a Gateway does not match any Listener's hostname (or if the Listener
		// does not specify a hostname and the request does not match any attached Route), the
		// request MUST be rejected. [...] HTTP returns a 404 status code."
		return only("404", "no listener for the host")
	}
	return w.route(l, r)
}

// candidate is one match of a rule that a request satisfies.
type candidate struct {
	route       *gatewayv1.HTTPRoute
	host        string // of the route, that matched; empty if it names none
	rule, match int
	gatewayv1.HTTPRouteMatch
}

// route finds the rule of a listener's routes that a request goes by.
func (w *World) route(l listener, r Request) Answer {
	var routes []candidate
	for _, route := range w.routes {
		if !w.attached(route, l) {
			continue
		}
		if host, ok := matching(route, r.host()); ok {
			routes = append(routes, candidate{route: route, host: host})
		}
	}
	routes = mostSpecific(routes, l.host())
	var matches []candidate
	for _, c := range routes {
		for i, rule := range c.route.Spec.Rules {
			list := rule.Matches
			if len(list) == 0 {
				// "If no matches are specified, the default is a prefix path match on "/"."
				list = []gatewayv1.HTTPRouteMatch{{}}
			}
			for j, m := range list {
				if satisfies(r, m) {
					matches = append(matches, candidate{route: c.route, host: c.host, rule: i, match: j, HTTPRouteMatch: m})
				}
			}
		}
	}
	if len(matches) == 0 {
		// "When no rules matching a request have been successfully attached to the parent a
		// request is coming from, a HTTP 404 status code MUST be returned."
		return only("404", "no rule of listener "+string(l.Name)+" matches")
	}
	best := slices.MinFunc(matches, precedence)
	answer := w.outcomes(best.route, best.route.Spec.Rules[best.rule])
	answer.Why = best.route.Namespace + "/" + best.route.Name + " rule " + itoa(int32(best.rule)) + " match " + itoa(int32(best.match)) + " on listener " + string(l.Name)
	return answer
}

// matching is the most specific host name of a route that matches a host. "A Listener with
// `test.example.com` as the hostname matches HTTPRoutes that have either not specified any
// hostnames, or [...]": such a route matches, and no character of a hostname of it does.
func matching(route *gatewayv1.HTTPRoute, host string) (best string, ok bool) {
	if len(route.Spec.Hostnames) == 0 {
		return "", true
	}
	for _, h := range route.Spec.Hostnames {
		if covers(string(h), host) && (!ok || specificity(best, string(h)) > 0) {
			best, ok = string(h), true
		}
	}
	return best, ok
}

// specificity orders host names, the more specific first: "precedence must be given to
// rules from the HTTPRoute with the largest number of: Characters in a matching
// non-wildcard hostname. Characters in a matching hostname".
func specificity(a, b string) int {
	exact := func(name string) int {
		if strings.HasPrefix(name, "*") {
			return 0
		}
		return len(name)
	}
	return cmp.Or(cmp.Compare(exact(b), exact(a)), cmp.Compare(len(b), len(a)))
}

// mostSpecific leaves the routes whose host name, as far as the listener has it, is the
// most specific one that matches.
//
// Choice: a host for which some route has such a name does not fall through to the routes
// of a less specific one when no rule of the former matches: it is answered with 404.
func mostSpecific(routes []candidate, listener string) []candidate {
	shared := func(c candidate) string {
		if specificity(listener, c.host) < 0 {
			return listener
		}
		return c.host
	}
	if len(routes) == 0 {
		return nil
	}
	best := slices.MinFunc(routes, func(a, b candidate) int { return specificity(shared(a), shared(b)) })
	return slices.DeleteFunc(routes, func(c candidate) bool { return specificity(shared(c), shared(best)) != 0 })
}

// satisfies: "Multiple match types are ANDed together, i.e. the match will evaluate to
// true only if all conditions are satisfied".
func satisfies(r Request, m gatewayv1.HTTPRouteMatch) bool {
	path, kind := pathOf(m)
	switch kind {
	case gatewayv1.PathMatchExact:
		// "Matches the URL path exactly and with case sensitivity."
		if sameCase(r.path()) != path {
			return false
		}
	case gatewayv1.PathMatchPathPrefix:
		// "Matching is case-sensitive and done on a path element by element basis. [...] When
		// specified, a trailing `/` is ignored. For example, the paths `/abc`, `/abc/`, and
		// `/abc/def` would all match the prefix `/abc`, but the path `/abcd` would not."
		prefix := strings.TrimSuffix(path, "/")
		if rest, ok := strings.CutPrefix(sameCase(r.path()), prefix); !ok || rest != "" && rest[0] != '/' {
			return false
		}
	case gatewayv1.PathMatchRegularExpression:
		if !whole(path, r.path()) {
			return false
		}
	default:
		return false
	}
	// "When specified, this route will be matched only if the request has the specified method."
	if m.Method != nil && string(*m.Method) != r.Method {
		return false
	}
	for _, h := range headersOf(m) {
		regex := value(h.Type, gatewayv1.HeaderMatchExact) == gatewayv1.HeaderMatchRegularExpression
		if !slices.ContainsFunc(r.header(string(h.Name)), func(got string) bool { return same(regex, h.Value, got) }) {
			return false
		}
	}
	for _, q := range queriesOf(m) {
		got, present := r.query(string(q.Name))
		if !present || !same(value(q.Type, gatewayv1.QueryParamMatchExact) == gatewayv1.QueryParamMatchRegularExpression, q.Value, got) {
			return false
		}
	}
	return true
}

// whole reports whether a regular expression matches all of a text. Choice: RE2's dialect.
func whole(pattern, text string) bool {
	re, err := regexp.Compile(`^(?:` + pattern + `)$`)
	return err == nil && re.MatchString(text)
}

func same(regex bool, want, got string) bool {
	if regex {
		return whole(want, got)
	}
	return want == got
}

// pathOf: "If this field is not specified, a default prefix match on the "/" path is
// provided". Choice: a path, unless it is a regular expression, means what it means in a
// request.
func pathOf(m gatewayv1.HTTPRouteMatch) (path string, kind gatewayv1.PathMatchType) {
	if m.Path == nil {
		return "/", gatewayv1.PathMatchPathPrefix
	}
	path, kind = value(m.Path.Value, "/"), value(m.Path.Type, gatewayv1.PathMatchPathPrefix)
	if kind != gatewayv1.PathMatchRegularExpression {
		path = sameCase(resolved(path))
	}
	return path, kind
}

// headersOf: "If multiple entries specify equivalent header names, only the first entry
// with an equivalent name MUST be considered for a match. Subsequent entries with an
// equivalent header name MUST be ignored. Due to the case-insensitivity of header names,
// "foo" and "Foo" are considered equivalent".
func headersOf(m gatewayv1.HTTPRouteMatch) (out []gatewayv1.HTTPHeaderMatch) {
	for _, h := range m.Headers {
		if !slices.ContainsFunc(out, func(o gatewayv1.HTTPHeaderMatch) bool { return strings.EqualFold(string(o.Name), string(h.Name)) }) {
			out = append(out, h)
		}
	}
	return out
}

// queriesOf: "This must be an exact string match. [...] If multiple entries specify
// equivalent query param names, only the first entry with an equivalent name MUST be
// considered for a match".
func queriesOf(m gatewayv1.HTTPRouteMatch) (out []gatewayv1.HTTPQueryParamMatch) {
	for _, q := range m.QueryParams {
		if !slices.ContainsFunc(out, func(o gatewayv1.HTTPQueryParamMatch) bool { return o.Name == q.Name }) {
			out = append(out, q)
		}
	}
	return out
}

// precedence orders matches, the one that wins first: the more specific host name of the
// route ("If ties exist across multiple Routes, the matching precedence rules for
// HTTPRouteMatches takes over"), then ""Exact" path match. "Prefix" path
// match with largest number of characters. Method match. Largest number of header
// matches. Largest number of query param matches. [...] The oldest Route based on creation
// timestamp. The Route appearing first in alphabetical order by "{namespace}/{name}". [...]
// the FIRST matching rule (in list order) with a match meeting the above criteria".
func precedence(a, b candidate) int {
	// "The precedence of RegularExpression path matches are implementation-specific."
	// Choice: after Exact, before every prefix, the longest first.
	kind := func(c candidate) int {
		_, k := pathOf(c.HTTPRouteMatch)
		return slices.Index([]gatewayv1.PathMatchType{gatewayv1.PathMatchExact, gatewayv1.PathMatchRegularExpression, gatewayv1.PathMatchPathPrefix}, k)
	}
	// The slash at the end of a prefix "is ignored": it is no character of it.
	length := func(c candidate) int {
		path, k := pathOf(c.HTTPRouteMatch)
		if k == gatewayv1.PathMatchPathPrefix {
			path = strings.TrimSuffix(path, "/")
		}
		return len(path)
	}
	method := func(c candidate) int {
		if c.Method != nil {
			return 0
		}
		return 1
	}
	name := func(c candidate) string { return c.route.Namespace + "/" + c.route.Name }
	return cmp.Or(
		specificity(a.host, b.host),
		cmp.Compare(kind(a), kind(b)),
		cmp.Compare(length(b), length(a)),
		cmp.Compare(method(a), method(b)),
		cmp.Compare(len(headersOf(b.HTTPRouteMatch)), len(headersOf(a.HTTPRouteMatch))),
		cmp.Compare(len(queriesOf(b.HTTPRouteMatch)), len(queriesOf(a.HTTPRouteMatch))),
		a.route.CreationTimestamp.Compare(b.route.CreationTimestamp.Time),
		strings.Compare(name(a), name(b)),
		cmp.Compare(a.rule, b.rule),
	)
}

// outcomes are what a rule's backends may answer.
func (w *World) outcomes(route *gatewayv1.HTTPRoute, rule gatewayv1.HTTPRouteRule) Answer {
	for _, f := range rule.Filters {
		if f.RequestRedirect != nil {
			return only(itoa(int32(value(f.RequestRedirect.StatusCode, 302))), "")
		}
	}
	var out []string
	for _, b := range rule.BackendRefs {
		// "If weight is set to 0, no traffic should be forwarded for this entry. If
		// unspecified, weight defaults to 1."
		if value(b.Weight, 1) > 0 {
			// "When a HTTPBackendRef is invalid, 500 status codes MUST be returned for requests
			// that would have otherwise been routed to an invalid backend."
			out = append(out, w.backend(route, b.BackendObjectReference))
		}
	}
	if len(out) == 0 {
		// "If *all* entries in BackendRefs are invalid, and there are also no filters specified
		// in this route rule, *all* traffic which matches this rule MUST receive a 500 status
		// code." None, or none with a weight, are as good as invalid ones.
		return only("500", "")
	}
	slices.Sort(out)
	return Answer{Outcomes: slices.Compact(out)}
}
