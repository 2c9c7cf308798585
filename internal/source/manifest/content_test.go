package manifest

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// sameAsThroughJSON checks that what is decoded directly is what JSON would have given.
func sameAsThroughJSON(t *testing.T, text []byte) (was bool) {
	t.Helper()
	got, ok := direct(text)
	if !ok {
		return false
	}
	js, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatalf("it is decoded directly, but not JSON: %v", err)
	}
	want, err := fromJSON(js)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("of %q (-through JSON +directly): %s", text, d)
	}
	if again, err := json.Marshal(got); err != nil || string(again) != string(js) {
		t.Errorf("of %q JSON is %s, through JSON %s (%v)", text, again, js, err)
	}
	return true
}

// documents are YAML in its variety, and whether it is decoded directly.
func documents() map[string]bool {
	return map[string]bool{
		"a: b":                            true,
		"a: [1, -2, 0x10, 0o7, 010]":      true,
		"a: yes\nb: ~\nc:\nd: null":       true,
		"a: 2001-01-02\nb: 1:20\nc: .5":   false, // a float
		"a: 2001-01-02":                   true,
		"a: 1.0":                          false,
		"a: 9223372036854775807":          true,
		"a: 9223372036854775808":          false,
		"1: a":                            false,
		"true: a":                         false,
		"a: .inf":                         false,
		"a: !!binary AAECgA==":            false,
		"a: !!str 1":                      true,
		"a: &x {b: [1]}\nc: *x\nd: *x":    true,
		"a: &x {b: 1}\nc: {<<: *x, d: 2}": true,
		"a: \"\\u2028<&>\\0\"":            true,
		"a: |\n  b\n  c\n":                true,
		"- a\n- {b: c}":                   true,
		"":                                true,
		"a: 1\na: 2":                      false,
		"a: {b: 1, b: 2}":                 false,
		"{":                               false,
		string(simpleRoute(1)):            true,
	}
}

func TestWhatIsDecodedDirectlyIsWhatJSONGives(t *testing.T) {
	for text, want := range documents() {
		if got := sameAsThroughJSON(t, []byte(text)); got != want {
			t.Errorf("decoded directly: %t, want %t, of %q", got, want, text)
		}
	}
}

func FuzzDirect(f *testing.F) {
	for text := range documents() {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { sameAsThroughJSON(t, text) })
}

func TestUsualMetadataAreWhatADecoderGives(t *testing.T) {
	for text, want := range map[string]bool{
		"{}":                      true,
		"{name: a, namespace: b}": true,
		"{name: a, labels: {}}":   true,
		"{name: a, labels: {a: b}, annotations: {c: d, e: ''}}": true,
		"{name: a, labels: {a: 1}}":                             false,
		"{name: a, labels: }":                                   false,
		"{name: a, finalizers: [x]}":                            false,
		"{name: a, label: {a: b}}":                              false,
	} {
		_, value, err := chunk{text: []byte(text)}.read()
		if err != nil {
			t.Fatal(err)
		}
		fields := value.(map[string]any)
		var got, decoded metav1.ObjectMeta
		if is := usual(fields, &got); is != want {
			t.Errorf("usual: %t, want %t, of %s", is, want, text)
		} else if !is {
			continue
		}
		r := reading{}
		r.into(fields, &decoded, Refused, "metadata")
		decoded.Name, decoded.Namespace = "", ""
		if d := cmp.Diff(decoded, got); d != "" || r.refused() {
			t.Errorf("%s: %v (-decoder +usual): %s", text, r.Findings, d)
		}
	}
}
