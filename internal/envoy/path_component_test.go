//go:build component

package envoy_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/route"
)

// escapes has every byte escaped, in both letter cases of its digits, alone and in a word.
func escapes() (list []string) {
	for c := 1; c < 256; c++ {
		for _, form := range []string{"/%%%02x", "/%%%02X", "/a%%%02xb", "/a%%%02XB/"} {
			list = append(list, fmt.Sprintf(form, c))
		}
	}
	return list
}

// paths is ones in which everything meets.
func paths(n int) (list []string) {
	random := rand.New(rand.NewPCG(1, 0))
	parts := []string{"/", "/", "/", ".", "..", "%2e", "%2E", ";", ";x", "a", "%61", "%2f", "%5C", "%c3", "%C3", "~", "%7e", "..;", "!$&'()*+,=:@"}
	for range n {
		var b strings.Builder
		b.WriteByte('/')
		for range random.IntN(9) {
			b.WriteString(parts[random.IntN(len(parts))])
		}
		list = append(list, b.String())
	}
	return list
}

func TestPathsAreReadAsWeSay(t *testing.T) {
	r := newRig(t)
	_, port := edge(t, r)
	for _, path := range append(escapes(), paths(2000)...) {
		a := ask(t, port, "GET "+path+" HTTP/1.1", "Host: a.example")
		if got := route.NormalPath(a.Header.Get("X-Path")); a.Status != 200 || got != route.NormalPath(path) {
			t.Errorf("%s: status %d, Envoy reads %q, we %q", path, a.Status, a.Header.Get("X-Path"), route.NormalPath(path))
		}
	}
}

func TestEscapesMatchInEitherLetterCase(t *testing.T) {
	longest := "/x" + strings.Repeat("%C3", 340)
	kinds := []envoy.Route{
		{Name: "ns/r/0/0", Path: envoy.PathMatch{Kind: envoy.PathExact, Value: "/a.b%C3%A9"}, Backends: to("ns/a/80")},
		{Name: "ns/r/1/0", Path: at("/p%C3%A9/"), Backends: to("ns/a/80")},
		{Name: "ns/r/2/0", Path: at("/to%C3%A9"), Backends: to("ns/a/80"), Filters: route.Filters{Rewrite: route.Rewrite{Path: replace(route.ReplacePrefix, "/new/")}}},
		{Name: "ns/r/3/0", Path: at("/off%C3%A9"), Backends: to("ns/a/80"), Filters: route.Filters{Rewrite: route.Rewrite{Path: replace(route.ReplacePrefix, "/")}}},
		{Name: "ns/r/4/0", Path: at("/moved%C3%A9"), Filters: route.Filters{Redirect: &route.Redirect{Path: replace(route.ReplacePrefix, "/new"), Status: 302}}},
		{Name: "ns/r/5/0", Path: at(longest), Backends: to("ns/a/80")},
	}
	f := serveFiltered(t, kinds...)
	for _, tc := range []struct {
		target string
		status int
		path   string // that the backend sees, or the client is told
	}{
		{"/a.b%C3%A9", 200, "/a.b%C3%A9"},
		{"/a.b%c3%a9?q", 200, "/a.b%c3%a9?q"},
		{"/axb%c3%a9", 404, ""},
		{"/a.b%c3%a9/", 404, ""},
		{"/A.b%c3%a9", 404, ""},
		{"/p%c3%A9", 200, "/p%c3%A9"},
		{"/p%c3%A9/?q", 200, "/p%c3%A9/?q"},
		{"/p%C3%a9/x/y", 200, "/p%C3%a9/x/y"},
		{"/p%C3%A9x", 404, ""},
		{"/to%c3%a9", 200, "/new"},
		{"/to%c3%a9/x?q", 200, "/new/x?q"},
		{"/to%C3%A9/", 200, "/new/"},
		{"/off%c3%a9", 200, "/"},
		{"/off%C3%a9/x", 200, "/x"},
		{"/moved%c3%a9/x?q", 302, "/new/x?q"},
		{strings.ToLower(longest) + "/y", 200, strings.ToLower(longest) + "/y"},
	} {
		f.every(t, "GET "+tc.target, nil, func(t *testing.T, host string, a answer) {
			got := a.Seen.Path + strings.TrimPrefix(strings.TrimPrefix(a.Header.Get("Location"), "http://"), strings.ToLower(host))
			if a.Status != tc.status || got != tc.path {
				t.Errorf("%s: %d %q, want %d %q", tc.target, a.Status, got, tc.status, tc.path)
			}
		})
	}
}
