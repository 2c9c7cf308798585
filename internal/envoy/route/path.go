package route

import (
	"regexp"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"aether.io/aether/internal/envoy/wire"
)

// NormalPath is a path as Envoy reads that of a request before it looks for a route: what
// needs no escape has none, and dot segments are resolved, those with parameters
// ("..;x") too. A path to match that is not normal would match nothing. Escapes that
// stay are in upper case here; in requests they are as they were sent.
func NormalPath(path string) string {
	if !strings.HasPrefix(path, "/") {
		return path
	}
	var out []string
	list := strings.Split(unescape(path), "/")[1:]
	for i, segment := range list {
		name, _, _ := strings.Cut(segment, ";")
		switch name {
		case ".":
		case "..":
			out = out[:max(len(out)-1, 0)]
		default:
			out = append(out, segment)
			continue
		}
		if i == len(list)-1 {
			out = append(out, "") // what stood before it ends in a slash
		}
	}
	return "/" + strings.Join(out, "/")
}

// unescape undoes the escapes of unreserved characters (RFC 3986, 2.3), and has the digits
// of all others in upper case.
func unescape(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c, escaped := escapeAt(path[i:])
		switch {
		case !escaped:
			b.WriteByte(path[i])
			continue
		case strings.IndexByte("-._~", c) >= 0 || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z':
			b.WriteByte(c)
		default:
			b.WriteString(strings.ToUpper(path[i : i+3]))
		}
		i += 2
	}
	return b.String()
}

// escapeAt reads the escape that a text begins with.
func escapeAt(s string) (c byte, is bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	n, err := strconv.ParseUint(s[1:3], 16, 8)
	return byte(n), err == nil
}

// eitherCase is an expression for the path with the letters of its escapes in either case,
// which mean the same (RFC 3986, 6.2.2.1); needed is whether it has any.
func eitherCase(path string) (expression string, needed bool) {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if _, is := escapeAt(path[i:]); !is {
			b.WriteString(regexp.QuoteMeta(path[i : i+1]))
			continue
		}
		digits := path[i+1 : i+3]
		needed = needed || strings.Trim(digits, "0123456789") != ""
		b.WriteString("%(?i:" + digits + ")")
		i += 2
	}
	return b.String(), needed
}

func (p PathMatch) encode(m *routev3.RouteMatch) {
	path := p.Value
	if p.Kind == PathPrefix {
		path = strings.TrimRight(path, "/")
	}
	expression, needed := eitherCase(path)
	switch {
	case p.Kind == PathRegex:
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: wire.Regex(p.Value)}
	case p.Kind == PathExact && needed:
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: wire.Regex(expression)}
	case p.Kind == PathExact:
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: path}
	case path == "":
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
	case needed:
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: wire.Regex(expression + "(/.*)?")}
	default:
		m.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: path}
	}
}
