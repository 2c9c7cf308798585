package status

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

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

// Write replaces the object's file. The file is read anew each time: others may have changed it.
func (f *Files) Write(_ context.Context, d Document) (wrote bool, err error) {
	out := file{Kind: string(d.Key.Kind), Status: d.Status}
	out.Metadata.Namespace, out.Metadata.Name, out.Metadata.Generation = d.Key.Namespace, d.Key.Name, d.Generation
	data, err := encode(out)
	if err != nil {
		return false, fmt.Errorf("encode status of %s: %w", d.Key, err)
	}
	path := f.path(d.Key)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, err
	}
	tmp := path + ".new"
	err = os.WriteFile(tmp, data, 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // a part of it would be taken for a status, and takes room
	}
	return err == nil, err
}

// Remove deletes the object's file; that there is none is no error.
func (f *Files) Remove(_ context.Context, k object.Key, _ types.UID) error {
	if err := os.Remove(f.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// KeepOnly deletes the files of all other objects. Nothing else may be in the directory.
func (f *Files) KeepOnly(_ context.Context, keys []object.Key) error {
	keep := make(map[string]bool, len(keys))
	for _, k := range keys {
		keep[f.path(k)] = true
	}
	var errs []error
	var stale []string
	err := filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			errs = append(errs, err)
		case !d.IsDir() && !keep[path]:
			stale = append(stale, path)
		}
		return nil
	})
	for _, path := range stale {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(append(errs, err)...)
}

func (f *Files) path(k object.Key) string {
	return filepath.Join(f.dir, strings.ToLower(string(k.Kind)), k.Namespace, fileName(k.Name)+".yaml")
}

// maxName is how long a file's name may be without its endings, in bytes.
const maxName = 255 - len(".yaml.new")

// fileName is the object's name, or its beginning and a hash where a file's name cannot
// be as long as an object's. No object's name has a ~ in it.
func fileName(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := "~" + hex.EncodeToString(sum[:8])
	return name[:maxName-len(hash)] + hash
}
