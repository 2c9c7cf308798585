// Package tree follows a directory and tells which of its files deserve a look. It
// decides nothing about their content. The kernel's notifications come in
// (inotify: Linux only), sets of paths go out; paths are relative to the directory, with
// slashes.
//
// Files end in .yaml, .yml or .json and have no name on their path that starts with a
// dot. Symbolic links are followed, to files and to directories, and a link is looked at
// again when its target is written, when it is replaced, and when something hidden beside
// it changes, which is how a mounted ConfigMap is updated (..data). What is not noticed
// is the replacement of a link in the middle of a chain of links outside the directory.
//
// A file that is created but not yet closed, or that is gone, is looked at only after a
// moment (Settle): editors write by removing and creating. A file that is renamed into
// place or closed after writing is looked at at once.
//
// What the operating system does not answer for in time is as it was: a folder is a fault, a
// file cannot be read, and both are looked at again when there is an answer. See package disk.
package tree

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"aether.io/aether/internal/source/disk"
)

// Settle is how long a file that vanished or appeared empty-handed is left alone.
const Settle = 50 * time.Millisecond

// absentRetry is how often a missing root is looked for.
const absentRetry = 100 * time.Millisecond

// maxDepth bounds folders in folders, and with it links in circles.
const maxDepth = 32

// Config says what to follow.
type Config struct {
	Root   string           // the directory
	Except string           // a folder that is not read, whichever way leads to it; "": none
	Settle time.Duration    // 0: Settle
	Now    func() time.Time // nil: time.Now
	Disk   disk.Config      // how files are looked at; its Wake is the tree's own
}

// Tree follows one directory. All methods but Wake and Read belong to one goroutine; Read
// may be called by several between two calls of Take.
type Tree struct {
	root   string
	except string // its real path
	settle time.Duration
	now    func() time.Time
	notes  *notifier
	disk   *disk.Disk

	dirs   map[string]*dir // by path; "" is the root
	watch  map[int]*watch
	linked map[string]string // file that is a link → real path of its target

	rescan  bool                 // the whole tree is to be read again
	absent  error                // why the root cannot be followed
	retry   time.Time            // when to look for it again
	faults  map[string]error     // by folder that cannot be followed
	look    map[string]bool      // files to look at now
	fading  map[string]bool      // files that vanished since the last Take
	waiting map[string]time.Time // files and folders to look at later
}

// dir is one folder as it is known.
type dir struct {
	wd    int // 0: not watched
	real  string
	files map[string]bool // by name
	subs  map[string]bool // by name
	links map[string]bool // names among both that are links; few
}

// watch is what one watched directory is here: folders of the tree (several if links
// lead to it), and targets of links by their name.
type watch struct {
	dirs    []string
	targets map[string][]string
	parent  string // the root's own name, if this is the directory that a linked root is in
}

type what int

const (
	nothing what = iota
	written      // closed after writing, or moved here
	created
	removed
	touched
	self  // the watched directory itself moved or went
	ended // the watch is no more
)

type event struct {
	wd   int
	name string
	dir  bool
	lost bool // the kernel dropped events
	what what
}

// Seen is what became of the tree since the last Take.
type Seen struct {
	Look   []string         // files to read now, sorted; one that is not there, or is a folder, is gone
	Fading []string         // files that are not there at the moment, sorted; do not act yet
	Faults map[string]error // folders that cannot be followed now, by path; "" is the root, and then nothing is known of any file
	First  time.Time        // when the oldest of the events was read; zero if there was none
	Next   time.Time        // when to Take again without being woken; zero if not at all
}

// Open starts to follow cfg.Root, which need not exist. The first Take names every file.
func Open(cfg Config) (*Tree, error) {
	root, err := filepath.Abs(cfg.Root)
	if err != nil {
		return nil, err
	}
	t := &Tree{
		root: root, settle: cfg.Settle, now: cfg.Now, rescan: true,
		dirs: map[string]*dir{}, watch: map[int]*watch{}, linked: map[string]string{},
		faults: map[string]error{}, look: map[string]bool{}, fading: map[string]bool{}, waiting: map[string]time.Time{},
	}
	if cfg.Except != "" {
		if t.except, err = filepath.EvalSymlinks(cfg.Except); err != nil {
			return nil, err
		}
	}
	if t.settle == 0 {
		t.settle = Settle
	}
	if t.now == nil {
		t.now = time.Now
	}
	if t.notes, err = newNotifier(t.now); err != nil {
		return nil, err
	}
	cfg.Disk.Wake = t.notes.poke
	t.disk = disk.New(cfg.Disk)
	return t, nil
}

// Close stops following.
func (t *Tree) Close() {
	t.disk.Close()
	t.notes.close()
}

// Wake has a value when Take has something to say.
func (t *Tree) Wake() <-chan struct{} { return t.notes.wake }

// Take tells what changed since the last Take.
func (t *Tree) Take() Seen {
	events, first, overflow := t.notes.take()
	for _, e := range events {
		t.handle(e)
	}
	for _, name := range t.disk.Answered() {
		t.answered(name)
	}
	now := t.now()
	if overflow || t.rescan || (t.absent != nil && !now.Before(t.retry)) {
		t.readAll(now)
	}
	for p, due := range t.waiting {
		if !now.Before(due) {
			delete(t.waiting, p)
			t.due(p)
		}
	}
	seen := Seen{
		Look: slices.Sorted(maps.Keys(t.look)), First: first,
		Fading: slices.Sorted(maps.Keys(t.fading)), Faults: maps.Clone(t.faults),
	}
	for _, p := range seen.Look {
		t.follow(p)
	}
	clear(t.look)
	clear(t.fading)
	for _, due := range t.waiting {
		seen.Next = earlier(seen.Next, due)
	}
	if t.absent != nil {
		seen.Faults[""] = t.absent
		seen.Next = earlier(seen.Next, t.retry)
	}
	return seen
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// due is for a path whose time to settle is over.
func (t *Tree) due(p string) {
	if t.dirs[p] != nil {
		t.scan(p)
	}
	if !wanted(path.Base(p)) {
		return
	}
	t.look[p] = true
	info, err := t.lstat(p)
	if d := t.dirs[parent(p)]; d != nil && err == nil && !info.IsDir() {
		d.addFile(path.Base(p), isLink(info))
	}
}

func (t *Tree) handle(e event) {
	w := t.watch[e.wd]
	if w == nil {
		return
	}
	for _, p := range slices.Clone(w.dirs) {
		switch {
		case e.what == self && p == "":
			t.detach()
			t.rescan = true
		case e.what == ended:
			t.unregister(p)
		case e.name != "":
			t.entry(p, e)
		}
	}
	if w.parent != "" && e.name == w.parent && (e.what == written || e.what == created) {
		t.rescan = true
	}
	for _, p := range w.targets[e.name] {
		if e.what == written {
			t.atOnce(p)
		} else {
			t.later(p)
		}
	}
	if e.what == ended {
		delete(t.watch, e.wd)
	}
}

// entry handles what happened to a name in folder p.
func (t *Tree) entry(p string, e event) {
	d, at := t.dirs[p], path.Join(p, e.name)
	if d == nil {
		return
	}
	if !wanted(e.name) {
		t.beside(p, d)
	}
	if strings.HasPrefix(e.name, ".") {
		return
	}
	switch e.what {
	case removed:
		if d.subs[e.name] {
			t.drop(at)
		}
		if d.files[e.name] {
			d.forget(e.name)
			t.fade(at)
		}
	case written, created:
		t.appeared(d, at, e)
	case touched:
		if d.subs[e.name] || wanted(e.name) {
			t.later(at)
		}
	case nothing, self, ended:
	}
}

// appeared handles a name that was created, written or moved to its place.
func (t *Tree) appeared(d *dir, at string, e event) {
	name := path.Base(at)
	info, err := t.lstat(at)
	if err != nil {
		if wanted(name) && !e.dir {
			t.later(at)
		}
		return
	}
	link, isFolder := isLink(info), info.IsDir()
	if link {
		isFolder = t.leadsToFolder(d, at)
	}
	if d.subs[name] && !isFolder {
		t.drop(at)
	}
	switch {
	case isFolder:
		d.addSub(name, link)
		t.scan(at)
	case !wanted(name):
	case e.what == written || link || links(info) > 1:
		d.addFile(name, link)
		t.atOnce(at)
	default: // being written; closing it comes as another event, but not for every way of creating
		d.addFile(name, link)
		t.later(at)
	}
}

// beside handles a change, in folder p, of something that is no manifest: links that are
// beside it may lead through it.
func (t *Tree) beside(p string, d *dir) {
	for _, name := range slices.Sorted(maps.Keys(d.links)) {
		if at := path.Join(p, name); d.subs[name] {
			t.scan(at)
		} else {
			t.atOnce(at)
		}
	}
}

func (t *Tree) atOnce(p string) {
	delete(t.waiting, p)
	delete(t.fading, p)
	t.look[p] = true
}

func (t *Tree) later(p string) {
	if _, already := t.waiting[p]; !already {
		t.waiting[p] = t.now().Add(t.settle)
	}
}

func (t *Tree) fade(p string) {
	delete(t.look, p)
	t.fading[p] = true
	t.later(p)
}

func (t *Tree) abs(p string) string { return filepath.Join(t.root, filepath.FromSlash(p)) }

func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return ""
}

// wanted reports whether a file of that name is a manifest.
func wanted(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// readAll reads the tree from its root, which may be another directory than before.
func (t *Tree) readAll(now time.Time) {
	t.rescan, t.absent = false, nil
	info, err := t.stat("")
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "read", Path: t.root, Err: errors.New("is not a directory")}
	}
	if err == nil {
		err = t.watchParent()
	}
	if err == nil {
		t.scan("")
		err = t.faults[""]
	}
	if err != nil {
		t.detach()
		t.absent, t.retry = err, now.Add(absentRetry)
	}
}

// watchParent watches for another link in the place of a root that is a link.
func (t *Tree) watchParent() error {
	info, err := t.lstat("")
	if err != nil || !isLink(info) {
		return err
	}
	wd, err := t.add("", filepath.Dir(t.root))
	if err != nil {
		return err
	}
	t.watched(wd).parent = filepath.Base(t.root)
	return nil
}

func isLink(info fs.FileInfo) bool { return info.Mode()&fs.ModeSymlink != 0 }
