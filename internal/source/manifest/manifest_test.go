package manifest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/object"
)

func decoder(t testing.TB) *Decoder {
	t.Helper()
	v, err := crd.New()
	if err != nil {
		t.Fatal(err)
	}
	return NewDecoder(v)
}

// decode reads the one document in text.
func decode(t testing.TB, d *Decoder, text string) Admitted {
	t.Helper()
	docs, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 1 || docs[0].Key.Name == "" {
		t.Fatalf("want one document with a key, got %v", docs)
	}
	return d.Decode(t.Context(), &docs[0], nil)
}

func findings(a []Finding) []string {
	var out []string
	for _, f := range a {
		out = append(out, string(f.Severity)+" "+f.Path+": "+f.Message)
	}
	return out
}

func keys(docs []Document) []string {
	var out []string
	for _, d := range docs {
		out = append(out, d.Key.String())
	}
	return out
}

const service = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 80}]}\n"

func TestParse(t *testing.T) {
	cases := map[string]struct {
		in   string
		want []string // keys
	}{
		"one document":                        {service, []string{"Service/default/a"}},
		"documents between markers":           {service + "---\n" + strings.ReplaceAll(service, "name: a", "name: b"), []string{"Service/default/a", "Service/default/b"}},
		"empty documents are none":            {"---\n# nothing\n---\n" + service + "---\n\n", []string{"Service/default/a"}},
		"Windows line ends":                   {strings.ReplaceAll("---\n"+service+"---\n"+service, "\n", "\r\n"), []string{"Service/default/a", "Service/default/a"}},
		"a directive, a comment, an end":      {"%YAML 1.1\n--- # one\n" + service + "...\n", []string{"Service/default/a"}},
		"a document on the marker's line":     {`--- {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}`, []string{"Namespace/n"}},
		"a marker inside a text is indented":  {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop}\ndata:\n  a: |\n    ---\n    b\n", []string{"ConfigMap/shop/c"}},
		"a List's items":                      {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n- {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop}}\n", []string{"Namespace/shop", "Secret/shop/s"}},
		"a typed list's items":                {"apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayList\nitems:\n- {apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: g}}\n", []string{"Gateway/default/g"}},
		"an empty List":                       {"apiVersion: v1\nkind: List\nitems: []\n", nil},
		"no namespace where there can be one": {"apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: c, namespace: shop}", []string{"GatewayClass/c"}},
		"a stream of JSON":                    {`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}` + "\n" + `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"b"}}`, []string{"Namespace/a", "Namespace/b"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			parse := Parse
			if strings.HasPrefix(c.in, "{") {
				parse = ParseJSON
			}
			docs, err := parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, keys(docs)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]struct{ in, want string }{
		"what is not YAML, with the file's line": {service + "---\na: b\nc: [\n", "document 2: line "},
		"a key written twice":                    {"apiVersion: v1\napiVersion: v1\n", `document 1: line 2: key "apiVersion" already set in map`},
		"a scalar":                               {"hello", "document 1: is not an object"},
		"a List of scalars":                      {"apiVersion: v1\nkind: List\nitems: [1]", "document 1: items[0] is not an object"},
		"a file that is cut in a string":         {service + "---\nkind: \"Gate", "document 2: "},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.in))
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	for _, in := range []string{"", "\n", "# only a comment\n", "---\n"} {
		if _, err := Parse([]byte(in)); !errors.Is(err, ErrEmpty) {
			t.Errorf("Parse(%q): %v, want ErrEmpty", in, err)
		}
	}
	if _, err := ParseJSON([]byte(" ")); !errors.Is(err, ErrEmpty) {
		t.Errorf("ParseJSON of nothing: %v, want ErrEmpty", err)
	}
	if _, err := ParseJSON([]byte(`{"apiVersion":"v1","apiVersion":"v2"}`)); err == nil {
		t.Error("ParseJSON takes a key written twice")
	}
	line := 0
	_, err := Parse([]byte("# one\n# two\n---\na: 1\n---\na: {\n"))
	if err != nil && strings.Contains(err.Error(), "line 6") {
		line = 6
	}
	if line != 6 {
		t.Errorf("error %v, want one in line 6 of the file", err)
	}
}

func TestDocumentsThatAreNoObject(t *testing.T) {
	cases := map[string]struct{ in, want string }{
		"a misspelt kind of ours":      {"apiVersion: config.aether.io/v1\nkind: Meshconfig\nmetadata: {name: default}", `Refused kind: config.aether.io has no kind "Meshconfig"; did you mean MeshConfig?`},
		"a misspelt kind of a route":   {"apiVersion: gateway.networking.k8s.io/v1\nkind: HttpRoutes\nmetadata: {name: x}", `Refused kind: gateway.networking.k8s.io has no kind "HttpRoutes"; did you mean HTTPRoute?`},
		"a misspelt group":             {"apiVersion: gateway.networking.io/v1\nkind: HTTPRoute\nmetadata: {name: x}", `Refused apiVersion: group "gateway.networking.io" has no kind HTTPRoute; did you mean gateway.networking.k8s.io/v1?`},
		"a route that is not read":     {"apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: TCPRoute\nmetadata: {name: x}", "Ignored : gateway.networking.k8s.io/v1alpha2 TCPRoute is not a kind that is read"},
		"another program's kind":       {"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}", "Ignored : apps/v1 Deployment is not a kind that is read"},
		"another group's Gateway":      {"apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: x}", "Ignored : networking.istio.io/v1 Gateway is not a kind that is read"},
		"a List of unknown things":     {"apiVersion: x.io/v1\nkind: ThingList", "Ignored : x.io/v1 ThingList is not a kind that is read"},
		"no kind":                      {"apiVersion: v1\nmetadata: {name: x}", "Refused kind: is required"},
		"no apiVersion":                {"kind: Service\nmetadata: {name: x}", "Refused apiVersion: is required"},
		"no metadata":                  {"apiVersion: v1\nkind: Service", "Refused metadata: is required and is an object"},
		"no name":                      {"apiVersion: v1\nkind: Service\nmetadata: {generateName: x}", "Refused metadata.name: is required and is a string (generateName is not for files)"},
		"a number for a name":          {"apiVersion: v1\nkind: Service\nmetadata: {name: 7}", "Refused metadata.name: is required and is a string (generateName is not for files)"},
		"a number for a namespace":     {"apiVersion: v1\nkind: Service\nmetadata: {name: x, namespace: 7}", "Refused metadata.namespace: is a string"},
		"settings of something else":   {"replicas: 3", "Refused apiVersion: is required"},
		"Kustomize's own file, say":    {"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization", "Ignored : kustomize.config.k8s.io/v1beta1 Kustomization is not a kind that is read"},
		"a kind that is not a string":  {"apiVersion: v1\nkind: [Service]", "Refused kind: is required"},
		"a List item without a kind":   {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1}]", "Refused kind: is required"},
		"metadata that is not a table": {"apiVersion: v1\nkind: Service\nmetadata: [name]", "Refused metadata: is required and is an object"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			docs, err := Parse([]byte(c.in))
			if err != nil {
				t.Fatal(err)
			}
			if len(docs) != 1 || docs[0].Key != (object.Key{}) {
				t.Fatalf("documents %v, want one without a key", docs)
			}
			if d := cmp.Diff([]string{c.want}, findings(docs[0].Findings)); d != "" {
				t.Error(d)
			}
		})
	}
}

const route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\n"

func TestDecodeFindings(t *testing.T) {
	cases := map[string]struct {
		in   string
		want []string
	}{
		"a misspelt field of a core type": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {prots: [], ports: [{port: 80, tragetPort: 1}]}",
			[]string{"Refused spec.ports[0].tragetPort: is not known; did you mean spec.ports[0].targetPort?", "Refused spec.prots: is not known; did you mean spec.ports?"},
		},
		"a misspelt field of the metadata": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, lables: {}}",
			[]string{"Warning metadata.lables: is not known and has no effect; did you mean metadata.labels?"},
		},
		"a misspelt field of a route": {
			"apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\nspec: {hostname: [a.example]}",
			[]string{"Warning spec.hostname: is not known and has no effect; did you mean spec.hostnames?"},
		},
		"a misspelt field that has a default": {
			route + "spec: {rules: [{backendRefs: [{name: a, port: 80, wieght: 90}]}]}",
			[]string{"Warning spec.rules[0].backendRefs[0].wieght: is not known and has no effect; did you mean spec.rules[0].backendRefs[0].weight, which is 1 now?"},
		},
		"a field that nothing is like": {
			route + "spec: {banana: 1}",
			[]string{"Warning spec.banana: is not known and has no effect"},
		},
		"a field of another channel": {
			route + "spec: {rules: [{retry: {attempts: 1}}]}",
			[]string{"Warning spec.rules[0].retry: is not known and has no effect"},
		},
		"values of the wrong type, each": {
			route + "spec: {hostnames: [7], rules: [{name: y, backendRefs: [{name: true, port: 80, weight: ten}, {name: a, port: [80]}]}]}",
			[]string{
				`Refused spec.hostnames[0]: must be of type string, not 7: put quotes around it`,
				`Refused spec.rules[0].backendRefs[0].name: must be of type string, not true: put quotes around it`,
				`Refused spec.rules[0].backendRefs[0].weight: must be of type integer, not "ten"`,
				`Refused spec.rules[0].backendRefs[1].port: must be of type integer, not [80]`,
				`Refused spec.rules[0].name: must be of type string, not true: put quotes around it`,
			},
		},
		"rules of a definition that are broken": {
			route + "spec: {rules: [{matches: [{path: {value: /a//b}}], timeouts: {request: 1s, backendRequest: 2s}}]}",
			[]string{
				`Refused spec.rules[0].matches[0].path: Invalid value: must not contain '//' when type one of ['Exact', 'PathPrefix']`,
				`Refused spec.rules[0].timeouts: Invalid value: backendRequest timeout cannot be longer than request timeout`,
			},
		},
		"a value out of the bounds of a definition": {
			route + "spec: {rules: [{backendRefs: [{name: a, port: 70000}]}]}",
			[]string{`Refused spec.rules[0].backendRefs[0].port: Invalid value: 70000: should be less than or equal to 65535`},
		},
		"a misspelt field of GatewayParameters": {
			"apiVersion: config.aether.io/v1\nkind: GatewayParameters\nmetadata: {name: a}\nspec: {drainSecond: 1}",
			[]string{"Refused spec.drainSecond: is not known; did you mean spec.drainSeconds?"},
		},
		"a misspelt field of a MeshConfig": {
			"apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default}\nspec: {proxy: {accessLogEnabled: true}}",
			[]string{"Warning spec.proxy.accessLogEnabled: is not known and has no effect; did you mean spec.proxy.accessLogsEnabled?"},
		},
		"misspelt fields beside the spec of a MeshConfig": {
			"apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default}\nspecs: {}\nproxy: {}\nSpec: {proxy: {traceSampleRate: 2}}\nabout: {}",
			[]string{
				"Warning Spec: is not known and has no effect; did you mean spec?",
				"Warning about: is not known and has no effect",
				"Warning proxy: is not known and has no effect; did you mean spec.proxy?",
				"Warning specs: is not known and has no effect; did you mean spec?",
			},
		},
		"a value out of range in a MeshConfig": {
			"apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default}\nspec: {proxy: {traceSampleRate: 2}}",
			[]string{"Refused spec.proxy.traceSampleRate: must be greater than or equal to 0 and less than or equal to 1, got 2"},
		},
		"another MeshConfig than default": {
			"apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: other}\nspec: {}",
			[]string{`Refused : read MeshConfig: metadata.name: want "default", got "other"`},
		},
		"a version that is not served": {
			"apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: Gateway\nmetadata: {name: a}\nspec: {}",
			[]string{`Refused apiVersion: Unsupported value: "gateway.networking.k8s.io/v1alpha2": supported values: "gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1beta1"`},
		},
		"a core version that is not served": {
			"apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: a}",
			[]string{`Refused apiVersion: "discovery.k8s.io/v1beta1" is not served; use v1`},
		},
		"a name that is none": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: A_b}\nspec: {ports: [{port: 80}]}",
			[]string{"Refused metadata.name: Invalid value: \"A_b\": a DNS-1035 label must consist of"},
		},
		"a namespace that is none": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: a.b}",
			[]string{"Refused metadata.namespace: Invalid value: \"a.b\": "},
		},
		"a label that is none": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a b: c}}",
			[]string{"Refused metadata.labels: Invalid value: \"a b\": "},
		},
		"a label of the wrong type": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {a: 1}}",
			[]string{"Refused metadata.labels: want string, got number: put quotes around it"},
		},
		"a field of the wrong type": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: eighty}]}",
			[]string{"Refused spec.ports.port: want int32, got string"},
		},
		"bad ports of a Service": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 1.2.3, ports: [{port: 0, name: a}, {port: 80, name: a, protocol: ICMP, targetPort: Web!}, {port: 80, protocol: ICMP}]}",
			[]string{
				`Refused spec.clusterIP: Invalid value: "1.2.3": is not an IP address`,
				`Refused spec.ports[0].port: Invalid value: "0": must be between 1 and 65535`,
				`Refused spec.ports[0].targetPort: Invalid value: "0": must be between 1 and 65535`,
				`Refused spec.ports[1].protocol: Unsupported value: "ICMP"`,
				`Refused spec.ports[1].targetPort: Invalid value: "Web!"`,
				`Refused spec.ports[1].name: Duplicate value: "a"`,
				`Refused spec.ports[2].protocol: Unsupported value: "ICMP"`,
				`Refused spec.ports[2].name: Required value`,
				`Refused spec.ports[2]: Duplicate value: 80/ICMP`,
			},
		},
		"bad endpoints": {
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a}\naddressType: IPv4\nendpoints: [{addresses: []}, {addresses: [\"::1\", localhost]}]\nports: [{port: 70000}, {port: 1}]",
			[]string{
				"Refused endpoints[0].addresses: must have 1 to 100 items, has 0",
				`Refused endpoints[1].addresses[0]: Invalid value: "::1": is not of addressType IPv4`,
				`Refused endpoints[1].addresses[1]: Invalid value: "localhost": is not an IP address`,
				`Refused ports[0].port: Invalid value: "70000": must be between 1 and 65535`,
				`Refused ports[1].name: Duplicate value: ""`,
			},
		},
		"no addressType": {
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a}\nendpoints: []",
			[]string{"Refused addressType: Required value"},
		},
		"a TLS Secret without its keys": {
			"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ntype: kubernetes.io/tls\nstringData: {tls.crt: x}",
			[]string{"Refused data[tls.key]: Required value"},
		},
		"a Secret in plain text": {
			"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {b: 'hello world'}",
			[]string{"Refused data[b]: is not base64; plain text goes into stringData"},
		},
		"a ConfigMap's keys": {
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a/b: c, d: e}\nbinaryData: {d: aGk=}",
			[]string{"Refused data[a/b]: Invalid value", "Refused binaryData[d]: Duplicate value"},
		},
		"a namespace where there can be none": {
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: a, namespace: b}",
			[]string{"Warning metadata.namespace: is dropped: a Namespace is not in a namespace"},
		},
	}
	d := decoder(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := decode(t, d, c.in)
			lines := findings(got.Findings)
			if len(lines) != len(c.want) {
				t.Fatalf("findings %q, want %q", lines, c.want)
			}
			refused := false
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("finding %q, want %q", lines[i], want)
				}
				refused = refused || strings.HasPrefix(want, "Refused")
			}
			if refused != (got.Object == nil) {
				t.Errorf("object %v, refused %v", got.Object, refused)
			}
		})
	}
}

func TestDecodeDefaultsCoreTypes(t *testing.T) {
	d := decoder(t)
	s := decode(t, d, service).Object.(*corev1.Service)
	if s.Spec.Type != corev1.ServiceTypeClusterIP || s.Spec.Ports[0].Protocol != corev1.ProtocolTCP || s.Spec.Ports[0].TargetPort.IntVal != 80 || s.Namespace != "default" {
		t.Errorf("Service %v", s)
	}
	e := decode(t, d, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a}\naddressType: IPv4\nendpoints: [{addresses: [127.0.0.1]}]\nports: [{port: 80}]").Object.(*discoveryv1.EndpointSlice)
	if *e.Ports[0].Name != "" || *e.Ports[0].Protocol != corev1.ProtocolTCP || *e.Ports[0].Port != 80 {
		t.Errorf("EndpointSlice %v", e)
	}
	x := decode(t, d, "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: aGk=, b: aGk=}\nstringData: {b: plain}").Object.(*corev1.Secret)
	if x.Type != corev1.SecretTypeOpaque || x.StringData != nil || string(x.Data["a"]) != "hi" || string(x.Data["b"]) != "plain" {
		t.Errorf("Secret %v", x)
	}
	n := decode(t, d, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {a: b}}").Object.(*corev1.Namespace)
	if d := cmp.Diff(map[string]string{"a": "b", "kubernetes.io/metadata.name": "shop"}, n.Labels); d != "" {
		t.Error(d)
	}
}

func TestDecodeDropsWhatAServerSets(t *testing.T) {
	got := decode(t, decoder(t), `
apiVersion: gateway.networking.k8s.io/v1beta1
kind: Gateway
metadata:
  name: a
  uid: u
  resourceVersion: "7"
  generation: 7
  creationTimestamp: "2020-01-01T00:00:00Z"
  managedFields: [{manager: kubectl}]
  annotations: {a: b}
spec:
  gatewayClassName: c
  listeners: [{name: http, port: 80, protocol: HTTP}]
status: {addresses: [{value: 10.0.0.1}]}
`)
	g, ok := got.Object.(*gatewayv1.Gateway)
	if !ok {
		t.Fatalf("findings %v", got.Findings)
	}
	if g.UID != "" || g.ResourceVersion != "" || g.Generation != 0 || !g.CreationTimestamp.IsZero() || g.ManagedFields != nil || g.Annotations["a"] != "b" {
		t.Errorf("metadata %v", g.ObjectMeta)
	}
	if len(g.Status.Addresses) != 0 {
		t.Errorf("status %v", g.Status)
	}
	if g.APIVersion != "gateway.networking.k8s.io/v1" || g.Kind != "Gateway" {
		t.Errorf("type %v", g.TypeMeta)
	}
	if g.Spec.Listeners[0].AllowedRoutes == nil || *g.Spec.Listeners[0].AllowedRoutes.Namespaces.From != gatewayv1.NamespacesFromSame {
		t.Errorf("listener has no default: %v", g.Spec.Listeners[0])
	}
}

func TestHashesTellContentFromMetadata(t *testing.T) {
	d := decoder(t)
	a := decode(t, d, service)
	spaced := decode(t, d, "# x\n"+strings.Replace(service, "80}", "80,  }", 1))
	labelled := decode(t, d, strings.Replace(service, "name: a", "name: a, labels: {a: b}", 1))
	changed := decode(t, d, strings.Replace(service, "80", "81", 1))
	if a.Content != spaced.Content || a.Whole != spaced.Whole {
		t.Error("the hashes depend on how it is written")
	}
	if a.Content != labelled.Content || a.Whole == labelled.Whole {
		t.Error("a label changes the content, or nothing")
	}
	if a.Content == changed.Content || a.Whole == changed.Whole {
		t.Error("a port changes nothing")
	}
}

func TestDecodeComparesWithTheOldObject(t *testing.T) {
	class := func(controller string) *Document {
		docs, err := Parse([]byte("apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: c}\nspec: {controllerName: " + controller + "}"))
		if err != nil {
			t.Fatal(err)
		}
		return &docs[0]
	}
	d := decoder(t)
	if got := d.Decode(t.Context(), class("a.io/b"), class("a.io/b")); got.Object == nil {
		t.Errorf("the same again is refused: %v", got.Findings)
	}
	got := d.Decode(t.Context(), class("a.io/c"), class("a.io/b"))
	if got.Object != nil || !slices.ContainsFunc(got.Findings, func(f Finding) bool { return f.Path == "spec.controllerName" }) {
		t.Errorf("controllerName may change: %v", got.Findings)
	}
}

func TestEveryKindIsRead(t *testing.T) {
	for _, want := range object.Kinds() {
		if !slices.ContainsFunc(kinds(), func(k kind) bool { return k.name == want }) {
			t.Errorf("%s is not read", want)
		}
	}
	for _, k := range kinds() {
		if k.make() == nil || !slices.Contains(object.Kinds(), k.name) {
			t.Errorf("%s is not among the kinds of package object", k.name)
		}
	}
}

func FuzzParseAndDecode(f *testing.F) {
	f.Add([]byte(service))
	f.Add([]byte("--- {a: b}\n...\n%YAML\n---\nkind: List\nitems: [{}]"))
	f.Add([]byte("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: a}\nspec: {rules: [{matches: [{path: {value: /}}]}]}"))
	f.Add([]byte("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\ndata: {a: aGk=}"))
	f.Add([]byte("apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default}\nspec: {proxy: {emitStatsPod: true}}"))
	f.Add([]byte("a: &a [*a, *a]\n"))
	d := decoder(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, parse := range []func([]byte) ([]Document, error){Parse, ParseJSON} {
			docs, err := parse(data)
			if err != nil {
				continue
			}
			for i := range docs {
				if docs[i].Key == (object.Key{}) {
					if len(docs[i].Findings) == 0 {
						t.Fatalf("document %d is no object and nothing says why", i)
					}
					continue
				}
				got := d.Decode(t.Context(), &docs[i], nil)
				if got.Object == nil && len(got.Findings) == 0 {
					t.Fatalf("%s is refused and nothing says why", docs[i].Key)
				}
				if got.Object != nil && (got.Object.GetName() != docs[i].Key.Name || got.Object.GetNamespace() != docs[i].Key.Namespace) {
					t.Fatalf("%s came out as %s/%s", docs[i].Key, got.Object.GetNamespace(), got.Object.GetName())
				}
				again, err := ParseJSON(docs[i].Raw)
				if err != nil || len(again) != 1 || again[0].Key != docs[i].Key {
					t.Fatalf("what is kept of %s reads back as %v, %v", docs[i].Key, again, err)
				}
				if back := d.Decode(t.Context(), &again[0], nil); back.Whole != got.Whole {
					t.Fatalf("what is kept of %s is another object", docs[i].Key)
				}
			}
		}
	})
}

func BenchmarkHTTPRoute(b *testing.B) {
	d := decoder(b)
	text := []byte(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: route-17
  namespace: shop
spec:
  parentRefs:
  - name: gw
  hostnames:
  - host-17.example.com
  rules:
  - matches:
    - path:
        type: PathPrefix
        value: /
    backendRefs:
    - name: web
      port: 8080
`)
	b.ReportAllocs()
	for b.Loop() {
		docs, err := Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		if a := d.Decode(b.Context(), &docs[0], nil); a.Object == nil {
			b.Fatal(a.Findings)
		}
	}
}

// A few hundred kilobytes must not become gigabytes, and with them the end of the process.
func TestAliasesDoNotMakeADocumentGrowBeyondMeasure(t *testing.T) {
	head := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n"
	for name, c := range map[string]struct {
		text string
		want string
	}{
		"a long text, often":   {head + "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a,", 5_000) + "]\n", "aliases"},
		"a long key, often":    {head + "a: &a {" + strings.Repeat("x", 1000) + ": 1}\nb: [" + strings.Repeat("*a,", 40_000) + "]\n", "aliases"},
		"lists of lists":       {head + "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [" + strings.Repeat("*a,", 300) + "]\nc: &c [" + strings.Repeat("*b,", 300) + "]\nd: [" + strings.Repeat("*c,", 300) + "]\n", "alias"},
		"a few, as people use": {head + "data: {a: &a hello, b: *a}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.text))
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}
