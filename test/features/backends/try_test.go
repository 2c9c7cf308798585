package main

import (
	"bytes"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/test/features/example"
	"aether.io/aether/test/features/stage"
)

const examples = "../../../examples"

// A person who types what is printed must be able to tell the lines apart, and be told
// what to expect of each.
func TestEveryRequestToTryDiffersAndSaysWhatComesOfIt(t *testing.T) {
	all, err := example.ReadAll(filepath.Join(examples, "features"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		var b bytes.Buffer
		suggest(&b, e, "folder", "clients")
		seen := map[string]bool{}
		for part := range strings.SplitSeq(b.String(), "\n\n") {
			if !strings.Contains(part, "  curl ") {
				continue
			}
			said, command, _ := strings.Cut(part, "  curl ")
			if seen[part] || !strings.Contains(said, ": ") {
				t.Errorf("%s: %q was there before, or says nothing of what comes: %q", e.Name, command, said)
			}
			seen[part] = true
		}
	}
}

func TestARequestToTrySaysAllThatItNeeds(t *testing.T) {
	for name, want := range map[string][]string{
		"client-certificates":   {"200 from shop", "--cert clients/ann.pem", "--cert clients/eve.pem", "closed without an answer"},
		"cross-namespace-grant": {"first take ReferenceGrant/warehouse/shop out of the manifests", ": 500\n"},
		"listener-conflicts":    {"the connection is refused", "127.0.0.1:8081"},
		"weights":               {"of 200, v1 "},
	} {
		e, err := example.Read(filepath.Join(examples, "features", name))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		suggest(&b, e, "folder", "clients")
		for _, part := range want {
			if !strings.Contains(b.String(), part) {
				t.Errorf("%s: no %q in\n%s", name, part, b.String())
			}
		}
	}
}

func TestClientCertificatesAreWrittenAsCurlReadsThem(t *testing.T) {
	e, err := example.Read(filepath.Join(examples, "features", "client-certificates"))
	if err != nil {
		t.Fatal(err)
	}
	made, err := stage.Make(e)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := writeClients(made.Clients, dir); err != nil {
		t.Fatal(err)
	}
	file := clientFile(dir, "ann")
	if _, err := tls.LoadX509KeyPair(file, file); err != nil {
		t.Error(err)
	}
}

func TestManifestsWithoutRequestsHaveBackendsToo(t *testing.T) {
	e, err := read(filepath.Join(examples, "quickstart"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := stage.Objects(e)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(stage.Places(objects)); got != 2 {
		t.Errorf("the quickstart has %d backends, want 2", got)
	}
}

func TestAFolderWithNothingToStartIsRefused(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "a.yaml")
	if err := os.WriteFile(file, []byte("kind: Service\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{
		empty:                        "no .yaml file",
		file:                         "is no folder",
		filepath.Join(empty, "nope"): "is no folder",
	} {
		if _, err := read(folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", folder, err, want)
		}
	}
}
