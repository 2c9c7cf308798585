// Package supervise keeps the programs of a test cluster running, each with a log file of
// its own, and lets a test end, halt and start them one by one. Programs that need each
// other are all started at once: those whose need is not there yet end and are started
// again. Linux only.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"aether.io/aether/internal/child"
	"aether.io/aether/test/cluster/process"
)

// ErrUnknown says that a group has no program of that name.
var ErrUnknown = errors.New("no such program")

// maxLog is how large a log may be when its program starts and still be added to.
const maxLog = 64 << 20 // bytes

// Command says how a program is started.
type Command struct {
	Name string   `json:"name"` // of the program in its group, and of its log
	Args []string `json:"args"` // the first is the file
	Env  []string `json:"env,omitempty"`
}

// Group is programs that run together. All its methods may be called concurrently.
type Group struct {
	logs     string
	log      *slog.Logger
	commands []Command

	mu      sync.Mutex
	running map[string]*running
}

type running struct {
	cancel context.CancelFunc
	done   chan struct{}
	// Both are guarded by the group's mu.
	latest process.Process // that was started, and may have ended
	starts int
}

// Status is what is known of a program.
type Status struct {
	Name   string `json:"name"`
	PID    int    `json:"pid"`    // 0: it does not run
	Starts int    `json:"starts"` // since it was started on purpose
}

// New makes a group that writes NAME.log for each program into the folder logs. Nothing
// is started.
func New(logs string, log *slog.Logger, commands ...Command) *Group {
	return &Group{logs: logs, log: log, commands: commands, running: map[string]*running{}}
}

// StartAll starts what does not run.
func (g *Group) StartAll() error {
	for _, c := range g.commands {
		if err := g.Start(c.Name); err != nil {
			return err
		}
	}
	return nil
}

// Start starts a program, and again each time that it ends. It does not wait for it to do
// anything.
func (g *Group) Start(name string) error {
	c, err := g.command(name)
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(c.Args[0]); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running[name] != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, done: make(chan struct{})}
	output := &output{path: g.Log(name)}
	keeper, err := child.New(child.Config{
		Name:    name,
		Command: func() *exec.Cmd { return output.attach(c) },
		MinWait: 100 * time.Millisecond,
		MaxWait: 2 * time.Second,
		Grace:   10 * time.Second,
		OnStart: func(pid int) { g.started(r, pid) },
		Log:     g.log,
	})
	if err != nil {
		cancel()
		return err
	}
	g.running[name] = r
	go func() {
		defer close(r.done)
		defer output.close()
		if err := keeper.Run(ctx); err != nil {
			g.log.Error("program can't be started", "process", name, "error", err)
		}
	}()
	return nil
}

func (g *Group) started(r *running, pid int) {
	p, _ := process.Of(pid) // none, if it has ended already
	g.mu.Lock()
	defer g.mu.Unlock()
	r.latest = p
	r.starts++
}

// Stop ends a program in order and returns when it has ended. It stays so until Start.
func (g *Group) Stop(name string) error {
	if _, err := g.command(name); err != nil {
		return err
	}
	g.mu.Lock()
	r := g.running[name]
	g.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel()
	<-r.done
	g.mu.Lock()
	delete(g.running, name)
	g.mu.Unlock()
	return nil
}

// StopAll ends all programs, the last first.
func (g *Group) StopAll() {
	for _, c := range slices.Backward(g.commands) {
		_ = g.Stop(c.Name) // it is known
	}
}

// Signal sends a signal: SIGKILL to see the program start again, SIGSTOP and SIGCONT to
// halt it for a while.
func (g *Group) Signal(name string, sig syscall.Signal) error {
	if _, err := g.command(name); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.running[name]
	if r == nil || !r.latest.Alive() {
		return fmt.Errorf("signal %s: it does not run", name)
	}
	return r.latest.Signal(sig)
}

// Status tells of all programs, in the order given.
func (g *Group) Status() []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]Status, 0, len(g.commands))
	for _, c := range g.commands {
		s := Status{Name: c.Name}
		if r := g.running[c.Name]; r != nil {
			s.Starts = r.starts
			if r.latest.Alive() {
				s.PID = r.latest.PID
			}
		}
		out = append(out, s)
	}
	return out
}

// Log is the file that a program writes to.
func (g *Group) Log(name string) string { return filepath.Join(g.logs, name+".log") }

func (g *Group) command(name string) (Command, error) {
	for _, c := range g.commands {
		if c.Name == name {
			return c, nil
		}
	}
	return Command{}, fmt.Errorf("%s: %w", name, ErrUnknown)
}

// output is the log of one program. A program that is started again adds to it, until it
// is large: then it begins anew.
type output struct {
	path string
	file *os.File
}

// attach makes the command with the log as its output. Without a log there is none: a
// program is worth more than what it says.
func (o *output) attach(c Command) *exec.Cmd {
	o.close()
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(o.path); err == nil && info.Size() > maxLog {
		flags |= os.O_TRUNC
	}
	cmd := exec.CommandContext(context.Background(), c.Args[0], c.Args[1:]...) // its keeper stops it, gently
	cmd.Env = append(os.Environ(), c.Env...)
	if f, err := os.OpenFile(o.path, flags, 0o644); err == nil {
		o.file, cmd.Stdout, cmd.Stderr = f, f, f
	}
	return cmd
}

func (o *output) close() {
	if o.file != nil {
		_ = o.file.Close()
		o.file = nil
	}
}
