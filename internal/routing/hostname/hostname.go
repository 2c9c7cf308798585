// Package hostname is the arithmetic of host names with wildcards, as the Gateway API
// defines them. Names are in lower case. It looks nothing up.
package hostname

import (
	"cmp"
	"strings"

	"aether.io/aether/internal/envoy"
)

// Any stands for every host: that of a listener which names none.
const Any = "*"

// IsWildcard reports whether host is "*" or "*.x".
func IsWildcard(host string) bool { return strings.HasPrefix(host, "*") }

// Covers reports whether every name that host stands for also matches pattern. A
// wildcard stands for any number of labels, at least one.
func Covers(pattern, host string) bool {
	switch {
	case pattern == Any || pattern == host:
		return true
	case !IsWildcard(pattern) || host == Any:
		return false
	}
	return strings.HasSuffix(host, pattern[1:])
}

// Patterns is the names that cover host, the most specific first: itself, then wildcards
// with ever fewer labels, then Any.
func Patterns(host string) []string {
	list := []string{host}
	_, rest, _ := strings.Cut(strings.TrimPrefix(host, "*."), ".")
	for ; rest != ""; _, rest, _ = strings.Cut(rest, ".") {
		list = append(list, "*."+rest)
	}
	if host != Any {
		list = append(list, Any)
	}
	return list
}

// Intersect is the hostname of what matches both, if anything does.
func Intersect(a, b string) (string, bool) {
	switch {
	case Covers(a, b):
		return b, true
	case Covers(b, a):
		return a, true
	}
	return "", false
}

// CompareSpecificity orders names as a request looks for its listener: exact ones, then
// wildcards with more labels, then Any.
func CompareSpecificity(a, b string) int {
	rank := func(h string) int {
		switch {
		case h == Any:
			return 0
		case IsWildcard(h):
			return strings.Count(h, ".")
		}
		return 1 << 16
	}
	return cmp.Compare(rank(b), rank(a))
}

// ComparePrecedence orders the names by which routes have a host, by the specification's
// text (HTTPRouteSpec.hostnames): most "characters in a matching non-wildcard hostname",
// then most "characters in a matching hostname". No name at all, which has none, is last.
func ComparePrecedence(a, b string) int {
	return cmp.Or(cmp.Compare(exact(b), exact(a)), cmp.Compare(len(b), len(a)))
}

func exact(host string) int {
	if IsWildcard(host) {
		return 0
	}
	return len(host)
}

// Own is the name by which a route that has these has host: the one of them that is first
// by ComparePrecedence, or none if it has none, whatever its listener calls the host.
func Own(names []string, host string) string {
	best := ""
	for _, n := range names {
		if Covers(n, host) && (best == "" || ComparePrecedence(n, best) < 0) {
			best = n
		}
	}
	return best
}

// Valid reports whether Envoy takes the name.
func Valid(host string) bool {
	probe := envoy.Scope{Table: "table", Host: Any, VirtualHosts: []envoy.VirtualHost{{Host: host}}}
	return probe.Validate() == nil
}
