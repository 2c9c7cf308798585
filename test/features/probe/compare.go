package probe

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"aether.io/aether/internal/test/echo"
	"aether.io/aether/test/features/example"
)

// Differences says how one answer, and what its backend saw, differ from what was
// expected. seen is empty if no backend saw it.
func Differences(a Answer, seen []echo.Seen, want *example.Expect) []string {
	d := &differences{}
	if a.Fails != "" || want.Fails != "" {
		if a.Fails != want.Fails {
			d.add("fails", or(want.Fails, "no failure"), strings.TrimSpace(or(a.Fails, strconv.Itoa(a.Status))+" "+a.Why))
		}
		return d.list
	}
	if want.Status != 0 && a.Status != want.Status {
		d.add("status", want.Status, a.Status)
	}
	if want.Backend != "" && or(a.Backend(), example.None) != want.Backend {
		d.add("backend", want.Backend, or(a.Backend(), example.None))
	}
	if want.Protocol != "" && a.Protocol != want.Protocol {
		d.add("protocol", want.Protocol, a.Protocol)
	}
	if want.Certificate != "" && a.Certificate != want.Certificate {
		d.add("certificate", want.Certificate, a.Certificate)
	}
	d.fields("header", want.Headers, a.Headers)
	d.fields("trailer", want.Trailers, a.Trailers)
	if want.Body != nil {
		d.pattern("body", *want.Body, a.Body, true)
	}
	if want.Seen != nil {
		if len(seen) == 0 {
			d.add("seen", "a request at the backend", "none")
		} else {
			d.seen(want.Seen, seen[len(seen)-1])
		}
	}
	return d.list
}

// Counts says which numbers are not in their ranges. What nobody expects must be 0.
func Counts(what string, want map[string]example.Range, got map[string]int) []string {
	d := &differences{}
	names := map[string]bool{}
	for name := range want {
		names[name] = true
	}
	for name := range got {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if r := want[name]; !r.Has(got[name]) {
			d.add(what+" "+name, r, got[name])
		}
	}
	return d.list
}

// Fields says how named values differ.
func Fields(what string, want map[string]example.Pattern, got map[string]string) []string {
	d := &differences{}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, present := got[name]
		d.pattern(what+" "+name, want[name], value, present)
	}
	return d.list
}

type differences struct{ list []string }

func (d *differences) add(what string, want, got any) {
	d.list = append(d.list, fmt.Sprintf("%s: want %v, got %v", what, want, got))
}

func (d *differences) pattern(what string, want example.Pattern, got string, present bool) {
	if want.Match(got, present) {
		return
	}
	if present {
		got = strconv.Quote(got)
	} else {
		got = "nothing"
	}
	d.add(what, want, got)
}

func (d *differences) fields(what string, want map[string]example.Pattern, got http.Header) {
	lower := map[string]string{}
	for name, values := range got {
		lower[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value, present := lower[strings.ToLower(name)]
		d.pattern(what+" "+name, want[name], value, present)
	}
}

func (d *differences) seen(want *example.Seen, got echo.Seen) {
	for _, f := range []struct {
		name string
		want *example.Pattern
		got  string
	}{
		{"method", want.Method, got.Method},
		{"host", want.Host, got.Host},
		{"path", want.Path, got.Path},
		{"protocol", want.Protocol, got.Protocol},
		{"body", want.Body, got.Body},
	} {
		if f.want != nil {
			d.pattern("seen "+f.name, *f.want, f.got, true)
		}
	}
	d.fields("seen header", want.Headers, got.Headers)
	d.fields("seen trailer", want.Trailers, got.Trailers)
	if want.TLS != nil && *want.TLS != (got.TLS != nil) {
		d.add("seen TLS", *want.TLS, got.TLS != nil)
	}
	tls := got.TLS
	if tls == nil {
		tls = &echo.TLS{}
	}
	if want.ServerName != nil {
		d.pattern("seen server name", *want.ServerName, tls.ServerName, got.TLS != nil)
	}
	if want.Client != nil {
		d.pattern("seen client", *want.Client, tls.Client, tls.Client != "")
	}
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}
