// Package child keeps one child process running: started, restarted with back-off when
// it ends, stopped when asked, and gone when its parent is gone, however that ended.
// It knows nothing of what the child does. Linux only.
package child

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"aether.io/aether/internal/logkey"
)

// The defaults of a Config.
const (
	DefaultMinWait = 100 * time.Millisecond
	DefaultMaxWait = 10 * time.Second
	DefaultHealthy = 30 * time.Second
	DefaultGrace   = 10 * time.Second
)

// Config is what a Process is made from.
type Config struct {
	Name string // for logs and errors; required
	// Command makes a command that has not been started; called for each start. Required.
	Command func() *exec.Cmd
	PIDFile string        // written while the child runs; empty: none
	MinWait time.Duration // before the first restart; doubles each time
	MaxWait time.Duration // the most that it waits
	Healthy time.Duration // a child that ran that long starts over at MinWait
	Grace   time.Duration // between SIGTERM and SIGKILL when stopping
	OnStart func(pid int) // called after each start, from Run's goroutine
	OnExit  func(state string)
	Log     *slog.Logger
}

// Process keeps one child running.
type Process struct{ c Config }

// New checks c and fills in its defaults.
func New(c Config) (*Process, error) {
	if c.Name == "" || c.Command == nil {
		return nil, errors.New("child needs a name and a command")
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.MinWait, DefaultMinWait)
	def(&c.MaxWait, DefaultMaxWait)
	def(&c.Healthy, DefaultHealthy)
	def(&c.Grace, DefaultGrace)
	if c.OnStart == nil {
		c.OnStart = func(int) {}
	}
	if c.OnExit == nil {
		c.OnExit = func(string) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Process{c: c}, nil
}

// Run starts the child and restarts it until ctx is done, then stops it. It returns
// nil after an orderly stop, and an error if the child cannot be started at all the
// first time (a missing binary is not cured by waiting).
func (p *Process) Run(ctx context.Context) error {
	// The kernel sends the parent-death signal when the *thread* that started the
	// child ends, so that thread is kept for as long as there may be a child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	wait := p.c.MinWait
	// Exits: ctx is done, or the very first start fails.
	for first := true; ; first = false {
		began := time.Now()
		state, err := p.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return fmt.Errorf("start %s: %w", p.c.Name, err)
		}
		if time.Since(began) >= p.c.Healthy {
			wait = p.c.MinWait
		}
		p.c.Log.Warn("child process ended; restarting", logkey.Process, p.c.Name, logkey.State, state, logkey.Error, err, logkey.Wait, wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, p.c.MaxWait)
	}
}

// once runs the child to its end. The error says that it could not be started.
func (p *Process) once(ctx context.Context) (state string, err error) {
	cmd := p.c.Command()
	attr := cmd.SysProcAttr
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Pdeathsig = syscall.SIGKILL
	attr.Setpgid = true // a terminal's Ctrl-C is for the parent, which stops its children in order
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if err := p.writePID(cmd.Process.Pid); err != nil {
		p.c.Log.Error("write pid file", logkey.Process, p.c.Name, logkey.Error, err)
	}
	p.c.OnStart(cmd.Process.Pid)

	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }() // the outcome is read from ProcessState
	select {
	case <-exited:
	case <-ctx.Done():
		p.stop(cmd.Process, exited)
	}
	p.removePID()
	state = cmd.ProcessState.String()
	p.c.OnExit(state)
	return state, nil
}

// stop asks, waits, and then insists. It returns when the child has been reaped.
func (p *Process) stop(proc *os.Process, exited <-chan struct{}) {
	_ = proc.Signal(syscall.SIGTERM) // already gone is as good
	timer := time.NewTimer(p.c.Grace)
	defer timer.Stop()
	select {
	case <-exited:
		return
	case <-timer.C:
	}
	p.c.Log.Warn("child process did not stop in time; killing it", logkey.Process, p.c.Name, logkey.Wait, p.c.Grace)
	_ = proc.Kill()
	<-exited
}

func (p *Process) writePID(pid int) error {
	if p.c.PIDFile == "" {
		return nil
	}
	tmp := p.c.PIDFile + ".new"
	if err := os.MkdirAll(filepath.Dir(tmp), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, p.c.PIDFile)
}

func (p *Process) removePID() {
	if p.c.PIDFile != "" {
		_ = os.Remove(p.c.PIDFile) // gone is what is wanted
	}
}
