// Package collector runs the OpenTelemetry Collector of tools/collector for a test, on
// loopback, and reads what it was sent. It judges nothing.
package collector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"aether.io/aether/test/cluster/build"
)

// patience bounds how long anything may take before it counts as lost.
const patience = 30 * time.Second

// Config is how a collector listens.
type Config struct {
	TLS  bool   // with a certificate for localhost, of an authority that only CA tells
	Port uint16 // 0: any
}

// Collector is a running one.
type Collector struct {
	Host string // "127.0.0.1"; "localhost" with TLS
	Port uint16
	CA   []byte // PEM; nil without TLS

	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Start runs one until the test ends or Stop. The first in a machine's life is built.
func Start(t *testing.T, c Config) *Collector {
	t.Helper()
	program := find(t)
	out := &Collector{Host: "127.0.0.1", Port: c.Port, dir: t.TempDir()}
	if out.Port == 0 {
		out.Port = freePort(t)
	}
	tls := ""
	if c.TLS {
		out.Host = "localhost"
		cert, key, ca := Certificate(t, "localhost")
		out.CA = ca
		write(t, out.path("tls.crt"), cert)
		write(t, out.path("tls.key"), key)
		tls = fmt.Sprintf("\n        tls: {cert_file: %s, key_file: %s}", out.path("tls.crt"), out.path("tls.key"))
	}
	write(t, out.path("config.yaml"), fmt.Appendf(nil, `receivers:
  otlp:
    protocols:
      grpc:
        endpoint: 127.0.0.1:%d%s
exporters:
  lines: {path: %s}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines:
    logs: {receivers: [otlp], exporters: [lines]}
    traces: {receivers: [otlp], exporters: [lines]}
    metrics: {receivers: [otlp], exporters: [lines]}
`, out.Port, tls, out.path("received")))
	log, err := os.Create(out.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	out.cmd = exec.CommandContext(t.Context(), program, "--config", "file:"+out.path("config.yaml"))
	out.cmd.Stdout, out.cmd.Stderr = log, log
	out.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := out.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.done = make(chan struct{})
	go func() { // ends with the process
		defer close(out.done)
		_ = out.cmd.Wait()
	}()
	t.Cleanup(func() {
		out.Stop()
		_ = log.Close()
		if text, _ := os.ReadFile(out.path("log")); t.Failed() {
			t.Logf("the collector's log:\n%s", text)
		}
	})
	out.await(t)
	return out
}

// Stop ends it; what it received can still be read.
func (c *Collector) Stop() {
	_ = c.cmd.Process.Kill()
	<-c.done
}

func (c *Collector) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Collector) await(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(patience)
	var d net.Dialer
	for {
		conn, err := d.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", c.Port))
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the collector does not listen: %v", err)
		}
		select {
		case <-c.done:
			t.Fatal("the collector has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func find(t *testing.T) string {
	t.Helper()
	root, err := build.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := build.Cache()
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	program, err := build.Collector(root).Make(t.Context(), cache, &told)
	if err != nil {
		t.Fatalf("%v\n%s", err, told.String())
	}
	return program
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// Raw is what was sent until now, as it was written: a request of OTLP/JSON a line, oldest first.
func (c *Collector) Raw(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile(c.path("received"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return raw
}

// Received is what was sent until now, each request of OTLP by itself, oldest first.
func (c *Collector) Received(t *testing.T) []Request {
	t.Helper()
	var list []Request
	for line := range bytes.Lines(c.Raw(t)) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		list = append(list, r)
	}
	return list
}
