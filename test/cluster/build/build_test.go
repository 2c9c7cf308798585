package build

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// module makes a program of one file.
func module(t *testing.T, text string) Program {
	t.Helper()
	dir := t.TempDir()
	for name, data := range map[string]string{"go.mod": "module example.test/hello\n\ngo 1.26\n", "main.go": text} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Program{Name: "hello", Dir: dir}
}

func TestAProgramIsBuiltOnceForWhatItIsMadeOf(t *testing.T) {
	cache := t.TempDir()
	p := module(t, "package main\n\nfunc main() {}\n")
	if _, err := p.Find(cache); !errors.Is(err, ErrNotBuilt) {
		t.Fatalf("before the build: %v", err)
	}
	var out bytes.Buffer
	path, err := p.Make(t.Context(), cache, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "building hello: ") {
		t.Errorf("the build told nothing: %q", out.String())
	}
	out.Reset()
	if again, err := p.Make(t.Context(), cache, &out); err != nil || again != path || out.Len() > 0 {
		t.Errorf("the second time: %s, %v, and it said %q", again, err, out.String())
	}
	if found, err := p.Find(cache); err != nil || found != path {
		t.Errorf("found %s, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "main.go"), []byte("package main\n\nfunc main() { println() }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Find(cache); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("with another source: %v", err)
	}
}

func TestAProgramThatDoesNotCompileSaysWhyAndLeavesNothing(t *testing.T) {
	cache := t.TempDir()
	_, err := module(t, "package main\n\nfunc main() { nonsense() }\n").Make(t.Context(), cache, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("got %v", err)
	}
	left, err := filepath.Glob(filepath.Join(cache, "cluster", "*", "hello*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Images are made of programs and nothing else, so no loader may be needed.
func TestAProgramWithCodeInCIsStatic(t *testing.T) {
	p := module(t, "package main\n\n// #include <stdlib.h>\nimport \"C\"\n\nfunc main() { println(int(C.abs(-4))) }\n")
	cache := t.TempDir()
	p.C = true
	path, err := p.Make(t.Context(), cache, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, prog := range f.Progs {
		if prog.Type == elf.PT_INTERP {
			t.Error("it asks for a loader")
		}
	}
	p.C = false
	if _, err := p.Find(cache); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("without C: %v", err)
	}
}

func TestTheVersionToldIsTheVersionRequired(t *testing.T) {
	root, err := Root(".")
	if err != nil {
		t.Fatal(err)
	}
	for required, p := range map[string]Program{
		"k8s.io/kubernetes v" + kubernetesVersion: Kubernetes(root),
		"helm.sh/helm/v4 v" + helmVersion:         Helm(root),
	} {
		mod, err := os.ReadFile(filepath.Join(p.Dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(mod), required) {
			t.Errorf("%s does not require %s", p.Dir, required)
		}
	}
}
