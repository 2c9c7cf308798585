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

// ErrUsage says that the child's first run ended with Config.Usage.
var ErrUsage = errors.New("it was started wrongly")

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
	// Usage is the exit code by which the child says that it was started wrongly: if that is how
	// its first run ends, another would end alike. 0: it has none.
	Usage   int
	OnStart func(pid int) // called after each start, from Run's goroutine
	OnExit  func(Exit)    // called after each end but that of an orderly stop, from Run's goroutine
	Log     *slog.Logger
}

// Exit is the end of one run of the child, or that it could not be started.
type Exit struct {
	State    string        // how it ended, as the operating system has it; empty if Err is set
	Signaled bool          // it was ended by a signal
	Err      error         // it could not be started
	InARow   int           // how many ends there were, this one included, since it last ran for Healthy
	Wait     time.Duration // until it is started again
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
		c.OnExit = func(Exit) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Process{c: c}, nil
}

// Run starts the child and restarts it until ctx is done, then stops it. It returns
// nil after an orderly stop, and an error if the child cannot be started at all the
// first time (a missing binary is not cured by waiting), or ErrUsage.
func (p *Process) Run(ctx context.Context) error {
	// The kernel sends the parent-death signal when the *thread* that started the
	// child ends, so that thread is kept for as long as there may be a child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	wait, inARow := p.c.MinWait, 0
	// Exits: ctx is done; the very first start fails; the first run ends as started wrongly.
	for first := true; ; first = false {
		began := time.Now()
		state, err := p.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return fmt.Errorf("start %s: %w", p.c.Name, err)
		}
		if first && p.c.Usage != 0 && state.ExitCode() == p.c.Usage {
			return fmt.Errorf("start %s: %w", p.c.Name, ErrUsage)
		}
		if time.Since(began) >= p.c.Healthy {
			wait, inARow = p.c.MinWait, 0
		}
		inARow++
		p.ended(Exit{InARow: inARow, Wait: wait, Err: err}, state)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, p.c.MaxWait)
	}
}

// ended tells of an end. state is nil if the child could not be started.
func (p *Process) ended(e Exit, state *os.ProcessState) {
	if state != nil {
		e.State = state.String()
		if s, ok := state.Sys().(syscall.WaitStatus); ok {
			e.Signaled = s.Signaled()
		}
	}
	about := []any{logkey.Process, p.c.Name, logkey.Count, e.InARow, logkey.Wait, e.Wait}
	if e.Err != nil {
		p.c.Log.Warn("child process cannot be started; will try again", append(about, logkey.Error, e.Err)...)
	} else {
		p.c.Log.Info("child process ended; will start it again", append(about, logkey.State, e.State)...)
	}
	p.c.OnExit(e)
}

// once runs the child to its end. The error says that it could not be started.
func (p *Process) once(ctx context.Context) (*os.ProcessState, error) {
	cmd := p.c.Command()
	attr := cmd.SysProcAttr
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Pdeathsig = syscall.SIGKILL
	attr.Setpgid = true // a terminal's Ctrl-C is for the parent, which stops its children in order
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		return nil, err
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
	return cmd.ProcessState, nil
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
	err := os.WriteFile(tmp, []byte(strconv.Itoa(pid)+"\n"), 0o600)
	if err == nil {
		err = os.Rename(tmp, p.c.PIDFile)
	}
	if err != nil {
		_ = os.Remove(tmp) // a part of it helps nobody
	}
	return err
}

func (p *Process) removePID() {
	if p.c.PIDFile != "" {
		_ = os.Remove(p.c.PIDFile) // gone is what is wanted
	}
}
