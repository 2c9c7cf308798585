package main

import (
	"strings"
	"testing"
)

func TestValuesAreToldWithTheirDefaults(t *testing.T) {
	const schema = `{"properties": {"global": {}, "a": {"$ref": "#/$defs/a"}, "d": {}}, "$defs": {"a": {"properties": {"b": {}, "c": {}}}}}`
	page, err := valuesPage([]byte(`# A page.

# What a
# is.
a:
  # The b.
  b: ""
  # The c.
  c: {requests: {cpu: 1m}}
# The d, this | that.
d: auto
`), []byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	want := "| `a` | | What a is. |\n| `a.b` | `\"\"` | The b. |\n| `a.c` | `{\"requests\":{\"cpu\":\"1m\"}}` | The c. |\n| `d` | `auto` | The d, this \\| that. |\n"
	if !strings.HasSuffix(page, want) {
		t.Errorf("got\n%s", page)
	}
	for text, complaint := range map[string]string{
		"a: {b: 1, c: 2}\nd: 1\n":                   "a has no comment",
		"# A.\na: {}\n# D.\nd: 1\n# E.\ne: 1\n":     "e has no comment, or is not in the schema",
		"# A.\na: {}\n":                             "the schema has d, which has no value",
		"# A.\na:\n  # B.\n  b: 1\n# D.\nd: auto\n": "the schema has a.c, which has no value",
	} {
		if _, err := valuesPage([]byte(text), []byte(schema)); err == nil || !strings.Contains(err.Error(), complaint) {
			t.Errorf("%q gives %v, want %s", text, err, complaint)
		}
	}
}
