package status

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestEncodeIsReadAsWhatItWas(t *testing.T) {
	texts := []string{
		"", " ", "a", "a b", "a ", "yes", "No", "null", "~", "1", "1e3", "0x1", ".5", "-", "- a", "a: b", "a #b", "#", "é", "\x00", "\u2028", "a\nb\n",
		"\t", `"`, `'`, `\`, "{}", "[", "&a", "*a", "!a", "|", ">", "%", "@", "`", "2026-01-02", "2026-01-02T03:04:05Z", "1:20", "<&>", "a.b/c-d_e", "=", "<<", "😀",
	}
	all := map[string]any{}
	for _, s := range texts {
		all[s] = s
	}
	cases := map[string]any{
		"every text as key and value": all,
		"an object of nothing":        map[string]any{"a": map[string]any{}, "b": []any{}, "c": nil},
		"numbers and truth":           map[string]any{"a": 1, "b": 1.5, "c": -1e30, "d": true, "e": int64(1) << 53},
		"lists in lists":              map[string]any{"a": []any{[]any{1, []any{2}}, []any{}, map[string]any{}, map[string]any{"b": []any{map[string]any{"c": 1, "d": []any{"x"}}}, "e": 1}, "f"}},
		"nothing":                     map[string]any{},
	}
	for name, v := range cases {
		t.Run(name, func(t *testing.T) {
			data, err := encode(v)
			if err != nil {
				t.Fatal(err)
			}
			read, err := yaml.YAMLToJSONStrict(data)
			if err != nil {
				t.Fatalf("%v: in\n%s", err, data)
			}
			want, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if len(data) == 0 {
				read = []byte("{}")
			}
			var a, b any
			if json.Unmarshal(want, &a) != nil || json.Unmarshal(read, &b) != nil {
				t.Fatal("no JSON")
			}
			if d := cmp.Diff(a, b); d != "" {
				t.Errorf("%s\nin\n%s", d, data)
			}
		})
	}
}

func TestEncodeIsForPeopleToo(t *testing.T) {
	data, err := encode(map[string]any{"kind": "HTTPRoute", "status": map[string]any{"parents": []any{
		map[string]any{"controllerName": "config.aether.io/gateway-controller", "conditions": []any{map[string]any{"message": "it is: \"so\"", "status": "True", "type": "Accepted"}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	want := `kind: HTTPRoute
status:
  parents:
  - conditions:
    - message: "it is: \"so\""
      status: "True"
      type: Accepted
    controllerName: config.aether.io/gateway-controller
`
	if d := cmp.Diff(want, string(data)); d != "" {
		t.Error(d)
	}
}
