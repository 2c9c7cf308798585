//go:build component

package envoy_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/route"
)

// origin is a backend that remembers what it saw. "/hang" never answers, "/stall" answers
// a part, "/up" upgrades and echoes; all else answers with what was seen.
type origin struct {
	mu   sync.Mutex
	saw  []seen
	addr envoy.Address
}

func newOrigin(t *testing.T, name string) *origin {
	t.Helper()
	o := &origin{}
	o.addr = listen(t, "127.0.0.1", &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		what := seen{Backend: name, Host: q.Host, Path: q.RequestURI, Proto: q.Proto, Header: q.Header}
		o.mu.Lock()
		o.saw = append(o.saw, what)
		o.mu.Unlock()
		w.Header().Set("Access-Control-Allow-Origin", "https://backend.example")
		w.Header().Set("X-From", name)
		w.Header().Set("X-Secret", "s")
		switch {
		case strings.HasSuffix(q.URL.Path, "/hang"):
			<-q.Context().Done()
		case strings.HasSuffix(q.URL.Path, "/stall"):
			_, _ = io.WriteString(w, "some")
			_ = http.NewResponseController(w).Flush()
			<-q.Context().Done()
		case strings.HasSuffix(q.URL.Path, "/up"):
			echoUpgraded(w)
		default:
			_ = json.NewEncoder(w).Encode(what)
		}
	})})
	return o
}

func (o *origin) seen() []seen {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.saw)
}

// filtered is one Envoy with two ports that serve the same routes, for an exact host and
// for a wildcard, in each of the modes.
type filtered struct {
	ports map[string]uint32
	hosts map[string]string // as clients say them
	a, m  *origin
}

func serveFiltered(t *testing.T, routes ...envoy.Route) filtered {
	t.Helper()
	r := newRig(t)
	f := filtered{
		ports: map[string]uint32{"single": freePort(t), "per host": freePort(t)},
		hosts: map[string]string{"exact": "f.example", "wildcard": "x.w.example", "other case": "F.example"},
		a:     newOrigin(t, "a"), m: newOrigin(t, "m"),
	}
	b := newOrigin(t, "b")
	models := slices.Concat(
		[]model{envoy.Runtime{}},
		cluster("ns/a/80", envoy.HTTP1, f.a.addr), cluster("ns/b/80", envoy.HTTP1, b.addr), cluster("ns/m/80", envoy.HTTP1, f.m.addr),
		cluster("ns/empty/80", envoy.HTTP1))
	for mode, port := range f.ports {
		table := fmt.Sprintf("ns/gw/%d", port)
		hosts := []envoy.VirtualHost{{Host: "f.example", Port: 80, Routes: routes}, {Host: "*.w.example", Port: 80, Routes: routes}}
		models = append(models, scopes(table, mode == "per host", hosts)...)
		models = append(models, envoy.Listener{
			Name: table, Address: "127.0.0.1", Port: port,
			Chains: []envoy.Chain{{Name: table, PerHost: mode == "per host"}},
		})
	}
	r.serve(t, models...)
	for _, port := range f.ports {
		r.awaitListener(t, port)
	}
	return f
}

// every asks in all modes and of all hosts.
func (f filtered) every(t *testing.T, line string, headers []string, judge func(*testing.T, string, answer)) {
	t.Helper()
	for mode, port := range f.ports {
		for kind, host := range f.hosts {
			t.Run(mode+", "+kind, func(t *testing.T) {
				judge(t, host, ask(t, port, append([]string{line + " HTTP/1.1", "Host: " + host}, headers...)...))
			})
		}
	}
}

func at(path string) envoy.PathMatch { return envoy.PathMatch{Value: path} }

func replace(kind route.ChangeKind, with string) route.PathChange {
	return route.PathChange{Kind: kind, Value: with}
}

func TestHeadersAreChanged(t *testing.T) {
	f := serveFiltered(t,
		envoy.Route{
			Name: "ns/r/0/0", Path: at("/both"), Backends: []envoy.WeightedBackend{{Cluster: "ns/a/80", Weight: 1, Filters: route.Filters{
				Request:  route.HeaderChange{Set: []route.Header{{Name: "x-over", Value: "backend"}}, Remove: []string{"x-gone-b"}},
				Response: route.HeaderChange{Add: []route.Header{{Name: "x-from", Value: "backend"}}},
			}}},
			Filters: route.Filters{
				Request: route.HeaderChange{
					Set:    []route.Header{{Name: "x-set", Value: "100% %REQ(HOST)%"}, {Name: "x-over", Value: "rule"}},
					Add:    []route.Header{{Name: "x-add", Value: "two,three"}},
					Remove: []string{"x-gone", "user-agent"},
				},
				Response: route.HeaderChange{Set: []route.Header{{Name: "x-new", Value: "%"}}, Remove: []string{"x-secret"}},
			},
		},
		envoy.Route{
			Name: "ns/r/1/0", Path: at("/empty"), Backends: to("ns/empty/80"),
			Filters: route.Filters{Response: route.HeaderChange{Set: []route.Header{{Name: "x-new", Value: "v"}}}},
		},
	)
	sent := []string{"X-Set: client", "X-ADD: one", "X-Gone: 1", "x-gone-B: 1", "User-Agent: me", "X-Kept: k", "X-Over: client"}
	f.every(t, "GET /both", sent, func(t *testing.T, _ string, a answer) {
		for name, want := range map[string][]string{
			"X-Set": {"100% %REQ(HOST)%"}, "X-Add": {"one", "two,three"}, "X-Gone": nil, "X-Gone-B": nil, "User-Agent": nil, "X-Kept": {"k"}, "X-Over": {"backend"},
		} {
			if got := a.Seen.Header[name]; !slices.Equal(got, want) {
				t.Errorf("backend saw %s: %q, want %q", name, got, want)
			}
		}
		for name, want := range map[string][]string{"X-New": {"%"}, "X-Secret": nil, "X-From": {"a", "backend"}} {
			if got := a.Header[name]; !slices.Equal(got, want) {
				t.Errorf("client saw %s: %q, want %q", name, got, want)
			}
		}
	})
	f.every(t, "GET /empty", nil, func(t *testing.T, _ string, a answer) {
		if a.Status != 503 || a.Header.Get("X-New") != "v" {
			t.Errorf("got %d %v, want 503 with the header", a.Status, a.Header)
		}
	})
}

func TestURLsAreRewritten(t *testing.T) {
	rewrite := func(i int, path string, w route.Rewrite) envoy.Route {
		return envoy.Route{Name: fmt.Sprintf("ns/r/%d/0", i), Path: at(path), Backends: to("ns/a/80"), Filters: route.Filters{Rewrite: w}}
	}
	root := rewrite(8, "/", route.Rewrite{Path: replace(route.ReplacePrefix, "/xyz/")})
	f := serveFiltered(t,
		rewrite(0, "/foo", route.Rewrite{Path: replace(route.ReplacePrefix, "/xyz")}),
		rewrite(1, "/slash/", route.Rewrite{Path: replace(route.ReplacePrefix, "/xyz/")}),
		rewrite(2, "/cut", route.Rewrite{Path: replace(route.ReplacePrefix, "")}),
		rewrite(3, "/to.root", route.Rewrite{Path: replace(route.ReplacePrefix, "/")}),
		rewrite(4, "/full", route.Rewrite{Path: replace(route.ReplacePath, "/one/two")}),
		rewrite(5, "/none", route.Rewrite{Path: replace(route.ReplacePath, "")}),
		rewrite(6, "/host", route.Rewrite{Host: "other.example"}),
		rewrite(7, "/host-port", route.Rewrite{Host: "other.example:8080"}),
		rewrite(9, "/"+strings.Repeat(".", 1022)+"a", route.Rewrite{Path: replace(route.ReplacePrefix, "")}),
		root,
	)
	// The first eleven are the table of HTTPPathModifier.replacePrefixMatch.
	for path, want := range map[string]string{
		"/foo/bar": "/xyz/bar", "/foo": "/xyz", "/foo/": "/xyz/", "/foo/bar?a=b": "/xyz/bar?a=b", "/foo?a=b": "/xyz?a=b",
		"/slash/bar": "/xyz/bar", "/slash": "/xyz",
		"/cut/bar": "/bar", "/cut/": "/", "/cut": "/", "/cut?a": "/?a", "/cut/cut/": "/cut/", "/cut//bar": "//bar",
		"/to.root": "/", "/to.root/": "/", "/to.root/bar": "/bar",
		"/full": "/one/two", "/full/a/b?c": "/one/two?c", "/none/a": "/",
		"/" + strings.Repeat(".", 1022) + "a/b": "/b",
		"/":                                     "/xyz/", "/bar": "/xyz/bar", "/foot": "/xyz/foot",
	} {
		t.Run(path, func(t *testing.T) {
			f.every(t, "GET "+path, nil, func(t *testing.T, host string, a answer) {
				if a.Seen.Path != want || a.Seen.Host != host {
					t.Errorf("backend saw %s of %s, want %s of %s", a.Seen.Path, a.Seen.Host, want, host)
				}
			})
		})
	}
	for path, want := range map[string]string{"/host": "other.example", "/host-port": "other.example:8080"} {
		f.every(t, "GET "+path, []string{"X-Forwarded-Host: forged"}, func(t *testing.T, host string, a answer) {
			if a.Seen.Host != want || a.Seen.Header.Get("X-Forwarded-Host") != host {
				t.Errorf("backend saw host %s, forwarded host %q, want %s and %s", a.Seen.Host, a.Seen.Header["X-Forwarded-Host"], want, host)
			}
		})
	}
}

func TestRequestsAreRedirected(t *testing.T) {
	var routes []envoy.Route
	redirect := func(path string, d route.Redirect) {
		if d.Status == 0 {
			d.Status = 302
		}
		routes = append(routes, envoy.Route{
			Name: fmt.Sprintf("ns/r/%d/0", len(routes)), Path: at(path),
			Filters: route.Filters{Redirect: &d, Response: route.HeaderChange{Set: []route.Header{{Name: "x-new", Value: "v"}}}},
		})
	}
	redirect("/https", route.Redirect{Scheme: "https"})
	redirect("/https-443", route.Redirect{Scheme: "https", Port: 443})
	redirect("/https-8443", route.Redirect{Scheme: "https", Port: 8443})
	redirect("/nothing", route.Redirect{})
	redirect("/80", route.Redirect{Port: 80})
	redirect("/8080", route.Redirect{Port: 8080})
	redirect("/host", route.Redirect{Host: "other.example"})
	redirect("/full", route.Redirect{Path: replace(route.ReplacePath, "/a/b")})
	redirect("/prefix", route.Redirect{Path: replace(route.ReplacePrefix, "/xyz")})
	redirect("/cut", route.Redirect{Path: replace(route.ReplacePrefix, "/")})
	for _, status := range []uint32{301, 302, 303, 307, 308} {
		redirect(fmt.Sprintf("/s%d", status), route.Redirect{Host: "other.example", Status: status})
	}
	f := serveFiltered(t, routes...)
	// HOST stands for the request's host as the location has it, PORT for the port that
	// only a wildcard's request with a port gets.
	for path, want := range map[string]string{
		"/https/a?b": "https://HOSTPORT/https/a?b", "/https-443": "https://HOSTPORT/https-443", "/https-8443": "https://HOST:8443/https-8443",
		"/nothing": "http://HOSTPORT/nothing", "/80": "http://HOSTPORT/80", "/8080": "http://HOST:8080/8080",
		"/host/a": "http://other.example/host/a", "/full/x?y": "http://HOSTPORT/a/b?y",
		"/prefix": "http://HOSTPORT/xyz", "/prefix/a?b": "http://HOSTPORT/xyz/a?b", "/cut/a": "http://HOSTPORT/a", "/cut": "http://HOSTPORT/",
	} {
		for mode, port := range f.ports {
			for _, host := range []string{"f.example", "x.w.example"} {
				for _, suffix := range []string{"", ":80", ":8080"} {
					usual := ""
					if host == "x.w.example" && suffix != "" {
						usual = map[bool]string{false: ":80", true: ":443"}[strings.HasPrefix(want, "https")]
					}
					location := strings.NewReplacer("HOSTPORT", host+usual, "HOST", host).Replace(want)
					a := ask(t, port, "GET "+path+" HTTP/1.1", "Host: "+host+suffix)
					if a.Status != 302 || a.Header.Get("Location") != location || a.Header.Get("X-New") != "v" {
						t.Errorf("%s, %s of %s%s: got %d %s, want 302 %s", mode, path, host, suffix, a.Status, a.Header.Get("Location"), location)
					}
				}
			}
		}
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		f.every(t, fmt.Sprintf("POST /s%d", status), []string{"Content-Length: 0"}, func(t *testing.T, _ string, a answer) {
			if a.Status != status || a.Header.Get("Location") != fmt.Sprintf("http://other.example/s%d", status) {
				t.Errorf("got %d %s, want %d", a.Status, a.Header.Get("Location"), status)
			}
		})
	}
}

func TestRequestsAreMirrored(t *testing.T) {
	mirror := func(i int, path string, mirrors ...route.Mirror) envoy.Route {
		return envoy.Route{
			Name: fmt.Sprintf("ns/r/%d/0", i), Path: at(path), Backends: to("ns/a/80"),
			Filters: route.Filters{Mirrors: mirrors, Request: route.HeaderChange{Set: []route.Header{{Name: "x-set", Value: "v"}}}},
		}
	}
	whole := route.Mirror{Cluster: "ns/m/80", PerMillion: route.Million}
	f := serveFiltered(
		t,
		mirror(0, "/one", whole),
		mirror(1, "/twice", whole, route.Mirror{Cluster: "ns/m/80", PerMillion: route.Million}, route.Mirror{Cluster: "ns/empty/80", PerMillion: route.Million}),
		mirror(2, "/some", route.Mirror{Cluster: "ns/m/80", PerMillion: 300_000}),
	)
	port := f.ports["per host"]
	expect := func(path string, want int) []seen {
		t.Helper()
		of := func() []seen {
			return slices.DeleteFunc(f.m.seen(), func(s seen) bool { return s.Path != path })
		}
		await(t, fmt.Sprintf("%d mirrored requests for %s", want, path), func() bool { return len(of()) >= want }, func() string { return fmt.Sprint(of()) })
		return of()
	}
	if a := ask(t, port, "GET /one?q HTTP/1.1", "Host: F.example:99"); a.Status != 200 || a.Seen.Backend != "a" {
		t.Errorf("got %d from %q, want 200 from a", a.Status, a.Seen.Backend)
	}
	if got := expect("/one?q", 1); got[0].Host != "F.example:99" || got[0].Header.Get("X-Set") != "v" {
		t.Errorf("mirrored %+v, want the host as it was and the header", got[0])
	}
	ask(t, f.ports["single"], "GET /twice HTTP/1.1", "Host: f.example")
	expect("/twice", 2)
	for range 300 {
		ask(t, port, "GET /some HTTP/1.1", "Host: f.example")
	}
	ask(t, port, "GET /one?last HTTP/1.1", "Host: f.example")
	expect("/one?last", 1)
	if n := len(expect("/some", 30)); n > 200 {
		t.Errorf("%d of 300 requests were mirrored, want about 90", n)
	}
}

func TestBackendsHaveFiltersOfTheirOwn(t *testing.T) {
	split := envoy.Route{
		Name: "ns/r/0/0", Path: at("/foo"),
		Filters: route.Filters{Rewrite: route.Rewrite{Host: "rule.example"}, Request: route.HeaderChange{Set: []route.Header{{Name: "x-rule", Value: "v"}}}},
		Backends: []envoy.WeightedBackend{
			{Cluster: "ns/a/80", Weight: 3, Filters: route.Filters{Rewrite: route.Rewrite{Path: replace(route.ReplacePrefix, "/v1")}}},
			{Cluster: "ns/b/80", Weight: 0, Filters: route.Filters{Rewrite: route.Rewrite{Host: "never.example"}}},
			{Cluster: "ns/b/80", Weight: 2, Filters: route.Filters{
				Rewrite: route.Rewrite{Host: "b.example"}, Request: route.HeaderChange{Set: []route.Header{{Name: "x-b", Value: "v"}}},
				Mirrors: []route.Mirror{{Cluster: "ns/m/80", PerMillion: route.Million}},
			}},
			{Cluster: "", Weight: 2, Filters: route.Filters{Rewrite: route.Rewrite{Host: "never.example"}}},
			{Cluster: "ns/a/80", Weight: 3, Filters: route.Filters{Redirect: &route.Redirect{Host: "moved.example", Status: 307}}},
		},
	}
	f := serveFiltered(t, split)
	for mode, port := range f.ports {
		count := map[string]int{}
		for range 500 {
			a := ask(t, port, "GET /foo/x HTTP/1.1", "Host: f.example")
			count[fmt.Sprintf("%d %s %s %s %s%s %s", a.Status, a.Seen.Backend, a.Seen.Host, a.Seen.Path, a.Seen.Header.Get("X-Rule"), a.Seen.Header.Get("X-B"), a.Header.Get("Location"))]++
		}
		within := func(what string, low, high int) {
			if n := count[what]; n < low || n > high {
				t.Errorf("%s: %d times %q, want %d to %d: %v", mode, n, what, low, high, count)
			}
			delete(count, what)
		}
		within("200 a rule.example /v1/x v ", 100, 200)
		within("200 b b.example /foo/x vv ", 60, 140)
		within("500     ", 60, 140)
		within("307     http://moved.example/foo/x", 100, 200)
		if len(count) > 0 {
			t.Errorf("%s: %v too", mode, count)
		}
	}
}

func TestTimeoutsEndRequestsAndNotUpgrades(t *testing.T) {
	f := serveFiltered(t,
		envoy.Route{Name: "ns/r/0/0", Path: at("/t"), Timeout: 200 * time.Millisecond, Backends: to("ns/a/80")},
		envoy.Route{Name: "ns/r/1/0", Path: at("/long"), Timeout: 399_996 * time.Hour, Backends: to("ns/a/80")},
	)
	for mode, port := range f.ports {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, "GET /t/up HTTP/1.1\r\nHost: f.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		upgraded := bufio.NewReader(conn)
		resp, err := http.ReadResponse(upgraded, nil)
		if err != nil || resp.StatusCode != 101 {
			t.Fatalf("%s: upgrade: %v, %v", mode, resp, err)
		}
		// This begins after the upgrade and ends by the time limit that both have.
		if a := ask(t, port, "GET /t/hang HTTP/1.1", "Host: f.example"); a.Status != 504 {
			t.Errorf("%s: an answer that does not come: got %d, want 504", mode, a.Status)
		}
		_, _ = io.WriteString(conn, "still there\n")
		if line, err := upgraded.ReadString('\n'); line != "still there\n" {
			t.Errorf("%s: the upgraded connection answered %q, %v", mode, line, err)
		}
		if body, err := get(fmt.Sprintf("http://127.0.0.1:%d/t/stall", port)); err == nil {
			t.Errorf("%s: an answer that stops on its way ended well: %q", mode, body)
		}
		if a := ask(t, port, "GET /long HTTP/1.1", "Host: f.example"); a.Status != 200 {
			t.Errorf("%s: a time limit of years: got %d, want 200", mode, a.Status)
		}
	}
}

// get reads a whole body as the host f.example.
func get(url string) (string, error) {
	q, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	q.Host = "f.example"
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := c.Do(q)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
