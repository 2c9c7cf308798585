package tree

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"aether.io/aether/internal/source/disk"
)

// The operations on paths of the tree. Each may end with disk.ErrNoAnswer.

func (t *Tree) lstat(p string) (fs.FileInfo, error) {
	name := t.abs(p)
	return disk.Ask(t.disk, name, disk.Here, func() (fs.FileInfo, error) { return os.Lstat(name) })
}

func (t *Tree) stat(p string) (fs.FileInfo, error) {
	name := t.abs(p)
	return disk.Ask(t.disk, name, disk.Follow, func() (fs.FileInfo, error) { return os.Stat(name) })
}

func (t *Tree) entries(p string) ([]fs.DirEntry, error) {
	name := t.abs(p)
	return disk.Ask(t.disk, name, disk.Here, func() ([]fs.DirEntry, error) { return os.ReadDir(name) })
}

// real is where p is once links have been followed.
func (t *Tree) real(p string) (string, error) {
	name := t.abs(p)
	return disk.Ask(t.disk, name, disk.Follow, func() (string, error) { return filepath.EvalSymlinks(name) })
}

// add watches a directory for the sake of p.
func (t *Tree) add(p, dir string) (int, error) {
	return disk.Ask(t.disk, t.abs(p), disk.Here, func() (int, error) { return t.notes.add(dir) })
}

// leadsToFolder reports whether a link, in folder d, leads to a folder. Where there is no
// answer it leads to what it led to; if that is not known, its name decides.
func (t *Tree) leadsToFolder(d *dir, at string) bool {
	info, err := t.stat(at)
	if errors.Is(err, disk.ErrNoAnswer) {
		name := path.Base(at)
		return d.subs[name] || !d.files[name] && !wanted(name)
	}
	return err == nil && info.IsDir()
}

// answered looks again at a path for which there was no answer.
func (t *Tree) answered(name string) {
	if name == t.root {
		t.rescan = true
		return
	}
	p, inside := strings.CutPrefix(name, t.root+string(filepath.Separator))
	if !inside {
		return
	}
	p = filepath.ToSlash(p)
	if d := t.dirs[parent(p)]; d != nil {
		t.appeared(d, p, event{name: path.Base(p), what: written})
	}
}
