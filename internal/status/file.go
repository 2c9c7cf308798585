package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"aether.io/aether/internal/object"
)

// Files is a Sink that writes one YAML file an object: <dir>/<kind>/<namespace>/<name>.yaml,
// or <dir>/<kind>/<name>.yaml for kinds without a namespace. Files are replaced atomically.
type Files struct{ dir string }

// NewFiles returns a sink below dir, which is made when first needed.
func NewFiles(dir string) *Files { return &Files{dir: dir} }

// file is what is written.
type file struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Namespace  string `json:"namespace,omitempty"`
		Name       string `json:"name"`
		Generation int64  `json:"generation"`
	} `json:"metadata"`
	Status any `json:"status"`
}

// Write replaces the object's file.
func (f *Files) Write(_ context.Context, d Document) error {
	out := file{Kind: string(d.Key.Kind), Status: d.Status}
	out.Metadata.Namespace, out.Metadata.Name, out.Metadata.Generation = d.Key.Namespace, d.Key.Name, d.Generation
	data, err := encode(out)
	if err != nil {
		return fmt.Errorf("encode status of %s: %w", d.Key, err)
	}
	path := f.path(d.Key)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Remove deletes the object's file; that there is none is no error.
func (f *Files) Remove(_ context.Context, k object.Key) error {
	if err := os.Remove(f.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *Files) path(k object.Key) string {
	return filepath.Join(f.dir, strings.ToLower(string(k.Kind)), k.Namespace, k.Name+".yaml")
}
