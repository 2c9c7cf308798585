// Package instance runs a standalone Aether for tests, the demo and benchmarks: the real
// command as a process of its own, on a directory that the caller fills and edits.
package instance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"aether.io/aether/internal/statedir"
)

// StartTimeout bounds the time until an instance is ready.
const StartTimeout = 60 * time.Second

// Config is what an Instance is started from.
type Config struct {
	Aetherctl string    // path of the command
	Envoy     string    // path of Envoy
	Dir       string    // manifests
	StateDir  string    // empty: the command's default
	Offset    int       // added to listener ports
	Args      []string  // further flags
	Out       io.Writer // gets the command's output, line by line; nil: none
}

// Instance is a running command.
type Instance struct {
	Dir   string
	State statedir.Dir
	c     Config
	cmd   *exec.Cmd
	done  chan struct{}

	mu    sync.Mutex
	lines []string // all output
}

// Start runs the command and waits until it says ready.
func Start(ctx context.Context, c Config) (*Instance, error) {
	in := &Instance{Dir: c.Dir, c: c, done: make(chan struct{})}
	var err error
	if in.State, err = statedir.Of(c.StateDir); err != nil {
		return nil, err
	}
	args := append([]string{"standalone", c.Dir, "--state-dir", c.StateDir, "--envoy", c.Envoy, "--port-offset", strconv.Itoa(c.Offset)}, c.Args...)
	in.cmd = exec.Command(c.Aetherctl, args...)
	in.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r, w := io.Pipe()
	in.cmd.Stdout, in.cmd.Stderr = w, w
	if err := in.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go in.read(r, ready)
	go func() { _ = in.cmd.Wait(); _ = w.Close(); close(in.done) }()
	select {
	case <-ready:
		return in, nil
	case <-in.done:
		return nil, fmt.Errorf("aetherctl standalone ended with %s:\n%s", in.cmd.ProcessState, in.Output())
	case <-time.After(StartTimeout):
	case <-ctx.Done():
	}
	dump := in.Dump()
	_ = in.Stop()
	return nil, fmt.Errorf("not ready after %s:\n%s", StartTimeout, dump)
}

// read collects output until the command ends.
func (in *Instance) read(r io.Reader, ready chan<- struct{}) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := s.Text()
		in.mu.Lock()
		in.lines = append(in.lines, line)
		in.mu.Unlock()
		if in.c.Out != nil {
			fmt.Fprintln(in.c.Out, line)
		}
		if line == "ready" {
			close(ready)
		}
	}
}

// Output is all that the command has printed.
func (in *Instance) Output() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return strings.Join(in.lines, "\n")
}

// Dump is what a person would look at when something is wrong.
func (in *Instance) Dump() string {
	var b strings.Builder
	fmt.Fprintf(&b, "output:\n%s\n", in.Output())
	for _, name := range []string{"controller", "proxy", "envoy"} {
		text, err := os.ReadFile(in.State.Log(name))
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "%s log:\n%s\n", name, text[max(0, len(text)-6000):])
	}
	return b.String()
}

// PID is the pid of one of the instance's processes.
func (in *Instance) PID(name string) (int, error) {
	text, err := os.ReadFile(in.State.PIDFile(name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// Supervisor is the command's own pid.
func (in *Instance) Supervisor() int { return in.cmd.Process.Pid }

// Signal sends sig to one of the instance's processes and returns its pid.
func (in *Instance) Signal(name string, sig syscall.Signal) (int, error) {
	pid, err := in.PID(name)
	if err != nil {
		return 0, err
	}
	return pid, syscall.Kill(pid, sig)
}

// Write replaces a manifest as an editor would: written beside it, renamed into place.
// It returns the moment of the rename.
func (in *Instance) Write(name, text string) (time.Time, error) {
	path := filepath.Join(in.Dir, name)
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		return time.Time{}, err
	}
	at := time.Now()
	return at, os.Rename(tmp, path)
}

// Stop asks the command to stop and waits; it kills it if it does not. One that has
// ended already is stopped.
func (in *Instance) Stop() error {
	select {
	case <-in.done:
		return nil
	default:
	}
	_ = in.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	return in.Wait(60 * time.Second)
}

// Kill ends the command without warning, and waits for it.
func (in *Instance) Kill() error {
	_ = in.cmd.Process.Kill()
	<-in.done
	return nil
}

// Wait waits for the command's end.
func (in *Instance) Wait(limit time.Duration) error {
	select {
	case <-in.done:
	case <-time.After(limit):
		_ = in.cmd.Process.Kill()
		<-in.done
		return errors.New("aetherctl standalone did not stop; killed")
	}
	if code := in.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("aetherctl standalone ended with %s", in.cmd.ProcessState)
	}
	return nil
}

// Alive reports whether a process runs and is no zombie.
func Alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// FreeOffset finds a port offset for which every one of the ports is free on 127.0.0.1.
// It begins anywhere, so that others on the machine who look too find another one, and
// stays below the ports of outgoing connections.
func FreeOffset(listenerPorts ...int) (int, error) {
	const first, step, count = 10000, 7, 1900
	begin := rand.IntN(count)
	// Exits: an offset is found, or all have been tried.
	for i := range count {
		if offset := first + step*((begin+i)%count); free(offset, listenerPorts) {
			return offset, nil
		}
	}
	return 0, errors.New("no free ports")
}

func free(offset int, listenerPorts []int) bool {
	for _, p := range listenerPorts {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p+offset)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// Get sends a GET for host to a listener's port (the offset is added) and returns the
// status code, 0 if there was no answer, and the body.
func (in *Instance) Get(ctx context.Context, c *http.Client, port int, host, path string) (code int, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port+in.c.Offset, path), http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	req.Host = host
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}
