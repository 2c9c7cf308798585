package screen

import (
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"sigs.k8s.io/yaml"
)

// of makes a screen for resources whose field v has that schema.
func of(t *testing.T, v string) *Screen {
	t.Helper()
	var external apiextensionsv1.JSONSchemaProps
	if err := yaml.UnmarshalStrict([]byte("type: object\nproperties:\n  apiVersion: {type: string}\n  kind: {type: string}\n  metadata: {type: object}\n  v: "+v), &external); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &props, nil); err != nil {
		t.Fatal(err)
	}
	schema, err := structural.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(schema)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func passes(s *Screen, v any) bool {
	return s.Pass(map[string]any{"apiVersion": "a/v1", "kind": "A", "metadata": map[string]any{"name": "x"}, "v": v})
}

func list(n int) []any { return slices.Repeat([]any{int64(1)}, n) }

// Each constraint is what alone keeps the second value out.
func TestEachConstraintIsKept(t *testing.T) {
	fields := func(m map[string]any) any { return m }
	for name, c := range map[string]struct {
		schema    string
		good, bad any
	}{
		"the type of a text":         {`{type: string}`, "a", int64(1)},
		"the type of an integer":     {`{type: integer}`, int64(1), "1"},
		"the type of a boolean":      {`{type: boolean}`, true, "true"},
		"a format":                   {`{type: string, format: ipv4}`, "10.0.0.1", "10.0.0.256"},
		"the format of a time":       {`{type: string, format: date-time}`, "2026-01-02T03:04:05Z", "yesterday"},
		"a pattern":                  {`{type: string, pattern: "^a+$"}`, "aa", "ab"},
		"an enumeration":             {`{type: string, enum: [a, b]}`, "a", "c"},
		"an enumeration of integers": {`{type: integer, enum: [1, 2]}`, int64(1), int64(3)},
		"the least length, in runes": {`{type: string, minLength: 2}`, "éé", "é"},
		"the most length, in runes":  {`{type: string, maxLength: 2}`, "éé", "ééé"},
		"the least":                  {`{type: integer, minimum: 2}`, int64(2), int64(1)},
		"the most":                   {`{type: integer, maximum: 2}`, int64(2), int64(3)},
		"32 bits":                    {`{type: integer, format: int32}`, int64(1<<31 - 1), int64(1 << 31)},
		"the fewest items":           {`{type: array, minItems: 2, items: {type: integer}}`, list(2), list(1)},
		"the most items":             {`{type: array, maxItems: 2, items: {type: integer}}`, list(2), list(3)},
		"what items are":             {`{type: array, items: {type: integer}}`, list(2), []any{"a"}},
		"a set":                      {`{type: array, x-kubernetes-list-type: set, items: {type: integer}}`, list(1), list(2)},
		"the keys of a list":         {`{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [id], items: {type: object, required: [id], properties: {id: {type: integer}}}}`, []any{map[string]any{"id": int64(1)}, map[string]any{"id": int64(2)}}, []any{map[string]any{"id": int64(1)}, map[string]any{"id": int64(1)}}},
		"a required field":           {`{type: object, required: [a], properties: {a: {type: string}}}`, fields(map[string]any{"a": ""}), fields(map[string]any{})},
		"a field that is known":      {`{type: object, properties: {a: {type: string}}}`, fields(map[string]any{"a": ""}), fields(map[string]any{"b": ""})},
		"the fewest fields":          {`{type: object, minProperties: 1, additionalProperties: {type: string}}`, fields(map[string]any{"a": ""}), fields(map[string]any{})},
		"the most fields":            {`{type: object, maxProperties: 1, additionalProperties: {type: string}}`, fields(map[string]any{"a": ""}), fields(map[string]any{"a": "", "b": ""})},
		"a rule":                     {`{type: integer, x-kubernetes-validations: [{rule: self > 1}]}`, int64(2), int64(1)},
		"no null":                    {`{type: object, properties: {a: {type: string}}}`, fields(map[string]any{}), fields(map[string]any{"a": nil})},
	} {
		t.Run(name, func(t *testing.T) {
			s := of(t, c.schema)
			if !passes(s, c.good) {
				t.Errorf("%v does not pass", c.good)
			}
			if passes(s, c.bad) {
				t.Errorf("%v passes", c.bad)
			}
		})
	}
}

func TestALargeObjectDoesNotPass(t *testing.T) {
	s := of(t, `{type: array, items: {type: integer}}`)
	most := MaxValues - len([]string{"the object", "apiVersion", "kind", "v"})
	if !passes(s, list(most)) {
		t.Errorf("an object of %d values does not pass", MaxValues)
	}
	if passes(s, list(most+1)) {
		t.Errorf("an object of %d values passes", MaxValues+1)
	}
}

// The API server stops a rule that costs too much, and all rules of an object once they do
// together; the screen does not count and so must not pass what might.
func TestWhatRulesMightCostIsBounded(t *testing.T) {
	const cubic = `, items: {type: integer}, x-kubernetes-validations: [{rule: "self.all(a, self.all(b, self.all(c, a + b + c > 0)))"}]}`
	if s := of(t, `{type: array, maxItems: 10`+cubic); !passes(s, list(10)) {
		t.Error("a rule on a short list does not pass")
	}
	if s := of(t, `{type: array, maxItems: 1000`+cubic); passes(s, list(2)) {
		t.Error("a rule passes that may cost too much by itself")
	}
	if s := of(t, `{type: array`+cubic); passes(s, list(2)) {
		t.Error("a rule on a list without bounds passes")
	}
	many := of(t, `{type: array, maxItems: 100, items: {type: array, maxItems: 30`+cubic+`}`)
	short := func(n int) []any { return slices.Repeat([]any{any(list(1))}, n) }
	if !passes(many, short(10)) {
		t.Error("a few rules do not pass")
	}
	if passes(many, short(100)) {
		t.Error("rules pass that may cost too much together")
	}
}
