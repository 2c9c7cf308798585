package ca

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/svid"
)

// The names in a CA's directory are those of its Secret's keys.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	maxFile  = 1 << 20
)

// FileStore keeps the CA in a directory of its own. The directory appears as one, with
// both files in it, by a rename: of starters that race exactly one creates it.
type FileStore struct {
	Dir string
}

// Load reads both files. A key that others than its owner may read is ErrExposed.
func (s FileStore) Load(context.Context) (Material, error) {
	cert, errCert := readFile(filepath.Join(s.Dir, certFile), 0)
	key, errKey := readFile(filepath.Join(s.Dir, keyFile), 0o077)
	certGone, keyGone := errors.Is(errCert, fs.ErrNotExist), errors.Is(errKey, fs.ErrNotExist)
	switch {
	case certGone && keyGone:
		return Material{}, fmt.Errorf("%s: %w", s.Dir, ErrAbsent)
	case certGone || keyGone: // never a reason to make another CA
		return Material{}, fmt.Errorf("%w: %w", ErrMalformed, errors.Join(errCert, errKey))
	case errCert != nil || errKey != nil:
		return Material{}, errors.Join(errCert, errKey)
	}
	return Material{Cert: cert, Key: key}, nil
}

// Create makes the directory, mode 0700, with both files, mode 0600.
func (s FileStore) Create(_ context.Context, m Material) (err error) {
	parent := filepath.Dir(filepath.Clean(s.Dir))
	tmp, err := os.MkdirTemp(parent, "."+filepath.Base(s.Dir)+".*") // mode 0700
	if err != nil {
		return fmt.Errorf("create CA: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // there is nothing to remove after the rename
	for name, data := range map[string][]byte{certFile: m.Cert, keyFile: m.Key} {
		if err := atomicfile.Write(filepath.Join(tmp, name), data, 0o600); err != nil {
			return fmt.Errorf("create CA: %w", err)
		}
	}
	// A directory can replace an empty directory and nothing else.
	err = os.Rename(tmp, s.Dir)
	switch {
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %w", s.Dir, ErrExists)
	case err != nil:
		return fmt.Errorf("create CA: %w", err)
	}
	return atomicfile.SyncDir(parent)
}

// readFile reads a regular file of at most 1 MiB of which no mode bit of forbid is set.
// The mode is that of the file that was opened, so it cannot change in between.
func readFile(path string, forbid fs.FileMode) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, fmt.Errorf("%w: %s is no file of at most %d bytes", ErrMalformed, path, maxFile)
	case info.Mode().Perm()&forbid != 0:
		return nil, fmt.Errorf("%w: %s has mode %#o", ErrExposed, path, info.Mode().Perm())
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// BundleFile publishes the trust bundle as a PEM file, mode 0644, replaced as one.
type BundleFile struct {
	Path string
}

// Publish implements Publisher. A file that has the bundle already is left alone, so that a
// disk that is full stops nobody whose bundle has not changed.
func (f BundleFile) Publish(_ context.Context, b svid.Bundle) error {
	if now, err := readFile(f.Path, 0o022); err == nil && bytes.Equal(now, b.PEM()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(f.Path, b.PEM(), 0o644)
}
