package example_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/test/features/example"
)

const head = "# What it shows.\napiVersion: features.aether.io/v1\nkind: Requests\n"

func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, example.File), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestReadingIsStrict(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a field that is misspelled": {head + "requests: [{name: a, send: GET http://a/, expect: {statsu: 200}}]", "statsu"},
		"no comment that says what it shows": {
			"apiVersion: features.aether.io/v1\nkind: Requests\n", "first line",
		},
		"another kind":                         {"# a\napiVersion: v1\nkind: Requests\n", "apiVersion and kind"},
		"nothing to do":                        {head, "no requests"},
		"no URL":                               {head + "requests: [{name: a, send: GET /}]", "http"},
		"one name twice":                       {head + "requests: [{name: a, send: GET http://a/}, {name: a, send: GET http://a/}]", "name of its own"},
		"a pattern that does not compile":      {head + "requests: [{name: a, send: GET http://a/, expect: {body: '/^($/'}}]", "pattern"},
		"a range that is upside down":          {head + "requests: [{name: a, send: GET http://a/, expect: {shares: {b: 9-1}}}]", "range"},
		"a failure that does not exist":        {head + "requests: [{name: a, send: GET http://a/, expect: {fails: sometimes}}]", "unknown"},
		"a client that nobody makes":           {head + "requests: [{name: a, send: GET https://a/, client: ann}]", "no client"},
		"a certificate of an authority unmade": {head + "certificates: [{secret: a/b, hosts: [a], authority: c}]\nrequests: [{name: a, send: GET http://a/}]", "authorities"},
		"a status that expects nothing":        {head + "statuses: [{object: HTTPRoute/default/a}]", "expects nothing"},
		"a condition without a reason":         {head + "statuses: [{object: HTTPRoute/default/a, conditions: {Accepted: 'True'}}]", "a status and a reason"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := example.Read(write(t, tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that has %q", err, tc.want)
			}
		})
	}
}

func TestWhatIsNotSaidIsTheUsual(t *testing.T) {
	e, err := example.Read(write(t, head+`requests:
- {name: plain, send: GET http://a.b}
- {name: secure, send: "POST https://a.b/c?d", headers: {x: [a, b], y: c}, expect: {headers: {gone: null, z: "/^[0-9]+$/"}}}
- {name: socket, send: GET http://a.b/, socket: [x]}
`))
	if err != nil {
		t.Fatal(err)
	}
	plain, secure, socket := e.Requests[0], e.Requests[1], e.Requests[2]
	if e.Title != "What it shows." || plain.Port != 8080 || secure.Port != 8443 || plain.Expect.Status != 200 || socket.Expect.Status != 101 || plain.Times != 1 {
		t.Errorf("read %+v", e)
	}
	method, scheme, authority, path := secure.Target()
	if method != "POST" || scheme != "https" || authority != "a.b" || path != "/c?d" {
		t.Errorf("target %s %s %s %s", method, scheme, authority, path)
	}
	if _, _, _, path := plain.Target(); path != "/" {
		t.Errorf("path %q, want /", path)
	}
	if gone := secure.Expect.Headers["gone"]; !gone.Match("", false) || gone.Match("x", true) {
		t.Error("null stands for a header that is not there")
	}
	if z := secure.Expect.Headers["z"]; !z.Match("12", true) || z.Match("12a", true) || z.Match("", false) {
		t.Error("a pattern matches as a whole")
	}
}
