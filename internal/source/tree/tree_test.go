//go:build linux

package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follower reads what its tree says deserves a look, as a source would.
type follower struct {
	*testing.T
	root    string
	tree    *Tree
	content map[string]string // by path
	fading  map[string]bool   // every file that was ever said to fade
	looks   int
	faults  map[string]error
	next    time.Time
}

func follow(t *testing.T, root string) *follower {
	t.Helper()
	tr, err := Open(Config{Root: root, Settle: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.Close)
	f := &follower{T: t, root: root, tree: tr, content: map[string]string{}, fading: map[string]bool{}}
	f.take()
	return f
}

func (f *follower) take() {
	seen := f.tree.Take()
	for _, p := range seen.Look {
		f.looks++
		data, err := f.tree.Read(p)
		switch {
		case err == nil:
			f.content[p] = string(data)
		case errors.Is(err, ErrGone):
			delete(f.content, p)
		}
	}
	for _, p := range seen.Fading {
		f.fading[p] = true
	}
	f.faults, f.next = seen.Faults, seen.Next
}

// step waits until the tree has something to say, or something is due, and takes it.
func (f *follower) step(deadline time.Time) bool {
	due := deadline
	if !f.next.IsZero() && f.next.Before(due) {
		due = f.next
	}
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-f.tree.Wake():
	case <-timer.C:
	}
	f.take()
	return time.Now().Before(deadline)
}

// until takes until done says so.
func (f *follower) until(what string, done func() bool) {
	f.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !done() {
		if !f.step(deadline) {
			f.Fatalf("%s: not within 10 s; content %v, faults %v", what, f.content, f.faults)
		}
	}
}

func (f *follower) want(content map[string]string) {
	f.Helper()
	f.until(fmt.Sprintf("want %v", content), func() bool { return maps.Equal(f.content, content) })
}

func (f *follower) path(p string) string { return filepath.Join(f.root, p) }

func (f *follower) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *follower) write(p, text string) {
	f.Helper()
	f.must(os.MkdirAll(filepath.Dir(f.path(p)), 0o755))
	f.must(os.WriteFile(f.path(p), []byte(text), 0o644))
}

// place renames a finished file into place.
func (f *follower) place(p, text string) {
	f.Helper()
	temp := filepath.Join(filepath.Dir(p), ".tmp-"+filepath.Base(p))
	f.write(temp, text)
	f.must(os.Rename(f.path(temp), f.path(p)))
}

func TestFollowsWhatHappensToFiles(t *testing.T) {
	cases := map[string]func(f *follower){
		"a file renamed into place": func(f *follower) {
			f.place("a.yaml", "1")
			f.want(map[string]string{"a.yaml": "1"})
			f.place("a.yaml", "2")
			f.want(map[string]string{"a.yaml": "2"})
		},
		"a file written in place": func(f *follower) {
			f.write("a.json", "1")
			f.want(map[string]string{"a.json": "1"})
			f.write("a.json", "2")
			f.want(map[string]string{"a.json": "2"})
		},
		"a file removed": func(f *follower) {
			f.write("a.yml", "1")
			f.want(map[string]string{"a.yml": "1"})
			f.must(os.Remove(f.path("a.yml")))
			f.want(map[string]string{})
		},
		"a file with another name": func(f *follower) {
			f.write("a.yaml", "1")
			f.want(map[string]string{"a.yaml": "1"})
			f.must(os.Rename(f.path("a.yaml"), f.path("b.yaml")))
			f.want(map[string]string{"b.yaml": "1"})
		},
		"a file with another suffix is a manifest no more": func(f *follower) {
			f.write("a.yaml", "1")
			f.want(map[string]string{"a.yaml": "1"})
			f.must(os.Rename(f.path("a.yaml"), f.path("a.yaml.off")))
			f.want(map[string]string{})
		},
		"other files and hidden ones": func(f *follower) {
			for _, p := range []string{"a.txt", ".b.yaml", "c.yaml~", ".git/d.yaml", "yaml"} {
				f.write(p, "1")
			}
			f.write("z.yaml", "1")
			f.want(map[string]string{"z.yaml": "1"})
		},
		"a new folder with files, and its removal": func(f *follower) {
			f.write("a/b/c.yaml", "1")
			f.write("a/d.yaml", "2")
			f.want(map[string]string{"a/b/c.yaml": "1", "a/d.yaml": "2"})
			f.place("a/b/c.yaml", "3")
			f.want(map[string]string{"a/b/c.yaml": "3", "a/d.yaml": "2"})
			f.must(os.RemoveAll(f.path("a")))
			f.want(map[string]string{})
			f.write("a/b/c.yaml", "4")
			f.want(map[string]string{"a/b/c.yaml": "4"})
		},
		"a folder with another name": func(f *follower) {
			f.write("a/b/c.yaml", "1")
			f.want(map[string]string{"a/b/c.yaml": "1"})
			f.must(os.Rename(f.path("a"), f.path("z")))
			f.want(map[string]string{"z/b/c.yaml": "1"})
			f.write("z/b/c.yaml", "2")
			f.want(map[string]string{"z/b/c.yaml": "2"})
		},
		"a folder moved away is followed no more": func(f *follower) {
			f.write("a/c.yaml", "1")
			f.want(map[string]string{"a/c.yaml": "1"})
			away := filepath.Join(f.TempDir(), "away")
			f.must(os.Rename(f.path("a"), away))
			f.want(map[string]string{})
			f.must(os.WriteFile(filepath.Join(away, "d.yaml"), nil, 0o644))
			f.write("z.yaml", "1")
			f.want(map[string]string{"z.yaml": "1"})
		},
		"a hard link": func(f *follower) {
			f.write("a.txt", "1")
			f.must(os.Link(f.path("a.txt"), f.path("a.yaml")))
			f.want(map[string]string{"a.yaml": "1"})
		},
		"the root removed and made again": func(f *follower) {
			f.write("a/a.yaml", "1")
			f.want(map[string]string{"a/a.yaml": "1"})
			f.must(os.Rename(f.root, f.root+"-away"))
			f.until("the root is missed", func() bool { return f.faults[""] != nil })
			f.must(os.RemoveAll(f.root + "-away"))
			if len(f.content) != 1 {
				f.Errorf("content %v while the root is away, want it kept", f.content)
			}
			f.write("a/b.yaml", "2")
			f.want(map[string]string{"a/b.yaml": "2"})
			f.until("the root is back", func() bool { return f.faults[""] == nil })
			f.write("a/b.yaml", "3")
			f.want(map[string]string{"a/b.yaml": "3"})
		},
		"another directory in the root's place": func(f *follower) {
			f.write("a.yaml", "1")
			f.want(map[string]string{"a.yaml": "1"})
			next := f.root + "-next"
			f.must(os.Mkdir(next, 0o755))
			f.must(os.WriteFile(filepath.Join(next, "b.yaml"), []byte("2"), 0o644))
			f.must(os.Rename(f.root, f.root+"-away"))
			f.must(os.Rename(next, f.root))
			f.want(map[string]string{"b.yaml": "2"})
			f.write("b.yaml", "3")
			f.want(map[string]string{"b.yaml": "3"})
		},
		"a mounted ConfigMap": func(f *follower) {
			f.write("..one/a.yaml", "1")
			f.must(os.Symlink("..one", f.path("..data")))
			f.must(os.Symlink("..data/a.yaml", f.path("a.yaml")))
			f.want(map[string]string{"a.yaml": "1"})
			f.write("..two/a.yaml", "2")
			f.must(os.Symlink("..two", f.path("..data_tmp")))
			f.must(os.Rename(f.path("..data_tmp"), f.path("..data")))
			f.must(os.RemoveAll(f.path("..one")))
			f.want(map[string]string{"a.yaml": "2"})
		},
		"a link to a file elsewhere that is written": func(f *follower) {
			target := filepath.Join(f.TempDir(), "target")
			f.must(os.WriteFile(target, []byte("1"), 0o644))
			f.must(os.Symlink(target, f.path("a.yaml")))
			f.want(map[string]string{"a.yaml": "1"})
			f.must(os.WriteFile(target, []byte("2"), 0o644))
			f.want(map[string]string{"a.yaml": "2"})
			f.must(os.WriteFile(target+"x", []byte("3"), 0o644))
			f.must(os.Rename(target+"x", target))
			f.want(map[string]string{"a.yaml": "3"})
			f.must(os.Remove(f.path("a.yaml")))
			f.want(map[string]string{})
		},
		"a link to a folder, and to another": func(f *follower) {
			one, two := f.TempDir(), f.TempDir()
			f.must(os.WriteFile(filepath.Join(one, "a.yaml"), []byte("1"), 0o644))
			f.must(os.WriteFile(filepath.Join(two, "b.yaml"), []byte("2"), 0o644))
			f.must(os.Symlink(one, f.path("sub")))
			f.want(map[string]string{"sub/a.yaml": "1"})
			f.must(os.WriteFile(filepath.Join(one, "a.yaml"), []byte("3"), 0o644))
			f.want(map[string]string{"sub/a.yaml": "3"})
			f.must(os.Symlink(two, f.path(".next")))
			f.must(os.Rename(f.path(".next"), f.path("sub")))
			f.want(map[string]string{"sub/b.yaml": "2"})
			f.must(os.WriteFile(filepath.Join(two, "b.yaml"), []byte("4"), 0o644))
			f.want(map[string]string{"sub/b.yaml": "4"})
		},
		"a link in a circle": func(f *follower) {
			f.write("a/a.yaml", "1")
			f.must(os.Symlink("..", f.path("a/up")))
			f.write("a/b.yaml", "2")
			f.want(map[string]string{"a/a.yaml": "1", "a/b.yaml": "2"})
		},
		"a folder in the place of a file, and back": func(f *follower) {
			f.write("a.yaml", "1")
			f.want(map[string]string{"a.yaml": "1"})
			f.must(os.Remove(f.path("a.yaml")))
			f.write("a.yaml/b.yaml", "2")
			f.want(map[string]string{"a.yaml/b.yaml": "2"})
			f.must(os.RemoveAll(f.path("a.yaml")))
			f.write("a.yaml", "3")
			f.want(map[string]string{"a.yaml": "3"})
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			if err := os.Mkdir(root, 0o755); err != nil {
				t.Fatal(err)
			}
			run(follow(t, root))
		})
	}
}

func TestARootThatIsALinkMayLeadElsewhere(t *testing.T) {
	base := t.TempDir()
	for i, dir := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(base, dir, dir+".yaml"), []byte{byte('1' + i)}, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("one", filepath.Join(base, "root")); err != nil {
		t.Fatal(err)
	}
	f := follow(t, filepath.Join(base, "root"))
	f.want(map[string]string{"one.yaml": "1"})
	f.must(os.Symlink("two", filepath.Join(base, "next")))
	f.must(os.Rename(filepath.Join(base, "next"), f.root))
	f.want(map[string]string{"two.yaml": "2"})
}

func TestReadRefusesWithoutWaiting(t *testing.T) {
	f := follow(t, t.TempDir())
	f.must(syscall.Mkfifo(f.path("pipe.yaml"), 0o600))
	f.must(os.Symlink("nowhere", f.path("link.yaml")))
	f.must(os.WriteFile(f.path("large.yaml"), nil, 0o600))
	f.must(os.Truncate(f.path("large.yaml"), MaxFile+1))
	for _, p := range []string{"pipe.yaml", "link.yaml", "large.yaml"} {
		if _, err := f.tree.Read(p); err == nil || errors.Is(err, ErrGone) {
			t.Errorf("Read(%s): %v, want a refusal", p, err)
		}
	}
}

func TestARootThatComesLater(t *testing.T) {
	f := follow(t, filepath.Join(t.TempDir(), "late"))
	if f.faults[""] == nil {
		t.Fatal("a missing root is no fault")
	}
	f.write("a.yaml", "1")
	f.want(map[string]string{"a.yaml": "1"})
}

func TestAFileThatAnEditorReplacesIsNeverGone(t *testing.T) {
	f := follow(t, t.TempDir())
	f.write("a.yaml", "1")
	f.want(map[string]string{"a.yaml": "1"})
	f.must(os.Rename(f.path("a.yaml"), f.path("a.yaml~")))
	f.until("the file fades", func() bool {
		if len(f.content) != 1 {
			t.Fatal("the file is gone at once")
		}
		return f.fading["a.yaml"]
	})
	f.write("a.yaml", "2")
	f.must(os.Remove(f.path("a.yaml~")))
	f.until("the file is read again", func() bool {
		if len(f.content) != 1 {
			t.Fatal("the file was gone for a moment")
		}
		return f.content["a.yaml"] == "2"
	})
}

func TestOneFilesChangeLooksAtOneFile(t *testing.T) {
	root := t.TempDir()
	for i := range 300 {
		if err := os.WriteFile(filepath.Join(root, fmt.Sprintf("%03d.yaml", i)), []byte("1"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f := follow(t, root)
	if len(f.content) != 300 {
		t.Fatalf("%d files found, want 300", len(f.content))
	}
	before := f.looks
	f.place("007.yaml", "2")
	f.until("the change is seen", func() bool { return f.content["007.yaml"] == "2" })
	if got := f.looks - before; got != 1 {
		t.Errorf("%d looks for one file renamed into place, want 1", got)
	}
}

func TestLostEventsMakeTheTreeReadAgain(t *testing.T) {
	f := follow(t, t.TempDir())
	f.write("a.yaml", "1")
	f.write("b.yaml", "1")
	f.want(map[string]string{"a.yaml": "1", "b.yaml": "1"})

	// The kernel's queue overflows: what happened meanwhile is told by nobody.
	f.must(os.Remove(f.path("a.yaml")))
	f.must(os.WriteFile(f.path("b.yaml"), []byte("2"), 0o644))
	f.until("the events are queued", func() bool {
		f.tree.notes.mu.Lock()
		defer f.tree.notes.mu.Unlock()
		lost := len(f.tree.notes.queue) > 0
		f.tree.notes.queue = nil
		return lost || f.content["b.yaml"] == "2"
	})
	f.tree.notes.push([]event{{wd: -1, lost: true}})
	f.want(map[string]string{"b.yaml": "2"})
}

func TestTooManyEventsAreAnOverflow(t *testing.T) {
	tr, err := Open(Config{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	tr.notes.push(make([]event, maxQueued))
	tr.notes.push(make([]event, 1))
	if events, _, overflow := tr.notes.take(); len(events) != 0 || !overflow {
		t.Errorf("%d events, overflow %v; want none and an overflow", len(events), overflow)
	}
}

func TestAFolderThatCannotBeReadKeepsItsFiles(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root reads everything: the fault is provoked by a file in the folder's place instead")
	}
	f := follow(t, t.TempDir())
	f.write("a/b.yaml", "1")
	f.want(map[string]string{"a/b.yaml": "1"})
	f.must(os.Chmod(f.path("a"), 0))
	f.write("z.yaml", "1")
	f.until("the neighbour is seen", func() bool { return f.content["z.yaml"] == "1" })
	f.must(os.Chmod(f.path("a"), 0o755))
	f.until("no fault is left", func() bool { return len(f.faults) == 0 })
	f.want(map[string]string{"a/b.yaml": "1", "z.yaml": "1"})
}

// TestRandom does random things to a tree of files and then compares what was followed
// with what is there.
func TestRandom(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			f := follow(t, t.TempDir())
			names := []string{"a.yaml", "b.json", "c.txt", ".d.yaml", "x/a.yaml", "x/y/a.yaml", "z/b.yaml", "z/y/c.yml"}
			pick := func() string { return names[r.IntN(len(names))] }
			var log []string
			for i := range 60 {
				a, b := pick(), pick()
				switch r.IntN(8) {
				case 0, 1:
					f.write(a, fmt.Sprint(i))
					log = append(log, "write "+a)
				case 2, 3:
					f.place(a, fmt.Sprint(i))
					log = append(log, "place "+a)
				case 4:
					_ = os.Remove(f.path(a))
					log = append(log, "remove "+a)
				case 5:
					_ = os.Rename(f.path(a), f.path(b))
					log = append(log, "rename "+a+" "+b)
				case 6:
					da, db := filepath.Dir(a), filepath.Dir(b)
					_ = os.Rename(f.path(da), f.path(db))
					log = append(log, "rename "+da+" "+db)
				case 7:
					if d := filepath.Dir(a); d != "." && r.IntN(3) == 0 {
						_ = os.RemoveAll(f.path(d))
						log = append(log, "remove "+d)
					}
				}
				if r.IntN(4) == 0 {
					f.take()
				}
			}
			want := present(t, f.root)
			f.until("what is followed is what is there", func() bool { return cmp.Equal(f.content, want) })
			if t.Failed() {
				t.Log(strings.Join(log, "\n"))
			}
		})
	}
}

// present reads every manifest under root by walking.
func present(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		hidden := slices.ContainsFunc(strings.Split(rel, "/"), func(s string) bool { return len(s) > 1 && s[0] == '.' })
		if e.IsDir() || hidden || !wanted(e.Name()) {
			return nil
		}
		data, err := os.ReadFile(p)
		out[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
