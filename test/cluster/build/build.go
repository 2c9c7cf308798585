// Package build makes the programs of the test cluster. Each is a Go module of its own,
// in a folder of this repository, because what it is made of can't share the product's
// go.mod. A program is built once for what it is made of and kept in the cache:
//
//	<cache>/cluster/<name>-<key>/<name>
//
// where key is a hash of the module's files, the flags, the Go version and the platform.
// The package knows nothing of what the programs do.
package build

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// ErrNotBuilt says that a program is not in the cache.
var ErrNotBuilt = errors.New("not built: run `make cluster-programs`")

// Program is what is built.
type Program struct {
	Name    string // of the program and of its file
	Dir     string // the folder of its module, with go.mod, go.sum and its own code, if any
	Package string // of the module or one that it requires; empty: the module's own
	LDFlags string // besides -s -w
	C       bool   // it has code in C, for which a C compiler and its static libraries are needed
}

// kubernetesVersion is told by every program of Kubernetes; clients ask for it. It is
// the version that go.mod of the module requires, which a test holds it to.
const kubernetesVersion = "1.37.2"

// Kubernetes is the programs of Kubernetes and etcd in one; root is the repository's.
func Kubernetes(root string) Program {
	const pkg = "k8s.io/component-base/version."
	major, minor, _ := strings.Cut(kubernetesVersion, ".")
	minor, _, _ = strings.Cut(minor, ".")
	return Program{
		Name: "kubernetes",
		Dir:  filepath.Join(root, "test/cluster/kubernetes"),
		LDFlags: strings.Join([]string{
			"-X " + pkg + "gitVersion=v" + kubernetesVersion,
			"-X " + pkg + "gitMajor=" + major,
			"-X " + pkg + "gitMinor=" + minor,
			"-X " + pkg + "gitTreeState=clean",
		}, " "),
	}
}

// CoreDNS is the cluster's name server; root is the repository's.
func CoreDNS(root string) Program {
	return Program{Name: "coredns", Dir: filepath.Join(root, "test/cluster/coredns")}
}

// helmVersion is told by Helm, and is what go.mod of its module requires: a test holds it to
// that.
const helmVersion = "4.3.2"

// Helm installs the charts; root is the repository's.
func Helm(root string) Program {
	const module = "helm.sh/helm/v4"
	return Program{
		Name: "helm", Dir: filepath.Join(root, "tools/helm"), Package: module + "/cmd/helm",
		LDFlags: "-X " + module + "/internal/version.version=v" + helmVersion,
	}
}

// SPIRE is its server, its agent and SPIFFE's driver of volumes in one; root is the repository's.
// Its database is written in C.
func SPIRE(root string) Program {
	return Program{Name: "spire", Dir: filepath.Join(root, "test/cluster/spire/program"), C: true}
}

// Collector is the OpenTelemetry Collector that tests export to; root is the repository's.
func Collector(root string) Program {
	return Program{Name: "collector", Dir: filepath.Join(root, "tools/collector")}
}

// Root finds the repository from a folder in it: tests run in that of their package.
func Root(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for d := abs; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "tools", "versions.env")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not in the repository", abs)
		}
	}
}

// Cache is where fetched and built things are kept on this machine.
func Cache() (string, error) {
	if dir := os.Getenv("AETHER_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache (set AETHER_CACHE): %w", err)
	}
	return filepath.Join(dir, "aether"), nil
}

// Tool is the file of a small command in a folder of test/cluster, which is built anew by each make
// that needs it, or ErrNotBuilt; root is the repository's.
func Tool(root, name string) (string, error) {
	path := filepath.Join(root, ".build/cluster-tools", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w", name, ErrNotBuilt)
	}
	return path, nil
}

// Find returns the program's path, or ErrNotBuilt.
func (p Program) Find(cache string) (string, error) {
	path, err := p.path(cache)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w", p.Name, ErrNotBuilt)
	}
	return path, nil
}

// Make returns the program's path and builds it first if it is not in the cache, telling
// out how far it is. Several at a time wait for the first. A build that is stopped leaves
// the compiled packages in Go's own cache, so the next one goes on from there.
func (p Program) Make(ctx context.Context, cache string, out io.Writer) (string, error) {
	path, err := p.path(cache)
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(dir, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	tmp := path + ".new" // ours alone, by the lock
	defer os.Remove(tmp)
	if err := p.compile(ctx, out, p.flags(), tmp); err != nil {
		return "", fmt.Errorf("build %s: %w", p.Name, err)
	}
	return path, os.Rename(tmp, path)
}

// flags are those of the go command. What is in C is linked statically as well, which leaves out
// what asks the C library for names: it would load more of itself.
func (p Program) flags() []string {
	ld := strings.TrimSpace("-s -w " + p.LDFlags)
	if !p.C {
		return []string{"-trimpath", "-ldflags", ld}
	}
	return []string{"-trimpath", "-tags", "netgo,osusergo,sqlite_omit_load_extension", "-ldflags", ld + " -linkmode external -extldflags -static"}
}

// compile runs the go command and follows what it says.
func (p Program) compile(ctx context.Context, out io.Writer, flags []string, target string) error {
	stale := p.goCommand(ctx, append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, append(flags, p.target())...)...)
	var stderr bytes.Buffer
	stale.Stderr = &stderr
	list, err := stale.Output()
	if err != nil {
		return fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	m := newMeter(out, p.Name, len(strings.Fields(string(list))))
	defer m.stop()
	cmd := p.goCommand(ctx, append([]string{"build", "-v", "-o", target}, append(flags, p.target())...)...)
	cmd.Stderr = m
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, m.complaints())
	}
	return nil
}

func (p Program) target() string { return cmp.Or(p.Package, ".") }

// goCommand runs in the module, whatever workspace or flags the caller has. The program
// is static: images are made of it.
func (p Program) goCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = p.Dir
	cgo := "CGO_ENABLED=0"
	if p.C {
		cgo = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), cgo, "GOFLAGS=-buildvcs=false", "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its temporary files
	return cmd
}

// path says where the program is or would be.
func (p Program) path(cache string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, p.LDFlags)
	if p.Package != "" {
		fmt.Fprintln(h, p.Package)
	}
	if p.C {
		fmt.Fprintln(h, p.flags())
	}
	files, err := filepath.Glob(filepath.Join(p.Dir, "*"))
	if err != nil {
		return "", err
	}
	found := false
	for _, f := range files { // sorted
		name := filepath.Base(f)
		if name != "go.mod" && name != "go.sum" && filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		found = true
		data, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %x\n", name, sha256.Sum256(data))
	}
	if !found {
		return "", fmt.Errorf("%s has no Go module", p.Dir)
	}
	key := hex.EncodeToString(h.Sum(nil))[:16]
	return filepath.Join(cache, "cluster", p.Name+"-"+key, p.Name), nil
}

// lock waits until no other process holds the file, and holds it until unlock.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
