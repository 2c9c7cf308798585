//go:build component

// Package backends_test runs the product in front of backends of every sort, and looks at
// what arrives there and what clients get.
package backends_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/test/instance"
)

const (
	port      = 8080 // of Gateway web
	otherPort = 8081 // of Gateway known, which has a certificate for backends
	patience  = 30 * time.Second
)

var (
	binaries string // directory of the built commands
	envoy    string
)

func TestMain(m *testing.M) {
	envoy = os.Getenv("AETHER_ENVOY")
	os.Exit(instance.WithPrograms(envoy, func(programs string) int {
		binaries = programs
		return m.Run()
	}))
}

// world is one instance and its clients.
type world struct {
	*instance.Instance
	t      *testing.T
	client *http.Client
	offset int // added to ports
}

const gateways = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: coxswain
  listeners: [{name: http, protocol: HTTP, port: 8080, allowedRoutes: {namespaces: {from: All}}}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: known}
spec:
  gatewayClassName: coxswain
  tls: {backend: {clientCertificateRef: {name: client}}}
  listeners: [{name: http, protocol: HTTP, port: 8081, allowedRoutes: {namespaces: {from: All}}}]
`

// start runs an instance with both Gateways on manifests, given as file name to text.
func start(t *testing.T, files map[string]string, args ...string) *world {
	t.Helper()
	work := t.TempDir()
	dir := filepath.Join(work, "manifests")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	files["gateways.yaml"] = gateways
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	offset, err := instance.FreeOffset(port, otherPort)
	if err != nil {
		t.Fatal(err)
	}
	in, err := instance.Start(t.Context(), instance.Config{
		Aetherctl: filepath.Join(binaries, "aetherctl"), Envoy: envoy, Dir: dir, StateDir: filepath.Join(work, "state"), Offset: offset, Args: args,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Instance: in, t: t, client: &http.Client{Timeout: patience}, offset: offset}
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		if t.Failed() {
			t.Log(in.Dump())
		}
		if err := in.Stop(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return w
}

// route sends a host's requests, at both Gateways, to port 80 of a Service.
func route(name, service string) string {
	namespace := ""
	if ns, n, ok := strings.Cut(service, "/"); ok {
		namespace, service = "namespace: "+ns+", ", n
	}
	return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s}
spec:
  parentRefs: [{name: web}, {name: known}]
  hostnames: [%[1]s.example.com]
  rules: [{backendRefs: [{%[3]sname: %[2]s, port: 80}]}]
`, name, service, namespace)
}

// service is a Service with port 80, and a slice of the endpoints given as YAML.
func service(name, appProtocol string, at int, endpoints string) string {
	namespace := "default"
	if ns, n, ok := strings.Cut(name, "/"); ok {
		namespace, name = ns, n
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[5]s}
spec: {ports: [{name: web, port: 80, targetPort: pod-port, appProtocol: %[2]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: %[5]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: web, port: %[3]d}]
endpoints: [%[4]s]
`, name, appProtocol, at, endpoints, namespace)
}

const ready = `{addresses: [127.0.0.1]}`

// ask is what a client gets from a host at one of the ports.
func (w *world) ask(at int, host, path string) (int, seen) {
	code, body := w.Get(w.t.Context(), w.client, at, host+".example.com", path)
	var s seen
	if json.Unmarshal([]byte(body), &s) != nil {
		s.Backend = body
	}
	return code, s
}

func (w *world) url(at int) string { return fmt.Sprintf("http://127.0.0.1:%d", at+w.offset) }

// eventually waits until ok, and fails with what it last said.
func (w *world) eventually(what string, ok func() (bool, string)) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		done, last := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("gave up waiting until %s; last seen: %s", what, last)
		}
		<-tick.C
	}
}

// answers waits until a host answers as wanted.
func (w *world) answers(at int, host string, code int) seen {
	w.t.Helper()
	var last seen
	w.eventually(fmt.Sprintf("%s at %d answers %d", host, at, code), func() (bool, string) {
		var c int
		c, last = w.ask(at, host, "/")
		return c == code, fmt.Sprintf("%d %+v", c, last)
	})
	return last
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if _, err := w.Write(name, text); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.Dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// says waits until the status file of an object holds every one of the texts.
func (w *world) says(kind, name string, texts ...string) {
	w.t.Helper()
	path := filepath.Join(w.State.Status(), kind, "default", name+".yaml")
	w.eventually(fmt.Sprintf("%s %s says %q", kind, name, texts), func() (bool, string) {
		data, err := os.ReadFile(path)
		if err != nil {
			return false, err.Error()
		}
		for _, text := range texts {
			if !strings.Contains(string(data), text) {
				return false, string(data)
			}
		}
		return true, ""
	})
}
