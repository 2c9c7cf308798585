//go:build component

package protocol_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"aether.io/aether/internal/test/echo"
)

func TestAnHTTP10ClientGetsAnAnswerThatEndsWithTheConnection(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		w.route(t, "old.example.com", startEcho(t).Port, "")
		c, r := w.dial(t)
		if _, err := io.WriteString(c, "GET /a HTTP/1.0\r\nHost: old.example.com\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("the connection did not end with the answer: %v", err)
		}
		head, body, _ := strings.Cut(string(all), "\r\n\r\n")
		if !strings.Contains(head, " 200 ") || strings.Contains(strings.ToLower(head), "transfer-encoding") || !strings.Contains(body, `"/a"`) {
			t.Errorf("answered\n%s", all)
		}
	})
}

func TestARequestWithoutAHostHasNoAnswerButAnError(t *testing.T) {
	for name, request := range map[string]string{
		"HTTP/1.0":              "GET / HTTP/1.0\r\n\r\n",
		"HTTP/1.1":              "GET / HTTP/1.1\r\n\r\n",
		"HTTP/1.1, empty":       "GET / HTTP/1.1\r\nHost:\r\n\r\n",
		"HTTP/1.1, two of them": "GET / HTTP/1.1\r\nHost: a.example.com\r\nHost: b.example.com\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, w *world) {
				resp, _, err := w.say(t, request)
				if err == nil && resp.StatusCode < 400 {
					t.Errorf("answered %s, want an error", resp.Status)
				}
			})
		})
	}
}

func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		w.route(t, "pipe.example.com", startEcho(t).Port, "")
		c, r := w.dial(t)
		var all strings.Builder
		for i := range 20 {
			fmt.Fprintf(&all, "POST /%d HTTP/1.1\r\nHost: pipe.example.com\r\nContent-Length: 2\r\n\r\n%02d", i, i)
		}
		if _, err := io.WriteString(c, all.String()); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			resp, body, err := answer(r, http.MethodPost)
			if err != nil {
				t.Fatal(err)
			}
			var seen echo.Seen
			if err := json.Unmarshal([]byte(body), &seen); err != nil || resp.StatusCode != http.StatusOK || seen.Path != fmt.Sprintf("/%d", i) || seen.Body != fmt.Sprintf("%02d", i) {
				t.Fatalf("answer %d: %s %+v %v", i, resp.Status, seen, err)
			}
		}
	})
}

func TestTrailersGoBothWaysInHTTP1(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		b := startRaw(t, answerAll("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 2\r\n\r\n"))
		w.route(t, "trailer.example.com", b.port, "")
		resp, body, err := w.say(t, "POST / HTTP/1.1\r\nHost: trailer.example.com\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n5\r\nhello\r\n0\r\nX-End: yes\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		if body != "ok" || resp.Trailer.Get("x-sum") != "2" {
			t.Errorf("answered %q, trailers %v", body, resp.Trailer)
		}
		if seen := b.seen(); !strings.Contains(seen, "\r\nx-end: yes\r\n") {
			t.Errorf("the backend saw\n%s", seen)
		}
	})
}

func TestHeaderNamesAreInLowerCaseOnBothSides(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		b := startRaw(t, answerAll("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Mixed-Case: Value\r\n\r\nok"))
		w.route(t, "case.example.com", b.port, "")
		c, r := w.dial(t)
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: case.example.com\r\nX-MIXED-case: Value\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(all), "\r\nx-mixed-case: Value\r\n") {
			t.Errorf("the client saw\n%s", all)
		}
		if seen := b.seen(); !strings.Contains(seen, "\r\nx-mixed-case: Value\r\n") || !strings.Contains(seen, "\r\nhost: case.example.com\r\n") {
			t.Errorf("the backend saw\n%s", seen)
		}
	})
}

func TestOneHostIsWrittenInManyWays(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		w.route(t, "forms.example.com", startEcho(t).Port, "")
		for name, request := range map[string]string{
			"in other letter case":              "GET / HTTP/1.1\r\nHost: FORMS.Example.com\r\n\r\n",
			"with a port":                       "GET / HTTP/1.1\r\nHost: forms.example.com:8080\r\n\r\n",
			"with any port":                     "GET / HTTP/1.1\r\nHost: forms.example.com:1\r\n\r\n",
			"with a dot at the end":             "GET / HTTP/1.1\r\nHost: forms.example.com.\r\n\r\n",
			"with a dot and a port":             "GET / HTTP/1.1\r\nHost: forms.example.com.:8080\r\n\r\n",
			"with all of it":                    "GET / HTTP/1.1\r\nHost: Forms.EXAMPLE.com.:8080\r\n\r\n",
			"in the request's line, which wins": "GET http://forms.example.com/ HTTP/1.1\r\nHost: other.example.com\r\n\r\n",
		} {
			resp, body, err := w.say(t, request)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %v %v %s", name, resp, err, body)
			}
		}
		for name, request := range map[string]string{
			"a longer name":          "GET / HTTP/1.1\r\nHost: forms.example.com.evil.com\r\n\r\n",
			"a name before it":       "GET / HTTP/1.1\r\nHost: evil.forms.example.com\r\n\r\n",
			"a user before it":       "GET / HTTP/1.1\r\nHost: forms.example.com@evil.com\r\n\r\n",
			"another one in the URL": "GET http://evil.com/ HTTP/1.1\r\nHost: forms.example.com\r\n\r\n",
			"with a slash":           "GET / HTTP/1.1\r\nHost: forms.example.com/x\r\n\r\n",
			"with a space":           "GET / HTTP/1.1\r\nHost: forms.example.com evil.com\r\n\r\n",
		} {
			resp, body, err := w.say(t, request)
			if err == nil && resp.StatusCode < 400 {
				t.Errorf("%s: %s %s", name, resp.Status, body)
			}
		}
	})
}

func TestTheHostReachesTheBackendAsItWasSent(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		w.route(t, "sent.example.com", startEcho(t).Port, "")
		w.route(t, "*.sent.example.com", startEcho(t).Port, "")
		for _, host := range []string{
			"sent.example.com", "sent.example.com:1", "Sent.EXAMPLE.com", "sent.example.com.", "SENT.example.com.:8080",
			"a.sent.example.com", "a.sent.example.com.", "A.b.sent.example.com.:80",
		} {
			_, body, err := w.say(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			if err != nil {
				t.Errorf("%s: %v", host, err)
				continue
			}
			var seen echo.Seen
			if err := json.Unmarshal([]byte(body), &seen); err != nil || seen.Host != host {
				t.Errorf("%s reached the backend as %q (%v)", host, seen.Host, err)
			}
		}
	})
}

// The policy: dot segments are resolved before anything is matched; slashes are kept,
// single or several; %2F separates nothing and stays as it is.
func TestPathsAreMadePlainBeforeTheyAreMatched(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		w.route(t, "path.example.com", startEcho(t).Port, "")
		for path, want := range map[string]string{
			"/a/./b":         "/a/b",
			"/a/../b":        "/b",
			"/a/b/..":        "/a/",
			"/../../a":       "/a",
			"/a/%2e%2E/b":    "/b",
			"//a":            "//a",
			"/a//b":          "/a//b",
			"/a%2Fb":         "/a%2Fb",
			"/a/..%2Fb":      "/a/..%2Fb",
			"/a%5Cb":         "/a%5Cb",
			"/a;b/c":         "/a;b/c",
			"/a?b=../c":      "/a?b=../c",
			"/a?b=c//d%2F":   "/a?b=c//d%2F",
			"/%E2%82%AC?%41": "/%E2%82%AC?%41",
		} {
			_, body, err := w.say(t, "GET "+path+" HTTP/1.1\r\nHost: path.example.com\r\n\r\n")
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			var seen echo.Seen
			if err := json.Unmarshal([]byte(body), &seen); err != nil || seen.Path != want {
				t.Errorf("%s reached the backend as %q, want %q (%v)", path, seen.Path, want, err)
			}
		}
		for _, path := range []string{"a", "/a b", "/a\x00b", "/a\x7f", "*"} {
			resp, body, err := w.say(t, "GET "+path+" HTTP/1.1\r\nHost: path.example.com\r\n\r\n")
			if err == nil && resp.StatusCode < 400 {
				t.Errorf("%q: %s %s, want an error", path, resp.Status, body)
			}
		}
	})
}

// The lengths are the most that the definitions of routes let them have.
func TestARegularExpressionMayBeAsLongAsRoutesLetIt(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		const host = "regex.example.com"
		path, value, query := "/"+strings.Repeat("a", 1023), strings.Repeat("b", 4096), strings.Repeat("c", 1024)
		matches := fmt.Sprintf(`rules: [{matches: [{
  path: {type: RegularExpression, value: "%s"},
  headers: [{type: RegularExpression, name: x-long, value: "%s"}],
  queryParams: [{type: RegularExpression, name: q, value: "%s"}]}], `, path, value, query)
		w.apply(t, host+".yaml", strings.Replace(manifests(host, startEcho(t).Port, ""), "rules: [{", matches, 1))
		for more, want := range map[string]int{"": http.StatusOK, "x": http.StatusNotFound} {
			resp, _, err := w.say(t, fmt.Sprintf("GET %s%s?q=%s HTTP/1.1\r\nHost: %s\r\nX-Long: %s\r\n\r\n", path, more, query, host, value))
			if err != nil || resp.StatusCode != want {
				t.Errorf("with %q more: %v, %v, want %d", more, resp, err, want)
			}
		}
	})
}

func TestAClientThatExpects100IsToldToGoOn(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		w.route(t, "continue.example.com", startEcho(t).Port, "")
		c, r := w.dial(t)
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: continue.example.com\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		first, err := http.ReadResponse(r, nil) // before any of the body is sent
		if err != nil || first.StatusCode != http.StatusContinue {
			t.Fatalf("answered %v, %v, want 100", first, err)
		}
		_ = first.Body.Close()
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		resp, body, err := answer(r, http.MethodPost)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(body, `"hello"`) {
			t.Errorf("answered %v %s %v", resp, body, err)
		}
	})
}

func TestHeadHasNoBodyAndNoContentHasNone(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		w.route(t, "empty.example.com", startEcho(t).Port, "")
		c, r := w.dial(t)
		// A second request on the connection would not be understood if a body followed the first.
		if _, err := io.WriteString(c, "HEAD / HTTP/1.1\r\nHost: empty.example.com\r\n\r\nGET / HTTP/1.1\r\nHost: empty.example.com\r\nEcho-Status: 204\r\n\r\nGET /last HTTP/1.1\r\nHost: empty.example.com\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		for i, want := range []struct {
			method string
			status int
		}{{http.MethodHead, 200}, {http.MethodGet, 204}, {http.MethodGet, 200}} {
			resp, _, err := answer(r, want.method)
			if err != nil || resp.StatusCode != want.status {
				t.Fatalf("answer %d: %v, %v, want %d", i, resp, err, want.status)
			}
		}
	})
}

func TestHeadersOfOneConnectionDoNotReachTheNext(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		b := startRaw(t, answerAll("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=9\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\nok"))
		w.route(t, "hop.example.com", b.port, "")
		resp, _, err := w.say(t, "GET / HTTP/1.1\r\nHost: hop.example.com\r\nConnection: keep-alive, X-Mine\r\nKeep-Alive: 5\r\nProxy-Connection: keep-alive\r\nX-Mine: secret\r\nTE: trailers, gzip\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		seen := b.seen()
		for _, name := range []string{"keep-alive:", "proxy-connection:", "x-mine:", "gzip"} {
			if strings.Contains(seen, name) {
				t.Errorf("the backend saw %s\n%s", name, seen)
			}
		}
		if resp.Header.Get("keep-alive") != "" {
			t.Errorf("the client saw %v", resp.Header)
		}
	})
}

// A backend's informational answers and a broken one must not confuse what comes after.
func TestABackendThatBreaksOffBreaksNothingElse(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		b := startRaw(t, func(c net.Conn, r *bufio.Reader) {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			switch req.URL.Path {
			case "/nothing":
			case "/half":
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
			case "/nonsense":
				_, _ = io.WriteString(c, "I am not HTTP\r\n\r\n")
			}
		})
		w.route(t, "broken.example.com", b.port, "")
		for path, want := range map[string]int{"/nothing": 503, "/nonsense": 502} {
			resp, _, err := w.say(t, "GET "+path+" HTTP/1.1\r\nHost: broken.example.com\r\n\r\n")
			if err != nil || resp.StatusCode != want {
				t.Errorf("%s: %v, %v, want %d", path, resp, err, want)
			}
		}
		if _, body, err := w.say(t, "GET /half HTTP/1.1\r\nHost: broken.example.com\r\n\r\n"); err == nil {
			t.Errorf("a half answer ended as if it were whole: %q", body)
		}
	})
}
