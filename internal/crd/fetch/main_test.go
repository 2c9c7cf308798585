package main

import (
	"os"
	"path/filepath"
	"testing"
)

const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  annotations: {gateway.networking.k8s.io/bundle-version: v1.2.3, gateway.networking.k8s.io/channel: standard}
`

func TestCheck(t *testing.T) {
	cases := map[string]struct {
		data, version string
		ok, refused   bool
	}{
		"a definition of that version":      {data: definition, version: "v1.2.3", ok: true},
		"a definition of another version":   {data: definition, version: "v1.2.4", refused: true},
		"something else, such as a policy":  {data: "kind: ValidatingAdmissionPolicy", version: "v1.2.3"},
		"a definition that says no version": {data: "kind: CustomResourceDefinition", version: "v1.2.3", refused: true},
		"several documents":                 {data: "kind: A\n---\nkind: B", version: "v1.2.3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ok, err := check([]byte(c.data), c.version)
			if ok != c.ok || (err != nil) != c.refused {
				t.Errorf("check: %v, %v", ok, err)
			}
		})
	}
}

func TestPruneRemovesWhatIsNoLongerWanted(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b.yaml", "README.md"} {
		if err := write(filepath.Join(dir, name), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := prune(dir, map[string]bool{"a.yaml": true}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"a.yaml": true, "b.yaml": false, "README.md": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", name, err, want)
		}
	}
}
