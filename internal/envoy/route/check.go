package route

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/envoy/wire"
)

// maxTimeout is past the longest that four terms of five digits of hours can say.
const maxTimeout = 400_000 * time.Hour

// Validate tells whether Envoy will take the route. Errors are *check.InvalidError with
// the route's name and without an origin: a caller can leave the route out and serve the
// rest.
func (r Route) Validate() error {
	err := check.Within("route "+r.Name, r.check())
	if e, ok := errors.AsType[*check.InvalidError](err); ok {
		e.Route = r.Name
	}
	return err
}

func (r Route) check() error {
	if err := check.Name(r.Name); err != nil {
		return check.Within("name", err)
	}
	if err := r.checkMatch(); err != nil {
		return err
	}
	if err := r.Filters.check(r.Path); err != nil {
		return err
	}
	switch {
	case r.Redirect != nil && len(r.Backends) > 0:
		return check.Invalid("redirect", "there are backends too")
	case r.Timeout < 0 || r.Timeout > maxTimeout || r.Timeout%time.Millisecond != 0:
		return check.Invalid("timeout", "want whole milliseconds, 0 to %s", maxTimeout)
	}
	var total uint64
	for _, b := range r.Backends {
		total += uint64(b.Weight)
		place := fmt.Sprintf("backend %q", b.Cluster)
		if b.Cluster != "" {
			if err := checkCluster(b.Cluster); err != nil {
				return check.Within(place, err)
			}
		}
		if err := b.Filters.check(r.Path); err != nil {
			return check.Within(place, err)
		}
	}
	if total > math.MaxUint32 {
		return check.Invalid("backends", "weights add up to %d, more than %d", total, uint32(math.MaxUint32))
	}
	return nil
}

func checkCluster(name string) error {
	if name == wire.XDSCluster {
		return fmt.Errorf("%q is reserved", name)
	}
	return check.Name(name)
}

func (r Route) checkMatch() error {
	if err := r.Path.check(); err != nil {
		return check.Within("path", err)
	}
	for _, h := range r.Headers {
		if err := h.check(); err != nil {
			return check.Within(fmt.Sprintf("header %q", h.Name), err)
		}
	}
	if err := checkMethod(r.Method); err != nil {
		return check.Within("method", err)
	}
	for _, q := range r.Query {
		if err := checkCondition(q.Name, q.Value, q.Regex); err != nil {
			return check.Within(fmt.Sprintf("query parameter %q", q.Name), err)
		}
	}
	return nil
}

// checkMethod: no conditions on paths and headers match CONNECT, which has a matcher of its
// own that would open a tunnel.
func checkMethod(method string) error {
	switch method {
	case "":
		return nil
	case "CONNECT":
		return errors.New("CONNECT opens tunnels, which there are none of")
	}
	return check.Token(method)
}

func (p PathMatch) check() error {
	switch p.Kind {
	case PathRegex:
		return check.Regex(p.Value)
	case PathPrefix:
		if p.Value == "" {
			return nil
		}
	case PathExact:
	default:
		return fmt.Errorf("kind %d is unknown", p.Kind)
	}
	if !strings.HasPrefix(p.Value, "/") || strings.ContainsAny(p.Value, "?#") {
		return fmt.Errorf("%q: want a path that begins with / and has no ? or #", p.Value)
	}
	return nil
}

func (h HeaderMatch) check() error {
	if err := checkName(h.Name); err != nil {
		return err
	}
	return checkCondition(h.Name, h.Value, h.Regex)
}

// checkName is for the name of a header that routes look at or change.
func checkName(name string) error {
	if err := check.Token(name); err != nil {
		return err
	}
	if strings.ToLower(name) != name {
		return errors.New("want lower case")
	}
	if name == hcm.ScopeHeader {
		return errors.New("is the proxy's own")
	}
	return nil
}

// maxValue is the length of the longest header value that Envoy is told.
const maxValue = 16 << 10

func checkValue(value string) error {
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return errors.New("value has a control character")
	}
	if n := len(literal(value)); n > maxValue {
		return fmt.Errorf("value is too long: %d bytes, a %% counts twice, at most %d", n, maxValue)
	}
	return nil
}

// checkCondition is what header and query conditions have in common.
func checkCondition(name, value string, isRegex bool) error {
	if name == "" {
		return errors.New("name is empty")
	}
	if isRegex {
		return check.Regex(value)
	}
	if strings.ContainsAny(value, "\x00\r\n") {
		return errors.New("value has a line break")
	}
	return nil
}

func (f Filters) check(p PathMatch) error {
	if err := f.Request.check(); err != nil {
		return check.Within("request header", err)
	}
	if err := f.Response.check(); err != nil {
		return check.Within("response header", err)
	}
	if f.Redirect != nil {
		if f.Rewrite != (Rewrite{}) || len(f.Mirrors) > 0 {
			return check.Invalid("redirect", "is neither rewritten nor mirrored")
		}
		if err := f.Redirect.check(p); err != nil {
			return check.Within("redirect", err)
		}
	}
	if err := f.Rewrite.check(p); err != nil {
		return check.Within("rewrite", err)
	}
	for _, m := range f.Mirrors {
		if err := checkCluster(m.Cluster); err != nil {
			return check.Within(fmt.Sprintf("mirror %q", m.Cluster), err)
		}
		if m.PerMillion < 1 || m.PerMillion > Million {
			return check.Invalid(fmt.Sprintf("mirror %q", m.Cluster), "%d of a million: want 1 to a million", m.PerMillion)
		}
	}
	if f.CORS != nil {
		return check.Within("CORS", f.CORS.check())
	}
	return nil
}

func (c HeaderChange) check() error {
	names := slices.Clone(c.Remove)
	for _, h := range slices.Concat(c.Set, c.Add) {
		names = append(names, h.Name)
		if err := checkValue(h.Value); err != nil {
			return check.Within(h.Name, err)
		}
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return check.Within(fmt.Sprintf("%q", name), err)
		}
		if name == "host" || slices.Contains(hcm.Framing(), name) {
			return check.Invalid(name, "is not a header that can be changed")
		}
	}
	if name, ok := check.Duplicate(names); ok {
		return check.Invalid(name, "is there twice")
	}
	return nil
}

func (d Redirect) check(p PathMatch) error {
	switch {
	case d.Scheme != "" && d.Scheme != "http" && d.Scheme != "https":
		return fmt.Errorf("scheme %q: want http or https", d.Scheme)
	case d.Port > math.MaxUint16:
		return fmt.Errorf("port %d: want at most %d", d.Port, math.MaxUint16)
	}
	if _, known := redirectCodes()[d.Status]; !known {
		return fmt.Errorf("status %d: want 301, 302, 303, 307 or 308", d.Status)
	}
	if d.Host != "" {
		if err := checkExactHost(d.Host); err != nil {
			return fmt.Errorf("host %q: %w", d.Host, err)
		}
	}
	return d.Path.check(p)
}

func checkExactHost(host string) error {
	if strings.HasPrefix(host, "*") {
		return errors.New("want no wildcard")
	}
	return check.Host(host)
}

func (w Rewrite) check(p PathMatch) error {
	if w.Host != "" {
		name, port, hasPort := strings.Cut(w.Host, ":")
		if err := checkExactHost(strings.ToLower(name)); err != nil {
			return fmt.Errorf("host %q: %w", w.Host, err)
		}
		if hasPort && (port == "" || strings.Trim(port, "0123456789") != "" || len(port) > 5) {
			return fmt.Errorf("host %q: want a port after the colon", w.Host)
		}
	}
	return w.Path.check(p)
}

func (c PathChange) check(p PathMatch) error {
	switch {
	case c.Kind > ReplacePrefix:
		return fmt.Errorf("kind %d is unknown", c.Kind)
	case c.Kind == ReplacePrefix && p.Kind != PathPrefix:
		return errors.New("a prefix can only be replaced where a prefix is matched")
	case c.Value == "":
		return nil
	case !strings.HasPrefix(c.Value, "/"):
		return fmt.Errorf("path %q: want one that begins with /", c.Value)
	}
	for i := range len(c.Value) {
		if b := c.Value[i]; b <= ' ' || b > '~' || strings.IndexByte("\"#<>?\\^`{|}", b) >= 0 {
			return fmt.Errorf("path %q: %q is no character of a path", c.Value, b)
		}
	}
	return nil
}

func (c CORS) check() error {
	for _, o := range c.Origins {
		if o == anything {
			continue
		}
		if _, err := parseOrigin(o); err != nil {
			return fmt.Errorf("origin %q: %w", o, err)
		}
	}
	for _, list := range [][]string{c.Methods, c.Headers, c.Expose} {
		for _, name := range list {
			if err := check.Token(name); err != nil {
				return fmt.Errorf("%q: %w", name, err)
			}
		}
		if err := checkValue(strings.Join(list, ", ")); err != nil {
			return err
		}
	}
	return nil
}
