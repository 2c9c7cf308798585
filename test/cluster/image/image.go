// Package image makes container images of programs that are on this machine: an OCI
// archive with one layer, as `ctr images import` and its like take it. The same files
// give the same archive.
package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Image says what is in an image.
type Image struct {
	// Name is the full reference: registry, repository and tag. Required.
	Name       string
	Entrypoint []string
	Env        []string // NAME=value
	User       string   // number, or number:number; empty: root
	// Files are the files of this machine by their absolute path in the image. The folders
	// above them are made; so is /tmp.
	Files map[string]string
}

// descriptor points to a blob, as the OCI image specification has it.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Write writes the archive to the file, complete or not at all.
func (i Image) Write(file string) (err error) {
	layer, err := os.CreateTemp(filepath.Dir(file), ".layer-")
	if err != nil {
		return err
	}
	defer os.Remove(layer.Name())
	defer layer.Close()
	tmp, err := os.CreateTemp(filepath.Dir(file), ".image-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()

	h := sha256.New()
	if err := i.writeLayer(io.MultiWriter(layer, h)); err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	if err := i.writeArchive(tmp, layer, "sha256:"+hex.EncodeToString(h.Sum(nil))); err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

func (i Image) writeLayer(w io.Writer) error {
	t := tar.NewWriter(w)
	dirs := map[string]int64{"tmp/": 0o1777}
	for name := range i.Files {
		for d := path.Dir(strings.TrimPrefix(path.Clean(name), "/")); d != "."; d = path.Dir(d) {
			dirs[d+"/"] = 0o755
		}
	}
	for _, d := range slices.Sorted(maps.Keys(dirs)) {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: d, Mode: dirs[d]}); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		if err := addFile(t, strings.TrimPrefix(path.Clean(name), "/"), i.Files[name]); err != nil {
			return err
		}
	}
	return t.Close()
}

func addFile(t *tar.Writer, name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}

// writeArchive writes the blobs, which name each other by digest, and the index at the root.
func (i Image) writeArchive(w io.Writer, layer *os.File, digest string) error {
	size, err := layer.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return err
	}
	t := tar.NewWriter(w)
	put := func(name string, size int64, r io.Reader) error {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(t, r)
		return err
	}
	blob := func(kind string, content any) (descriptor, error) {
		text, err := json.Marshal(content)
		if err != nil {
			return descriptor{}, err
		}
		sum := sha256.Sum256(text)
		d := descriptor{MediaType: kind, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(text))}
		return d, put(blobPath(d.Digest), d.Size, strings.NewReader(string(text)))
	}
	if err := put(blobPath(digest), size, layer); err != nil {
		return err
	}
	type object = map[string]any
	config, err := blob("application/vnd.oci.image.config.v1+json", object{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       object{"Entrypoint": i.Entrypoint, "Env": append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, i.Env...), "User": i.User},
		"rootfs":       object{"type": "layers", "diff_ids": []string{digest}},
	})
	if err != nil {
		return err
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := blob(manifestType, object{
		"schemaVersion": 2,
		"mediaType":     manifestType,
		"config":        config,
		"layers":        []descriptor{{MediaType: "application/vnd.oci.image.layer.v1.tar", Digest: digest, Size: size}},
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.Name, "org.opencontainers.image.ref.name": i.Name}
	index, err := json.Marshal(object{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	if err != nil {
		return err
	}
	layout := `{"imageLayoutVersion":"1.0.0"}`
	if err := put("oci-layout", int64(len(layout)), strings.NewReader(layout)); err != nil {
		return err
	}
	if err := put("index.json", int64(len(index)), strings.NewReader(string(index))); err != nil {
		return err
	}
	return t.Close()
}

func blobPath(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

// Of is the image of one program, in /usr/local/bin, with the libraries that it needs. Envoy's
// is made so, under the official image's name.
func Of(name, program string) (Image, error) {
	files, err := Libraries(program)
	if err != nil {
		return Image{}, err
	}
	target := "/usr/local/bin/" + filepath.Base(program)
	files[target] = program
	return Image{Name: name, Entrypoint: []string{target}, Files: files}, nil
}
