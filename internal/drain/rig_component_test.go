//go:build component

package drain_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"aether.io/aether/internal/envoyadmin"
	"aether.io/aether/internal/test/echo"
)

const patience = time.Minute

const bootstrap = `
node: {id: node, cluster: cluster}
admin: {address: {pipe: {path: DIR/admin.sock, mode: 384}}}
static_resources:
  listeners:
  - name: web
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          upgrade_configs: [{upgrade_type: websocket}]
          http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
          route_config: {virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: backend, timeout: 0s}}]}]}
  clusters:
  - name: backend
    type: STATIC
    load_assignment: {cluster_name: backend, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: BACKEND}}}}]}]}
`

// envoy is a running Envoy with one listener.
type envoy struct {
	*envoyadmin.Client
	t       *testing.T
	dir     string
	cmd     *exec.Cmd
	address string // of its listener
}

func startEnvoy(t *testing.T, backend *echo.Server) *envoy {
	t.Helper()
	bin := os.Getenv("AETHER_ENVOY")
	if bin == "" {
		t.Fatal("this test needs a real Envoy 1.40.0: set AETHER_ENVOY to its path")
	}
	dir, err := os.MkdirTemp("", "ad") //nolint:usetesting // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := strings.NewReplacer("DIR", dir, "BACKEND", fmt.Sprint(backend.Port)).Replace(bootstrap)
	if err := os.WriteFile(filepath.Join(dir, "envoy.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "--config-path", filepath.Join(dir, "envoy.yaml"), "--concurrency", "2", "--disable-hot-restart")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := &envoy{Client: envoyadmin.New(filepath.Join(dir, "admin.sock")), t: t, dir: dir, cmd: cmd}
	t.Cleanup(func() {
		e.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("envoy said\n%s", text[max(0, len(text)-4000):])
		}
	})
	eventually(t, "Envoy's listener", func() bool {
		e.address = strings.TrimPrefix(strings.TrimSpace(e.page("/listeners")), "web::")
		return e.address != "" && !strings.HasSuffix(e.address, ":0")
	})
	return e
}

// page is a page of the admin interface, empty if it does not answer.
func (e *envoy) page(path string) string {
	var d net.Dialer
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "unix", filepath.Join(e.dir, "admin.sock"))
	}}}
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, "http://envoy"+path, http.NoBody)
	if err != nil {
		e.t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

func (e *envoy) connections() int {
	e.t.Helper()
	n, err := e.Connections(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	return n
}

// eventually looks until it is so, or fails.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline.C:
			t.Fatalf("%s: not after %s", what, patience)
		case <-tick.C:
		}
	}
}

// front stands for the Service in front of proxies: it says where new connections go.
type front struct{ to atomic.Pointer[envoy] }

func (f *front) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", f.to.Load().address)
}

// traffic is clients that send one request after the other over connections that they keep.
type traffic struct {
	stop   context.CancelFunc
	ended  sync.WaitGroup
	served atomic.Int64
	lost   chan error
}

// send starts clients that speak HTTP/1 or HTTP/2. What they send is not tried again by
// Go's client: it has a body that cannot be read twice.
func send(t *testing.T, f *front, clients int, http2 bool) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	tr := &traffic{stop: stop, lost: make(chan error, 1024)}
	for range clients {
		transport := &http.Transport{DialContext: f.dial, Protocols: &http.Protocols{}}
		transport.Protocols.SetHTTP1(!http2)
		transport.Protocols.SetUnencryptedHTTP2(http2)
		client := &http.Client{Transport: transport, Timeout: patience}
		tr.ended.Go(func() {
			defer transport.CloseIdleConnections()
			for ctx.Err() == nil {
				if err := post(context.WithoutCancel(ctx), client, "1ms"); err != nil {
					select {
					case tr.lost <- err:
					default: // enough are known
					}
					continue
				}
				tr.served.Add(1)
			}
		})
	}
	t.Cleanup(func() { stop(); tr.ended.Wait() })
	return tr
}

// post sends one request that takes so long to be answered.
func post(ctx context.Context, client *http.Client, delay string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://web.test/", io.MultiReader(strings.NewReader("x")))
	if err != nil {
		return err
	}
	req.Header.Set("echo-delay", delay)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// more waits until so many more requests have been served.
func (tr *traffic) more(t *testing.T, n int64) {
	t.Helper()
	from := tr.served.Load()
	eventually(t, "traffic", func() bool { return tr.served.Load() >= from+n })
}

// none ends the traffic and fails if any of it was lost.
func (tr *traffic) none(t *testing.T) {
	t.Helper()
	tr.stop()
	tr.ended.Wait()
	close(tr.lost)
	for err := range tr.lost {
		t.Errorf("lost: %v", err)
	}
	if tr.served.Load() == 0 {
		t.Error("nothing was served")
	}
}

// webSocket is an open one.
type webSocket struct {
	net.Conn
	r *bufio.Reader
}

func openWebSocket(t *testing.T, address string) *webSocket {
	t.Helper()
	d := net.Dialer{Timeout: patience}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	s := &webSocket{c, bufio.NewReader(c)}
	resp, err := echo.Upgrade(c, s.r, "GET / HTTP/1.1\r\nhost: web.test\r\n")
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("WebSocket: %v %v", resp, err)
	}
	if _, err := echo.ReadText(s.r); err != nil {
		t.Fatal(err)
	}
	return s
}

// echoes reports whether a message comes back.
func (s *webSocket) echoes(text string) error {
	if err := s.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if err := echo.WriteText(s, text, true); err != nil {
		return err
	}
	got, err := echo.ReadText(s.r)
	if err == nil && got != text {
		err = fmt.Errorf("%q came back as %q", text, got)
	}
	return err
}
