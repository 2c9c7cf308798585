package reference_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/object"
	"aether.io/aether/test/reference"
)

// example is a Gateway with these listeners, routes of these specs, and Services one, two and three.
func example(t *testing.T, listeners string, routes ...string) *reference.World {
	t.Helper()
	read := func(into object.Object, text string) object.Object {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		return into
	}
	objects := []object.Object{
		read(&gatewayv1.GatewayClass{}, "metadata: {name: c}\nspec: {controllerName: "+controller+"}"),
		read(&gatewayv1.Gateway{}, "metadata: {name: g, namespace: ns}\nspec: {gatewayClassName: c, listeners: "+listeners+"}"),
	}
	for i, spec := range routes {
		name := string(rune('a' + i))
		objects = append(objects, read(&gatewayv1.HTTPRoute{}, "metadata: {name: "+name+", namespace: ns}\nspec: {parentRefs: [{name: g}], "+spec+"}"))
	}
	for _, name := range []string{"one", "two", "three"} {
		objects = append(objects,
			read(&corev1.Service{}, "metadata: {name: "+name+", namespace: ns}\nspec: {ports: [{port: 80}]}"),
			read(&discoveryv1.EndpointSlice{}, "metadata: {name: "+name+", namespace: ns, labels: {kubernetes.io/service-name: "+name+"}}\nports: [{name: '', port: 80}]\nendpoints: [{addresses: [127.0.0.1]}]"))
	}
	return reference.New(controller, objects...)
}

const (
	anyHost = "[{name: l, port: 80, protocol: HTTP}]"
	toOne   = "backendRefs: [{name: one, port: 80}]"
	toTwo   = "backendRefs: [{name: two, port: 80}]"
	one     = "ns/one:80"
	two     = "ns/two:80"
)

// The examples of the specification's text.
func TestTheReferenceAgreesWithTheExamplesOfTheText(t *testing.T) {
	headers := func(lines ...string) (out []reference.Header) {
		for _, l := range lines {
			name, value, _ := strings.Cut(l, ": ")
			out = append(out, reference.Header{Name: name, Value: value})
		}
		return out
	}
	matches := "rules: [{matches: [{path: {value: /foo}, headers: [{name: version, value: v2}]}, {path: {value: /v2/foo}}], " + toOne + "}]"
	isolated := "[{name: l, port: 80, protocol: HTTP, hostname: foo.example.com}, {name: w, port: 80, protocol: HTTP, hostname: '*.example.com'}]"
	for name, c := range map[string]struct {
		listeners string
		routes    []string
		host      string
		target    string
		headers   []reference.Header
		want      []string
	}{
		"the prefix /abc matches /abc":                                      {routes: []string{"rules: [{matches: [{path: {value: /abc}}], " + toOne + "}]"}, target: "/abc", want: []string{one}},
		"the prefix /abc matches /abc/":                                     {routes: []string{"rules: [{matches: [{path: {value: /abc}}], " + toOne + "}]"}, target: "/abc/", want: []string{one}},
		"the prefix /abc matches /abc/def":                                  {routes: []string{"rules: [{matches: [{path: {value: /abc}}], " + toOne + "}]"}, target: "/abc/def", want: []string{one}},
		"the prefix /abc does not match /abcd":                              {routes: []string{"rules: [{matches: [{path: {value: /abc}}], " + toOne + "}]"}, target: "/abcd", want: []string{"404"}},
		"the exact /abc does not match /abc/":                               {routes: []string{"rules: [{matches: [{path: {type: Exact, value: /abc}}], " + toOne + "}]"}, target: "/abc/", want: []string{"404"}},
		"the exact /abc does not match /Abc":                                {routes: []string{"rules: [{matches: [{path: {type: Exact, value: /abc}}], " + toOne + "}]"}, target: "/Abc", want: []string{"404"}},
		"an escape that is not needed":                                      {routes: []string{"rules: [{matches: [{path: {type: Exact, value: /%61bc/%7Ex}}], " + toOne + "}]"}, target: "/ab%63/~x", want: []string{one}},
		"an escape in the other case":                                       {routes: []string{"rules: [{matches: [{path: {value: /caf%C3%a9}}], " + toOne + "}]"}, target: "/caf%c3%A9/x", want: []string{one}},
		"/foo with version v2":                                              {routes: []string{matches}, target: "/foo", headers: headers("Version: v2"), want: []string{one}},
		"/foo without it":                                                   {routes: []string{matches}, target: "/foo", want: []string{"404"}},
		"or /v2/foo":                                                        {routes: []string{matches}, target: "/v2/foo", want: []string{one}},
		"no matches are every request":                                      {routes: []string{"rules: [{" + toOne + "}]"}, target: "/x", want: []string{one}},
		"a wildcard is a suffix match":                                      {routes: []string{"hostnames: ['*.example.com'], rules: [{" + toOne + "}]"}, host: "foo.test.example.com", want: []string{one}},
		"but not of its own domain":                                         {routes: []string{"hostnames: ['*.example.com'], rules: [{" + toOne + "}]"}, host: "example.com", want: []string{"404"}},
		"a port in Host is ignored":                                         {routes: []string{"hostnames: [example.com], rules: [{" + toOne + "}]"}, host: "example.com:8080", want: []string{one}},
		"a host name out of the listener's":                                 {listeners: "[{name: l, port: 80, protocol: HTTP, hostname: '*.example.com'}]", routes: []string{"hostnames: [test.example.com, test.example.net], rules: [{" + toOne + "}]"}, host: "test.example.net", want: []string{"404"}},
		"exact before the longest prefix":                                   {routes: []string{"rules: [{matches: [{path: {value: /abc}, method: GET}], " + toTwo + "}]", "rules: [{matches: [{path: {type: Exact, value: /abc}}], " + toOne + "}]"}, target: "/abc", want: []string{one}},
		"a longer prefix before a method":                                   {routes: []string{"rules: [{matches: [{path: {value: /}, method: GET}], " + toTwo + "}]", "rules: [{matches: [{path: {value: /abc}}], " + toOne + "}]"}, target: "/abc", want: []string{one}},
		"a method before headers":                                           {routes: []string{"rules: [{matches: [{headers: [{name: v, value: '1'}]}], " + toTwo + "}]", "rules: [{matches: [{method: GET}], " + toOne + "}]"}, headers: headers("v: 1"), want: []string{one}},
		"the first by name":                                                 {routes: []string{"rules: [{" + toOne + "}]", "rules: [{" + toTwo + "}]"}, want: []string{one}},
		"the first rule":                                                    {routes: []string{"rules: [{" + toOne + "}, {" + toTwo + "}]"}, want: []string{one}},
		"the route that names the host exactly":                             {routes: []string{"hostnames: ['*.example.com'], rules: [{matches: [{path: {value: /abc}}], " + toTwo + "}]", "hostnames: [foo.example.com], rules: [{" + toOne + "}]"}, host: "foo.example.com", target: "/abc", want: []string{one}},
		"a wildcard before no name at all, on a listener that has the name": {listeners: "[{name: l, port: 80, protocol: HTTP, hostname: foo.example.com}]", routes: []string{"rules: [{matches: [{path: {value: /abc}}], " + toTwo + "}]", "hostnames: ['*.example.com'], rules: [{" + toOne + "}]"}, host: "foo.example.com", target: "/abc", want: []string{one}},
		"a shorter wildcard than the listener's before no name at all":      {listeners: "[{name: l, port: 80, protocol: HTTP, hostname: '*.example.com'}]", routes: []string{"rules: [{matches: [{path: {value: /abc}}], " + toTwo + "}]", "hostnames: ['*.com'], rules: [{" + toOne + "}]"}, host: "foo.example.com", target: "/abc", want: []string{one}},
		"a listener's routes are its own":                                   {listeners: isolated, routes: []string{"hostnames: ['bar.example.com'], rules: [{" + toOne + "}]"}, host: "foo.example.com", want: []string{"404"}},
		"and the less specific listener's too":                              {listeners: isolated, routes: []string{"hostnames: ['bar.example.com'], rules: [{" + toOne + "}]"}, host: "bar.example.com", want: []string{one}},
		"equal weights":                                                     {routes: []string{"rules: [{backendRefs: [{name: one, port: 80}, {name: none, port: 80}, {name: two, port: 80, weight: 0}]}]"}, want: []string{"500", one}},
		"a backend in another namespace":                                    {routes: []string{"rules: [{backendRefs: [{name: one, namespace: m, port: 80}]}]"}, want: []string{"500"}},
		"no backends":                                                       {routes: []string{"rules: [{}]"}, want: []string{"500"}},
		"the first of equivalent headers":                                   {routes: []string{"rules: [{matches: [{headers: [{name: Foo, value: '1'}, {name: foo, value: '2'}]}], " + toOne + "}]"}, headers: headers("FOO: 1"), want: []string{one}},
		"no listener":                                                       {listeners: "[{name: l, port: 81, protocol: HTTP}]", want: []string{reference.Closed}},
		"HTTP and HTTPS of one port":                                        {listeners: "[{name: l, port: 80, protocol: HTTP}, {name: s, port: 80, protocol: HTTPS, tls: {certificateRefs: [{name: x}]}}]", want: []string{reference.Closed}},
		"a query parameter's first value":                                   {routes: []string{"rules: [{matches: [{queryParams: [{name: q, value: '1'}]}], " + toOne + "}]"}, target: "/?q=1&q=2", want: []string{one}},
		"a regular expression matches the whole":                            {routes: []string{"rules: [{matches: [{path: {type: RegularExpression, value: /a|/b}}], " + toOne + "}]"}, target: "/bc", want: []string{"404"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.listeners == "" {
				c.listeners = anyHost
			}
			if c.target == "" {
				c.target = "/"
			}
			if c.host == "" {
				c.host = "example.com"
			}
			got := example(t, c.listeners, c.routes...).Answer(reference.Request{Port: 80, Method: "GET", Target: c.target, Host: c.host, Headers: c.headers})
			if !slices.Equal(got.Outcomes, c.want) {
				t.Errorf("got %q by %s, want %q", got.Outcomes, got.Why, c.want)
			}
		})
	}
}
