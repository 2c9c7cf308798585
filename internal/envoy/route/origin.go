package route

import (
	"errors"
	"regexp"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"aether.io/aether/internal/envoy/wire"
)

// origin is one that may be allowed, with a host that may be "*" or begin with "*.".
type origin struct {
	scheme, host, port string
	usual              bool // the port is the scheme's own, which clients leave out
}

// parseOrigin reads <scheme>://<host>[:<port>].
func parseOrigin(s string) (origin, error) {
	scheme, rest, found := strings.Cut(strings.ToLower(s), "://")
	usual := map[string]string{"http": "80", "https": "443"}[scheme]
	if !found || usual == "" {
		return origin{}, errors.New("want http:// or https:// and a host")
	}
	host, port, hasPort := strings.Cut(rest, ":")
	if !hasPort {
		port = usual
	}
	name := strings.TrimPrefix(host, "*.")
	switch {
	case port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "":
		return origin{}, errors.New("want a port after the colon")
	case host != anything && (name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != ""):
		return origin{}, errors.New("want a host of letters, digits, hyphens and dots, a * only as its first label")
	}
	return origin{scheme, host, port, port == usual}, nil
}

// originMatchers matches the Origin headers that mean the origin: its port may be there or
// not if it is the scheme's own, letter case does not matter, a "*" is any labels.
func originMatchers(s string) []*matcherv3.StringMatcher {
	if s == anything {
		return []*matcherv3.StringMatcher{wire.String(anything, false)} // Envoy's word for all
	}
	o, err := parseOrigin(s)
	if err != nil { // it was checked
		return nil
	}
	if strings.HasPrefix(o.host, anything) {
		return []*matcherv3.StringMatcher{wire.String(o.pattern(), true)}
	}
	exact := func(value string) *matcherv3.StringMatcher {
		m := wire.String(value, false)
		m.IgnoreCase = true
		return m
	}
	name := o.scheme + "://" + o.host
	list := []*matcherv3.StringMatcher{exact(name + ":" + o.port)}
	if o.usual {
		list = append(list, exact(name))
	}
	return list
}

// labels is what a "*" stands for. Nothing but characters of a host's name: what a reader
// might take for the end of the host must not come before the rest of the name.
const labels = `[a-z0-9._-]+`

func (o origin) pattern() string {
	host := `(` + labels + `|\[[0-9a-f:.]+\])`
	if name, found := strings.CutPrefix(o.host, "*."); found {
		host = labels + `\.` + regexp.QuoteMeta(name)
	}
	port := ":" + o.port
	if o.usual {
		port = "(" + port + ")?"
	}
	return "(?i)" + o.scheme + "://" + host + port
}
