//go:build component

package standalone_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"aether.io/aether/internal/test/instance"
)

// smallDisk makes a directory for a state that can be filled: a file system of its own for
// root, and for anybody else directories that nothing can be made in, which fails at the
// same places.
func smallDisk(t *testing.T) (state string, fill, free func()) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	base := t.TempDir()
	state = filepath.Join(base, "state")
	if os.Geteuid() != 0 {
		chmod := func(mode os.FileMode) func() {
			return func() {
				for _, dir := range []string{".", "source", "last-good", "status", "trust-bundle", "discovery-token", "envoy", "last-good-proxy", "pids"} {
					must(os.Chmod(filepath.Join(state, dir), mode))
				}
			}
		}
		t.Cleanup(chmod(0o700))
		return state, chmod(0o500), chmod(0o700)
	}
	if err := syscall.Mount("aether-test", base, "tmpfs", 0, "size=8m,mode=0700"); err != nil {
		t.Fatalf("mount a small file system (run this as root that may, or as another user): %v", err)
	}
	t.Cleanup(func() { must(syscall.Unmount(base, syscall.MNT_DETACH)) })
	ballast := filepath.Join(base, "ballast")
	fill = func() {
		f, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		must(err)
		defer f.Close()
		for block := make([]byte, 64<<10); len(block) > 0; { // to the last byte
			if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
				block = block[:len(block)/2]
			} else {
				must(err)
			}
		}
	}
	return state, fill, func() { must(os.Remove(ballast)) }
}

func TestAFullDiskAtTheStartStopsNothing(t *testing.T) {
	state, fill, free := smallDisk(t)
	files := map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "route.yaml": route("one", "a")}
	dir := filepath.Join(t.TempDir(), "manifests")
	first := startIn(t, dir, state, files)
	first.answers("one.example.com", http.StatusOK, "a")
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	fill()
	w := startIn(t, dir, state, nil)
	w.answers("one.example.com", http.StatusOK, "a")
	w.write("two.yaml", route("two", "a"))
	w.answers("two.example.com", http.StatusOK, "a")
	w.eventually("status says what cannot be written", func() (bool, string) {
		out := w.aetherctl("status")
		return strings.Contains(out, "position.json"), out
	})
	if !strings.Contains(w.Output(), "position.json") {
		t.Errorf("the person at the terminal is not told:\n%s", w.Output())
	}
	for _, program := range []string{"aether-controller", "aether-proxy", filepath.Base(envoy)} {
		w.kill(program)
		name := "after-" + program
		w.write(name+".yaml", route(name, "a"))
		w.answers(name+".example.com", http.StatusOK, "a")
	}
	w.write("three.yaml", route("three", "a"))
	w.answers("three.example.com", http.StatusOK, "a")
	free()
	w.eventually("nothing is wrong any more", func() (bool, string) {
		out := w.aetherctl("status")
		return !strings.Contains(out, "position.json") && !strings.Contains(out, "last-good"), out
	})
	w.conditionBecomes("httproute/default/three.yaml", "config.aether.io/Programmed", "True")
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	last := startIn(t, dir, state, nil)
	last.write("four.yaml", route("four", "a"))
	last.answers("four.example.com", http.StatusOK, "a")
}

// kill ends the child of the supervisor that runs a program. Its pid file may be missing:
// there was no room for it.
func (w *world) kill(program string) {
	w.t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range found {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		line, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		name, _, _ := strings.Cut(string(line), "\x00")
		if fields := strings.Fields(rest); err != nil || len(fields) < 2 || fields[1] != strconv.Itoa(w.Supervisor()) || filepath.Base(name) != program {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			w.t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	w.t.Fatalf("no %s runs", program)
}

func TestADamagedCAIsShownUntilItIsMended(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway})
	key := filepath.Join(w.State.CA(), "tls.key")
	good, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text  []byte
		shown bool
		told  string
	}{{[]byte("damaged"), true, "! " + w.State.CA() + ": CA does not parse"}, {good, false, "CA is good again"}} {
		if err := os.WriteFile(key, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		w.eventually(fmt.Sprintf("status shows it: %v", c.shown), func() (bool, string) {
			out := w.aetherctl("status")
			return strings.Contains(out, w.State.CA()) == c.shown, out
		})
		w.eventually("it is told", func() (bool, string) { return strings.Contains(w.Output(), c.told), w.Output() })
	}
}

func TestAnEnvoyThatNeverStartsIsToldOfAgainAndAgain(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "envoy")
	if err := os.WriteFile(bad, []byte("#!/bin/sh\necho 'cannot run on this machine' >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binaries, "aetherctl"), "standalone", dir, "--state-dir", filepath.Join(t.TempDir(), "state"), "--envoy", bad)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	var all []string
	told := false
	for lines := bufio.NewScanner(out); !told && lines.Scan(); {
		all = append(all, lines.Text())
		told = strings.Contains(lines.Text(), "envoy ended with exit status 3 and said last: cannot run on this machine") && strings.Contains(lines.Text(), "4 times in a row")
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_, _ = io.Copy(io.Discard, out) // it says more while it stops
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if text := strings.Join(all, "\n"); !told || strings.Contains(text, "<nil>") {
		t.Errorf("not told, or with an error that is none:\n%s", text)
	}
}

func TestAStateDirectoryThatIsRemovedCostsNoRequest(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "route.yaml": route("one", "a")})
	w.answers("one.example.com", http.StatusOK, "a")
	w.write("route.yaml", "a: [") // what is served now is known from before
	w.eventually("the file is refused", func() (bool, string) {
		out := w.aetherctl("status")
		return strings.Contains(out, "route.yaml"), out
	})
	stop := w.constantly("one.example.com")
	if err := os.RemoveAll(w.State.Root()); err != nil {
		t.Logf("%v", err) // something was written meanwhile
		if err := os.RemoveAll(w.State.Root()); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("it is told", func() (bool, string) {
		return strings.Contains(w.Output(), "was removed; it is made again"), w.Output()
	})
	w.conditionBecomes("httproute/default/one.yaml", "config.aether.io/Programmed", "True")
	w.write("two.yaml", route("two", "a"))
	w.answers("two.example.com", http.StatusOK, "a")
	for _, path := range []string{w.State.Ready(), w.State.Settings(), w.State.TrustBundle(), w.State.Bootstrap(), filepath.Join(w.State.Root(), "source", "position.json")} {
		w.eventually(path+" is there again", func() (bool, string) { _, err := os.Stat(path); return err == nil, fmt.Sprint(err) })
	}
	if _, err := w.Signal("controller", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.write("three.yaml", route("three", "a"))
	w.answers("three.example.com", http.StatusOK, "a")
	w.answers("one.example.com", http.StatusOK, "a")
	if bad := stop(); len(bad) > 0 {
		t.Errorf("%d requests were not answered: %v", len(bad), bad[:min(len(bad), 5)])
	}
}

// constantly sends requests until stop, which returns the answers that were not 200.
func (w *world) constantly(host string) (stop func() (bad []string)) {
	ending, done := make(chan struct{}), make(chan []string, 1)
	go func() {
		var bad []string
		for {
			select {
			case <-ending:
				done <- bad
				return
			case <-time.After(10 * time.Millisecond):
			}
			if code, body := w.get(host); code != http.StatusOK {
				bad = append(bad, fmt.Sprint(time.Now().Format("15:04:05.000"), " ", code, " ", body))
			}
		}
	}()
	return func() []string { close(ending); return <-done }
}

func TestAControllerThatRefusesItsFlagsEndsTheInstance(t *testing.T) {
	work := t.TempDir()
	for _, flag := range []string{"--no-such-flag", "--trace-sample-rate=7"} {
		ctx, cancel := context.WithTimeout(t.Context(), instance.StartTimeout)
		out, err := exec.CommandContext(ctx, filepath.Join(binaries, "aetherctl"), "standalone", t.TempDir(), "--state-dir", filepath.Join(work, "state"), "--envoy", envoy, "--controller-flag="+flag).CombinedOutput()
		if code := (*exec.ExitError)(nil); !errors.As(err, &code) || code.ExitCode() != 1 || ctx.Err() != nil {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
		cancel()
		name, _, _ := strings.Cut(flag, "=")
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if last := lines[len(lines)-1]; !strings.Contains(last, "start controller: it was started wrongly: aether-controller: ") || !strings.Contains(last, name) {
			t.Errorf("%s: it says last: %s", flag, last)
		}
	}
}
