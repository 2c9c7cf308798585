package standalone

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/child"
	"aether.io/aether/internal/otlpflag"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/standalone/narrator"
	"aether.io/aether/internal/standalone/poll"
	"aether.io/aether/internal/statedir"
	"aether.io/aether/internal/svid"
)

// The identity under which the one shared proxy of an instance joins.
const (
	ReleaseNamespace = "aether-system"
	TrustDomain      = "cluster.local"
	ProxyName        = "standalone-proxy"
	nodeName         = "standalone"
)

// healthy is how long a process has to run for its next end to be a first one again.
const healthy = 10 * time.Second

// Settings are what an instance writes down for other commands.
type Settings struct {
	Dir             string    `json:"dir"`
	Bind            string    `json:"bind"`
	PortOffset      int       `json:"portOffset"`
	Supervisor      int       `json:"supervisor"` // pid
	StreamAddr      string    `json:"streamAddr"`
	BootstrapAddr   string    `json:"bootstrapAddr"`
	Started         time.Time `json:"started"`
	ControllerFlags []string  `json:"controllerFlags,omitempty"`
}

// Run runs the instance until ctx is done, then drains and stops it. It returns nil
// after an orderly stop.
func (in *Instance) Run(ctx context.Context) error {
	release, err := in.c.State.Open()
	if errors.Is(err, statedir.ErrInUse) {
		return in.inUse(err)
	}
	if err != nil {
		return err
	}
	defer release()
	n := in.narrator()
	narrated := make(chan struct{})
	narration, silence := context.WithCancel(context.WithoutCancel(ctx)) // it tells of the stop too
	go func() {
		defer close(narrated)
		n.Run(narration)
	}()
	defer func() { silence(); <-narrated }()
	n.Say("start", "starting on the manifests in %s; state in %s", in.c.Dir, in.c.State.Root())
	// What an instance that was killed left would be taken for ours. All else that it left is
	// good until there is something better: the disk may be full.
	_ = os.Remove(in.c.State.Ready())
	defer func() { _ = os.Remove(in.c.State.Ready()) }()

	logs := &logFiles{}
	if err := logs.reopen(in.c.State); err != nil {
		return err
	}
	defer logs.close()
	sockets, err := in.listen(ctx)
	if err != nil {
		return err
	}
	defer sockets.close()
	if err := in.introduce(ctx, n); err != nil {
		return err
	}
	settings, err := in.settings(sockets)
	if err != nil {
		return err
	}
	// The processes outlive ctx by the drain: they are stopped in order, Envoy first.
	envoy, stopEnvoy := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEnvoy()
	control, stopControl := context.WithCancel(context.WithoutCancel(ctx))
	defer stopControl()

	r := &running{pids: map[string]int{}}
	parts, err := in.parts(control, envoy, n, r, sockets, logs)
	if err != nil {
		return err
	}
	parts = append(parts, run.Part{Name: "state directory", Run: func(ctx context.Context) error {
		return in.watchState(ctx, n, r, logs, settings)
	}}, run.Part{Name: "settings", Run: func(ctx context.Context) error {
		keep(ctx, n, in.c.State.Settings(), settings)
		<-ctx.Done()
		return ctx.Err()
	}}, run.Part{Name: "stop", Run: func(ctx context.Context) error {
		<-ctx.Done()
		n.Say("stopping", "stopping, once no request is active or after %s; Ctrl-C again stops at once", in.c.Drain)
		in.drain(context.WithoutCancel(ctx))
		stopEnvoy()
		stopControl()
		return nil
	}})
	if err := run.All(ctx, in.c.Log, in.c.Drain+3*child.DefaultGrace, parts...); err != nil {
		return err
	}
	n.Say("stopped", "stopped")
	return nil
}

// narrator tells of the instance from now on.
func (in *Instance) narrator() *narrator.Narrator {
	return narrator.New(narrator.Config{
		Dir: in.c.Dir, State: in.c.State, Bind: in.c.Bind, PortOffset: in.c.PortOffset, Out: in.c.Out, JSON: in.c.JSON,
	})
}

// inUse says who has the state directory.
func (in *Instance) inUse(err error) error {
	s, unread := ReadSettings(in.c.State)
	if unread != nil {
		return err
	}
	return fmt.Errorf("%w: pid %d, serving %s; stop that one, or give this one a --state-dir of its own", err, s.Supervisor, s.Dir)
}

// ReadSettings returns the settings of the instance that has d, or had it last.
func ReadSettings(d statedir.Dir) (Settings, error) {
	var s Settings
	text, err := os.ReadFile(d.Settings())
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read %s: %w", d.Settings(), err)
	}
	return s, nil
}

// parts lists everything that runs. Processes have contexts of their own because they
// are stopped later than the rest.
func (in *Instance) parts(control, envoy context.Context, n *narrator.Narrator, r *running, sockets *controlPorts, logs *logFiles) ([]run.Part, error) {
	var parts []run.Part
	add := func(own context.Context, name string, command func() *exec.Cmd) error {
		usage := 0                // none ends the instance
		if name == "controller" { // its flags are a person's. What the proxy has of them it refuses too, and is not the one that they were given to
			usage = run.ExitUsage
		}
		var logged int64 // where in its log this run of the process began; child calls in turn
		p, err := child.New(child.Config{Name: name, PIDFile: in.c.State.PIDFile(name), Log: in.c.Log, Healthy: healthy, Usage: usage, Command: func() *exec.Cmd {
			cmd := command()
			log := logs.of(name)
			cmd.Stdout, cmd.Stderr = log, log
			if info, err := log.Stat(); err == nil {
				logged = info.Size()
			}
			return cmd
		}, OnStart: func(pid int) {
			n.Started(name, pid)
			r.started(name, pid)
		}, OnExit: func(e child.Exit) { n.Ended(name, e, logged) }})
		if err != nil {
			return err
		}
		parts = append(parts, run.Part{Name: name, Run: func(running context.Context) error {
			if name == "envoy" {
				if err := in.awaitBootstrap(running); err != nil {
					return err
				}
			}
			err := p.Run(own)
			if errors.Is(err, child.ErrUsage) {
				return fmt.Errorf("%w: %s", err, n.LastWords(name, logged))
			}
			return err
		}})
		return nil
	}
	err := errors.Join(
		add(control, "controller", func() *exec.Cmd { return in.controller(sockets) }),
		add(control, "proxy", func() *exec.Cmd { return in.proxy(sockets) }),
		add(envoy, "envoy", in.envoy),
	)
	parts = append(parts,
		run.Part{Name: "controller events", Run: func(ctx context.Context) error { return n.Follow(ctx, "controller", in.c.State.ControllerSocket()) }},
		run.Part{Name: "proxy events", Run: func(ctx context.Context) error { return n.Follow(ctx, "proxy", in.c.State.ProxySocket()) }},
		run.Part{Name: "readiness", Run: func(ctx context.Context) error { return in.readiness(ctx, n, r) }},
	)
	return parts, err
}

// controlPorts is the controller's two listening sockets. The supervisor keeps them open, so
// that the ports stay ours while the controller restarts.
type controlPorts struct {
	stream, bootstrap *net.TCPListener
	files             []*os.File // in the order in which the controller inherits them
}

func (in *Instance) listen(ctx context.Context) (*controlPorts, error) {
	c := &controlPorts{}
	var lc net.ListenConfig
	for _, to := range []**net.TCPListener{&c.stream, &c.bootstrap} {
		l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			c.close()
			return nil, fmt.Errorf("open a control port: %w", err)
		}
		*to = l.(*net.TCPListener)
		f, err := (*to).File()
		if err != nil {
			c.close()
			return nil, fmt.Errorf("open a control port: %w", err)
		}
		c.files = append(c.files, f)
	}
	return c, nil
}

func (c *controlPorts) close() {
	for _, l := range []*net.TCPListener{c.stream, c.bootstrap} {
		if l != nil {
			_ = l.Close()
		}
	}
	for _, f := range c.files {
		_ = f.Close()
	}
}

// introduce writes the token that stands for the proxy, at the controller's and at the
// proxy's place. Where a new one cannot be written, that of before is as good, if it is whole.
func (in *Instance) introduce(ctx context.Context, n *narrator.Narrator) error {
	before, known := in.introduced(ctx)
	entry := attest.Entry{Token: attest.NewToken(), Identity: attest.Identity{
		Namespace: ReleaseNamespace, ServiceAccount: spiffeid.SharedProxyAccount,
		Pod: spiffeid.Pod{Name: ProxyName, UID: rand.Text(), Node: nodeName},
	}}
	accepted := []attest.Entry{entry}
	if known { // both are accepted until the proxy has the new one
		accepted = append(accepted, before)
	}
	err := attest.WriteTokenFile(in.c.State.Tokens(), accepted)
	if err == nil {
		err = atomicfile.Write(in.c.State.Token(), []byte(entry.Token.Reveal()), 0o600)
	}
	switch {
	case err != nil && known:
		n.Say("state", "! the proxy keeps the token that it had: %v", err)
	case err != nil:
		return fmt.Errorf("introduce the proxy to the controller: %w", err)
	case known:
		if err := attest.WriteTokenFile(in.c.State.Tokens(), accepted[:1]); err != nil {
			n.Say("state", "! the proxy's token of before is still accepted: %v", err)
		}
	}
	return nil
}

// introduced is the token that an earlier start left, if it is at both places.
func (in *Instance) introduced(ctx context.Context) (attest.Entry, bool) {
	text, err := os.ReadFile(in.c.State.Token())
	if err != nil {
		return attest.Entry{}, false
	}
	token := svid.TokenFromString(string(text))
	id, err := attest.NewTokenFile(in.c.State.Tokens()).Attest(ctx, token)
	return attest.Entry{Token: token, Identity: id}, err == nil
}

// settings is what other commands want to know of this instance.
func (in *Instance) settings(c *controlPorts) ([]byte, error) {
	text, err := json.MarshalIndent(Settings{
		Dir: in.c.Dir, Bind: in.c.Bind, PortOffset: in.c.PortOffset, Supervisor: os.Getpid(),
		StreamAddr: c.stream.Addr().String(), BootstrapAddr: c.bootstrap.Addr().String(), Started: time.Now().UTC(),
		ControllerFlags: in.c.Extra,
	}, "", "  ")
	return append(text, '\n'), err
}

func (in *Instance) controller(c *controlPorts) *exec.Cmd {
	s := in.c.State
	cmd := exec.Command(in.c.Controller, append([]string{
		"--directory=" + in.c.Dir, "--state-dir=" + s.Root(), "--bind=" + in.c.Bind,
		"--port-offset=" + strconv.Itoa(in.c.PortOffset), "--release-namespace=" + ReleaseNamespace,
		"--access-log=" + s.Log("access"), "--system-ca-file=" + systemAuthorities(), "--stream-fd=3", "--bootstrap-fd=4",
	}, in.c.Extra...)...)
	cmd.ExtraFiles = c.files
	cmd.Args = append(cmd.Args, in.debug()...)
	return cmd
}

func (in *Instance) proxy(c *controlPorts) *exec.Cmd {
	s := in.c.State
	cmd := exec.Command(in.c.Proxy,
		"--discovery-endpoint=https://"+c.stream.Addr().String(),
		"--discovery-bootstrap-endpoint=https://"+c.bootstrap.Addr().String(),
		"--discovery-sa-token-path="+s.Token(), "--discovery-ca-bundle-path="+s.TrustBundle(),
		"--discovery-trust-domain="+TrustDomain,
		"--discovery-server-id=spiffe://"+TrustDomain+"/ns/"+ReleaseNamespace+"/sa/"+spiffeid.ControllerAccount,
		"--proxy-id="+ProxyName, "--scope=shared", "--xds-socket="+s.XDSSocket(), "--envoy-admin-socket="+s.AdminSocket(),
		"--envoy-bootstrap="+s.Bootstrap(), "--last-good-dir="+s.LastGood(), "--inspect-socket="+s.ProxySocket())
	cmd.Args = append(append(cmd.Args, otlpflag.ForProxy(in.c.Extra)...), in.debug()...)
	return cmd
}

func (in *Instance) debug() []string {
	if in.c.Debug {
		return []string{"--debug"}
	}
	return nil
}

func (in *Instance) envoy() *exec.Cmd {
	_ = os.Remove(in.c.State.AdminSocket()) // Envoy does not replace one that a killed Envoy left
	return exec.Command(in.c.Envoy, "--config-path", in.c.State.Bootstrap(), "--log-level", "info",
		"--concurrency", "2", "--disable-hot-restart", "--file-flush-interval-msec", "200",
		"--drain-time-s", strconv.Itoa(int(in.c.Drain.Seconds())))
}

// logFiles is where each process's output goes.
type logFiles struct {
	mu   sync.Mutex // guards what follows
	open map[string]*os.File
}

// reopen opens the files, in the place of those that were open. A process that runs keeps its own.
func (l *logFiles) reopen(d statedir.Dir) error {
	opened := map[string]*os.File{}
	for _, name := range []string{"controller", "proxy", "envoy"} {
		f, err := os.OpenFile(d.Log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			closeAll(opened)
			return fmt.Errorf("open log file: %w", err)
		}
		opened[name] = f
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	closeAll(l.open)
	l.open = opened
	return nil
}

// of is the file of one process.
func (l *logFiles) of(name string) *os.File {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[name]
}

func (l *logFiles) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	closeAll(l.open)
}

func closeAll(files map[string]*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// awaitBootstrap waits until Envoy's bootstrap is there and right: the proxy answers once it
// has written it. What an earlier start left may be right too, but only the proxy knows.
func (in *Instance) awaitBootstrap(ctx context.Context) error {
	var d net.Dialer
	return poll.Until(ctx, func() bool {
		conn, err := d.DialContext(ctx, "unix", in.c.State.ProxySocket())
		if err != nil {
			return false
		}
		_ = conn.Close()
		_, err = os.Stat(in.c.State.Bootstrap())
		return err == nil
	})
}

// Binaries finds the programs that belong to the running one: beside it.
func Binaries() (controller, proxy string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", "", err
	}
	if real, err := filepath.EvalSymlinks(self); err == nil {
		self = real
	}
	dir := filepath.Dir(self)
	return filepath.Join(dir, "aether-controller"), filepath.Join(dir, "aether-proxy"), nil
}
