package process

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func sleeper(t *testing.T) (*exec.Cmd, Process) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd, p
}

func TestAProcessIsKnownAgainAndEnded(t *testing.T) {
	_, p := sleeper(t)
	file := filepath.Join(t.TempDir(), "pid")
	if err := p.Write(file); err != nil {
		t.Fatal(err)
	}
	again, err := Read(file)
	if err != nil || again != p || !again.Alive() {
		t.Fatalf("read %+v, %v, want %+v, alive", again, err, p)
	}
	if err := again.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := again.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again.Alive() {
		t.Error("it has ended and counts as alive") // though nobody has reaped it
	}
	if err := again.Signal(unix.SIGKILL); err != nil {
		t.Errorf("a signal to what has ended: %v", err)
	}
}

func TestAnotherProcessWithTheSameNumberIsLeftAlone(t *testing.T) {
	cmd, p := sleeper(t)
	p.start += "0"
	if p.Alive() {
		t.Error("another process counts as the one that was remembered")
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now, err := Of(cmd.Process.Pid); err != nil || !now.Alive() {
		t.Errorf("the other process: %+v, %v", now, err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	_, p := sleeper(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestNoFileIsNoProcess(t *testing.T) {
	p, err := Read(filepath.Join(t.TempDir(), "pid"))
	if err != nil || p.Alive() || p.Signal(unix.SIGKILL) != nil || p.Wait(t.Context()) != nil {
		t.Errorf("got %+v, %v", p, err)
	}
}
