package rule

import (
	"cmp"
	"strings"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/routing/key"
)

// Match is one match of one rule, with what decides its place among all the matches of
// a host.
type Match struct {
	envoy.Route
	Created     int64    // of the HTTPRoute, Unix seconds
	From        key.Name // the HTTPRoute
	Hostnames   []string // of the HTTPRoute, in lower case; none: any that its listeners have
	Rule, Index int
	Footprint   int64 // of Envoy's memory, in bytes, in each host; an estimate
}

// Compare is the order in which matches are tried whose routes name the host equally, by
// the specification's text (HTTPRouteRule.matches): exact paths, then the longest prefix, a method, most headers,
// most query parameters, the oldest route, "{namespace}/{name}", the first rule, the
// first match. The text leaves the place of regular expressions open: here they come
// after exact paths and before prefixes, the longest pattern first, so that a catch-all
// prefix does not hide them.
func (m Match) Compare(o Match) int {
	return cmp.Or(
		cmp.Compare(pathClass(m.Path.Kind), pathClass(o.Path.Kind)),
		-cmp.Compare(pathLength(m.Path), pathLength(o.Path)),
		-cmp.Compare(min(len(m.Method), 1), min(len(o.Method), 1)),
		-cmp.Compare(len(m.Headers), len(o.Headers)),
		-cmp.Compare(len(m.Query), len(o.Query)),
		cmp.Compare(m.Created, o.Created),
		strings.Compare(m.From.String(), o.From.String()), // not as Names compare: "a-b/" is before "a/"
		cmp.Compare(m.Rule, o.Rule),
		cmp.Compare(m.Index, o.Index),
	)
}

func pathClass(k envoy.PathKind) int {
	switch k {
	case envoy.PathExact:
		return 0
	case envoy.PathRegex:
		return 1
	case envoy.PathPrefix:
	}
	return 2
}

// pathLength is the number of characters that count. Exact paths do not overlap, and a
// prefix's trailing slash does not matter.
func pathLength(p envoy.PathMatch) int {
	switch p.Kind {
	case envoy.PathRegex:
		return len(p.Value)
	case envoy.PathPrefix:
		return len(strings.TrimRight(p.Value, "/"))
	case envoy.PathExact:
	}
	return 0
}
