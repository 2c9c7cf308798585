//go:build component

package envoy_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/bootstrap"
)

// patience is how long a test waits for what must come. It asserts nothing about speed.
const patience = time.Minute

// rig is a real Envoy started from our bootstrap and fed by a delta ADS server.
type rig struct {
	layers uint32 // runtime layers that were waited for
	dir    string
	ads    *adsServer
	admin  *http.Client
	log    string
}

func envoyBinary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("AETHER_ENVOY")
	if path == "" {
		t.Fatal("component tests need an Envoy binary: set AETHER_ENVOY to its path")
	}
	return path
}

// newRig starts one; change, if any, is made to the configuration of its bootstrap.
func newRig(t *testing.T, change ...func(*bootstrap.Config)) *rig {
	t.Helper()
	binary := envoyBinary(t)
	dir, err := os.MkdirTemp("", "ae") //nolint:usetesting // short: a socket's path is at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{dir: dir, ads: newADSServer(), log: filepath.Join(dir, "envoy.log")}
	adminSocket := filepath.Join(dir, "admin.sock")
	r.serveADS(t, filepath.Join(dir, "xds.sock"))
	r.admin = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", adminSocket)
		},
	}}
	t.Cleanup(r.admin.CloseIdleConnections)

	config := bootstrap.Config{
		NodeID: "test", Cluster: "test",
		XDSSocket: filepath.Join(dir, "xds.sock"), AdminSocket: adminSocket,
	}
	for _, f := range change {
		f(&config)
	}
	boot, err := bootstrap.New(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "boot.json")
	if err := os.WriteFile(file, boot, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary, "--mode", "validate", "-c", file, "-l", "warning").CombinedOutput(); err != nil {
		t.Fatalf("envoy refuses the bootstrap: %v\n%s", err, out)
	}
	r.start(t, binary, file)
	return r
}

func (r *rig) start(t *testing.T, binary, config string) {
	t.Helper()
	out, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "-c", config, "-l", "warning", "--concurrency", "2",
		"--disable-hot-restart", "--file-flush-interval-msec", "20")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "OTEL_RESOURCE_ATTRIBUTES=k8s.pod.name=pod-1,k8s.namespace.name=gateways")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
		for _, refusal := range r.ads.refused() {
			t.Errorf("envoy refused: %s", refusal)
		}
		if t.Failed() {
			log, _ := os.ReadFile(r.log)
			t.Logf("envoy's log:\n%s", log)
		}
	})
}

func (r *rig) serveADS(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s, r.ads)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(listener)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
}

// serve encodes the models and hands them to Envoy.
func (r *rig) serve(t *testing.T, models ...model) {
	t.Helper()
	for _, m := range models {
		res, err := m.Resource()
		if err != nil {
			t.Fatal(err)
		}
		r.ads.put(res)
	}
}

// get reads a page of Envoy's admin interface; "" if it does not answer yet.
func (r *rig) get(path string) string {
	resp, err := r.admin.Get("http://admin" + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// await polls until ok, and fails with what dump says if it never comes.
func await(t *testing.T, what string, ok func() bool, dump func() string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain for %s\n%s", what, dump())
		case <-tick.C:
		}
	}
}

// awaitListener waits until a port accepts connections.
func (r *rig) awaitListener(t *testing.T, port uint32) {
	t.Helper()
	await(t, fmt.Sprintf("port %d", port), func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, func() string {
		return r.get("/stats?filter=listener_manager") + r.get("/config_dump?include_eds")
	})
}

// freePort is a port that was free a moment ago.
func freePort(t *testing.T) uint32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint32(l.Addr().(*net.TCPAddr).Port)
}

// seen is what a backend saw of a request.
type seen struct {
	Backend string
	Host    string
	Path    string
	Proto   string
	Header  http.Header
}

// listen has a server serve a port of an address until the test ends.
func listen(t *testing.T, ip string, s *http.Server) envoy.Address {
	t.Helper()
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return envoy.Address{IP: ip, Port: uint32(l.Addr().(*net.TCPAddr).Port)}
}

// echoUpgraded makes a request a WebSocket on which everything comes back.
func echoUpgraded(w http.ResponseWriter) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_, _ = io.Copy(conn, buffered)
}

// backend starts a server that answers with what it saw, or as ?status= and ?grpc= say.
func backend(t *testing.T, name string, h2 bool) envoy.Address {
	t.Helper()
	s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		query := q.URL.Query()
		if g := query.Get("grpc"); g != "" {
			w.Header().Set("Grpc-Status", g)
			w.Header().Set("Content-Type", "application/grpc")
		}
		var status int
		if _, err := fmt.Sscan(query.Get("status"), &status); err == nil {
			w.WriteHeader(status)
		}
		_ = json.NewEncoder(w).Encode(seen{Backend: name, Host: q.Host, Path: q.URL.Path, Proto: q.Proto, Header: q.Header})
	})}
	s.Protocols.SetHTTP1(!h2)
	s.Protocols.SetUnencryptedHTTP2(h2)
	return listen(t, "127.0.0.1", s)
}

// answer is a response, with what the backend saw if one answered.
type answer struct {
	Status int
	Header http.Header
	Seen   seen
}

// ask sends one HTTP/1 request exactly as it is written: lines are the request line and
// the headers.
func ask(t *testing.T, port uint32, lines ...string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	lines = append(lines, "Connection: close", "", "")
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	return decode(t, resp)
}

// decode reads a response to its end.
func decode(t *testing.T, resp *http.Response) answer {
	t.Helper()
	defer resp.Body.Close()
	a := answer{Status: resp.StatusCode, Header: resp.Header}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = json.Unmarshal(body, &a.Seen)
	return a
}
