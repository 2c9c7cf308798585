package analyze_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/source/dossier"
)

// config is that of an analysis by which a code of that scope can be found.
func config(scope code.Scope) analyze.Config {
	return analyze.Config{
		ControllerName: "config.aether.io/gateway-controller", ReleaseNamespace: "aether-system", Now: time.Now(),
		Complete: scope == code.Complete, Live: scope == code.Cluster, Standalone: scope == code.Instance,
	}
}

// reader is one for all tests: definitions are compiled when the first object comes.
var reader = sync.OnceValues(func() (*dossier.Reader, error) { return dossier.New(nil) })

func read(t *testing.T, manifests string) []analyze.Document {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(file, []byte(manifests), 0o600); err != nil {
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

func run(t *testing.T, c analyze.Config, manifests string) []analyze.Finding {
	t.Helper()
	list, err := analyze.Run(c, read(t, manifests))
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		list[i].File = ""
	}
	return list
}

func codes(list []analyze.Finding) []code.ID {
	var out []code.ID
	for _, f := range list {
		out = append(out, f.Code)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// elsewhere are the codes that manifests alone cannot have, with the test that produces each.
var elsewhere = map[code.ID]func(*testing.T) []analyze.Finding{
	code.ClassGoes:       aClassThatGoes,
	code.Unlisted:        aKindThatIsNotListed,
	code.CertificateSoon: func(t *testing.T) []analyze.Finding { return aCertificate(t, "shop.example.com", 10*day) },
	code.CertificateDead: func(t *testing.T) []analyze.Finding { return aCertificate(t, "shop.example.com", -day) },
	code.CertificateHost: func(t *testing.T) []analyze.Finding { return aCertificate(t, "blog.example.com", 90*day) },
	code.Uncoded:         aConditionWithoutACode,
	"AET1104":            aGatewayWithoutAnAddress,
	"AET2008":            aRouteThatTakesTooMuch,
}

// A code that nothing produces explains what never happens.
func TestEachCodeIsFoundInItsExampleAndNotInTheMendedOne(t *testing.T) {
	for _, c := range code.All() {
		t.Run(string(c.ID), func(t *testing.T) {
			wrong, right := c.Example()
			other := elsewhere[c.ID]
			if (wrong == "") == (other == nil) {
				t.Fatalf("want an example or a test of its own, and not both")
			}
			if other != nil {
				if list := other(t); !slices.Contains(codes(list), c.ID) {
					t.Errorf("not found: %v", list)
				}
				return
			}
			if list := run(t, config(c.Scope), wrong); !slices.Contains(codes(list), c.ID) {
				t.Errorf("not found in the example: %v", list)
			}
			list := run(t, config(c.Scope), right)
			if slices.Contains(codes(list), c.ID) {
				t.Errorf("found in the mended one: %v", list)
			}
			for _, f := range list {
				if f.Severity == code.Error {
					t.Errorf("the mended one has an error: %v", f)
				}
			}
		})
	}
}

func TestCodesAreWellFormed(t *testing.T) {
	seen := map[code.ID]bool{}
	for _, c := range code.All() {
		if seen[c.ID] || len(c.ID) != 7 || !strings.HasPrefix(string(c.ID), "AET") {
			t.Errorf("%s is there twice, or is no code", c.ID)
		}
		seen[c.ID] = true
		for what, text := range map[string]string{"meaning": c.Meaning, "mend": c.Mend} {
			if !strings.HasSuffix(text, ".") {
				t.Errorf("%s: its %s is no sentence: %q", c.ID, what, text)
			}
		}
		if c.Title == "" || strings.HasSuffix(c.Title, ".") {
			t.Errorf("%s: title %q", c.ID, c.Title)
		}
	}
}
