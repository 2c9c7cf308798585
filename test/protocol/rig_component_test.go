//go:build component

// Package protocol_test looks at the product from outside, on the wire: what a client may
// send, in which bytes it reaches a backend, and what must never reach one.
package protocol_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"aether.io/aether/internal/changelog"
	"aether.io/aether/internal/test/echo"
	"aether.io/aether/internal/test/instance"
)

// patience bounds every wait.
const patience = 30 * time.Second

// world is an instance whose routes each test adds for itself.
type world struct {
	in     *instance.Instance
	offset int
}

// worlds are the instances, by the way in which routes are cut into scopes. TestMain
// makes and stops them.
var worlds = map[string]*world{}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	envoy := os.Getenv("AETHER_ENVOY")
	if envoy == "" {
		return 1, errors.New("AETHER_ENVOY does not name an Envoy: run make component")
	}
	work, err := os.MkdirTemp("", "aether-protocol-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	out, err := exec.Command("go", "build", "-o", filepath.Join(work, "bin")+"/", "aether.io/aether/cmd/...").CombinedOutput()
	if err != nil {
		return 1, fmt.Errorf("build the commands: %w\n%s", err, out)
	}
	defer func() {
		for _, w := range worlds {
			_ = w.in.Stop()
		}
	}()
	for _, scopes := range []string{"Single", "PerHost"} {
		w, err := start(filepath.Join(work, scopes), filepath.Join(work, "bin", "aetherctl"), envoy, scopes)
		if err != nil {
			return 1, err
		}
		worlds[scopes] = w
	}
	return m.Run(), nil
}

const gateway = `apiVersion: config.aether.io/v1
kind: GatewayParameters
metadata: {name: parameters}
spec: {routeScopes: %s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec:
  controllerName: config.aether.io/gateway-controller
  parametersRef: {group: config.aether.io, kind: GatewayParameters, name: parameters, namespace: default}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: coxswain, listeners: [{name: http, protocol: HTTP, port: 8080}]}
`

func start(dir, aetherctl, envoy, scopes string) (*world, error) {
	manifests := filepath.Join(dir, "manifests")
	if err := os.MkdirAll(manifests, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(manifests, "gateway.yaml"), fmt.Appendf(nil, gateway, scopes), 0o600); err != nil {
		return nil, err
	}
	offset, err := instance.FreeOffset(8080)
	if err != nil {
		return nil, err
	}
	in, err := instance.Start(context.Background(), instance.Config{
		Aetherctl: aetherctl, Envoy: envoy, Dir: manifests, StateDir: filepath.Join(dir, "state"), Offset: offset, Args: []string{"--drain", "1s"},
	})
	if err != nil {
		return nil, err
	}
	return &world{in: in, offset: offset}, nil
}

// inBothModes runs a test in each way to cut routes into scopes.
func inBothModes(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, scopes := range []string{"Single", "PerHost"} {
		t.Run(scopes, func(t *testing.T) { test(t, worlds[scopes]) })
	}
}

// route serves a host by the backend at a port, and returns when it is live. The host
// is the caller's alone.
func (w *world) route(t *testing.T, host string, port int, appProtocol string) {
	t.Helper()
	w.apply(t, host+".yaml", manifests(host, port, appProtocol))
}

func manifests(host string, port int, appProtocol string) string {
	name := strings.NewReplacer(".", "-", "*", "any").Replace(host)
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {ports: [{port: 80%[4]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[3]d}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s}
spec:
  parentRefs: [{name: web}]
  hostnames: ["%[2]s"]
  rules: [{backendRefs: [{name: %[1]s, port: 80}]}]
`, name, host, port, appProtocolField(appProtocol))
}

func appProtocolField(p string) string {
	if p == "" {
		return ""
	}
	return ", appProtocol: " + p
}

func (w *world) apply(t *testing.T, file, text string) {
	t.Helper()
	e, err := w.in.Apply(t.Context(), file, text)
	if err != nil {
		t.Fatalf("%v\n%s", err, w.in.Dump())
	}
	if e.State != changelog.Live {
		t.Fatalf("the controller reports: %s", e)
	}
}

// dial opens a connection to the listener, which ends with the test.
func (w *world) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", 8080+w.offset))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c, bufio.NewReader(c)
}

// say sends bytes on a new connection and reads one answer.
func (w *world) say(t *testing.T, request string) (*http.Response, string, error) {
	t.Helper()
	c, r := w.dial(t)
	if _, err := io.WriteString(c, request); err != nil {
		return nil, "", err
	}
	return answer(r, http.MethodGet)
}

// answer reads one answer with its body.
func answer(r *bufio.Reader, method string) (*http.Response, string, error) {
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// startEcho starts an echo for the test.
func startEcho(t *testing.T) *echo.Server {
	t.Helper()
	s, err := echo.Start(t.Context(), echo.Config{Name: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// raw is a backend that a test writes byte by byte.
type raw struct {
	port int
	l    net.Listener

	mu    sync.Mutex
	bytes bytes.Buffer // all that came
	conns []net.Conn
}

// startRaw serves each connection with serve, which reads what is also kept.
func startRaw(t *testing.T, serve func(c net.Conn, r *bufio.Reader)) *raw {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &raw{port: l.Addr().(*net.TCPAddr).Port, l: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		// Exits: the listener is closed.
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			b.conns = append(b.conns, c)
			b.mu.Unlock()
			wg.Go(func() {
				defer c.Close()
				serve(c, bufio.NewReader(io.TeeReader(c, b)))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		b.mu.Lock()
		for _, c := range b.conns {
			_ = c.Close()
		}
		b.mu.Unlock()
		wg.Wait()
	})
	return b
}

// Write keeps what came.
func (b *raw) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

// seen is all that came so far.
func (b *raw) seen() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.String()
}

// answerAll answers every request with those bytes.
func answerAll(response string) func(net.Conn, *bufio.Reader) {
	return func(c net.Conn, r *bufio.Reader) {
		// Exits: the other side closes, or says what is no request.
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			if _, err := io.WriteString(c, response); err != nil {
				return
			}
		}
	}
}
