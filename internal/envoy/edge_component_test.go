//go:build component

package envoy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
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
)

// recorder is a backend that keeps every byte of every request it gets, as it comes.
type recorder struct {
	address envoy.Address

	mu       sync.Mutex
	requests []string
}

func record(t *testing.T) *recorder {
	t.Helper()
	r := &recorder{}
	r.address = listen(t, "127.0.0.1", &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.requests = append(r.requests, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", q.Method, q.RequestURI, body, q.Header.Get("X-A"))))
		r.mu.Unlock()
		w.Header().Set("X-Host", q.Host)
		w.Header().Set("X-Path", q.RequestURI)
	})})
	return r
}

func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.requests
	r.requests = nil
	return out
}

// exchange writes bytes and reads all answers until the peer closes or has nothing more
// to say to a request that asks for the close.
func exchange(t *testing.T, port uint32, raw string) []int {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	var statuses []int
	in := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Fatalf("%q: the connection stays open; so far %v", raw, statuses)
			}
			return statuses
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		statuses = append(statuses, resp.StatusCode)
		if resp.Close {
			return statuses
		}
	}
}

// Two readers of one request must not disagree on where it ends: what is ambiguous is
// refused, the connection is closed, and nothing of it reaches a backend.
func TestRequestsThatTwoReadersWouldReadDifferentlyAreRefused(t *testing.T) {
	r := newRig(t)
	to, port := edge(t, r)
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"
	for name, raw := range map[string]string{
		"length and chunks":                    "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"chunks and length":                    "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + smuggled,
		"two lengths that differ":              "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\nContent-Length: 70\r\n\r\n" + smuggled,
		"a list of lengths":                    "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0, 70\r\n\r\n" + smuggled,
		"a length with a sign":                 "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: +0\r\n\r\n" + smuggled,
		"a negative length":                    "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: -1\r\n\r\n" + smuggled,
		"a length in hexadecimal":              "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0x0\r\n\r\n" + smuggled,
		"an unknown transfer coding":           "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"two transfer codings":                 "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
		"a coding behind a tab":                "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + smuggled,
		"a space before the colon":             "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
		"a chunk's size that is no number":     "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n" + smuggled,
		"a chunk's size with a sign":           "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + smuggled,
		"a chunk's size with 0x":               "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + smuggled,
		"a chunk's size that overflows":        "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n" + smuggled,
		"a chunk that is longer than its size": "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n" + smuggled,
		"a first header that is a second line": "GET / HTTP/1.1\r\n Host: b.example\r\nHost: a.example\r\n\r\n" + smuggled,
		"a NUL in a value":                     "GET / HTTP/1.1\r\nHost: a.example\r\nX-A: a\x00b\r\n\r\n" + smuggled,
		"a NUL in a name":                      "GET / HTTP/1.1\r\nHost: a.example\r\nX\x00A: a\r\n\r\n" + smuggled,
		"a name with a space":                  "GET / HTTP/1.1\r\nHost: a.example\r\nX A: a\r\n\r\n" + smuggled,
		"no name":                              "GET / HTTP/1.1\r\nHost: a.example\r\n: a\r\n\r\n" + smuggled,
		"a header without a colon":             "GET / HTTP/1.1\r\nHost: a.example\r\nX-A\r\n\r\n" + smuggled,
		"no host":                              "GET / HTTP/1.1\r\n\r\n" + smuggled,
		"a host with a path":                   "GET / HTTP/1.1\r\nHost: a.example/b\r\n\r\n" + smuggled,
		"a control character in the path":      "GET /a\x01b HTTP/1.1\r\nHost: a.example\r\n\r\n" + smuggled,
		"a space in the path":                  "GET /a b HTTP/1.1\r\nHost: a.example\r\n\r\n" + smuggled,
		"a method that is not registered":      "FOO / HTTP/1.1\r\nHost: a.example\r\n\r\n" + smuggled,
		"a method that is none":                "G(T / HTTP/1.1\r\nHost: a.example\r\n\r\n" + smuggled,
		"too many headers":                     "GET / HTTP/1.1\r\nHost: a.example\r\n" + strings.Repeat("X-A: a\r\n", 200) + "\r\n" + smuggled,
		"headers that are too large":           "GET / HTTP/1.1\r\nHost: a.example\r\nX-A: " + strings.Repeat("a", 70<<10) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			// A path of its own: a backend may be told of an earlier case's request, whose
			// head was good, after that case is over.
			own := "/" + strings.NewReplacer(" ", "-", "'", "").Replace(name)
			statuses := exchange(t, port, strings.Replace(raw, " / HTTP", " "+own+" HTTP", 1))
			for _, status := range statuses {
				if status < 400 {
					t.Errorf("answered with %v", statuses)
				}
			}
			for _, q := range to.seen() {
				early := strings.Contains(q, "/a-chunk") // before its bad chunk had come
				if strings.Contains(q, "smuggled") || !early {
					t.Errorf("the backend got %q; answered with %v", q, statuses)
				}
			}
		})
	}
	// One of each kind that is no attack, so that what refuses is not merely a deaf server.
	if got := exchange(t, port, "GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\nConnection: close\r\n\r\n"); len(got) != 1 || got[0] != 403 {
		t.Errorf("two hosts: answered with %v", got)
	}
	// What is old-fashioned is written anew, so that a backend reads what the proxy read.
	for name, raw := range map[string]string{
		"a length":              "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\nX-A: a b\r\nConnection: close\r\n\r\nab",
		"a header on two lines": "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\nX-A: a\r\n b\r\nConnection: close\r\n\r\nab",
		"a bare CR":             "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\nX-A: a \rb\r\nConnection: close\r\n\r\nab",
		"chunks in HTTP/1.0":    "POST / HTTP/1.0\r\nHost: a.example\r\nX-A: a b\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
		"chunks":                "POST / HTTP/1.1\r\nHost: a.example\r\nX-A: a b\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2;x=y\r\nab\r\n0\r\nX-T: t\r\n\r\n",
		"HTTP/1.0":              "POST / HTTP/1.0\r\nHost: a.example\r\nX-A: a b\r\nContent-Length: 2\r\n\r\nab",
		// Envoy takes every version of two digits but 1.1 for 1.0, and nothing that it shows
		// of the request tells them apart.
		"HTTP/2 in words":               "POST / HTTP/2.0\r\nHost: a.example\r\nX-A: a b\r\nContent-Length: 2\r\n\r\nab",
		"a version that does not exist": "POST / HTTP/9.9\r\nHost: a.example\r\nX-A: a b\r\nContent-Length: 2\r\n\r\nab",
	} {
		if statuses := exchange(t, port, raw); len(statuses) != 1 || statuses[0] != 200 {
			t.Errorf("%s: answered with %v", name, statuses)
		}
		got := slices.DeleteFunc(to.seen(), func(q string) bool { return strings.Contains(q, "/a-chunk") }) // told late
		if len(got) != 1 || got[0] != "POST / ab a b" {
			t.Errorf("%s: the backend got %q", name, got)
		}
	}
}

// edge serves a.example, and every host below b.example, from a recorder.
func edge(t *testing.T, r *rig) (*recorder, uint32) {
	t.Helper()
	rec := record(t)
	port := freePort(t)
	name := fmt.Sprintf("ns/edge/%d", port)
	models := append([]model{envoy.Runtime{}}, cluster(name, envoy.HTTP1, rec.address)...)
	models = append(models, envoy.Scope{
		Table: name, Host: "*", VirtualHosts: []envoy.VirtualHost{{Host: "a.example", Routes: []envoy.Route{{Name: "ns/a/0/0", Backends: to(name)}}}},
		Elsewhere: []string{"*.c.example", "c.example"},
	})
	r.serve(t, models...)
	ready := name + "::127.0.0.1"
	await(t, ready, func() bool { return strings.Contains(r.get("/clusters"), ready) }, func() string { return r.get("/clusters") })
	r.serve(t, envoy.Listener{Name: name, Address: "127.0.0.1", Port: port, Chains: []envoy.Chain{{Name: name, Port: 80}}})
	r.awaitListener(t, port)
	return rec, port
}

func TestPathsAndHostsAreReadByOnePolicy(t *testing.T) {
	r := newRig(t)
	_, port := edge(t, r)
	for name, tc := range map[string]struct {
		target, host string
		status       int
		path, seen   string
	}{
		"dot segments are resolved":         {"/x/../y/./z", "a.example", 200, "/y/z", "a.example"},
		"and encoded ones":                  {"/x/%2e%2e/y", "a.example", 200, "/y", "a.example"},
		"slashes are not merged":            {"//x///y", "a.example", 200, "//x///y", "a.example"},
		"an encoded slash stays as sent":    {"/x%2Fy%2fz", "a.example", 200, "/x%2Fy%2fz", "a.example"},
		"and an encoded backslash":          {"/x%5Cy", "a.example", 200, "/x%5Cy", "a.example"},
		"a host with a port":                {"/", "a.example:8080", 200, "/", "a.example:8080"},
		"a host with a port that is none":   {"/", "a.example:abc", 200, "/", "a.example:abc"},
		"a host with a port past the last":  {"/", "a.example:65536", 200, "/", "a.example:65536"},
		"a host in another letter case":     {"/", "A.Example", 200, "/", "A.Example"},
		"a host with a trailing dot":        {"/", "a.example.", 200, "/", "a.example."},
		"a trailing dot and a port":         {"/", "a.example.:80", 200, "/", "a.example.:80"},
		"a whole URL, whose host counts":    {"http://a.example/x", "other.example", 200, "/x", "a.example"},
		"a host that nobody has":            {"/", "other.example", 404, "", ""},
		"another table's host":              {"/", "c.example", 421, "", ""},
		"another table's host, with a port": {"/", "C.example:443", 421, "", ""},
		"another table's host with a dot":   {"/", "c.example.", 421, "", ""},
		"below another's, a dot and a port": {"/", "x.c.example.:443", 421, "", ""},
		"a host below another table's":      {"/", "x.y.c.example", 421, "", ""},
		"an IPv6 literal":                   {"/", "[::1]:80", 404, "", ""},
		"a query stays as it is":            {"/x?a=/../b&c=%2F", "a.example", 200, "/x?a=/../b&c=%2F", "a.example"},
		"they do not lead out of the root":  {"/../../x", "a.example", 200, "/x", "a.example"},
	} {
		a := ask(t, port, "GET "+tc.target+" HTTP/1.1", "Host: "+tc.host)
		if a.Status != tc.status || a.Header.Get("X-Path") != tc.path || a.Header.Get("X-Host") != tc.seen {
			t.Errorf("%s: %d, the backend saw %q of %q", name, a.Status, a.Header.Get("X-Path"), a.Header.Get("X-Host"))
		}
	}
}

func TestHeadersWithUnderscoresDoNotReachBackends(t *testing.T) {
	r := newRig(t)
	port := everything(t, r, envoy.Listener{}, envoy.Chain{})
	a := ask(t, port, "GET / HTTP/1.1", "Host: a.example", "X_Forwarded_For: 6.6.6.6", "X-A: a")
	if a.Status != 200 || a.Seen.Header.Get("X-A") != "a" || a.Seen.Header.Get("X_forwarded_for") != "" {
		t.Errorf("%d, the backend saw %v", a.Status, a.Seen.Header)
	}
}

func TestPlainListenersSpeakEveryVersion(t *testing.T) {
	r := newRig(t)
	port := everything(t, r, envoy.Listener{}, envoy.Chain{})
	for raw, want := range map[string]int{
		"GET / HTTP/1.0\r\nHost: a.example\r\n\r\n": 200,
		"GET / HTTP/1.0\r\n\r\n":                    400,
		"GET / HTTP/1.1\r\nHost: a.example\r\n" + strings.Repeat("X-A: a\r\n", 200) + "\r\n":                         431,
		"GET / HTTP/1.1\r\nHost: a.example\r\nX-A: " + strings.Repeat("a", 70<<10) + "\r\n\r\n":                      431,
		"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nX-A: " + strings.Repeat("a", 40<<10) + "\r\n\r\n": 200,
	} {
		if statuses := exchange(t, port, raw); len(statuses) != 1 || statuses[0] != want {
			t.Errorf("%.60q: %v, want %d", raw, statuses, want)
		}
	}
	h2c := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols), TLSClientConfig: &tls.Config{}}}
	h2c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	defer h2c.CloseIdleConnections()
	resp, err := h2c.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		t.Errorf("HTTP/2 by prior knowledge: %d by %s", resp.StatusCode, resp.Proto)
	}
}

// A body goes through piece by piece: each is echoed before the next is sent. Trailers of
// both sides arrive, and a client that waits for 100 gets it.
func TestBodiesStreamBothWaysWithTrailers(t *testing.T) {
	r := newRig(t)
	trailer := make(chan string, 1)
	address := listen(t, "127.0.0.1", &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_ = http.NewResponseController(w).EnableFullDuplex()
		buffer := make([]byte, 64)
		for {
			n, err := q.Body.Read(buffer)
			_, _ = w.Write(buffer[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				break
			}
		}
		trailer <- q.Trailer.Get("X-Client")
		w.Header().Set("X-Sum", "done")
	})})
	r.serve(t, append([]model{envoy.Runtime{}}, cluster("ns/echo/80", envoy.HTTP1, address)...)...)
	await(t, "cluster", func() bool { return strings.Contains(r.get("/clusters"), "ns/echo/80::127") }, func() string { return r.get("/clusters") })
	port := freePort(t)
	r.serve(t, append(scopes("ns/gw/80", false, []envoy.VirtualHost{{Host: "*", Routes: []envoy.Route{{Name: "ns/e/0/0", Backends: to("ns/echo/80")}}}}),
		envoy.Listener{Name: "ns/gw/80", Address: "127.0.0.1", Port: port, Chains: []envoy.Chain{{Name: "ns/gw/80"}}})...)
	r.awaitListener(t, port)

	reader, writer := io.Pipe()
	q, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/", port), reader)
	q.Header.Set("Expect", "100-continue")
	q.Trailer = http.Header{"X-Client": nil}
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: patience}}
	defer client.CloseIdleConnections()
	go func() { _, _ = io.WriteString(writer, "first") }()
	resp, err := client.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, piece := range []string{"first", "second", strings.Repeat("x", 40)} {
		if piece != "first" {
			_, _ = io.WriteString(writer, piece)
		}
		got := make([]byte, len(piece))
		if _, err := io.ReadFull(resp.Body, got); err != nil || !bytes.Equal(got, []byte(piece)) {
			t.Fatalf("got %q (%v), want %q before the next is sent", got, err, piece)
		}
	}
	q.Trailer.Set("X-Client", "bye")
	_ = writer.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if got := <-trailer; got != "bye" || resp.Trailer.Get("X-Sum") != "done" {
		t.Errorf("trailers: the backend saw %q, the client %q", got, resp.Trailer.Get("X-Sum"))
	}
}

// What a backend sees that puts trailers among the headers is what the proxy lets through.
func TestTrailersSayNothingThatOnlyHeadersMay(t *testing.T) {
	r := newRig(t)
	seen := make(chan http.Header, 1)
	address := listen(t, "127.0.0.1", &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		seen <- q.Trailer
	})})
	r.serve(t, append([]model{envoy.Runtime{}}, cluster("ns/trailers/80", envoy.HTTP1, address)...)...)
	await(t, "cluster", func() bool { return strings.Contains(r.get("/clusters"), "ns/trailers/80::127") }, func() string { return r.get("/clusters") })
	for _, perHost := range []bool{false, true} {
		port, name := freePort(t), fmt.Sprintf("ns/gw/%v", perHost)
		r.serve(t, append(scopes(name, perHost, []envoy.VirtualHost{{Host: "*", Routes: []envoy.Route{{Name: "ns/e/0/0", Backends: to("ns/trailers/80")}}}}),
			envoy.Listener{Name: name, Address: "127.0.0.1", Port: port, Chains: []envoy.Chain{{Name: name, PerHost: perHost}}})...)
		r.awaitListener(t, port)
		raw := "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\nX-Sum: 1\r\n"
		for _, name := range []string{
			"X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Unheard-Of", "Forwarded", "X-Real-IP", "X-Envoy-Internal", "x-envoy-unheard-of",
			"X-Aether-Scope", "Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Upgrade", "Trailer", "X_Forwarded_For",
		} {
			raw += name + ": 1\r\n"
		}
		if got := exchange(t, port, raw+"\r\n"); len(got) != 1 || got[0] != 200 {
			t.Fatalf("answered with %v", got)
		}
		if got := <-seen; len(got) != 1 || got.Get("X-Sum") != "1" {
			t.Errorf("per host %v: the backend saw %v", perHost, got)
		}
	}
}

// Envoy has no way to have it otherwise: the reference page says so.
func TestWhatTheProxyItselfAnswersToGRPCIsAGRPCStatus(t *testing.T) {
	f := serveFiltered(t, envoy.Route{Name: "ns/r/0/0", Path: at("/empty"), Backends: to("ns/empty/80")})
	for contentType, want := range map[string]int{
		"application/grpc": 200, "application/grpc+proto": 200, "application/grpc;x=y": 503,
		"application/grpc-web": 503, "application/json": 503,
	} {
		f.every(t, "GET /empty", []string{"Content-Type: " + contentType}, func(t *testing.T, _ string, a answer) {
			if a.Status != want || (a.Header.Get("Grpc-Status") != "") != (want == 200) {
				t.Errorf("%s: %d %v", contentType, a.Status, a.Header)
			}
		})
	}
}

func TestUpgradesToWhatIsNotKnownAreIgnored(t *testing.T) {
	f := serveFiltered(t, envoy.Route{Name: "ns/r/0/0", Backends: to("ns/a/80")})
	for _, upgrade := range []string{"foo/2", "h2c", "TLS/1.0, HTTP/1.1", "websockets", "websocket/13", "Web"} {
		f.every(t, "GET /x", []string{"Upgrade: " + upgrade, "Connection: upgrade"}, func(t *testing.T, _ string, a answer) {
			if a.Status != 200 || a.Seen.Header.Get("Upgrade") != "" {
				t.Errorf("%s: %d, the backend saw Upgrade: %q", upgrade, a.Status, a.Seen.Header.Get("Upgrade"))
			}
		})
	}
	for _, upgrade := range []string{"websocket", "WebSocket", "foo, websocket", "websocket, foo/1"} {
		f.every(t, "GET /up", []string{"Upgrade: " + upgrade, "Connection: upgrade"}, func(t *testing.T, _ string, a answer) {
			if a.Status != 101 {
				t.Errorf("%s: %d", upgrade, a.Status)
			}
		})
	}
}

func TestAListenerHoldsNoMoreConnectionsThanItsLimit(t *testing.T) {
	r := newRig(t)
	port := everything(t, r, envoy.Listener{}, envoy.Chain{})
	limited := func(limits map[string]uint32) { r.serve(t, envoy.Runtime{Connections: limits}) }
	// held opens connections until one is refused, at most n, and returns those that live.
	held := func(n int) (live []net.Conn) {
		for range n {
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				return live
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
				_ = conn.Close()
				return live
			}
			live = append(live, conn)
		}
		return live
	}
	drop := func(live []net.Conn) {
		for _, c := range live {
			_ = c.Close()
		}
	}
	count := func(n int) int { live := held(n); defer drop(live); return len(live) }
	if n := count(20); n != 20 {
		t.Errorf("without a limit %d connections were held", n)
	}
	limited(map[string]uint32{fmt.Sprintf("ns/gw/%d", port): 3, "ns/gw/1": 1})
	await(t, "a limit of 3", func() bool { return count(6) == 3 }, func() string { return fmt.Sprint(count(6)) + r.get("/runtime") })
	live := held(3)
	limited(nil)
	await(t, "no limit", func() bool { return count(9) == 9 }, func() string { return fmt.Sprint(count(9)) + r.get("/runtime") })
	for _, c := range live { // no update of the listener: what was held lives on
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
		if _, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Errorf("a connection did not survive the change: %v", err)
		}
	}
	drop(live)
}
