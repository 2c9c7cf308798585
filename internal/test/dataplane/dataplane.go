// Package dataplane runs one real Envoy that is fed by the local xDS server and nothing
// else: no controller, no discovery channel, no identity. Resources go in, and what Envoy
// says of them comes out. It is for tests that try many configurations on one Envoy.
package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"aether.io/aether/internal/envoy/bootstrap"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds"
)

// ErrEnded is returned when Envoy has ended by itself.
var ErrEnded = errors.New("envoy has ended")

// Config is what a Plane needs.
type Config struct {
	Envoy string    // path of the binary
	Log   io.Writer // what Envoy logs; nil: discard
}

// Plane is a running Envoy. It has one user at a time.
type Plane struct {
	dir    string
	server *xds.Server
	cmd    *exec.Cmd
	cancel context.CancelFunc
	served chan error    // the xDS server's end
	ended  chan struct{} // closed when Envoy has
	held   map[resource.Name]*resource.Resource
	set    resource.Set
}

// Start starts Envoy, with one worker, and its xDS server. Close ends both.
func Start(ctx context.Context, c Config) (*Plane, error) {
	dir, err := os.MkdirTemp("", "ae") // short: a socket's path has at most 107 bytes
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	p := &Plane{dir: dir, held: map[resource.Name]*resource.Resource{}, served: make(chan error, 1), ended: make(chan struct{})}
	if err := p.start(ctx, c); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

func (p *Plane) start(ctx context.Context, c Config) error {
	socket, file := filepath.Join(p.dir, "xds.sock"), filepath.Join(p.dir, "boot.json")
	server, err := xds.New(xds.Config{Socket: socket, AdminSocket: p.admin()})
	if err != nil {
		return fmt.Errorf("make the xDS server: %w", err)
	}
	text, err := bootstrap.New(bootstrap.Config{NodeID: "test", Cluster: "test", XDSSocket: socket, AdminSocket: p.admin()})
	if err != nil {
		return fmt.Errorf("make the bootstrap: %w", err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("write the bootstrap: %w", err)
	}
	p.server = server
	p.cmd = exec.Command(c.Envoy, "--config-path", file, "--log-level", "warn", "--concurrency", "1", "--disable-hot-restart")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stdout, p.cmd.Stderr = c.Log, c.Log
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.Envoy, err)
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() { p.served <- server.Run(ctx) }() // ends with Close
	go func() {                                 // ends with Envoy
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return nil
}

func (p *Plane) admin() string { return filepath.Join(p.dir, "admin.sock") }

// Apply makes a difference in what Envoy runs and returns what Envoy says of all that it
// is to run then.
func (p *Plane) Apply(ctx context.Context, d resource.Delta) (resource.Outcome, error) {
	for _, r := range d.Changed {
		p.forget(r.Name)
		p.held[r.Name] = r
		p.set.Add(r.Name, r.Hash)
	}
	for _, n := range d.Removed {
		p.forget(n)
	}
	return p.update(ctx, resource.Update{Version: p.set.Version(), Changed: d.Changed, Removed: d.Removed})
}

// Replace makes these resources, sorted by name, all that Envoy runs.
func (p *Plane) Replace(ctx context.Context, all []*resource.Resource) (resource.Outcome, error) {
	var d resource.Delta
	want := map[resource.Name]bool{}
	for _, r := range all {
		want[r.Name] = true
		if old := p.held[r.Name]; old == nil || old.Hash != r.Hash {
			d.Changed = append(d.Changed, r)
		}
	}
	for _, r := range p.Held() {
		if !want[r.Name] {
			d.Removed = append(d.Removed, r.Name)
		}
	}
	return p.Apply(ctx, d)
}

func (p *Plane) forget(n resource.Name) {
	if old := p.held[n]; old != nil {
		p.set.Remove(n, old.Hash)
		delete(p.held, n)
	}
}

// Held is what Envoy is to run, sorted by name.
func (p *Plane) Held() []*resource.Resource {
	return slices.SortedFunc(maps.Values(p.held), func(a, b *resource.Resource) int { return a.Compare(b.Name) })
}

func (p *Plane) update(ctx context.Context, u resource.Update) (resource.Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() { // ends with the update, or with Envoy
		select {
		case <-p.ended:
			cancel(ErrEnded)
		case <-done:
		}
	}()
	out, err := p.server.Apply(ctx, u)
	if err != nil {
		return out, errors.Join(fmt.Errorf("update Envoy: %w", err), context.Cause(ctx))
	}
	return out, nil
}

// Ended is closed when Envoy has ended, by itself or by Close.
func (p *Plane) Ended() <-chan struct{} { return p.ended }

// Admin reads a page of Envoy's admin interface.
func (p *Plane) Admin(ctx context.Context, page string) (string, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.admin())
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin"+page, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask for %s: %w", page, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", fmt.Errorf("ask for %s: %w", page, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", page, err)
	}
	return string(body), nil
}

// Close ends Envoy and the xDS server.
func (p *Plane) Close() error {
	_ = p.cmd.Process.Kill()
	<-p.ended
	p.cancel()
	err := <-p.served
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}
