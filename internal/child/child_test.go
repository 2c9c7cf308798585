package child_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"aether.io/aether/internal/child"
)

func TestMain(m *testing.M) {
	// The test binary is also the parent that TestNoOrphan kills.
	if os.Getenv("AETHER_TEST_PARENT") != "" {
		parent(os.Getenv("AETHER_TEST_PARENT"))
		return
	}
	goleak.VerifyTestMain(m)
}

func sleeper() *exec.Cmd { return exec.Command("sleep", "300") }

func parent(pidFile string) {
	p, err := child.New(child.Config{Name: "sleeper", Command: sleeper, PIDFile: pidFile})
	if err != nil {
		os.Exit(1)
	}
	_ = p.Run(context.Background())
}

// alive reports whether pid is a process that has not been reaped or become a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	rest := string(stat[bytes.LastIndexByte(stat, ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(rest), "Z")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("gave up waiting until %s", what)
		case <-tick.C:
		}
	}
}

func TestRunRestartsAChildThatIsKilledAndStopsIt(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "pids", "sleeper")
	starts := make(chan int, 8)
	p, err := child.New(child.Config{
		Name: "sleeper", Command: sleeper, PIDFile: pidFile, MinWait: time.Millisecond,
		OnStart: func(pid int) { starts <- pid },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()

	first := <-starts
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := <-starts
	written, err := os.ReadFile(pidFile)
	if err != nil || strings.TrimSpace(string(written)) != strconv.Itoa(second) {
		t.Fatalf("pid file holds %q (%v), want %d", written, err, second)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatalf("Run: %v", err)
	}
	if alive(first) || alive(second) {
		t.Fatal("a child outlived Run")
	}
	if _, err := os.Stat(pidFile); !os.IsNotExist(err) {
		t.Fatalf("pid file is left behind (%v)", err)
	}
}

func TestRunKillsAChildThatIgnoresSIGTERM(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	starts := make(chan int, 1)
	p, err := child.New(child.Config{
		Name: "stubborn",
		Command: func() *exec.Cmd {
			return exec.Command("sh", "-c", `trap "" TERM; : > "$0"; while :; do sleep 0.05; done`, ready)
		},
		Grace: 50 * time.Millisecond, OnStart: func(pid int) { starts <- pid },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	pid := <-starts
	eventually(t, "the child ignores SIGTERM", func() bool { _, err := os.Stat(ready); return err == nil })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Fatal("the child outlived Run")
	}
}

func TestRunReportsACommandThatCannotStart(t *testing.T) {
	p, err := child.New(child.Config{Name: "ghost", Command: func() *exec.Cmd { return exec.Command("/nonexistent/ghost") }})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "start ghost") {
		t.Fatalf("got %v, want an error that names the child", err)
	}
}

func TestEachEndIsToldWithHowOftenAndWhatComesNext(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ends := make(chan child.Exit, 64)
	var log bytes.Buffer
	p, err := child.New(child.Config{
		Name: "failing", Command: func() *exec.Cmd { return exec.Command(script) },
		MinWait: time.Millisecond, MaxWait: 4 * time.Millisecond,
		OnExit: func(e child.Exit) { ends <- e }, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for i, wait := range []time.Duration{1, 2, 4, 4} {
		e := <-ends
		if want := (child.Exit{State: "exit status 3", InARow: i + 1, Wait: wait * time.Millisecond}); e != want {
			t.Errorf("told %+v, want %+v", e, want)
		}
	}
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	for {
		if e := <-ends; e.Err != nil {
			if !errors.Is(e.Err, os.ErrNotExist) || e.State != "" {
				t.Errorf("told %+v of a program that is gone", e)
			}
			break
		}
	}
	if err := os.WriteFile(script, []byte("#!/bin/sh\nkill -9 $$\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for {
		if e := <-ends; e.Err == nil && e.Signaled {
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "<nil>") {
		t.Errorf("the log tells of an error that is none:\n%s", log.String())
	}
}

func TestNoOrphanWhenTheParentIsKilled(t *testing.T) {
	pidFile := filepath.Join(t.TempDir(), "sleeper")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	par := exec.Command(self)
	par.Env = append(os.Environ(), "AETHER_TEST_PARENT="+pidFile)
	if err := par.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	eventually(t, "the parent has started its child", func() bool {
		b, err := os.ReadFile(pidFile)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	if !alive(pid) {
		t.Fatal("the child does not run")
	}
	_ = par.Process.Kill()
	_ = par.Wait()
	eventually(t, "the child is gone", func() bool { return !alive(pid) })
}

// What refuses its flags is not started again; what comes to refuse them is, as the one that runs
// so far may have served somebody.
func TestAChildThatWasStartedWronglyEndsIt(t *testing.T) {
	for name, test := range map[string]struct {
		script string // each line is a run
		want   bool
	}{
		"at once":           {"exit 64", true},
		"with another code": {"exit 1", false},
		"after another run": {"exit 1\nexit 64", false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			lines, runs := strings.Split(test.script, "\n"), 0
			p, err := child.New(child.Config{Name: "sh", Usage: 64, MinWait: time.Millisecond, OnExit: func(e child.Exit) {
				if e.InARow > len(lines) {
					cancel()
				}
			}, Command: func() *exec.Cmd {
				runs++
				return exec.Command("sh", "-c", lines[min(runs, len(lines))-1])
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Run(ctx); errors.Is(err, child.ErrUsage) != test.want {
				t.Errorf("after %d runs: %v", runs, err)
			}
		})
	}
}
