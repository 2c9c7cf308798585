package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"aether.io/aether/test/cluster/supervise"
)

// The names by which a program calls itself to be a process of a machine.
const (
	initName       = "aether-machine-init"
	entryName      = "aether-machine-entry"
	supervisorName = "aether-machine-supervisor"
)

// proceed tells the first process that its network is there.
const proceed = "go\n"

// Main is the whole program if it was started as a process of a machine, and does nothing
// otherwise.
func Main() {
	if len(os.Args) != 2 {
		return
	}
	var run func(Machine) error
	switch filepath.Base(os.Args[0]) {
	case initName:
		run = initialize
	case entryName:
		run = enter
	case supervisorName:
		run = superviseAll
	default:
		return
	}
	if err := run(In(os.Args[1])); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
		os.Exit(1)
	}
	os.Exit(0)
}

// initialize is the first process. It becomes the parent of every process that loses its
// own, which must be reaped; so it has no child but one that it waits for.
func initialize(m Machine) error {
	if line, _ := bufio.NewReader(os.Stdin).ReadString('\n'); line != proceed {
		return errors.New("what started the machine has gone")
	}
	if err := m.mount(); err != nil {
		return err
	}
	var spec Spec
	if err := m.readSpec(&spec); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	// Of the machine's own network: pods' packets pass through it.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	supervisor := exec.CommandContext(context.Background(), "/proc/self/exe")
	supervisor.Args = []string{entryName, m.dir}
	supervisor.Stdout, supervisor.Stderr = os.Stdout, os.Stderr
	if err := supervisor.Start(); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case pid == supervisor.Process.Pid:
			return fmt.Errorf("the supervisor has ended: %d", status)
		}
	}
}

// enter becomes the supervisor, in the machine's control groups and a namespace of them.
func enter(m Machine) error {
	if err := enterGroup(m.group()); err != nil {
		return err
	}
	// The namespace is the thread's: that becomes the next program's first.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a control group namespace: %w", err)
	}
	return unix.Exec("/proc/self/exe", []string{supervisorName, m.dir}, os.Environ())
}

// superviseAll runs the machine's programs until the machine ends.
func superviseAll(m Machine) error {
	if err := mountGroups(); err != nil {
		return err
	}
	var spec Spec
	if err := m.readSpec(&spec); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	group := supervise.New(m.path("logs"), log, spec.Commands...)
	defer group.StopAll()
	if err := group.StartAll(); err != nil {
		return err
	}
	return m.serveControl(ctx, group)
}

func (m Machine) readSpec(spec *Spec) error {
	text, err := os.ReadFile(m.path("spec.json"))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, spec)
}
