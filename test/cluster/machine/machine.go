// Package machine makes a machine for a node of the test cluster: not a virtual one, but
// processes in namespaces of their own for mounts, process numbers, network, host name,
// IPC and control groups. Its first process is this package's, too; when that ends, however it ends,
// the kernel ends all others, pods included, and with them go all their mounts,
// interfaces, rules and network settings. So a machine leaves nothing behind but the
// folder with its files and its control groups, which Remove takes away.
//
// The machine sees this computer's files, with folders of its own laid over those that a
// node writes to (see mounts.go). Its programs are kept running by package supervise and
// controlled through a socket (see control.go).
//
// A program that uses this package must call Main first of all. Linux only, as root.
package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/test/cluster/process"
	"aether.io/aether/test/cluster/supervise"
)

// Spec says what a machine is. Another spec is another machine.
type Spec struct {
	Name     string              `json:"name"`     // of the host
	Commands []supervise.Command `json:"commands"` // kept running, all started at once
	// Files are written before the machine starts: texts by path, see Overlay and Host.
	Files map[string]string `json:"files"`
}

// Machine is a machine by its folder, running or not.
type Machine struct{ dir string }

// In returns the machine whose folder is dir. A folder whose name is long can't hold the
// control socket: about 90 bytes are the most.
func In(dir string) Machine { return Machine{dir} }

// Dir is the machine's folder.
func (m Machine) Dir() string { return m.dir }

func (m Machine) path(name string) string { return filepath.Join(m.dir, name) }

// Overlay is where this computer has what the machine adds to its files, or has changed of
// them, at path below /etc and /opt. They can be put there while it does not run.
func (m Machine) Overlay(path string) string { return m.path("over" + path) }

// Host is where this computer sees a file that the machine sees at path below /run,
// /var/lib or /var/log.
func (m Machine) Host(path string) string { return m.path("own" + path) }

// Log is the file with what the program of the name writes.
func (m Machine) Log(name string) string { return filepath.Join(m.path("logs"), name+".log") }

// Process is the machine's first process; none if it does not run.
func (m Machine) Process() (process.Process, error) {
	p, err := process.Read(m.path("pid"))
	if err != nil || !p.Alive() {
		return process.Process{}, err
	}
	return p, nil
}

// Start starts the machine, unless it runs and is as the spec says. If it runs and is
// not, it is ended first. connect is called with the number of its first process before
// any of its programs is started: it gives the machine its network.
func (m Machine) Start(ctx context.Context, spec Spec, connect func(pid int) error) error {
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return err
	}
	p, err := m.Process()
	if err != nil {
		return err
	}
	if p.PID != 0 {
		if now, err := os.ReadFile(m.path("spec.json")); err == nil && string(now) == string(text) {
			return nil
		}
		if err := m.Stop(ctx); err != nil {
			return err
		}
	}
	// Groups of pods that are no more would be taken for pods.
	if err := errors.Join(removeGroups(ctx, m.group()), m.prepare()); err != nil {
		return fmt.Errorf("prepare machine %s: %w", spec.Name, err)
	}
	for path, content := range spec.Files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			return err
		}
	}
	if err := atomicfile.Write(m.path("spec.json"), text, 0o600); err != nil {
		return err
	}
	if err := m.launch(connect); err != nil {
		return errors.Join(fmt.Errorf("start machine %s: %w", spec.Name, err), m.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

// launch starts the first process, which waits for a line before it does anything: if
// this program ends before it has written who it started, what it started ends, too.
func (m Machine) launch(connect func(pid int) error) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	defer write.Close()
	log, err := os.OpenFile(m.Log("machine"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe") // it outlives this program
	cmd.Args = []string{initName, m.dir}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = read, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// A zombie of ours would not count as ended for who asks its handle.
	go func() { _ = cmd.Wait() }()
	p, err := process.Of(cmd.Process.Pid)
	if err != nil {
		return err
	}
	if err := p.Write(m.path("pid")); err != nil {
		return err
	}
	if err := connect(p.PID); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	_, err = write.WriteString(proceed)
	return err
}

// Stop ends the machine with all that runs in it, at once, as when the power fails.
func (m Machine) Stop(ctx context.Context) error {
	p, err := m.Process()
	if err != nil {
		return err
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		return err
	}
	// It has ended when the last of its processes has been reaped.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return p.Wait(ctx)
}

// Remove ends the machine and removes all that there is of it.
func (m Machine) Remove(ctx context.Context) error {
	if err := m.Stop(ctx); err != nil {
		return err
	}
	if err := removeGroups(ctx, m.group()); err != nil {
		return err
	}
	return os.RemoveAll(m.dir)
}

// Exec runs a command in the machine and waits for it. The caller sets its files.
func (m Machine) Exec(ctx context.Context, args ...string) (*exec.Cmd, error) {
	p, err := m.Process()
	if err != nil {
		return nil, err
	}
	if p.PID == 0 {
		return nil, fmt.Errorf("the machine in %s does not run", m.dir)
	}
	return exec.CommandContext(ctx, "nsenter", append([]string{"--all", "--target", strconv.Itoa(p.PID), "--"}, args...)...), nil
}

// group is the control group, in each hierarchy, that the machine's are below. Two of one
// name may run at once, in folders and networks of their own.
func (m Machine) group() string {
	sum := sha256.Sum256([]byte(m.dir))
	return "/aether-" + filepath.Base(m.dir) + "-" + hex.EncodeToString(sum[:4])
}
