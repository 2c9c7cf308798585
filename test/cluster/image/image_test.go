package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contents reads a tar archive.
func contents(t *testing.T, data []byte) (files map[string]string, modes map[string]int64) {
	t.Helper()
	files, modes = map[string]string{}, map[string]int64{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, modes
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], modes[h.Name] = string(text), h.Mode
	}
}

func TestAnArchiveHoldsWhatItsIndexNames(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("the program"), 0o700); err != nil {
		t.Fatal(err)
	}
	i := Image{
		Name: "example.test/program:1", Entrypoint: []string{"/bin/program"}, User: "65532", Env: []string{"A=b"},
		Files: map[string]string{"/bin/program": program},
	}
	archive := filepath.Join(dir, "image.tar")
	if err := i.Write(archive); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := contents(t, data)
	blob := func(digest string) []byte {
		text, ok := files["blobs/"+strings.Replace(digest, ":", "/", 1)]
		sum := sha256.Sum256([]byte(text))
		if !ok || digest != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Fatalf("blob %s is not there, or is another", digest)
		}
		return []byte(text)
	}
	decode := func(text []byte, into any) {
		if err := json.Unmarshal(text, into); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	decode([]byte(files["index.json"]), &index)
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != i.Name {
		t.Errorf("the image is named %q", got)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	decode(blob(index.Manifests[0].Digest), &manifest)
	var config struct {
		Config struct {
			Entrypoint []string
			User       string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(blob(manifest.Config.Digest), &config)
	if config.Config.Entrypoint[0] != "/bin/program" || config.Config.User != "65532" || config.RootFS.DiffIDs[0] != manifest.Layers[0].Digest {
		t.Errorf("the configuration is %+v", config)
	}
	layer, modes := contents(t, blob(manifest.Layers[0].Digest))
	if diff := cmp.Diff(map[string]string{"bin/": "", "tmp/": "", "bin/program": "the program"}, layer); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int64{"bin/": 0o755, "tmp/": 0o1777, "bin/program": 0o755}, modes); diff != "" {
		t.Error(diff)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if err := i.Write(archive); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(archive); err != nil || !bytes.Equal(again, data) {
		t.Errorf("the same files gave another archive (%v)", err)
	}
}

func TestAProgramsLibrariesAreFound(t *testing.T) {
	i, err := Of("example.test/sh:1", "/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	files := i.Files
	if files["/usr/local/bin/sh"] != "/bin/sh" || i.Entrypoint[0] != "/usr/local/bin/sh" {
		t.Errorf("the program is in %v, and %v is started", files, i.Entrypoint)
	}
	loader, libc := false, false
	for path := range files {
		loader = loader || strings.Contains(path, "/ld-")
		libc = libc || strings.HasSuffix(path, "/libc.so.6")
	}
	if !loader || !libc {
		t.Errorf("found %v", files)
	}
}
