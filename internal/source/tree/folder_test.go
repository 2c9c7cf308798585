//go:build linux

package tree

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A file that is read in a folder of which the tree has not been told is one whose end
// nobody would tell either: until it is told, the file is gone, as it was.
func TestAFileInAFolderThatIsNotKnownYetIsGone(t *testing.T) {
	root := t.TempDir()
	write := func() {
		t.Helper()
		if err := errors.Join(os.Mkdir(filepath.Join(root, "sub"), 0o700), os.WriteFile(filepath.Join(root, "sub", "a.yaml"), []byte("a"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write()
	tr, err := Open(Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	late := time.After(20 * time.Second)
	until := func(what string, ok func(Seen) bool) {
		t.Helper()
		for seen := tr.Take(); !ok(seen); seen = tr.Take() {
			select {
			case <-tr.Wake():
			case <-late:
				t.Fatalf("gave up waiting until %s; the tree has %v", what, tr.dirs)
			}
		}
	}
	until("the file is seen", func(s Seen) bool { return slices.Contains(s.Look, "sub/a.yaml") })
	if err := os.RemoveAll(filepath.Join(root, "sub")); err != nil {
		t.Fatal(err)
	}
	until("the folder is forgotten", func(Seen) bool { return tr.dirs["sub"] == nil })

	write() // and its events have not been taken
	if _, err := tr.Read("sub/a.yaml"); !errors.Is(err, ErrGone) {
		t.Fatalf("before the tree is told of the folder: %v, want ErrGone", err)
	}
	until("the new file is seen", func(s Seen) bool { return slices.Contains(s.Look, "sub/a.yaml") })
	if data, err := tr.Read("sub/a.yaml"); err != nil || string(data) != "a" {
		t.Fatalf("after it: %q, %v", data, err)
	}
}
