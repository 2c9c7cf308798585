package tree

import (
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"aether.io/aether/internal/source/disk"
)

// scan reads folder p and those below it and notes every file to be looked at. It watches
// before it reads, so nothing falls between.
func (t *Tree) scan(p string) {
	delete(t.faults, p)
	if strings.Count(p, "/") > maxDepth {
		return
	}
	real, err := t.real(p)
	if err == nil && t.circular(p, real) {
		return
	}
	d := t.dirs[p]
	if d == nil {
		d = newDir()
		t.dirs[p] = d
	}
	if errors.Is(err, disk.ErrNoAnswer) { // nor is it known whether it is to be read
		t.faults[p] = err
		return
	}
	if err == nil {
		d.real = real
	}
	wd, err := t.add(p, t.abs(p))
	if err == nil {
		t.register(p, d, wd)
	} else {
		t.faults[p] = err
	}
	entries, err := t.entries(p)
	if err != nil {
		t.faults[p] = err // its files stay as they were
		return
	}
	t.compare(p, d, entries)
}

// compare takes over what a folder holds now.
func (t *Tree) compare(p string, d *dir, entries []fs.DirEntry) {
	now := newDir()
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		link, isDir := e.Type()&fs.ModeSymlink != 0, e.IsDir()
		if link {
			isDir = t.leadsToFolder(d, path.Join(p, name))
		}
		switch {
		case isDir:
			now.addSub(name, link)
		case wanted(name):
			now.addFile(name, link)
		}
	}
	for name := range d.files {
		if !now.files[name] {
			t.fade(path.Join(p, name))
		}
	}
	for name := range d.subs {
		if !now.subs[name] {
			t.drop(path.Join(p, name))
		}
	}
	d.files, d.subs, d.links = now.files, now.subs, now.links
	for name := range d.files {
		t.atOnce(path.Join(p, name))
	}
	for name := range d.subs {
		t.scan(path.Join(p, name))
	}
}

func newDir() *dir {
	return &dir{files: map[string]bool{}, subs: map[string]bool{}, links: map[string]bool{}}
}

func (d *dir) addFile(name string, link bool) {
	d.forget(name)
	d.files[name] = true
	if link {
		d.links[name] = true
	}
}

func (d *dir) addSub(name string, link bool) {
	d.forget(name)
	d.subs[name] = true
	if link {
		d.links[name] = true
	}
}

func (d *dir) forget(name string) {
	delete(d.files, name)
	delete(d.subs, name)
	delete(d.links, name)
}

// circular reports whether p, which is real, leads back to a folder that it is in, or to
// the one that is not read.
func (t *Tree) circular(p, real string) bool {
	if p == "" {
		return false
	}
	if real == t.except {
		return true
	}
	for up := p; up != ""; {
		up = parent(up)
		if d := t.dirs[up]; d != nil && d.real == real {
			return true
		}
	}
	return false
}

// drop forgets folder p and those below it; their files fade.
func (t *Tree) drop(p string) {
	if up := t.dirs[parent(p)]; up != nil && p != "" {
		up.forget(path.Base(p))
	}
	delete(t.waiting, p)
	delete(t.faults, p)
	d := t.dirs[p]
	if d == nil {
		return
	}
	for name := range d.subs {
		t.drop(path.Join(p, name))
	}
	for name := range d.files {
		t.fade(path.Join(p, name))
	}
	t.unregister(p)
	delete(t.dirs, p)
}

func (t *Tree) watched(wd int) *watch {
	w := t.watch[wd]
	if w == nil {
		w = &watch{targets: map[string][]string{}}
		t.watch[wd] = w
	}
	return w
}

func (t *Tree) register(p string, d *dir, wd int) {
	if d.wd == wd && t.watch[wd] != nil {
		return
	}
	t.unregister(p)
	d.wd = wd
	w := t.watched(wd)
	w.dirs = append(w.dirs, p)
}

func (t *Tree) unregister(p string) {
	d := t.dirs[p]
	if d == nil || d.wd == 0 {
		return
	}
	if w := t.watch[d.wd]; w != nil {
		w.dirs = slices.DeleteFunc(w.dirs, func(o string) bool { return o == p })
		t.release(d.wd, w)
	}
	d.wd = 0
}

// detach ends the watch on every folder, keeping what is known of them: the root has gone
// elsewhere, and what happens there is none of ours.
func (t *Tree) detach() {
	for p := range t.dirs {
		t.unregister(p)
	}
}

// release ends a watch that nothing needs.
func (t *Tree) release(wd int, w *watch) {
	if len(w.dirs) == 0 && len(w.targets) == 0 && w.parent == "" {
		t.notes.remove(wd)
		delete(t.watch, wd)
	}
}

// follow keeps a watch on where a link leads, if p is one.
func (t *Tree) follow(p string) {
	real := ""
	if d := t.dirs[parent(p)]; d != nil && d.links[path.Base(p)] {
		var err error
		if real, err = t.real(p); errors.Is(err, disk.ErrNoAnswer) {
			return
		} // a link to nothing is found out when it is read
	}
	if t.linked[p] == real {
		return
	}
	for wd, w := range t.watch { // links are few and change seldom
		name := filepath.Base(t.linked[p])
		if !slices.Contains(w.targets[name], p) {
			continue
		}
		w.targets[name] = slices.DeleteFunc(w.targets[name], func(o string) bool { return o == p })
		if len(w.targets[name]) == 0 {
			delete(w.targets, name)
		}
		t.release(wd, w)
	}
	delete(t.linked, p)
	if real == "" {
		return
	}
	wd, err := t.add(p, filepath.Dir(real))
	if err != nil {
		return // looked at again when something beside the link changes
	}
	w, name := t.watched(wd), filepath.Base(real)
	w.targets[name] = append(w.targets[name], p)
	t.linked[p] = real
}
