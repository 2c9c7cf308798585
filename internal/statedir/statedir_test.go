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
	path := t.TempDir()
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
			if _, err := os.Stat(sockets); !os.IsNotExist(err) {
				t.Fatalf("sockets' directory is left behind (%v)", err)
			}
		})
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
