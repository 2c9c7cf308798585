// Package process remembers a process across runs of a program, and ends that process
// and no other: process numbers are used again, so a number alone is not a name. Linux
// only.
package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"aether.io/aether/internal/atomicfile"
)

// Process names one process of this machine, forever. The zero value is none.
type Process struct {
	PID   int
	start string // when it started, in clock ticks since the machine did
	boot  string // which of the machine's starts
}

// Of names the running process with the number.
func Of(pid int) (Process, error) {
	p := Process{PID: pid}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, fmt.Errorf("name process %d: %w", pid, err)
	}
	// Its name, in parentheses, may have anything in it.
	_, rest, ok := cutLast(string(stat), ") ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return Process{}, fmt.Errorf("name process %d: stat is %q", pid, stat)
	}
	if fields[0] == "Z" {
		return Process{}, fmt.Errorf("name process %d: it has ended: %w", pid, fs.ErrNotExist)
	}
	p.start = fields[19] // field 22 of proc_pid_stat(5), counted from field 3
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Process{}, fmt.Errorf("name process %d: %w", pid, err)
	}
	p.boot = strings.TrimSpace(string(boot))
	return p, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Read returns the process that was written to the file; none if there is no file.
func Read(path string) (Process, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Process{}, nil
	} else if err != nil {
		return Process{}, err
	}
	var p Process
	if _, err := fmt.Sscanf(string(text), "%d %s %s\n", &p.PID, &p.start, &p.boot); err != nil {
		return Process{}, fmt.Errorf("read %s: %w", path, err)
	}
	return p, nil
}

// Write writes the process to the file.
func (p Process) Write(path string) error {
	return atomicfile.Write(path, fmt.Appendf(nil, "%d %s %s\n", p.PID, p.start, p.boot), 0o644)
}

// Alive reports whether the process is still running.
func (p Process) Alive() bool {
	if p.PID == 0 {
		return false
	}
	now, err := Of(p.PID)
	return err == nil && now == p
}

// Signal sends a signal. A process that has ended is as good as one that got it.
func (p Process) Signal(sig unix.Signal) error {
	fd, err := p.open()
	if fd < 0 {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// Wait returns when the process has ended, or with ctx's error. It need not be a child.
func (p Process) Wait(ctx context.Context) error {
	fd, err := p.open()
	if fd < 0 {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int((100 * time.Millisecond).Milliseconds()))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", p.PID, err)
		}
		if n > 0 {
			return nil
		}
	}
	return fmt.Errorf("wait for process %d to end: %w", p.PID, context.Cause(ctx))
}

// open returns a handle that stays with the process, or -1 and no error if it has ended.
func (p Process) open() (int, error) {
	if p.PID == 0 {
		return -1, nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, nil
	} else if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	// Only now can the number not become another's.
	if !p.Alive() {
		_ = unix.Close(fd)
		return -1, nil
	}
	return fd, nil
}
