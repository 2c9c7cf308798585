package statedir_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/internal/statedir"
)

func open(t *testing.T, path string) (statedir.Dir, func()) {
	t.Helper()
	d, err := statedir.Of(path)
	if err != nil {
		t.Fatal(err)
	}
	release, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	return d, release
}

func TestOneInstanceHasTheDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	d, release := open(t, path)
	if _, err := d.Open(); !errors.Is(err, statedir.ErrInUse) {
		t.Fatalf("second Open: %v, want ErrInUse", err)
	}
	release()
	_, again := open(t, path)
	again()
}

func TestSocketsFitWhereverTheDirectoryIs(t *testing.T) {
	for name, path := range map[string]string{
		"a short path": filepath.Join(t.TempDir(), "d"),
		"a long path":  filepath.Join(t.TempDir(), strings.Repeat("long-", 30)),
	} {
		t.Run(name, func(t *testing.T) {
			d, release := open(t, path)
			l, err := net.Listen("unix", d.ControllerSocket())
			if err != nil {
				t.Fatal(err)
			}
			other, err := statedir.Of(path) // as a second process sees it
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("unix", other.ControllerSocket())
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			_ = l.Close()
			sockets := filepath.Dir(d.ControllerSocket())
			release()
			if left, err := os.ReadDir(sockets); len(left) > 0 || err != nil && !os.IsNotExist(err) {
				t.Fatalf("left behind: %v (%v)", left, err)
			}
		})
	}
}

func TestTheSocketsDirectoryOfBeforeIsUsedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	d, release := open(t, path)
	before, err := os.Stat(filepath.Dir(d.ControllerSocket()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.XDSSocket(), nil, 0o600); err != nil { // of a process that was killed
		t.Fatal(err)
	}
	release()
	_, again := open(t, path)
	defer again()
	after, err := os.Stat(filepath.Dir(d.ControllerSocket()))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("it was made anew, which a full disk has no room for (%v)", err)
	}
	if _, err := os.Lstat(d.XDSSocket()); !os.IsNotExist(err) {
		t.Errorf("a dead socket is left in it (%v)", err)
	}
}

func TestADirectoryThatWasMadeAgainIsAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	d, release := open(t, path)
	defer release()
	first, err := d.Made()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.Made(); err != nil || !again.Same(first) {
		t.Errorf("it is another one, %v", err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Made(); err == nil {
		t.Error("one that is removed is there")
	}
	_, release = open(t, path) // although this process has the lock of before
	defer release()
	if again, err := d.Made(); err != nil || again.Same(first) {
		t.Errorf("it is the same as before it was removed, %v", err)
	}
}

func TestTwoManifestDirectoriesOfOneNameAreToldApart(t *testing.T) {
	base := t.TempDir()
	a, err := statedir.For(base, filepath.Join(base, "x", "app"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := statedir.For(base, filepath.Join(base, "y", "app"))
	if err != nil {
		t.Fatal(err)
	}
	if a.Root() == b.Root() || !strings.HasPrefix(filepath.Base(a.Root()), "app-") {
		t.Fatalf("%s and %s", a.Root(), b.Root())
	}
}

func TestADirectoryThatOthersMayWriteToIsRefused(t *testing.T) {
	for name, sub := range map[string]string{"the directory itself": "", "what holds the token": "discovery-token"} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "d")
			exposed := filepath.Join(root, sub)
			if err := os.MkdirAll(exposed, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(exposed, 0o777); err != nil {
				t.Fatal(err)
			}
			d, err := statedir.Of(root)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Open(); !errors.Is(err, statedir.ErrExposed) {
				t.Fatalf("Open: %v, want ErrExposed", err)
			}
		})
	}
}

func TestWhereALinkThatIsNotOursLeadsNothingIsRemoved(t *testing.T) {
	root, elsewhere := filepath.Join(t.TempDir(), "d"), t.TempDir()
	precious := filepath.Join(elsewhere, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(root, "run")); err != nil {
		t.Fatal(err)
	}
	_, release := open(t, root)
	release()
	if _, err := os.Stat(precious); err != nil {
		t.Fatal(err)
	}
}

func TestSocketsFitWhereverTemporaryFilesAre(t *testing.T) {
	temp := filepath.Join(t.TempDir(), strings.Repeat("long-", 30))
	if err := os.MkdirAll(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	d, release := open(t, filepath.Join(temp, "d"))
	defer release()
	l, err := net.Listen("unix", d.ControllerSocket())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

func TestStateAmongTheManifestsIsRefused(t *testing.T) {
	base := t.TempDir()
	manifests := filepath.Join(base, "m")
	if err := os.Mkdir(manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(manifests, filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	for path, apart := range map[string]bool{
		"m": false, "m/state": false, "m/a/state": false, "link/state": false, "link": false,
		"m/.aether": true, "m/a/.b/state": true, "state": true, "m-state": true, ".": true,
	} {
		d, err := statedir.Of(filepath.Join(base, path))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Apart(manifests); (err == nil) != apart {
			t.Errorf("%s: %v", path, err)
		}
	}
}
