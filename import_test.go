package aether_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The rules of docs/architecture/overview.md, "Packages". Test files are free of them.

const module = "aether.io/aether"

// purePackages, and those below them, compute and do nothing else: no client, no clock,
// no logger, no files. Of ours they import only each other and api. (The linter forbids
// them time.Now.)
var purePackages = []string{
	"internal/analyze", "internal/envoy", "internal/fleet", "internal/meshconfig", "internal/object", "internal/resource",
	"internal/routing", "internal/scope", "internal/snapshot", "internal/spelling", "internal/spiffeid", "internal/watermark",
}

// engines do one thing each, by themselves, and know nothing of each other: only
// programs and test rigs import them. Packages below an engine belong to it.
var engines = []string{
	"internal/source", "internal/world", "internal/discovery", "internal/ca", "internal/attest",
	"internal/xds", "internal/status", "internal/provision", "internal/webhook", "internal/registry",
	"internal/cni", "internal/console", "internal/projection", "internal/kept", "internal/proxypod", "internal/seed",
	"internal/delivery", "internal/claim", "internal/record",
}

// wiring is where engines meet. (standalone wires processes: it writes what one reads.)
var wiring = []string{"cmd", "internal/standalone", "internal/test", "test"}

// impure names what a pure package has no use for, with everything below it.
var impure = []string{
	"log", "os", "net/http", "syscall", "golang.org/x/sys", "google.golang.org/grpc", "k8s.io/client-go",
	"sigs.k8s.io/controller-runtime", "github.com/fsnotify/fsnotify", "github.com/prometheus/client_golang",
	"go.opentelemetry.io/otel", "go.opentelemetry.io/contrib", // its protos are a part of Envoy's
}

// vague names say nothing of what is in a package.
var vague = []string{"common", "helper", "helpers", "manager", "misc", "shared", "types", "util", "utils"}

type listed struct {
	ImportPath string
	Imports    []string
}

// violations says, sorted, how packages break the rules.
func violations(packages []listed) []string {
	var out []string
	for _, p := range packages {
		self := relative(p.ImportPath)
		if slices.Contains(vague, path.Base(self)) {
			out = append(out, fmt.Sprintf("%s: the name says nothing of what is in it", self))
		}
		for _, imported := range p.Imports {
			if why := forbidden(self, imported); why != "" {
				out = append(out, fmt.Sprintf("%s imports %s: %s", self, relative(imported), why))
			}
		}
	}
	slices.Sort(out)
	return out
}

// forbidden says why self, a package of ours, may not import another, or nothing if it may.
func forbidden(self, imported string) string {
	pure := under(self, purePackages) != ""
	if !ours(imported) {
		if pure && under(imported, impure) != "" {
			return "a pure package has no client, no logger and no files"
		}
		return ""
	}
	other := relative(imported)
	switch engine := under(other, engines); {
	case under(other, []string{"cmd"}) != "":
		return "programs are at the top"
	case under(self, []string{"api"}) != "" && under(other, []string{"api"}) == "":
		return "api imports nothing but api"
	case pure && under(other, []string{"api"}) == "" && under(other, purePackages) == "":
		return "a pure package imports only pure packages and api"
	case under(other, []string{"internal/test"}) != "" && under(self, wiring) == "":
		return "only tests import what is for tests"
	case engine != "" && under(self, []string{engine}) == "" && under(self, wiring) == "":
		return "engines meet in cmd, through interfaces of the one that needs them"
	}
	return ""
}

func ours(importPath string) bool {
	return importPath == module || strings.HasPrefix(importPath, module+"/")
}

func relative(importPath string) string { return strings.TrimPrefix(importPath, module+"/") }

// under returns the tree, of those given, that the path is in.
func under(p string, trees []string) string {
	for _, tree := range trees {
		if p == tree || strings.HasPrefix(p, tree+"/") {
			return tree
		}
	}
	return ""
}

// list asks the go command for the packages of the module in dir.
func list(t *testing.T, dir string) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	return packages
}

func TestImportsKeepTheArchitecture(t *testing.T) {
	packages := list(t, ".")
	if len(packages) < 10 {
		t.Fatalf("go list found only %d packages", len(packages))
	}
	for _, v := range violations(packages) {
		t.Error(v)
	}
}

// A rule that finds nothing may be a rule that does not work: the fixture breaks each.
func TestImportRulesFindWhatBreaksThem(t *testing.T) {
	want := []string{
		"api/config/v1 imports internal/object: api imports nothing but api",
		"internal/discovery/server imports internal/world: engines meet in cmd, through interfaces of the one that needs them",
		"internal/journal imports cmd/aetherctl: programs are at the top",
		"internal/journal imports internal/ca: engines meet in cmd, through interfaces of the one that needs them",
		"internal/journal imports internal/test/rig: only tests import what is for tests",
		"internal/routing imports internal/journal: a pure package imports only pure packages and api",
		"internal/routing imports k8s.io/client-go/kubernetes: a pure package has no client, no logger and no files",
		"internal/routing imports log/slog: a pure package has no client, no logger and no files",
		"internal/routing imports os/exec: a pure package has no client, no logger and no files",
		"internal/util: the name says nothing of what is in it",
	}
	if diff := cmp.Diff(want, violations(list(t, "testdata/imports"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
