//go:build component

package envoy_test

import (
	"strings"
	"testing"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/route"
)

// corsRoutes is what the cases below ask of.
func corsRoutes() []envoy.Route {
	some := &route.CORS{
		Origins: []string{"https://www.foo.com", "https://*.bar.com", "http://plain.example:8080"}, Credentials: true,
		Methods: []string{"GET", "OPTIONS"}, Headers: []string{"x-header-1", "x-header-2"}, Expose: []string{"x-header-3", "x-header-4"}, MaxAge: 3600,
	}
	any := route.CORS{Origins: []string{"*"}, Methods: []string{"*"}, Headers: []string{"*"}, Expose: []string{"*"}, MaxAge: 5}
	anyWithCredentials := any
	anyWithCredentials.Credentials = true
	return []envoy.Route{
		{Name: "ns/r/0/0", Path: at("/some"), Backends: to("ns/a/80"), Filters: route.Filters{CORS: some}},
		{Name: "ns/r/1/0", Path: at("/method"), Method: "PUT", Backends: to("ns/a/80"), Filters: route.Filters{CORS: some}},
		{Name: "ns/r/2/0", Path: at("/any"), Backends: to("ns/a/80"), Filters: route.Filters{CORS: &any}},
		{Name: "ns/r/3/0", Path: at("/credentials"), Backends: to("ns/a/80"), Filters: route.Filters{
			CORS: &anyWithCredentials, Request: route.HeaderChange{Remove: []string{"origin"}},
		}},
		{Name: "ns/r/4/0", Path: at("/nobody"), Backends: to("ns/a/80"), Filters: route.Filters{CORS: &route.CORS{Methods: []string{"GET"}}}},
		{Name: "ns/r/5/0", Path: at("/moved"), Filters: route.Filters{CORS: some, Redirect: &route.Redirect{Host: "other.example", Status: 302}}},
		{Name: "ns/r/6/0", Path: at("/hosts"), Backends: to("ns/a/80"), Filters: route.Filters{CORS: &route.CORS{Origins: []string{"http://*"}}}},
		{Name: "ns/r/7/0", Path: at("/empty"), Backends: to("ns/empty/80"), Filters: route.Filters{CORS: some}},
		{Name: "ns/r/8/0", Path: at("/share"), Backends: []envoy.WeightedBackend{{Cluster: "ns/a/80", Weight: 1, Filters: route.Filters{CORS: some}}}},
		{Name: "ns/r/9/0", Path: at("/plain"), Backends: to("ns/a/80")},
		{Name: "ns/r/10/0", Path: at("/broken"), Filters: route.Filters{CORS: some}},
		{Name: "ns/r/11/0", Path: at("/port"), Backends: to("ns/a/80"), Filters: route.Filters{CORS: &route.CORS{Origins: []string{"http://*.a.com:80", "https://*"}}}},
		{Name: "ns/r/12/0", Path: at("/vary-set"), Backends: to("ns/a/80"), Filters: route.Filters{CORS: some, Response: route.HeaderChange{Set: []route.Header{{Name: "vary", Value: "Accept"}}}}},
		{Name: "ns/r/13/0", Path: at("/vary-gone"), Backends: to("ns/a/80"), Filters: route.Filters{CORS: some, Response: route.HeaderChange{Remove: []string{"vary"}}}},
		{Name: "ns/r/14/0", Path: at("/vary-moved"), Filters: route.Filters{CORS: some, Redirect: &route.Redirect{Host: "other.example", Status: 302}, Response: route.HeaderChange{Set: []route.Header{{Name: "vary", Value: "Accept"}}}}},
		{Name: "ns/r/15/0", Path: at("/vary-backend"), Filters: route.Filters{CORS: some}, Backends: []envoy.WeightedBackend{
			{Cluster: "ns/a/80", Weight: 1, Filters: route.Filters{Response: route.HeaderChange{Set: []route.Header{{Name: "vary", Value: "Accept"}}}}},
		}},
	}
}

func TestOriginsAreAllowedAndRefused(t *testing.T) {
	f := serveFiltered(t, corsRoutes()...)
	foo := "Origin: https://www.foo.com"
	asked := []string{"Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: x-1, x-2"}
	preflight := func(path, origin string) (string, []string) {
		return "OPTIONS " + path, append([]string{origin}, asked...)
	}
	allowed := func(origin string) map[string]string {
		return map[string]string{
			"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Credentials": "true", "Access-Control-Expose-Headers": "x-header-3, x-header-4",
			"Access-Control-Allow-Methods": "GET, OPTIONS", "Access-Control-Allow-Headers": "x-header-1, x-header-2", "Access-Control-Max-Age": "3600", "Vary": "Origin",
		}
	}
	read := func(origin string) map[string]string {
		return map[string]string{
			"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Credentials": "true",
			"Access-Control-Expose-Headers": "x-header-3, x-header-4", "Vary": "Origin",
		}
	}
	vary := map[string]string{"Vary": "Origin"}
	varied := func(want map[string]string) map[string]string {
		want["Vary"] = "Accept,Origin"
		return want
	}
	tests := map[string]struct {
		preflight, get string // the path
		origin         string // default foo
		lacks          bool   // nothing is asked for but the method
		status         int
		want           map[string]string // all of these headers that there are
	}{
		"a preflight of an exact origin":                   {preflight: "/some", status: 200, want: allowed("https://www.foo.com")},
		"a preflight of an exact origin in other case":     {preflight: "/some", origin: "Origin: HTTPS://www.Foo.com", status: 200, want: allowed("HTTPS://www.Foo.com")},
		"a preflight with the scheme's own port":           {preflight: "/some", origin: "Origin: https://www.foo.com:443", status: 200, want: allowed("https://www.foo.com:443")},
		"a preflight with another port":                    {preflight: "/some", origin: "Origin: https://www.foo.com:8443", status: 403, want: vary},
		"a preflight of a wildcard":                        {preflight: "/some", origin: "Origin: https://xpto.www.bar.com", status: 200, want: allowed("https://xpto.www.bar.com")},
		"a preflight of a wildcard's bare domain":          {preflight: "/some", origin: "Origin: https://bar.com", status: 403, want: vary},
		"a preflight of a name that ends like a wildcard":  {preflight: "/some", origin: "Origin: https://foobar.com", status: 403, want: vary},
		"a preflight of a name that goes on":               {preflight: "/some", origin: "Origin: https://www.foo.com.evil.example", status: 403, want: vary},
		"a preflight of another scheme":                    {preflight: "/some", origin: "Origin: http://www.foo.com", status: 403, want: vary},
		"a preflight of an origin with its own port":       {preflight: "/some", origin: "Origin: http://plain.example:8080", status: 200, want: allowed("http://plain.example:8080")},
		"a preflight of that origin without the port":      {preflight: "/some", origin: "Origin: http://plain.example", status: 403, want: vary},
		"a preflight of null":                              {preflight: "/some", origin: "Origin: null", status: 403, want: vary},
		"a preflight of a star":                            {preflight: "/some", origin: "Origin: *", status: 403, want: vary},
		"a request of an exact origin":                     {get: "/some", status: 200, want: read("https://www.foo.com")},
		"a request of another origin":                      {get: "/some", origin: "Origin: https://foobar.com", status: 200, want: vary},
		"a request of none":                                {get: "/some", origin: "X-No: origin", status: 200, want: vary},
		"a preflight for a route that matches a method":    {preflight: "/method", status: 200, want: allowed("https://www.foo.com")},
		"its preflight of another origin":                  {preflight: "/method", origin: "Origin: https://foobar.com", status: 403, want: vary},
		"a preflight when anything goes":                   {preflight: "/any", status: 200, want: map[string]string{"Access-Control-Allow-Origin": "https://www.foo.com", "Access-Control-Allow-Methods": "*", "Access-Control-Allow-Headers": "*", "Access-Control-Expose-Headers": "*", "Access-Control-Max-Age": "5", "Vary": "Origin"}},
		"a request when anything goes":                     {get: "/any", status: 200, want: map[string]string{"Access-Control-Allow-Origin": "https://www.foo.com", "Access-Control-Expose-Headers": "*", "Vary": "Origin"}},
		"a preflight when anything goes, with credentials": {preflight: "/credentials", status: 200, want: map[string]string{"Access-Control-Allow-Origin": "https://www.foo.com", "Access-Control-Allow-Credentials": "true", "Access-Control-Allow-Methods": "PUT", "Access-Control-Allow-Headers": "x-1, x-2", "Access-Control-Max-Age": "5", "Vary": "Origin"}},
		"it that asks for no headers":                      {preflight: "/credentials", lacks: true, status: 200, want: map[string]string{"Access-Control-Allow-Origin": "https://www.foo.com", "Access-Control-Allow-Credentials": "true", "Access-Control-Allow-Methods": "PUT", "Access-Control-Max-Age": "5", "Vary": "Origin"}},
		"a request when anything goes, with credentials":   {get: "/credentials", status: 200, want: map[string]string{"Access-Control-Allow-Origin": "https://www.foo.com", "Access-Control-Allow-Credentials": "true", "Vary": "Origin"}},
		"a preflight when nobody may":                      {preflight: "/nobody", status: 403, want: vary},
		"a request when nobody may":                        {get: "/nobody", status: 200, want: vary},
		"a preflight for a redirect":                       {preflight: "/moved", status: 200, want: allowed("https://www.foo.com")},
		"a redirect":                                       {get: "/moved", status: 302, want: read("https://www.foo.com")},
		"a redirect of another origin":                     {get: "/moved", origin: "Origin: https://foobar.com", status: 302, want: vary},
		"a preflight of any host":                          {preflight: "/hosts", origin: "Origin: http://a.b.example", status: 200, want: map[string]string{"Access-Control-Allow-Origin": "http://a.b.example", "Vary": "Origin"}},
		"a preflight of an IPv6 host":                      {preflight: "/hosts", origin: "Origin: http://[::1]", status: 200, want: map[string]string{"Access-Control-Allow-Origin": "http://[::1]", "Vary": "Origin"}},
		"a preflight of any host at another port":          {preflight: "/hosts", origin: "Origin: http://a.b.example:81", status: 403, want: vary},
		"an origin with a fragment":                        {preflight: "/port", origin: "Origin: http://evil.com#.a.com", status: 403, want: vary},
		"an origin with a query":                           {preflight: "/port", origin: "Origin: http://evil.com?.a.com", status: 403, want: vary},
		"an origin with a backslash":                       {preflight: "/port", origin: `Origin: http://evil.com\.a.com`, status: 403, want: vary},
		"an origin with an escape":                         {preflight: "/port", origin: "Origin: http://evil.com%2f.a.com", status: 403, want: vary},
		"an origin with a space":                           {preflight: "/port", origin: "Origin: http://evil.com .a.com", status: 403, want: vary},
		"an origin with an at":                             {preflight: "/port", origin: "Origin: http://evil.com@b.a.com", status: 403, want: vary},
		"two origins":                                      {preflight: "/port", origin: "Origin: https://a.com https://b.com", status: 403, want: vary},
		"an origin in brackets":                            {preflight: "/port", origin: "Origin: https://[evil.com#]", status: 403, want: vary},
		"an origin with an underline":                      {preflight: "/port", origin: "Origin: https://x_y.example", status: 200, want: map[string]string{"Access-Control-Allow-Origin": "https://x_y.example", "Vary": "Origin"}},
		"a request whose answer has a Vary of its own":     {get: "/vary-set", status: 200, want: varied(read("https://www.foo.com"))},
		"a request whose answer has none":                  {get: "/vary-gone", status: 200, want: read("https://www.foo.com")},
		"a redirect that has a Vary of its own":            {get: "/vary-moved", status: 302, want: varied(read("https://www.foo.com"))},
		"it for another origin":                            {get: "/vary-moved", origin: "Origin: https://foobar.com", status: 302, want: varied(map[string]string{})},
		"a request whose backend has a Vary of its own":    {get: "/vary-backend", status: 200, want: varied(read("https://www.foo.com"))},
		"a request without an endpoint":                    {get: "/empty", status: 503, want: read("https://www.foo.com")},
		"a preflight for a share":                          {preflight: "/share", status: 200, want: allowed("https://www.foo.com")},
		"a request for a share":                            {get: "/share", status: 200, want: read("https://www.foo.com")},
		"a preflight for a route without CORS":             {preflight: "/plain", status: 200, want: map[string]string{"Access-Control-Allow-Origin": "https://backend.example"}},
		"a request for a route without a backend":          {get: "/broken", status: 500, want: read("https://www.foo.com")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.origin == "" {
				tt.origin = foo
			}
			line, headers := "GET "+tt.get, []string{tt.origin}
			if tt.preflight != "" {
				line, headers = preflight(tt.preflight, tt.origin)
				if tt.lacks {
					headers = headers[:2]
				}
			}
			before := len(f.a.seen())
			f.every(t, line, headers, func(t *testing.T, _ string, a answer) {
				if a.Status != tt.status {
					t.Errorf("got %d, want %d", a.Status, tt.status)
				}
				for _, header := range []string{"Allow-Origin", "Allow-Credentials", "Allow-Methods", "Allow-Headers", "Expose-Headers", "Max-Age"} {
					header = "Access-Control-" + header
					if got, there := a.Header[header]; there != (tt.want[header] != "") || there && (len(got) != 1 || got[0] != tt.want[header]) {
						t.Errorf("got %s: %q, want %q", header, got, tt.want[header])
					}
				}
				if got := strings.Join(a.Header.Values("Vary"), ","); got != tt.want["Vary"] {
					t.Errorf("got Vary: %q, want %q", got, tt.want["Vary"])
				}
			})
			if n := len(f.a.seen()) - before; tt.preflight != "" && tt.preflight != "/plain" && n > 0 {
				t.Errorf("%d preflight requests reached the backend", n)
			}
		})
	}
}
