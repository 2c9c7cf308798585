package analyze_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
)

var update = flag.Bool("update", false, "write testdata/features.txt anew")

// The examples of features say what is served and what is refused: what is found in them is what
// a reader expects, at the line at which they would mend it.
func TestWhatIsFoundInExamples(t *testing.T) {
	dirs, err := filepath.Glob("../../examples/features/*")
	if err != nil {
		t.Fatal(err)
	}
	dirs = append(dirs, "../../examples/quickstart")
	if len(dirs) < 50 {
		t.Fatalf("there are only %d examples", len(dirs))
	}
	r, err := reader()
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, dir := range dirs {
		documents, err := r.Read(t.Context(), []string{dir})
		if err != nil {
			t.Fatal(err)
		}
		c := config(code.Complete)
		c.Standalone = true
		list, err := analyze.Run(c, documents)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if f.Code == code.NotRead { // the requests of the example
				continue
			}
			fmt.Fprintf(&got, "%s:%d %s %s %s %s: %s\n", strings.TrimPrefix(f.File, "../../examples/"), f.Line, f.Severity, f.Code, f.Object, f.Path, f.Message)
		}
	}
	golden := filepath.Join("testdata", "features.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); d != "" {
		t.Error(d)
	}
}
