//go:build component

// Package listeners_test has the routing graph serve manifests by a real Envoy, and looks
// at listeners as clients do: by handshakes, raw bytes and what backends are told.
package listeners_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/source/material"
	"aether.io/aether/internal/test/admit"
	"aether.io/aether/internal/test/dataplane"
	"aether.io/aether/internal/test/keypair"
)

const patience = time.Minute

// world is a graph and the Envoy that runs what comes out of it.
type world struct {
	t        *testing.T
	graph    *routing.Graph
	plane    *dataplane.Plane
	server   *admit.Server
	offset   uint32
	statuses map[object.Key]routing.Status
	good     map[object.Key]object.Object // as a source has it: the last version that it let into effect
	made     time.Time                    // of the next object: each is a second younger than the one before
}

func start(t *testing.T, ports ...uint32) *world {
	t.Helper()
	binary := os.Getenv("AETHER_ENVOY")
	if binary == "" {
		t.Fatal("AETHER_ENVOY does not name an Envoy: run make component")
	}
	w := &world{t: t, offset: freeOffset(t, ports), statuses: map[object.Key]routing.Status{}, good: map[object.Key]object.Object{}, made: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	if w.server, err = admit.New(); err != nil {
		t.Fatal(err)
	}
	w.graph, err = routing.New(routing.Config{
		ControllerName: "config.aether.io/gateway-controller", ReleaseNamespace: "aether-system", Address: "127.0.0.1", PortOffset: w.offset,
	})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	if w.plane, err = dataplane.Start(t.Context(), dataplane.Config{Envoy: binary, Log: &log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.plane.Close(); err != nil && !t.Failed() {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	w.take(w.graph.Apply(nil))
	return w
}

func freeOffset(t *testing.T, ports []uint32) uint32 {
	t.Helper()
search:
	for offset := uint32(20000) + uint32(os.Getpid()%4000); offset < 40000; offset += 13 {
		for _, p := range ports {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p+offset))
			if err != nil {
				continue search
			}
			_ = l.Close()
		}
		return offset
	}
	t.Fatal("no free ports")
	return 0
}

// apply admits manifests as an API server would, holds them against what is in effect as a
// source does, and has Envoy run what comes of them.
func (w *world) apply(manifests ...string) {
	w.t.Helper()
	var changes []object.Change
	for text := range strings.SplitSeq(strings.Join(manifests, "\n---\n"), "\n---\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		raw, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			w.t.Fatalf("%v\n%s", err, text)
		}
		o, err := w.server.JSON(w.t.Context(), raw)
		if err != nil {
			w.t.Fatalf("%v\n%s", err, text)
		}
		w.made = w.made.Add(time.Second)
		o.SetCreationTimestamp(metav1.NewTime(w.made))
		c := object.Change{Key: admit.Key(o), Refused: material.Problem(o)}
		if c.Refused == "" {
			w.good[c.Key] = o
		}
		c.Object = w.good[c.Key]
		changes = append(changes, c)
	}
	w.take(w.graph.Apply(changes))
}

func (w *world) remove(k object.Key) {
	w.t.Helper()
	delete(w.good, k)
	w.take(w.graph.Apply([]object.Change{{Key: k}}))
}

func (w *world) take(d routing.Delta) {
	w.t.Helper()
	for _, s := range d.Statuses {
		w.statuses[s.Key] = s
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	out, err := w.plane.Apply(ctx, d.Worlds[scope.SharedPool()])
	if err != nil {
		w.t.Fatal(err)
	}
	w.refused(out)
}

func (w *world) refused(out resource.Outcome) {
	w.t.Helper()
	for _, r := range out.Refused {
		w.t.Errorf("envoy refused %s: %s", r.Name, r.Detail)
	}
}

// serve answers with its name and with what it was told in the headers of that prefix.
func serve(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("X-Told", strings.Join(q.Header.Values("X-Forwarded-For"), " / "))
		_, _ = io.WriteString(w, name)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: infra}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: infra, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[2]d}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: %[1]s, namespace: infra}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: apps}]
  to: [{group: "", kind: Service, name: %[1]s}]
`, name, l.Addr().(*net.TCPAddr).Port)
}

const class = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
`

// route sends what a parentRef and hostnames let in to a Service of namespace infra.
func route(namespace, name, parent, hostnames, service string) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  parentRefs: [{%[3]s}]
  hostnames: [%[4]s]
  rules: [{backendRefs: [{name: %[5]s, namespace: infra, port: 80}]}]
`, namespace, name, parent, hostnames, service)
}

// pair is a certificate with its key.
type pair struct{ *keypair.Pair }

func issue(t *testing.T, by *pair, hosts ...string) *pair {
	t.Helper()
	return issueOdd(t, by, func(*x509.Certificate) {}, hosts...)
}

// issueOdd makes a certificate that is odd in some way.
func issueOdd(t *testing.T, by *pair, odd func(*x509.Certificate), hosts ...string) *pair {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: rand.Text()}, DNSNames: hosts, IsCA: by == nil, BasicConstraintsValid: true}
	odd(template)
	if by == nil {
		by = &pair{}
	}
	return &pair{keypair.New(t, template, by.Pair)}
}

func (p *pair) client() []tls.Certificate { return []tls.Certificate{*p.TLS()} }

func (p *pair) secret(namespace, name string) string {
	key, err := x509.MarshalPKCS8PrivateKey(p.Key)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n",
		name, namespace, base64.StdEncoding.EncodeToString(p.CertPEM()), base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
}

func (p *pair) configMap(namespace, name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata:\n  ca.crt: |\n    %s\n",
		name, namespace, strings.ReplaceAll(strings.TrimSpace(string(p.CertPEM())), "\n", "\n    "))
}

// client connects to one port, whatever is asked for. Without config it speaks plain HTTP/1.
func (w *world) client(port uint32, config *tls.Config) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(config == nil)
	protocols.SetHTTP2(config != nil)
	c := &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: config, Protocols: protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port+w.offset))
		},
	}}
	w.t.Cleanup(c.CloseIdleConnections)
	return c
}

// answer is what came back: the backend's name, or the status if it is not 200.
func answer(c *http.Client, host string) (string, http.Header, error) {
	scheme := "http"
	if c.Transport.(*http.Transport).TLSClientConfig != nil {
		scheme = "https"
	}
	resp, err := c.Get(scheme + "://" + host + "/")
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.StatusCode), resp.Header, nil
	}
	return string(body), resp.Header, err
}

// eventually waits until want is what is seen.
func (w *world) eventually(what, want string, see func() (string, error)) {
	w.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := see()
		if err != nil {
			got = "an error"
		}
		if got == want {
			return
		}
		select {
		case <-deadline.C:
			w.t.Fatalf("%s: want %q, last seen %q (%v)", what, want, got, err)
		case <-tick.C:
		}
	}
}

// shown is the serial number of the certificate that a server name is answered with.
func (w *world) shown(port uint32, config *tls.Config) (string, error) {
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port+w.offset), config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// By TLS 1.3 a server says that it does not take a client only after the handshake.
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	if _, err := io.ReadAll(conn); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}
