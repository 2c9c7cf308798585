// Package statedir is the layout of a standalone instance's state directory: where its
// processes meet, and where a person looks. It is the one place that knows these paths.
package statedir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrInUse says that another instance runs on the directory.
var ErrInUse = errors.New("another instance runs on this state directory")

// ErrExposed says that others than this user could change what is in the directory.
var ErrExposed = errors.New("others may write to it, or it belongs to somebody else")

// maxSocketPath is what fits in a sockaddr_un, without its final zero.
const maxSocketPath = 107

// Dir is a state directory. Paths are absolute.
type Dir struct{ root string }

// Of returns the state directory at path.
func Of(path string) (Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Dir{}, fmt.Errorf("state directory: %w", err)
	}
	return Dir{root: abs}, nil
}

// For returns the default state directory for the manifests in dir: below base (the
// user's state directory), named after dir and told apart by its full path.
func For(base, dir string) (Dir, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Dir{}, fmt.Errorf("manifest directory: %w", err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	sum := sha256.Sum256([]byte(abs))
	return Dir{root: filepath.Join(base, "aether", filepath.Base(abs)+"-"+hex.EncodeToString(sum[:4]))}, nil
}

// The places, for people first.
func (d Dir) Root() string               { return d.root }                          // all of it
func (d Dir) Ready() string              { return filepath.Join(d.root, "ready") }  // exists while Ready
func (d Dir) Status() string             { return filepath.Join(d.root, "status") } // <kind>/<ns>/<name>.yaml
func (d Dir) PIDFile(name string) string { return filepath.Join(d.root, "pids", name) }
func (d Dir) Log(name string) string     { return filepath.Join(d.root, "logs", name+".log") }
func (d Dir) CA() string                 { return filepath.Join(d.root, "ca") } // tls.crt, tls.key
func (d Dir) TrustBundle() string        { return filepath.Join(d.root, "trust-bundle", "ca.crt") }
func (d Dir) Tokens() string             { return filepath.Join(d.root, "tokens.json") } // what the controller accepts
func (d Dir) Token() string              { return filepath.Join(d.root, "discovery-token", "token") }
func (d Dir) Convictions() string        { return filepath.Join(d.root, "convictions.json") } // what the controller has quarantined
func (d Dir) Served() string             { return filepath.Join(d.root, "served.json") }      // by what parameters each Gateway was last
func (d Dir) LastGood() string           { return filepath.Join(d.root, "last-good-proxy") }
func (d Dir) Bootstrap() string          { return filepath.Join(d.root, "envoy", "bootstrap.json") }
func (d Dir) Settings() string           { return filepath.Join(d.root, "settings.json") } // of the running instance

// The sockets, at paths that fit a Unix socket's address once the directory is open.
func (d Dir) ControllerSocket() string { return filepath.Join(d.sockets(), "controller.sock") }
func (d Dir) ProxySocket() string      { return filepath.Join(d.sockets(), "proxy.sock") }
func (d Dir) XDSSocket() string        { return filepath.Join(d.sockets(), "xds.sock") }
func (d Dir) AdminSocket() string      { return filepath.Join(d.sockets(), "admin.sock") }

// run is the directory of the sockets, or a link to one with a shorter path.
func (d Dir) run() string { return filepath.Join(d.root, "run") }

func (d Dir) sockets() string {
	if target, err := os.Readlink(d.run()); err == nil {
		return target
	}
	return d.run()
}

// Open makes the directory and takes it for this process until release is called. Its
// error is ErrInUse if another process has it, and ErrExposed if somebody else could put
// a token, a CA or a link of theirs into it.
func (d Dir) Open() (release func(), err error) {
	for _, sub := range []string{"", "pids", "logs", "trust-bundle", "discovery-token", "envoy"} {
		if err := os.MkdirAll(filepath.Join(d.root, sub), 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
		if !private(filepath.Join(d.root, sub)) {
			return nil, fmt.Errorf("state directory %s: %w", filepath.Join(d.root, sub), ErrExposed)
		}
	}
	lock, err := os.OpenFile(filepath.Join(d.root, "lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		return nil, fmt.Errorf("%s: %w", d.root, ErrInUse)
	}
	clean, err := d.makeRun()
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return func() { clean(); _ = lock.Close() }, nil
}

// Made is which directory this is: not another one of that name. It is an error if there is
// none that an instance has taken.
func (d Dir) Made() (Made, error) {
	info, err := os.Stat(filepath.Join(d.root, "lock"))
	return Made{info}, err
}

// Made tells a state directory from one that was made later in its place.
type Made struct{ lock os.FileInfo }

// Same reports whether both are of one directory. Nobody writes to the lock, so that its
// time tells it from another one with its number.
func (m Made) Same(o Made) bool {
	return os.SameFile(m.lock, o.lock) && m.lock.ModTime().Equal(o.lock.ModTime())
}

// Apart says whether the manifests in dir and the state can be told apart: state below
// dir would be read as manifests, unless what it is in is hidden.
func (d Dir) Apart(dir string) error {
	inside, err := filepath.Rel(resolve(dir), resolve(d.root))
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if inside == "." || (!strings.HasPrefix(inside, ".") && !strings.Contains(inside, string(filepath.Separator)+".")) {
		return fmt.Errorf("state directory %s is among the manifests in %s; name another with --state-dir", d.root, dir)
	}
	return nil
}

// resolve follows the links in path as far as it exists.
func resolve(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	up := filepath.Dir(path)
	if up == path {
		return path
	}
	return filepath.Join(resolve(up), filepath.Base(path))
}

// private reports whether path is a directory that is this user's, and that nobody else may write to.
func private(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int64(owner.Uid) == int64(os.Geteuid()) && info.Mode().Perm()&0o022 == 0
}

// shortPrefix begins the names of the sockets' directories that are made elsewhere.
const shortPrefix = "aether-run-"

// makeRun makes the sockets' directory, or empties it: what an earlier instance left is
// dead. One that is there is used again, because a disk that is full has no room for another.
func (d Dir) makeRun() (clean func(), err error) {
	if target, err := os.Readlink(d.run()); err == nil && ours(target) {
		_ = os.RemoveAll(target)
	}
	if info, err := os.Lstat(d.run()); err != nil || !info.IsDir() || !private(d.run()) {
		if err := os.RemoveAll(d.run()); err != nil {
			return nil, fmt.Errorf("directory for sockets: %w", err)
		}
	}
	if len(d.ControllerSocket()) <= maxSocketPath {
		return func() { _ = empty(d.run()) }, empty(d.run())
	}
	if err := os.RemoveAll(d.run()); err != nil {
		return nil, fmt.Errorf("directory for sockets: %w", err)
	}
	base := os.TempDir()
	if len(filepath.Join(base, shortPrefix+"4294967295", filepath.Base(d.ControllerSocket()))) > maxSocketPath {
		base = "/tmp"
	}
	short, err := os.MkdirTemp(base, shortPrefix)
	if err != nil {
		return nil, fmt.Errorf("directory for sockets: %w", err)
	}
	return func() { _ = os.RemoveAll(short); _ = os.Remove(d.run()) }, os.Symlink(short, d.run())
}

// empty makes a directory with nothing in it.
func empty(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil || !errors.Is(err, os.ErrExist) {
		return err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// ours reports whether a directory elsewhere is one that makeRun made: wherever else the
// link leads, what is there is none of our business.
func ours(target string) bool {
	info, err := os.Lstat(target)
	return err == nil && info.IsDir() && strings.HasPrefix(filepath.Base(target), shortPrefix) && private(target)
}
