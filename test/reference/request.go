package reference

import (
	"net/url"
	"regexp"
	"strings"
)

// Header is one header line.
type Header struct{ Name, Value string }

// Request is one as a client sends it.
type Request struct {
	Port    int32 // the listener's
	TLS     bool
	SNI     string // server name of the TLS handshake; may be empty
	Method  string
	Target  string // as on the request line: a path, with a query or without
	Host    string // as in the Host header
	Headers []Header
}

// absolute is the request with a whole URL as its target taken apart: its host counts, not
// the Host header's (RFC 9112, 3.2.2).
func (r Request) absolute() Request {
	for _, scheme := range []string{"http://", "https://"} {
		if rest, ok := strings.CutPrefix(r.Target, scheme); ok {
			host, path, _ := strings.Cut(rest, "/")
			r.Host, r.Target = host, "/"+path
		}
	}
	return r
}

// host is what is matched: "Implementations MUST ignore any port value specified in the
// HTTP Host header while performing a match". Host names are not case-sensitive (RFC 9110,
// 4.2.3), and one with a trailing dot is the same name.
func (r Request) host() string {
	host := r.Host
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.Contains(host[:i], ":") {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// path is what is matched.
func (r Request) path() string {
	path, _, _ := strings.Cut(r.Target, "?")
	return resolved(path)
}

// escape is an octet that a path has escaped.
var escape = regexp.MustCompile(`%[0-9a-fA-F]{2}`)

// resolved is a path as it is compared. Choice: dot segments, plain or escaped, are
// resolved first (RFC 3986, 5.2.4), and what needs no escape has none (RFC 3986, 6.2.2.2);
// duplicate slashes are kept, and escaped ones stay escaped.
func resolved(path string) string {
	path = escape.ReplaceAllStringFunc(path, func(e string) string {
		if plain, err := url.PathUnescape(e); err == nil && url.QueryEscape(plain) == plain {
			return plain
		}
		return e
	})
	in, out := path, ""
	for in != "" {
		switch {
		case strings.HasPrefix(in, "/./"):
			in = in[2:]
		case in == "/.":
			in = "/"
		case strings.HasPrefix(in, "/../"), in == "/..":
			in = "/" + strings.TrimPrefix(in[3:], "/")
			out = out[:max(strings.LastIndexByte(out, '/'), 0)]
		default:
			next := strings.IndexByte(in[1:], '/') + 1
			if next == 0 {
				next = len(in)
			}
			out += in[:next]
			in = in[next:]
		}
	}
	return out
}

// sameCase has the digits of a path's escapes in one letter case, which does not matter
// (RFC 3986, 6.2.2.1).
func sameCase(path string) string { return escape.ReplaceAllStringFunc(path, strings.ToUpper) }

// header is the values of a header. "When a header is repeated in an HTTP request, it is
// implementation-specific behavior as to how this is represented." Choice: each is matched
// by itself, and one that matches is enough.
func (r Request) header(name string) (values []string) {
	if strings.EqualFold(name, "Host") {
		return []string{r.Host} // Choice: as it is sent, with the dot at its end if it has one.
	}
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, name) {
			values = append(values, strings.TrimSpace(h.Value))
		}
	}
	return values
}

// query is the value of a parameter: "it is *recommended* that implementations should match
// against the first value of the param". Choice: names and values are matched as they are
// sent, escapes and all.
func (r Request) query(name string) (string, bool) {
	_, query, _ := strings.Cut(r.Target, "?")
	for part := range strings.SplitSeq(query, "&") {
		key, val, _ := strings.Cut(part, "=")
		if part != "" && key == name {
			return val, true
		}
	}
	return "", false
}
