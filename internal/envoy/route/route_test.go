package route

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/envoy/check"
)

var update = flag.Bool("update", false, "rewrite the goldens")

func to(clusters ...string) (list []Backend) {
	for _, c := range clusters {
		list = append(list, Backend{Cluster: c, Weight: 1})
	}
	return list
}

func goldens() map[string]Route {
	change := HeaderChange{Set: []Header{{"x-set", "100%"}}, Add: []Header{{"x-add", "a,b"}}, Remove: []string{"x-gone"}}
	return map[string]Route{
		"plain": {
			Name: "shop/cart/0/0", Path: PathMatch{Kind: PathExact, Value: "/cart"}, Method: "GET",
			Headers: []HeaderMatch{{Name: "x-tier", Value: "gold"}}, Query: []QueryMatch{{Name: "beta", Value: "1"}},
			Timeout: 1500 * time.Millisecond, Backends: to("shop/cart/80"),
		},
		"headers": {
			Name: "shop/cart/0/0", Filters: Filters{Request: change, Response: change}, Backends: to("shop/cart/80", "shop/next/80"),
		},
		"headers-of-a-backend": {
			Name: "shop/cart/0/0", Filters: Filters{Request: change, Response: change},
			Backends: []Backend{
				{Cluster: "shop/cart/80", Weight: 9},
				{Cluster: "shop/next/80", Weight: 1, Filters: Filters{Request: HeaderChange{Set: []Header{{"x-add", "c"}}, Remove: []string{"x-set"}}}},
			},
		},
		"rewrite": {
			Name: "shop/cart/0/0", Path: PathMatch{Value: "/cart"}, Backends: to("shop/cart/80"),
			Filters: Filters{Rewrite: Rewrite{Host: "cart.example", Path: PathChange{ReplacePrefix, "/"}}},
		},
		"escapes": {
			Name: "shop/cart/0/0", Path: PathMatch{Value: "/caf%C3%A9/a.b/"}, Backends: to("shop/cart/80"),
			Filters: Filters{Rewrite: Rewrite{Path: PathChange{ReplacePrefix, "/cart"}}},
		},
		"mirrors": {
			Name: "shop/cart/0/0", Backends: to("shop/cart/80"),
			Filters: Filters{Mirrors: []Mirror{{"shop/spy/80", Million}, {"shop/next/80", 333_333}}},
		},
		"redirect": {
			Name: "shop/cart/0/0", Path: PathMatch{Value: "/cart"},
			Filters: Filters{Redirect: &Redirect{Scheme: "https", Path: PathChange{ReplacePrefix, "/basket"}, Status: 308}, Response: change},
		},
		"backends-apart": {
			Name: "shop/cart/0/0", Path: PathMatch{Value: "/cart"}, Timeout: time.Second,
			Filters: Filters{Request: change, Mirrors: []Mirror{{"shop/spy/80", Million}}},
			Backends: []Backend{
				{Cluster: "shop/cart/80", Weight: 2},
				{Cluster: "shop/off/80", Weight: 0},
				{Weight: 1},
				{Cluster: "shop/next/80", Weight: 1, Filters: Filters{Rewrite: Rewrite{Path: PathChange{ReplacePath, "/v2"}}, Request: HeaderChange{Remove: []string{"x-add"}}}},
			},
		},
		"cors": {
			Name: "shop/cart/0/0", Path: PathMatch{Value: "/cart"}, Method: "PUT", Backends: to("shop/cart/80"),
			Filters: Filters{CORS: &CORS{
				Origins: []string{"https://shop.example", "http://*.shop.example:8080"}, Credentials: true,
				Methods: []string{"PUT"}, Headers: []string{"*"}, Expose: []string{"x-cart"}, MaxAge: 5,
			}},
		},
		"cors-of-a-redirect": {
			Name: "shop/cart/0/0", Filters: Filters{Redirect: &Redirect{Host: "new.example", Status: 302}, CORS: &CORS{Origins: []string{"https://*"}}},
		},
	}
}

func TestRoutesBecomeThese(t *testing.T) {
	known := []string{}
	for name, r := range goldens() {
		t.Run(name, func(t *testing.T) {
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, at := range []Host{{Name: "shop.example", Port: 80}, {Name: "*.shop.example", Port: 443, Secure: true}} {
				list, err := r.Encode(at)
				if err != nil {
					t.Fatal(err)
				}
				if r.Redirect != nil {
					got.WriteString("# of " + at.Name + "\n")
				} else if at.Secure {
					break
				}
				for _, m := range list {
					if err := m.ValidateAll(); err != nil {
						t.Error(err)
					}
					raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
					if err != nil {
						t.Fatal(err)
					}
					body, err := yaml.JSONToYAML(raw)
					if err != nil {
						t.Fatal(err)
					}
					got.WriteString("---\n" + string(body))
				}
			}
			golden(t, name, got.String())
		})
		known = append(known, filepath.Join("testdata", name+".out.yaml"))
	}
	files, err := filepath.Glob("testdata/*")
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(known); !slices.Equal(files, known) {
		t.Errorf("goldens %v belong to no test, or are missing", files)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".out.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("differs from %s (-want +got, -update rewrites it):\n%s", path, diff)
	}
}

func TestARedirectHasThePortThatTheListenerOrSchemeGives(t *testing.T) {
	http, other, https := Host{"a.example", 80, false}, Host{"a.example", 8080, false}, Host{"a.example", 443, true}
	tests := map[string]struct {
		redirect Redirect
		at       Host
		want     uint32 // 0: none is named
	}{
		"nothing said, at port 80":            {Redirect{}, http, 0},
		"nothing said, at port 8080":          {Redirect{}, other, 8080},
		"nothing said, at HTTPS":              {Redirect{}, https, 0},
		"nothing said, at HTTPS on 8443":      {Redirect{}, Host{"a.example", 8443, true}, 8443},
		"nothing said, at HTTPS on 80":        {Redirect{}, Host{"a.example", 80, true}, 80},
		"a scheme, at port 8080":              {Redirect{Scheme: "https"}, other, 0},
		"the same scheme, at port 8080":       {Redirect{Scheme: "http"}, other, 0},
		"a scheme and its port":               {Redirect{Scheme: "https", Port: 443}, other, 0},
		"a scheme and another's port":         {Redirect{Scheme: "https", Port: 80}, http, 80},
		"a scheme and a port":                 {Redirect{Scheme: "http", Port: 8080}, https, 8080},
		"a port that is the listener's own":   {Redirect{Port: 8080}, other, 8080},
		"a port, at HTTP":                     {Redirect{Port: 80}, other, 0},
		"a port, at HTTPS":                    {Redirect{Port: 443}, https, 0},
		"port 443 without a scheme, at HTTP":  {Redirect{Port: 443}, http, 443},
		"nothing said, at a port not known":   {Redirect{}, Host{Name: "a.example"}, 0},
		"a hostname, at port 8080":            {Redirect{Host: "b.example"}, other, 8080},
		"a hostname and a scheme, at 8080":    {Redirect{Host: "b.example", Scheme: "http"}, other, 0},
		"a hostname and port 80, at 8080":     {Redirect{Host: "b.example", Port: 80}, other, 0},
		"a hostname and port 8443, at HTTPS":  {Redirect{Host: "b.example", Port: 8443}, https, 8443},
		"a hostname, at HTTPS, scheme of 80 ": {Redirect{Host: "b.example", Scheme: "http"}, https, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.redirect.Status = 302
			for _, host := range []string{tt.at.Name, "*.example", "*"} {
				at := tt.at
				at.Name = host
				list, err := Route{Name: "r", Filters: Filters{Redirect: &tt.redirect}}.Encode(at)
				if err != nil {
					t.Fatal(err)
				}
				last := list[len(list)-1].GetRedirect()
				if last.GetPortRedirect() != tt.want {
					t.Errorf("%s: port %d, want %d", host, last.GetPortRedirect(), tt.want)
				}
				// A request with a port must lose it in one of three ways.
				if last.GetPortRedirect() == 0 && last.GetHostRedirect() == "" && len(list) != 2 {
					t.Errorf("%s: nothing takes the port of a request away", host)
				}
			}
		})
	}
}

// TestSharesAddUp: each backend's route takes what those before it leave.
func TestSharesAddUp(t *testing.T) {
	apart := Filters{Rewrite: Rewrite{Host: "other.example"}}
	for name, tt := range map[string]struct {
		weights []uint32
		want    []uint32
	}{
		"halves":          {[]uint32{1, 1}, []uint32{500_000, 0}},
		"thirds":          {[]uint32{1, 1, 1}, []uint32{333_333, 666_666, 0}},
		"zeros":           {[]uint32{0, 3, 0, 1, 0}, []uint32{750_000, 0}},
		"one":             {[]uint32{7}, []uint32{0}},
		"a very small":    {[]uint32{1, 1_000_000}, []uint32{0, 0}},
		"the largest":     {[]uint32{1_000_000, 1_000_000}, []uint32{500_000, 0}},
		"nothing at all ": {[]uint32{0, 0}, []uint32{0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := Route{Name: "r"}
			for _, w := range tt.weights {
				r.Backends = append(r.Backends, Backend{Cluster: "a/b/80", Weight: w, Filters: apart})
			}
			list, err := r.Encode(Host{Name: "*"})
			if err != nil {
				t.Fatal(err)
			}
			var got []uint32
			for _, m := range list {
				got = append(got, m.GetMatch().GetRuntimeFraction().GetDefaultValue().GetNumerator())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if last := list[len(list)-1].GetMatch(); last.GetRuntimeFraction() != nil {
				t.Error("the last does not take all that is left")
			}
		})
	}
}

// TestAPartOfEachShareIsMirrored: the number of a request that came to a share is not
// any of a million.
func TestAPartOfEachShareIsMirrored(t *testing.T) {
	with := func(cluster string, weight uint32, mirrors ...Mirror) Backend {
		return Backend{Cluster: cluster, Weight: weight, Filters: Filters{Mirrors: mirrors}}
	}
	r := Route{
		Name: "r", Filters: Filters{Mirrors: []Mirror{{"a/spy/80", 100_000}}},
		Backends: []Backend{with("a/b/80", 2), with("", 1), with("a/c/80", 1, Mirror{"a/x/80", 500_000}, Mirror{"a/y/80", Million}, Mirror{"a/z/80", 1})},
	}
	list, err := r.Encode(Host{Name: "*"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range list {
		for _, p := range m.GetRoute().GetRequestMirrorPolicies() {
			got = append(got, fmt.Sprintf("%s %s below %d", m.GetName(), p.GetCluster(), p.GetRuntimeFraction().GetDefaultValue().GetNumerator()))
		}
	}
	want := []string{
		"r/0 a/spy/80 below 50000",
		"r/2 a/spy/80 below 775000", "r/2 a/x/80 below 875000", "r/2 a/y/80 below 0", "r/2 a/z/80 below 750001",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWhatEnvoyWouldRefuseIsRefusedByName(t *testing.T) {
	with := func(f Filters) Route { return Route{Name: "r", Filters: f} }
	request := func(c HeaderChange) Route { return with(Filters{Request: c}) }
	redirect := func(d Redirect) Route {
		if d.Status == 0 {
			d.Status = 301
		}
		return with(Filters{Redirect: &d})
	}
	rewrite := func(w Rewrite) Route { return with(Filters{Rewrite: w}) }
	cors := func(c CORS) Route { return with(Filters{CORS: &c}) }
	tests := map[string]struct {
		route Route
		want  string // the beginning of the error, after the route's name
	}{
		"a method that opens a tunnel":       {Route{Name: "r", Method: "CONNECT"}, "method: "},
		"a header that frames":               {request(HeaderChange{Set: []Header{{"content-length", "1"}}}), "request header: content-length: "},
		"a header of the connection":         {request(HeaderChange{Remove: []string{"connection"}}), "request header: connection: "},
		"the host":                           {request(HeaderChange{Remove: []string{"host"}}), "request header: host: "},
		"a pseudo header":                    {request(HeaderChange{Remove: []string{":path"}}), `request header: ":path": `},
		"a header with a space":              {request(HeaderChange{Set: []Header{{"a b", "1"}}}), `request header: "a b": `},
		"a header in upper case":             {request(HeaderChange{Set: []Header{{"X", "1"}}}), `request header: "X": `},
		"the proxy's own header":             {request(HeaderChange{Set: []Header{{"x-aether-scope", "1"}}}), `request header: "x-aether-scope": `},
		"a value with a line break":          {request(HeaderChange{Add: []Header{{"x", "a\r\nb"}}}), "request header: x: "},
		"a value with a control":             {request(HeaderChange{Add: []Header{{"x", "a\x01b"}}}), "request header: x: "},
		"a header set and removed":           {request(HeaderChange{Set: []Header{{"x", "1"}}, Remove: []string{"x"}}), "request header: x: "},
		"a response header that frames":      {with(Filters{Response: HeaderChange{Set: []Header{{"transfer-encoding", "chunked"}}}}), "response header: transfer-encoding: "},
		"an unknown scheme":                  {redirect(Redirect{Scheme: "ftp"}), "redirect: scheme "},
		"an unknown status":                  {redirect(Redirect{Status: 304}), "redirect: status 304"},
		"a port past the last":               {redirect(Redirect{Port: 65536}), "redirect: port 65536"},
		"a wildcard to redirect to":          {redirect(Redirect{Host: "*.example"}), "redirect: host "},
		"a relative path to redirect to":     {redirect(Redirect{Path: PathChange{ReplacePath, "a"}}), `redirect: path "a": `},
		"a path with a query to redirect to": {redirect(Redirect{Path: PathChange{ReplacePath, "/a?b"}}), `redirect: path "/a?b": `},
		"a path with a line break":           {rewrite(Rewrite{Path: PathChange{ReplacePath, "/a\n"}}), "rewrite: path "},
		"a path with a backslash":            {rewrite(Rewrite{Path: PathChange{ReplacePath, `/\1`}}), "rewrite: path "},
		"an unknown change":                  {rewrite(Rewrite{Path: PathChange{Kind: 9}}), "rewrite: kind 9 "},
		"a host that is none":                {rewrite(Rewrite{Host: "a b"}), "rewrite: host "},
		"a host with a bad port":             {rewrite(Rewrite{Host: "a.example:http"}), "rewrite: host "},
		"a prefix of an exact path": {Route{
			Name: "r", Path: PathMatch{Kind: PathExact, Value: "/a"}, Filters: Filters{Rewrite: Rewrite{Path: PathChange{Kind: ReplacePrefix}}},
		}, "rewrite: a prefix "},
		"a redirect with a backend":      {Route{Name: "r", Filters: Filters{Redirect: &Redirect{Status: 301}}, Backends: to("a/b/80")}, "redirect: there are backends"},
		"a mirrored redirect":            {with(Filters{Redirect: &Redirect{Status: 301}, Mirrors: []Mirror{{"a/b/80", 1}}}), "redirect: is neither "},
		"a mirror of nothing":            {with(Filters{Mirrors: []Mirror{{"a/b/80", 0}}}), `mirror "a/b/80": 0 of`},
		"a mirror of too much":           {with(Filters{Mirrors: []Mirror{{"a/b/80", Million + 1}}}), `mirror "a/b/80": 1000001 of`},
		"a mirror with a reserved name":  {with(Filters{Mirrors: []Mirror{{"aether-xds", 1}}}), `mirror "aether-xds": `},
		"an origin without a scheme":     {cors(CORS{Origins: []string{"a.example"}}), `CORS: origin "a.example": `},
		"an origin with a path":          {cors(CORS{Origins: []string{"http://a.example/x"}}), `CORS: origin `},
		"an origin with a star inside":   {cors(CORS{Origins: []string{"http://a.*.example"}}), `CORS: origin `},
		"a method with a space":          {cors(CORS{Methods: []string{"GET /"}}), `CORS: "GET /": `},
		"an exposed header with a comma": {cors(CORS{Expose: []string{"a,b"}}), `CORS: "a,b": `},
		"a value past Envoy's limit":     {request(HeaderChange{Set: []Header{{"x", strings.Repeat("%", 8193)}}}), "request header: x: value is too long"},
		"names past Envoy's limit":       {cors(CORS{Headers: slices.Repeat([]string{strings.Repeat("x", 256)}, 64)}), "CORS: value is too long"},
		"a negative timeout":             {Route{Name: "r", Timeout: -1}, "timeout: "},
		"a timeout of a nanosecond":      {Route{Name: "r", Timeout: 1}, "timeout: "},
		"a timeout of half a century":    {Route{Name: "r", Timeout: maxTimeoutAndMore}, "timeout: "},
		"a backend's filter": {Route{Name: "r", Backends: []Backend{{
			Cluster: "a/b/80", Filters: Filters{Request: HeaderChange{Remove: []string{"host"}}},
		}}}, `backend "a/b/80": request header: host: `},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.route.Validate()
			e, is := errors.AsType[*check.InvalidError](err)
			if !is || e.Route != "r" {
				t.Fatalf("got %v, want an InvalidError of the route", err)
			}
			if want := "route r: " + tt.want; !strings.HasPrefix(err.Error(), want) || len(err.Error()) <= len(want) {
				t.Errorf("got  %s\nwant %s…", err, want)
			}
		})
	}
}

const maxTimeoutAndMore = 400_001 * time.Hour

func TestWhatIsOddAndGoodIsTaken(t *testing.T) {
	for name, r := range map[string]Route{
		"the longest value":            {Name: "r", Filters: Filters{Response: HeaderChange{Set: []Header{{"x", strings.Repeat("%", 8192)}}}}},
		"the longest path":             {Name: "r", Path: PathMatch{Value: "/" + strings.Repeat(".", 1023)}, Filters: Filters{Rewrite: Rewrite{Path: PathChange{Kind: ReplacePrefix}}}},
		"a percent sign in a value":    {Name: "r", Filters: Filters{Response: HeaderChange{Set: []Header{{"x", "%"}}}}},
		"a value that is not ASCII":    {Name: "r", Filters: Filters{Response: HeaderChange{Set: []Header{{"x", "é"}}}}},
		"escapes in a path":            {Name: "r", Filters: Filters{Rewrite: Rewrite{Path: PathChange{ReplacePath, "/a%20b;c=d,e@f"}}}},
		"a host with a port":           {Name: "r", Filters: Filters{Rewrite: Rewrite{Host: "A.example:8080"}}},
		"an address to redirect to":    {Name: "r", Filters: Filters{Redirect: &Redirect{Host: "192.0.2.1", Status: 301}}},
		"CORS that allows nothing":     {Name: "r", Filters: Filters{CORS: &CORS{}}},
		"an origin in upper case":      {Name: "r", Filters: Filters{CORS: &CORS{Origins: []string{"HTTPS://A.Example"}}}},
		"the longest that can be said": {Name: "r", Timeout: 4 * 99_999 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			list, err := r.Encode(Host{Name: "*"})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				if err := m.ValidateAll(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
