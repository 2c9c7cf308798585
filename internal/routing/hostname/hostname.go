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

// Valid reports whether Envoy takes the name.
func Valid(host string) bool {
	probe := envoy.Scope{Table: "table", Host: Any, VirtualHosts: []envoy.VirtualHost{{Host: host}}}
	return probe.Validate() == nil
}
