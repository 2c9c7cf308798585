package dossier_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/source/dossier"
)

var reader = sync.OnceValues(func() (*dossier.Reader, error) { return dossier.New(nil) })

func read(t *testing.T, name, text string) []analyze.Document {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := reader()
	if err != nil {
		t.Fatal(err)
	}
	documents, err := r.Read(t.Context(), []string{file})
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

func TestAFieldIsFoundAtItsLine(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		document   int
		path       string
		want       int
	}{
		"the object":                         {text: "# a comment\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n", want: 2},
		"a field":                            {text: "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports:\n  - port: 1\n  - port: 2\n", path: "spec.ports[1].port", want: 8},
		"a field that is not there":          {text: "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  ports: []\n", path: "spec.ports[3].port", want: 6},
		"the second document, after nothing": {text: "---\n# nothing\n---\nkind: Service\napiVersion: v1\nmetadata: {name: a}\n---\n\napiVersion: v1\nkind: Service\nmetadata:\n  name: b\n", document: 1, path: "metadata.name", want: 12},
		"an item of a list":                  {text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  metadata: {name: a}\n- apiVersion: v1\n  kind: Service\n  metadata: {name: b}\n  spec: {}\n", document: 1, path: "spec", want: 10},
		"JSON":                               {file: "a.json", text: "{\"apiVersion\": \"v1\",\n\"kind\": \"Service\",\n\"metadata\": {\"name\": \"a\"},\n\"spec\": {}}", path: "spec", want: 4},
		"behind an alias":                    {text: "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  annotations: &x {a: b}\n  labels: *x\nspec: {}\n", path: "metadata.labels.a", want: 5},
		"where YAML breaks":                  {text: "apiVersion: v1\nkind: Service\nmetadata:\n\tname: a\n", want: 4},
		"a broken document without a line":   {text: "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\n- a list\n", want: 5},
	} {
		t.Run(name, func(t *testing.T) {
			file := c.file
			if file == "" {
				file = "a.yaml"
			}
			documents := read(t, file, c.text)
			if len(documents) <= c.document {
				t.Fatalf("there are %d documents", len(documents))
			}
			if got := documents[c.document].Line(c.path); got != c.want {
				t.Errorf("line %d, want %d", got, c.want)
			}
		})
	}
}

func TestFoldersAreReadAsStandaloneModeDoes(t *testing.T) {
	dir := t.TempDir()
	for name, object := range map[string]string{"b.yaml": "b", "a/a.yml": "a", "c.JSON": "c", ".hidden/h.yaml": "h", ".h.yaml": "h", "notes.txt": "n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+object+`"}}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := dossier.New(strings.NewReader("{apiVersion: v1, kind: Namespace, metadata: {name: in}}"))
	if err != nil {
		t.Fatal(err)
	}
	documents, err := r.Read(t.Context(), []string{dir, dossier.Stdin})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range documents {
		got = append(got, d.Key.Name)
	}
	if strings.Join(got, " ") != "a b c in" {
		t.Errorf("read %v", got)
	}
	if _, err := r.Read(context.Background(), []string{filepath.Join(dir, "none")}); err == nil {
		t.Error("a file that is not there was read")
	}
}

func TestWhatIsWrongIsToldApart(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want analyze.Wrong
	}{
		"a kind that is not read":       {"apiVersion: apps/v1\nkind: Deployment\n", analyze.Wrong{Message: "apps/v1 Deployment is not a kind that is read", Ignored: true}},
		"no kind":                       {"apiVersion: v1\n", analyze.Wrong{Path: "kind", Message: "is required", Refused: true}},
		"an unknown field, refused":     {"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\nspek: {}\n", analyze.Wrong{Path: "spek", Message: "is not known; did you mean spec?", Refused: true, Unknown: true}},
		"an unknown field, not refused": {"apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default}\nspec: {proxi: {}}\n", analyze.Wrong{Path: "spec.proxi", Message: "is not known and has no effect; did you mean spec.proxy?", Unknown: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d := read(t, "a.yaml", c.text)[0]
			if len(d.Wrong) != 1 || d.Wrong[0] != c.want {
				t.Errorf("got %+v, want %+v", d.Wrong, c.want)
			}
		})
	}
}
